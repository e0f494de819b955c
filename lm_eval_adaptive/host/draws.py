"""Random tasks: the shared generators as the harness has them at each point of a full run.

A task may draw from the generators of ``random``, numpy or torch while its documents are made
(``process_docs``, ``custom_dataset``) or its prompts are rendered (``doc_to_text``, a sampler).
What a document or a prompt holds then depends on all that was drawn before. This module owns the
states of those generators: it seeds them, tells which tasks may draw, keeps what a full run draws
for each document, and has documents made as on a machine that keeps none from before.
"""

from __future__ import annotations

import functools
import logging
import random
import re
import sys
import tempfile
import threading
from array import array
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

log = logging.getLogger(__name__)

# Code of tasks (prompts, filters, metrics) was not written for threads, and draws from generators
# that all threads share: one piece of it runs at a time.
TASK_CODE = threading.RLock()


def seed_everything(seeds: Sequence[int | None], shift: int = 0) -> None:
    """Seed the shared generators, as the harness does at its start.

    Args:
        seeds: Of ``random``, numpy and torch; None leaves one as it is.
        shift: Added to each.
    """
    python, numpy_seed, torch_seed = seeds[:3]
    if python is not None:
        random.seed(python + shift)
    if numpy_seed is not None:
        np.random.seed(numpy_seed + shift)  # noqa: NPY002  the generator that tasks use
    if torch_seed is not None and "torch" in sys.modules:
        sys.modules["torch"].manual_seed(torch_seed + shift)


@contextmanager
def draws_left_alone() -> Iterator[None]:
    """Run a task's code so that what is drawn afterwards is what would have been drawn anyway."""
    with TASK_CODE:
        before = RandomState.now()
        try:
            yield
        finally:
            before.restore()


@dataclass(frozen=True)
class RandomState:
    """Where the shared generators stand, small enough to keep one for each document (5 kB)."""

    python: tuple[int, bytes, float | None]
    numpy: tuple[bytes, int, int, float]
    torch: bytes | None

    @classmethod
    def now(cls) -> RandomState:
        """The present state."""
        version, words, gauss = random.getstate()
        legacy: Any = np.random.get_state()  # noqa: NPY002
        torch = sys.modules.get("torch")
        return cls(
            (version, array("L", words).tobytes(), gauss),
            (legacy[1].tobytes(), *legacy[2:]),
            None if torch is None else torch.get_rng_state().numpy().tobytes(),
        )

    def restore(self) -> None:
        """Make this the present state."""
        version, words, gauss = self.python
        random.setstate((version, tuple(array("L", words)), gauss))
        keys, *rest = self.numpy
        legacy: Any = ("MT19937", np.frombuffer(keys, dtype=np.uint32), *rest)
        np.random.set_state(legacy)  # noqa: NPY002
        torch = sys.modules.get("torch")
        if torch is not None and self.torch is not None:
            # A copy: torch takes no memory that cannot be written.
            torch.set_rng_state(torch.from_numpy(np.frombuffer(self.torch, dtype=np.uint8).copy()))


@dataclass(frozen=True)
class FullRunDraws:
    """What a run over all documents draws while it renders their prompts.

    Attributes:
        examples: Few-shot examples by document, None where the task has none.
        texts: By document what :class:`RememberedTexts` gave, for a task that may draw them.
        states: The shared generators before a document, for tasks in Python that change them.
        picks: A task's own few-shot generator before a document, for tasks without a sampler.
        end: The shared generators after the last document.
    """

    examples: Sequence[list[Any]] | None = None
    texts: Mapping[int, list[Any]] = field(default_factory=dict)
    states: Mapping[int, RandomState] = field(default_factory=dict)
    picks: Mapping[int, Any] = field(default_factory=dict)
    end: RandomState | None = None

    @contextmanager
    def at(self, task: Any, doc_id: int) -> Iterator[None]:
        """Have a served task render a document as the full run did."""
        if doc_id in self.picks:
            task.fewshot_rnd.setstate(self.picks[doc_id])
        if doc_id in self.texts:
            task.said_before = iter(self.texts[doc_id])
            try:
                yield
            finally:
                task.said_before = None
        elif doc_id in self.states:
            with draws_left_alone():
                self.states[doc_id].restore()
                yield
        else:
            yield


