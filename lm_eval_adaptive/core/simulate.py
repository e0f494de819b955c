"""Replays whole tests on a matrix of scores: how many items, how good a ranking, how honest.

This module owns the measuring protocol and the baselines; it imports the core's procedure and
banks. Some of a matrix's models are ranked and others calibrate; the truth is the order of the
ranked models' means over all items. Nothing of the ranked models is seen but the answers asked.
Other draws than random partitions are made in ``core.regimes``, means in ``core.summary``.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import kendalltau
from scipy.stats import t as student

from lm_eval_adaptive.core.build import calibrate
from lm_eval_adaptive.core.procedure import Procedure, ProcedureConfig, Stop
from lm_eval_adaptive.core.ranker import DecisionRule, better_by, probability_from
from lm_eval_adaptive.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.core.matrix import ScoreMatrix
    from lm_eval_adaptive.core.posterior import Estimates
    from lm_eval_adaptive.core.procedure import RunState

    FloatArray = NDArray[np.float64]

ADAPTIVE = ("default", "robust-2pl", "paper-1pl", "bernoulli-2pl")
BASELINES = ("random-own", "random-shared", "static", "greedy")
METHODS = (*ADAPTIVE, *BASELINES)
MAX_MISSING = 0.03
# Items a model in tests that stop by themselves.
STOP_MAX_ITEMS = 100


@dataclass(frozen=True)
class Plan:
    """What to simulate.

    Attributes:
        holdout: Models ranked in each partition.
        calibration: Most models that calibrate.
        partitions: Number of partitions.
        seed: Partition r permutes the models by ``default_rng(seed + r)``.
        lengths: Fixed numbers of items a model.
        natural: Whether to run tests that stop by themselves as well (adaptive methods only).
        methods: Which methods.
        confidence: Two-sided level at which a pair counts as decided.
        round_size: Items asked of a model at once; None is the default's own choice.
        max_items: Most items of a model where a test stops by itself.
        higher_is_better: The metric's direction.
        costs: Cost of one item by model; others cost 1.
        ranked: Names of the models to rank in place of partitions.
        calibrating: Names of the models that then calibrate; None is all others.
    """

    holdout: int = 4
    calibration: int = 17
    partitions: int = 20
    seed: int = 0
    lengths: tuple[int, ...] = (10, 20, 40)
    natural: bool = True
    methods: tuple[str, ...] = METHODS
    confidence: float = 0.95
    round_size: int | None = None
    max_items: int = STOP_MAX_ITEMS
    higher_is_better: bool = True
    costs: dict[str, float] = field(default_factory=dict)
    ranked: tuple[str, ...] = ()
    calibrating: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        unknown = sorted(set(self.methods) - set(METHODS))
        if unknown:
            raise UsageError(
                f"--methods: unknown {', '.join(unknown)}; known are {', '.join(METHODS)}"
            )
        if self.holdout < 2 or self.calibration < 3 or self.partitions < 1:
            raise UsageError(
                "simulate needs --holdout of at least 2, --calibration of at least 3 and "
                f"--partitions of at least 1; got {self.holdout}, {self.calibration}, "
                f"{self.partitions}"
            )


@dataclass(frozen=True)
class Figures:
    """What a method said held against the truth, see ``Row``."""

    tau: float
    decided: float
    correct: int
    decided_pairs: int
    score_abs_error: float
    covered: float


@dataclass(frozen=True)
class Row:
    """One simulated test.

    Attributes:
        matrix: Name of the matrix.
        metric: Metric.
        method: Method.
        items_per_model: Fixed length, None where the test stopped by itself.
        partition: Its number.
        tau: Kendall tau-b of the estimated order against the truth.
        decided: Share of all pairs called.
        correct: Called pairs in the true order.
        decided_pairs: Called pairs.
        score_abs_error: Mean absolute error of the scores, percent of the bank's range.
        covered: Share of models whose 95 % interval holds their full score.
        items: Mean items a model.
        cost: Total cost.
        regime: How the models were drawn, see ``core.regimes``.
        shared: The same figures of the plain mean of random shared items on the same draw, at the
            same number of items (the mean one, rounded, where the test stopped by itself); None
            for that method itself and for a single item.
    """

    matrix: str
    metric: str
    method: str
    items_per_model: int | None
    partition: int
    tau: float
    decided: float
    correct: int
    decided_pairs: int
    score_abs_error: float
    covered: float
    items: float
    cost: float
    regime: str = "random"
    shared: Figures | None = None


def complete_part(matrix: ScoreMatrix) -> ScoreMatrix:
    """Models by name without those that miss over 3 % of the items, then items all others have."""
    names = sorted(matrix.models)
    by_name = matrix.select_models(names)
    missing = np.isnan(by_name.scores).mean(axis=1)
    kept = by_name.select_models(
        [name for name, share in zip(names, missing, strict=True) if share <= MAX_MISSING]
    )
    return kept.select_items(np.asarray(~np.isnan(kept.scores).any(axis=0)))


@dataclass(frozen=True)
class Draw:
    """Models of one partition; the matrices may be shared with other draws.

    Attributes:
        name: Name of the matrix, for the rows.
        metric: Metric, for the rows.
        regime: How it was drawn.
        partition: Its number.
        bank_scores: Complete raw scores that hold the calibrating models.
        calibrating: Their names.
        scores: Complete raw scores on the same items that hold the ranked models.
        ranked: Their names.
    """

    name: str
    metric: str
    regime: str
    partition: int
    bank_scores: ScoreMatrix
    calibrating: tuple[str, ...]
    scores: ScoreMatrix
    ranked: tuple[str, ...]


def random_draw(matrix: ScoreMatrix, plan: Plan, partition: int, name: str, metric: str) -> Draw:
    """One random partition of a complete matrix, or the models that the plan names."""
    calibrating, ranked = split(matrix, plan, partition)
    return Draw(
        name, metric, "random", partition, matrix, calibrating.models, matrix, ranked.models
    )


def split(matrix: ScoreMatrix, plan: Plan, partition: int) -> tuple[ScoreMatrix, ScoreMatrix]:
    """Models to calibrate with, and models to rank.

    Raises:
        UsageError: The matrix holds too few models.
    """
    if plan.ranked:
        others = [name for name in matrix.models if name not in plan.ranked]
        calibrating = others if plan.calibrating is None else list(plan.calibrating)
        return matrix.select_models(calibrating), matrix.select_models(plan.ranked)
    if len(matrix.models) < plan.holdout + 3:
        raise UsageError(
            f"{len(matrix.models)} complete models are too few to rank {plan.holdout} and "
            "calibrate with at least 3; lower --holdout"
        )
    order = np.random.default_rng(plan.seed + partition).permutation(len(matrix.models))
    names = [matrix.models[row] for row in order]
    ranked = names[: plan.holdout]
    calibrating = names[plan.holdout : plan.holdout + plan.calibration]
    return matrix.select_models(calibrating), matrix.select_models(ranked)


def simulate_partition(
    matrix: ScoreMatrix, plan: Plan, partition: int, name: str, metric: str
) -> list[Row]:
    """All methods and lengths on one random partition.

    Args:
        matrix: Complete scores, raw.
        plan: What to simulate.
        partition: Its number.
        name: Name of the matrix, for the rows.
        metric: Metric, for the rows.
    """
    return simulate_draw(random_draw(matrix, plan, partition, name, metric), plan)


def simulate_draw(draw: Draw, plan: Plan) -> list[Row]:
    """All methods and lengths on one draw; each bank is calibrated once for all of them."""
    calibrating = draw.bank_scores.select_models(draw.calibrating)
    ranked = draw.scores.select_models(draw.ranked)
    order = sorted(range(len(ranked.models)), key=lambda row: ranked.models[row])
    ranked = ranked.select_models([ranked.models[row] for row in order])
    lengths = tuple(length for length in sorted(plan.lengths) if length <= len(ranked.items))
    costs = np.array([plan.costs.get(model, 1.0) for model in ranked.models])
    banks: dict[str, ItemBank] = {}
    rows: list[Row] = []

    def bank_of(response_model: str) -> ItemBank:
        if response_model not in banks:
            made = calibrate(
                calibrating,
                task=draw.name,
                metric=draw.metric,
                response_model=response_model,
                higher_is_better=plan.higher_is_better,
            )
            banks[response_model] = banks[made.info.response_model] = made
        return banks[response_model]

    for method in plan.methods:
        if method in BASELINES:  # they look at scores alone: any bank will do
            # and where no other method needs one, that which takes no hold-outs.
            any_bank = "auto" if "default" in plan.methods else "paper-1pl"
            bank = next(iter(banks.values())) if banks else bank_of(any_bank)
        else:
            bank = bank_of("auto" if method == "default" else method)
        truth = ranked.scores.mean(axis=1)
        scale = bank.info.scale
        scores = scale.to_score(ranked.scores)
        exam = _Exam(bank, scores, truth, costs, plan, draw.partition)
        found: list[tuple[int | None, _Called]] = []
        if method in ADAPTIVE:
            found += exam.adaptive(lengths)
        else:
            found += exam.baseline(method, lengths)
        for length, called in found:
            row = exam.row(draw.name, draw.metric, method, length, called)
            rows.append(replace(row, regime=draw.regime))
    return rows


@dataclass(frozen=True)
class _Called:
    """What a method said: all of shape (m,), (m, m) or scalars; scores in [0, 1]."""

    level: FloatArray
    p_better: FloatArray
    score: FloatArray
    half_interval: FloatArray
    items: float
    cost: float


class _Exam:
    """One partition's models under test."""

    def __init__(
        self,
        bank: ItemBank,
        scores: FloatArray,
        truth: FloatArray,
        costs: FloatArray,
        plan: Plan,
        partition: int,
    ) -> None:
        self.bank, self.scores, self.truth = bank, scores, truth
        self.costs, self.plan, self.partition = costs, plan, partition
        self.seed = plan.seed + partition

    def adaptive(self, lengths: Sequence[int]) -> list[tuple[int | None, _Called]]:
        found: list[tuple[int | None, _Called]] = []
        kept = int(self.bank.kept.sum())
        lengths = [length for length in lengths if length <= kept]
        rule = DecisionRule(confidence=self.plan.confidence)
        size = self.plan.round_size
        if size is None and self.bank.info.response_model == "paper-1pl":
            size = 1  # as published; only the default's rounds grow and shrink
        if lengths:
            config = ProcedureConfig(
                rule=rule, items_per_model=lengths[-1], round_size=size, seed=self.seed
            )
            procedure = Procedure(self.bank, self.costs, config)
            state = procedure.start()
            for length in lengths:
                # Rounds end at each length that is reported.
                procedure.config = replace(config, items_per_model=length)
                while not isinstance(step := procedure.next(state), Stop):
                    self._answer(procedure, state, step.asks)
                found.append((length, self._called(procedure, state)))
        if self.plan.natural:
            config = ProcedureConfig(
                rule=rule,
                max_items=min(self.plan.max_items, kept),
                min_items=min(10, kept),
                round_size=size,
                seed=self.seed,
            )
            procedure = Procedure(self.bank, self.costs, config)
            state, _ = procedure.run(
                lambda model, items: [float(each) for each in self.scores[model, list(items)]]
            )
            found.append((None, self._called(procedure, state)))
        return found

    def _answer(self, procedure: Procedure, state: RunState, asks: Sequence[Any]) -> None:
        for ask in asks:
            for item in ask.items:
                cost = float(procedure.item_costs[ask.model, item])
                state.record(ask.model, item, float(self.scores[ask.model, item]), cost)

    def _called(self, procedure: Procedure, state: RunState) -> _Called:
        estimates: Estimates = procedure.estimate(state)
        return _Called(
            level=estimates.level,
            p_better=better_by(estimates),
            score=estimates.score,
            half_interval=estimates.score_half_interval,
            items=float(state.administered.mean()),
            cost=float(state.spent.sum()),
        )

    def baseline(self, method: str, lengths: Sequence[int]) -> list[tuple[int | None, _Called]]:
        """Plain means over chosen items; errors of means, paired where items are shared."""
        m, n = self.scores.shape
        rng = np.random.default_rng([self.plan.seed + self.partition, 77])
        if method == "random-own":
            orders = np.array([rng.permutation(n) for _ in range(m)])
        elif method == "random-shared":
            orders = np.repeat(rng.permutation(n)[None, :], m, axis=0)
        elif method == "static":
            worth = np.nan_to_num(self.bank.item_rest_correlation, nan=-2.0)
            orders = np.repeat(np.argsort(-worth, kind="stable")[None, :], m, axis=0)
        else:
            chosen = greedy_composite(self.bank.scores, max(lengths, default=1))
            orders = np.repeat(np.array(chosen)[None, :], m, axis=0)
        found: list[tuple[int | None, _Called]] = []
        for length in lengths:
            sample = np.take_along_axis(self.scores, orders[:, :length], axis=1)
            left = 1.0 - length / n
            cov = np.cov(sample) / length * left
            if method == "random-own":
                cov = np.diag(np.diag(cov))
            own = np.diag(cov)
            differ = np.maximum(own[:, None] + own[None, :] - 2.0 * cov, 1e-18)
            level = sample.mean(axis=1)
            half = float(student.ppf(0.975, length - 1)) * np.sqrt(own)
            found.append(
                (
                    length,
                    _Called(
                        level,
                        probability_from(level, differ, np.inf),
                        level,
                        half,
                        float(length),
                        float(length * self.costs.sum()),
                    ),
                )
            )
        return found

    def row(
        self, matrix: str, metric: str, method: str, length: int | None, called: _Called
    ) -> Row:
        """Hold what was called against the truth, beside random shared items on the same draw."""
        count = min(round(called.items), self.scores.shape[1])
        shared = None
        if method != "random-shared" and count > 1:
            ((_, plain),) = self.baseline("random-shared", (count,))
            shared = self._figures(plain)
        return Row(
            matrix=matrix,
            metric=metric,
            method=method,
            items_per_model=length,
            partition=self.partition,
            **asdict(self._figures(called)),
            items=called.items,
            cost=called.cost,
            shared=shared,
        )

    def _figures(self, called: _Called) -> Figures:
        scale = self.bank.info.scale
        sign = 1.0 if scale.higher_is_better else -1.0
        truth = sign * self.truth
        tau = float(kendalltau(called.level, truth).statistic)
        a, b = np.triu_indices(len(truth), 1)
        p = called.p_better[a, b]
        bound = 1.0 - (1.0 - self.plan.confidence) / 2.0
        decided = np.maximum(p, 1.0 - p) > bound
        # Models that are equal in truth cannot be called rightly.
        right = decided & np.where(p > 0.5, truth[a] > truth[b], truth[a] < truth[b])
        # Raw truth on the bank's unclipped scale: a clipped score is still measured by what it is.
        full = (self.truth - scale.lo) / scale.width
        full = full if scale.higher_is_better else 1.0 - full
        error = np.abs(called.score - full)
        return Figures(
            tau=0.0 if np.isnan(tau) else tau,
            decided=float(decided.mean()),
            correct=int(right.sum()),
            decided_pairs=int(decided.sum()),
            score_abs_error=float(100.0 * error.mean()),
            covered=float((error <= called.half_interval).mean()),
        )


