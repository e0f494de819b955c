"""Records of *Every Eval Ever*: results of many programs in one form, read as they are.

This module owns that form (schema 0.3): an aggregate JSON file for each model and evaluation, and
beside it a ``*_samples.jsonl`` with a row for each sample and metric. It imports the reading of
rows and knows no task. The package ``every-eval-ever`` writes such files from logs of other
programs (its converters of inspect_ai and HELM); reading them takes nothing but JSON.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import DataError
from lm_eval_adaptive.host.logs.files import as_list
from lm_eval_adaptive.host.logs.reading import RowReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

KNOWN = (0, 3)  # the newest schema that is read
_ENDING = "_samples.jsonl"


@dataclass(frozen=True)
class Metric:
    """A metric as the aggregate file describes it.

    Attributes:
        name: Its id, by which samples' rows name it.
        evaluation: The evaluation it belongs to.
        lower_is_better: Its direction.
        range: Its lowest and highest value, None where not told or unbounded.
        names: Under what a user may ask for it.
    """

    name: str
    evaluation: str
    lower_is_better: bool
    range: tuple[float, float] | None
    names: frozenset[str]


@dataclass(frozen=True)
class Record:
    """One model's evaluation.

    Attributes:
        aggregate: The aggregate file.
        samples: The file of its samples.
        model: The model's id.
        evaluation_id: The record's id.
        date: When it was made, as text that sorts.
        metrics: Its metrics.
        program: Which program evaluated.
    """

    aggregate: Path
    samples: Path
    model: str
    evaluation_id: str
    date: str
    metrics: tuple[Metric, ...]
    program: str


@dataclass(frozen=True)
class Sample:
    """A row of the samples: one metric's value for one sample."""

    sample_id: str
    result_id: str
    evaluation: str
    raw: str
    reference: str
    score: float


def find_records(spec: str | Path | Sequence[str | Path]) -> list[Record]:
    """All records under some folders, files or globs, by model and date; none is an empty list.

    Raises:
        DataError: A record is of a newer schema, damaged, or lacks the file of its samples.
    """
    found: dict[Path, Record] = {}
    for each in as_list(spec):
        for path in _candidates(Path(each)):
            record = _record(path)
            if record is not None:
                found[path.resolve()] = record
    return sorted(found.values(), key=lambda each: (each.model, each.date, str(each.aggregate)))


def _candidates(path: Path) -> Iterator[Path]:
    """Aggregate files at a place; of a file of samples the aggregate beside it."""
    if path.is_dir():
        yield from sorted(path.rglob("*.json"))
    elif path.name.endswith(_ENDING):
        yield from sorted(path.parent.glob("*.json"))
    elif path.suffix == ".json" and path.is_file():
        yield path
    elif not path.exists():
        base = Path(path.anchor) if path.is_absolute() else Path()
        pattern = str(path.relative_to(path.anchor)) if path.is_absolute() else str(path)
        if any(sign in pattern for sign in "*?["):
            for each in sorted(base.glob(pattern)):
                yield from _candidates(each)


