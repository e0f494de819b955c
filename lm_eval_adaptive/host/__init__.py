"""Everything that touches ``lm_eval``: tasks, documents, candidates, scoring, logs, replay.

Knows no statistics; heavy imports happen inside functions.
"""
