"""The whole test as a state machine: from the answers so far to the next round, or to a stop.

This module owns the order of the rules (warm-up, required pairs, budget, limits); it imports the
posterior, the sampler and the ranker. :meth:`Procedure.next` is a function of the state alone, so a
run that is replayed from its journal goes the same way again, whoever answered first.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.special import stdtr, stdtrit

from lm_eval_adaptive.core.known import beside, recorded
from lm_eval_adaptive.core.paired import PairedPosterior
from lm_eval_adaptive.core.posterior import Posterior
from lm_eval_adaptive.core.ranker import (
    DecisionRule,
    allocation_value,
    errors_to_decide,
    judge_pairs,
    pair_variance,
)
from lm_eval_adaptive.core.robust import RobustPosterior
from lm_eval_adaptive.core.sampler import OrderSampler, make_sampler, plan_items
from lm_eval_adaptive.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike, NDArray

    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.core.paired import SharedOrder
    from lm_eval_adaptive.core.posterior import Estimates
    from lm_eval_adaptive.core.ranker import Pair
    from lm_eval_adaptive.core.sampler import Sampler

    FloatArray = NDArray[np.float64]
    BoolArray = NDArray[np.bool_]

# How the variance of a difference of scores falls with the number of items, as a power.
VARIANCE_FALL = 0.6

# Ten costs of 0.1 add up to a little more or less than 1: such a difference is no overspending.
_ROUNDING = 1.0 + 1e-9

StopReason = Literal[
    "decided", "budget", "max_items", "bank_exhausted", "precision", "fixed_length", "failed"
]


@dataclass(frozen=True)
class ProcedureConfig:
    """Everything that decides who is asked what, and when to stop.

    Attributes:
        rule: When a pair counts as decided.
        min_items: Items each model is asked before any stop.
        max_items: Most items of one model; None is half the bank.
        budget: Total cost in the unit of the models' costs; None is no limit.
        budget_items: Total items of all models; None is no limit.
        items_per_model: Fixed length without early stop; None is off.
        precision: One model alone: stop at this standard error of its score in [0, 1].
        round_size: Items asked of a model at once; None chooses by how far the ranking is from
            decided, see :meth:`Procedure.round_size`.
        batch: Items a model's back end answers in about the time of one; the least that a chosen
            round asks.
        futility: A pair that has less than this chance of being decided by ``max_items`` is given
            up; 0 is off. The published method, ``paper-1pl``, never gives up.
        sampler: ``fisher``, ``static`` or ``random``; ``auto`` is the bank's own choice.
        seed: Seed of the random sampler.
    """

    rule: DecisionRule = field(default_factory=DecisionRule)
    min_items: int = 10
    max_items: int | None = None
    budget: float | None = None
    budget_items: int | None = None
    items_per_model: int | None = None
    precision: float | None = None
    round_size: int | None = 1
    batch: int = 1
    futility: float = 0.03
    sampler: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        for name in (
            "min_items",
            "max_items",
            "budget_items",
            "items_per_model",
            "round_size",
            "batch",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"--{name} must be at least 1, got {value}")
        for name in ("budget", "precision"):
            value = getattr(self, name)
            if value is not None and not value > 0.0:
                raise UsageError(f"--{name} must be above 0, got {value}")
        if not 0.0 <= self.futility < 1.0:
            raise UsageError(f"--futility must be at least 0 and below 1, got {self.futility}")
        if self.max_items is not None and self.max_items < self.min_items:
            raise UsageError(
                f"--max_items {self.max_items} is below --min_items {self.min_items}; raise the "
                "one or lower the other"
            )


@dataclass
class RunState:
    """What has happened so far, for m models and n items.

    Attributes:
        responses: Scores in [0, 1], shape (m, n), NaN where not answered.
        available: Shape (n,), items that may be asked at all.
        failed: Shape (m,), models that were set aside.
        answered: Answers paid for, shape (m,); those to excluded items count too.
        spent: What they cost, shape (m,).
    """

    responses: FloatArray
    available: BoolArray
    failed: BoolArray
    answered: NDArray[np.int_]
    spent: FloatArray

    @classmethod
    def start(cls, models: int, available: BoolArray) -> RunState:
        """No answers yet."""
        return cls(
            np.full((models, len(available)), np.nan),
            available.copy(),
            np.zeros(models, dtype=bool),
            np.zeros(models, dtype=np.int_),
            np.zeros(models),
        )

    @property
    def administered(self) -> NDArray[np.int_]:
        """Items answered by each model, shape (m,)."""
        return np.asarray(np.isfinite(self.responses).sum(axis=1))

    def record(self, model: int, item: int, score: float, cost: float = 1.0) -> None:
        """Take in one answer's score; an answer to an excluded item is only counted and paid."""
        self.answered[model] += 1
        self.spent[model] += cost
        if self.available[item]:
            self.responses[model, item] = score

    def exclude(self, item: int) -> None:
        """Leave an item out for all models, with what was answered to it."""
        self.available[item] = False
        self.responses[:, item] = np.nan


