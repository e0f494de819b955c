"""Scores of records of *Every Eval Ever* as one matrix.

This module owns which rows are one document and one metric's; it imports the reader of records. A
document is told by its prompt alone, white space apart, as a run tells its own: records carry no
columns, and other programs write references in ways of their own.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lm_eval_adaptive.core.identity import item_keys
from lm_eval_adaptive.core.matrix import ScoreMatrix
from lm_eval_adaptive.errors import DataError
from lm_eval_adaptive.host.logs.eee import Metric, Record, read_samples
from lm_eval_adaptive.host.logs.files import find_files, is_of_task
from lm_eval_adaptive.host.sight import sights

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class RecordedScores:
    """Scores of several records.

    Attributes:
        matrix: Models x documents, named by what models see of them.
        metric: The metric, as the records have it.
        sources: The files and their hashes.
        notices: What was left out, a line each.
    """

    matrix: ScoreMatrix
    metric: Metric
    sources: tuple[tuple[str, str], ...]
    notices: tuple[str, ...]


def recorded_scores(records: Sequence[Record], asked: str, task: str) -> RecordedScores:
    """One metric's scores of all models.

    Args:
        records: Of one evaluation, or of several of which one is the task's.
        asked: The metric, by any of the names that a record gives it; with a filter after a comma.
        task: The task; where records are of several evaluations, those named so are taken.

    Raises:
        DataError: The metric is not there, or records contradict each other.
    """
    records, notices = _of_task(records, task)
    name, _, filter_name = asked.partition(",")
    metric = _one_metric(records, name, filter_name)
    rows: dict[str, dict[str, float]] = {}
    for record in _newest(records, notices):
        rows[record.model] = _scores(record, metric)
    items = list(dict.fromkeys(item for own in rows.values() for item in own))
    column = {item: place for place, item in enumerate(items)}
    scores = np.full((len(rows), len(items)), np.nan)
    for place, own in enumerate(rows.values()):
        for item, score in own.items():
            scores[place, column[item]] = score
    programs = sorted({record.program for record in records if record.program})
    notices.append(f"scores are from records of Every Eval Ever ({', '.join(programs)})")
    bare = [item.partition("#")[0] for item in items]
    matrix = ScoreMatrix(
        tuple(rows), tuple(items), scores, {"sight_hash": np.array(bare, dtype=object)}
    )
    sources = tuple(
        (record.samples.name, hashlib.sha256(record.samples.read_bytes()).hexdigest())
        for record in records
    )
    return RecordedScores(matrix, metric, sources, tuple(notices))


def refuse_two_kinds(spec: Sequence[str], task: str) -> None:
    """Refuse places that hold logs of the harness beside records: which are meant is not known.

    Raises:
        DataError: They do.
    """
    logs = [each for each in find_files(list(spec)) if is_of_task(each, task)]
    if logs:
        raise DataError(
            f"--samples {' '.join(spec)}: holds records of Every Eval Ever and logs of lm_eval "
            f"({logs[0].path.name}); name the folder of one kind"
        )


def _of_task(records: Sequence[Record], task: str) -> tuple[list[Record], list[str]]:
    """The records of the evaluation that is called as the task, all where all are of one."""
    names = {metric.evaluation.partition("/")[0] for each in records for metric in each.metrics}
    if task not in names and len(names) <= 1:
        return list(records), []
    mine = [
        each
        for each in records
        if any(metric.evaluation.partition("/")[0] == task for metric in each.metrics)
    ]
    if not mine:
        raise DataError(
            f"the records of Every Eval Ever hold no evaluation {task}; they hold "
            f"{', '.join(sorted(names))}"
        )
    left = len(records) - len(mine)
    return mine, [f"{left} record(s) of other evaluations are left out"] if left else []


def _one_metric(records: Sequence[Record], name: str, filter_name: str) -> Metric:
    """The metric that is asked for, as all records have it."""
    found: dict[str, Metric] = {}
    there: set[str] = set()
    for record in records:
        for metric in record.metrics:
            there.add(metric.name)
            fits = name in metric.names or name == metric.evaluation
            if fits and (not filter_name or metric.name.endswith(f":{filter_name}")):
                known = found.setdefault(metric.name, metric)
                if known.lower_is_better != metric.lower_is_better:
                    raise DataError(
                        f"{record.aggregate}: {metric.name} is "
                        f"{'lower' if metric.lower_is_better else 'higher'} is better, in other "
                        "records the other way; they are not one metric"
                    )
    if name in found:
        return found[name]
    if len(found) == 1:
        return next(iter(found.values()))
    what = "is not in" if not found else f"is {' and '.join(sorted(found))} in"
    raise DataError(
        f"--metric {name} {what} the records of Every Eval Ever; they hold "
        f"{', '.join(sorted(there))}"
    )


def _newest(records: Sequence[Record], notices: list[str]) -> list[Record]:
    """One record of each model, the newest."""
    newest: dict[str, Record] = {}
    for record in sorted(records, key=lambda each: each.date):
        if record.model in newest:
            notices.append(
                f"{record.model} has several records; {record.aggregate.name} is the newest and "
                "taken"
            )
        newest[record.model] = record
    return [newest[name] for name in sorted(newest)]


def _scores(record: Record, metric: Metric) -> dict[str, float]:
    """One record's scores, by document."""
    seen: list[tuple[str, object]] = []
    scores: list[float] = []
    ids: list[str] = []
    for sample in read_samples(record):
        if sample.result_id not in ("", metric.name):
            continue
        if not sample.result_id and sample.evaluation != metric.evaluation:
            continue
        seen.append((sample.raw, sample.reference))
        scores.append(sample.score)
        ids.append(sample.sample_id)
    if not scores:
        raise DataError(f"{record.samples} holds no row of {metric.name}")
    twice = {each for each in ids if ids.count(each) > 1} if len(set(ids)) < len(ids) else set()
    for each in twice:
        values = {score for own, score in zip(ids, scores, strict=True) if own == each}
        if len(values) > 1:
            raise DataError(
                f"{record.samples}: sample {each} has {len(values)} unequal scores of "
                f"{metric.name}; keep one row for each sample and metric"
            )
    kept = {sample_id: place for place, sample_id in enumerate(ids)}  # equal repeats once
    places = sorted(kept.values())
    names = sights(lambda: [seen[place] for place in places], alone=True)
    keys = item_keys(names, range(len(places)))
    return {
        key: scores[place] for key, name, place in zip(keys, names, places, strict=True) if name
    }
