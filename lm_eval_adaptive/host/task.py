"""A harness task that serves the documents an adaptive test chooses.

This module owns document iteration: it wraps a task object so that only chosen documents are
rendered, under their true ids and with the prompts of a full run. It imports the harness inside
functions and ``core.identity``; which documents are chosen is decided elsewhere.
"""

from __future__ import annotations

import copy
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.core.identity import content_hash, item_keys
from lm_eval_adaptive.errors import AdaptiveError, ModelError, ScoringError, TaskError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PromptSettings:
    """What turns a document into a prompt for one model.

    Attributes:
        num_fewshot: Few-shot examples; None keeps the task's own number.
        fewshot_seed: Seed of the few-shot draws.
        system_instruction: System text, None for none.
        apply_chat_template: Whether, or which, chat template.
        fewshot_as_multiturn: Few-shot examples as turns of a conversation.
        gen_kwargs: Generation settings that update the task's own.
    """

    num_fewshot: int | None = None
    fewshot_seed: int | None = 1234
    system_instruction: str | None = None
    apply_chat_template: bool | str = False
    fewshot_as_multiturn: bool = False
    gen_kwargs: dict[str, Any] | None = None


class _FullRunDraws:
    """The few-shot examples that a run over all documents would draw, by document.

    One generator runs through the documents of a full run, so a document's examples depend on all
    before it. The draws are made once in dataset order; rendering stays lazy.
    """

    def __init__(self, sampler: Any, docs: Sequence[Any], count: int, *, pass_doc: bool) -> None:
        self._draws = [
            list(sampler.sample(n=count, eval_doc=doc if pass_doc else None)) for doc in docs
        ]
        self.current = 0

    def sample(self, n: int, eval_doc: Any = None, df: Any = None, **_: Any) -> list[Any]:
        """The recorded draw of the current document."""
        del n, eval_doc, df
        return self._draws[self.current]

    def set_rnd(self, rnd: int | None) -> _FullRunDraws:
        """Keep the draws: they were made under the run's own seed."""
        del rnd
        return self


class ServedDocs:
    """Mixed into a task's class: iteration over chosen documents, and recorded results.

    Set up by :meth:`TaskDocs.serve`. While ``recorded`` is None, results are computed by the task's
    own ``process_results``; otherwise they are looked up, so that writing the harness's result
    files computes no metric a second time.
    """

    served: dict[int, Any]
    all_docs: Any
    recorded: Mapping[tuple[int, str], dict[str, Any]] | None
    wanted_metrics: Sequence[str] | None
    _ids: dict[int, int]
    _filters_seen: int
    _iterating: str | None

    @property
    def eval_docs(self) -> Any:
        """All documents of the split; taken once, because the harness re-runs process_docs."""
        return self.all_docs

    def choose(self, doc_ids: Sequence[int]) -> None:
        """Serve these documents from now on, in the order of their ids."""
        self.served = {doc_id: self.all_docs[doc_id] for doc_id in sorted(doc_ids)}
        self._ids = {id(doc): doc_id for doc_id, doc in self.served.items()}

    def doc_iterator(
        self,
        *,
        rank: int = 0,
        limit: int | None = None,
        world_size: int = 1,
        samples: list[int] | None = None,
    ) -> Iterator[tuple[int, Any]]:
        """The chosen documents under their true ids; see the harness's own for the arguments."""
        del limit, samples
        if self._iterating is not None:
            names = list(self.instances[0].filtered_resps)  # type: ignore[attr-defined]
            self._iterating = names[self._filters_seen]
            self._filters_seen += 1
        chosen = list(self.served.items())
        return iter(chosen[rank::world_size])

    def apply_filters(self) -> Any:
        """Run the task's filters; the iterations after this are one per filter."""
        found = super().apply_filters()  # type: ignore[misc]
        self._filters_seen = 0
        self._iterating = ""
        return found

    def build_all_requests(self, **kwargs: Any) -> None:
        """Build the requests of the chosen documents."""
        self._iterating = None
        super().build_all_requests(**kwargs)  # type: ignore[misc]

    def fewshot_context(self, doc: Any, *args: Any, **kwargs: Any) -> Any:
        """The prompt of a full run for this document."""
        sampler = getattr(self, "sampler", None)
        if isinstance(sampler, _FullRunDraws):
            sampler.current = self._ids[id(doc)]
        return super().fewshot_context(doc, *args, **kwargs)  # type: ignore[misc]

    def process_results(self, doc: Any, results: Any) -> dict[str, Any]:
        """Metric values of a document: recorded ones, else the task's own."""
        if self.recorded is None:
            found: dict[str, Any] = super().process_results(doc, results)  # type: ignore[misc]
            return found
        # A filter whose metrics failed has no record; the ranking is by another one.
        return dict(self.recorded.get((self._ids[id(doc)], str(self._iterating)), {}))