@dataclass(frozen=True)
class Ask:
    """Items to ask of one model, in the order of choice."""

    model: int
    items: tuple[int, ...]


@dataclass(frozen=True)
class Round:
    """Questions that are decided together: no answer of a round changes the same round."""

    asks: tuple[Ask, ...]


@dataclass(frozen=True)
class Stop:
    """Why nothing more is asked."""

    reason: StopReason


class Procedure:
    """The adaptive test of m models on one bank, beside models that are known already.

    Rows of all arrays are models in the caller's order, followed by the known ones; callers sort by
    name, so that the order of a command line changes nothing.

    Args:
        bank: The calibrated items.
        costs: Expected cost of an item, positive: shape (m,) where all items cost a model the same,
            (m, n) where they differ.
        config: The rules.
        known: Rows of calibration models of the bank that join the ranking with their recorded
            scores. They are asked nothing, and pairs of two of them are never waited for.
        order: Ask the items in this order and infer from paired differences alone, without the
            bank's parameters.

    Raises:
        UsageError: A cost is not positive, or the budget does not cover the warm-up, or one model
            is to be ranked alone without ``precision`` or ``items_per_model``.
    """

    def __init__(
        self,
        bank: ItemBank,
        costs: ArrayLike,
        config: ProcedureConfig,
        known: Sequence[int] = (),
        order: SharedOrder | None = None,
    ) -> None:
        self.bank = bank
        self.config = config
        self._last: tuple[FloatArray, Estimates] | None = None
        given = np.asarray(costs, dtype=np.float64)
        if not (np.isfinite(given) & (given > 0.0)).all():
            raise UsageError(f"every model's cost must be above 0, got {given.tolist()}")
        per_item = given[:, None] if given.ndim == 1 else given
        self.item_costs: FloatArray = np.broadcast_to(per_item, (len(given), len(bank)))
        # One number per model, for who is asked: what a typical item of the bank costs it. A known
        # model's is never spent.
        typical = given if given.ndim == 1 else given.mean(axis=1)
        self.costs: FloatArray = np.concatenate([typical, np.ones(len(known))])
        self.known: BoolArray = np.arange(len(self.costs)) >= len(given)
        self._recorded: Estimates | None = None
        if order is None:
            by_bank = make_posterior(bank)
            self.posterior: Posterior | RobustPosterior | PairedPosterior = by_bank
            self._recorded = recorded(bank, by_bank, known) if len(known) else None
            self.sampler: Sampler = make_sampler(
                self.sampler_name,
                by_bank,
                bank.item_rest_correlation,
                np.random.default_rng(config.seed),
            )
        else:
            self.posterior = PairedPosterior(order, config.rule.equivalence)
            self.sampler = OrderSampler(order.items)
        kept = int(bank.kept.sum())
        half = max(len(bank) // 2, min(config.min_items, kept))
        self.max_items = min(config.max_items or half, kept)
        self.min_items = min(config.min_items, self.max_items)
        self._check()

    @property
    def sampler_name(self) -> str:
        """How items are chosen, ``auto`` resolved."""
        return self.bank.info.selector if self.config.sampler == "auto" else self.config.sampler

    def _check(self) -> None:
        config, m = self.config, int((~self.known).sum())
        alone = m == 1 and not self.known.any()
        if alone and config.precision is None and config.items_per_model is None:
            raise UsageError(
                "one model has nothing to be ranked against; name a second --model, or give "
                "--precision E (stop at that standard error), --items_per_model N, or --against"
            )
        if m > 1 and config.precision is not None:
            raise UsageError(
                f"--precision is for one model alone, got {m} models; use --confidence to say how "
                "sure the ranking must be"
            )
        length = config.items_per_model or self.min_items
        warm_up = float(length * self.costs[~self.known].sum())
        if config.budget is not None and warm_up > config.budget * _ROUNDING:
            raise UsageError(
                f"--budget {config.budget:g} does not cover the first {length} items of each model "
                f"({warm_up:g}); raise it or lower --min_items"
            )
        if config.budget_items is not None and length * m > config.budget_items:
            raise UsageError(
                f"--budget_items {config.budget_items} does not cover the first {length} items of "
                f"each of {m} models ({length * m}); raise it or lower --min_items"
            )

    def start(self, available: BoolArray | None = None) -> RunState:
        """A state without answers; ``available`` narrows the bank's kept items, shape (n,)."""
        kept = self.bank.kept if available is None else self.bank.kept & available
        return RunState.start(len(self.costs), kept)

    def estimate(self, state: RunState) -> Estimates:
        """Beliefs about all models, set aside or not, and known.

        Those about the last answers are kept: a loop asks for them after a round and before the
        next.
        """
        if self._last is None or not np.array_equal(self._last[0], state.responses, equal_nan=True):
            found = self.posterior.estimate(state.responses[~self.known])
            if self._recorded is not None:
                found = beside(found, self._recorded)
            self._last = state.responses.copy(), found
        return self._last[1]

    def pairs(self, state: RunState, estimates: Estimates | None = None) -> list[Pair]:
        """Verdicts on all pairs of models that were not set aside, in ranking order."""
        rows = np.flatnonzero(~state.failed)
        fixed = [place for place, row in enumerate(rows) if self.known[row]]
        beliefs = _select(estimates or self.estimate(state), rows)
        found = judge_pairs(beliefs, self.config.rule, fixed)
        return [replace(each, a=int(rows[each.a]), b=int(rows[each.b])) for each in found]

    def misfitting(self, state: RunState, estimates: Estimates | None = None) -> list[int]:
        """Rows of models whose answers do not fit the bank; see :class:`RobustPosterior`."""
        if not isinstance(self.posterior, RobustPosterior):
            return []
        found = self.posterior.misfitting(
            state.responses[~self.known], estimates or self.estimate(state)
        )
        return [int(row) for row in np.flatnonzero(found)]

    def next(self, state: RunState) -> Round | Stop:
        """What to do next.

        The rules in their order: fixed length; warm-up of ``min_items``; the precision of a single
        model, or the required pairs; the end of the bank or ``max_items`` for every model in an
        undecided pair; the budget. The budget also bounds warm-up and fixed length, where answers
        to items that were excluded later have been paid for.
        """
        config = self.config
        active = ~state.failed & ~self.known
        if not active.any():
            return Stop("failed")
        asked = state.administered
        left = (state.available[None, :] & ~np.isfinite(state.responses)).sum(axis=1)
        estimates = self.estimate(state)
        if config.items_per_model is not None:
            short = active & (asked < config.items_per_model)
            if not short.any():
                return Stop("fixed_length")
            return self._ask_up_to(state, estimates, short & (left > 0), config.items_per_model)
        warming = active & (asked < self.min_items) & (left > 0)
        if warming.any():
            return self._ask_up_to(state, estimates, warming, self.min_items)
        wanted = self._unsettled(state, estimates, active)
        if isinstance(wanted, Stop):
            return wanted
        open_models = wanted & (asked < self.max_items) & (left > 0)
        if not open_models.any():
            return Stop("bank_exhausted" if (left[wanted] == 0).all() else "max_items")
        return self._allocate(state, estimates, open_models)

    def _unsettled(
        self, state: RunState, estimates: Estimates, active: BoolArray
    ) -> BoolArray | Stop:
        """Models that another item would help, shape (m,)."""
        if self.config.precision is not None:
            if estimates.score_se[active].max() <= self.config.precision:
                return Stop("precision")
            return active
        wanted = np.zeros(len(self.costs), dtype=bool)
        hopeless = False
        for pair in self.pairs(state, estimates):
            if pair.required and pair.verdict == "undecided":
                if self.chance(state, estimates, pair) < self.futility:
                    hopeless = True
                else:
                    wanted[[pair.a, pair.b]] = True
        wanted &= ~self.known
        if wanted.any():
            return wanted
        return Stop("max_items" if hopeless else "decided")

    @property
    def futility(self) -> float:
        """Chance below which a pair is given up; 0 where none is."""
        return self.config.futility if isinstance(self.posterior, RobustPosterior) else 0.0

    def chance(self, state: RunState, estimates: Estimates, pair: Pair) -> float:
        """Chance that an undecided pair is decided when its models have ``max_items`` each.

        The variance V of a difference falls about as n^-0.6. Seen from now, the difference found
        then lies about today's with what V will have fallen by as its variance, and the
        distribution of differences, Student or normal.
        """
        n = max(self._asked_least(state, pair), 1)
        if n >= self.max_items:
            return 1.0  # nothing is given up: other rules end the run
        now = float(pair_variance(estimates)[pair.a, pair.b])
        then = now * (n / self.max_items) ** VARIANCE_FALL
        target = errors_to_decide(estimates, self.config.rule) * np.sqrt(then)
        gap = abs(float(estimates.level[pair.a] - estimates.level[pair.b]))
        spread = np.sqrt(max(now - then, 1e-18))
        df = estimates.pair_df
        decided = stdtr(df, (gap - target) / spread) + stdtr(df, (-gap - target) / spread)
        margin = self.config.rule.equivalence
        if margin > 0.0 and gap < margin:
            return 1.0  # it may yet come out equivalent
        return float(decided)

    def _asked_least(self, state: RunState, pair: Pair) -> int:
        """Items answered by the one of two models that was asked less, of those under test."""
        return min(int(state.administered[row]) for row in (pair.a, pair.b) if not self.known[row])

    def _ask_up_to(
        self, state: RunState, estimates: Estimates, models: BoolArray, length: int
    ) -> Round | Stop:
        """One round for each of the models, up to a length."""
        if not models.any():
            return Stop("bank_exhausted")
        asked = state.administered
        money, items = self._purse(state)
        wanted: dict[int, int] = {}
        for row in np.flatnonzero(models):
            model = int(row)
            count = min(self._warm_up_size(), length - int(asked[model]))
            count = int(min(count, items, np.floor(money / self.costs[model])))
            if count < 1:
                continue
            wanted[model] = count
            money -= count * float(self.costs[model])
            items -= count
        return self._plan(state, estimates, wanted)

    def _warm_up_size(self) -> int:
        """Items of a model in a round before anything is decided."""
        if self.config.round_size is not None:
            return self.config.round_size
        # Without answers the best items of robust-2pl are known at once: no need to wait for any.
        return self.config.batch if isinstance(self.posterior, Posterior) else self.min_items

    def _plan(self, state: RunState, estimates: Estimates, wanted: dict[int, int]) -> Round | Stop:
        """A round of so many items for each model."""
        free = state.available[None, :] & ~np.isfinite(state.responses)
        chosen = plan_items(self.sampler, wanted, estimates, free, self.item_costs)
        asks = tuple(Ask(model, tuple(items)) for model, items in chosen.items() if items)
        return Round(asks) if asks else Stop("budget")

    def round_size(self, state: RunState, estimates: Estimates) -> int:
        """Items asked of a model in the next round.

        A round costs one call of a back end, and all its items are chosen before any is answered:
        far from the end that loses little, near it items are wasted. Where the user gives no size,
        a round is a quarter of the items that the hardest undecided pair is predicted to need,
        between ``batch`` and four times ``batch``. A pair that stands at z after n items each needs
        about n (z* / z)^2 in all, as errors fall with the root of n, z* being the level asked for.
        """
        if self.config.round_size is not None:
            return self.config.round_size
        target = errors_to_decide(estimates, self.config.rule)
        most = 0.0
        for pair in self.pairs(state, estimates):
            if pair.required and pair.verdict == "undecided":
                p = np.clip(pair.p_a_better, 1e-6, 1.0 - 1e-6)
                z = max(abs(float(stdtrit(estimates.pair_df, p))), 0.1)
                n = float(self._asked_least(state, pair))
                most = max(most, n * ((target / z) ** 2 - 1.0))
        batch = self.config.batch
        if isinstance(self.posterior, PairedPosterior):
            batch = max(batch, self.posterior.order.step)  # nothing is concluded within a block
        return int(np.clip(np.ceil(most / 4.0), batch, 4 * batch))

    def _purse(self, state: RunState) -> tuple[float, float]:
        """Cost and items that may still be spent, infinite without a limit."""
        config = self.config
        spent = float(state.spent.sum())
        money = np.inf if config.budget is None else config.budget * _ROUNDING - spent
        total = int(state.answered.sum())
        items = np.inf if config.budget_items is None else float(config.budget_items - total)
        return money, items

    def _allocate(self, state: RunState, estimates: Estimates, models: BoolArray) -> Round | Stop:
        """Spread a round over the models by SE^2 / ((n + 1) c), within the budget.

        The paper asks one item of one model at a time; its response model keeps to that. The
        others spread ``round_size`` items for every open model, so that back ends stay busy and a
        cheap or uncertain model gets more of them.
        """
        size = self.round_size(state, estimates)
        is_paper = self.bank.info.response_model == "paper-1pl"
        slots = size if is_paper else size * int(models.sum())
        # Models asked the same items compare best: with equal costs each is asked as many.
        alike = self.posterior.shared and bool(np.ptp(self.costs[models]) == 0.0)
        asked = state.administered
        room = np.minimum(
            self.max_items - asked,
            (state.available[None, :] & ~np.isfinite(state.responses)).sum(axis=1),
        )
        money, items = self._purse(state)
        variance = estimates.level_se**2
        given = np.zeros(len(self.costs), dtype=np.int_)
        while slots > 0 and items >= 1:
            can = models & (given < room) & (self.costs <= money)
            if not can.any():
                break
            value = (
                -given.astype(np.float64)
                if alike
                else allocation_value(variance, asked + given, self.costs)
            )
            model = int(np.argmax(np.where(can, value, -np.inf)))
            given[model] += 1
            money -= float(self.costs[model])
            items -= 1
            slots -= 1
        wanted = {int(model): int(given[model]) for model in np.flatnonzero(given)}
        return self._plan(state, estimates, wanted)

    def run(
        self,
        respond: Callable[[int, tuple[int, ...]], Sequence[float]],
        state: RunState | None = None,
    ) -> tuple[RunState, Stop]:
        """Ask until there is a reason to stop, with a callback that scores answers.

        Args:
            respond: Takes a model's row and item indices, returns their scores in [0, 1] in the
                same order.
            state: Where to start; default no answers.

        Returns:
            The final state and the reason for the stop.
        """
        state = state or self.start()
        while True:
            step = self.next(state)
            if isinstance(step, Stop):
                return state, step
            for ask in step.asks:
                scores = respond(ask.model, ask.items)
                for item, score in zip(ask.items, scores, strict=True):
                    cost = float(self.item_costs[ask.model, item])
                    state.record(ask.model, item, float(score), cost)


def make_posterior(bank: ItemBank) -> Posterior | RobustPosterior:
    """The posterior of a bank's response model."""
    if bank.info.response_model == "robust-2pl":
        return RobustPosterior(bank)
    return Posterior(bank.parameters, bank.info.parameters)


def _select(estimates: Estimates, rows: NDArray[np.intp]) -> Estimates:
    """Beliefs about some of the models."""
    return replace(
        estimates,
        theta=estimates.theta[rows],
        theta_se=estimates.theta_se[rows],
        score=estimates.score[rows],
        score_cov=estimates.score_cov[np.ix_(rows, rows)],
        level=estimates.level[rows],
        level_cov=estimates.level_cov[np.ix_(rows, rows)],
        pair_var=None if estimates.pair_var is None else estimates.pair_var[np.ix_(rows, rows)],
        within=None if estimates.within is None else estimates.within[np.ix_(rows, rows)],
    )
