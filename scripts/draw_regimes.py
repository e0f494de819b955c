r"""The table and the picture of docs/regimes.md, from what ``bench_pairs.py`` stored.

::

    python scripts/bench_pairs.py --regime stronger --partitions 20 --seed 12000 \
        --methods default random-shared paper-1pl --json stronger.json      # likewise the others
    python scripts/draw_regimes.py random.json stronger.json ... --output docs/regimes.svg

Prints the means over the matrices, a row for each regime, length and method, and draws accuracy and
decided by regime. A regime may come in several files of other seeds. Equal files give an equal
picture.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lm_eval_adaptive.core.exam import Figures, Row
from lm_eval_adaptive.core.summary import summarise

ROOT = Path(__file__).resolve().parents[1]
METHODS = {
    "default": "default",
    "random-shared": "random, shared",
    "paper-1pl": "`paper-1pl`",
}
COLOURS = {"default": "#2563a8", "random-shared": "#b5651d"}
PROMISED = 0.975  # of called pairs, at 95 % two-sided
# Both panels: where they begin, how wide and high they are, their scale, its marks.
LEFT, WIDTH, GAP, TOP, HEIGHT = 44, 330, 60, 52, 210
PANELS = (
    ("accuracy of called pairs, 95 % interval", 0.85, 1.0, (0.85, 0.9, 0.95, 1.0)),
    ("share of pairs decided, ± standard error", 0.0, 0.9, (0.0, 0.2, 0.4, 0.6, 0.8)),
)


def read_means(files: list[Path]) -> list[dict[str, Any]]:
    """The means over the matrices of all rows that the files hold, regimes in the files' order."""
    rows: dict[str, list[Row]] = {}
    for place, file in enumerate(files):
        for row in json.loads(file.read_text(encoding="utf-8"))["rows"]:
            shared = None if row["shared"] is None else Figures(**row["shared"])
            # Partitions of other files are others.
            partition = row["partition"] + 10_000 * place
            found = Row(**{**row, "shared": shared, "partition": partition})
            rows.setdefault(found.regime, []).append(found)
    means = []
    for own in rows.values():
        every = [asdict(each) for each in summarise(own)]
        # A regime of one pair has no mean over several.
        several = [row for row in every if row["matrix"] == "mean"]
        means += several or every
    return means


def number(value: float, digits: int = 3) -> str:
    """As the tables print it, without a leading zero; a dash where there is none."""
    if value is None or math.isnan(value):
        return "–"
    return f"{value:.{digits}f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.{digits}f}"


def table_row(row: dict[str, Any]) -> str:
    """One row in Markdown."""
    items = row["items_per_model"] or f"{row['items']:.0f} \\*"
    diff = "–"
    if not math.isnan(row["tau_diff"]):
        diff = f"{row['tau_diff']:+.3f} ± {row['tau_diff_se']:.3f}".replace("0.", ".")
    cells = (
        row["regime"],
        str(items),
        METHODS[row["method"]],
        number(row["tau"]),
        diff,
        number(row["decided"]),
        f"{number(row['accuracy'])} ({number(row['accuracy_low'])}–{number(row['accuracy_high'])})",
        number(row["covered"]),
        number(row["score_abs_error"], 2),
        number(row["score_abs_error_ratio"], 2),
    )
    return f"| {' | '.join(cells)} |"


def print_table(means: list[dict[str, Any]]) -> None:
    """All rows; within a regime by length, the default first."""
    head = ("regime", "items", "method", "τ", "Δτ", "decided", "accuracy, 95 %", "cover", "MAE %")
    print(f"| {' | '.join((*head, '× MAE'))} |")
    print("|---" * (len(head) + 1) + "|")
    regimes = list(dict.fromkeys(row["regime"] for row in means))
    for row in sorted(
        means, key=lambda row: (regimes.index(row["regime"]), row["items_per_model"] or 999)
    ):
        print(table_row(row))


def draw(means: list[dict[str, Any]]) -> str:
    """Two panels: for each regime 10, 20 and 40 items, and where the test stopped by itself."""
    width, height = LEFT + 2 * WIDTH + GAP + 12, TOP + HEIGHT + 48
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">',
        "<style>text{font:11px sans-serif}</style>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for place, (method, colour) in enumerate(COLOURS.items()):
        x = LEFT + 150 * place
        parts.append(f'<circle cx="{x}" cy="14" r="3.5" fill="{colour}"/>')
        parts.append(f'<text x="{x + 8}" y="18">{METHODS[method]}</text>')
    note = "each group: 10, 20, 40 items; hollow: stopped by itself; dashed: promised"
    parts.append(f'<text x="{LEFT + 290}" y="18" fill="#555">{note}</text>')
    for place, panel in enumerate(PANELS):
        parts += draw_panel(means, LEFT + place * (WIDTH + GAP), panel, accuracy=place == 0)
    return "\n".join([*parts, "</svg>", ""])


def draw_panel(
    means: list[dict[str, Any]],
    left: float,
    panel: tuple[str, float, float, tuple[float, ...]],
    *,
    accuracy: bool,
) -> list[str]:
    """One panel's title, scale, names and points."""
    title, low, high, ticks = panel

    def at(value: float) -> float:
        return TOP + HEIGHT * (1.0 - (min(max(value, low), high) - low) / (high - low))

    parts = [f'<text x="{left}" y="{TOP - 12}" style="font-weight:bold">{title}</text>']
    for tick in ticks:
        y = at(tick)
        parts.append(
            f'<path d="M{left} {y:.1f}h{WIDTH}" stroke="#ddd"/>'
            f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>'
        )
    if accuracy:
        y = at(PROMISED)
        parts.append(f'<path d="M{left} {y:.1f}h{WIDTH}" stroke="#555" stroke-dasharray="4 3"/>')
    regimes = list(dict.fromkeys(row["regime"] for row in means))
    step = WIDTH / len(regimes)
    for group, regime in enumerate(regimes):
        middle = left + step * (group + 0.5)
        parts.append(
            f'<text x="{middle:.1f}" y="{TOP + HEIGHT + 20}" text-anchor="middle">{regime}</text>'
        )
        own = [row for row in means if row["regime"] == regime and row["method"] in COLOURS]
        parts += [draw_point(row, middle, step, at, accuracy=accuracy) for row in own]
    return parts


def draw_point(row: dict[str, Any], middle: float, step: float, at: Any, *, accuracy: bool) -> str:
    """A mean and its error."""
    if accuracy:
        value, low, high = row["accuracy"], row["accuracy_low"], row["accuracy_high"]
    else:
        value, error = row["decided"], row["decided_se"]
        low, high = value - error, value + error
    if math.isnan(value):
        return ""
    lengths = (10, 20, 40, None)
    shift = (lengths.index(row["items_per_model"]) - 1.5) * step / 5.0
    x = middle + shift + (-2.5 if row["method"] == "default" else 2.5)
    colour = COLOURS[row["method"]]
    fill = "#fff" if row["items_per_model"] is None else colour
    return (
        f'<path d="M{x:.1f} {at(low):.1f}V{at(high):.1f}" stroke="{colour}" stroke-width="1.2"/>'
        f'<circle cx="{x:.1f}" cy="{at(value):.1f}" r="3" fill="{fill}" stroke="{colour}"/>'
    )


def main() -> int:
    """Print and draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="JSON")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "regimes.svg")
    args = parser.parse_args()
    means = read_means(args.files)
    print_table(means)
    args.output.write_text(draw(means), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
