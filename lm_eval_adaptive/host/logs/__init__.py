"""Reading the harness's own ``--log_samples`` output, whatever version wrote it.

``files`` finds the samples files, ``reading`` gives their rows one at a time whatever they are
packed in, ``samples`` measures them, ``answers`` keeps them as columns, ``results`` reads the
results file beside them (same date), ``runs`` pairs both and gives each run a name, many large
files ``side_by_side``; ``records`` says what comes out, ``foreign`` names other programs' files.
Reading refuses what cannot be understood and notes on each run what was left out. Runs become a
score matrix in ``banks.log_scores``.
"""

from lm_eval_adaptive.host.logs.records import LoggedAnswer, LoggedRequest, LoggedRun, is_named
from lm_eval_adaptive.host.logs.runs import exclude_runs, find_runs

__all__ = ["LoggedAnswer", "LoggedRequest", "LoggedRun", "exclude_runs", "find_runs", "is_named"]