def greedy_composite(scores: FloatArray, count: int) -> list[int]:
    """Items whose mean follows the full mean best over the calibration models, added one by one.

    Args:
        scores: Calibration scores, shape (C, n), complete.
        count: How many items.

    Returns:
        Item indices in the order of choice.
    """
    target = scores.mean(axis=1)
    target = target - target.mean()
    centred = scores - scores.mean(axis=0)
    total = np.zeros(len(scores))
    free = np.ones(scores.shape[1], dtype=bool)
    chosen: list[int] = []
    for size in range(1, min(count, scores.shape[1]) + 1):
        off = (total[:, None] + centred) / size - target[:, None]
        loss = np.where(free, (off**2).sum(axis=0), np.inf)
        item = int(np.argmin(loss))
        free[item] = False
        total = total + centred[:, item]
        chosen.append(item)
    return chosen


def simulate(
    matrices: Sequence[tuple[str, str, ScoreMatrix]],
    plan: Plan,
    *,
    jobs: int | None = None,
    progress: Callable[[], None] | None = None,
) -> list[Row]:
    """All partitions of several matrices, in parallel processes.

    Args:
        matrices: (name, metric, raw scores).
        plan: What to simulate.
        jobs: Processes; None is one per core.
        progress: Called when a partition is done.

    Returns:
        Rows in the order of matrices, partitions, methods and lengths, whatever finished first.
    """
    draws = [
        random_draw(complete, plan, partition, name, metric)
        for name, metric, matrix in matrices
        for complete in [complete_part(matrix)]
        for partition in range(1 if plan.ranked else plan.partitions)
    ]
    return run_draws(draws, plan, jobs=jobs, progress=progress)


def run_draws(
    draws: Sequence[Draw],
    plan: Plan,
    *,
    jobs: int | None = None,
    progress: Callable[[], None] | None = None,
) -> list[Row]:
    """Several draws, in parallel processes; rows in the order of the draws."""
    count = jobs or os.cpu_count() or 1
    results: list[list[Row]] = []
    if count == 1 or len(draws) == 1:
        for each in draws:
            results.append(simulate_draw(each, plan))
            if progress:
                progress()
        return [row for rows in results for row in rows]
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(max_workers=min(count, len(draws))) as pool:
        waiting = [pool.submit(_alone, each, plan) for each in draws]
        for done in waiting:
            results.append(done.result())
            if progress:
                progress()
    return [row for rows in results for row in rows]


def _alone(draw: Draw, plan: Plan) -> list[Row]:
    """One draw in a process that shares the machine with others: one thread of algebra."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1):
        return simulate_draw(draw, plan)
