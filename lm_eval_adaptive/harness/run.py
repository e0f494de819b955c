"""``run --adaptive`` and the Python API: from a validated request to a ranking and its files.

This module owns the loop: ask what the procedure says, write the journal, ask again. It imports
every other part of the harness layer; what to ask is decided by ``core.procedure`` alone.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.core.state import Stop
from lm_eval_adaptive.errors import (
    AdaptiveError,
    DataError,
    Interrupted,
    ModelError,
    ScoringError,
    UsageError,
)
from lm_eval_adaptive.harness.asking import FIRST_PAUSE, Asker, Pool, in_plan_order
from lm_eval_adaptive.harness.candidate import NULL_ANSWER, Candidate
from lm_eval_adaptive.harness.config import (
    AdaptiveConfig,
    CandidateSpec,
    HarnessSettings,
    cost_of_tokens,
    make_candidates,
)
from lm_eval_adaptive.harness.hub import is_hub_address
from lm_eval_adaptive.harness.journal import (
    NAME,
    SCHEMA,
    Journal,
    mend_journal,
    read_journal,
)
from lm_eval_adaptive.harness.live import silenced
from lm_eval_adaptive.harness.outputs import (
    changed_prompt,
    ranking_document,
    run_warnings,
    summary_document,
    versions,
    write_json,
    write_results,
)
from lm_eval_adaptive.harness.session import (
    Session,
    TaskRun,
    check_same,
    missing,
    recorded_answers,
)
from lm_eval_adaptive.harness.several import (
    close_round,
    further_scores,
    make_session,
    next_step,
    rankings,
    recipes,
)
from lm_eval_adaptive.harness.task import TaskDocs, load_tasks
from lm_eval_adaptive.harness.trackers import check_trackers, track

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lm_eval_adaptive.harness.candidate import Answer

log = logging.getLogger(__name__)

# Least items of a model in a round that has to load it first.
LOAD_ROUND = 8

Listener = Callable[[Session, TaskRun, str], None]


@dataclass(frozen=True)
class TaskOutcome:
    """What a run found on one task.

    Attributes:
        ranking: The content of the ranking file.
        results: The harness's results of each model.
        files: The files written, the ranking first.
    """

    ranking: dict[str, Any]
    results: dict[str, dict[str, Any]]
    files: list[Path]


@dataclass
class RunOutcome:
    """What a run found.

    Attributes:
        output_path: The run's folder.
        tasks: Outcome by task.
        report: The page that shows it, None where it could not be made (the log says why).
        summary: Over several tasks: mean rank and mean standardised score of each model.
        summary_file: Where it was written.
    """

    output_path: Path
    tasks: dict[str, TaskOutcome] = field(default_factory=dict)
    report: Path | None = None
    summary: dict[str, Any] | None = None
    summary_file: Path | None = None


def tasks_folder() -> Path:
    """Where this package's own tasks are: inside the wheel, or beside a source checkout."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "tasks"
    return installed if installed.is_dir() else package.parent / "tasks"


def include_paths(include_path: Any) -> list[str]:
    """Folders to look for tasks in: this package's, then the user's, which take precedence."""
    if not include_path:
        return [str(tasks_folder())]
    given = include_path if isinstance(include_path, list | tuple) else [include_path]
    return [str(tasks_folder()), *(str(each) for each in given)]


def named_banks(include_path: Any) -> list[tuple[str, str, Path | str]]:
    """Tasks whose YAML names a bank, from our and the user's folders.

    Returns:
        Task, metric, and the bank's file, or its address where it is on the hub.
    """
    from lm_eval.tasks._yaml_loader import load_yaml

    found = []
    for folder in include_paths(include_path):
        for file in sorted(Path(folder).rglob("*.yaml")):
            config = load_yaml(str(file), resolve_func=False)
            block = (config.get("metadata") or {}).get("adaptive") or {}
            named = [(block.get("metric", ""), block.get("bank"))]
            named += (block.get("banks") or {}).items()
            for metric, address in named:
                if isinstance(config.get("task"), str) and address:
                    bank = address if is_hub_address(address) else file.parent / str(address)
                    found.append((config["task"], str(metric), bank))
    return found


