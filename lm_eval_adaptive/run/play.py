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
from lm_eval_adaptive.host.candidate import Refusal, prompt_hash
from lm_eval_adaptive.host.task import build_instances
from lm_eval_adaptive.records.journal import EndRecord, FailedRecord, ResponseRecord, RoundRecord
from lm_eval_adaptive.run.asking import FIRST_PAUSE, Asker, Desk, Health
from lm_eval_adaptive.run.contest import Contest, unanswered
from lm_eval_adaptive.run.marking import answer_record, refusal_record
from lm_eval_adaptive.run.outside import refuse_a_metric_that_never_comes, refuse_outside
from lm_eval_adaptive.run.purse import Purse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lm_eval_adaptive.host.candidate import Answer, Candidate
    from lm_eval_adaptive.host.stop import Stop
    from lm_eval_adaptive.host.task import TaskDocs
    from lm_eval_adaptive.records.journal import AnswerRecord, JournalFile
    from lm_eval_adaptive.run.contest import Plan
    from lm_eval_adaptive.run.executors.base import Executor
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
        executor: Where models live.
        listen: Told of what happens.
        stop: Whether the run is to stop.
        pause: Seconds before a failed question is asked again.
    """

    def __init__(
        self,
        docs: TaskDocs,
        contest: Contest,
        candidates: Sequence[Candidate],
        journal: Journal,
        held: JournalFile,
        executor: Executor,
        listen: Listener,
        stop: Stop,
        pause: float = FIRST_PAUSE,
    ) -> None:
        self.docs = docs
        self.contest = contest
        self.candidates = {candidate.name: candidate for candidate in candidates}
        self.journal = journal
        self.held = held
        self.listen = listen
        self.stop = stop
        # What a model was set aside for may be mended: those documents are asked again.
        again = held.open_failures(contest.task)
        self.answers = {
            (answer.model, answer.doc_id): answer
            for answer in held.answers(contest.task)
            if (answer.model, answer.doc_id) not in again
        }
        self._unscored = {
            at: record
            for at, record in held.responses(contest.task).items()
            if at not in self.answers
        }
        self._served: dict[str, Any] = {}
        self._purse = Purse(contest, self.candidates, self._serve)
        desk = Desk(self._serve, self._note, self._came, self._waits)
        self._asker = Asker(executor, desk, stop, pause)
        for answer in self.answers.values():
            if answer.answered:
                self._asker.health[answer.model] = Health(answered=True)

    def play(self) -> None:
        """Ask until every metric's rules say that it is enough.

        Raises:
            ModelError: No model is left.
            UsageError: Too many scores lie outside the metric's range.
            AdaptiveError: An answer cannot be scored.
            KeyboardInterrupt: The run is to stop; what is known is in the journal.
        """
        contest, asked_before = self.contest, len(self.answers)
        self.listen(contest, "start")
        self._rounds()
        refuse_a_metric_that_never_comes(contest, over=True)
        self._set_the_silent_aside()
        if contest.stop_reason == "failed":
            raise ModelError("; ".join(contest.failed.values()))
        refuse_outside(contest, self.journal.path.parent, over=True)
        fresh = len(self.answers) > asked_before
        said = self._closing_notices()
        contest.said += dict.fromkeys([*self.held.closing_notices(contest.task), *said])
        if fresh or said or contest.task not in self.held.stop_reasons():
            self.journal.write(
                EndRecord(
                    task=contest.task, stop_reason=contest.stop_reason, notices=tuple(contest.said)
                )
            )
            self.journal.sync()
        self.listen(contest, "end")

    def _rounds(self) -> None:
        """Ask round by round: one begins when the last one's answers are all there."""
        contest = self.contest
        while (plan := contest.next()) is not None:
            refuse_a_metric_that_never_comes(contest, over=False)
            plan = self._purse.afford(plan)
            if not plan:
                contest.stop("budget")
                break
            failures = self._ask(unanswered(plan, self.answers))
            if self.stop.wanted:
                raise KeyboardInterrupt
            contest.close_round(plan, self.answers, failures)
            refuse_outside(contest, self.journal.path.parent, over=False)
            self.listen(contest, "round")

    def _closing_notices(self) -> list[str]:
        """What the task's own metrics have to say of what they scored since they last did."""
        notices = getattr(self.docs.task.config.process_results, "notices", None)
        return [] if notices is None else [str(each) for each in notices()]

    def _set_the_silent_aside(self) -> None:
        """A model that gave no answer at all to what it was asked has no place in the ranking."""
        contest = self.contest
        by_model: dict[str, list[AnswerRecord]] = {}
        for answer in contest.answers:
            by_model.setdefault(answer.model, []).append(answer)
        silent = {
            model: f"model {model} gave no answer to any of {len(mine)} documents; the last: "
            f"{mine[-1].problem}"
            for model, mine in by_model.items()
            if model not in contest.failed and not any(each.answered for each in mine)
        }
        self._write_failures(silent)
        if silent:
            contest.set_aside(silent)
            if not set(self.candidates) - set(contest.failed):
                raise ModelError("; ".join(contest.failed.values()))

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
        self._score_what_came_before(plan)
        left = unanswered(plan, self.answers)
        wanted = [(self.candidates[ask.model], ask.doc_ids) for ask in left]
        failures = self._asker.ask(wanted, number) if wanted else {}
        self._write_failures(failures)
        self.journal.sync()
        return failures

    def _write_failures(self, failures: Mapping[str, str]) -> None:
        for model, reason in failures.items():
            self.journal.write(FailedRecord(task=self.contest.task, model=model, reason=reason))
            log.warning("%s is set aside: %s", model, reason)

    def _score_what_came_before(self, plan: Plan) -> None:
        """Score answers that came before an interruption, and were paid for, but not scored."""
        for ask in plan:
            kept = {
                doc_id: self._unscored.pop((ask.model, doc_id)).resps
                for doc_id in ask.doc_ids
                if (ask.model, doc_id) in self._unscored
            }
            if kept:
                candidate = self.candidates[ask.model]
                for answer in candidate.score(self._serve(candidate), kept):
                    self._note(candidate, answer)

    def _came(self, candidate: Candidate, doc_id: int, resps: tuple[str, ...]) -> None:
        """Make an answer durable the moment it came; its score may take a while."""
        record = ResponseRecord(
            task=self.contest.task, model=candidate.name, doc_id=doc_id, resps=resps
        )
        self.journal.write(record)

    def _waits(self, candidate: Candidate, what: str) -> None:
        """Tell that a model's server is away, or is back."""
        waiting, name = self.contest.waiting, candidate.name
        if what:
            waiting[name] = what
            log.warning("%s: %s", name, what)
        elif waiting.pop(name, None) and not self.stop.wanted:
            log.warning("%s: going on", name)

    def _note(self, candidate: Candidate, found: Answer | Refusal) -> None:
        """Score an answer and write it down, before anything else is done with it."""
        record = self._record(candidate, found)
        self.journal.write(record)
        self.answers[record.model, record.doc_id] = record
        self.listen(self.contest, "answer")

    def _record(self, candidate: Candidate, found: Answer | Refusal) -> AnswerRecord:
        """The journal's line of an answer."""
        make = refusal_record if isinstance(found, Refusal) else answer_record
        return make(self.contest, candidate.name, found)  # type: ignore[arg-type]

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
        mine = [
            each
            for each in self.held.answers(self.contest.task)
            if each.model == candidate.name and each.answered
        ]
        if not mine:
            return
        last = mine[-1]
        (instance,) = build_instances(
            served, [last.doc_id], candidate.prompt, candidate.chat_template()
        )
        if prompt_hash(instance.arguments[0]) != last.prompt_hash:
            raise DataError(
                f"--resume: the prompt of doc {last.doc_id} for {candidate.name} is not the one "
                f"that was asked before; the task {self.contest.task} or its settings changed: "
                "start a new run"
            )
