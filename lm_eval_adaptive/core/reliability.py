"""How well tests of some length tell models apart, from a bank's parameters alone.

This module owns marginal reliability; it imports numpy, the bank and the response formulas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lm_eval_adaptive.core.response import information

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lm_eval_adaptive.core.bank import ItemBank

    FloatArray = NDArray[np.float64]

GRID = 81  # points over +-3 standard deviations of ability


def population(bank: ItemBank) -> tuple[float, float]:
    """Mean and standard deviation of ability among models like the calibration models, logits."""
    theta = np.array([model.theta for model in bank.info.models])
    if len(theta) > 2 and theta.std(ddof=1) > 0.0:
        return float(theta.mean()), float(theta.std(ddof=1))
    return bank.info.parameters["prior_mean"], bank.info.parameters["prior_sd"]


def reliability(bank: ItemBank, lengths: Sequence[int]) -> tuple[FloatArray, FloatArray]:
    """Reliability of abilities from tests of some lengths: share of variance that is no error.

    r(n) = 1 - E[1 / (1 + s^2 I_n(theta))], the mean posterior variance over the variance s^2 of
    abilities among models like the calibration models, theta normal with that variance. For the
    adaptive test I_n sums the n most informative items at theta, for a random one it is n times the
    mean item's information. It takes the bank's parameters as known (Green et al. 1984, Journal of
    Educational Measurement 21:347-360, marginal reliability).

    Args:
        bank: The bank; items that are not kept are not asked.
        lengths: Numbers of items, each at least 1 and at most the kept ones.

    Returns:
        Of an adaptive and of a random test, each of the shape of ``lengths``.
    """
    mean, sd = population(bank)
    theta = mean + sd * np.linspace(-3.0, 3.0, GRID)
    weight = np.exp(-0.5 * ((theta - mean) / sd) ** 2)
    weight /= weight.sum()
    each = information(theta, bank.parameters.take(bank.kept))
    best = np.cumsum(-np.sort(-each, axis=1), axis=1)[:, [length - 1 for length in lengths]]
    chance = each.mean(axis=1)[:, None] * np.asarray(lengths, dtype=np.float64)[None, :]
    found = [1.0 - weight @ (1.0 / (1.0 + sd**2 * total)) for total in (best, chance)]
    return np.asarray(found[0]), np.asarray(found[1])