def make_task_manager(settings: HarnessSettings) -> Any:
    """A task manager that knows the named tasks.

    Reading the harness's own thousands of task files takes seconds, so they are read only when a
    name is not found in this package's and the user's folders.
    """
    from lm_eval.tasks import TaskManager

    paths = include_paths(settings.include_path)
    for path in paths:
        if not Path(path).exists():
            raise UsageError(f"--include_path {path}: no such folder")
    names = [task for task in settings.tasks if isinstance(task, str)]
    manager = TaskManager(
        include_path=paths, include_defaults=False, metadata=dict(settings.metadata)
    )
    if all(name in manager.all_tasks or name.endswith((".yaml", ".yml")) for name in names):
        return manager
    return TaskManager(include_path=paths, metadata=dict(settings.metadata))


def resolve_tasks(manager: Any, tasks: Sequence[Any]) -> list[Any]:
    """Task names, files and patterns as a list of single tasks, in the user's order.

    Raises:
        UsageError: A name is unknown; the message names near ones.
    """
    import difflib
    from glob import glob

    from lm_eval.tasks._yaml_loader import load_yaml

    found: list[Any] = []
    for task in tasks:
        if not isinstance(task, str):
            found.append(task)
            continue
        if task.endswith((".yaml", ".yml")):
            files = sorted(glob(task))  # noqa: PTH207  a pattern may be absolute
            if not files:
                raise UsageError(f"no task file {task}")
            for file in files:
                config = load_yaml(str(Path(file).resolve()), resolve_func=True)
                metadata = dict(config.get("metadata") or {})
                config["metadata"] = {**metadata, "config_source": str(Path(file).resolve())}
                found.append(config)
            continue
        matches = manager.match_tasks([task])
        if not matches:
            near = difflib.get_close_matches(task, manager.all_tasks, n=3)
            hint = f"did you mean {', '.join(near)}?" if near else "`ls tasks` lists them"
            raise UsageError(f"no task {task!r}; {hint}")
        found.extend(match for match in matches if match not in found)
    if not found:
        raise UsageError("name a task with --tasks")
    return found


def default_output_path() -> Path:
    """Where a run writes when the user did not say: nothing a model answered may be lost."""
    return Path("adaptive_results") / datetime.now().strftime("%Y-%m-%dT%H-%M-%S")  # noqa: DTZ005


