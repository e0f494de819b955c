"""Work the paper's formulas through in decimal arithmetic, and write them to paper_1pl.json.

An independent second way to every number of ``paper-1pl``: no numpy, no scipy, nothing of the
package. Four models calibrate six items; two others answer some of them.
"""

from __future__ import annotations

import json
from decimal import Decimal, getcontext
from math import erf, sqrt
from pathlib import Path
from statistics import median

getcontext().prec = 40
EPS = Decimal("0.01")
ONE = Decimal(1)

CALIBRATION = [
    ["0.91", "0.70", "0.62", "0.50", "0.33", "0.10"],
    ["0.80", "0.75", "0.41", "0.30", "0.25", "0.30"],
    ["0.85", "0.55", "0.30", "0.35", "0.12", "0.45"],
    ["0.60", "0.40", "0.25", "0.10", "0.05", "0.60"],
]
# Two models to be ranked: item -> score.
RANKED = [{0: "1", 2: "0.55", 4: "0.4"}, {0: "0.7", 3: "0.2"}]
COSTS = ["1", "2.5"]


def expit(x: Decimal) -> Decimal:
    return ONE / (ONE + (-x).exp())


def logit(p: Decimal) -> Decimal:
    return (p / (ONE - p)).ln()


def mean(values: list[Decimal]) -> Decimal:
    return sum(values, Decimal(0)) / len(values)


def correlation(xs: list[Decimal], ys: list[Decimal]) -> Decimal:
    mx, my = mean(xs), mean(ys)
    top = sum(((x - mx) * (y - my) for x, y in zip(xs, ys, strict=True)), Decimal(0))
    spread = sum(((x - mx) ** 2 for x in xs), Decimal(0)) * sum(
        ((y - my) ** 2 for y in ys), Decimal(0)
    )
    return top / spread.sqrt()


def main() -> None:
    y = [[Decimal(cell) for cell in row] for row in CALIBRATION]
    columns = [list(column) for column in zip(*y, strict=True)]
    p = [mean(column) for column in columns]
    low, high = min(p), max(p)
    share = [EPS + (ONE - 2 * EPS) * (each - low) / (high - low) for each in p]
    b = [((ONE - each) / each).ln() for each in share]
    theta = [logit(mean(row)) for row in y]
    mu = [[expit(t - d) for d in b] for t in theta]
    cells = [(row, item) for row in range(len(y)) for item in range(len(b))]
    k = sum(((y[r][i] - mu[r][i]) ** 2 for r, i in cells), Decimal(0)) / sum(
        (mu[r][i] * (ONE - mu[r][i]) for r, i in cells), Decimal(0)
    )
    with_theta = [correlation(column, theta) for column in columns]
    prior_mean = Decimal(median(b))

    estimates = []
    for given in RANKED:
        asked = {item: Decimal(score) for item, score in given.items()}

        def slope(t: Decimal, asked: dict[int, Decimal] = asked) -> Decimal:
            each = sum(((s - expit(t - b[i])) / k for i, s in asked.items()), Decimal(0))
            return each - (t - prior_mean) / 25

        left, right = Decimal(-30), Decimal(30)
        for _ in range(130):
            middle = (left + right) / 2
            left, right = (middle, right) if slope(middle) > 0 else (left, middle)
        info = [expit(left - d) * (ONE - expit(left - d)) / k for d in b]
        se = (ONE / sum((info[i] for i in asked), Decimal(0))).sqrt()
        free = [i for i in range(len(b)) if i not in asked and with_theta[i] >= 0]
        estimates.append(
            {
                "asked": {str(item): float(score) for item, score in asked.items()},
                "theta": float(left),
                "se": float(se),
                "information": [float(each) for each in info],
                "next_item": max(free, key=lambda i: info[i]),
            }
        )
    first, second = estimates
    z = (first["theta"] - second["theta"]) / sqrt(first["se"] ** 2 + second["se"] ** 2)
    value = [
        each["se"] ** 2 / ((len(each["asked"]) + 1) * float(cost))
        for each, cost in zip(estimates, COSTS, strict=True)
    ]
    golden = {
        "scores": [[float(cell) for cell in row] for row in y],
        "costs": [float(cost) for cost in COSTS],
        "difficulty": [float(each) for each in b],
        "theta": [float(each) for each in theta],
        "k": float(k),
        "discrimination": float(ONE / k.sqrt()),
        "correlation": [float(each) for each in with_theta],
        "prior_mean": float(prior_mean),
        "ranked": estimates,
        "p_first_better": 0.5 * (1.0 + erf(z / sqrt(2.0))),
        "value": value,
    }
    target = Path(__file__).with_name("paper_1pl.json")
    target.write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
