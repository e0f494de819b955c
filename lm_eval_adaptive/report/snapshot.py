"""A run as it stands after a round: what the live view shows.

This module owns what is told of a contest and how it is read off it and off the core's predictions.
It decides nothing: a run that is not looked at asks the same questions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from lm_eval_adaptive.core.outlook import look_ahead

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lm_eval_adaptive.core.procedure import Procedure
    from lm_eval_adaptive.core.scale import ScoreScale
    from lm_eval_adaptive.core.state import RunState


class Terms(Protocol):
    """What one metric brings to a contest, as far as people are told of it."""

    @property
    def metric(self) -> str: ...  # noqa: D102  the metric's name
    @property
    def filter(self) -> str: ...  # noqa: D102  its filter
    @property
    def scale(self) -> ScoreScale: ...  # noqa: D102  its range and direction
    @property
    def names(self) -> tuple[str, ...]: ...  # noqa: D102  the models, by row
    @property
    def response_model(self) -> str: ...  # noqa: D102  how scores follow from abilities
    @property
    def score_of(self) -> str: ...  # noqa: D102  what scores are of, where that is not the task


class View(Protocol):
    """A contest by one metric, as far as people are told of it."""

    @property
    def terms(self) -> Terms: ...  # noqa: D102  what the metric brings
    @property
    def procedure(self) -> Procedure: ...  # noqa: D102  inference and rules
    @property
    def state(self) -> RunState: ...  # noqa: D102  what was answered
    @property
    def stop_reason(self) -> str: ...  # noqa: D102  why it is over, "" while it is not
    @property
    def notices(self) -> Sequence[str]: ...  # noqa: D102  what to know before it begins


class Contest(Protocol):
    """Models on a task, as far as people are told of them: the run's own knows more."""

    @property
    def task(self) -> str: ...  # noqa: D102  the task's name
    @property
    def views(self) -> Sequence[View]: ...  # noqa: D102  by metric, the first leads
    @property
    def rounds(self) -> int: ...  # noqa: D102  rounds taken in
    @property
    def waiting(self) -> Mapping[str, str]: ...  # noqa: D102  what models' servers are waited for


@dataclass(frozen=True)
class ModelLine:
    """One model as it stands.

    Attributes:
        name: Its name.
        score: Estimated score on the whole benchmark, metric's units.
        error: Its standard error.
        low: Lower end of its 95 % interval.
        high: Upper end.
        items: Items asked.
        cost: What they cost.
        state: What is done with it.
    """

    name: str
    score: float
    error: float
    low: float
    high: float
    items: int
    cost: float
    state: str


@dataclass(frozen=True)
class Picture:
    """A run as it stands after a round.

    Attributes:
        title: Task, metric and direction.
        lines: Models, best first; those that were set aside last.
        bank_items: Items of the bank.
        priced: Whether costs are other than one per item.
        asked: Items asked of all models.
        full: Items a full run asks.
        decided: Required pairs that are decided.
        required: Required pairs.
        given_up: Required pairs that are not pursued.
        hardest: Names of the pair that decides how long it takes, none where no pair is open.
        items_left: Items predicted to be asked yet.
        seconds_left: Time predicted for them, None where none is known.
        stop_reason: Why the task's run is over, "" while it is not.
    """

    title: str
    lines: tuple[ModelLine, ...]
    bank_items: int
    priced: bool
    asked: int
    full: int
    decided: int
    required: int
    given_up: int
    hardest: tuple[str, ...]
    items_left: int
    seconds_left: float | None
    stop_reason: str


def take_picture(contest: Contest, seconds_per_item: float | None = None) -> Picture:
    """A run as it stands.

    With several metrics the models' scores are those of the first; what is decided and what is left
    is told of all of them.

    Args:
        contest: The models on the task.
        seconds_per_item: Time of an answer so far, over all models.
    """
    pictures = [_of_metric(contest.task, view) for view in contest.views]
    first = pictures[0]
    longest = max(pictures, key=lambda each: each.items_left)
    asking = {line.name for each in pictures for line in each.lines if line.state == "asking"}
    others = len(pictures) - 1
    more = f" (and {others} more metric{'s' if others > 1 else ''})" if others else ""
    return replace(
        first,
        title=f"{first.title}{more}",
        lines=tuple(
            replace(line, state="asking" if line.name in asking else line.state)
            for line in first.lines
        ),
        decided=sum(each.decided for each in pictures),
        required=sum(each.required for each in pictures),
        given_up=sum(each.given_up for each in pictures),
        hardest=longest.hardest,
        items_left=longest.items_left,
        seconds_left=None if seconds_per_item is None else seconds_per_item * longest.items_left,
    )


def _of_metric(task: str, view: View) -> Picture:
    """What one metric tells of a run."""
    procedure, state, terms = view.procedure, view.state, view.terms
    names, scale = terms.names, terms.scale
    estimates = procedure.estimate(state)
    outlook = look_ahead(procedure, state, estimates)
    raw = scale.to_raw(estimates.score)
    half = estimates.score_half_interval * scale.width
    states: list[str] = list(outlook.standing)
    if view.stop_reason:
        states = ["undecided" if each == "asking" else each for each in states]
    if view.stop_reason == "fixed_length":
        states = ["settled" if each == "undecided" else each for each in states]
    order = sorted(
        range(len(names)), key=lambda row: (state.failed[row], -estimates.level[row], row)
    )
    arrow = "↑" if scale.higher_is_better else "↓"
    filtered = "" if terms.filter == "none" else f", {terms.filter}"
    of = f", of {terms.score_of}" if terms.score_of else ""
    hardest = outlook.hardest
    return Picture(
        title=f"{task}: {terms.metric}{filtered} {arrow}{of}",
        lines=tuple(
            ModelLine(
                names[row],
                float(raw[row]),
                float(estimates.score_se[row] * scale.width),
                float(np.clip(raw[row] - half[row], scale.lo, scale.hi)),
                float(np.clip(raw[row] + half[row], scale.lo, scale.hi)),
                int(state.administered[row]),
                float(state.spent[row]),
                states[row],
            )
            for row in order
        ),
        bank_items=len(state.available),
        priced=bool((procedure.item_costs != 1.0).any()),
        asked=int(state.answered.sum()),
        full=len(state.available) * int((~procedure.known).sum()),
        decided=outlook.decided,
        required=outlook.required,
        given_up=outlook.given_up,
        hardest=() if hardest is None or view.stop_reason else (names[hardest.a], names[hardest.b]),
        items_left=0 if view.stop_reason else outlook.items_left,
        seconds_left=None,
        stop_reason=view.stop_reason,
    )
