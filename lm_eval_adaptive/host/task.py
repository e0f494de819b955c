"""A harness task that serves the documents an adaptive test chooses.

This module owns document iteration: it wraps a task object so that only chosen documents are
rendered, under their true ids and with the prompts of a full run. It imports the harness inside
functions and ``core.identity``; which documents are chosen is decided elsewhere.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from lm_eval_adaptive.core.identity import content_hash, item_keys
from lm_eval_adaptive.errors import (
    AdaptiveError,
    DataError,
    ModelError,
    ScoringError,
    TaskError,
)
from lm_eval_adaptive.host.columns import columns_read, seen_hash
from lm_eval_adaptive.host.draws import (
    FullRunDraws,
    RandomState,
    RecordedExamples,
    RememberedTexts,
    draws_at_load,
    fresh_draws,
    full_run_draws,
    seed_everything,
)
from lm_eval_adaptive.host.remote_code import remote_code_checked
from lm_eval_adaptive.host.sight import live_sights
from lm_eval_adaptive.metrics.base import Missing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

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


@dataclass(frozen=True)
class RenderingStyle:
    """How the harness is to put a prompt together: its own arguments of ``build_all_requests``."""

    system_instruction: str | None = None
    apply_chat_template: bool = False
    fewshot_as_multiturn: bool = False
    chat_template: Callable[..., str] | None = None


class ServedDocs(RememberedTexts):
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
    draws: FullRunDraws

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

    def build_all_requests(
        self,
        *,
        system_instruction: str | None = None,
        apply_chat_template: bool = False,
        fewshot_as_multiturn: bool = False,
        chat_template: Callable[..., str] | None = None,
        **_: Any,
    ) -> None:
        """Build the requests of the chosen documents; see the harness's own for the arguments."""
        self._iterating = None
        style = RenderingStyle(
            system_instruction, apply_chat_template, fewshot_as_multiturn, chat_template
        )
        self._instances = [each for doc_id in self.served for each in self.render(doc_id, style)]

    def render(self, doc_id: int, style: RenderingStyle) -> list[Any]:
        """A chosen document's requests, with the draws of a full run."""
        doc, task = self.served[doc_id], cast("Any", self)
        with self.draws.at(self, doc_id):
            context = task.fewshot_context(
                doc,
                num_fewshot=task.config.num_fewshot or 0,
                system_instruction=style.system_instruction,
                apply_chat_template=style.apply_chat_template,
                fewshot_as_multiturn=style.fewshot_as_multiturn,
                chat_template=style.chat_template,
                gen_prefix=task.doc_to_prefix(doc),
            )
            found = task.construct_requests(
                doc=doc,
                ctx=context,
                metadata=(task.config.task, doc_id, task.config.repeats),
                apply_chat_template=style.apply_chat_template,
                chat_template=style.chat_template,
            )
        return found if isinstance(found, list) else [found]

    def fewshot_context(self, doc: Any, *args: Any, **kwargs: Any) -> Any:
        """The prompt of a full run for this document."""
        sampler = getattr(self, "sampler", None)
        if isinstance(sampler, RecordedExamples):
            sampler.current = self._ids[id(doc)]
        return super().fewshot_context(doc, *args, **kwargs)  # type: ignore[misc]

    def aggregation(self) -> dict[str, Any]:
        """The task's aggregations; over a part of the documents one may have nothing to work on."""
        own: dict[str, Any] = super().aggregation()  # type: ignore[misc]
        if self.recorded is None:
            return own
        return {metric: _or_nan(aggregate, metric) for metric, aggregate in own.items()}

    def process_results(self, doc: Any, results: Any) -> dict[str, Any]:
        """Metric values of a document: recorded ones, else the task's own."""
        if self.recorded is None:
            found: dict[str, Any] = super().process_results(doc, results)  # type: ignore[misc]
            return found
        # A filter whose metrics failed has no record; the ranking is by another one.
        return dict(self.recorded.get((self._ids[id(doc)], str(self._iterating)), {}))


def _odd_column(doc: Any) -> str:
    """Names the column whose value has no stable content, "" where it is the document itself."""
    if not isinstance(doc, Mapping):
        return ""
    for name, value in doc.items():
        try:
            content_hash({"value": value})
        except (AdaptiveError, TypeError, ValueError):
            return f"column {name!r}: "
    return ""


