"""One contest played to its end: ask what it says, make the answers durable, take them in, again.

This module owns the way of a document from plan to contest, and what the journal says of it on the
way; it imports the asking of models and the marking of answers. What to ask is the contest's say,
and when to stop as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import DataError, ModelError
from lm_eval_adaptive.host.task import build_instances
from lm_eval_adaptive.records.journal import EndRecord, FailedRecord, RoundRecord
from lm_eval_adaptive.run.asking import FIRST_PAUSE, Asker, in_plan_order
from lm_eval_adaptive.run.contest import Contest, unanswered
from lm_eval_adaptive.run.marking import answer_record
from lm_eval_adaptive.run.outside import refuse_outside
from lm_eval_adaptive.run.purse import Purse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lm_eval_adaptive.host.candidate import Answer, Candidate
    from lm_eval_adaptive.host.task import TaskDocs
    from lm_eval_adaptive.records.journal import JournalFile
    from lm_eval_adaptive.run.asking import Pool
    from lm_eval_adaptive.run.contest import Plan
    from lm_eval_adaptive.run.journal import Journal

log = logging.getLogger(__name__)

# Told of a contest at its start, after each answer (in the thread that got it) and round, at its
# end.
Listener = Callable[[Contest, str], None]


class Play:
    """Plays a contest; answers that the journal holds already are not asked again.

    Args:
        docs: The task's documents.
        contest: The contest, with no round taken in.
        candidates: The models under test.
        journal: Where everything is written down.
        held: What the journal held before.
        pool: Which local models are loaded.
        listen: Told of what happens.
        pause: Seconds before a failed question is asked again.
    """

    def __init__(
        self,
        docs: TaskDocs,
        contest: Contest,
        candidates: Sequence[Candidate],
        journal: Journal,
        held: JournalFile,
        pool: Pool,
        listen: Listener,
        pause: float = FIRST_PAUSE,
    ) -> None:
        self.docs = docs
        self.contest = contest
        self.candidates = {candidate.name: candidate for candidate in candidates}
        self.journal = journal
        self.held = held
        self.listen = listen
        self.answers = {
            (answer.model, answer.doc_id): answer for answer in held.answers(contest.task)
        }
        self._served: dict[str, Any] = {}
        self._purse = Purse(contest, self.candidates, self._serve)
        self._asker = Asker(pool, self._serve, self._note, pause)

    def play(self) -> None:
        """Ask until every metric's rules say that it is enough.

        Raises:
            ModelError: No model is left.
            UsageError: Too many scores lie outside the metric's range.
            AdaptiveError: An answer cannot be scored.
        """
        contest, asked_before = self.contest, len(self.answers)
        self.listen(contest, "start")
        while (plan := contest.next()) is not None:
            plan = self._purse.afford(plan)
            if not plan:
                contest.stop("budget")
                break
            failures = self._ask(unanswered(plan, self.answers))
            contest.close_round(plan, self.answers, failures)
            refuse_outside(contest, self.journal.path.parent, over=False)
            self.listen(contest, "round")
        if contest.stop_reason == "failed":
            raise ModelError("; ".join(contest.failed.values()))
        refuse_outside(contest, self.journal.path.parent, over=True)
        if len(self.answers) > asked_before or contest.task not in self.held.stop_reasons():
            self.journal.write(EndRecord(task=contest.task, stop_reason=contest.stop_reason))
            self.journal.sync()
        self.listen(contest, "end")

    def _ask(self, plan: Plan) -> dict[str, str]:
        """Ask a round; its answers are in the journal on disk when this returns.

        Returns:
            Why models failed, by name.
        """
        if not plan:
            return {}
        task, number = self.contest.task, self.contest.rounds + 1
        self.journal.write(RoundRecord(task=task, round=number, asks=plan))
        self.journal.sync()
        wanted = [(self.candidates[ask.model], ask.doc_ids) for ask in plan]
        failures = in_plan_order(self._asker.ask(wanted, number))
        for model, reason in failures.items():
            self.journal.write(FailedRecord(task=task, model=model, reason=reason))
            log.warning("%s is set aside: %s", model, reason)
        self.journal.sync()
        return failures

    def _note(self, candidate: Candidate, answer: Answer) -> None:
        """Score an answer and write it down, before anything else is done with it."""
        record = answer_record(self.contest, candidate.name, answer)
        self.journal.write(record)
        self.answers[record.model, record.doc_id] = record
        self.listen(self.contest, "answer")

    def _serve(self, candidate: Candidate) -> Any:
        """A model's own copy of the task."""
        if candidate.name not in self._served:
            metrics = [view.terms.metric for view in self.contest.views]
            served = candidate.serve(self.docs, metrics)
            self._check_unchanged(candidate, served)
            self._served[candidate.name] = served
        return self._served[candidate.name]

    def _check_unchanged(self, candidate: Candidate, served: Any) -> None:
        """Refuse to go on where a prompt is not what it was: that would mix two tests.

        The last document that a model answered is looked at: settings that change prompts change
        all.

        Raises:
            DataError: It is another.
        """
        from lm_eval.utils import hash_string

        mine = [
            each for each in self.held.answers(self.contest.task) if each.model == candidate.name
        ]
        if not mine:
            return
        last = mine[-1]
        (instance,) = build_instances(
            served, [last.doc_id], candidate.prompt, candidate.chat_template()
        )
        if hash_string(instance.arguments[0]) != last.prompt_hash:
            raise DataError(
                f"--resume: the prompt of doc {last.doc_id} for {candidate.name} is not the one "
                f"that was asked before; the task {self.contest.task} or its settings changed: "
                "start a new run"
            )
