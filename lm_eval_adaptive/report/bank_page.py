"""The bank's page: what its items can tell, which were left out, and whom they were fitted to.

This module owns what stands on that page; it imports the page's building blocks and the core's
formulas. The page is as self-contained and harmless as the report of a run, see ``page``.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lm_eval_adaptive.core.bank_info import provenance_to_json
from lm_eval_adaptive.core.reliability import population, reliability
from lm_eval_adaptive.core.response import expected_score, information
from lm_eval_adaptive.report.page import (
    STRETCHED,
    Axis,
    as_text,
    esc,
    fold_away,
    frame,
    limits,
    num,
    pre,
    section,
    share,
    table,
    whole_page,
    write_text,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lm_eval_adaptive.core.bank import ItemBank

    FloatArray = NDArray[np.float64]

GRID = 81  # points of the curves over ability
LENGTHS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 1000)
DRAWN = 100
LEFT_OUT_SHOWN = 200


def write_bank_report(bank: ItemBank, output: Path) -> Path:
    """Write a bank's page.

    Args:
        bank: The bank.
        output: The page's file.

    Returns:
        The file written.
    """
    return write_text(output, render_bank(bank))


def render_bank(bank: ItemBank) -> str:
    """The page of a bank, HTML text."""
    parts = (_head, _difficulties, _curves, _reliability, _left_out, _models, _origin)
    return whole_page(f"{bank.info.task}: item bank", "".join(part(bank) for part in parts))


def _line(x: Axis, y: Axis, across: FloatArray, up: FloatArray, kind: str = "line") -> str:
    points = "L".join(
        f"{10 * x.at(float(a)):.0f} {1000 - 10 * y.at(float(b)):.0f}"
        for a, b in zip(across, up, strict=True)
    )
    return f'<path class="{kind}" d="M{points}"/>'


def _figure(title: str, plot: str, axes: str) -> str:
    return (
        f"<figure><figcaption>{esc(title)}</figcaption>{plot}"
        f'<p class="s axes">{esc(axes)}</p></figure>'
    )


def _marks(bank: ItemBank, x: Axis) -> str:
    return "".join(
        f'<line class="mark" x1="{x.at(model.theta)}%" x2="{x.at(model.theta)}%" y1="0" y2="12">'
        f"<title>{esc(model.name)}: ability {model.theta:.2f}</title></line>"
        for model in bank.info.models
    )


def _head(bank: ItemBank) -> str:
    info = bank.info
    better = "higher is better" if info.scale.higher_is_better else "lower is better"
    facts = (
        ("items", f"{len(bank)}", f"{int(bank.kept.sum())} of them may be asked"),
        ("calibrated on", f"{len(info.models)} models", f"response model {info.response_model}"),
        (
            "range",
            f"{num(info.scale.lo)} to {num(info.scale.hi)}",
            f"{info.range_source}; {share(info.clipped)} of the scores clipped",
        ),
    )
    cards = "".join(
        f"<div><dt>{esc(name)}</dt><dd>{esc(value)}</dd><dd class=s>{esc(more)}</dd></div>"
        for name, value, more in facts
    )
    version = f", version {info.task_version}" if info.task_version else ""
    about = f"Item bank for {info.metric} (filter {info.filter}), {better}{version}"
    notices = "".join(f"<li>{esc(each)}</li>" for each in info.notices)
    warned = f'<ul class="warn">{notices}</ul>' if notices else ""
    return (
        f'<header id="top"><h1>{esc(info.task)}</h1><p class="s">{esc(about)}</p>'
        f'<dl class="facts">{cards}</dl>{warned}</header>'
    )


def _difficulties(bank: ItemBank) -> str:
    b = bank.parameters.difficulty[bank.kept]
    x = Axis(*limits(b, [model.theta for model in bank.info.models]), 6)
    edges = np.linspace(x.lo, x.hi, 31)
    counts, _ = np.histogram(np.clip(b, x.lo, x.hi), edges)
    y = Axis(0.0, float(counts.max()) * 1.05, 4)
    bars = "".join(
        f'<rect class="asked" x="{x.at(low)}%" width="{x.at(high) - x.at(low):.2f}%" '
        f'y="{100 - y.at(count):.2f}%" height="{y.at(count)}%"><title>{count} items of difficulty '
        f"{low:.2f} to {high:.2f}</title></rect>"
        for low, high, count in zip(edges[:-1], edges[1:], counts.tolist(), strict=True)
    )
    words = (
        "How many items there are of each difficulty; marks at the top edge are the abilities of "
        "the calibration models. Models beyond the bars are measured badly: no item is hard or "
        "easy enough for them."
    )
    plot = frame(bars + _marks(bank, x), x, y, "large", "Items by difficulty")
    rows = [
        (f"{low:.2f} to {high:.2f}", count)
        for low, high, count in zip(edges[:-1], edges[1:], counts.tolist(), strict=True)
    ]
    listing = fold_away("As a table", table(("difficulty", "items"), rows))
    inside = f'<div data-plot="difficulty">{_figure("", plot, "across: difficulty, logits")}</div>'
    return section("", "difficulty", "Difficulty", words, inside + listing)


def _curves(bank: ItemBank) -> str:
    mean, sd = population(bank)
    theta = mean + sd * np.linspace(-3.0, 3.0, GRID)
    kept = bank.parameters.take(bank.kept)
    total = information(theta, kept).sum(axis=1)
    raw = bank.info.scale.to_raw(expected_score(theta, kept).mean(axis=1))
    x = Axis(float(theta[0]), float(theta[-1]), 6)
    top = Axis(0.0, float(total.max()) * 1.05, 4)
    scale = Axis(float(raw.min()), float(raw.max()), 4)
    first = frame(
        f"{STRETCHED}{_line(x, top, theta, total)}</svg>{_marks(bank, x)}",
        x,
        top,
        "small",
        "Information of all items against ability",
    )
    second = frame(
        f"{STRETCHED}{_line(x, scale, theta, raw)}</svg>{_marks(bank, x)}",
        x,
        scale,
        "small",
        "Expected score against ability",
    )
    axes = "across: ability, logits"
    panels = _figure("Information of all items", first, axes)
    panels += _figure(f"Expected {bank.info.metric} on the whole bank", second, axes)
    words = (
        "Where the curve of information is high, a model of that ability is placed precisely with "
        "few items: the standard error is one over its square root."
    )
    rows = [
        (f"{theta[k]:.2f}", num(float(total[k]), 3), num(float(raw[k]))) for k in range(0, GRID, 8)
    ]
    listing = fold_away("As a table", table(("ability", "information", "expected score"), rows))
    inside = f'<div class="panels" data-plot="information">{panels}</div>'
    return section("", "information", "Information", words, inside + listing)


def _reliability(bank: ItemBank) -> str:
    kept = int(bank.kept.sum())
    if not kept:
        return ""
    lengths = sorted({min(length, kept) for length in LENGTHS})
    adaptive, chance = reliability(bank, lengths)
    # Beyond a hundred items the curve is flat; the table goes on.
    drawn = [k for k, length in enumerate(lengths) if length <= DRAWN]
    x = Axis(0.0, float(lengths[drawn[-1]]), 6)
    y = Axis(min(0.0, float(chance.min())), 1.0, 5)
    across = np.asarray(lengths, dtype=np.float64)[drawn]
    dots = "".join(
        f'<circle class="hit" r="6" cx="{x.at(n)}%" cy="{100 - y.at(up):.2f}%"><title>{name}, {n} '
        f"items: {up:.3f}</title></circle>"
        for name, line in (("adaptive", adaptive), ("random", chance))
        for n, up in zip(across.astype(int).tolist(), line[drawn].tolist(), strict=True)
    )
    inside = (
        f"{STRETCHED}{_line(x, y, across, chance[drawn], 'other')}"
        f"{_line(x, y, across, adaptive[drawn])}</svg>{dots}"
    )
    plot = frame(inside, x, y, "large", "Reliability against number of items")
    words = (
        "The share of the differences between models that is no error, after so many items: chosen "
        "for each model (thick) or at random (thin). It takes the response model to be true and "
        "its parameters to be known, so it is the best that can be hoped for."
    )
    rows = [
        (n, f"{best:.3f}", f"{plain:.3f}")
        for n, best, plain in zip(lengths, adaptive.tolist(), chance.tolist(), strict=True)
    ]
    listing = fold_away("As a table", table(("items", "chosen", "random"), rows))
    figure = _figure("", plot, "across: items asked · upwards: reliability")
    return section(
        "",
        "reliability",
        "Reliability",
        words,
        f'<div data-plot="reliability">{figure}</div>{listing}',
    )


def _left_out(bank: ItemBank) -> str:
    out = np.flatnonzero(~bank.kept)
    words = "Items that are never asked."
    if not len(out):
        return section("", "left-out", "Items left out", words, "<p>None.</p>")
    counts = Counter(bank.reason[item] for item in out)
    inside = table(("reason", "items"), counts.most_common())
    rows = [
        (
            int(bank.doc_id[item]),
            bank.reason[item],
            num(float(bank.mean_score[item]), 3),
            num(float(bank.item_rest_correlation[item]), 2),
        )
        for item in out[:LEFT_OUT_SHOWN]
    ]
    title = f"The first {LEFT_OUT_SHOWN} of them" if len(out) > LEFT_OUT_SHOWN else "All of them"
    head = ("document", "reason", "mean score", "correlation with the rest")
    return section(
        "", "left-out", "Items left out", words, inside + fold_away(title, table(head, rows))
    )


def _models(bank: ItemBank) -> str:
    rows = [
        (model.name, num(model.mean_raw), f"{model.theta:.2f}", model.n_scores)
        for model in sorted(bank.info.models, key=lambda each: (-each.mean_score, each.name))
    ]
    words = "The models whose scores the items were fitted to, best first."
    head = ("model", f"mean {bank.info.metric}", "ability", "items scored")
    return section("", "models", "Calibration models", words, table(head, rows))


def _origin(bank: ItemBank) -> str:
    info = bank.info
    facts: tuple[tuple[str, Any], ...] = (
        ("file", Path(bank.path).name),
        ("sha256", bank.sha256),
        ("data set", " ".join(filter(None, (info.dataset_path, info.dataset_name, info.split)))),
        ("few-shot examples", "not known" if info.num_fewshot is None else info.num_fewshot),
        ("licence note", info.licence or "none"),
    )
    inside = table(("", ""), facts) + fold_away(
        "Provenance", pre(as_text(provenance_to_json(info.provenance)))
    )
    return section("", "origin", "Where it comes from", "", inside)
