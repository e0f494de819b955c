"""Sums of costs that come out as one does them on paper.

This module owns the exact adding of money: 0.1 and 0.2 are 0.3, so that a budget of 0.3 is spent
and never passed. It imports the standard library only.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def exact(cost: float) -> Decimal:
    """A cost as it was written: the shortest decimal that is this number.

    >>> exact(0.1) * 3 == exact(0.3)
    True
    """
    return Decimal(repr(float(cost)))


def add_up(costs: Iterable[float]) -> float:
    """The sum of costs.

    >>> add_up([0.1] * 3), sum([0.1] * 3)
    (0.3, 0.30000000000000004)
    """
    return float(sum(map(exact, costs), Decimal()))
