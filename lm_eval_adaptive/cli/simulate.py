"""``simulate``: its arguments, its matrices and its tables.

This module owns what stands between a command line and ``core.simulate``; it imports the core's
matrices and, inside functions, the log reader and rich.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.core.plan import METHODS, Plan
from lm_eval_adaptive.errors import DataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lm_eval_adaptive.core.exam import Row
    from lm_eval_adaptive.core.matrix import ScoreMatrix
    from lm_eval_adaptive.core.summary import Summary


def add_parser(subparsers: Any) -> None:
    """Add the command to the harness's subcommands."""
    parser = subparsers.add_parser(
        "simulate",
        help="Replay the whole procedure on scores that are there: how many items, how good",
        description=(
            "Ranks some models of a score matrix with a bank calibrated on others, over many "
            "random partitions, by the default method and by baselines, and holds the rankings "
            "against the full scores."
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
        help="Logs written by --log_samples",
    )
    add("--task", default=None, help="With --samples: the task, where the logs hold several")
    add(
        "--metric",
        action="append",
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
    add(
        "--seed",
        type=int,
        default=Plan.seed,
        help="Partition r permutes by seed + r (default: %(default)s)",
    )
    add("--jobs", type=int, default=None, help="Processes (default: one per core)")
    add("--json", default=None, metavar="FILE", help="Write rows and means here")
    parser.set_defaults(func=run)


def run(namespace: argparse.Namespace) -> int:
    """Simulate, print tables, write JSON."""
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from lm_eval_adaptive.core.simulate import simulate
    from lm_eval_adaptive.core.summary import summarise

    matrices = _matrices(namespace)
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
    columns = (TextColumn("partitions"), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, transient=True, console=_stderr()) as bar:
        total = len(matrices) * (1 if plan.ranked else plan.partitions)
        task = bar.add_task("", total=total)
        rows = simulate(matrices, plan, jobs=namespace.jobs, progress=lambda: bar.advance(task))
    means = summarise(rows)
    show(means, plan)
    if output is not None:
        _write(output, rows, means, plan)
        print(f"wrote {output}")
    return 0


def _stderr() -> Any:
    from rich.console import Console

    return Console(stderr=True)


def _matrices(namespace: argparse.Namespace) -> list[tuple[str, str, ScoreMatrix]]:
    from lm_eval_adaptive.core.matrix import read_scores

    if bool(namespace.scores) == bool(namespace.samples):
        raise UsageError(
            "simulate takes --scores (a Parquet or CSV file) or --samples (logs of the harness); "
            "give one of them"
        )
    found: list[tuple[str, str, ScoreMatrix]] = []
    if namespace.samples:
        for metric in namespace.metric:
            name, matrix = _from_logs(namespace, metric)
            found.append((name, metric, matrix))
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
            found.append((Path(path).stem, metric, read_scores(path, metric)))
    return [(name, metric, _prepared(matrix, namespace)) for name, metric, matrix in found]


def _from_logs(namespace: argparse.Namespace, metric: str) -> tuple[str, ScoreMatrix]:
    from lm_eval_adaptive.banks.log_scores import score_matrix
    from lm_eval_adaptive.host.logs import find_runs
    from lm_eval_adaptive.host.scoring import KNOWN_DIRECTIONS, document_score
    from lm_eval_adaptive.host.settings import metric_and_filter

    name, filter_name = metric_and_filter(metric)
    runs = find_runs(namespace.samples, namespace.task)
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
    higher = KNOWN_DIRECTIONS.get(name, found.higher_is_better)
    if higher is False:
        namespace.lower_is_better = True
    return tasks[0], found.matrix


def _prepared(matrix: ScoreMatrix, namespace: argparse.Namespace) -> ScoreMatrix:
    excluded = set(namespace.exclude_model)
    kept = [name for name in matrix.models if name not in excluded]
    matrix = matrix.select_models(kept)
    if namespace.clip is None:
        return matrix
    import numpy as np

    from lm_eval_adaptive.banks.calibrate import parse_range
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
        if not name or not found[name] > 0.0:
            raise UsageError(f"--costs takes MODEL=COST with a cost above 0, got {word!r}")
    return found


def show(means: Sequence[Summary], plan: Plan) -> None:
    """Print a table per matrix, and one of the means when there are several."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console()
    groups = dict.fromkeys((row.matrix, row.metric) for row in means)
    for matrix, metric in groups:
        if matrix == "mean" and len(groups) == 2:  # one matrix is its own mean
            continue
        title = "mean over the matrices" if matrix == "mean" else f"{matrix} {metric}"
        table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        heads = ("method", "items", "τ", "decided", "right", "MAE %", "cover")
        for name in (*heads, *(["cost"] if plan.costs else [])):
            table.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
        for row in means:
            if (row.matrix, row.metric) == (matrix, metric):
                table.add_row(*_cells(row)[: None if plan.costs else -1])
        console.print(table)
    console.print(
        f"± standard errors over {plan.partitions if not plan.ranked else 1} partitions, seed "
        f"{plan.seed}; decided: share of all pairs called at {plan.confidence:.0%}; right: of "
        "called pairs; MAE in % of the bank's range; cover of 95 % intervals; * stopped by itself"
    )


def _cells(row: Summary) -> list[str]:
    def with_error(name: str, digits: int) -> str:
        error = getattr(row, f"{name}_se")
        shown = "" if not math.isfinite(error) else f"±{error:.{digits}f}"
        # Without the zero before the point, a row fits 80 columns.
        return re.sub(r"\b0\.", ".", f"{getattr(row, name):.{digits}f}{shown}")

    accuracy = "–" if not math.isfinite(row.accuracy) else f"{row.accuracy:.3f}"
    items = f"{row.items:.1f} *" if row.items_per_model is None else f"{row.items:.0f}"
    return [
        row.method,
        items,
        with_error("tau", 3),
        with_error("decided", 3),
        accuracy,
        with_error("score_abs_error", 2),
        with_error("covered", 3),
        f"{row.cost:.4g}",
    ]


def _write(path: Path, rows: Sequence[Row], means: Sequence[Summary], plan: Plan) -> None:
    def clean(value: Any) -> Any:
        return None if isinstance(value, float) and not math.isfinite(value) else value

    document = {
        "plan": asdict(plan),
        "rows": [{key: clean(each) for key, each in asdict(row).items()} for row in rows],
        "means": [{key: clean(each) for key, each in asdict(row).items()} for row in means],
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=1, ensure_ascii=False), encoding="utf-8")
    except OSError as error:
        raise DataError(f"could not write {path} ({error.strerror})") from error