def _or_nan(aggregate: Callable[[list[Any]], Any], metric: str) -> Callable[[list[Any]], Any]:
    """The aggregation, with NaN where it raises: an answered run must not end in its files."""

    def guarded(values: list[Any]) -> Any:
        try:
            return aggregate(values)
        except Exception as error:  # noqa: BLE001  any task's code
            log.warning(
                "no mean over the chosen documents for %s (%s); its ranking is not touched",
                metric,
                _first_line(error),
            )
            return float("nan")

    return guarded


def load_tasks(
    task_manager: Any, names: Sequence[Any], *, generation_only: bool = False
) -> tuple[list[Any], list[str]]:
    """The generation tasks of some names, each once: a name may be a group's or a tag's.

    Args:
        task_manager: The harness's task manager.
        names: Names, configurations or task objects.
        generation_only: Leave out tasks that do not generate text.

    Returns:
        The tasks; and those left out, with their kind.

    Raises:
        TaskError: One does not load, or a task of it does not generate text.
    """
    try:
        # In one call, as the harness does: its loader draws from the shared generators.
        loaded = task_manager.load(list(names))
    except Exception:  # noqa: BLE001  which one it is shows one by one
        tasks = {
            task.config.task: task for name in names for task in _loaded_alone(task_manager, name)
        }
    else:
        _as_the_harness_logs(loaded, task_manager)
        tasks = {task.config.task: task for task in loaded["tasks"].values()}
    others = [
        f"{name} ({task.OUTPUT_TYPE})"
        for name, task in tasks.items()
        if task.OUTPUT_TYPE != "generate_until"
    ]
    found = [task for task in tasks.values() if task.OUTPUT_TYPE == "generate_until"]
    if others and not (found and generation_only):
        raise TaskError(_no_generation(others, len(found)))
    return found, others


def _no_generation(others: Sequence[str], rest: int) -> str:
    many = len(others) > 1
    told = f"{', '.join(others[:5])}{' …' if len(others) > 5 else ''}"
    remedy = f"; --generation_only goes on with the {rest} that do" if rest else ""
    return (
        f"{f'{len(others)} tasks do' if many else 'a task does'} not generate text: {told}; "
        f"adaptive runs take tasks of output_type generate_until{remedy}"
    )


def _loaded_alone(task_manager: Any, name: str | dict[str, Any]) -> list[Any]:
    try:
        return list(task_manager.load([name])["tasks"].values())
    except TaskError:  # of this package, in its own words
        raise
    except Exception as error:
        raise TaskError(
            f"task {_label(name)} does not load: {_first_line(error)}; check its data with "
            "`lm-eval-adaptive validate --tasks`"
        ) from error


def _as_the_harness_logs(loaded: dict[str, Any], task_manager: Any) -> None:
    """Log the tasks as the harness does: asking a group for its tasks' names draws, too."""
    from lm_eval import evaluator

    log_tasks = getattr(evaluator, "_log_selected_tasks", None)
    if log_tasks is not None:
        log_tasks(loaded["tasks"], loaded["groups"], task_manager)


def load_task(task_manager: Any, name: str | dict[str, Any]) -> Any:
    """One generation task from the harness.

    Raises:
        TaskError: It is no single task, does not load, or does not generate text.
    """
    tasks, _ = load_tasks(task_manager, [name])
    if len(tasks) != 1:
        parts = ", ".join(sorted(task.config.task for task in tasks))
        raise TaskError(f"{_label(name)} is a group of tasks ({parts}); name one of them")
    return tasks[0]


def _label(name: Any) -> str:
    if isinstance(name, dict):
        return str(name.get("task", "(inline)"))
    return name if isinstance(name, str) else str(getattr(name, "task_name", type(name).__name__))


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


