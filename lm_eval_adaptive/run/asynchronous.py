"""``--schedule async``: a model is asked on as soon as it has answered, whatever others do.

This module owns the order of such a run. A model's documents of one go are a *set*, a round of its
own with its own number; sets are taken in one by one, in an order that the journal fixes (``taken``
lines), and what a model is asked next follows from what was taken in until then, for models that
wait for nothing. So a run is a function of its journal: going on, and reports, follow its lines.
It imports the lockstep play, whose asking, scoring and ending it keeps.
"""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from lm_eval_adaptive.records.journal import RoundRecord, TakenRecord
from lm_eval_adaptive.run.contest import unanswered
from lm_eval_adaptive.run.outside import refuse_a_metric_that_never_comes, refuse_outside
from lm_eval_adaptive.run.play import Play

if TYPE_CHECKING:
    from lm_eval_adaptive.host.candidate import Answer, Candidate, Refusal
    from lm_eval_adaptive.records.journal import AnswerRecord, AskRecord

# Seconds between two looks at whether the run is to stop.
POLL = 0.2


@dataclass(frozen=True)
class _Set:
    """What a model was asked in one go, and who waits for it."""

    ask: AskRecord
    answered: Future[dict[str, str]]


class AsyncPlay(Play):
    """Plays a contest whose models do not wait for each other."""

    def _rounds(self) -> None:
        """Ask until every metric's rules say that it is enough and nothing is under way."""
        self._number_of: dict[str, int] = {}
        self._sets: dict[int, _Set] = {}
        self._last = 0
        try:
            self._follow_the_journal()
            self._go_on()
        except BaseException:  # nobody is to ask on for a run that is over, nor unheard
            if not self.stop.wanted:
                self.stop.ask()
            wait([each.answered for each in self._sets.values()])
            raise

    def _go_on(self) -> None:
        contest = self.contest
        while True:
            busy = {each.ask.model for each in self._sets.values()}
            contest.stop("")
            plan = contest.next(busy)
            if plan is not None:
                refuse_a_metric_that_never_comes(contest, over=False)
                for ask in plan:
                    if ask.model not in busy and ask.doc_ids:
                        self._last += 1
                        self._begin(self._last, ask)
            if not self._sets:
                return
            self._take_in(self._next_answered())

    def _follow_the_journal(self) -> None:
        """Take in what was taken in before an interruption, in its order; the rest goes on.

        What was taken in without all its answers, and again once its model was mended, has the
        place of the last time.
        """
        task = self.contest.task
        records = [each for each in self.held.records if getattr(each, "task", "") == task]
        asks = {
            each.round: ask
            for each in records
            if isinstance(each, RoundRecord)
            for ask in each.asks
        }
        self._last = max(asks, default=0)
        for number in self.held.taken(task):
            ask = asks.pop(number)
            if unanswered((ask,), self.answers):  # mended since: the rest is asked again
                asks[number] = ask
                continue
            self._close(ask, {})
        for number, ask in sorted(asks.items()):
            self._begin(number, ask, again=True)

    def _begin(self, number: int, ask: AskRecord, *, again: bool = False) -> None:
        """Have a model asked a set; the journal says so before it is."""
        self._number_of[ask.model] = number
        if not again:
            self.journal.write(RoundRecord(task=self.contest.task, round=number, asks=(ask,)))
            self.journal.sync()
        self._score_what_came_before((ask,))
        answered: Future[dict[str, str]] = Future()
        left = unanswered((ask,), self.answers)
        if left:
            answered = self._asker.submit(self.candidates[ask.model], left[0].doc_ids, number)
        else:
            answered.set_result({})
        self._sets[number] = _Set(ask, answered)

    def _next_answered(self) -> int:
        """The number of a set whose answers are all there, the first of those that are.

        Raises:
            KeyboardInterrupt: The run is to stop.
        """
        while True:
            done, _ = wait(
                [each.answered for each in self._sets.values()], POLL, return_when=FIRST_COMPLETED
            )
            if self.stop.wanted:
                raise KeyboardInterrupt
            if done:
                return min(n for n, each in self._sets.items() if each.answered in done)

    def _take_in(self, number: int) -> None:
        """Fix a set's place in the order, and take it in."""
        taken = self._sets.pop(number)
        failures = taken.answered.result()
        if self.stop.wanted:
            raise KeyboardInterrupt
        self._write_failures(failures)
        self.journal.write(TakenRecord(task=self.contest.task, round=number))
        self.journal.sync()
        self._close(taken.ask, failures)

    def _close(self, ask: AskRecord, failures: dict[str, str]) -> None:
        contest = self.contest
        contest.close_round((ask,), self.answers, failures)
        refuse_outside(contest, self.journal.path.parent, over=False)
        self.listen(contest, "round")

    def _record(self, candidate: Candidate, found: Answer | Refusal) -> AnswerRecord:
        """The line of an answer, with the number of its model's set."""
        record = super()._record(candidate, found)
        return msgspec.structs.replace(record, round=self._number_of[candidate.name])
