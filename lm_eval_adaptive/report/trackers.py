"""``--wandb_args`` and ``--trackio_args``: what a run found, in the trackers the field uses.

This module owns what is logged where. It uses the harness's own loggers for the results of each
model, one tracker run per model as the harness has it, and adds one for the ranking. Losing a
tracker costs a run nothing: everything is in the files by then.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import UsageError
from lm_eval_adaptive.redact import hide, redact

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lm_eval_adaptive.host.settings import HarnessSettings
    from lm_eval_adaptive.records.outcome import RunOutcome
    from lm_eval_adaptive.records.ranking import PairVerdict, RankingDocument, TraceStep

log = logging.getLogger(__name__)

RANKING_COLUMNS = (
    "rank", "model", "score", "score_se", "score_low", "score_high", "items", "cost", "tied_with",
)  # fmt: skip
# Arguments that a tracker shows to whoever looks.
_SHOWN = frozenset({"config", "notes", "tags", "job_type"})
PAIR_COLUMNS = ("a", "b", "p_a_better", "verdict", "required")
TRACE_COLUMNS = (
    "step", "round", "model", "doc_id", "raw_score", "score", "estimate", "estimate_half",
)  # fmt: skip


def check_trackers(settings: HarnessSettings) -> None:
    """Refuse before anything is asked what cannot be tracked at the end.

    Raises:
        UsageError: A tracker's package is missing, or its arguments do not fit several models.
    """
    for option, package in (("wandb_args", "wandb"), ("trackio_args", "trackio")):
        given = getattr(settings, option)
        if not given:
            continue
        if package not in sys.modules and importlib.util.find_spec(package) is None:
            raise UsageError(f"--{option} needs the package {package}: pip install {package}")
        if "id" in given:
            raise UsageError(
                f"--{option} id={given['id']}: an adaptive run logs a run per model and one of the "
                "ranking, which cannot share an id; use group= and name="
            )


def track(settings: HarnessSettings, outcome: RunOutcome) -> None:
    """Log the results of every model, then the ranking, to the trackers that were asked for."""
    for wanted, name, log_all in (
        (settings.wandb_args, "W&B", _to_wandb),
        (settings.trackio_args, "Trackio", _to_trackio),
    ):
        if wanted:
            try:
                log_all(settings, outcome)
            except Exception as error:  # noqa: BLE001  a tracker must not cost a run its result
                log.warning(
                    "logging to %s failed (%s: %s); all files are in %s",
                    name,
                    type(error).__name__,
                    " ".join(hide(str(error)).split()),
                    outcome.output_path,
                )


def _names(given: Mapping[str, Any], outcome: RunOutcome, part: str) -> dict[str, Any]:
    """Arguments of one tracker run: all of an adaptive run stand in one group."""
    prefix = f"{given['name']}/" if given.get("name") else ""
    group = given.get("group") or given.get("name") or outcome.output_path.resolve().name
    # What the tracker shows; the rest it needs as it is.
    shown = redact({key: given[key] for key in _SHOWN & given.keys()})
    return {**given, **shown, **redact({"group": group, "name": f"{prefix}{part}"})}


def _by_model(outcome: RunOutcome) -> dict[str, list[dict[str, Any]]]:
    """The harness's results of each model that answered, one per task."""
    found: dict[str, list[dict[str, Any]]] = {}
    for task in outcome.tasks.values():
        for model, results in task.results.items():
            if results:
                found.setdefault(model, []).append(results)
    return found


def _log_model(logger: Any, results: Sequence[Mapping[str, Any]]) -> None:
    for each in results:
        plain = {key: value for key, value in each.items() if key != "samples"}
        logger.post_init(plain)
        logger.log_eval_result()
        if "samples" in each:
            logger.log_eval_samples(each["samples"])


def _rows(records: Sequence[PairVerdict | TraceStep], columns: Sequence[str]) -> list[list[Any]]:
    return [[getattr(record, column) for column in columns] for record in records]


