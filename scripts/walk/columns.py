"""Made-up documents from the columns that a task reads, found by trying.

This module owns the search: which columns a task's templates and functions read, and what kind of
value each has to be for the task to load, render and score. The harness alone decides whether an
attempt works; nothing of ours is asked.
"""

from __future__ import annotations

import inspect
import json
import re
import time
import traceback
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

ANIMALS = ("otter", "heron", "beetle", "pike", "hare", "owl")
KINDS = (
    "text", "letter", "index", "number", "texts", "records", "record", "lists", "json", "python",
    "flag", "ints", "boxed", "json_records", "image",
)  # fmt: skip
# Nested values hold these columns as well as every other that is read.
_NAMES = {
    "texts": r"choices|options|endings|answers$|aliases|candidates|distractors|labels$|list$|lists|"
    r"references|keywords|sentences|facts|images$|tests?$|test_list|inputs_list|outputs_list",
    "index": r"^label$|gold$|_idx$|index|^idx$|cop$|answer_key_position|correct_answer_num",
    "number": r"^n_|num_|count|length|level_num|year|_id$|^id$",
    "letter": r"answer_?key|^answer_letter|correct_option",
    "image": r"^image|^img|_image$",
}


@dataclass(frozen=True)
class Columns:
    """What a made-up document holds.

    Attributes:
        kinds: Kind of each column; ``=text`` is that text itself.
        size: Documents of a split.
        inner: Names that nested values hold besides.
    """

    kinds: Mapping[str, str]
    size: int = 6
    inner: tuple[str, ...] = ()

    def rows(self, split: str) -> list[dict[str, Any]]:
        """The documents of a split; splits differ."""
        shift = sum(map(ord, split)) % 50
        return [self._row(shift + number) for number in range(self.size)]

    def _row(self, number: int) -> dict[str, Any]:
        return {name: self._value(name, kind, number) for name, kind in self.kinds.items()}

    def _value(self, name: str, kind: str, number: int) -> Any:
        if kind.startswith("="):
            return kind[1:]
        if kind in ("record", "records", "lists", "json_records"):
            return self._nested(kind, number)
        return _plain(name, kind, number)

    def _nested(self, kind: str, number: int) -> Any:
        flat = {name: guess(name) for name in self.inner}
        flat |= {name: given for name, given in self.kinds.items() if not given.startswith("=")}
        flat = {name: "text" if given in _NESTED else given for name, given in flat.items()}

        def one(shift: int) -> dict[str, Any]:
            return {name: _plain(name, given, shift) for name, given in flat.items()}

        if kind == "lists":
            return {name: [_plain(name, "text", number + k) for k in range(4)] for name in flat}
        if kind == "record":
            return one(number)
        found = [one(number + k) for k in range(4)]
        return json.dumps(found, default=str) if kind == "json_records" else found


_NESTED = ("record", "records", "lists", "json_records", "image")


def _plain(name: str, kind: str, number: int) -> Any:
    animal = ANIMALS[number % 6]
    text = f"{name.replace('_', ' ')} {number}: an {animal} by the river ate {number + 2} plums."
    if kind.startswith("="):
        return kind[1:]
    if kind == "image":
        return _image(number)
    return {
        "text": text,
        "letter": "ABCD"[number % 4],
        "index": number % 4,
        "number": str(number + 2),
        "texts": [f"{text} {k}" for k in range(5)],
        "ints": [(number + k) % 5 for k in range(5)],
        "json": f'["{text}", "{animal}"]',
        "python": f"['{animal}', 'river', 'plums', 'bank']",
        "flag": bool(number % 2),
        "boxed": f"{text} $\\boxed{{{number + 2}}}$ #### {number + 2}",
    }[kind]


def _image(number: int) -> Any:
    from PIL import Image

    return Image.new("RGB", (8, 8), (number * 5 % 255, 80, 120))


def guess(name: str) -> str:
    """The kind that a column's name makes likely."""
    for kind, pattern in _NAMES.items():
        if re.search(pattern, name, re.IGNORECASE):
            return kind
    return "text"


def likely(name: str, config: Mapping[str, Any]) -> str:
    """The kind that its use in the templates makes likely, else its name."""
    templates = " ".join(_templates(config))
    one = re.escape(name)
    if re.search(rf"\[\s*{one}\s*\]", templates):
        return "index"
    if re.search(rf"\b{one}\s*\[\s*\d\s*\]|\bin\s+{one}\b|\b{one}\s*\|\s*join", templates):
        return "texts"
    return guess(name)


