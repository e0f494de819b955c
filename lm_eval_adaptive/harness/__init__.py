"""The lm-evaluation-harness side: command line, tasks, models, journal, files.

Imports of ``lm_eval`` and other heavy packages happen inside functions, so that ``--help`` is
quick. No statistics live here: what a number means is decided in ``lm_eval_adaptive.core``.
"""
