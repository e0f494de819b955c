"""One task of the harness: made to load, run plainly, run by us, and the two compared.

This module owns the comparison. Both sides are whole runs: the harness's ``simple_evaluate`` and
an adaptive run without a bank over all documents.
"""

from __future__ import annotations

import copy
import gzip
import json
import math
import numbers
import random
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from walk.columns import Columns, Search
from walk.shapes import shaped_documents
from walk.stand_ins import MODEL, AnySplits, Walker, no_hub

from lm_eval_adaptive.errors import AdaptiveError

if TYPE_CHECKING:
    from collections.abc import Mapping

METADATA = {
    "max_seq_lengths": [512], "pretrained": "made-up", "tokenizer": "made-up", "max_length": 512,
}  # fmt: skip
STYLES = ("a", "b")
REAL_DOCUMENTS = 12


@dataclass
class Finding:
    """What the walk found of a task.

    Attributes:
        task: Its name.
        family: The folder of its YAML.
        documents: ``real``, ``made up`` or ``its own``.
        outcome: ``same``, ``refused``, ``differs``, ``not loaded`` or ``no generation``.
        reason: Why, where it is not the same.
        metrics: Metrics that were compared.
        filters: Its filters.
    """

    task: str
    family: str
    yaml: str
    documents: str = "made up"
    outcome: str = "not loaded"
    reason: str = ""
    metrics: list[str] = field(default_factory=list)
    filters: list[str] = field(default_factory=list)
    seconds: float = 0.0


class NotGenerationError(Exception):
    """A Python task that asks for likelihoods."""


class Documents:
    """What ``datasets.load_dataset`` gives while a task is looked at."""

    def __init__(self, columns: Columns | list[dict[str, Any]], folder: Path | None = None) -> None:
        self.columns = columns
        self.folder = folder  # on disk, where ``map`` keeps what it made, as with the hub's data

    def load(self, *_: Any, split: str | None = None, **__: Any) -> Any:
        """In place of the library's own function."""
        found = AnySplits(self.rows)
        return found if split is None else found[str(split)]

    def rows(self, split: str) -> Any:
        """A split as the library's own kind of data set."""
        from datasets import Dataset

        given = self.columns if isinstance(self.columns, list) else self.columns.rows(split)
        if self.folder is None:
            return Dataset.from_list(given)
        place = self.folder / re.sub(r"\W", "_", split)
        if not place.is_dir():
            Dataset.from_list(given).save_to_disk(str(place))
        return Dataset.load_from_disk(str(place))


def read_config(path: Path) -> dict[str, Any]:
    """A task's configuration as the command line reads a YAML path."""
    from lm_eval.tasks._yaml_loader import load_yaml

    config = dict(load_yaml(str(path), resolve_func=True))
    if "task_list" in config:
        first = config.pop("task_list")[0]
        config.update(first if isinstance(first, dict) else {"task": first})
    for key in ("tag", "group"):
        config.pop(key, None)
    return config


def real_documents(folder: Path | None, family: str) -> list[dict[str, Any]] | None:
    """Real documents of a family, where there are any."""
    if folder is None:
        return None
    path = folder / f"{family.partition('/')[0]}.jsonl.gz"
    if not path.is_file():
        return None
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return rows[:REAL_DOCUMENTS]


def _load(manager: Any, config: Mapping[str, Any]) -> Any:
    random.seed(0)
    np.random.seed(1234)  # noqa: NPY002  as the harness seeds
    (task,) = manager.load([copy.deepcopy(dict(config))])["tasks"].values()
    return task


def attempt(manager: Any, config: Mapping[str, Any], columns: Any, box: list[int]) -> None:
    """Load, render and score with the harness alone; ``box`` says how far it came."""
    with no_hub(Documents(columns).load):
        task = _load(manager, config)
        if task.OUTPUT_TYPE != "generate_until":
            raise NotGenerationError(task.OUTPUT_TYPE)
        box[0] = 1
        if task.get_config("num_fewshot") is None:
            task.set_config(key="num_fewshot", value=0)
        task.set_fewshot_seed(seed=1234)
        task.build_all_requests()
        box[0] = 2
        for instance in task.instances:
            answer = Walker(STYLES[0])._answer(instance)  # noqa: SLF001
            instance.resps = [answer] * (instance.repeats or 1)
        task.apply_filters()
        by_doc: dict[int, list[Any]] = {}
        for instance in task.instances:
            by_doc.setdefault(instance.doc_id, []).append(instance)
        for instances in by_doc.values():
            for name in instances[0].filtered_resps:
                given = [each.filtered_resps[name] for each in instances]
                task.process_results(instances[0].doc, given)


def shaped(manager: Any, config: Mapping[str, Any], name: str) -> list[dict[str, Any]] | None:
    """Documents of the shape that a task's code wants, where one is known and works."""
    columns = shaped_documents(name)
    if columns is None:
        return None
    try:
        attempt(manager, config, columns, [0])
    except Exception:  # noqa: BLE001  the search says what the task wants
        return None
    return columns


