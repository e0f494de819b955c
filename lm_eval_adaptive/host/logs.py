"""Reading the harness's own ``--log_samples`` output.

The module owns every format that ``lm_eval`` has written since 0.4.0:

* 0.4.7 and later: ``samples_<task>_<date>.jsonl``, each row with its ``filter`` and ``metrics``.
* 0.4.3 to 0.4.6: the same file name; rows without both, so that several filters repeat a
  ``doc_id`` unlabelled, one block of documents per filter.
* 0.4.0 to 0.4.2: ``<model_args>_<task>.jsonl`` beside ``results.json``, one JSON list, no hashes.

Each may be gzipped. The results file beside a samples file (same date) tells the task's version,
the few-shot settings, the chat template and the direction of the metrics.

Reading (:func:`find_runs`) refuses what cannot be understood and notes on each run what was left
out. Runs become a score matrix in ``log_scores``.
"""

from __future__ import annotations

import glob
import hashlib
import json
import re
import zlib
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.core.identity import content_hash_of_json
from lm_eval_adaptive.errors import DataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_DATE = r"\d{4}-\d{2}-\d{2}T\d{2}-\d{2}-\d{2}(?:\.\d+)?"
_SAMPLES = re.compile(rf"^samples_(?P<task>.+)_(?P<date>{_DATE})\.jsonl?(?:\.gz)?$")
_SUFFIXES = (".jsonl", ".json", ".jsonl.gz", ".json.gz")
_NOT_METRICS = frozenset(
    [
        "doc_id",
        "doc",
        "target",
        "arguments",
        "resps",
        "filtered_resps",
        "filter",
        "metrics",
        "doc_hash",
        "prompt_hash",
        "target_hash",
    ]
)
# The order in which the harness looks for a model's name in its arguments.
_NAME_ARGUMENTS = ("peft", "delta", "pretrained", "model", "path", "engine")


@dataclass(frozen=True)
class LoggedRequest:
    """One question put to the model: its prompt, its settings and the answers in order."""

    prompt: str
    generation_kwargs: dict[str, Any]
    resps: tuple[str, ...]


@dataclass(frozen=True)
class LoggedAnswer:
    """What one model said to one document under one filter, as logged.

    Attributes:
        doc_id: Position of the document in the task.
        doc: The document.
        content_hash: Hash of the document, whatever the order of its columns.
        doc_hash: The harness's own hash, empty where the log has none.
        prompt_hash: SHA-256 of the first prompt; computed where the log has none.
        target: The reference as text.
        requests: The requests, in order; one in nearly every generation task.
        filtered: The answers after the filter, as logged.
        filter: Name of the filter, or None where nothing tells it.
        metrics: Raw values as logged: numbers, or pairs such as ``[gold, prediction]``.
    """

    doc_id: int
    doc: dict[str, Any]
    content_hash: str
    doc_hash: str
    prompt_hash: str
    target: str
    requests: tuple[LoggedRequest, ...]
    filtered: Any
    filter: str | None
    metrics: dict[str, Any]

    @property
    def prompt(self) -> str:
        """The first request's prompt."""
        return self.requests[0].prompt if self.requests else ""

    @property
    def resps(self) -> list[str]:
        """The first request's answers, one per repeat."""
        return list(self.requests[0].resps) if self.requests else []