class RememberedTexts:
    """Mixed into a task's class: what the task says of a document can be kept and said again.

    A function that draws gives another text each time, by generators that may be its own.

    Attributes:
        saying: Takes what is said, where it is to be kept.
        said_before: What is to be said again, in the same order.
    """

    saying: list[Any] | None = None
    said_before: Iterator[Any] | None = None
    _within: bool = False

    def doc_to_text(self, *args: Any, **kwargs: Any) -> Any:
        """The document's question."""
        return self._say(super().doc_to_text, args, kwargs)  # type: ignore[misc]

    def doc_to_target(self, *args: Any, **kwargs: Any) -> Any:
        """The document's answer."""
        return self._say(super().doc_to_target, args, kwargs)  # type: ignore[misc]

    def doc_to_choice(self, *args: Any, **kwargs: Any) -> Any:
        """The document's choices."""
        return self._say(super().doc_to_choice, args, kwargs)  # type: ignore[misc]

    def doc_to_prefix(self, *args: Any, **kwargs: Any) -> Any:
        """What the answer is to begin with."""
        return self._say(super().doc_to_prefix, args, kwargs)  # type: ignore[misc]

    def resolve_field(self, *args: Any, **kwargs: Any) -> Any:
        """A column or template of the document."""
        return self._say(super().resolve_field, args, kwargs)  # type: ignore[misc]

    def _say(self, ask: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if self.said_before is not None:
            return next(self.said_before)
        if self.saying is None or self._within:
            return ask(*args, **kwargs)
        self._within = True
        try:
            found = ask(*args, **kwargs)
        finally:
            self._within = False
        self.saying.append(found)
        return found


class RecordedExamples:
    """Stands for a task's few-shot sampler: gives the draw of a full run for each document.

    One generator runs through the documents of a full run, so a document's examples depend on all
    before it.
    """

    def __init__(self, examples: Sequence[list[Any]]) -> None:
        self._examples = examples
        self.current = 0

    def sample(self, n: int, eval_doc: Any = None, df: Any = None, **_: Any) -> list[Any]:
        """The recorded draw of the current document."""
        del n, eval_doc, df
        return self._examples[self.current]

    def set_rnd(self, rnd: int | None) -> RecordedExamples:
        """Keep the draws: they were made under the run's own seed."""
        del rnd
        return self


class _RecordingSampler:
    """A task's few-shot sampler that remembers the examples of each document."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler
        self.drawn: list[list[Any]] = []

    def sample(self, *args: Any, **kwargs: Any) -> list[Any]:
        found = list(self._sampler.sample(*args, **kwargs))
        self.drawn.append(found)
        return found


def full_run_draws(task: Any, docs: Any, start: RandomState) -> FullRunDraws:
    """What a full run draws for each document, in their order.

    Prompts are rendered only where rendering may draw; else the few-shot examples are drawn alone,
    which takes no time.

    Args:
        task: A task with :class:`RememberedTexts` and its few-shot number and seed; it is used up.
        docs: All its documents.
        start: The shared generators when the full run begins to render.
    """
    count = int(task.config.num_fewshot or 0)
    sampler = getattr(task, "sampler", None) if count > 0 else None
    with draws_left_alone():
        start.restore()
        if is_own_class(task) or draws_at_rendering(task):
            return _rendered(task, docs, sampler, count)
        if sampler is None:
            return FullRunDraws(end=start)
        own = task.fewshot_cfg.split == task.config.test_split
        examples = [list(sampler.sample(n=count, eval_doc=doc if own else None)) for doc in docs]
        return FullRunDraws(examples, end=RandomState.now())


def _rendered(task: Any, docs: Any, sampler: Any, count: int) -> FullRunDraws:
    """Render every document as the harness does, and keep what was drawn for each."""
    recording = None if sampler is None else _RecordingSampler(sampler)
    if recording is not None:
        task.sampler = recording
    by_state = is_own_class(task)
    states: dict[int, RandomState] = {}
    picks: dict[int, Any] = {}
    texts: dict[int, list[Any]] = {}
    examples: list[list[Any]] = []
    state = RandomState.now()
    for doc_id, doc in enumerate(docs):
        if count > 0 and recording is None:
            picks[doc_id] = task.fewshot_rnd.getstate()
        if not by_state:
            task.saying = texts[doc_id] = []
        try:
            context = task.fewshot_context(
                doc, num_fewshot=count, gen_prefix=task.doc_to_prefix(doc)
            )
            task.construct_requests(
                doc=doc, ctx=context, metadata=(task.config.task, doc_id, task.config.repeats)
            )
        except Exception as error:  # noqa: BLE001  it is told when the document is asked for
            log.debug("doc %d of %s: %s", doc_id, task.config.task, error)
            texts.pop(doc_id, None)
        if by_state and (after := RandomState.now()) != state:
            states[doc_id], state = state, after
        if recording is not None:
            examples.append(recording.drawn[-1] if recording.drawn else [])
            recording.drawn.clear()
    return FullRunDraws(
        examples if recording is not None else None, texts, states, picks, RandomState.now()
    )


def draws_at_load(task: Any) -> bool:
    """Whether a task may draw from the shared generators while its documents are made."""
    few_shot = getattr(task, "fewshot_cfg", None)
    return is_own_class(task) or any(
        may_draw(part)
        for part in (
            task.config.process_docs,
            task.config.custom_dataset,
            getattr(few_shot, "process_docs", None),
            getattr(few_shot, "samples", None),
        )
    )


def draws_at_rendering(task: Any) -> bool:
    """Whether a task may draw from the shared generators while prompts are rendered."""
    config, few_shot = task.config, getattr(task, "fewshot_cfg", None)
    sampler = type(getattr(task, "sampler", None))
    if config.use_prompt is not None:
        return True
    if not sampler.__module__.startswith(("lm_eval.", "builtins")):
        return True
    names = ("doc_to_text", "doc_to_target", "doc_to_choice", "gen_prefix")
    parts = [getattr(config, name) for name in (*names, "description")]
    parts += [config.doc_to_image, config.doc_to_audio]
    parts += [getattr(few_shot, name, None) for name in names]
    return any(map(may_draw, parts))


def is_own_class(task: Any) -> bool:
    """Whether a task is written in Python, not in YAML: nothing tells what its methods do."""
    from lm_eval.api.task import ConfigurableTask

    return not isinstance(task, ConfigurableTask) or any(
        hasattr(ConfigurableTask, name)
        for kind in type(task).__mro__[: type(task).__mro__.index(ConfigurableTask)]
        if kind is not RememberedTexts
        for name in vars(kind)
        if not name.startswith(("__", "_abc_"))
    )


# Names of what draws, and of what leads there.
_DRAWING = re.compile(
    "rand|shuffle|sampl|choice|permut|train_test_split|seed|secrets|uuid", re.IGNORECASE
)
# Packages whose code draws only under such a name.
_STEADY = {"datasets", "numpy", "lm_eval", "lm_eval_adaptive", "jinja2", "yaml"}


def may_draw(part: object) -> bool:
    """Whether a part of a task's configuration may draw from a shared generator.

    A template draws with Jinja's filter ``random`` alone. A function draws where it, or a function
    that it uses, names something that draws. What cannot be looked into may draw.

    >>> may_draw("{{ choices | random }}"), may_draw("{{ question }}")
    (True, False)
    >>> may_draw(lambda doc: random.choice(doc["words"])), may_draw(lambda doc: doc["text"])
    (True, False)
    """
    if part is None or isinstance(part, bool | int | float):
        return False
    if isinstance(part, str):
        return "random" in part
    if isinstance(part, list | tuple):
        return any(map(may_draw, part))
    if isinstance(part, dict):
        return any(map(may_draw, part.values()))
    return _reaches_draws(part, set())


def _reaches_draws(part: object, seen: set[int]) -> bool:
    if id(part) in seen:
        return False
    seen.add(id(part))
    if isinstance(part, functools.partial):
        inner = [part.func, *part.args, *part.keywords.values()]
        return any(_reaches_draws(each, seen) for each in inner if callable(each))
    if isinstance(part, MethodType | BuiltinFunctionType):
        owner = type(part.__self__).__module__
        if owner.startswith(("random", "_random", "numpy.random")):
            return True
        return isinstance(part, MethodType) and _reaches_draws(part.__func__, seen)
    if isinstance(part, type):
        return any(_reaches_draws(each, seen) for each in vars(part).values() if callable(each))
    if type(part).__module__.startswith("numpy.random"):
        return True
    if not isinstance(part, FunctionType):
        return not callable(part) or _reaches_draws(type(part).__call__, seen)
    wrapped = getattr(part, "__wrapped__", None)
    if wrapped is not None and _reaches_draws(wrapped, seen):
        return True
    names = set(_names(part.__code__))
    if any(_DRAWING.search(name) for name in names):
        return True
    used = [part.__globals__[name] for name in names if name in part.__globals__]
    used += [cell.cell_contents for cell in part.__closure__ or () if _is_filled(cell)]
    for each in used:
        if isinstance(each, ModuleType):
            if _is_steady(each.__name__):
                continue
            found = [vars(each)[name] for name in names if name in vars(each)]
            if not found or any(_may_draw_inside(one, seen) for one in found):
                return True
        elif callable(each) and _may_draw_inside(each, seen):
            return True
    # A module that is imported inside the function is seen by its name alone.
    return any(
        name in sys.modules and name not in part.__globals__ and not _is_steady(name)
        for name in names
    )


def _may_draw_inside(part: object, seen: set[int]) -> bool:
    """As :func:`_reaches_draws`, without a look into packages that do not draw."""
    module = str(getattr(part, "__module__", None) or "builtins")
    return callable(part) and not _is_steady(module) and _reaches_draws(part, seen)


def _is_steady(module: str) -> bool:
    top = module.partition(".")[0]
    if module in ("random", "numpy.random", "secrets", "uuid"):
        return False
    return top in sys.stdlib_module_names or top in _STEADY


def _names(code: CodeType) -> Iterator[str]:
    """Global names and attributes of a function's code, and of the functions in it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


@contextmanager
def fresh_draws() -> Iterator[None]:
    """Have datasets make anew what a function that may draw makes of them.

    On a machine without cached documents a full run makes them once and takes them from the cache
    afterwards. With a cache from before it takes those, made under any seed: for such functions
    the cache is a folder of this process, which goes with it.
    """
    from datasets import Dataset
    from datasets.fingerprint import get_temporary_cache_files_directory, is_caching_enabled

    folder = Path(tempfile.mkdtemp(prefix="maps-", dir=get_temporary_cache_files_directory()))
    plain_map, plain_path = Dataset.map, Dataset._get_cache_file_path  # noqa: SLF001  no other switch

    def own_path(dataset: Any, fingerprint: str) -> str:
        if is_caching_enabled() and dataset.cache_files:
            return str(folder / f"cache-{fingerprint}.arrow")
        return str(plain_path(dataset, fingerprint))

    def map_anew(dataset: Any, function: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not may_draw(function):
            return plain_map(dataset, function, *args, **kwargs)
        Dataset._get_cache_file_path = own_path  # noqa: SLF001
        try:
            return plain_map(dataset, function, *args, **kwargs)
        finally:
            Dataset._get_cache_file_path = plain_path  # noqa: SLF001

    Dataset.map = map_anew
    try:
        yield
    finally:
        Dataset.map = plain_map
