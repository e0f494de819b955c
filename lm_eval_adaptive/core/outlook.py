"""How far a test is from its end: who still needs items, which pair decides how long, how many.

This module owns predictions for people to look at; it imports the procedure and changes nothing
about it: no rule of the test depends on what is predicted here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from lm_eval_adaptive.core.ranker import errors_to_decide, pair_variance

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lm_eval_adaptive.core.estimates import Estimates
    from lm_eval_adaptive.core.procedure import Procedure
    from lm_eval_adaptive.core.ranker import Pair
    from lm_eval_adaptive.core.state import RunState

Standing = Literal["asking", "settled", "too close", "at limit", "failed", "known"]


@dataclass(frozen=True)
class Outlook:
    """What is decided, and what is predicted to be left.

    Attributes:
        decided: Required pairs that are decided.
        required: Required pairs.
        given_up: Required pairs that are undecided and have too small a chance to be decided.
        hardest: The open pair that is predicted to need most items; None where no pair is open.
        items_left: Items predicted to be asked yet, of all models together.
        standing: What each model does, in the order of the rows: it is being asked, or all its
            required pairs are decided (or its length or precision is reached), or its open pairs
            were given up, or it was asked the most items allowed, or it was set aside, or its score
            is on record.
    """

    decided: int
    required: int
    given_up: int
    hardest: Pair | None
    items_left: int
    standing: tuple[Standing, ...]


def look_ahead(procedure: Procedure, state: RunState, estimates: Estimates) -> Outlook:
    """Predict the rest of a test from how errors fall.

    A pair needs so many items of each model that its error, by the inference's forecast, falls to
    what its difference is decided at; a single model so many that its error is the precision asked
    for. Pairs that the procedure gives up need nothing more.

    Args:
        procedure: The rules.
        state: What has been asked.
        estimates: The beliefs at that state.
    """
    config, m = procedure.config, len(procedure.costs)
    asked = state.asked
    under_test = ~state.failed & ~procedure.known
    goal = np.where(under_test, procedure.min_items, asked).astype(np.float64)
    open_models = np.zeros(m, dtype=bool)
    close_models = np.zeros(m, dtype=bool)
    pairs = [pair for pair in procedure.pairs(state, estimates) if pair.required]
    undecided = {(pair.a, pair.b) for pair in pairs if pair.verdict == "undecided"}
    hardest: tuple[float, Pair] | None = None
    given_up = 0
    if config.items_per_model is not None:
        goal[under_test] = config.items_per_model
    elif config.precision is not None:
        law = procedure.inference.forecast
        times = np.maximum(estimates.score_se / config.precision, 1.0)
        goal = np.maximum(goal, [law.items(*each) for each in zip(asked, times, strict=True)])
    else:
        variance = pair_variance(estimates)
        for pair in procedure.open_pairs(state, estimates):
            rows = [pair.a, pair.b]
            least = min(int(asked[row]) for row in rows if not procedure.known[row])
            warm = least >= procedure.min_items
            if warm and procedure.chance(state, estimates, pair) < procedure.futility:
                if (pair.a, pair.b) in undecided:
                    given_up += 1
                    close_models[rows] = True
                continue
            open_models[rows] = True
            need = _items_needed(procedure, estimates, pair, variance, least)
            if hardest is None or need > hardest[0]:
                hardest = need, pair
            goal[rows] = np.maximum(goal[rows], need)
    most = config.items_per_model or procedure.max_items
    short = under_test & (np.minimum(np.ceil(goal), most) > asked)
    left = np.where(short, np.minimum(np.ceil(goal), most) - asked, 0.0)
    total = _within_budget(procedure, state, left)

    def standing(row: int) -> Standing:
        if procedure.known[row]:
            return "known"
        if state.failed[row]:
            return "failed"
        if open_models[row] and asked[row] >= procedure.max_items:
            return "at limit"
        if open_models[row] or short[row]:
            return "asking"
        return "too close" if close_models[row] else "settled"

    return Outlook(
        decided=len(pairs) - len(undecided),
        required=len(pairs),
        given_up=given_up,
        hardest=None if hardest is None else hardest[1],
        items_left=int(total),
        standing=tuple(standing(row) for row in range(m)),
    )


def _items_needed(
    procedure: Procedure,
    estimates: Estimates,
    pair: Pair,
    variance: NDArray[np.float64],
    n: int,
) -> float:
    """Items of each of the two models until their pair is decided, or known to be equivalent."""
    rule = procedure.stop_rule
    target = errors_to_decide(estimates, rule)
    sd = float(np.sqrt(variance[pair.a, pair.b]))
    gap = abs(float(estimates.level[pair.a] - estimates.level[pair.b]))
    # The nearer of the two goals: zero, or the margin, lies outside the interval.
    reach = max(gap, rule.equivalence - gap, 1e-9)
    ratio = max(target * sd / reach, 1.0)
    return procedure.inference.forecast.items(max(n, 1), min(ratio, 1e3)) + 1.0


def _within_budget(procedure: Procedure, state: RunState, left: NDArray[np.float64]) -> float:
    """The items of a prediction that a budget allows."""
    config = procedure.config
    total = float(left.sum())
    if config.budget_items is not None:
        total = min(total, config.budget_items - float(state.answered.sum()))
    price = float((left * procedure.costs).sum())
    if config.budget is not None and price > 0.0:
        money = config.budget - float(procedure.elsewhere) - float(state.spent.sum())
        total *= min(1.0, max(money, 0.0) / price)
    return float(max(total, 0.0))
