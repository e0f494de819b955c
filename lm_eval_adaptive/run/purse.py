"""What of a round the budget can pay for, whatever its answers turn out to cost.

This module owns the holding back: until an answer is known, its worst case is spent, which is its
prompt and as many tokens as it may have. It imports the contest and the building of requests. What
it says depends on the answers taken in and on the documents alone, so that a run that is resumed
asks the same.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.core.money import exact
from lm_eval_adaptive.errors import UsageError
from lm_eval_adaptive.host.settings import cost_of_tokens
from lm_eval_adaptive.host.task import build_instances
from lm_eval_adaptive.records.journal import AskRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lm_eval_adaptive.host.candidate import Candidate
    from lm_eval_adaptive.run.contest import Contest, Plan


def refuse_small_shares(contests: Sequence[Contest]) -> None:
    """Refuse a budget of which a task's equal share does not pay for its first items.

    Raises:
        UsageError: It is one.
    """
    for contest in contests if len(contests) > 1 else ():
        budget = contest.first.terms.options.budget
        least = contest.first.procedure.least_cost
        if budget is not None and least * len(contests) > exact(budget):
            raise UsageError(
                f"--budget {budget:g} is for all {len(contests)} tasks together, and the share of "
                f"{contest.task} does not cover its first items ({float(least):g}); raise it to "
                f"{float(least * len(contests)):g}, lower --min_items, or rank by fewer tasks"
            )


def share_budget(contests: Sequence[Contest], now: int) -> None:
    """Give a task its share of what the tasks before it have left of the budget.

    Each task still to come gets as much, so that the budget is for all of them together and the
    first cannot spend it alone; what one leaves is shared by those after it.

    Args:
        contests: All of the run, in their order.
        now: Place of the one that is about to be played.
    """
    budget = contests[now].first.terms.options.budget
    if budget is None:
        return
    whole = exact(budget)
    spent = sum(
        (exact(cost) for each in contests[:now] for cost in each.first.state.spent), Decimal()
    )
    share = (whole - spent) / (len(contests) - now)
    for view in contests[now].views:
        view.procedure.elsewhere = whole - share


class Purse:
    """Cuts rounds to what the budget can pay for.

    Args:
        contest: The contest.
        candidates: The models under test, by name.
        serve: Gives a candidate's own copy of the task.
    """

    def __init__(
        self,
        contest: Contest,
        candidates: Mapping[str, Candidate],
        serve: Callable[[Candidate], Any],
    ) -> None:
        self._contest = contest
        self._candidates = candidates
        self._serve = serve
        self._worst: dict[tuple[str, int], Decimal] = {}

    def afford(self, plan: Plan) -> Plan:
        """What of a round can be paid for; () where nothing can."""
        contest = self._contest
        budget = contest.first.terms.options.budget
        if budget is None or not any(isinstance(price, dict) for price in contest.prices.values()):
            return plan  # prices per item are known before: the rules keep to them
        elsewhere = contest.first.procedure.elsewhere
        left = exact(budget) - sum(map(exact, contest.first.state.spent), elsewhere)
        found = []
        for ask in plan:
            paid = []
            for doc_id in ask.doc_ids:
                worst = self._worst_of(ask.model, doc_id)
                if worst <= left:
                    left -= worst
                    paid.append(doc_id)
            if paid:
                found.append(AskRecord(model=ask.model, doc_ids=tuple(paid)))
        return tuple(found)

    def _worst_of(self, model: str, doc_id: int) -> Decimal:
        """The most that an answer can cost."""
        at = (model, doc_id)
        if at not in self._worst:
            candidate = self._candidates[model]
            price = self._contest.prices[model]
            (instance,) = build_instances(
                self._serve(candidate), [doc_id], candidate.prompt, candidate.chat_template()
            )
            repeats = int(instance.repeats or 1)
            tokens_in, tokens_out = candidate.most_tokens(instance)
            cost = cost_of_tokens(price, tokens_in * repeats, tokens_out * repeats, repeats)
            self._worst[at] = exact(float(cost))
        return self._worst[at]
