"""One task of an adaptive run: its documents, bank and rules, and what the journal says of it.

This module owns the way from answers to the core's state, and the check that a bank fits a task.
It imports the core, the bank's checks and the score adaptor; it asks no model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lm_eval_adaptive.banks.check import match_documents
from lm_eval_adaptive.banks.find import find_bank
from lm_eval_adaptive.core.build import refit
from lm_eval_adaptive.core.procedure import Ask, Procedure, ProcedureConfig, Round
from lm_eval_adaptive.errors import BankError, DataError, TaskError, UsageError
from lm_eval_adaptive.host.scoring import document_score
from lm_eval_adaptive.host.settings import cost_of_tokens, metric_and_filter
from lm_eval_adaptive.run.cold import documents_as_bank, is_cold, shared_order
from lm_eval_adaptive.run.config import bank_signature, signature

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from numpy.typing import NDArray

    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.core.procedure import RunState
    from lm_eval_adaptive.host.candidate import Answer
    from lm_eval_adaptive.host.settings import CandidateSpec
    from lm_eval_adaptive.host.task import TaskDocs
    from lm_eval_adaptive.run.config import AdaptiveConfig


@dataclass(frozen=True)
class ScoredAnswer:
    """An answer's number.

    Attributes:
        raw_score: In the metric's units; None where the document is to be left out.
        score: In [0, 1]; None likewise.
        clipped: Whether the raw score lay outside the bank's range.
        problem: Why the document is to be left out, "" where it is not.
    """

    raw_score: float | None
    score: float | None
    clipped: bool
    problem: str


def expected_costs(
    bank: ItemBank, candidates: Sequence[CandidateSpec], repeats: int
) -> NDArray[np.float64]:
    """What each item is expected to cost each model, shape (m, n), by the bank's token counts.

    Raises:
        BankError: A model is priced by tokens, and the bank does not know how long answers are.
    """
    tokens_in, tokens_out = bank.input_tokens, bank.output_tokens
    by_tokens = [spec.name for spec in candidates if isinstance(spec.cost, dict)]
    if by_tokens and not (np.isfinite(tokens_in) & np.isfinite(tokens_out)).all():
        raise BankError(
            f"{by_tokens[0]} is priced by tokens, and bank {bank.path} does not tell how many its "
            "items take: give a price per item, or calibrate the bank from logs"
        )
    tokens_in, tokens_out = np.nan_to_num(tokens_in), np.nan_to_num(tokens_out)
    rows = [
        # No item is free, or its worth per cost would have no end.
        np.maximum(
            cost_of_tokens(spec.cost, tokens_in * repeats, tokens_out * repeats, repeats), 1e-12
        )
        for spec in candidates
    ]
    return np.array(rows)


def known_rows(
    bank: ItemBank, against: Sequence[str], candidates: Sequence[str]
) -> tuple[list[int], list[str]]:
    """The calibration models that join a ranking with their recorded scores.

    Args:
        bank: The bank.
        against: Their names, or ``all``.
        candidates: Names of the models to be ranked.

    Returns:
        Their rows in the bank, by name; and notices.

    Raises:
        UsageError: A name is not among the calibration models, or is a candidate's as well.
    """
    rows = {model.name: row for row, model in enumerate(bank.info.models)}
    if "all" in against and "all" not in rows:
        doubled = [name for name in candidates if name in rows]
        notices = [
            f"{name} is a model of the bank and is asked anew, so --against all leaves its "
            "recorded score out"
            for name in doubled
        ]
        return [rows[name] for name in sorted(rows) if name not in candidates], notices
    for name in against:
        if name not in rows:
            raise UsageError(
                f"--against {name}: bank {bank.path} has no such model; it holds "
                f"{', '.join(sorted(rows))}"
            )
        if name in candidates:
            raise UsageError(
                f"--against {name}: a model of that name is asked in this run; call the one to be "
                "asked differently with --model_name"
            )
    return [rows[name] for name in sorted(set(against))], []


class Session:
    """One task with its bank and rules.

    Args:
        docs: The task's documents.
        adaptive: The run's options.
        candidates: The models, sorted by name.
        batch: Items the back ends answer in about the time of one.
        seed: Seed of the random sampler.

    Raises:
        BankError: There is no bank, or it is of another task, metric or filter.
        DataError: The bank's items are not among the documents.
        UsageError: The rules cannot be met.
    """

    def __init__(
        self,
        docs: TaskDocs,
        adaptive: AdaptiveConfig,
        candidates: Sequence[CandidateSpec],
        batch: int,
        seed: int,
    ) -> None:
        self.docs = docs
        self.adaptive = adaptive
        order = None
        self.cold = is_cold(docs, adaptive)
        if self.cold:
            self.bank = documents_as_bank(docs, adaptive)
            order = shared_order(docs, adaptive, seed)
        else:
            self.bank = refit(
                find_bank(docs, adaptive.bank_for(docs.name), next(iter(adaptive.metrics), None)),
                adaptive.response_model,
            )
        self.notices: list[str] = []
        self._check_bank()
        info = self.bank.info
        self.metric, self.filter, self.scale = info.metric, info.filter, info.scale
        where, notices = match_documents(self.bank, docs.keys)
        self.notices += notices
        self.doc_ids = np.array([-1 if each is None else each for each in where])
        self.item_of = {int(doc): item for item, doc in enumerate(self.doc_ids) if doc >= 0}
        known, notices = known_rows(self.bank, adaptive.against, [spec.name for spec in candidates])
        self.notices += notices
        self.known = [info.models[row].name for row in known]
        self.names = [*(spec.name for spec in candidates), *self.known]
        self.repeats = int(docs.task.config.repeats or 1)
        self.prices = {spec.name: spec.cost for spec in candidates}
        self.procedure = Procedure(
            self.bank,
            expected_costs(self.bank, candidates, self.repeats),
            adaptive.procedure(self.scale.width, batch, seed),
            known,
            order,
        )
        self.scorer = self._scorer(candidates)
        self.followers: list[Session] = []  # of further metrics on the same answers

    @property
    def key(self) -> str:
        """What the metric is called among several: as the user named it."""
        return self.adaptive.metrics[0] if self.adaptive.metrics else self.metric

    def keep(self, doc_ids: AbstractSet[int]) -> None:
        """Ask for these documents only."""
        lost = len(self.item_of) - len(doc_ids)
        if lost:
            self.notices.append(
                f"{lost} of the bank's {len(self.bank)} items are left out: the other metrics' "
                "banks do not have them"
            )
        self.item_of = {doc: item for doc, item in self.item_of.items() if doc in doc_ids}
        self.doc_ids = np.array([doc if doc in doc_ids else -1 for doc in self.doc_ids])

    def _check_bank(self) -> None:
        info, where = self.bank.info, self.bank.path
        if info.task != self.docs.name:
            raise BankError(
                f"bank {where} was made for task {info.task}, this run is of task "
                f"{self.docs.name}; pass the right bank with --bank, or recalibrate"
            )
        if self.adaptive.metrics:
            metric, filter_name = metric_and_filter(self.adaptive.metrics[0])
            if metric != info.metric:
                raise BankError(
                    f"bank {where} ranks by {info.metric}, --metric asks for {metric}; leave "
                    "--metric out, or calibrate a bank for that metric and name it with --bank "
                    f"{self.docs.name}:{metric}=PATH"
                )
            if filter_name is not None and filter_name != info.filter:
                raise BankError(
                    f"bank {where} was calibrated on filter {info.filter}, --metric asks for "
                    f"{filter_name}; calibrate a bank for that filter"
                )
        filters = [each.name for each in self.docs.task._filters]  # noqa: SLF001
        if info.filter not in filters:
            raise BankError(
                f"bank {where} was calibrated on filter {info.filter}, task {self.docs.name} has "
                f"{', '.join(filters)}; recalibrate it on logs of this version of the task"
            )
        if info.task_version and info.task_version != self.docs.version:
            raise BankError(
                f"bank {where} was made for version {info.task_version} of task "
                f"{self.docs.name}, this is version {self.docs.version}; recalibrate it, or use "
                "the version of the task it was made for"
            )

    def _scorer(self, candidates: Sequence[CandidateSpec]) -> str:
        """What the metric's values depend on, "" where the task does not tell; notes its ties.

        Raises:
            TaskError: The task does not have the bank's metric.
            UsageError: A setting of the metric is missing.
        """
        scoring = self.docs.task.config.process_results
        if not hasattr(scoring, "signature"):  # a function of another kind, see metrics.task
            return ""
        if self.metric not in scoring.metrics:
            raise TaskError(
                f"task {self.docs.name} gives no metric {self.metric!r}; it has "
                f"{', '.join(scoring.metrics)}: calibrate a bank for one of them"
            )
        made_of = {spec.name: f"{spec.model} {spec.model_args}" for spec in candidates}
        self.notices += scoring.warnings(made_of, [self.metric])
        return str(scoring.signature([self.metric])[self.metric])

    @property
    def _sampler_name(self) -> str:
        name = self.procedure.sampler_name
        return "spread" if self.cold and name == "fisher" else name

    @property
    def recipe(self) -> str:
        """The run's signature: what has to be equal for a ranking to come out again."""
        import lm_eval_adaptive

        rules = self.procedure.config
        parts: dict[str, Any] = {
            "task": self.docs.name,
            "version": self.docs.version,
            "metric": self.metric,
            "filter": self.filter,
            "bank": bank_signature(self.bank),
            "response": self.bank.info.response_model,
            "sampler": self._sampler_name,
            "round": rules.round_size or f"auto{rules.batch}",
            "conf": rules.rule.confidence,
            "corr": rules.rule.correction,
            "pairs": rules.rule.pairs,
            "min": self.procedure.min_items,
            "max": self.procedure.max_items,
            "seed": rules.seed,
            "lea": lm_eval_adaptive.__version__,
        }
        if self.scorer:
            parts["scorer"] = self.scorer.replace("|", ";")
        if self.adaptive.range is not None:
            parts["range"] = f"{self.scale.lo:g},{self.scale.hi:g}"
        if self.adaptive.stratify is not None:
            parts["stratify"] = self.adaptive.stratify
        if self.known:
            parts["against"] = ",".join(self.known)
        if rules.rule.equivalence:
            parts["equiv"] = self.adaptive.equivalence
        if rules.futility != ProcedureConfig.futility:
            parts["futility"] = rules.futility
        for name in ("budget", "budget_items", "items_per_model", "precision"):
            if getattr(rules, name) is not None:
                parts[name] = getattr(self.adaptive, name)
        return signature(parts)

    def score(self, answer: Answer) -> ScoredAnswer:
        """The number of an answer under the bank's metric and range.

        Raises:
            TaskError: The task's metrics do not hold the bank's metric at all.
            DataError: The metric's values are no numbers.
        """
        result = answer.result
        if result.error and self.filter not in result.metrics:
            return ScoredAnswer(None, None, clipped=False, problem=f"metric failed: {result.error}")
        metrics = result.metrics[self.filter]
        if self.metric not in metrics:
            raise TaskError(
                f"task {self.docs.name} gives no metric {self.metric!r}; it has "
                f"{', '.join(metrics) or 'none'}: calibrate a bank for one of them"
            )
        if metrics[self.metric] is None:
            return ScoredAnswer(None, None, clipped=False, problem=f"{self.metric} is missing")
        raw = document_score(self.metric, metrics[self.metric])
        if not np.isfinite(raw):
            return ScoredAnswer(None, None, clipped=False, problem=f"{self.metric} is {raw}")
        clipped = bool(self.scale.outside(raw))
        return ScoredAnswer(raw, float(self.scale.to_score(raw)), clipped=clipped, problem="")

    def start(self) -> RunState:
        """No answers yet."""
        return self.procedure.start(self.doc_ids >= 0)

    def doc_ids_of(self, items: Iterable[int]) -> list[int]:
        """The true document ids of items."""
        return [int(self.doc_ids[item]) for item in items]