@dataclass(frozen=True)
class Outcome:
    """How far an attempt came.

    Attributes:
        stage: 0 loading, 1 rendering, 2 scoring, 3 all of it.
        error: What stopped it, None at the end.
        suspects: Columns that the failing line has to do with.
        wanted: Columns that were missing.
        fixed: Texts that a value was compared with.
    """

    stage: int
    error: BaseException | None = None
    suspects: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    signature: tuple[Any, ...] = ()


@dataclass
class Search:
    """The search for the documents of one task.

    Attributes:
        attempt: Loads, renders and scores on some columns; raises with ``stage`` set on a box.
        config: The task's configuration.
        budget: Seconds.
    """

    attempt: Callable[[Columns, list[int]], None]
    config: Mapping[str, Any]
    budget: float
    tries: int = 0
    seen: set[tuple[Any, ...]] = field(default_factory=set)
    tried: set[tuple[Any, ...]] = field(default_factory=set)
    _end: float = 0.0
    _best: Any = None

    def run(self) -> tuple[Columns, Outcome]:
        """The best columns found, and how far the task came with them."""
        self._end = time.monotonic() + self.budget
        columns = Columns(
            {name: likely(name, self.config) for name in columns_read(self.config)},
            inner=tuple(names_inside(self.config)),
        )
        self._best = columns, self._try(columns)
        self._improve(*self._best)
        return self._best

    def _improve(self, columns: Columns, outcome: Outcome) -> None:
        """Follow each change that leads to another error, the deepest first found first."""
        self.seen.add(outcome.signature)
        for changed in self._changes(columns, outcome):
            key = (*sorted(changed.kinds.items()), changed.size)
            if key in self.tried:
                continue
            self.tried.add(key)
            if self._best[1].stage == 3 or time.monotonic() > self._end:
                return
            found = self._try(changed)
            if found.stage > self._best[1].stage:
                self._best = changed, found
            if found.stage > outcome.stage or (
                found.stage == outcome.stage and found.signature not in self.seen
            ):
                self._improve(changed, found)

    def _changes(self, columns: Columns, outcome: Outcome) -> Iterator[Columns]:
        kinds = dict(columns.kinds)
        text = str(outcome.error)
        if "larger than population" in text and columns.size < 40:
            yield replace(columns, size=40)
        new = [name for name in outcome.wanted if name not in kinds]
        if new:
            yield replace(columns, kinds={**kinds, **{name: guess(name) for name in new}})
        for name in outcome.suspects:
            for fixed in outcome.fixed:
                yield replace(columns, kinds={**kinds, name: f"={fixed}"})
            for kind in KINDS:
                if kinds.get(name) != kind:
                    yield replace(columns, kinds={**kinds, name: kind})
        if columns.size < 40:
            yield replace(columns, size=40)

    def _try(self, columns: Columns) -> Outcome:
        self.tries += 1
        box = [0]
        try:
            self.attempt(columns, box)
        except Exception as error:  # noqa: BLE001  any task's code
            return self._outcome(columns, box[0], error)
        return Outcome(3)

    def _outcome(self, columns: Columns, stage: int, error: BaseException) -> Outcome:
        deepest = error
        while deepest.__cause__ is not None:
            deepest = deepest.__cause__
        text = f"{error} {deepest}"
        wanted = re.findall(
            r"'(\w+)' is undefined|has no attribute '(\w+)'|no element '?(\w+)|"
            r"[Cc]olumn (?:name )?\W*(\w+)",
            text,
        )
        names = [name for group in wanted for name in group if name and not hasattr("", name)]
        names = [name for name in names if not hasattr({}, name) and not hasattr([], name)]
        if isinstance(deepest, KeyError) and str(deepest.args[0]).isidentifier():
            names.append(str(deepest.args[0]))
        lines, places = _task_lines(deepest if deepest.__traceback__ else error)
        about = " ".join([*lines, text, *map(str, _templates(self.config))])
        near = [
            name
            for name in columns.kinds
            if re.search(rf"\b{re.escape(name)}\b", " ".join([*lines, text]))
        ]
        far = [
            name
            for name in columns.kinds
            if name not in near and re.search(rf"\b{re.escape(name)}\b", about)
        ]
        rest = [name for name in columns.kinds if name not in near and name not in far]
        return Outcome(
            stage,
            error,
            (*near, *far, *rest),
            tuple(name for name in names if not name.isdecimal()),
            tuple(_fixed_texts(self.config)) if isinstance(deepest, IndexError) else (),
            (stage, tuple(names), places[0] if places else str(deepest)[:80]),
        )