def load_tasks(task_manager: Any, name: str | dict[str, Any]) -> list[Any]:
    """The generation tasks of a name: one, or those of a group or tag, in their order.

    Raises:
        TaskError: It does not load, or a task of it does not generate text.
    """
    try:
        loaded = task_manager.load([name])
    except Exception as error:
        raise TaskError(
            f"task {_label(name)} does not load: {_first_line(error)}; check its data with "
            "`lm-eval-adaptive validate --tasks`"
        ) from error
    tasks = list(loaded["tasks"].values())
    for task in tasks:
        if task.OUTPUT_TYPE != "generate_until":
            raise TaskError(
                f"task {task.config.task} has output_type {task.OUTPUT_TYPE}; adaptive runs take "
                "generate_until tasks"
            )
    return tasks


def load_task(task_manager: Any, name: str | dict[str, Any]) -> Any:
    """One generation task from the harness.

    Raises:
        TaskError: It is no single task, does not load, or does not generate text.
    """
    tasks = load_tasks(task_manager, name)
    if len(tasks) != 1:
        parts = ", ".join(sorted(task.config.task for task in tasks))
        raise TaskError(f"{_label(name)} is a group of tasks ({parts}); name one of them")
    return tasks[0]


def _label(name: str | dict[str, Any]) -> str:
    return name if isinstance(name, str) else str(name.get("task", "(inline)"))


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


class TaskDocs:
    """The documents of a task, taken once, with their identities.

    Args:
        task: A task object as the harness built it.
    """

    def __init__(self, task: Any) -> None:
        self.task = task
        self.name: str = task.config.task
        self.version = str(task.VERSION)
        self.docs = task.eval_docs
        hashes = [content_hash(doc) for doc in self.docs]
        self.keys = item_keys(hashes, range(len(hashes)))

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def metadata(self) -> dict[str, Any]:
        """The task's ``metadata.adaptive`` block, {} when it has none."""
        block = (self.task.config.metadata or {}).get("adaptive") or {}
        if not isinstance(block, dict):
            raise TaskError(
                f"task {self.name}: metadata.adaptive must be a mapping with keys metric, filter, "
                f"range, bank; got {type(block).__name__}"
            )
        return block

    def serve(self, settings: PromptSettings, metrics: Sequence[str] | None = None) -> Any:
        """A task object of one model's own, serving no documents yet.

        The harness leaves generation settings and few-shot numbers on the task object, so every
        model gets a copy; the documents are shared.

        Args:
            settings: The model's prompt settings.
            metrics: Metrics to compute, where the task lets them be chosen; None for all.
        """
        kind = type(self.task)
        # A copy under a class with our iteration in front of the task's own.
        task: Any = object.__new__(type(f"Served{kind.__name__}", (ServedDocs, kind), {}))
        task.__dict__.update(self.task.__dict__)
        task._config = copy.deepcopy(self.task._config)  # noqa: SLF001  no public way to copy
        if settings.gen_kwargs:
            task.set_config(key="generation_kwargs", value=dict(settings.gen_kwargs), update=True)
        # As simple_evaluate does: an explicit 0 in the task's file is never overridden.
        own = task.get_config("num_fewshot")
        if settings.num_fewshot is not None and own != 0:
            task.set_config(key="num_fewshot", value=settings.num_fewshot)
        elif own is None:
            task.set_config(key="num_fewshot", value=0)
        if hasattr(task, "sampler"):
            task.sampler = copy.copy(task.sampler)
        task.set_fewshot_seed(seed=settings.fewshot_seed)
        count = task.get_config("num_fewshot") or 0
        if count > 0 and hasattr(task, "sampler"):
            own_split = task.fewshot_cfg.split == task.config.test_split
            task.sampler = _FullRunDraws(task.sampler, self.docs, count, pass_doc=own_split)
        task.all_docs = self.docs
        task.recorded = None
        task.wanted_metrics = metrics
        task._iterating = None  # noqa: SLF001
        task._filters_seen = 0  # noqa: SLF001
        task.choose([])
        return task