def look_at(
    manager: Any, path: Path, root: Path, real: Path | None = None, budget: float = 40.0
) -> Finding:
    """What comes of a task whose YAML is ``path``."""
    family = str(path.parent.relative_to(root))
    found = Finding(path.stem, family, str(path.relative_to(root)))
    try:
        with no_hub(Documents(Columns({})).load):
            config = read_config(path)
    except Exception as error:  # noqa: BLE001  a package of the task's own may be missing
        found.reason = first_line(error)
        return found
    found.task = str(config["task"])
    columns: Any = real_documents(real, family)
    if columns is not None:
        try:
            attempt(manager, config, columns, [0])
            found.documents = "real"
        except Exception:  # noqa: BLE001  another task of the folder with other columns
            columns = None
    if columns is None:
        columns = shaped(manager, config, found.task)
    if columns is None:
        search = Search(lambda given, box: attempt(manager, config, given, box), config, budget)
        columns, outcome = search.run()
        if isinstance(outcome.error, NotGenerationError):
            found.outcome, found.reason = "no generation", str(outcome.error)
            return found
        if outcome.error is not None:
            stage = ("load", "render", "score")[outcome.stage]
            found.reason = f"does not {stage}: {first_line(outcome.error)}"
            return found
    with (
        tempfile.TemporaryDirectory() as folder,
        no_hub(Documents(columns, Path(folder)).load),
    ):
        compare(manager, config, found)
    return found


def compare(manager: Any, config: Mapping[str, Any], found: Finding) -> None:
    """Run the task plainly and by us, and put into ``found`` whether all is equal."""
    try:
        plain = {style: run_plainly(manager, config, style) for style in STYLES}
    except Exception as error:  # noqa: BLE001  any task's aggregation
        found.reason = f"the harness's own run fails: {first_line(error)}"
        return
    rows = next(iter(plain.values()))
    found.filters = list(dict.fromkeys(row["filter"] for row in rows))
    ours = None
    for metric, limits in metrics_of([row for each in plain.values() for row in each]):
        try:
            chosen = f"{metric},{found.filters[0]}"
            ours = run_by_us(manager, config, chosen, limits, len(rows))
        except AdaptiveError as error:
            found.outcome, found.reason = "refused", found.reason or str(error)
        except Exception as error:  # noqa: BLE001  what should have been a refusal
            found.outcome, found.reason = "differs", first_line(error)
            return
        else:
            break
    if ours is None:
        return
    found.metrics = sorted({name for row in rows for name in row["metrics"]})
    differences = [each for style in STYLES for each in _differences(plain[style], ours[style])]
    found.outcome = "differs" if differences else "same"
    found.reason = "; ".join(differences[:3])


def run_plainly(manager: Any, config: Mapping[str, Any], style: str) -> list[dict[str, Any]]:
    """The harness's own rows of a model on the task."""
    from lm_eval import simple_evaluate

    results = simple_evaluate(
        model=Walker(style),
        tasks=[copy.deepcopy(dict(config))],
        task_manager=manager,
        log_samples=True,
        bootstrap_iters=0,
        confirm_run_unsafe_code=True,
    )
    (rows,) = results["samples"].values()
    return list(rows)


def run_by_us(
    manager: Any,
    config: Mapping[str, Any],
    metric: str,
    limits: tuple[float, float],
    documents: int,
) -> dict[str, list[dict[str, Any]]]:
    """Our rows of both models, all documents asked."""
    from lm_eval_adaptive.host.settings import HarnessSettings, make_candidates
    from lm_eval_adaptive.run import loop
    from lm_eval_adaptive.run.config import AdaptiveConfig

    kept = loop.make_task_manager
    loop.make_task_manager = lambda settings: manager
    try:
        with tempfile.TemporaryDirectory() as folder:
            run = loop.AdaptiveRun(
                make_candidates(
                    [{"name": s, "model": MODEL, "model_args": {"style": s}} for s in STYLES],
                    "walk",
                ),
                HarnessSettings(
                    tasks=(copy.deepcopy(dict(config)),),
                    output_path=folder,
                    confirm_run_unsafe_code=True,
                ),
                AdaptiveConfig(
                    bank="none", metric=metric, range=limits, items_per_model=documents, min_items=1
                ),
            )
            outcome = run.run()
            (task,) = outcome.tasks.values()
            return {
                style: next(iter(task.results[style]["samples"].values()), [])
                if task.results[style]
                else []
                for style in STYLES
            }
    finally:
        loop.make_task_manager = kept


def metrics_of(rows: list[dict[str, Any]]) -> list[tuple[str, tuple[float, float]]]:
    """The metrics, those that give numbers first, each with a range that holds its values."""
    names = list(dict.fromkeys(name for row in rows for name in row["metrics"]))
    found = []
    for name in names:
        values = [row[name] for row in rows if isinstance(row.get(name), numbers.Real)]
        finite = [float(value) for value in values if math.isfinite(value)]
        limits = (min(0.0, *finite), max(1.0, *finite) + 1.0) if finite else (0.0, 100.0)
        found.append((not finite, name, limits))
    return [(name, limits) for _, name, limits in sorted(found, key=lambda each: each[0])]


def _differences(plain: list[dict[str, Any]], ours: list[dict[str, Any]]) -> list[str]:
    theirs = {(row["doc_id"], row["filter"]): row for row in plain}
    mine = {(row["doc_id"], row["filter"]): row for row in ours}
    if set(theirs) != set(mine):
        missing = sorted(set(theirs) - set(mine))
        return [f"{len(missing)} of {len(theirs)} rows are missing, the first is {missing[:1]}"]
    return [
        f"doc {key[0]} {key[1]}: {name} {row[name]!r:.60} {mine[key].get(name)!r:.60}"
        for key, row in theirs.items()
        for name in ("prompt_hash", "target_hash", "resps", "filtered_resps", *row["metrics"])
        if not _equal(row[name], mine[key].get(name))
    ]


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, numbers.Real) and isinstance(other, numbers.Real):
        return bool(one == other or (math.isnan(one) and math.isnan(other)))
    return bool(one == other) or str(one) == str(other)


def first_line(error: BaseException) -> str:
    """An error's kind and the first line of its text."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}"[:200] if lines else type(error).__name__
