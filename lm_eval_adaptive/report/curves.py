"""How the estimates settled with every answer: a panel for each model of a run's report.

This module owns that section; it imports the page's building blocks and the view of a task.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lm_eval_adaptive.report.page import (
    STRETCHED,
    Axis,
    esc,
    fold_away,
    frame,
    num,
    section,
    table,
)
from lm_eval_adaptive.report.view import MANY_MODELS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lm_eval_adaptive.report.view import TaskView

NORMAL_95 = 1.959963984540054
CURVE_POINTS, FEW_CURVE_POINTS = 50, 12  # per model; of many models


def curves(view: TaskView, prefix: str) -> str:
    """How the estimates settled with every answer."""
    if not view.ranking.ranking:
        return ""
    scored = _score_curves(view)
    curves = scored if scored is not None else _ability_curves(view)
    if not curves:
        return ""
    unit = f"estimated {view.ranking.metric}" if scored is not None else "ability in logits"
    # The first few intervals are as wide as the scale; later ones decide the picture's range.
    settled = [
        (low, high)
        for curve in curves.values()
        for items, low, high in zip(curve.items, curve.low, curve.high, strict=True)
        if items >= 5 or items == curve.items[-1]
    ]
    y = Axis(min(low for low, _ in settled), max(high for _, high in settled), 4)
    x = Axis(0, max(curve.items[-1] for curve in curves.values()), 4)
    ids = [f"{prefix}c{number}" for number in range(1, len(curves) + 1)]
    lines = "".join(
        f'<path id="{own}" d="M{_path(x, y, curve.items, curve.middle)}"/>'
        for own, curve in zip(ids, curves.values(), strict=True)
    )
    whole = f"{prefix}call"
    if len(ids) > MANY_MODELS:  # one name for the lines of all, in place of each other's in each
        lines = f'<g id="{whole}">{lines}</g>'
    panels = "".join(
        _panel(
            model,
            curve,
            x,
            y,
            own,
            [whole] if len(ids) > MANY_MODELS else [each for each in ids if each != own],
            unit,
        )
        for own, (model, curve) in zip(ids, curves.items(), strict=True)
    )
    words = (
        f"Each model's {unit} (line) with its 95 % interval (band) against the items it was asked; "
        "the other models are thin lines. A band that no longer narrows shows a model that was not "
        "asked further."
    )
    inside = (
        f'<svg width="0" height="0" class="defs" aria-hidden="true"><defs>{lines}</defs>'
        f'</svg><div class="panels" data-plot="curves">{panels}</div>'
    )
    rows = [row for model, curve in curves.items() for row in _steps_shown(model, curve)]
    listing = table(("model", "items asked", unit, "95 % low", "95 % high"), rows)
    return section(
        prefix,
        "curves",
        "How the estimates settled",
        words,
        inside + fold_away("As a table", listing),
    )


def _path(x: Axis, y: Axis, across: Sequence[int], up: Sequence[float]) -> str:
    return "L".join(
        f"{10 * x.at(items):.0f} {1000 - 10 * y.at(value):.0f}"
        for items, value in zip(across, up, strict=True)
    )


def _panel(
    model: str, curve: _Curve, x: Axis, y: Axis, own: str, others: Sequence[str], unit: str
) -> str:
    """A model's line and band over the thin lines of the others, by their ids or that of all."""
    there = _path(x, y, curve.items, curve.high)
    back = _path(x, y, curve.items[::-1], curve.low[::-1])
    thin = "".join(f'<use href="#{each}" class="other"/>' for each in others)
    last = (
        f"{num(curve.middle[-1])} ({num(curve.low[-1])} to {num(curve.high[-1])}) "
        f"after {curve.items[-1]} items"
    )
    inside = (
        f'{STRETCHED}{thin}<path class="band" d="M{there}L{back}Z"/>'
        f'<use href="#{own}" class="line"/></svg>'
    )
    inside += "".join(
        f'<circle class="hit" cx="{x.at(items)}%" cy="{100 - y.at(middle):g}%" r="5"><title>'
        f"{esc(model)} after {items} items: {num(middle)} ({num(low)} to {num(high)})"
        "</title></circle>"
        for items, middle, low, high in zip(
            curve.items, curve.middle, curve.low, curve.high, strict=True
        )
    )
    label = f"{model}: {unit} against items asked, {last}"
    return (
        f"<figure><figcaption>{esc(model)} <span class=s>{esc(last)}</span></figcaption>"
        f"{frame(inside, x, y, 'small', label)}</figure>"
    )


def _steps_shown(model: str, curve: _Curve) -> list[tuple[object, ...]]:
    """A few rows of the table: the first step, the last, and some between."""
    shown = sorted({0, *np.linspace(0, len(curve.items) - 1, 6).round().astype(int).tolist()})
    return [
        (
            model,
            curve.items[step],
            num(curve.middle[step]),
            num(curve.low[step]),
            num(curve.high[step]),
        )
        for step in shown
    ]


@dataclass(frozen=True)
class _Curve:
    """How a model's estimate settled: arrays of items asked, estimate and its interval."""

    items: list[int]
    middle: list[float]
    low: list[float]
    high: list[float]


def _score_curves(view: TaskView) -> dict[str, _Curve] | None:
    """Score and 95 % interval after every answer, as the run recorded them.

    None where it did not (a ranking of an older version): then the abilities are drawn.
    """
    lo, hi = view.ranking.bank.range
    points = _points(view)
    curves = {}
    for entry in view.ranking.ranking:
        mine = [step for step in view.ranking.trace if step.model == entry.model]
        known = [
            (step.estimate, step.estimate_half)
            for step in mine
            if step.estimate is not None and step.estimate_half is not None
        ]
        if len(known) < len(mine):
            return None
        steps = _thin(len(mine), points)
        if not steps:
            continue
        middle, half = np.array([known[step] for step in steps]).T
        curves[entry.model] = _Curve(
            [step + 1 for step in steps],
            middle.tolist(),
            np.clip(middle - half, lo, hi).tolist(),
            np.clip(middle + half, lo, hi).tolist(),
        )
    return curves or None


def _ability_curves(view: TaskView) -> dict[str, _Curve]:
    points = _points(view)
    curves = {}
    for entry in view.ranking.ranking:
        mine = [step for step in view.ranking.trace if step.model == entry.model]
        if not mine:
            continue
        steps = _thin(len(mine), points)
        middle = np.array([mine[step].ability for step in steps])
        half = NORMAL_95 * np.array([mine[step].ability_se for step in steps])
        curves[entry.model] = _Curve(
            [step + 1 for step in steps],
            middle.tolist(),
            (middle - half).tolist(),
            (middle + half).tolist(),
        )
    return curves


def _points(view: TaskView) -> int:
    """How many points a model's curve has at most."""
    return FEW_CURVE_POINTS if len(view.ranking.ranking) > MANY_MODELS else CURVE_POINTS


def _thin(count: int, points: int) -> list[int]:
    """At most so many of 0 … count-1, the last among them."""
    picks = np.linspace(0, count - 1, min(count, points)).round().astype(int)
    return [int(each) for each in np.unique(picks)]
