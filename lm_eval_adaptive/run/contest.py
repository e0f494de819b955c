"""A contest: some models on one task, judged by one metric or by several at once.

This module owns what is known of it: which documents were asked, what the answers are worth by each
metric, who was set aside. It imports the core's procedure and the journal's records. It loads no
task, asks no model and reads no file, so that a contest can be had from a task (``opening``) as
well as from a journal and a bank (``standing``).

A round is taken in whole, model by model and document by document as planned, so nothing depends on
which answer came first. Together with
:meth:`~lm_eval_adaptive.core.procedure.Procedure.next`, which looks at the state alone, this makes
a run a function of its answers: doing it again with those of a journal gives it again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from lm_eval_adaptive.core.state import Round
from lm_eval_adaptive.host.aggregations import EVERY_NUMBER_COUNTS, Averaging
from lm_eval_adaptive.records.journal import NO_BANK, AskRecord, left_out
from lm_eval_adaptive.records.ranking import TraceStep

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from numpy.typing import NDArray

    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.core.procedure import Procedure
    from lm_eval_adaptive.core.scale import ScoreScale
    from lm_eval_adaptive.core.state import RunState, Stop
    from lm_eval_adaptive.host.settings import CandidateSpec
    from lm_eval_adaptive.records.journal import AnswerRecord, ScoreRecord
    from lm_eval_adaptive.run.config import AdaptiveConfig

    Plan = tuple[AskRecord, ...]
    Answers = Mapping[tuple[str, int], AnswerRecord]

PAIRED = "paired"  # stands where a bank's response model does, of a contest without one


@dataclass(frozen=True)
class Terms:
    """What one metric brings to a contest; none of it changes.

    Attributes:
        key: What the metric is called among several: as the user named it.
        metric: Its name.
        filter: The filter whose values it has.
        scale: Its range and direction.
        bank: The bank, None where there is none.
        options: The adaptive options, of this metric alone.
        names: Models by row: those under test, sorted by name, then the known ones.
        averaging: How a mean over documents stands for the task's own aggregation.
        signature: The recipe of the ranking.
        score_of: What scores are of, where the bank has a part of the task's documents; else "".
    """

    key: str
    metric: str
    filter: str
    scale: ScoreScale
    bank: ItemBank | None
    options: AdaptiveConfig
    names: tuple[str, ...]
    averaging: Averaging = EVERY_NUMBER_COUNTS
    signature: str = ""
    score_of: str = ""

    @property
    def bank_sha256(self) -> str:
        """Hash of the bank, :data:`NO_BANK` where there is none."""
        return NO_BANK if self.bank is None else self.bank.sha256

    @property
    def response_model(self) -> str:
        """How scores follow from abilities; without a bank, that paired differences decide."""
        return PAIRED if self.bank is None else self.bank.info.response_model

    @property
    def calibrated(self) -> tuple[float, ...]:
        """Full scores of the bank's calibration models, metric's units."""
        return () if self.bank is None else tuple(each.mean_raw for each in self.bank.info.models)


class View:
    """A contest as one metric sees it.

    Args:
        terms: What the metric brings.
        procedure: Its inference and its rules.
        doc_ids: The document of each item, -1 where the task does not have it.
        notices: What the reader of the ranking has to know before anything is asked.
    """

    def __init__(
        self,
        terms: Terms,
        procedure: Procedure,
        doc_ids: NDArray[np.int_],
        notices: Sequence[str] = (),
    ) -> None:
        self.terms = terms
        self.procedure = procedure
        self.notices = list(notices)
        self.unlike: tuple[str, ...] = ()  # settings in which prompts differ from the bank's
        self.chosen = 0  # rounds that this metric chose, among several
        self.stop_reason = ""
        self.excluded: dict[int, str] = {}  # documents that count for nobody, and why
        self._of_document: dict[int, list[tuple[AnswerRecord, ScoreRecord]]] = {}
        self.scores: list[ScoreRecord] = []  # of the contest's answers, in their order
        self.trace: list[TraceStep] = []
        self._set_documents(doc_ids)

    def _set_documents(self, doc_ids: NDArray[np.int_]) -> None:
        self.doc_ids = doc_ids
        self.item_of = {int(doc): item for item, doc in enumerate(doc_ids) if doc >= 0}
        self.state: RunState = self.procedure.start(doc_ids >= 0)

    def keep(self, doc_ids: AbstractSet[int]) -> None:
        """Ask for these documents only; called before anything is asked."""
        lost = len(self.item_of) - len(doc_ids)
        if lost:
            self.notices.append(
                f"{lost} of the bank's {len(self.doc_ids)} items are left out: the other metrics' "
                "banks do not have them"
            )
        self._set_documents(np.array([doc if doc in doc_ids else -1 for doc in self.doc_ids]))

    def score_of(self, answer: AnswerRecord) -> ScoreRecord:
        """What an answer is worth by this metric."""
        return answer.scores.get(self.terms.key, answer.first)

    def plan(self, step: Round) -> Plan:
        """A round in documents."""
        return tuple(
            AskRecord(
                model=self.terms.names[ask.model],
                doc_ids=tuple(int(self.doc_ids[item]) for item in ask.items),
                draw_probabilities=tuple(float(f"{each:.6g}") for each in ask.probabilities),
            )
            for ask in step.asks
        )

    def doubt(self) -> float:
        """How far the farthest pair is from decided: the chance that its order is wrong."""
        procedure, state = self.procedure, self.state
        estimates = procedure.estimate(state)
        chances = [
            min(pair.p_a_better, 1.0 - pair.p_a_better)
            for pair in procedure.open_pairs(state, estimates)
            if procedure.chance(state, estimates, pair) >= procedure.futility
        ]
        return max(chances, default=0.0)

    def take_in(
        self, round_number: int, answers: Sequence[AnswerRecord], failures: Mapping[str, str]
    ) -> None:
        """Take in a round's answers, in the order of its plan, and who was set aside in it."""
        rows = {name: row for row, name in enumerate(self.terms.names)}
        fresh = [(answer, self.score_of(answer)) for answer in answers]
        for answer, found in fresh:
            score = np.nan if found.score is None else found.score
            self.state.record(rows[answer.model], self.item_of[answer.doc_id], score, answer.cost)
            self.scores.append(found)
            self._of_document.setdefault(answer.doc_id, []).append((answer, found))
        for doc_id in dict.fromkeys(answer.doc_id for answer, _ in fresh):
            bad = left_out(*zip(*self._of_document[doc_id], strict=True))
            if bad and doc_id not in self.excluded:
                self.excluded.update(bad)
                self.state.exclude(self.item_of[doc_id])
        for name in failures:
            self.state.failed[rows[name]] = True
        self._trace(round_number, fresh, rows)

    def _trace(
        self,
        round_number: int,
        fresh: Sequence[tuple[AnswerRecord, ScoreRecord]],
        rows: Mapping[str, int],
    ) -> None:
        """Note what is believed after a round beside each of its answers."""
        scale = self.terms.scale
        estimates = self.procedure.estimate(self.state)
        middle = scale.to_raw(estimates.score)
        half = estimates.score_half_interval * scale.width
        for answer, found in fresh:
            row = rows[answer.model]
            self.trace.append(
                TraceStep(
                    step=len(self.trace) + 1,
                    round=round_number,
                    model=answer.model,
                    doc_id=answer.doc_id,
                    raw_score=found.raw_score,
                    score=found.score,
                    ability=float(estimates.theta[row]),
                    ability_se=float(estimates.theta_se[row]),
                    estimate=float(middle[row]),
                    estimate_half=float(half[row]),
                )
            )