@dataclass(frozen=True)
class LoggedRun:
    """One run of one model on one task.

    Attributes:
        model: Name of the run, different for each run that was found together.
        base_model: The model's own name; equal for several runs of one model.
        task: Task name in the log.
        date: The harness's date id, empty in formats before 0.4.3.
        task_version: Version in the task's metadata, None where unknown.
        n_shot: Number of few-shot examples, None where unknown.
        few_shot: What else decides the examples: the sampler's settings and, where it draws at
            random, its seed. Examples written into the task count by their hash.
        chat_template: Whether a chat template was applied, None where unknown.
        chat_template_sha: The template's hash, None where unknown or not applied.
        system_instruction: The system prompt, or None.
        generation_kwargs: Settings of the first request.
        higher_is_better: Direction per metric, where known.
        limit: The run's ``--limit``, or None.
        n_original: Documents in the task, None where unknown.
        n_effective: Documents the run was to answer, None where unknown.
        answers: Sorted by ``doc_id``, then in the order of the filters.
        path: The samples file.
        results_path: The results file beside it, or None.
        sha256: Hash of the samples file's bytes.
        model_args: As logged.
        task_config: The task's configuration as logged.
        partial: Why the run is incomplete, or None.
        notices: What was left out or could not be checked while reading, a line each.
    """

    model: str
    base_model: str
    task: str
    date: str
    task_version: str | None
    n_shot: int | None
    few_shot: dict[str, Any]
    chat_template: bool | None
    chat_template_sha: str | None
    system_instruction: str | None
    generation_kwargs: dict[str, Any]
    higher_is_better: dict[str, bool]
    limit: float | None
    n_original: int | None
    n_effective: int | None
    answers: list[LoggedAnswer]
    path: Path
    results_path: Path | None
    sha256: str
    model_args: str | dict[str, Any]
    task_config: dict[str, Any]
    partial: str | None
    notices: list[str] = field(default_factory=list)

    @property
    def filters(self) -> tuple[str | None, ...]:
        """The filters of the answers, in the order in which they were applied."""
        return tuple(dict.fromkeys(answer.filter for answer in self.answers))


def find_runs(spec: str | Path | Sequence[str | Path], task: str | None = None) -> list[LoggedRun]:
    """All logged runs of a task.

    Args:
        spec: A samples file, a directory (searched with its subdirectories), a glob, or several.
        task: The task's name, or None for every task that is found.

    Returns:
        Sorted by name. Runs of one model are told apart by the directory that differs, else by
        date: ``model@directory``. Incomplete runs are included and say so in ``partial``.

    Raises:
        DataError: Nothing is found, or a file is damaged, empty or contradicts itself.
    """
    found = _discover(spec)
    picked = found
    if task is not None:
        picked = [replace(entry, task=task) for entry in found if _is_of_task(entry, task)]
    if not picked:
        where = ", ".join(map(str, _as_list(spec)))
        others = sorted({entry.task for entry in found if entry.task})
        hint = f"; they hold {', '.join(others)}" if others else ""
        name = f" of task {task}" if task else ""
        raise DataError(
            f"{where}: no samples{name} found, expected samples_<task>_<date>.jsonl as lm_eval "
            f"--log_samples writes it{hint}"
        )
    seen = _Seen()
    runs = [_read_run(entry, seen) for entry in picked]
    return sorted(_told_apart(_without_copies(runs)), key=lambda run: (run.model, run.task))


def exclude_runs(runs: Sequence[LoggedRun], names: Sequence[str]) -> list[LoggedRun]:
    """The runs whose model is not named.

    Args:
        runs: Runs found together.
        names: Models to leave out: a run's name, or a model's name for all its runs; also in the
            form the harness gives to directories (``org__model``).

    Raises:
        UsageError: A name fits no run; the message lists those that are there.
    """
    kept = list(runs)
    for name in names:
        fits = [run for run in runs if is_named(run, name)]
        if not fits:
            there = ", ".join(run.model for run in runs)
            raise UsageError(f"no logged run of model {name!r} to leave out; there are: {there}")
        kept = [run for run in kept if run not in fits]
    return kept


def is_named(run: LoggedRun, name: str) -> bool:
    """Whether the name means this run: its own, its model's, or either as a directory's name."""
    return name in {
        form
        for known in (run.model, run.base_model)
        for form in (known, re.sub(r"[\"<>:/|\\?*\[\]]+", "__", known))
    }


@dataclass(frozen=True)
class _Entry:
    """A samples file; formats before 0.4.3 tell neither task nor date in its name."""

    path: Path
    task: str | None
    date: str


@dataclass(frozen=True)
class _Seen:
    """Documents and prompts of all runs, so that equal ones are kept in memory once."""

    docs: dict[str, dict[str, Any]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)


def _as_list(spec: str | Path | Sequence[str | Path]) -> list[str | Path]:
    return [spec] if isinstance(spec, str | Path) else list(spec)


