"""A model of the harness that answers from logged samples: ``--model replay``.

The module owns the lookup from a request to a logged answer, and nothing else. An answer is found
by the hash of the prompt, else by the content hash of the document (which covers prompts that
differ by chat template alone), else, where ``by=doc_id`` is given, by the document's id. What is
not in the logs is an error, never an invented answer.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from lm_eval.api.model import LM

from lm_eval_adaptive.core.identity import content_hash
from lm_eval_adaptive.errors import ModelError, TaskError, UsageError
from lm_eval_adaptive.host.logs import LoggedRun, find_runs, is_named
from lm_eval_adaptive.host.logs.answers import short
from lm_eval_adaptive.host.logs.samples import sha_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lm_eval.api.instance import Instance

    from lm_eval_adaptive.host.logs import LoggedRequest

NAME = "replay"
_Entry = tuple[int, int]  # row of the log, and which of its requests
_logger = logging.getLogger(__name__)


def register() -> None:
    """Make ``--model replay`` known to the harness; calling it again changes nothing."""
    # The harness registers its own models only while its registry is empty: they go first.
    import lm_eval.models
    from lm_eval.api.registry import model_registry

    assert lm_eval.models
    if NAME not in model_registry:
        model_registry.register(NAME, target=ReplayLM)


class ReplayLM(LM):  # type: ignore[misc]  # the harness is untyped
    """Answers ``generate_until`` from the samples that ``lm_eval --log_samples`` wrote.

    Args:
        samples: Samples file, directory or glob, as
            :func:`~lm_eval_adaptive.host.logs.find_runs` reads it.
        latency: Seconds to wait per call, and after a colon per answer, as in ``0.5:0.02``.
        task: Task name in the logs, where it differs from the task that is run.
        model: Which model's answers to give, where the samples are of several. It also names the
            directory of the results.
        by: ``doc_id`` also matches by the document's id, for logs whose documents were changed
            on purpose; ``content`` (the default) does not.
        batch_size: Accepted as any model's and not used, like the next two.
        max_batch_size: Not used.
        device: Not used.

    Raises:
        DataError: The samples are missing or damaged.
        UsageError: An argument is wrong, or the samples hold several runs to choose from.
    """

    side_by_side = True  # it holds no weights: others can be asked while it waits

    def __init__(
        self,
        samples: str,
        latency: str | float = 0.0,
        task: str | None = None,
        model: str | None = None,
        by: str = "content",
        batch_size: str | int | None = None,  # noqa: ARG002
        max_batch_size: int | None = None,  # noqa: ARG002
        device: str | None = None,  # noqa: ARG002
        **unknown: Any,
    ) -> None:
        super().__init__()
        if unknown:
            raise UsageError(
                f"--model replay does not know the argument {next(iter(unknown))!r}; expected "
                "samples, latency, task, model, by"
            )
        if by not in ("content", "doc_id"):
            raise UsageError(f"--model replay: by={by} is unknown, expected content or doc_id")
        self._seconds_per_call, self._seconds_per_doc = _latency(latency)
        self._by_doc_id = by == "doc_id"
        self._samples = str(samples)
        runs = find_runs(self._samples, None if task is None else str(task))
        self._runs = _one_run_per_task(runs, self._samples, model)
        self._model = next(iter(self._runs.values())).model
        self._indices: dict[str, _Index] = {}
        self._told_settings = False

    @property
    def tokenizer_name(self) -> str:
        """Stands for the prompt format in the harness's request cache."""
        return f"{NAME}-{self._model}".replace("/", "__")

    def get_model_info(self) -> dict[str, Any]:
        """What the harness adds to the results: where the answers come from."""
        return {
            "replayed_model": self._model,
            "replayed_samples": {task: str(run.path) for task, run in self._runs.items()},
        }

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """The messages as JSON, as the harness's chat API models write them.

        Logs of those models are then found by the prompt itself; logs with another template by
        the content of the document.
        """
        del add_generation_prompt  # a JSON list of messages has no place for it
        return json.dumps(chat_history, ensure_ascii=False)

    def generate_until(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[str]:
        """The logged answers, in order; a repeated request gets the logged repeats in order.

        Raises:
            ModelError: A request, or a repeat of it, is not in the logs. The message names the
                document and the keys that were tried.
        """
        del disable_tqdm  # there is nothing to watch
        served: Counter[tuple[str, _Entry]] = Counter()
        answers = []
        for request in requests:
            index = self._index_for(request)
            entry = self._find(index, request)
            logged = index.request(entry)
            self._tell_settings(request, logged)
            place = served[index.run.task, entry]
            served[index.run.task, entry] += 1
            if place >= len(logged.resps):
                raise ModelError(
                    f"{self._samples} holds {len(logged.resps)} answers of {self._model} to "
                    f"doc_id {request.doc_id}, and repeat {place + 1} was asked for; lower the "
                    "task's repeats"
                )
            answers.append(logged.resps[place])
        pause = self._seconds_per_call + self._seconds_per_doc * len(answers)
        if pause > 0:
            time.sleep(pause)
        return answers

    def loglikelihood(self, requests: Sequence[Instance]) -> list[tuple[float, bool]]:
        """Not logged in a form that could be given back.

        Raises:
            TaskError: Always.
        """
        raise _generates_only(requests)

    def loglikelihood_rolling(self, requests: Sequence[Instance]) -> list[float]:
        """Not logged in a form that could be given back.

        Raises:
            TaskError: Always.
        """
        raise _generates_only(requests)

    def _find(self, index: _Index, request: Instance) -> _Entry:
        prompt_hash = sha_of(str(request.args[0]))
        entry = index.pick(index.by_prompt.get(short(prompt_hash), []), request)
        digest = None
        if entry is None and request.doc is not None:
            digest = content_hash(request.doc)
            entry = index.pick(index.by_content.get(digest, []), request)
        by_doc_id = self._by_doc_id or index.has_no_documents
        if entry is None and by_doc_id:
            entry = index.pick(index.by_doc_id.get(request.doc_id, []), request)
        if entry is None:
            tried = "tried" if by_doc_id else "not tried, add by=doc_id to allow it"
            raise ModelError(
                f"{index.run.path} holds no answer of {self._model} to doc_id {request.doc_id} of "
                f"task {request.task_name}: neither by prompt hash {prompt_hash[:12]}, nor by "
                f"content hash {'(no document)' if digest is None else digest[:12]}, nor by doc_id "
                f"({tried})"
            )
        return entry

    def _index_for(self, request: Instance) -> _Index:
        task = request.task_name
        if task not in self._runs:
            if len(self._runs) > 1:
                raise ModelError(
                    f"{self._samples} holds answers of {self._model} to "
                    f"{', '.join(sorted(self._runs))}, not to {task}; name the one with task="
                )
            task = next(iter(self._runs))
        if task not in self._indices:
            self._indices[task] = index = _Index(self._runs[task])
            if index.has_no_documents:
                _logger.warning(
                    "%s holds no documents; its answers are found by prompt, else by doc_id alone",
                    index.run.path,
                )
        return self._indices[task]

    def _tell_settings(self, request: Instance, logged: LoggedRequest) -> None:
        """Say once that the answers were made with other settings than those asked for."""
        if self._told_settings or len(request.args) < 2 or not isinstance(request.args[1], dict):
            return
        for name, asked in request.args[1].items():
            if name in logged.generation_kwargs and logged.generation_kwargs[name] != asked:
                _logger.warning(
                    "replayed answers of %s were generated with %s=%r, the task asks for %r",
                    self._model,
                    name,
                    logged.generation_kwargs[name],
                    asked,
                )
                self._told_settings = True
                return


class _Index:
    """One run's answers by each of the three keys; several where prompts or documents repeat.

    It holds places in the log, not texts: an answer is read when it is asked for.
    """

    def __init__(self, run: LoggedRun) -> None:
        self.run = run
        self.by_prompt: dict[int, list[_Entry]] = {}
        self.by_content: dict[str, list[_Entry]] = {}
        self.by_doc_id: dict[int, list[_Entry]] = {}
        columns = run.answers.columns
        self.has_no_documents = bool((columns.content_of < 0).all())
        self._doc_ids = columns.doc_ids.tolist()
        prompts = columns.prompts.tolist()
        requests = columns.n_requests.tolist()
        for row, doc_id in enumerate(self._doc_ids):
            if row > 0 and self._doc_ids[row - 1] == doc_id:
                continue  # another filter's row of the same answer
            hashes = [prompts[row]]
            if requests[row] > 1:
                hashes += [short(sha_of(each.prompt)) for each in run.answers[row].requests[1:]]
            for place in range(requests[row]):
                entry = (row, place)
                if hashes[place]:
                    self.by_prompt.setdefault(hashes[place], []).append(entry)
                if content := run.answers.content(row):
                    self.by_content.setdefault(content, []).append(entry)
                self.by_doc_id.setdefault(doc_id, []).append(entry)

    def request(self, entry: _Entry) -> LoggedRequest:
        """A logged request, read from the file."""
        row, place = entry
        return self.run.answers[row].requests[place]

    def pick(self, candidates: list[_Entry], request: Instance) -> _Entry | None:
        """The candidate of the request's own document and place in it, where several share a key.

        Raises:
            ModelError: Documents that share the key have different answers, and none has the
                request's id: any choice would be a guess.
        """
        if len(candidates) > 1:
            same_place = [entry for entry in candidates if entry[1] == request.idx]
            candidates = same_place or candidates
            same_doc = [each for each in candidates if self._doc_ids[each[0]] == request.doc_id]
            candidates = same_doc or candidates
        if not candidates:
            return None
        if len(candidates) > 1 and len({self.request(entry).resps for entry in candidates}) > 1:
            ids = ", ".join(str(self._doc_ids[row]) for row, _ in candidates[:5])
            raise ModelError(
                f"doc_id {request.doc_id} fits several logged documents ({ids}) whose answers "
                "differ, and none has its id; replay logs of the same version of the data"
            )
        return candidates[0]


def _latency(value: str | float) -> tuple[float, float]:
    try:
        parts = [float(part) for part in str(value).split(":")]
    except ValueError:
        parts = []
    if not 1 <= len(parts) <= 2 or not all(0 <= part < float("inf") for part in parts):
        raise UsageError(
            f"--model replay: latency={value} is wrong, expected seconds per call and optionally "
            "per document, as in 0.5 or 0.5:0.02"
        )
    return parts[0], parts[1] if len(parts) == 2 else 0.0


def _one_run_per_task(
    runs: Sequence[LoggedRun], samples: str, model: str | None
) -> dict[str, LoggedRun]:
    fits = [run for run in runs if model is None or is_named(run, str(model))]
    if not fits:
        there = ", ".join(sorted({run.model for run in runs}))
        raise UsageError(f"{samples}: no samples of model {model!r}; there are: {there}")
    if len({run.base_model for run in fits}) > 1:
        there = ", ".join(sorted({run.model for run in fits}))
        raise UsageError(
            f"{samples}: holds several runs ({there}); choose one with model=NAME or give its "
            "own directory or file"
        )
    chosen: dict[str, LoggedRun] = {}
    for run in sorted(fits, key=lambda run: (run.partial is None, run.date)):
        older = chosen.get(run.task)
        if older is not None and not (older.date and run.date):
            raise UsageError(
                f"{samples}: holds several runs of {run.base_model} without a date ({older.path}, "
                f"{run.path}); give one's own directory or file"
            )
        if older is not None:
            _check_one_setting(older, run, samples)
            _logger.warning(
                "%s: of two runs of %s the newer is replayed (%s), not %s",
                samples,
                run.base_model,
                run.path,
                older.path,
            )
        chosen[run.task] = run
    return chosen


def _check_one_setting(one: LoggedRun, other: LoggedRun, samples: str) -> None:
    """Refuse to choose between runs that were made in different ways."""
    for what, first, second in (
        ("task version", one.task_version, other.task_version),
        ("number of few-shot examples", one.n_shot, other.n_shot),
        ("few-shot settings", one.few_shot, other.few_shot),
        ("chat template", one.chat_template_sha, other.chat_template_sha),
        ("generation settings", one.generation_kwargs, other.generation_kwargs),
    ):
        if first != second:
            there = f"{first} in {one.path}, {second} in {other.path}"
            raise UsageError(
                f"{samples}: holds several runs of {one.base_model} that differ in {what} "
                f"({there}); choose one with model=NAME or give its own directory or file"
            )


def _generates_only(requests: Sequence[Instance]) -> TaskError:
    task = requests[0].task_name if requests else None
    return TaskError(
        f"--model replay answers generate_until only, and task {task} asks for likelihoods; use a "
        "generation task or a live model"
    )
