"""Scores that make a ranking worthless: too many outside the metric's range, or none at all.

This module owns when such a run stops asking; it imports the contest. A range that is wrong makes
every number of a ranking wrong, and of a metric that never comes nothing is decided; the journal
keeps what was answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lm_eval_adaptive.errors import TaskError, UsageError
from lm_eval_adaptive.host.scoring import OPEN_ENDED

if TYPE_CHECKING:
    from pathlib import Path

    from lm_eval_adaptive.run.contest import Contest, View

SHARE = 0.01
# Fewer than these do not stop a run that is going on; at its end the share alone counts.
FEW = 3

# Documents without a metric that the task lists, after which it is not waited for.
_ENOUGH_WITHOUT = 20


def refuse_outside(contest: Contest, folder: Path, *, over: bool) -> None:
    """Refuse to go on where too many scores lie outside the range, unless the user said ``--clip``.

    Args:
        contest: The contest, after a round.
        folder: The run's folder.
        over: Whether nothing more will be asked.

    Raises:
        UsageError: Too many do; the message has the counts.
    """
    for view in contest.views:
        terms = view.terms
        if terms.options.clip or terms.metric in OPEN_ENDED:  # without an end there, range is usual
            continue
        count, scored = _counts(view)
        if count > SHARE * scored and (over or count >= FEW):
            raise UsageError(_refusal(view, count, scored, folder))


def _counts(view: View) -> tuple[int, int]:
    scored = [each for each in view.scores if each.raw_score is not None]
    return sum(each.clipped for each in scored), len(scored)


def _refusal(view: View, count: int, scored: int, folder: Path) -> str:
    terms = view.terms
    raw = [each.raw_score for each in view.scores if each.clipped and each.raw_score is not None]
    if terms.bank is None:
        mend = "start a new run with the metric's true --range LO,HI"
    else:
        mend = "calibrate a bank with the metric's true --range LO,HI"
    return (
        f"{count} of {scored} scores of {terms.metric} lie outside its range "
        f"[{terms.scale.lo:g}, {terms.scale.hi:g}] ({min(raw):g} to {max(raw):g}): nothing said by "
        f"them would be true; all answers are in {folder}: {mend}, or go on with --resume {folder} "
        "--clip, which counts them as the ends of the range"
    )


def refuse_a_metric_that_never_comes(contest: Contest, *, over: bool) -> None:
    """Stop where a metric that the task lists is in no answer so far: nothing would be decided.

    Args:
        contest: The contest, its answers taken in.
        over: Whether nothing more will be asked; before, some documents are waited for, as a
            metric may be of one kind of documents alone.

    Raises:
        TaskError: It is in none.
    """
    for terms in (view.terms for view in contest.views):
        # An early answer has it in nearly every run, and no other is looked at then.
        if any(terms.metric in answer.metrics.get(terms.filter, ()) for answer in contest.answers):
            continue
        held = [answer for answer in contest.answers if terms.filter in answer.metrics]
        asked = len({answer.doc_id for answer in held})
        if asked >= _ENOUGH_WITHOUT or (over and asked):
            given = sorted({name for answer in held for name in answer.metrics[terms.filter]})
            raise TaskError(
                f"task {contest.task} lists the metric {terms.metric} and gave it for none of the "
                f"{asked} documents asked; it gave {', '.join(given) or 'none'}: rank by one of "
                "these with --metric (what was answered is in the journal)"
            )