class TaskRun:
    """What is known of one task of a run: rounds taken in whole, in the order of their plan.

    A round is applied only when all of its answers are there, model by model and item by item as
    planned, so nothing depends on which answer came first. Together with
    :meth:`~lm_eval_adaptive.core.procedure.Procedure.next`, which looks at the state alone, this
    makes a run a function of its answers: doing it again with those of a journal gives it again.

    Args:
        session: The task.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.state: RunState = session.start()
        self.rounds = 0
        self.stop_reason = ""
        self.followers = [TaskRun(each) for each in session.followers]
        self.chosen = 0  # rounds that this metric chose, among several
        self.answers: list[dict[str, Any]] = []
        self.excluded: dict[int, str] = {}
        self.failed: dict[str, str] = {}
        self.trace: list[dict[str, Any]] = []

    def close_round(
        self,
        plan: Round,
        answers: Mapping[tuple[str, int], Mapping[str, Any]],
        failures: Mapping[str, str],
    ) -> None:
        """Take in a round.

        Args:
            plan: What was asked.
            answers: Journal records by (model, doc_id); a model that failed may lack some.
            failures: Why models are set aside from now on, by name.
        """
        session = self.session
        self.rounds += 1
        fresh: list[tuple[int, dict[str, Any]]] = []
        for ask in plan.asks:
            name = session.names[ask.model]
            for item in ask.items:
                doc_id = int(session.doc_ids[item])
                record = answers.get((name, doc_id))
                if record is None:
                    continue
                score = np.nan if record["score"] is None else float(record["score"])
                self.state.record(ask.model, item, score, float(record["cost"]))
                self.answers.append(dict(record))
                fresh.append((ask.model, self.answers[-1]))
        for _, record in fresh:
            if record["problem"] and record["doc_id"] not in self.excluded:
                self.excluded[record["doc_id"]] = f"{record['model']}: {record['problem']}"
                self.state.exclude(session.item_of[record["doc_id"]])
        for name, reason in failures.items():
            self.failed[name] = reason
            self.state.failed[session.names.index(name)] = True
        estimates = session.procedure.estimate(self.state)
        middle = session.scale.to_raw(estimates.score)
        half = estimates.score_half_interval * session.scale.width
        for row, record in fresh:
            self.trace.append(
                {
                    "step": len(self.trace) + 1,
                    "round": self.rounds,
                    "model": record["model"],
                    "doc_id": record["doc_id"],
                    "raw_score": record["raw_score"],
                    "score": record["score"],
                    "ability": float(estimates.theta[row]),
                    "ability_se": float(estimates.theta_se[row]),
                    "estimate": float(middle[row]),
                    "estimate_half": float(half[row]),
                }
            )


def recorded_answers(
    records: Iterable[Mapping[str, Any]], task: str
) -> dict[tuple[str, int], Mapping[str, Any]]:
    """The answers a journal holds for a task, by (model, doc_id)."""
    return {
        (record["model"], int(record["doc_id"])): record
        for record in records
        if record["type"] == "answer" and record["task"] == task
    }


def missing(
    session: Session, plan: Round, answers: Mapping[tuple[str, int], Mapping[str, Any]]
) -> dict[int, list[int]]:
    """What of a round is not answered yet: document ids by row of the model."""
    found: dict[int, list[int]] = {}
    for ask in plan.asks:
        name = session.names[ask.model]
        left = [doc for doc in session.doc_ids_of(ask.items) if (name, doc) not in answers]
        if left:
            found[ask.model] = left
    return found


def as_far_as(session: Session, records: Sequence[Mapping[str, Any]]) -> TaskRun:
    """A task's run as a journal tells it, for looking at: answers by the rounds they came in.

    Unlike going on with a run, this decides nothing, so it also shows a half-answered round.
    """
    mine = [record for record in records if record.get("task") == session.docs.name]
    rounds: dict[int, dict[str, dict[int, Mapping[str, Any]]]] = {}
    for record in mine:
        if record["type"] == "answer":
            by_model = rounds.setdefault(int(record["round"]), {})
            by_model.setdefault(record["model"], {})[int(record["doc_id"])] = record
    run = TaskRun(session)
    for number in sorted(rounds):
        by_model = rounds[number]
        asks = [
            Ask(row, tuple(session.item_of[doc_id] for doc_id in by_model[name]))
            for row, name in enumerate(session.names)
            if name in by_model
        ]
        answers = {
            (name, doc_id): record
            for name, by_doc in by_model.items()
            for doc_id, record in by_doc.items()
        }
        run.close_round(Round(tuple(asks)), answers, {})
    for record in mine:
        if record["type"] == "end":
            run.stop_reason = str(record["stop_reason"])
    return run


def check_same(then: Mapping[str, Any], now: Mapping[str, Any], path: str = "") -> None:
    """Refuse to resume a run under another configuration, naming the first difference.

    Raises:
        DataError: Something differs.
    """
    for key in sorted({*then, *now}):
        old, new = then.get(key), now.get(key)
        name = f"{path}{key}"
        if isinstance(old, dict) and isinstance(new, dict):
            check_same(old, new, f"{name}.")
        elif old != new:
            raise DataError(
                f"--resume: {name} was {old!r} when the run began and is {new!r} now; resume with "
                "the original settings (--resume DIR alone takes them all), or start a new run"
            )