class AdaptiveRun:
    """One invocation: several models, one or more tasks.

    Args:
        candidates: The models, sorted by name.
        settings: The harness's options.
        adaptive: The adaptive options.
        resume: Folder of the run to go on with, None for a new one.
        command: The command line, kept in the journal.
        listener: Called after every round and at each task's end, for progress.
    """

    def __init__(
        self,
        candidates: Sequence[CandidateSpec],
        settings: HarnessSettings,
        adaptive: AdaptiveConfig,
        *,
        resume: Path | None = None,
        command: Sequence[str] = (),
        listener: Listener | None = None,
    ) -> None:
        self.settings = settings
        self.adaptive = adaptive
        self.resume = resume
        self.command = list(command)
        self.output_path = resume or Path(settings.output_path or default_output_path())
        self.candidates = [Candidate(spec, settings) for spec in candidates]
        self._listen: Listener = listener or (lambda session, run, event: None)
        self._pool = Pool(adaptive.resident)
        self.pause = FIRST_PAUSE

    def run(self) -> RunOutcome:
        """Ask, rank, write.

        Raises:
            AdaptiveError: See the tree in ``errors``; everything asked so far is in the journal.
        """
        check_trackers(self.settings)
        _refuse_several_processes()
        with _quiet_harness(), _null_answers_told_apart():
            for candidate in self.candidates:
                candidate.check()
            manager = make_task_manager(self.settings)
            sessions = self._sessions(manager)
            records, journal = self._open_journal(sessions)
            with journal:
                outcome = RunOutcome(self.output_path)
                try:
                    for session in sessions:
                        run = self._play(session, records, journal)
                        outcome.tasks[session.docs.name] = self._conclude(session, run, manager)
                    if len(sessions) > 1:
                        self._summarise(sessions, outcome)
                    outcome.report = _page(self.output_path)
                    track(self.settings, outcome)
                except KeyboardInterrupt:
                    _page(self.output_path)
                    raise Interrupted(
                        f"stopped by you; all answers so far are in {journal.path}; go on with "
                        f"--resume {self.output_path}"
                    ) from None
                except OSError as error:
                    raise ModelError(
                        f"could not write {error.filename or journal.path} ({error.strerror}); all "
                        f"answers so far are in {journal.path}: free some room and go on with "
                        f"--resume {self.output_path}"
                    ) from error
                except (ModelError, ScoringError) as error:
                    if "--resume" in str(error):
                        raise
                    raise type(error)(
                        f"{error}; all answers so far are in {journal.path}: mend the cause and go "
                        f"on with --resume {self.output_path}"
                    ) from error
                return outcome

    def _batch(self) -> int:
        """Items asked of a model at once at the least: what its back end takes in one go.

        Where fewer local models stay loaded than are ranked, each round loads models anew: rounds
        are made larger, so that a load serves more documents.
        """
        size = max(candidate.batch for candidate in self.candidates)
        bound = self.adaptive.resident
        if bound is None:
            return size
        local = sum(not candidate.side_by_side for candidate in self.candidates)
        return max(4 * size, LOAD_ROUND) if bound < local else size

    def _sessions(self, manager: Any) -> list[Session]:
        specs = [candidate.spec for candidate in self.candidates]
        size = self._batch()
        found: list[Session] = []
        for name in resolve_tasks(manager, self.settings.tasks):
            for task in load_tasks(manager, name):
                if any(session.docs.name == task.config.task for session in found):
                    continue
                docs = TaskDocs(task)
                seed = self.settings.seed[1] or 0
                found.append(make_session(docs, self.adaptive, specs, size, seed))
        return found

    def _header(self, sessions: Sequence[Session]) -> dict[str, Any]:
        """What must be equal for a run to be resumed."""
        settings = self.settings
        return {
            "tasks": {
                session.docs.name: {
                    "signature": session.recipe,
                    "bank_sha256": session.bank.sha256,
                    "documents": len(session.docs),
                    **({"further": recipes(session)} if session.followers else {}),
                }
                for session in sessions
            },
            "models": {candidate.name: asdict(candidate.spec) for candidate in self.candidates},
            "adaptive": self.adaptive.choices(),
            "settings": {
                "num_fewshot": settings.num_fewshot,
                "system_instruction": settings.system_instruction,
                "apply_chat_template": settings.apply_chat_template,
                "fewshot_as_multiturn": settings.fewshot_as_multiturn,
                "gen_kwargs": settings.gen_kwargs,
                "seed": list(settings.seed),
            },
            "versions": versions(),
        }

    def _open_journal(self, sessions: Sequence[Session]) -> tuple[list[dict[str, Any]], Journal]:
        import json

        path = self.output_path / NAME
        header = json.loads(json.dumps(self._header(sessions), default=str))
        if self.resume is not None:
            records, notices = read_journal(path)
            for notice in notices:
                log.warning(notice)
            check_same(records[0]["config"], header)
            mend_journal(path)
            journal = Journal(path)
            journal.write("resumed", answers=sum(r["type"] == "answer" for r in records))
            return records[1:], journal
        if path.exists():
            self._put_away(path)
        journal = Journal(path)
        journal.write("run", schema=SCHEMA, config=header, command=self.command)
        journal.sync()
        return [], journal

    def _put_away(self, path: Path) -> None:
        """Keep an earlier run's journal under another name; refuse when that run is unfinished."""
        records, _ = read_journal(path)
        tasks = set(records[0]["config"]["tasks"])
        ended = {record["task"] for record in records if record["type"] == "end"}
        if tasks - ended:
            raise UsageError(
                f"{self.output_path} holds an unfinished run; go on with --resume "
                f"{self.output_path}, or choose another --output_path"
            )
        number = 1
        while (kept := path.with_name(f"journal_{number}.jsonl")).exists():
            number += 1
        path.rename(kept)

    def _play(
        self, session: Session, records: Sequence[Mapping[str, Any]], journal: Journal
    ) -> TaskRun:
        """Ask until the procedure stops; answers that the journal holds are not asked again."""
        run = TaskRun(session)
        name = session.docs.name
        answers = recorded_answers(records, name)
        known = set(answers)
        served: dict[str, Any] = {}

        def serve(candidate: Candidate) -> Any:
            if candidate.name not in served:
                metrics = [each.metric for each in (session, *session.followers)]
                served[candidate.name] = candidate.serve(session.docs, metrics)
                self._check_unchanged(session, records, candidate, served[candidate.name])
            return served[candidate.name]

        def note(candidate: Candidate, answer: Answer) -> None:
            record = _journal_answer(session, journal, candidate, answer, run.rounds + 1)
            answers[candidate.name, answer.doc_id] = record
            self._listen(session, run, "answer")

        asker = Asker(self._pool, serve, note, self.pause)
        self._listen(session, run, "start")
        while not run.stop_reason:
            step = next_step(run)
            if isinstance(step, Stop):
                run.stop_reason = step.reason
                break
            left = missing(session, step, answers)
            failures: dict[str, str] = {}
            if left:
                asks = [
                    {"model": session.names[row], "doc_ids": docs} for row, docs in left.items()
                ]
                journal.write("round", task=name, round=run.rounds + 1, asks=asks)
                journal.sync()
                plan = [(self.candidates[row], docs) for row, docs in left.items()]
                failures = in_plan_order(asker.ask(plan, run.rounds + 1))
                for model, reason in failures.items():
                    journal.write("failed", task=name, model=model, reason=reason)
                    log.warning("%s is set aside: %s", model, reason)
                journal.sync()
            close_round(run, step, answers, failures)
            self._listen(session, run, "round")
        if run.stop_reason == "failed":
            raise ModelError("; ".join(run.failed.values()))
        if set(answers) - known or not any(
            record["type"] == "end" and record["task"] == name for record in records
        ):
            journal.write("end", task=name, stop_reason=run.stop_reason)
            journal.sync()
        self._listen(session, run, "end")
        return run

    def _check_unchanged(
        self,
        session: Session,
        records: Sequence[Mapping[str, Any]],
        candidate: Candidate,
        task: Any,
    ) -> None:
        """Refuse to go on where a prompt is not what it was: that would mix two tests."""
        if self.resume is None:
            return
        doc_id = changed_prompt(session.docs.name, records, candidate, task)
        if doc_id is not None:
            raise DataError(
                f"--resume: the prompt of doc {doc_id} for {candidate.name} is not the one that "
                f"was asked before; the task {session.docs.name} or its settings changed: start a "
                "new run"
            )

    def _summarise(self, sessions: Sequence[Session], outcome: RunOutcome) -> None:
        """Write the summary over several tasks."""
        rankings = {name: task.ranking for name, task in outcome.tasks.items()}
        banks = {session.docs.name: session.bank for session in sessions}
        document = summary_document(rankings, banks)
        date_id = datetime.now().isoformat().replace(":", "-")  # noqa: DTZ005  as the harness
        outcome.summary_file = self.output_path / f"summary_{date_id}.json"
        outcome.summary = {**document, "date": date_id}
        write_json(outcome.summary_file, outcome.summary)

    def _conclude(self, session: Session, run: TaskRun, manager: Any) -> TaskOutcome:
        """Write the files of a finished task."""
        name = session.docs.name
        document = ranking_document(session, run, self.candidates, run_warnings(session, run))
        if run.followers:
            document["rankings"] = rankings(run, self.candidates)
        by_model = {
            entry["model"]: entry for entry in [*document["ranking"], *document["set_aside"]]
        }
        results: dict[str, dict[str, Any]] = {}
        files: list[Path] = []
        for candidate in self.candidates:
            block = {**by_model[candidate.name], "stop_reason": run.stop_reason}
            block["signature"] = document["signature"]
            if run.followers:
                block["further"] = _further(document, candidate.name)
            task = candidate.serve(session.docs)
            results[candidate.name], written = write_results(
                session, run, candidate, task, manager, self.output_path, block
            )
            files += written
        date_id = datetime.now().isoformat().replace(":", "-")  # noqa: DTZ005  as the harness
        path = self.output_path / f"ranking_{name}_{date_id}.json"
        document = {**document, "date": date_id}
        write_json(path, document)
        return TaskOutcome(document, results, [path, *files])