def _discover(spec: str | Path | Sequence[str | Path]) -> list[_Entry]:
    """Samples files under the given places, each once, sorted by path."""
    entries: dict[Path, _Entry] = {}
    for one in _as_list(spec):
        path = Path(one).expanduser()
        if path.exists():
            matches = [path]
        else:
            matches = [Path(match) for match in glob.glob(str(path), recursive=True)]  # noqa: PTH207  Path.glob takes no absolute pattern
            if not matches:
                raise DataError(f"{one}: no such file or directory of samples")
        for match in matches:
            named = match.is_file()
            files = [match] if named else sorted(match.rglob("*.json*"))
            for file in files:
                entry = _entry(file, named=named and match == path)
                if entry is not None:
                    entries.setdefault(file.resolve(), entry)
    return _without_gzipped_twins([entries[key] for key in sorted(entries)])


def _entry(file: Path, *, named: bool) -> _Entry | None:
    if not file.is_file() or not file.name.endswith(_SUFFIXES):
        if named:
            raise DataError(f"{file}: expected a samples file ending in .jsonl or .jsonl.gz")
        return None
    if match := _SAMPLES.match(file.name):
        return _Entry(file, match["task"], match["date"])
    # A file that the user names is taken at his word, one that is come across has to look like a
    # list of samples: directories hold results, configurations and data sets, too.
    if named or (file.name.endswith(".jsonl") and _starts_a_list(file)):
        return _Entry(file, None, "")
    return None


def _starts_a_list(file: Path) -> bool:
    with file.open("rb") as stream:
        return stream.read(64).lstrip().startswith(b"[")


def _without_gzipped_twins(entries: list[_Entry]) -> list[_Entry]:
    plain = {str(entry.path) for entry in entries}
    return [
        entry
        for entry in entries
        if str(entry.path).removesuffix(".gz") not in plain - {str(entry.path)}
    ]


def _is_of_task(entry: _Entry, task: str) -> bool:
    """Whether a file belongs to the task, as far as its name tells."""
    if entry.task is not None:
        return entry.task == task
    stem = re.sub(r"\.jsonl?(\.gz)?$", "", entry.path.name)
    # 0.4.0 to 0.4.2 wrote <argument>__<value>_<task>; another name was given by the user.
    return stem.endswith(f"_{task}") or "__" not in stem


def _read_run(entry: _Entry, seen: _Seen) -> LoggedRun:
    """Read one samples file and the results beside it."""
    path, notices = entry.path, list[str]()
    data = _bytes_of(path, notices)
    rows, truncated = _rows_of(path, data, notices)
    if not rows:
        raise DataError(f"{path}: holds no samples; run lm_eval again with --log_samples")
    results_path, results = _results_beside(entry)
    task = entry.task or _task_of_old_file(path, results)
    config = _part(results, "configs", task)
    if results_path is None:
        notices.append(
            f"{path}: no results file beside it, so task version, few-shot settings and chat "
            "template are not checked"
        )
    labels = _filters_of(rows, config, _part(results, "results", task))
    answers = _answers(path, rows, labels, seen, notices)
    counts = _part(results, "n-samples", task)
    run_config = results.get("config") or {}
    answered = len({answer.doc_id for answer in answers}) + truncated
    limit, original, effective = (
        run_config.get("limit"),
        counts.get("original"),
        counts.get("effective"),
    )
    version = _part(results, "versions").get(task)
    n_shot = _part(results, "n-shot").get(task, config.get("num_fewshot"))
    base = _model_name(entry, task, results)
    return LoggedRun(
        model=base,
        base_model=base,
        task=task,
        date=entry.date,
        task_version=None if version is None else str(version),
        n_shot=None if n_shot is None else int(n_shot),
        few_shot=_few_shot(config, run_config, int(n_shot or 0)),
        chat_template=results["chat_template"] is not None if "chat_template" in results else None,
        chat_template_sha=results.get("chat_template_sha"),
        system_instruction=results.get("system_instruction"),
        generation_kwargs=answers[0].requests[0].generation_kwargs if answers[0].requests else {},
        higher_is_better=_directions(config, _part(results, "higher_is_better", task)),
        limit=limit,
        n_original=original,
        n_effective=effective,
        answers=answers,
        path=path,
        results_path=results_path,
        sha256=hashlib.sha256(data).hexdigest(),
        model_args=run_config.get("model_args") or "",
        task_config=config,
        partial=_why_partial(limit, original, effective, answered),
        notices=notices,
    )