class TaskDocs:
    """The documents of a task, taken once, with their identities.

    Args:
        task: A task object as the harness built it.

    Attributes:
        keys: Identity of each document.
        num_fewshot: Few-shot examples in the run's prompts, None where no run is opened.
        notices: What a reader of the ranking has to know about them, a line each.
    """

    def __init__(self, task: Any) -> None:
        self.task = task
        self.name: str = task.config.task
        self.version = str(task.VERSION)
        self.docs = task.eval_docs
        self.num_fewshot: int | None = None
        self.notices: list[str] = []
        self._start = RandomState.now()
        self._draws: dict[tuple[int | None, int | None], FullRunDraws] = {}
        self.keys = self._keys(self.docs, None)

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

    @cached_property
    def seen_keys(self) -> tuple[str, ...]:
        """Identity of each document by the columns that the task reads."""
        columns = columns_read(vars(self.task.config))
        return self.keys if columns is None else self._keys(self.docs, columns)

    def sights(self) -> tuple[str, ...]:
        """Identity of each document by what models see of it and what they are held against."""
        return live_sights(self.task, self.docs)

    def prompts_alone(self) -> tuple[str, ...]:
        """Identity of each document by what models see of it, white space and targets apart."""
        return live_sights(self.task, self.docs, alone=True)

    def _keys(self, docs: Any, columns: frozenset[str] | None) -> tuple[str, ...]:
        hashes = [self._hash(doc_id, doc, columns) for doc_id, doc in enumerate(docs)]
        return item_keys(hashes, range(len(hashes)))

    def _hash(self, doc_id: int, doc: Any, columns: frozenset[str] | None) -> str:
        try:
            return seen_hash(doc, columns)
        except (AdaptiveError, TypeError, ValueError) as error:
            raise DataError(
                f"task {self.name}: doc {doc_id} cannot be told from others by its content: "
                f"{_odd_column(doc)}{error}"
            ) from error

    def settle_few_shot(self, settings: PromptSettings) -> None:
        """Find out how many few-shot examples the run's prompts have, and tell what is ignored."""
        own, asked = self.task.get_config("num_fewshot"), settings.num_fewshot
        # As simple_evaluate does: an explicit 0 in the task's file is never overridden.
        self.num_fewshot = int((own if own == 0 or asked is None else asked) or 0)
        if own == 0 and asked:
            self.notices.append(
                f"--num_fewshot {asked} is ignored, as in a plain run: task {self.name} sets "
                "num_fewshot: 0 itself"
            )

    def are_made_anew(self) -> bool:
        """Whether the task gives other documents when it is read once more."""
        return self._keys(self.task.eval_docs, None) != self.keys

    def serve(self, settings: PromptSettings, metrics: Sequence[str] | None = None) -> Any:
        """A task object of one model's own, serving no documents yet.

        Args:
            settings: The model's prompt settings.
            metrics: Metrics to compute, where the task lets them be chosen; None for all.
        """
        draws = self.draws(settings)
        kind = type(self.task)
        # A copy under a class with our iteration in front of the task's own.
        task = self._copy(settings, type(f"Served{kind.__name__}", (ServedDocs, kind), {}))
        if settings.gen_kwargs:
            task.set_config(key="generation_kwargs", value=dict(settings.gen_kwargs), update=True)
        if draws.examples is not None:
            task.sampler = RecordedExamples(draws.examples)
        task.draws = draws
        task.all_docs = self.docs
        task.recorded = None
        task.wanted_metrics = metrics
        task._iterating = None  # noqa: SLF001
        task._filters_seen = 0  # noqa: SLF001
        task.choose([])
        return task

    def draws(self, settings: PromptSettings) -> FullRunDraws:
        """What a run over all documents draws for each of them, under these settings."""
        key = (settings.num_fewshot, settings.fewshot_seed)
        if key not in self._draws:
            kind = type(self.task)
            remembering = type(f"Remembering{kind.__name__}", (RememberedTexts, kind), {})
            task = self._copy(settings, remembering)
            self._draws[key] = full_run_draws(task, self.docs, self._start)
        return self._draws[key]

    def _copy(self, settings: PromptSettings, kind: type) -> Any:
        """The task under another class, with few-shot settings of its own.

        The harness leaves such settings on the task object, so every model gets a copy; the
        documents are shared.
        """
        task: Any = object.__new__(kind)
        task.__dict__.update(self.task.__dict__)
        task._config = copy.deepcopy(self.task._config)  # noqa: SLF001  no public way to copy
        # As simple_evaluate does: an explicit 0 in the task's file is never overridden.
        own = task.get_config("num_fewshot")
        if settings.num_fewshot is not None and own != 0:
            task.set_config(key="num_fewshot", value=settings.num_fewshot)
        elif own is None:
            task.set_config(key="num_fewshot", value=0)
        if hasattr(task, "sampler"):
            task.sampler = copy.copy(task.sampler)
        task.set_fewshot_seed(seed=settings.fewshot_seed)
        return task