def _task_lines(error: BaseException) -> tuple[list[str], list[str]]:
    """Source lines of the tasks' own code at an error, the innermost first, and where they are."""
    lines, places = [], []
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if "/tasks/" in frame.filename or "template" in frame.filename:
            places.append(f"{frame.filename}:{frame.lineno}")
            lines.append(frame.line or "")
    return lines, places


def _templates(config: Mapping[str, Any]) -> Iterator[str]:
    for value in config.values():
        if isinstance(value, str) and "{" in value:
            yield value


def _functions(config: Any) -> Iterator[Any]:
    """Functions anywhere in a configuration."""
    if isinstance(config, dict):
        for value in config.values():
            yield from _functions(value)
    elif isinstance(config, list):
        for value in config:
            yield from _functions(value)
    elif isinstance(config, partial):
        yield config.func
    elif callable(config):
        yield config


def _sources(config: Mapping[str, Any]) -> str:
    texts = {}
    for function in _functions(dict(config)):
        try:
            module = inspect.getmodule(function)
            source = inspect.getsource(module) if module is not None else ""
        except (OSError, TypeError):
            continue
        if module is not None and "tasks" in str(getattr(module, "__file__", "")):
            texts[module.__name__] = source
    return "\n".join(texts.values())


_SUBSCRIPT = re.compile(
    r"\b(?:doc|docs|x|d|e|ex|example|row|item|entry|sample|instance|line|data|eg|dataset|batch|"
    r"out_doc|doc_dict|record)\s*(?:\[\s*f?[\"']([\w -]+)[\"']\s*\]|\.get\(\s*[\"']([\w -]+)[\"'])"
)


def columns_read(config: Mapping[str, Any]) -> list[str]:
    """Columns that templates and functions of a task name."""
    from jinja2 import Environment, TemplateError, meta

    found: list[str] = []
    environment = Environment()  # no page is made of it
    for value in _texts(dict(config)):
        if "{{" in value or "{%" in value:
            try:
                found += sorted(meta.find_undeclared_variables(environment.parse(value)))
            except TemplateError:
                continue
    for key in ("doc_to_text", "doc_to_target", "doc_to_choice", "doc_to_image"):
        value = config.get(key)
        if isinstance(value, str) and re.fullmatch(r"\w+", value) and not value.isdecimal():
            found.append(value)
    for groups in _SUBSCRIPT.findall(_sources(config)):
        found += [name for name in groups if name]
    return list(dict.fromkeys(found)) or ["question", "answer"]


def names_inside(config: Mapping[str, Any]) -> list[str]:
    """Names that may be keys of nested values: any subscript, attributes, languages."""
    sources = _sources(config) + " ".join(_templates(config))
    found = re.findall(
        r"\[\s*[\"'](\w+)[\"']\s*\]|\bget\([\"'](\w+)[\"']|\b\w+\.(\w+)\b(?!\()", sources
    )
    names = [name for group in found for name in group if name]
    parts = re.split(r"[-_ ]", f"{config.get('dataset_name') or ''}-{config.get('task')}")
    languages = [part for part in parts if part.isalpha() and len(part) in (2, 3, 4)]
    names = [*languages, "text", "label", *names]
    names = [name for name in names if not name.isdecimal() and not name.startswith("_")]
    return [*dict.fromkeys(names)][:60]


def _texts(config: Any) -> Iterator[str]:
    if isinstance(config, dict):
        for value in config.values():
            yield from _texts(value)
    elif isinstance(config, list):
        for value in config:
            yield from _texts(value)
    elif isinstance(config, str):
        yield config


def _fixed_texts(config: Mapping[str, Any]) -> Iterator[str]:
    """Texts that a value may have to equal: keywords of partials, literals in comparisons."""
    for value in config.values():
        if isinstance(value, partial):
            for each in (*value.args, *value.keywords.values()):
                yield from ([str(each)] if isinstance(each, str) else [])
    for value in config.values():
        if isinstance(value, partial):
            for form in re.findall(r"f[\"']([^\"'\n]*\{\w+\}[^\"'\n]*)[\"']", _sources(config)):
                filled = form
                for name, given in value.keywords.items():
                    filled = filled.replace(f"{{{name}}}", str(given))
                yield from ([filled] if "{" not in filled else [])
    seen = re.findall(r"(?:==|\bin)\s*\(?\[?[\"']([^\"'\n]+)[\"']", _sources(config))
    yield from list(dict.fromkeys(seen))[:12]
    name = config.get("dataset_name")
    if isinstance(name, str):
        yield name