def _ranking_rows(ranking: RankingDocument) -> list[list[Any]]:
    return [
        [
            entry.rank,
            entry.model,
            entry.score,
            entry.score_se,
            *entry.score_ci,
            entry.items,
            entry.cost,
            ", ".join(entry.tied_with),
        ]
        for entry in ranking.ranking
    ]


def _tables(ranking: RankingDocument) -> dict[str, tuple[Sequence[str], list[list[Any]]]]:
    """Columns and rows of what is shown as tables."""
    return {
        "ranking": (RANKING_COLUMNS, _ranking_rows(ranking)),
        "pairs": (PAIR_COLUMNS, _rows(ranking.pairs, PAIR_COLUMNS)),
        "trace": (TRACE_COLUMNS, _rows(ranking.trace, TRACE_COLUMNS)),
    }


def _artifact(module: Any, outcome: RunOutcome) -> Any:
    """The ranking files and the report as one artifact; both trackers take it alike."""
    artifact = module.Artifact("adaptive_ranking", type="adaptive_ranking")
    found = [task.files[0] for task in outcome.tasks.values()]
    for path in [*found, outcome.summary_file, outcome.report]:
        if path is not None:
            artifact.add_file(str(path))
    return artifact


def _summary(ranking: RankingDocument) -> dict[str, Any]:
    """What a table of tracker runs can sort and filter by."""
    task = ranking.task
    decided = [pair for pair in ranking.pairs if pair.decided]
    return {
        f"{task}/first": ranking.ranking[0].model if ranking.ranking else "",
        f"{task}/pairs_decided": len(decided),
        f"{task}/pairs": len(ranking.pairs),
        f"{task}/items_total": ranking.items_total,
        f"{task}/fraction": ranking.fraction,
        f"{task}/cost_total": ranking.cost_total,
        f"{task}/stop_reason": ranking.stop_reason,
        f"{task}/signature": ranking.signature,
    }


def _to_wandb(settings: HarnessSettings, outcome: RunOutcome) -> None:
    from lm_eval.loggers import WandbLogger

    wandb: Any = importlib.import_module("wandb")
    given, more = settings.wandb_args, redact(dict(settings.wandb_config_args))
    for model, results in _by_model(outcome).items():
        logger = WandbLogger(_names(given, outcome, model), dict(more))
        try:
            _log_model(logger, results)
        finally:
            logger.run.finish()
    arguments = _names(given, outcome, "ranking")
    step = arguments.pop("step", None)
    run = wandb.init(**arguments)
    try:
        if more:
            run.config.update(more)
        for name, task in outcome.tasks.items():
            ranking = task.ranking
            run.log(
                {
                    f"{name}/{part}": wandb.Table(columns=list(columns), data=rows)
                    for part, (columns, rows) in _tables(ranking).items()
                },
                step=step,
            )
            run.summary.update(_summary(ranking))
        run.log_artifact(_artifact(wandb, outcome))
    finally:
        run.finish()


def _to_trackio(settings: HarnessSettings, outcome: RunOutcome) -> None:
    import pandas as pd
    from lm_eval.loggers import TrackioLogger

    trackio: Any = importlib.import_module("trackio")
    given = settings.trackio_args
    for model, results in _by_model(outcome).items():
        logger = TrackioLogger(_names(given, outcome, model))
        try:
            _log_model(logger, results)
        finally:
            logger.finish()
    logger = TrackioLogger(_names(given, outcome, "ranking"))
    try:
        for name, task in outcome.tasks.items():
            numbers = {
                key: value
                for key, value in _summary(task.ranking).items()
                if not isinstance(value, str)
            }
            tables = {
                f"{name}/{part}": trackio.Table(dataframe=pd.DataFrame(rows, columns=list(columns)))
                for part, (columns, rows) in _tables(task.ranking).items()
            }
            trackio.log({**numbers, **tables}, step=logger.step)
        if hasattr(trackio, "Artifact"):
            trackio.log_artifact(_artifact(trackio, outcome))
        else:
            log.warning(
                "this version of trackio keeps no files: the ranking and report.html are in %s",
                outcome.output_path,
            )
    finally:
        logger.finish()