@dataclass
class Contest:
    """Some models on one task.

    Attributes:
        task: The task's name.
        specs: The models under test, sorted by name.
        views: The contest by each metric; the first one is what progress, page and summary show.
        rounds: Rounds taken in.
        answers: What was answered, in the order of the plans.
        failed: Why models were set aside, by name.
        waiting: What models wait for, by name, while their servers do not answer.
        said: What the task's metrics had to say of all that they scored.
    """

    task: str
    specs: Sequence[CandidateSpec]
    views: Sequence[View]
    rounds: int = 0
    answers: list[AnswerRecord] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    waiting: dict[str, str] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    @property
    def first(self) -> View:
        """The contest by the first metric."""
        return self.views[0]

    @property
    def stop_reason(self) -> str:
        """Why nothing more is asked, "" while something is."""
        return self.first.stop_reason

    @property
    def prices(self) -> dict[str, float | dict[str, float]]:
        """What the models under test cost, by name."""
        return {spec.name: spec.cost for spec in self.specs}

    def next(self, busy: AbstractSet[str] = frozenset()) -> Plan | None:
        """What to ask next; None where every metric's own rules say that the contest is over.

        Args:
            busy: Models that are being asked; the others are asked what they should be now, which
                may be nothing.

        The metric whose undecided pair is farthest from decided chooses; where two are equally far,
        the one that chose less often.
        """
        steps: list[Round | Stop] = [
            view.procedure.next(view.state, [name in busy for name in view.terms.names])
            for view in self.views
        ]
        going = [
            (view, step)
            for view, step in zip(self.views, steps, strict=True)
            if isinstance(step, Round)
        ]
        if not going:
            self._stop(steps)
            return None
        chooser, step = min(
            going, key=lambda each: (-each[0].doubt() if len(going) > 1 else 0.0, each[0].chosen)
        )
        chooser.chosen += 1
        return chooser.plan(step)

    def stop(self, reason: str) -> None:
        """End the contest by every metric."""
        for view in self.views:
            view.stop_reason = reason

    def _stop(self, steps: Sequence[Round | Stop]) -> None:
        for view, step in zip(self.views, steps, strict=True):
            if not isinstance(step, Round):
                view.stop_reason = step.reason

    def close_round(self, plan: Plan, answers: Answers, failures: Mapping[str, str]) -> None:
        """Take in a round.

        Args:
            plan: What was asked.
            answers: Answers by (model, doc_id); a model that failed may lack some.
            failures: Why models are set aside from now on, by name.
        """
        self.rounds += 1
        asked = [(ask.model, doc_id) for ask in plan for doc_id in ask.doc_ids]
        taken = [answers[at] for at in asked if at in answers]
        self.answers += taken
        self.failed.update(failures)
        for view in self.views:
            view.take_in(self.rounds, taken, failures)

    def set_aside(self, failures: Mapping[str, str]) -> None:
        """Take models out after the last round."""
        self.failed.update(failures)
        for view in self.views:
            view.take_in(self.rounds, (), failures)

    def replay(
        self, answers: Sequence[AnswerRecord], stop_reason: str, taken: Sequence[int] = ()
    ) -> None:
        """Take in the answers of a journal for looking at, by the rounds they came in.

        Args:
            answers: The answers.
            stop_reason: Why the run was over, "" while it is not.
            taken: Rounds in the order in which they were taken in; others follow by their number.

        Unlike going on with a run, this decides nothing, so it also shows a half-answered round.
        """
        rounds: dict[int, dict[str, dict[int, AnswerRecord]]] = {}
        for answer in answers:
            by_model = rounds.setdefault(answer.round, {})
            by_model.setdefault(answer.model, {})[answer.doc_id] = answer
        place = {number: place for place, number in enumerate(taken)}
        for number in sorted(rounds, key=lambda each: (place.get(each, len(place)), each)):
            by_model = rounds[number]
            plan = tuple(
                AskRecord(model=spec.name, doc_ids=tuple(by_model[spec.name]))
                for spec in self.specs
                if spec.name in by_model
            )
            held = {
                (model, doc_id): answer
                for model, by_doc in by_model.items()
                for doc_id, answer in by_doc.items()
            }
            self.close_round(plan, held, {})
        self.first.stop_reason = stop_reason


def unanswered(plan: Plan, answers: Answers) -> Plan:
    """What of a round is not answered yet."""
    left = []
    for ask in plan:
        open_places = [
            place for place, doc in enumerate(ask.doc_ids) if (ask.model, doc) not in answers
        ]
        probabilities = ask.draw_probabilities
        left.append(
            AskRecord(
                model=ask.model,
                doc_ids=tuple(ask.doc_ids[place] for place in open_places),
                draw_probabilities=tuple(
                    probabilities[place] for place in open_places if place < len(probabilities)
                ),
            )
        )
    return tuple(ask for ask in left if ask.doc_ids)
