"""Ranking outside the harness: any function that scores an item will do.

This module owns the convenience face of :class:`~lm_eval_adaptive.core.procedure.Procedure` with
names in place of rows; it imports the procedure and the bank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lm_eval_adaptive.core.procedure import Procedure
from lm_eval_adaptive.core.rules import ProcedureConfig
from lm_eval_adaptive.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.core.ranker import Verdict
    from lm_eval_adaptive.core.state import StopReason


@dataclass(frozen=True)
class RankedModel:
    """One model's place.

    Attributes:
        name: The model.
        score: Estimated full-benchmark score, raw metric units.
        score_se: Its standard error, raw metric units.
        theta: Ability, logits.
        theta_se: Its standard error, logits.
        items: Items it was asked.
    """

    name: str
    score: float
    score_se: float
    theta: float
    theta_se: float
    items: int


@dataclass(frozen=True)
class Ranking:
    """A finished ranking, with the settings it was made under.

    Attributes:
        models: Best first.
        verdicts: (better placed, other, P(better placed is better), verdict) for every pair.
        stop_reason: Why it stopped.
        responses: Scores in [0, 1], shape (m, n), models sorted by name; NaN where not asked.
        config: The rules.
    """

    models: tuple[RankedModel, ...]
    verdicts: tuple[tuple[str, str, float, Verdict], ...]
    stop_reason: StopReason
    responses: NDArray[np.float64]
    config: ProcedureConfig


def rank(
    bank: ItemBank,
    respond: Callable[[str, Sequence[str]], Sequence[float]],
    models: Sequence[str] | Mapping[str, float],
    config: ProcedureConfig | None = None,
) -> Ranking:
    """Rank models with a callback that answers items and returns their raw scores.

    Args:
        bank: The calibrated items.
        respond: Takes a model's name and item ids (the bank's ``content_hash``), returns a raw
            score for each, in the metric's units.
        models: Names, or names with the cost of one item.
        config: The rules; defaults otherwise.

    Returns:
        The ranking; the same whatever the order of ``models``.

    Raises:
        DataError: A score is not finite, or ``respond`` returned another number of scores.
        UsageError: The rules cannot be met; the procedure says which.
    """
    costs = dict(models) if isinstance(models, Mapping) else dict.fromkeys(models, 1.0)
    names = sorted(costs)
    config = config or ProcedureConfig()
    procedure = Procedure.for_bank(bank, [costs[name] for name in names], config)
    scale = bank.info.scale

    def scored(row: int, items: tuple[int, ...]) -> list[float]:
        ids = [bank.content_hash[item] for item in items]
        raw = np.asarray(list(respond(names[row], ids)), dtype=np.float64)
        if raw.shape != (len(ids),):
            raise DataError(f"respond gave {raw.size} scores of {names[row]} for {len(ids)} items")
        if not np.isfinite(raw).all():
            bad = ids[int(np.argmin(np.isfinite(raw)))]
            raise DataError(f"respond gave no finite score of {names[row]} for item {bad}")
        return [float(each) for each in scale.to_score(raw)]

    state, stop = procedure.run(scored)
    estimates = procedure.estimate(state)
    raw = scale.to_raw(estimates.score)
    errors = estimates.score_se * scale.width
    asked = state.administered
    order = np.argsort(-estimates.level, kind="stable")
    return Ranking(
        models=tuple(
            RankedModel(
                names[row],
                float(raw[row]),
                float(errors[row]),
                float(estimates.theta[row]),
                float(estimates.theta_se[row]),
                int(asked[row]),
            )
            for row in order
        ),
        verdicts=tuple(
            (names[pair.a], names[pair.b], pair.p_a_better, pair.verdict)
            for pair in procedure.pairs(state, estimates)
        ),
        stop_reason=stop.reason,
        responses=state.responses,
        config=config,
    )