def open_documents(
    task_manager: Any,
    names: Sequence[Any],
    seeds: Sequence[int | None],
    settings: PromptSettings,
    *,
    name_is_drawn: bool = False,
    generation_only: bool = False,
    unsafe_confirmed: bool = False,
    remote_code_trusted: bool = False,
) -> list[TaskDocs]:
    """The documents of a run's tasks, as a plain run under the same seeds has them.

    The harness seeds the shared generators, loads all tasks, then renders one after the other:
    documents and prompts that are drawn at random follow from that order.

    Args:
        task_manager: The harness's task manager.
        names: Task names and configurations, in the user's order.
        seeds: Of ``random``, numpy and torch.
        settings: The few-shot settings that all models share.
        name_is_drawn: Whether plain runs of the models draw a name for each, see
            :func:`draws_a_name`.
        generation_only: See :func:`load_tasks`; what is left out stands in the notices.
        unsafe_confirmed: Whether the user lets tasks run the models' answers as code.
        remote_code_trusted: Whether the user lets data sets run code that comes with them.

    Raises:
        TaskError: See :func:`load_tasks`; or a task runs code, of answers or of its data, and
            nobody allowed it.
    """
    seed_everything(seeds)
    found = []
    with fresh_draws():
        with remote_code_checked(trusted=remote_code_trusted):
            tasks, others = load_tasks(task_manager, names, generation_only=generation_only)
        for task in tasks:
            if getattr(task, "UNSAFE_CODE", False) and not unsafe_confirmed:
                raise TaskError(
                    f"task {task.config.task} is marked as unsafe: its scoring runs what models "
                    "answer; add --confirm_run_unsafe_code (confirm_run_unsafe_code=True) to allow "
                    "it, in a place where that does no harm"
                )
        if name_is_drawn:
            _draw_a_name()
        for task in tasks:
            docs = TaskDocs(task)
            if others:
                docs.notices.append(f"left out, they generate no text: {', '.join(others)}")
            found.append(docs)
            docs.settle_few_shot(settings)
            end = docs.draws(settings).end
            if end is not None:
                end.restore()
        for docs in found:
            if draws_at_load(docs.task) and docs.are_made_anew():
                docs.notices.append(
                    f"task {docs.name} makes its documents anew each time they are read (its "
                    "process_docs draws outside of map): a plain run asks one set and scores by "
                    "another, here each answer is held against the document that was asked"
                )
    return found


def draws_a_name(model_args: Mapping[str, Any]) -> bool:
    """Whether the harness's command line finds no name for a model and draws one.

    It does so after the tasks are loaded, from the generator that prompts are drawn from.
    """
    from lm_eval.loggers.evaluation_tracker import GeneralConfigTracker

    return GeneralConfigTracker._get_model_name(dict(model_args)) is None  # noqa: SLF001


def _draw_a_name() -> None:
    from lm_eval.utils import random_name_id

    random_name_id()


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
    style = RenderingStyle(
        settings.system_instruction,
        bool(settings.apply_chat_template),
        settings.fewshot_as_multiturn,
        chat_template,
    )
    found = []
    for doc_id in doc_ids:
        try:
            instances = task.render(doc_id, style)
        except Exception as error:
            raise TaskError(
                f"task {task.config.task}: doc {doc_id} cannot be turned into a prompt: "
                f"{_first_line(error)}; mend doc_to_text or the few-shot settings"
            ) from error
        if len(instances) != 1:
            raise TaskError(
                f"task {task.config.task}: doc {doc_id} asks for {len(instances)} requests; "
                "adaptive runs take tasks with one request per document"
            )
        found += instances
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
    touch the others, and one metric of a ``metric_list`` that raises does not touch the rest.

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
            rest = {} if batch is not None else _metrics_one_by_one(task, doc, response)
            found.append(rest or _first_line(problem))
    return found


def _metrics_one_by_one(task: Any, doc: Any, response: list[Any]) -> dict[str, Any]:
    """Values of a document by the metrics of ``metric_list`` of which one raised.

    The harness computes them in one go; one that raises is to cost its own value alone. A
    ``process_results`` of the task's own cannot be taken apart.

    Returns:
        A value for each metric, missing where it raised; nothing where all raised.
    """
    metrics = getattr(task, "_metric_fn_list", None)
    if callable(task.config.process_results) or not metrics or len(metrics) < 2:
        return {}
    found: dict[str, Any] = {}
    lost: dict[str, Missing] = {}
    try:
        for name, compute in metrics.items():
            task._metric_fn_list = {name: compute}  # noqa: SLF001  what process_results goes through
            try:
                found.update(task.process_results(doc, response))
            except AdaptiveError:
                raise
            except Exception as problem:  # noqa: BLE001  any metric of any task
                lost[name] = Missing(_first_line(problem))
    finally:
        task._metric_fn_list = metrics  # noqa: SLF001
    if not found:
        return {}
    # What a function gives may have names of its own: those asked for are not there, either.
    reasons = "; ".join(f"{name}: {each.reason}" for name, each in lost.items())
    asked = dict.fromkeys(task.wanted_metrics or (), Missing(reasons))
    return {**asked, **lost, **found}
