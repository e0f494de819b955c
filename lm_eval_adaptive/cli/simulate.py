"""``simulate``: its arguments, its matrices and its JSON.

This module owns what stands between a command line and ``core.simulate``; it imports the tables
and, inside functions, the core's matrices, the log reader and rich.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import textwrap
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.cli.simulate_pools import add_regime_options, read_pools
from lm_eval_adaptive.cli.simulate_tables import show
from lm_eval_adaptive.core.plan import METHODS, Plan
from lm_eval_adaptive.errors import DataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lm_eval_adaptive.core.exam import Row
    from lm_eval_adaptive.core.matrix import ScoreMatrix
    from lm_eval_adaptive.core.regimes import Skipped
    from lm_eval_adaptive.core.summary import Summary


def add_parser(subparsers: Any) -> None:
    """Add the command to the harness's subcommands."""
    parser = subparsers.add_parser(
        "simulate",
        help="Replay the whole procedure on scores that are there: how many items, how good",
        description=(
            "Ranks some models of a score matrix with a bank calibrated on others, over many "
            "random partitions, by the default method and by baselines, and holds the rankings "
            "against the full scores. Random partitions flatter a bank: --regime draws models "
            "unlike those that calibrate."
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=textwrap.dedent("""
            examples:
              # A score file with the columns model, item, metric, score
              $ lm-eval-adaptive simulate --scores scores.parquet --metric rougeL

              # Logs of the harness; the default and the published method only
              $ lm-eval-adaptive simulate --samples logs --metric bleu_max \\
                  --methods default paper-1pl

              # Models of a family that did not calibrate
              $ lm-eval-adaptive simulate --scores scores.csv --metric judge \\
                  --holdout_models qwen-a qwen-b qwen-c

              # Models stronger than all that calibrate, and the few best; then every regime
              $ lm-eval-adaptive simulate --scores scores.csv --metric judge \\
                  --regime stronger top --methods default random-shared
              $ lm-eval-adaptive simulate --scores scores.csv --metric judge \\
                  --regime all --family families.csv --json regimes.json

              # A bank of one source, models of another over the same items
              $ lm-eval-adaptive simulate --scores mine.parquet --metric acc \\
                  --calibrate_on leaderboard.parquet
        """),
    )
    add = parser.add_argument
    add("--scores", action="append", default=[], metavar="FILE", help="Parquet or CSV; repeatable")
    add(
        "--samples",
        nargs="+",
        action="extend",
        default=[],
        metavar="DIR_OR_GLOB",
        help="Logs written by --log_samples, or records of Every Eval Ever",
    )
    add("--task", default=None, help="With --samples: the task, where the logs hold several")
    add(
        "--metric",
        nargs="+",
        action="extend",
        required=True,
        metavar="NAME[,FILTER]",
        help="Metric; with several --scores one for all, or one for each in their order",
    )
    add("--exclude_model", nargs="+", action="extend", default=[], metavar="NAME")
    add("--clip", default=None, metavar="LO,HI", help="Clip raw scores to these before anything")
    add("--lower_is_better", action="store_true")
    add(
        "--holdout",
        type=int,
        default=Plan.holdout,
        help="Models ranked in each partition (default: %(default)s)",
    )
    add(
        "--calibration",
        type=int,
        default=Plan.calibration,
        help="Most models that calibrate (default: %(default)s)",
    )
    add(
        "--partitions",
        type=int,
        default=Plan.partitions,
        help="Random partitions (default: %(default)s)",
    )
    add(
        "--items_per_model",
        type=int,
        nargs="+",
        default=list(Plan.lengths),
        metavar="N",
        help=f"Fixed test lengths (default: {' '.join(map(str, Plan.lengths))})",
    )
    add(
        "--adaptive-stop",
        "--adaptive_stop",
        action="store_true",
        help="Only tests that stop by themselves; both kinds are run by default",
    )
    add(
        "--max_items",
        type=int,
        default=Plan.max_items,
        help="Most items where it stops by itself",
    )
    add("--confidence", type=float, default=Plan.confidence)
    add("--round_size", type=int, default=Plan.round_size, help="Items asked of a model at once")
    add("--methods", nargs="+", default=list(METHODS), metavar="METHOD", choices=METHODS)
    add("--holdout_models", nargs="+", default=[], metavar="NAME", help="Rank these, once")
    add("--calibration_models", nargs="+", default=None, metavar="NAME")
    add("--costs", nargs="+", default=[], metavar="MODEL=COST", help="Cost of one item; others 1")
    add_regime_options(add)
    add(
        "--seed",
        type=int,
        default=Plan.seed,
        help="Partition r draws by seed + r (default: %(default)s)",
    )
    add("--jobs", type=int, default=None, help="Processes (default: one per core)")
    add("--json", default=None, metavar="FILE", help="Write rows and means here")
    parser.set_defaults(func=run)


def run(namespace: argparse.Namespace) -> int:
    """Simulate, print tables, write JSON."""
    from lm_eval_adaptive.records.files import check_file

    if namespace.json is not None:
        check_file(Path(namespace.json), "--json")
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from lm_eval_adaptive.core.regimes import plan_draws
    from lm_eval_adaptive.core.simulate import run_draws
    from lm_eval_adaptive.core.summary import summarise

    pools, regimes = read_pools(
        namespace, matrices(namespace), lambda matrix: _prepared(matrix, namespace)
    )
    plan = Plan(
        holdout=namespace.holdout,
        calibration=namespace.calibration,
        partitions=namespace.partitions,
        seed=namespace.seed,
        lengths=() if namespace.adaptive_stop else tuple(sorted(set(namespace.items_per_model))),
        natural=True,
        methods=tuple(dict.fromkeys(namespace.methods)),
        confidence=namespace.confidence,
        round_size=namespace.round_size,
        max_items=namespace.max_items,
        higher_is_better=not namespace.lower_is_better,
        costs=_costs(namespace.costs),
        ranked=tuple(namespace.holdout_models),
        calibrating=(
            None if namespace.calibration_models is None else tuple(namespace.calibration_models)
        ),
    )
    output = None if namespace.json is None else Path(namespace.json)
    if output is not None and output.exists():
        raise UsageError(f"{output} exists already; choose another file for --json")
    draws, skipped = plan_draws(pools, plan, regimes)
    columns = (TextColumn("partitions"), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, transient=True, console=_stderr()) as bar:
        task = bar.add_task("", total=len(draws))
        rows = run_draws(draws, plan, jobs=namespace.jobs, progress=lambda: bar.advance(task))
    means = summarise(rows)
    show(means, plan)
    report_skipped(skipped, len(pools) * len(regimes))
    if output is not None:
        _write(output, rows, means, {**asdict(plan), "regimes": regimes}, skipped)
        print(f"wrote {output}")
    return 0


def _stderr() -> Any:
    from rich.console import Console

    return Console(stderr=True)


def matrices(namespace: argparse.Namespace) -> list[tuple[str, str, ScoreMatrix]]:
    """The scores to simulate on: where from, the metric, the matrix; all of one direction.

    Raises:
        UsageError: Neither or both kinds of source are given, or metrics do not go with tables.
    """
    from lm_eval_adaptive.banks.sources import refuse_two_scales
    from lm_eval_adaptive.core.matrix import read_scores
    from lm_eval_adaptive.host.scoring import direction

    if bool(namespace.scores) == bool(namespace.samples):
        raise UsageError(
            "simulate takes --scores (a Parquet or CSV file) or --samples (logs of the harness); "
            "give one of them"
        )
    found: list[tuple[str, str, ScoreMatrix, bool]] = []
    if namespace.samples:
        for metric in namespace.metric:
            name, matrix, higher = _from_logs(namespace, metric)
            found.append((name, metric, matrix, _is_lower(namespace, higher)))
    else:
        metrics = namespace.metric
        if len(metrics) == 1:
            metrics = metrics * len(namespace.scores)
        if len(metrics) != len(namespace.scores):
            raise UsageError(
                f"{len(namespace.scores)} --scores and {len(metrics)} --metric: give one metric "
                "for all, or one for each"
            )
        for path, metric in zip(namespace.scores, metrics, strict=True):
            lower = _is_lower(namespace, direction(metric, None))
            matrix = read_scores(path, metric)
            if namespace.clip is None:
                kept = [name for name in matrix.models if name not in namespace.exclude_model]
                refuse_two_scales(matrix.select_models(kept), metric, path, "--clip 0,100")
            found.append((Path(path).stem, metric, matrix, lower))
    ready = [(name, metric, _prepared(matrix, namespace)) for name, metric, matrix, _ in found]
    lower_ones = [lower for *_, lower in found]
    # One direction holds for all matrices of a simulation: where metrics differ, those of errors
    # are turned round.
    namespace.lower_is_better = all(lower_ones)
    if namespace.lower_is_better:
        return ready
    return [
        (name, metric, _turned(matrix) if lower else matrix)
        for (name, metric, matrix), lower in zip(ready, lower_ones, strict=True)
    ]


def _is_lower(namespace: argparse.Namespace, higher: bool | None) -> bool:
    """Whether less is better: as is known of the metric, else as the command line says."""
    return bool(namespace.lower_is_better) if higher is None else not higher


def _turned(matrix: ScoreMatrix) -> ScoreMatrix:
    """The matrix with more for less."""
    from lm_eval_adaptive.core.matrix import ScoreMatrix

    scores = -matrix.scores
    return ScoreMatrix(matrix.models, matrix.items, scores, matrix.item_attributes, matrix.groups)


def _from_logs(namespace: argparse.Namespace, metric: str) -> tuple[str, ScoreMatrix, bool | None]:
    from lm_eval_adaptive.banks.eee_scores import recorded_scores, refuse_two_kinds
    from lm_eval_adaptive.banks.log_scores import metrics_in, score_matrix
    from lm_eval_adaptive.host.logs import find_runs
    from lm_eval_adaptive.host.logs.eee import find_records
    from lm_eval_adaptive.host.measures import metric_and_filter
    from lm_eval_adaptive.host.scoring import direction, document_score

    if records := find_records(namespace.samples):
        names = sorted({m.evaluation.partition("/")[0] for each in records for m in each.metrics})
        task = namespace.task or names[0]
        if len(names) > 1 and namespace.task is None:
            raise UsageError(f"the records hold {', '.join(names)}; choose one with --task")
        refuse_two_kinds(namespace.samples, task)
        recorded = recorded_scores(records, metric, task)
        matrix = replace(recorded.matrix, notices=recorded.notices)
        return task, matrix, not recorded.metric.lower_is_better
    runs = find_runs(namespace.samples, namespace.task)
    name, filter_name = metric_and_filter(metric, metrics_in(runs))
    tasks = sorted({each.task for each in runs})
    if len(tasks) != 1:
        raise UsageError(f"the logs hold the tasks {', '.join(tasks)}; choose one with --task")
    found = score_matrix(
        runs,
        name,
        filter_name,
        to_number=document_score,
        allow=("few_shot", "prompts"),
    )
    return (
        tasks[0],
        replace(found.matrix, notices=found.notices),
        direction(name, found.higher_is_better),
    )


def _prepared(matrix: ScoreMatrix, namespace: argparse.Namespace) -> ScoreMatrix:
    for notice in matrix.notices:
        print(notice, file=sys.stderr)
    excluded = set(namespace.exclude_model)
    kept = [name for name in matrix.models if name not in excluded]
    matrix = matrix.select_models(kept)
    if namespace.clip is None:
        return matrix
    import numpy as np

    from lm_eval_adaptive.banks.options import parse_range
    from lm_eval_adaptive.core.matrix import ScoreMatrix

    lo, hi = parse_range(namespace.clip)
    scores = np.clip(matrix.scores, lo, hi)
    return ScoreMatrix(matrix.models, matrix.items, scores, matrix.item_attributes, matrix.groups)


def _costs(words: Sequence[str]) -> dict[str, float]:
    found = {}
    for word in words:
        name, _, cost = word.rpartition("=")
        try:
            found[name] = float(cost)
        except ValueError as error:
            raise UsageError(f"--costs takes MODEL=COST, got {word!r}") from error
        if not name or not 0.0 < found[name] < math.inf:
            raise UsageError(f"--costs takes MODEL=COST with a finite cost above 0, got {word!r}")
    return found


def report_skipped(skipped: Sequence[Skipped], total: int) -> None:
    """One line for each matrix that has too few models for a regime, and their number."""
    for each in skipped:
        print(f"left out: {each}", file=sys.stderr)
    if skipped:
        print(f"left out: {len(skipped)} of {total} (matrix, regime) pairs", file=sys.stderr)


def _write(
    path: Path,
    rows: Sequence[Row],
    means: Sequence[Summary],
    plan: dict[str, Any],
    skipped: Sequence[Skipped],
) -> None:
    def clean(value: Any) -> Any:
        return None if isinstance(value, float) and not math.isfinite(value) else value

    document = {
        "plan": plan,
        "rows": [{key: clean(each) for key, each in asdict(row).items()} for row in rows],
        "means": [{key: clean(each) for key, each in asdict(row).items()} for row in means],
        "skipped": [asdict(each) for each in skipped],
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=1, ensure_ascii=False), encoding="utf-8")
    except OSError as error:
        raise DataError(f"could not write {path} ({error.strerror})") from error
