"""From a contest to its ranking, and from several rankings to their summary.

This module owns how the core's verdicts become records; the shape of the files is
``records.ranking``'s. It computes nothing about models: numbers come from the contest.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from msgspec import structs

import lm_eval_adaptive
from lm_eval_adaptive.core.money import add_up
from lm_eval_adaptive.core.widening import place
from lm_eval_adaptive.records.journal import NO_BANK
from lm_eval_adaptive.records.ranking import (
    BankStamp,
    Entry,
    Estimate,
    Excluded,
    MetricRanking,
    PairVerdict,
    RankingDocument,
    Recipe,
    SetAside,
    SummaryDocument,
    SummaryRow,
)
from lm_eval_adaptive.run.remarks import doubts, lost_shares, pair_note, remarks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lm_eval_adaptive.core.estimates import Estimates
    from lm_eval_adaptive.core.ranker import Pair
    from lm_eval_adaptive.run.contest import Contest, View


# No verdict is certain: a probability that rounds to 0 or 1 is told as this far from it.
UNSURE = 1e-15


def ranking_document(contest: Contest) -> RankingDocument:
    """The content of a ranking file; the same for the same answers."""
    by_metric = {view.terms.key: metric_ranking(contest, view) for view in contest.views}
    first = next(iter(by_metric.values()))
    return RankingDocument(
        **structs.asdict(first),
        task=contest.task,
        config=Recipe(
            adaptive=contest.first.terms.options.choices(),
            models=tuple(spec.choices() for spec in contest.specs),
        ),
        versions=versions(),
        rankings=by_metric if len(by_metric) > 1 else {},
    )


def metric_ranking(contest: Contest, view: View) -> MetricRanking:
    """The ranking by one metric."""
    procedure, state, terms = view.procedure, view.state, view.terms
    estimates = procedure.estimate(state)
    pairs = procedure.pairs(state, estimates)
    names, scale = terms.names, terms.scale
    active = [row for row in range(len(names)) if not state.failed[row]]
    ranked, tied = _ranked(pairs, active), _ties(pairs, active)
    of_row = _estimate_of(view, estimates)
    lost = lost_shares(contest, view)
    items_full = len(view.doc_ids) * int((~procedure.known).sum())
    return MetricRanking(
        metric=terms.metric,
        filter=terms.filter,
        score_of=terms.score_of,
        higher_is_better=scale.higher_is_better,
        bank=_stamp(view),
        signature=terms.signature,
        ranking=tuple(
            Entry(
                rank=place,
                **structs.asdict(of_row(row)),
                tied_with=tuple(names[other] for other in ranked if other in tied[row]),
            )
            for place, row in enumerate(ranked, start=1)
        ),
        set_aside=tuple(
            SetAside(**structs.asdict(of_row(names.index(name))), reason=reason)
            for name, reason in contest.failed.items()
        ),
        pairs=tuple(
            PairVerdict(
                a=names[pair.a],
                b=names[pair.b],
                p_a_better=min(max(pair.p_a_better, UNSURE), 1.0 - UNSURE),
                verdict=pair.verdict,
                required=pair.required,
                note=pair_note(lost, names[pair.a], names[pair.b]),
            )
            for pair in pairs
        ),
        stop_reason=view.stop_reason,
        items_total=int(state.answered.sum()),
        items_full=items_full,
        fraction=float(state.answered.sum() / items_full),
        cost_total=add_up(state.spent),
        cost_full=float(procedure.item_costs.sum()),
        excluded=tuple(
            Excluded(doc_id=doc_id, reason=reason) for doc_id, reason in view.excluded.items()
        ),
        warnings=tuple(remarks(contest, view)),
        doubts=doubts(view),
        trace=tuple(view.trace),
    )


def _estimate_of(view: View, estimates: Estimates) -> Callable[[int], Estimate]:
    """What the file says of the model in a row, whether it is ranked or set aside."""
    state, scale = view.state, view.terms.scale
    raw = scale.to_raw(estimates.score)
    raw_se = estimates.score_se * scale.width
    half = estimates.score_half_interval * scale.width
    asked = state.asked

    def of_row(row: int) -> Estimate:
        return Estimate(
            model=view.terms.names[row],
            score=float(raw[row]),
            score_se=float(raw_se[row]),
            # 95 %, within the metric's range.
            score_ci=(
                float(np.clip(raw[row] - half[row], scale.lo, scale.hi)),
                float(np.clip(raw[row] + half[row], scale.lo, scale.hi)),
            ),
            ability=float(estimates.theta[row]),
            ability_se=float(estimates.theta_se[row]),
            lies=_lies(view, estimates, row),
            items=int(asked[row]),
            cost=float(state.spent[row]),
            known=bool(view.procedure.known[row]),
        )

    return of_row


def _lies(view: View, estimates: Estimates, row: int) -> str:
    """Where a model that was asked lies among those that calibrated; "" where there is no bank."""
    bank, asked = view.terms.bank, view.state.administered[row]
    if bank is None or estimates.outside is None or view.procedure.known[row] or not asked:
        return ""
    return place(float(estimates.outside[row]), len(bank.info.models))


def _stamp(view: View) -> BankStamp:
    terms = view.terms
    bank, scale = terms.bank, terms.scale
    return BankStamp(
        path=NO_BANK if bank is None else Path(bank.path).name,
        sha256=terms.bank_sha256,
        items=len(view.doc_ids),
        response_model=terms.response_model,
        range=(scale.lo, scale.hi),
        models=() if bank is None else tuple(model.name for model in bank.info.models),
    )


def _ranked(pairs: Sequence[Pair], active: Sequence[int]) -> list[int]:
    """Rows best first: a row is beaten by as many as stand before it."""
    worse = Counter(pair.b for pair in pairs)
    return sorted(active, key=lambda row: worse[row])


def _ties(pairs: Sequence[Pair], active: Sequence[int]) -> dict[int, set[int]]:
    tied: dict[int, set[int]] = {row: set() for row in active}
    for pair in pairs:
        if pair.verdict in ("undecided", "equivalent"):
            tied[pair.a].add(pair.b)
            tied[pair.b].add(pair.a)
    return tied


def summary_document(
    rankings: Mapping[str, RankingDocument], calibrated: Mapping[str, Sequence[float]], date: str
) -> SummaryDocument:
    """Several tasks together: mean rank, and mean standardised score with its error.

    A task's scores are standardised by its bank's calibration models, z = (score - mean) / sd of
    their full scores, flipped where lower is better, so that every task weighs the same. The error
    of the mean over T tasks is sqrt(sum se_t^2) / T, their samples being independent.

    Args:
        rankings: Ranking documents by task.
        calibrated: Full scores of the bank's calibration models by task, metric's units; none where
            there is no bank.
        date: When it is written.

    Returns:
        The summary file's content: a row per model, best mean z first; a model that was set aside
        on a task is averaged over the others.
    """
    found: dict[str, list[tuple[int, float, float]]] = {}
    for task, ranking in rankings.items():
        raw = np.array(calibrated[task])
        if not len(raw):  # without a bank the ranked models are all there is
            raw = np.array([entry.score for entry in ranking.ranking])
        spread = float(raw.std(ddof=1)) if len(raw) > 1 else 0.0
        spread = spread or 1.0
        sign = 1.0 if ranking.higher_is_better else -1.0
        for entry in ranking.ranking:
            z = sign * (entry.score - float(raw.mean())) / spread
            found.setdefault(entry.model, []).append((entry.rank, z, entry.score_se / spread))
    rows = []
    for model, each in found.items():
        ranks, zs, errors = (np.array(column, dtype=float) for column in zip(*each, strict=True))
        rows.append(
            SummaryRow(
                model=model,
                mean_rank=float(ranks.mean()),
                mean_z=float(zs.mean()),
                mean_z_se=float(np.sqrt((errors**2).sum()) / len(each)),
                tasks=len(each),
            )
        )
    rows.sort(key=lambda row: (-row.mean_z, row.model))
    return SummaryDocument(tasks=tuple(rankings), summary=tuple(rows), date=date)


def versions() -> dict[str, str]:
    """Versions of the tools that made a file."""
    from importlib.metadata import version

    return {"lm_eval_adaptive": lm_eval_adaptive.__version__, "lm_eval": version("lm_eval")}
