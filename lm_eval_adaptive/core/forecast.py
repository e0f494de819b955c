"""How errors fall as more items are asked: the one law by which anything is predicted.

This module owns that law and imports nothing. Whoever predicts asks it: whether a pair is worth
going on with, how many items a round holds, how many are left to ask. An inference names its power
(:class:`~lm_eval_adaptive.core.inference.Inference`), since its errors fall in their own way.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Forecast:
    """Variances fall as a power of the number of items.

    Attributes:
        power: The variance of an error after n items is proportional to n^-power.

    >>> law = Forecast(1.0)
    >>> law.variance(0.04, 10, 40)
    0.01
    >>> law.items(10, 2.0)  # for half the error
    40.0
    """

    power: float

    def variance(self, now: float, items: float, then: float) -> float:
        """The variance of an error after ``then`` items, from what it is after ``items``."""
        return float(now * (items / then) ** self.power)

    def items(self, items: float, times: float) -> float:
        """Items after which an error is 1 / ``times`` of what it is after ``items``."""
        return float(items * times ** (2.0 / self.power))


# Errors fall with the root of n, as those of means over random items do: nothing falls faster.
FASTEST = Forecast(1.0)
# ``robust-2pl``, on real score matrices: slower, since the items that tell most come first, and
# since a part of its errors is of no item.
OBSERVED = Forecast(0.6)
