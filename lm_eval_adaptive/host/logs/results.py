"""The results file beside a samples file: what it says of the run, and of one task in it."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import DataError
from lm_eval_adaptive.host.columns import columns_read
from lm_eval_adaptive.host.logs.files import SamplesFile, stem_of
from lm_eval_adaptive.host.logs.records import TaskFacts
from lm_eval_adaptive.host.own_part import text_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# The order in which the harness looks for a model's name in its arguments.
_NAME_ARGUMENTS = ("peft", "delta", "pretrained", "model", "path", "engine")


@dataclass(frozen=True)
class RunResults:
    """What a results file says of a run and of one of its tasks; empty where there is none.

    Attributes:
        path: The file, None where there is none.
        task: The task.
        model: The model's name.
        model_args: As logged.
        task_version: Version in the task's metadata, None where unknown.
        n_shot: Number of few-shot examples, None where unknown.
        few_shot: What else decides the examples, see :class:`LoggedRun`.
        chat_template: Whether a chat template was applied, None where unknown.
        chat_template_sha: The template's hash.
        system_instruction: The system prompt.
        higher_is_better: Direction per metric, where known.
        limit: The run's ``--limit``.
        n_original: Documents in the task.
        n_effective: Documents the run was to answer.
        filters: Names of the filters in the order in which they were applied, where known.
        facts: What the task's configuration declares.
        totals: The harness's own score of all answers by ``metric,filter``.
    """

    path: Path | None
    task: str
    model: str
    model_args: str | Mapping[str, object]
    task_version: str | None
    n_shot: int | None
    few_shot: Mapping[str, object]
    chat_template: bool | None
    chat_template_sha: str | None
    system_instruction: str | None
    higher_is_better: Mapping[str, bool]
    limit: float | None
    n_original: int | None
    n_effective: int | None
    filters: tuple[str, ...]
    facts: TaskFacts
    totals: Mapping[str, float]


def read_results(entry: SamplesFile) -> RunResults:
    """What the results file beside a samples file says.

    Raises:
        DataError: The file is damaged.
    """
    path, results = _results_beside(entry)
    task = entry.task or _task_of_old_file(entry.path, results)
    config = _part(results, "configs", task)
    run = _part(results, "config")
    counts = _part(results, "n-samples", task)
    version = _part(results, "versions").get(task)
    n_shot = _part(results, "n-shot").get(task, config.get("num_fewshot"))
    return RunResults(
        path=path,
        task=task,
        model=_model_name(entry, task, results),
        model_args=run.get("model_args") or "",
        task_version=None if version is None else str(version),
        n_shot=None if n_shot is None else int(n_shot),
        few_shot=_few_shot(config, run, int(n_shot or 0)),
        chat_template=results["chat_template"] is not None if "chat_template" in results else None,
        chat_template_sha=results.get("chat_template_sha"),
        system_instruction=results.get("system_instruction"),
        higher_is_better=_directions(config, _part(results, "higher_is_better", task)),
        limit=run.get("limit"),
        n_original=counts.get("original"),
        n_effective=counts.get("effective"),
        filters=_filters(config, _part(results, "results", task)),
        facts=_facts(config),
        totals={
            key: float(value)
            for key, value in _part(results, "results", task).items()
            if "," in key and isinstance(value, int | float)
        },
    )


def knows_task(entry: SamplesFile) -> bool:
    """Whether there are results of the samples, with the entry's task among them."""
    path, results = _results_beside(entry)
    return path is not None and _knows_task(results, entry.task)


def _results_beside(entry: SamplesFile) -> tuple[Path | None, dict[str, Any]]:
    """The results of the run, beside the samples or in one of the two folders above."""
    folders = [entry.path.parent, *entry.path.resolve().parent.parents[:2]]
    pattern = f"*_{entry.date}.json" if entry.date else "results.json"
    candidates = [
        path
        for folder in folders
        for path in sorted(folder.glob(pattern))
        if not path.name.startswith("samples_") and path.is_file()
    ]
    for path in candidates:
        try:
            results = json.loads(path.read_bytes())
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}: is no intact results file ({error})") from error
        if not isinstance(results, dict) or "results" not in results:
            continue
        if path.parent != entry.path.parent and not _knows_task(results, entry.task):
            continue
        if not entry.date:
            # Before 0.4.3 each run overwrote results.json; it counts only for its own samples.
            args = str((results.get("config") or {}).get("model_args", ""))
            if not entry.path.name.startswith(re.sub("/|=", "__", args) + "_"):
                continue
        return path, results
    return None, {}


def _knows_task(results: Mapping[str, Any], task: str | None) -> bool:
    return task is None or task in _part(results, "results") or task in _part(results, "configs")


def _part(results: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """A nested mapping of a results file, empty where it is missing."""
    value: Any = results
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _task_of_old_file(path: Path, results: Mapping[str, Any]) -> str:
    stem = stem_of(path)
    fits = [name for name in _part(results, "configs") if stem.endswith(f"_{name}")]
    return max(fits, key=len) if fits else stem.rpartition("_")[2]


def _model_name(entry: SamplesFile, task: str, results: Mapping[str, Any]) -> str:
    if entry.model:
        return entry.model
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
    return stem_of(entry.path).removesuffix(f"_{task}")


def _few_shot(config: Mapping[str, Any], run: Mapping[str, Any], n_shot: int) -> dict[str, object]:
    """What decides the few-shot examples besides their number."""
    if n_shot == 0:
        return {}
    settings: dict[str, object] = {}
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


def _filters(config: Mapping[str, Any], results: Mapping[str, Any]) -> tuple[str, ...]:
    """The filters' names: the configuration's, else those of the results' keys."""
    listed = [each for each in config.get("filter_list") or [] if isinstance(each, dict)]
    if listed:
        return tuple(str(each["name"]) for each in listed)
    return tuple(dict.fromkeys(key.partition(",")[2] for key in results if "," in key))


def _facts(config: Mapping[str, Any]) -> TaskFacts:
    metadata = config.get("metadata") or {}
    return TaskFacts(
        dataset_path=str(config.get("dataset_path") or ""),
        dataset_name=str(config.get("dataset_name") or ""),
        split=str(config.get("test_split") or config.get("validation_split") or ""),
        adaptive=metadata.get("adaptive") or {},
        columns=columns_read(config),
        aggregations={
            str(entry.get("metric")): str(entry["aggregation"])
            for entry in config.get("metric_list") or []
            if isinstance(entry, dict) and entry.get("aggregation") is not None
        },
        description=text_of(config.get("description")) if config else None,
        doc_to_text=text_of(config["doc_to_text"]) if config.get("doc_to_text") else None,
    )