def build_instances(
    task: Any,
    doc_ids: Sequence[int],
    settings: PromptSettings,
    chat_template: Callable[..., str] | None,
) -> list[Any]:
    """The requests of some documents, one per document, as a full run would build them.

    Args:
        task: A served task.
        doc_ids: True document ids, all different.
        settings: The model's prompt settings.
        chat_template: The model's ``apply_chat_template``, None where none is applied.

    Returns:
        Instances in the order of ``doc_ids``.

    Raises:
        TaskError: A document cannot be rendered, or asks for several requests.
    """
    task.choose(doc_ids)
    chat = bool(settings.apply_chat_template)
    found = []
    for doc_id in doc_ids:
        doc = task.served[doc_id]
        try:
            context = task.fewshot_context(
                doc,
                num_fewshot=task.config.num_fewshot or 0,
                system_instruction=settings.system_instruction,
                apply_chat_template=chat,
                fewshot_as_multiturn=settings.fewshot_as_multiturn,
                chat_template=chat_template,
                gen_prefix=task.doc_to_prefix(doc),
            )
            instance = task.construct_requests(
                doc=doc,
                ctx=context,
                metadata=(task.config.task, doc_id, task.config.repeats),
                apply_chat_template=chat,
                chat_template=chat_template,
            )
        except Exception as error:
            raise TaskError(
                f"task {task.config.task}: doc {doc_id} cannot be turned into a prompt: "
                f"{_first_line(error)}; mend doc_to_text or the few-shot settings"
            ) from error
        if isinstance(instance, list):
            if len(instance) != 1:
                raise TaskError(
                    f"task {task.config.task}: doc {doc_id} asks for {len(instance)} requests; "
                    "adaptive runs take tasks with one request per document"
                )
            (instance,) = instance
        found.append(instance)
    return found


@dataclass(frozen=True)
class DocumentResult:
    """What the filters and metrics made of one answer.

    Attributes:
        filtered: Filtered response by filter name.
        metrics: Metric values by filter name, as ``process_results`` returned them.
        error: Why the metrics could not be computed, "" when they could.
    """

    filtered: dict[str, Any]
    metrics: dict[str, dict[str, Any]]
    error: str = ""


def process_answers(task: Any, instances: Sequence[Any]) -> list[DocumentResult]:
    """Filter and score answered instances with the task's own filters and metrics.

    A ``process_results`` with a ``batch`` beside it scores all documents in one call, and only the
    metrics that the run ranks by; see ``metrics.task``. One document whose metric raises does not
    touch the others.

    Args:
        task: A served task.
        instances: Instances whose ``resps`` are filled.

    Returns:
        One result per instance.

    Raises:
        ScoringError: What a metric asks (a judge) is away.
        AdaptiveError: A metric cannot be computed for any document: its package or a setting is
            missing.
    """
    task._instances = list(instances)  # noqa: SLF001  where the harness's filters look
    task.apply_filters()
    found = [DocumentResult(dict(each.filtered_resps), {}) for each in instances]
    errors = [""] * len(found)
    for name in dict.fromkeys(name for each in found for name in each.filtered):
        rows = [row for row, each in enumerate(found) if name in each.filtered]
        docs = [instances[row].doc for row in rows]
        responses = [[found[row].filtered[name]] for row in rows]
        for row, value in zip(rows, _values(task, docs, responses), strict=True):
            if isinstance(value, str):
                errors[row] = f"{name}: {value}"
            else:
                found[row].metrics[name] = value
    return [replace(each, error=error) for each, error in zip(found, errors, strict=True)]


def _values(
    task: Any, docs: Sequence[Any], responses: Sequence[list[Any]]
) -> list[dict[str, Any] | str]:
    """Metric values by document, or what went wrong with it."""
    batch = getattr(task.config.process_results, "batch", None)
    if batch is not None:
        try:
            return [dict(each) for each in batch(docs, responses, task.wanted_metrics)]
        except ModelError as error:
            raise ScoringError(f"{error} (answers without a score will be asked again)") from error
        except AdaptiveError:
            raise
        except Exception as problem:  # noqa: BLE001  which document it was shows one by one
            log.debug("batch of %d: %s", len(docs), _first_line(problem))
    found: list[dict[str, Any] | str] = []
    for doc, response in zip(docs, responses, strict=True):
        try:
            if batch is None:
                found.append(dict(task.process_results(doc, response)))
            else:
                found.append(dict(batch([doc], [response], task.wanted_metrics)[0]))
        except ModelError as error:
            raise ScoringError(f"{error} (answers without a score will be asked again)") from error
        except AdaptiveError:
            raise
        except Exception as problem:  # noqa: BLE001  any metric of any task
            found.append(_first_line(problem))
    return found