def _record(path: Path) -> Record | None:
    """The record that a JSON file is, None where it is none."""
    with path.open("rb") as file:
        head = file.read(4096)
    if b'"schema_version"' not in head and b'"evaluation_id"' not in head:
        return None
    try:
        data = json.loads(path.read_bytes())
    except (ValueError, RecursionError, OSError):
        return None
    if not isinstance(data, dict) or not {"evaluation_id", "evaluation_results"} <= data.keys():
        return None
    _check_schema(path, str(data.get("schema_version", "")))
    try:
        library = data.get("eval_library") or {}
        return Record(
            aggregate=path,
            samples=_samples_of(path, data),
            model=str(data["model_info"].get("id") or data["model_info"]["name"]),
            evaluation_id=str(data["evaluation_id"]),
            date=str(data.get("evaluation_timestamp") or data.get("retrieved_timestamp") or ""),
            metrics=tuple(_metric(each) for each in data["evaluation_results"]),
            program=f"{library.get('name', '')} {library.get('version', '')}".strip(),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DataError(
            f"{path} is a damaged record of Every Eval Ever ({type(error).__name__}: {error}); "
            "`every_eval_ever validate` tells what is wrong with it"
        ) from error


def _check_schema(path: Path, version: str) -> None:
    numbers = tuple(int(each) for each in version.split(".")[:2] if each.isdecimal())
    if len(numbers) == 2 and numbers > KNOWN:
        raise DataError(
            f"{path} is a record of Every Eval Ever of schema {version}, this version reads up to "
            f"{KNOWN[0]}.{KNOWN[1]}; update lm-eval-adaptive"
        )


def _samples_of(path: Path, data: dict[str, Any]) -> Path:
    """The file of a record's samples: beside it, by its own name or by the one it gives.

    Raises:
        DataError: There is none.
    """
    given = (data.get("detailed_evaluation_results") or {}).get("file_path") or ""
    for name in (f"{path.stem}{_ENDING}", Path(str(given)).name):
        if name and (beside := path.with_name(name)).is_file():
            return beside
    others = sorted(path.parent.glob(f"*{_ENDING}"))
    if len(others) == 1 and len(list(path.parent.glob("*.json"))) == 1:
        return others[0]
    wanted = Path(str(given)).name or f"{path.stem}{_ENDING}"
    raise DataError(
        f"{path} is a record of Every Eval Ever without its samples: no {wanted} beside it; put it "
        "there, for totals alone calibrate nothing"
    )


def _metric(given: dict[str, Any]) -> Metric:
    config = given["metric_config"]
    evaluation = str(given["evaluation_name"])
    name = str(given.get("evaluation_result_id") or config.get("metric_id") or evaluation)
    names = {name, name.partition(":")[0], name.rpartition(":")[2]}
    names |= {str(config[key]) for key in ("metric_id", "metric_name") if config.get(key)}
    return Metric(
        name=name,
        evaluation=evaluation,
        lower_is_better=bool(config["lower_is_better"]),
        range=_range(config),
        names=frozenset(names),
    )


def _range(config: dict[str, Any]) -> tuple[float, float] | None:
    if config.get("score_type") == "binary":
        return 0.0, 1.0
    try:
        low, high = float(config["min_score"]), float(config["max_score"])
    except (KeyError, TypeError, ValueError):
        return None
    return (low, high) if low < high and max(-low, high) < float("inf") else None


def read_samples(record: Record) -> Iterator[Sample]:
    """A record's rows in order, one at a time.

    Raises:
        DataError: A row is damaged, of another record, or no single turn.
    """
    for number, _, text in RowReader([record.samples]):
        try:
            row = json.loads(text)
            kind = row["interaction_type"]
            if kind != "single_turn":
                raise DataError(
                    f"{record.samples} line {number} is a {kind} sample; only single turns are "
                    "documents that an adaptive run can ask"
                )
            if row["evaluation_id"] != record.evaluation_id:
                raise DataError(
                    f"{record.samples} line {number} is of evaluation {row['evaluation_id']}, "
                    f"{record.aggregate.name} of {record.evaluation_id}; keep each record with its "
                    "own samples"
                )
            given = row["input"]
            references = given.get("reference") or []
            if isinstance(references, str):
                references = [references]
            yield Sample(
                sample_id=str(row["sample_id"]),
                result_id=str(row.get("evaluation_result_id") or ""),
                evaluation=str(row.get("evaluation_name") or ""),
                raw=str(given["raw"]),
                reference=str(references[0]) if references else "",
                score=float("nan") if row.get("error") else float(row["evaluation"]["score"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"{record.samples} line {number} is no sample of Every Eval Ever "
                f"({type(error).__name__}: {error})"
            ) from error
