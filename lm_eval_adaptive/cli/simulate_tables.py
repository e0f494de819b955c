"""The tables of ``simulate``: regime, method and length, beside random shared items.

This module owns how means of simulated tests are printed; it imports the summaries and, inside
functions, rich.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from lm_eval_adaptive.core.plan import Plan
    from lm_eval_adaptive.core.summary import Summary

FIGURES = ("τ", "decided", "accuracy, 95 %", "MAE %", "cover")
DIFFERENCES = ("Δτ", "Δdecided", "Δaccuracy", "ΔMAE", "× MAE")
# Columns that figures and differences need beside each other.
WIDE = 146


def show(means: Sequence[Summary], plan: Plan) -> None:
    """Print a table per matrix, and one of the means when there are several.

    The differences stand beside the figures, or in a table under them on a narrow terminal.
    """
    from rich.console import Console

    console = Console()
    if not console.is_terminal:  # a file has room
        console = Console(width=max(WIDE, console.width))
    wide = console.width >= WIDE
    groups = dict.fromkeys((row.matrix, row.metric) for row in means)
    for matrix, metric in groups:
        if matrix == "mean" and len(groups) == 2:  # one matrix is its own mean
            continue
        title = "mean over the matrices" if matrix == "mean" else f"{matrix} {metric}"
        mine = [row for row in means if (row.matrix, row.metric) == (matrix, metric)]
        if wide:
            console.print(_table(title, mine, plan, figures=True, differences=True))
            continue
        console.print(_table(title, mine, plan, figures=True, differences=False))
        console.print(
            _table(f"{title}, beside random items", mine, plan, figures=False, differences=True)
        )
    count = plan.partitions if not plan.ranked else 1
    regimes = ""
    if {row.regime for row in means} != {"random"}:
        regimes = "; regimes with the number of tests"
    console.print(
        f"± standard errors over {count} partitions, seed {plan.seed}; decided: share of all pairs "
        f"called at {plan.confidence:.0%}; accuracy: of called pairs, with its Clopper–Pearson "
        "interval; MAE in % of the bank's range; cover of 95 % intervals; * stopped by itself; "
        "Δ, ×: less, over the plain mean of as many random shared items on the same draws, paired"
        f"{regimes}"
    )


def _table(
    title: str, means: Sequence[Summary], plan: Plan, *, figures: bool, differences: bool
) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    heads = [
        "method",
        "items",
        *(FIGURES if figures else ()),
        *(["cost"] if figures and plan.costs else ()),
        *(DIFFERENCES if differences else ()),
    ]
    for name in heads:
        table.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
    regimes = list(dict.fromkeys(row.regime for row in means))
    for regime in regimes:
        if regimes != ["random"]:
            tests = max(row.tests for row in means if row.regime == regime)
            table.add_section()
            table.add_row(f"[bold]{regime} ({tests})[/bold]")
        for row in means:
            if row.regime != regime:
                continue
            cells = _figures(row)[: None if plan.costs else -1] if figures else []
            cells += _differences(row) if differences else []
            table.add_row(*_head(row), *cells)
    return table


def _head(row: Summary) -> list[str]:
    items = f"{row.items:.1f} *" if row.items_per_model is None else f"{row.items:.0f}"
    return [row.method, items]


def _figures(row: Summary) -> list[str]:
    accuracy = "–"
    if math.isfinite(row.accuracy):
        low, high = _number(row.accuracy_low, 3), _number(row.accuracy_high, 3)
        accuracy = f"{_number(row.accuracy, 3)} {low}–{high}"
    return [
        _with_error(row.tau, row.tau_se, 3),
        _with_error(row.decided, row.decided_se, 3),
        accuracy,
        _with_error(row.score_abs_error, row.score_abs_error_se, 2),
        _with_error(row.covered, row.covered_se, 3),
        f"{row.cost:.4g}",
    ]


def _differences(row: Summary) -> list[str]:
    pairs: list[tuple[Any, Any, int]] = [
        (row.tau_diff, row.tau_diff_se, 3),
        (row.decided_diff, row.decided_diff_se, 3),
        (row.accuracy_diff, row.accuracy_diff_se, 3),
        (row.score_abs_error_diff, row.score_abs_error_diff_se, 2),
    ]
    ratio = row.score_abs_error_ratio
    return [
        *(_with_error(value, error, digits, sign="+") for value, error, digits in pairs),
        _number(ratio, 2) if math.isfinite(ratio) else "",
    ]


def _with_error(value: float, error: float, digits: int, sign: str = "") -> str:
    if not math.isfinite(value):
        return ""
    shown = f"±{_number(error, digits)}" if math.isfinite(error) else ""
    return f"{_number(value, digits, sign)}{shown}"


def _number(value: float, digits: int, sign: str = "") -> str:
    """Without the zero before the point, a row of figures fits 80 columns."""
    rounded = round(value, digits) + 0.0  # no -.000
    return re.sub(r"\b0\.", ".", f"{rounded:{sign}.{digits}f}")
