"""A whole run: from validated options to a ranking of each task and its files.

This module owns the order of things: tasks opened, journal begun or gone on with, each contest
played and concluded, what a failure says to the user. A document's way stands in ``play``.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from lm_eval_adaptive.banks.at_hand import Circumstances
from lm_eval_adaptive.banks.prompts import prompts_of
from lm_eval_adaptive.errors import Interrupted, ModelError, ScoringError, UsageError, first_line
from lm_eval_adaptive.host.candidate import Candidate
from lm_eval_adaptive.host.environment import (
    null_answers_told_apart,
    quiet_harness,
    refuse_several_processes,
)
from lm_eval_adaptive.host.find_tasks import make_task_manager, resolve_tasks
from lm_eval_adaptive.host.settings import shared_model_args
from lm_eval_adaptive.host.stop import Stop
from lm_eval_adaptive.host.task import draws_a_name, open_documents
from lm_eval_adaptive.records.files import check_folder, file_part
from lm_eval_adaptive.records.journal import FurtherHead, RunHead, TaskHead
from lm_eval_adaptive.records.outcome import RunOutcome, TaskOutcome
from lm_eval_adaptive.records.ranking import write_document
from lm_eval_adaptive.redact import remember
from lm_eval_adaptive.run.asking import FIRST_PAUSE
from lm_eval_adaptive.run.asynchronous import AsyncPlay
from lm_eval_adaptive.run.executors.choice import executor_of
from lm_eval_adaptive.run.idle import banks_by_task, refuse_idle_options, refuse_idle_rules
from lm_eval_adaptive.run.journal import banks_begun_with, begin, go_on, plain
from lm_eval_adaptive.run.opening import open_contest
from lm_eval_adaptive.run.play import Play
from lm_eval_adaptive.run.prompts import tell_prompt_differences
from lm_eval_adaptive.run.purse import refuse_small_shares, share_budget
from lm_eval_adaptive.run.ranking import ranking_document, summary_document, versions
from lm_eval_adaptive.run.results import write_results
from lm_eval_adaptive.run.stopping import cause, exit_code, heeding_signals

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lm_eval_adaptive.host.settings import CandidateSpec, HarnessSettings
    from lm_eval_adaptive.host.task import TaskDocs
    from lm_eval_adaptive.run.config import AdaptiveConfig
    from lm_eval_adaptive.run.contest import Contest
    from lm_eval_adaptive.run.executors.base import Executor
    from lm_eval_adaptive.run.play import Listener

    # The tasks of a run: documents, and the contest on them.
    Opened = list[tuple[TaskDocs, Contest]]

log = logging.getLogger(__name__)

# Least items of a model in a round that has to load it first.
LOAD_ROUND = 8


def default_output_path() -> Path:
    """Where a run writes when the user did not say: nothing a model answered may be lost."""
    return Path("adaptive_results") / datetime.now().strftime("%Y-%m-%dT%H-%M-%S")  # noqa: DTZ005


def _date_id() -> str:
    """The date as the harness writes it into the names of files."""
    return datetime.now().isoformat().replace(":", "-")  # noqa: DTZ005  as the harness


class AdaptiveRun:
    """One invocation: several models, one or more tasks.

    Args:
        candidates: The models, sorted by name.
        settings: The harness's options.
        adaptive: The adaptive options.
        resume: Folder of the run to go on with, None for a new one.
        command: The command line, kept in the journal.
        listener: Called after every round and at each task's end, for progress.
        task_manager: The harness's, where the caller has one; else it is made.
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
        task_manager: Any = None,
    ) -> None:
        remember(asdict(settings))
        self.settings = settings
        self.adaptive = adaptive
        self.resume = resume
        self.command = list(command)
        self.output_path = resume or Path(settings.output_path or default_output_path())
        self.candidates = [Candidate(spec, settings) for spec in candidates]
        self._task_manager = task_manager
        self._listen: Listener = listener or (lambda contest, event: None)
        self._executor: Executor = executor_of(adaptive)
        self.pause = FIRST_PAUSE
        self.stop = Stop()

    def run(self) -> RunOutcome:
        """Ask, rank, write.

        Raises:
            AdaptiveError: See the tree in ``errors``; everything asked so far is in the journal.
        """
        refuse_several_processes()
        if self.resume is None:
            check_folder(self.output_path, "--output_path")
        with quiet_harness(), null_answers_told_apart(), ExitStack() as places:
            for candidate in self.candidates:
                candidate.check()
            places.callback(self._executor.close)
            self._executor.open(self.candidates, self.stop)
            manager = self._task_manager or self._make_task_manager()
            opened = self._open(manager)
            head = self._head(opened)
            journal, held = (
                begin(self.output_path, head, self.command)
                if self.resume is None
                else go_on(self.resume, head)
            )
            with journal, self.saying_how_to_go_on(journal.path), heeding_signals(self.stop):
                outcome = RunOutcome(self.output_path)
                try:
                    contests = [contest for _, contest in opened]
                    for place, (docs, contest) in enumerate(opened):
                        share_budget(contests, place)
                        play = AsyncPlay if self.adaptive.schedule == "async" else Play
                        play(
                            docs, contest, self.candidates, journal, held, self._executor,
                            self._listen, self.stop, self.pause,
                        ).play()  # fmt: skip
                        outcome.tasks[contest.task] = self._ranked(contest)
                    if len(opened) > 1:
                        outcome = self._summarised(opened, outcome)
                except (ModelError, ScoringError):
                    self._write_the_rest(opened, outcome, manager)
                    raise
                self._write_the_rest(opened, outcome, manager)
                return outcome

    @contextmanager
    def saying_how_to_go_on(self, journal: Path) -> Iterator[None]:
        """Have an error say where all answers are, and how to go on with the run."""
        saved, again = f"all answers so far are in {journal}", f"--resume {self.output_path}"
        try:
            yield
        except KeyboardInterrupt:
            stopped = Interrupted(f"{cause(self.stop)}; {saved}; go on with {again}")
            stopped.exit_code = exit_code(self.stop)
            raise stopped from None
        except OSError as error:
            raise ModelError(
                f"could not write {error.filename or journal} ({error.strerror}); {saved}: free "
                f"some room and go on with {again}"
            ) from error
        except (ModelError, ScoringError) as error:
            if "--resume" in str(error):
                raise
            raise type(error)(f"{error}; {saved}: mend the cause and go on with {again}") from error

    def _make_task_manager(self) -> Any:
        """The harness's, told of the model arguments that all models share, as a plain run's is."""
        shared = shared_model_args([candidate.spec for candidate in self.candidates])
        metadata = {**shared, **self.settings.metadata}
        return make_task_manager(replace(self.settings, metadata=metadata))

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

    def _open(self, manager: Any) -> Opened:
        """The contest on each task, in the user's order."""
        specs = [candidate.spec for candidate in self.candidates]
        size, seed = self._batch(), self.settings.seed[1] or 0
        names = resolve_tasks(manager, self.settings.tasks)
        documents = open_documents(
            manager,
            names,
            self.settings.seed,
            self.candidates[0].prompt,
            # Only the command line has the tracker that does so.
            name_is_drawn=bool(self.command)
            and all(draws_a_name(spec.model_args) for spec in specs),
            generation_only=self.settings.generation_only,
            unsafe_confirmed=self.settings.confirm_run_unsafe_code,
            remote_code_trusted=self.settings.trust_remote_code,
        )
        self._refuse_text_models(documents)
        tasks = [docs.name for docs in documents]
        banks = banks_by_task(self.adaptive.bank, tasks, self.adaptive.metrics)
        adaptive = replace(self.adaptive, bank=banks)
        refuse_idle_options(adaptive, self.candidates)
        begun = banks_begun_with(self.resume)
        found = []
        for docs in documents:
            prompts = {each.name: prompts_of(docs, each.prompt) for each in self.candidates}
            brought = Circumstances(prompts, begun.get(docs.name))
            found.append((docs, open_contest(docs, adaptive, specs, size, seed, brought)))
        for docs, contest in found:
            for view in contest.views:
                tell_prompt_differences(docs, view, self.candidates)
        refuse_idle_rules(adaptive, [contest for _, contest in found])
        refuse_small_shares([contest for _, contest in found])
        return found

    def _refuse_text_models(self, documents: Sequence[TaskDocs]) -> None:
        """Refuse what the harness would refuse when all answers are in.

        Raises:
            UsageError: A task shows pictures or plays sound to a model that takes text only.
        """
        for docs in documents:
            lacking = [each for each in self.candidates if not each.multimodal]
            if getattr(docs.task, "MULTIMODAL", False) and lacking:
                told = ", ".join(f"{each.name} ({each.spec.model})" for each in lacking)
                raise UsageError(
                    f"task {docs.name} has pictures or sound, and these models take text only: "
                    f"{told}; rank models that take both, such as hf-multimodal or vllm-vlm, or "
                    "leave the task out"
                )

    def _head(self, opened: Opened) -> RunHead:
        """What must be equal for a run to be resumed."""
        settings = self.settings
        return RunHead(
            tasks={contest.task: _task_head(docs, contest) for docs, contest in opened},
            models=plain({each.name: each.spec.choices() for each in self.candidates}),
            adaptive=plain(self.adaptive.choices()),
            settings=plain(
                {
                    "num_fewshot": settings.num_fewshot,
                    "system_instruction": settings.system_instruction,
                    "apply_chat_template": settings.apply_chat_template,
                    "fewshot_as_multiturn": settings.fewshot_as_multiturn,
                    "gen_kwargs": settings.gen_kwargs,
                    "seed": list(settings.seed),
                }
            ),
            versions=versions(),
        )

    def _ranked(self, contest: Contest) -> TaskOutcome:
        """Write the ranking of a finished task: from the journal alone, before anything else."""
        document = structs.replace(ranking_document(contest), date=_date_id())
        path = self.output_path / f"ranking_{file_part(contest.task)}_{document.date}.json"
        write_document(path, document)
        return TaskOutcome(document, {}, [path])

    def _write_the_rest(self, opened: Opened, outcome: RunOutcome, manager: Any) -> None:
        """Write the harness's files of the ranked tasks, each on its own.

        What fails takes nothing else with it: it is told in a line, and ``--resume`` tries again.
        """
        for docs, contest in opened:
            ranked = outcome.tasks.get(contest.task)
            if ranked is None:
                continue
            results: dict[str, dict[str, Any]] = {}
            files, problems = list(ranked.files), list(ranked.problems)
            for candidate in self.candidates:
                try:
                    results[candidate.name], found = write_results(
                        contest, ranked.ranking, candidate, candidate.serve(docs), manager,
                        self.output_path,
                    )  # fmt: skip
                except Exception as error:  # any task's code, any file system
                    results[candidate.name] = {}
                    problems.append(
                        f"results and samples of {candidate.name} on {contest.task} were not "
                        f"written ({first_line(error)})"
                    )
                    log.debug("writing results of %s", candidate.name, exc_info=True)
                else:
                    files += found.files
                    problems += found.problems
            for problem in problems:
                log.warning(
                    "%s; the ranking is written, and --resume %s tries the rest again",
                    problem,
                    self.output_path,
                )
            outcome.tasks[contest.task] = replace(
                ranked, results=results, files=files, problems=tuple(problems)
            )

    def _summarised(self, opened: Opened, outcome: RunOutcome) -> RunOutcome:
        """Write the summary over several tasks."""
        rankings = {name: task.ranking for name, task in outcome.tasks.items()}
        calibrated = {contest.task: contest.first.terms.calibrated for _, contest in opened}
        document = summary_document(rankings, calibrated, _date_id())
        path = self.output_path / f"summary_{document.date}.json"
        write_document(path, document)
        return replace(outcome, summary=document, summary_file=path)


def _task_head(docs: TaskDocs, contest: Contest) -> TaskHead:
    first, *others = (view.terms for view in contest.views)
    return TaskHead(
        signature=first.signature,
        bank_sha256=first.bank_sha256,
        documents=len(docs),
        further={
            terms.key: FurtherHead(signature=terms.signature, bank_sha256=terms.bank_sha256)
            for terms in others
        },
    )