def _bytes_of(path: Path, notices: list[str]) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    if not path.name.endswith(".gz"):
        return data
    unpacked, rest = bytearray(), data
    try:
        while rest:  # a gzip file may have several members
            member = zlib.decompressobj(wbits=31)
            unpacked += member.decompress(rest)
            if not member.eof:
                notices.append(f"{path}: the gzip file ends early; its whole lines were read")
                break
            rest = member.unused_data
    except zlib.error as error:
        raise DataError(f"{path}: is no intact gzip file ({error})") from error
    return bytes(unpacked)


def _rows_of(path: Path, data: bytes, notices: list[str]) -> tuple[list[dict[str, Any]], int]:
    """The rows, and how many were lost at the end."""
    if data.lstrip()[:1] == b"[":
        try:
            rows = json.loads(data)
        except ValueError as error:
            raise DataError(f"{path}: is no intact JSON list ({error}); run it again") from error
        numbered = list(enumerate(rows, start=1))
        truncated = 0
    else:
        lines = [(no, line) for no, line in enumerate(data.split(b"\n"), 1) if line.strip()]
        numbered = []
        for number, line in lines:
            row, fault = _parsed(line)
            if fault is None:
                numbered.append((number, row))
            elif number != lines[-1][0]:
                raise DataError(
                    f"{path}, line {number}: is no JSON ({fault}); restore the file or delete the "
                    "line"
                )
            else:
                notices.append(f"{path}: its last line ({number}) is cut off and was left out")
        truncated = len(lines) - len(numbered)
    for number, row in numbered:
        if not isinstance(row, dict) or not isinstance(row.get("doc"), dict):
            raise DataError(
                f"{path}, row {number}: expected a logged sample with a doc, got "
                f"{json.dumps(row)[:60]}; give the samples_….jsonl that --log_samples wrote"
            )
        doc_id = row.get("doc_id")
        if not isinstance(doc_id, int) or isinstance(doc_id, bool):
            raise DataError(f"{path}, row {number}: doc_id is {doc_id!r}, expected a whole number")
    return [row for _, row in numbered], truncated


def _parsed(line: bytes) -> tuple[Any, str | None]:
    """The value of a line of JSON, or what is wrong with it."""
    try:
        return json.loads(line), None
    except ValueError as error:
        return None, str(error)


def _results_beside(entry: _Entry) -> tuple[Path | None, dict[str, Any]]:
    folder = entry.path.parent
    if entry.date:
        candidates = sorted(
            other
            for other in folder.glob(f"*_{entry.date}.json")
            if not other.name.startswith("samples_")
        )
    else:
        candidates = [folder / "results.json"] if (folder / "results.json").is_file() else []
    for path in candidates:
        try:
            results = json.loads(path.read_bytes())
        except ValueError as error:
            raise DataError(f"{path}: is no intact results file ({error})") from error
        if not isinstance(results, dict) or "results" not in results:
            continue
        if not entry.date:
            # Before 0.4.3 each run overwrote results.json; it counts only for its own samples.
            args = str((results.get("config") or {}).get("model_args", ""))
            if not entry.path.name.startswith(re.sub("/|=", "__", args) + "_"):
                continue
        return path, results
    return None, {}