def _further(document: Mapping[str, Any], model: str) -> list[dict[str, Any]]:
    """A model's entries under the metrics after the first, with metric and filter."""
    return [
        {"metric": ranking["metric"], "filter": ranking["filter"], **entry}
        for ranking in list(document["rankings"].values())[1:]
        for entry in (*ranking["ranking"], *ranking["set_aside"])
        if entry["model"] == model
    ]


def _page(output_path: Path) -> Path | None:
    """The run's page; a page that cannot be made must not cost a run its result."""
    from lm_eval_adaptive.harness.report import write_report

    try:
        return write_report(output_path, None)
    except Exception as error:  # noqa: BLE001
        log.warning(
            "no report.html (%s: %s); everything else is written", type(error).__name__, error
        )
        return None


def _journal_answer(
    session: Session, journal: Journal, candidate: Candidate, answer: Answer, round_number: int
) -> dict[str, Any]:
    """Score an answer and write it down."""
    scored = session.score(answer)
    price = session.prices[candidate.name]
    cost = cost_of_tokens(price, answer.input_tokens, answer.output_tokens, len(answer.resps))
    return journal.write(
        "answer",
        task=session.docs.name,
        round=round_number,
        model=candidate.name,
        doc_id=answer.doc_id,
        prompt_hash=answer.prompt_hash,
        resps=list(answer.resps),
        filtered=_plain(answer.result.filtered),
        metrics=_plain(answer.result.metrics),
        raw_score=scored.raw_score,
        score=scored.score,
        clipped=scored.clipped,
        problem=scored.problem,
        input_tokens=answer.input_tokens,
        output_tokens=answer.output_tokens,
        tokens_counted=answer.counted,
        cost=float(cost),
        **({"scores": further_scores(session, answer)} if session.followers else {}),
    )


