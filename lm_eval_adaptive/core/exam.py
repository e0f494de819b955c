"""One partition's models under test: by the bank's method, and by baselines without one.

This module owns how a method's word is held against the truth; it imports the procedure, the
samplers and the ranker's probabilities.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import kendalltau
from scipy.stats import t as student

from lm_eval_adaptive.core.procedure import Procedure
from lm_eval_adaptive.core.ranker import DecisionRule, better_by, probability_from
from lm_eval_adaptive.core.rules import ProcedureConfig
from lm_eval_adaptive.core.sampler import static_order
from lm_eval_adaptive.core.state import Stop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.core.plan import Plan
    from lm_eval_adaptive.core.state import Ask, RunState

    FloatArray = NDArray[np.float64]


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


@dataclass(frozen=True)
class Called:
    """What a method said: all of shape (m,), (m, m) or scalars; scores in [0, 1]."""

    level: FloatArray
    p_better: FloatArray
    score: FloatArray
    half_interval: FloatArray
    items: float
    cost: float


class Exam:
    """One partition's models under test.

    Args:
        bank: What the others calibrated.
        scores: Scores of the models under test, shape (m, n), in [0, 1].
        truth: Their mean raw scores, shape (m,).
        costs: Cost of one item, shape (m,).
        plan: What to simulate.
        partition: Its number.
    """

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

    def adaptive(self, lengths: Sequence[int]) -> list[tuple[int | None, Called]]:
        """The bank's own method, at fixed lengths and, if planned, to its natural stop."""
        found: list[tuple[int | None, Called]] = []
        kept = int(self.bank.kept.sum())
        lengths = [length for length in lengths if length <= kept]
        rule = DecisionRule(confidence=self.plan.confidence)
        size = self.plan.round_size
        if lengths:
            config = ProcedureConfig(
                rule=rule, items_per_model=lengths[-1], round_size=size, seed=self.seed
            )
            procedure = self._procedure(config)
            state = procedure.start()
            for length in lengths:
                # Rounds end at each length that is reported.
                procedure.config = replace(procedure.config, items_per_model=length)
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
            procedure = self._procedure(config)
            state, _ = procedure.run(
                lambda model, items: [float(each) for each in self.scores[model, list(items)]]
            )
            found.append((None, self._called(procedure, state)))
        return found

    def _procedure(self, config: ProcedureConfig) -> Procedure:
        procedure = Procedure.for_bank(self.bank, self.costs, config)
        if config.round_size is None and procedure.inference.one_at_a_time:
            # As published; only the default's rounds grow and shrink.
            procedure.config = replace(config, round_size=1)
        return procedure

    def _answer(self, procedure: Procedure, state: RunState, asks: Sequence[Ask]) -> None:
        for ask in asks:
            for item in ask.items:
                cost = float(procedure.item_costs[ask.model, item])
                state.record(ask.model, item, float(self.scores[ask.model, item]), cost)

    def _called(self, procedure: Procedure, state: RunState) -> Called:
        estimates = procedure.estimate(state)
        return Called(
            level=estimates.level,
            p_better=better_by(estimates),
            score=estimates.score,
            half_interval=estimates.score_half_interval,
            items=float(state.administered.mean()),
            cost=float(state.spent.sum()),
        )

    def baseline(self, method: str, lengths: Sequence[int]) -> list[tuple[int | None, Called]]:
        """Plain means over chosen items; errors of means, paired where items are shared."""
        m, n = self.scores.shape
        rng = np.random.default_rng([self.plan.seed + self.partition, 77])
        if method == "random-own":
            orders = np.array([rng.permutation(n) for _ in range(m)])
        elif method == "random-shared":
            orders = np.repeat(rng.permutation(n)[None, :], m, axis=0)
        elif method == "static":
            order = static_order(self.bank.item_rest_correlation)
            orders = np.repeat(order[None, :], m, axis=0)
        else:
            chosen = greedy_composite(self.bank.scores, max(lengths, default=1))
            orders = np.repeat(np.array(chosen)[None, :], m, axis=0)
        found: list[tuple[int | None, Called]] = []
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
                    Called(
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

    def row(self, matrix: str, metric: str, method: str, length: int | None, called: Called) -> Row:
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

    def _figures(self, called: Called) -> Figures:
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