def _part(results: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """A nested mapping of a results file, empty where it is missing."""
    value: Any = results
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _task_of_old_file(path: Path, results: Mapping[str, Any]) -> str:
    stem = re.sub(r"\.jsonl?(\.gz)?$", "", path.name)
    fits = [name for name in _part(results, "configs") if stem.endswith(f"_{name}")]
    return max(fits, key=len) if fits else stem.rpartition("_")[2]


def _model_name(entry: _Entry, task: str, results: Mapping[str, Any]) -> str:
    if results.get("model_name"):
        return str(results["model_name"])
    args = (results.get("config") or {}).get("model_args") or ""
    if isinstance(args, str):
        args = dict(part.split("=", 1) for part in args.split(",") if "=" in part)
    for key in _NAME_ARGUMENTS:
        if args.get(key):
            return str(args[key])
    if entry.date:
        return entry.path.parent.name
    return re.sub(r"\.jsonl?(\.gz)?$", "", entry.path.name).removesuffix(f"_{task}")


def _few_shot(config: Mapping[str, Any], run: Mapping[str, Any], n_shot: int) -> dict[str, Any]:
    """What decides the few-shot examples besides their number."""
    if n_shot == 0:
        return {}
    settings: dict[str, Any] = {}
    few_shot = config.get("fewshot_config") or {}
    if isinstance(few_shot, dict):
        sampler = few_shot.get("sampler") or "default"
        if few_shot.get("samples") is not None:
            text = json.dumps(few_shot["samples"], sort_keys=True, default=str)
            settings["samples"] = hashlib.sha256(text.encode()).hexdigest()[:12]
    else:
        sampler = str(few_shot)
    settings["sampler"] = sampler
    settings["split"] = config.get("fewshot_split") or config.get("training_split")
    if sampler != "first_n" and run.get("fewshot_seed") is not None:
        settings["seed"] = run["fewshot_seed"]
    return settings


def _directions(config: Mapping[str, Any], logged: Mapping[str, Any]) -> dict[str, bool]:
    """Direction per metric: the task's configuration first, the results where it is silent."""
    directions = {name: value for name, value in logged.items() if isinstance(value, bool)}
    if "ter" in directions:
        directions["ter"] = False  # an error rate, which the harness used to log as a gain
    for entry in config.get("metric_list") or []:
        if isinstance(entry, dict) and isinstance(entry.get("higher_is_better"), bool):
            directions[str(entry.get("metric"))] = entry["higher_is_better"]
    return directions


def _why_partial(
    limit: float | None, original: int | None, effective: int | None, answered: int
) -> str | None:
    if limit is not None:
        return f"was run with --limit {limit:g}"
    if original is not None and effective is not None and effective < original:
        return f"was run on {effective} of {original} documents"
    expected = effective if effective is not None else original
    if expected is not None and answered < expected:
        return f"holds answers to {answered} of {expected} documents"
    return None


def _filters_of(
    rows: Sequence[Mapping[str, Any]], config: Mapping[str, Any], results: Mapping[str, Any]
) -> list[str | None]:
    """The filter of each row; formats before 0.4.7 tell it by the order of the rows alone."""
    if any("filter" in row for row in rows):
        return [row.get("filter") for row in rows]
    filter_list = config.get("filter_list") or []
    names = [str(entry["name"]) for entry in filter_list if isinstance(entry, dict)]
    if not names:
        names = list(dict.fromkeys(key.partition(",")[2] for key in results if "," in key))
    occurrence: Counter[int] = Counter()
    places = []
    for row in rows:
        places.append(occurrence[row["doc_id"]])
        occurrence[row["doc_id"]] += 1
    # Rows come in one block of documents per filter, within each rank of a parallel run.
    if len(names) > 1 and max(occurrence.values()) == len(names):
        return [names[place] for place in places]
    return [names[0] if len(names) == 1 else None] * len(rows)


def _answers(
    path: Path,
    rows: Sequence[Mapping[str, Any]],
    labels: Sequence[str | None],
    seen: _Seen,
    notices: list[str],
) -> list[LoggedAnswer]:
    kept: dict[tuple[int, str | None], LoggedAnswer] = {}
    order = {label: place for place, label in enumerate(dict.fromkeys(labels))}
    copies = 0
    for row, label in zip(rows, labels, strict=True):
        answer = _answer(row, label, seen)
        known = kept.setdefault((answer.doc_id, label), answer)
        if known is answer:
            continue
        if _same(known, answer):
            copies += 1
            continue
        under = "" if label is None else f" under filter {label}"
        raise DataError(
            f"{path}: document {answer.doc_id} stands twice{under} with different answers; keep "
            "one (in logs before 0.4.7, several filters are told apart only with the results file "
            "beside the samples)"
        )
    if copies:
        notices.append(f"{path}: {copies} rows repeat others word for word and were left out")
    return sorted(kept.values(), key=lambda answer: (answer.doc_id, order[answer.filter]))


def _same(one: LoggedAnswer, other: LoggedAnswer) -> bool:
    # As text, because a metric may be NaN, which equals nothing.
    return (one.content_hash, repr(one.requests), repr(one.filtered), repr(one.metrics)) == (
        other.content_hash,
        repr(other.requests),
        repr(other.filtered),
        repr(other.metrics),
    )


def _answer(
    row: Mapping[str, Any],
    label: str | None,
    seen: _Seen,
) -> LoggedAnswer:
    digest = content_hash_of_json(row["doc"])
    requests = _requests(row, seen)
    prompt_hash = row.get("prompt_hash")
    if not prompt_hash:
        prompt = requests[0].prompt if requests else ""
        prompt_hash = hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()
    names = row.get("metrics")
    if not isinstance(names, list):
        names = [name for name in row if name not in _NOT_METRICS]
    return LoggedAnswer(
        doc_id=row["doc_id"],
        doc=seen.docs.setdefault(digest, row["doc"]),
        content_hash=digest,
        doc_hash=row.get("doc_hash") or "",
        prompt_hash=prompt_hash,
        target=str(row.get("target", "")),
        requests=requests,
        filtered=row.get("filtered_resps"),
        filter=label,
        metrics={name: row[name] for name in names if name in row},
    )


def _requests(row: Mapping[str, Any], seen: _Seen) -> tuple[LoggedRequest, ...]:
    arguments = row.get("arguments") or []
    if isinstance(arguments, dict):  # since 0.4.3: {"gen_args_0": {"arg_0": …, "arg_1": …}}
        arguments = [
            list(args.values()) if isinstance(args, dict) else args for args in arguments.values()
        ]
    resps = row.get("resps") or []
    requests = []
    for place, args in enumerate(arguments):
        prompt = _text(args[0]) if args else ""
        settings = args[1] if len(args) > 1 and isinstance(args[1], dict) else {}
        given = resps[place] if place < len(resps) else []
        given = given if isinstance(given, list) else [given]
        requests.append(
            LoggedRequest(
                seen.texts.setdefault(prompt, prompt),
                settings,
                tuple(_text(resp) for resp in given),
            )
        )
    return tuple(requests)


def _text(value: Any) -> str:
    """A prompt or an answer as text; chat API models log a prompt as a list of one string."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        return value[0]
    return json.dumps(value, ensure_ascii=False)


def _without_copies(runs: list[LoggedRun]) -> list[LoggedRun]:
    """Each file once, though it may lie in two places."""
    kept: dict[tuple[str, str, str], LoggedRun] = {}
    for run in runs:
        known = kept.setdefault((run.base_model, run.task, run.sha256), run)
        if known is not run:
            known.notices.append(f"{run.path}: is a copy of {known.path} and was left out")
    return list(kept.values())


def _told_apart(runs: list[LoggedRun]) -> list[LoggedRun]:
    """A name for each run: the model's, with what tells its runs apart where it has several."""
    groups: dict[tuple[str, str], list[LoggedRun]] = {}
    for run in runs:
        groups.setdefault((run.task, run.base_model), []).append(run)
    return [named for group in groups.values() for named in _named(group)]


def _named(group: list[LoggedRun]) -> list[LoggedRun]:
    if len(group) == 1:
        return group
    folders = [tuple(reversed(run.path.resolve().parent.parts)) for run in group]
    choices: list[list[str]] = [
        [parts[level] if level < len(parts) else "" for parts in folders]
        for level in range(max(map(len, folders)))
    ]
    choices.append([run.date for run in group])
    choices.append([str(run.path) for run in group])
    marks = next(marks for marks in choices if len(set(marks)) == len(marks))
    return [
        replace(run, model=f"{run.base_model}@{mark}")
        for run, mark in zip(group, marks, strict=True)
    ]