def _plain(value: Any) -> Any:
    """A metric value or filtered response as JSON can hold it: numpy numbers become Python's."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "size", None) == 1:
        return _plain(item())
    if callable(getattr(value, "tolist", None)):
        return _plain(value.tolist())
    return str(value)


@contextmanager
def _quiet_harness() -> Iterator[None]:
    """Keep the harness's progress bars and info lines out of the way unless asked for."""
    logger = logging.getLogger("lm_eval")
    before = logger.level
    bars = os.environ.get("TQDM_DISABLE")
    if silenced() or not os.environ.get("LMEVAL_LOG_LEVEL"):
        logger.setLevel(logging.ERROR)
        os.environ["TQDM_DISABLE"] = "1"
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        yield
    finally:
        logger.setLevel(before)
        if bars is None:
            os.environ.pop("TQDM_DISABLE", None)


def _refuse_several_processes() -> None:
    """Under accelerate launch or torchrun every process would ask and write for itself.

    Raises:
        UsageError: This process is one of several.
    """
    count = os.environ.get("WORLD_SIZE", "1")
    if count.isdecimal() and int(count) > 1:
        raise UsageError(
            f"adaptive runs take one process, this is one of {count} (accelerate launch or "
            "torchrun): start lm-eval-adaptive by itself and use the back end's own parallelism "
            "(hf: parallelize=True, vllm: tensor_parallel_size), or a server with several GPUs "
            "behind local-completions"
        )


