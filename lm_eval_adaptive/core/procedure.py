"""The whole test as a state machine: from the answers so far to the next round, or to a stop.

This module owns the order of the rules (warm-up, required pairs, budget, limits); it imports what
an inference is, the samplers and the ranker. :meth:`Procedure.next` is a function of the state
alone, so a run that is replayed from its journal goes the same way again, whoever answered first.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import stdtr, stdtrit

from lm_eval_adaptive.core import defaults
from lm_eval_adaptive.core.forecast import FASTEST
from lm_eval_adaptive.core.known import beside, recorded
from lm_eval_adaptive.core.methods import inference_of
from lm_eval_adaptive.core.money import exact
from lm_eval_adaptive.core.paired import PairedPosterior
from lm_eval_adaptive.core.ranker import (
    allocation_value,
    common_variance,
    errors_to_decide,
    judge_pairs,
    pair_variance,
)
from lm_eval_adaptive.core.sampler import OrderSampler, make_sampler
from lm_eval_adaptive.core.state import Ask, Round, RunState, Stop
from lm_eval_adaptive.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike, NDArray

    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.core.estimates import Estimates
    from lm_eval_adaptive.core.inference import Inference
    from lm_eval_adaptive.core.paired import SharedOrder
    from lm_eval_adaptive.core.ranker import DecisionRule, Pair
    from lm_eval_adaptive.core.rules import ProcedureConfig
    from lm_eval_adaptive.core.sampler import Sampler

    FloatArray = NDArray[np.float64]
    BoolArray = NDArray[np.bool_]


class Procedure:
    """The adaptive test of m models, beside models that are known already.

    Rows of all arrays are models in the caller's order, followed by the known ones; callers sort by
    name, so that the order of a command line changes nothing. :meth:`for_bank` and
    :meth:`for_order` put together what a bank, or a contest without one, takes.

    Args:
        inference: From answers to beliefs.
        sampler: How items are chosen.
        costs: Expected cost of an item, positive: shape (m,) where all items cost a model the same,
            (m, n) where they differ.
        config: The rules.
        kept: Items that may be asked at all, shape (n,).
        known: Beliefs about models that join the ranking and are asked nothing; pairs of two of
            them are never waited for.

    Raises:
        UsageError: A cost is not positive, or the budget does not cover the warm-up, or one model
            is to be ranked alone without ``precision`` or ``items_per_model``.
    """

    def __init__(
        self,
        inference: Inference,
        sampler: Sampler,
        costs: ArrayLike,
        config: ProcedureConfig,
        *,
        kept: BoolArray,
        known: Estimates | None = None,
    ) -> None:
        self.inference, self.sampler, self.config, self.kept = inference, sampler, config, kept
        self._recorded = known
        self._last: tuple[FloatArray, Estimates] | None = None
        # What of the budget is not this test's: spent on other tasks, or held for them.
        self.elsewhere = Decimal()
        given = np.asarray(costs, dtype=np.float64)
        if not (np.isfinite(given) & (given > 0.0)).all():
            raise UsageError(f"every model's cost must be above 0, got {given.tolist()}")
        per_item = given[:, None] if given.ndim == 1 else given
        self.item_costs: FloatArray = np.broadcast_to(per_item, (len(given), len(kept)))
        # One number per model, for who is asked: what a typical item of the bank costs it. A known
        # model's is never spent.
        typical = given if given.ndim == 1 else given.mean(axis=1)
        others = 0 if known is None else len(known.theta)
        self.costs: FloatArray = np.concatenate([typical, np.ones(others)])
        self.known: BoolArray = np.arange(len(self.costs)) >= len(given)
        may = int(kept.sum())
        half = max(len(kept) // 2, min(config.min_items, may))
        self.max_items = min(config.max_items or half, may)
        self.min_items = min(config.min_items, self.max_items)
        self._check()

    @classmethod
    def for_bank(
        cls, bank: ItemBank, costs: ArrayLike, config: ProcedureConfig, known: Sequence[int] = ()
    ) -> Procedure:
        """The test of models on a bank.

        Args:
            bank: The calibrated items.
            costs: See the class.
            config: The rules; with the sampler ``auto``, the bank and its inference say how items
                are chosen.
            known: Rows of calibration models of the bank that join the ranking with their recorded
                scores.

        Raises:
            UsageError: See the class.
        """
        inference = inference_of(bank)
        name = config.sampler
        if name == defaults.AUTO:
            # Banks of the first versions say ``fisher`` where items are drawn today.
            by_worth = "draw" if inference.draws else "fisher"
            name = "random" if bank.info.selector == "random" else by_worth
        sampler = make_sampler(name, inference, bank.item_rest_correlation, config.seed)
        others = recorded(bank, inference, known) if len(known) else None
        return cls(inference, sampler, costs, config, kept=bank.kept, known=others)

    @classmethod
    def for_order(cls, order: SharedOrder, costs: ArrayLike, config: ProcedureConfig) -> Procedure:
        """The test of models without a bank: the same items for all, and paired differences.

        Args:
            order: The order in which all models are asked the items.
            costs: See the class.
            config: The rules.

        Raises:
            UsageError: See the class.
        """
        inference = PairedPosterior(order, config.rule.equivalence)
        name = "random" if config.sampler == "random" else "spread"
        kept = np.ones(len(order.items), dtype=bool)
        return cls(inference, OrderSampler(order.items, name), costs, config, kept=kept)

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
        warm_up = self.least_cost
        if config.budget is not None and warm_up > exact(config.budget):
            raise UsageError(
                f"--budget {config.budget:g} does not cover the first {length} items of each model "
                f"({float(warm_up):g}); raise it or lower --min_items"
            )
        if config.budget_items is not None and length * m > config.budget_items:
            raise UsageError(
                f"--budget_items {config.budget_items} does not cover the first {length} items of "
                f"each of {m} models ({length * m}); raise it or lower --min_items"
            )

    @property
    def least_cost(self) -> Decimal:
        """What the first items of all models are expected to cost."""
        length = self.config.items_per_model or self.min_items
        return length * sum(map(exact, self.costs[~self.known]), Decimal())

    def start(self, available: BoolArray | None = None) -> RunState:
        """A state without answers; ``available`` narrows the items that are kept, shape (n,)."""
        kept = self.kept if available is None else self.kept & available
        return RunState.start(len(self.costs), kept)

    def estimate(self, state: RunState) -> Estimates:
        """Beliefs about all models, set aside or not, and known.

        Those about the last answers are kept: a loop asks for them after a round and before the
        next.
        """
        if self._last is None or not np.array_equal(self._last[0], state.responses, equal_nan=True):
            found = self.inference.estimate(state.responses[~self.known])
            if self._recorded is not None:
                found = beside(found, self._recorded)
            self._last = state.responses.copy(), found
        return self._last[1]

    def pairs(
        self,
        state: RunState,
        estimates: Estimates | None = None,
        rule: DecisionRule | None = None,
    ) -> list[Pair]:
        """Verdicts on all pairs of models that were not set aside, in ranking order.

        Args:
            state: What has been asked.
            estimates: The beliefs at that state; None makes them.
            rule: When a pair is decided; None is the configured rule.
        """
        return self._judged(state, estimates, rule or self.config.rule, all_pairs=True)

    def _judged(
        self,
        state: RunState,
        estimates: Estimates | None,
        rule: DecisionRule,
        *,
        all_pairs: bool,
    ) -> list[Pair]:
        """Verdicts on all pairs, or on those that must be decided."""
        rows = np.flatnonzero(~state.failed)
        fixed = [place for place, row in enumerate(rows) if self.known[row]]
        found = estimates or self.estimate(state)
        beliefs = found if len(rows) == len(state.failed) else found.take(rows)
        return judge_pairs(beliefs, rule, fixed, names=rows.tolist(), all_pairs=all_pairs)

    @property
    def stop_rule(self) -> DecisionRule:
        """When a required pair needs no more items: surer than for its call, see ``stop_share``."""
        rule = self.config.rule
        return replace(rule, confidence=1.0 - self.inference.stop_share * (1.0 - rule.confidence))

    def open_pairs(self, state: RunState, estimates: Estimates | None = None) -> list[Pair]:
        """Required pairs that another item would help, whether they are called by now or not."""
        found = self._judged(state, estimates, self.stop_rule, all_pairs=False)
        return [pair for pair in found if pair.required and pair.verdict == "undecided"]

    def misfitting(self, state: RunState, estimates: Estimates | None = None) -> list[int]:
        """Rows of models whose answers do not fit, as far as the inference can tell."""
        found = self.inference.misfitting(
            state.responses[~self.known], estimates or self.estimate(state)
        )
        return [int(row) for row in np.flatnonzero(found)]

    def next(self, state: RunState, busy: Sequence[bool] | None = None) -> Round | Stop:
        """What to do next.

        The rules in their order: fixed length; warm-up of ``min_items``; the precision of a single
        model, or the required pairs; the end of the bank or ``max_items`` for every model in an
        undecided pair; the budget. The budget also bounds warm-up and fixed length, where answers
        to items that were excluded later have been paid for.

        Args:
            state: What was answered.
            busy: Models that are being asked, shape (m,): they are asked nothing now, and a round
                may be empty for it.
        """
        config = self.config
        active = ~state.failed & ~self.known
        idle = np.ones(len(active), dtype=bool) if busy is None else ~np.asarray(busy, dtype=bool)
        if not active.any():
            return Stop("failed")
        asked = state.asked
        left = state.free.sum(axis=1)
        estimates = self.estimate(state)
        if config.items_per_model is not None:
            short = active & (asked < config.items_per_model)
            if not short.any():
                return Stop("fixed_length")
            if not (short & idle).any():
                return Round(())
            short &= idle & (left > 0)
            return self._ask_up_to(state, estimates, short, config.items_per_model)
        warming = active & (asked < self.min_items) & (left > 0)
        if (warming & idle).any():
            return self._ask_up_to(state, estimates, warming & idle, self.min_items)
        if warming.any() and not (asked[active & ~warming] > 0).any():
            return Round(())
        wanted = self._unsettled(state, estimates, active)
        if isinstance(wanted, Stop):
            return wanted
        open_models = wanted & (asked < self.max_items) & (left > 0)
        if not open_models.any():
            if config.precision is None and self._all_called(state, estimates):
                return Stop("decided")
            return Stop("bank_exhausted" if (left[wanted] == 0).all() else "max_items")
        if not (open_models & idle).any():
            return Round(())
        return self._allocate(state, estimates, open_models & idle)

    def _unsettled(
        self, state: RunState, estimates: Estimates, active: BoolArray
    ) -> BoolArray | Stop:
        """Models that another item would help, shape (m,)."""
        if self.config.precision is not None:
            if estimates.score_se[active].max() <= self.config.precision:
                return Stop("precision")
            return active
        wanted = np.zeros(len(self.costs), dtype=bool)
        administered = state.administered
        for pair in self.open_pairs(state, estimates):
            if self.chance(state, estimates, pair, administered) >= self.futility:
                wanted[[pair.a, pair.b]] = True
        wanted &= ~self.known
        if wanted.any():
            return wanted
        return Stop("decided" if self._all_called(state, estimates) else "max_items")

    def _all_called(self, state: RunState, estimates: Estimates) -> bool:
        """Whether every required pair has a verdict, open or not."""
        pairs = self._judged(state, estimates, self.config.rule, all_pairs=False)
        return all(pair.verdict != "undecided" for pair in pairs if pair.required)

    @property
    def futility(self) -> float:
        """Chance below which a pair is given up; 0 where none is."""
        return self.config.futility if self.inference.gives_up else 0.0

    def chance(
        self,
        state: RunState,
        estimates: Estimates,
        pair: Pair,
        administered: NDArray[np.int_] | None = None,
    ) -> float:
        """Chance that an open pair needs no more items when its models have ``max_items`` each.

        Seen from now, the difference found then lies about today's with what its variance will have
        fallen by, by the inference's forecast, as its variance, and the distribution of
        differences, Student or normal.
        """
        told = state.administered if administered is None else administered
        n = max(self._asked_least(told, pair), 1)
        if n >= self.max_items:
            return 1.0  # nothing is given up: other rules end the run
        now = float(pair_variance(estimates)[pair.a, pair.b])
        then = self.inference.forecast.variance(now, n, self.max_items)
        target = errors_to_decide(estimates, self.stop_rule) * np.sqrt(then)
        gap = abs(float(estimates.level[pair.a] - estimates.level[pair.b]))
        spread = np.sqrt(max(now - then, 1e-18))
        df = estimates.pair_df
        decided = stdtr(df, (gap - target) / spread) + stdtr(df, (-gap - target) / spread)
        margin = self.config.rule.equivalence
        if margin > 0.0 and gap < margin:
            return 1.0  # it may yet come out equivalent
        return float(decided)

    def _asked_least(self, administered: NDArray[np.int_], pair: Pair) -> int:
        """Items answered by the one of two models that was asked less, of those under test."""
        return min(int(administered[row]) for row in (pair.a, pair.b) if not self.known[row])

    def _ask_up_to(
        self, state: RunState, estimates: Estimates, models: BoolArray, length: int
    ) -> Round | Stop:
        """One round for each of the models, up to a length."""
        if not models.any():
            return Stop("bank_exhausted")
        asked = state.asked
        money, items = self._purse(state)
        wanted: dict[int, int] = {}
        for row in np.flatnonzero(models):
            model = int(row)
            count = min(self._warm_up_size(), length - int(asked[model]))
            price = exact(self.costs[model])
            count = int(min(float(count), items, float(money // price)))
            if count < 1:
                continue
            wanted[model] = count
            money -= count * price
            items -= count
        return self._plan(state, estimates, wanted)

    def _warm_up_size(self) -> int:
        """Items of a model in a round before anything is decided."""
        if self.config.round_size is not None:
            return self.config.round_size
        return max(min(self.inference.warm_up, self.min_items), self.config.batch)

    def _plan(self, state: RunState, estimates: Estimates, wanted: dict[int, int]) -> Round | Stop:
        """A round of so many items for each model."""
        chosen = self.sampler.choose(wanted, estimates, state.free, self.item_costs)
        asks = tuple(
            Ask(
                model,
                tuple(each.item for each in items),
                tuple(each.probability for each in items),
            )
            for model, items in chosen.items()
            if items
        )
        return Round(asks) if asks else Stop("budget")

    def round_size(self, state: RunState, estimates: Estimates) -> int:
        """Items asked of a model in the next round.

        A round costs one call of a back end, and all its items are chosen before any is answered:
        far from the end that loses little, near it items are wasted. Where the user gives no size,
        a round is a quarter of the items that the hardest undecided pair is predicted to need,
        between ``batch`` and four times ``batch``. These are counted as if errors fell as fast as
        they can: what a round lacks the next one asks, what it asks too much is lost.
        """
        if self.config.round_size is not None:
            return self.config.round_size
        target = errors_to_decide(estimates, self.stop_rule)
        most = 0.0
        administered = state.administered
        for pair in self.open_pairs(state, estimates):
            p = np.clip(pair.p_a_better, 1e-6, 1.0 - 1e-6)
            z = max(abs(float(stdtrit(estimates.pair_df, p))), 0.1)
            n = float(self._asked_least(administered, pair))
            most = max(most, n * (FASTEST.items(1.0, target / z) - 1.0))
        batch = max(self.config.batch, self.inference.least_round)
        return int(np.clip(np.ceil(most / 4.0), batch, 4 * batch))

    def _purse(self, state: RunState) -> tuple[Decimal, float]:
        """Cost and items that may still be spent, infinite without a limit."""
        config = self.config
        money = Decimal("Infinity")
        if config.budget is not None:
            money = exact(config.budget) - sum(map(exact, state.spent), self.elsewhere)
        total = int(state.answered.sum())
        items = np.inf if config.budget_items is None else float(config.budget_items - total)
        return money, items

    def _allocate(self, state: RunState, estimates: Estimates, models: BoolArray) -> Round | Stop:
        """Spread a round over the models by SE^2 / ((n + 1) c), within the budget.

        SE^2 counts without what all models have in common, which no difference of them shows.
        The paper asks one item of one model at a time; its inference keeps to that. The others
        spread ``round_size`` items for every open model, so that back ends stay busy and a cheap or
        uncertain model gets more of them.
        """
        size = self.round_size(state, estimates)
        slots = size if self.inference.one_at_a_time else size * int(models.sum())
        # Models asked the same items compare best: with equal costs each is asked as many.
        alike = self.inference.shared and bool(np.ptp(self.costs[models]) == 0.0)
        asked = state.asked
        room = np.minimum(self.max_items - asked, state.free.sum(axis=1))
        money, items = self._purse(state)
        prices = [exact(cost) for cost in self.costs]
        variance = estimates.level_se**2 - common_variance(estimates.level_cov)
        given = np.zeros(len(self.costs), dtype=np.int_)
        while slots > 0 and items >= 1:
            can = models & (given < room)
            if money.is_finite():
                can &= [price <= money for price in prices]
            if not can.any():
                break
            value = (
                -given.astype(np.float64)
                if alike
                else allocation_value(variance, asked + given, self.costs)
            )
            model = int(np.argmax(np.where(can, value, -np.inf)))
            given[model] += 1
            money -= prices[model]
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