@contextmanager
def _null_answers_told_apart() -> Iterator[None]:
    """Have API models mark null content, which they would pass on as an empty answer."""
    import sys

    name = "LMEVAL_MODEL_NONE_ANSWER_PLACEHOLDER"
    if os.environ.get(name):  # the user's own choice of what stands for null is an answer
        yield
        return
    os.environ[name] = NULL_ANSWER
    module = sys.modules.get("lm_eval.models.api_models")
    if module is not None:
        setattr(module, name, NULL_ANSWER)
    try:
        yield
    finally:
        del os.environ[name]
        module = sys.modules.get("lm_eval.models.api_models")
        if module is not None:
            setattr(module, name, "")


def simple_evaluate(
    models: Sequence[Mapping[str, Any] | CandidateSpec],
    tasks: Sequence[Any],
    adaptive: AdaptiveConfig | None = None,
    *,
    resume: str | Path | None = None,
    **harness: Any,
) -> dict[str, Any]:
    """Rank several models adaptively; the Python face of ``run --adaptive``.

    Args:
        models: Candidates: mappings ``{name, model, model_args, cost, gen_kwargs,
            apply_chat_template, system_instruction, batch_size, device}``, or specs.
        tasks: Names of tasks, YAML paths or configurations.
        adaptive: The adaptive options; defaults otherwise.
        resume: Folder of a run to go on with.
        **harness: Keywords of ``lm_eval.simple_evaluate`` (``num_fewshot``, ``gen_kwargs``,
            ``apply_chat_template``, ``random_seed`` …), and ``output_path``, ``include_path``.

    Returns:
        ``{"results": {task: {model: harness results}}, "ranking": {task: ranking document},
        "files": {task: [paths]}, "output_path": path, "summary": over several tasks, else None}``.

    Raises:
        AdaptiveError: As the command line, with the same texts.
    """
    register_all()
    entries = [asdict(each) if isinstance(each, CandidateSpec) else dict(each) for each in models]
    seeds = tuple(
        harness.pop(name, default)
        for name, default in (
            ("random_seed", 0),
            ("numpy_random_seed", 1234),
            ("torch_random_seed", 1234),
            ("fewshot_random_seed", 1234),
        )
    )
    refused = {"limit", "samples", "predict_only", "cache_requests", "model", "model_args"}
    for name in sorted(refused & harness.keys()):
        raise UsageError(f"adaptive runs do not take {name}; see the README on what is asked")
    known = set(HarnessSettings.__dataclass_fields__)
    unknown = sorted(set(harness) - known)
    if unknown:
        raise UsageError(
            f"unknown keyword(s) {', '.join(unknown)}; known are {', '.join(sorted(known))}"
        )
    settings = replace(HarnessSettings(**harness), tasks=tuple(tasks), seed=seeds)
    run = AdaptiveRun(
        make_candidates(entries, "models"),
        settings,
        adaptive or AdaptiveConfig(),
        resume=None if resume is None else Path(resume),
    )
    outcome = run.run()
    return {
        "results": {name: each.results for name, each in outcome.tasks.items()},
        "ranking": {name: each.ranking for name, each in outcome.tasks.items()},
        "files": {name: each.files for name, each in outcome.tasks.items()},
        "output_path": outcome.output_path,
        "summary": outcome.summary,
    }


def register_all() -> None:
    """Make the replay model and this package's metrics known to the harness."""
    from lm_eval_adaptive.harness.replay import register
    from lm_eval_adaptive.metrics import register as register_metrics

    register()
    register_metrics()


__all__ = ["AdaptiveError", "AdaptiveRun", "RunOutcome", "TaskOutcome", "simple_evaluate"]
