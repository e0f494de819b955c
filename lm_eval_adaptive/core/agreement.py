"""Whether the ranked models bear the bank out: do informative and random items tell the same?

This module owns that test; it imports numpy, scipy and the views. The bank says that models differ
more on items of steep slope than on others, in proportion to the slope. If it is right, what is
left of their differences at slope zero is noise; if it is wrong, it is as large as anywhere. A part
of the items is drawn plainly at random, so there are always some of every slope.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import fdtrc

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lm_eval_adaptive.core.views import View

    FloatArray = NDArray[np.float64]

# Level of a single look. Runs look often: over a whole run at most 1 in 20 rings falsely, see the
# tests of this module.
LEVEL = 0.01
# No bank is right to the last digit, so its F statistic grows with the number n of items even for
# models like its own: as FIRST + LATER n, measured on held-out models of 13 real score matrices.
FIRST, LATER = 1.3, 0.03
LEAST_ITEMS = 10
# Least that is kept of slopes' differences between items.
LEAST_SHARE = 0.1


@dataclass(frozen=True)
class Agreement:
    """What the ranked models' answers say of the bank's slopes.

    Attributes:
        p_value: Probability of answers that bear the bank out so little, were it right.
        share: Share of what slopes differ by between items that the models show again, clipped to
            0.1 to 1.
        items: Items it was learned from.
        ratio: The F statistic over what is usual for so many items.
    """

    p_value: float
    share: float
    items: int
    ratio: float

    @property
    def alarm(self) -> bool:
        """Whether the bank does not fit, as far as can be told."""
        return self.p_value < LEVEL


def agreement(view: View, responses: FloatArray, overdispersion: float = 1.0) -> Agreement | None:
    """Regression of models' differences on the items' slopes, with a constant.

    On each item that all models were asked, their answers less the items' heights and less the
    models' mean are regressed on 1 and the slope, with weights 1 / noise. The constants' mean
    square over its error is an F statistic.

    Args:
        view: A linear view.
        responses: Scores, shape (m, n), NaN where not asked.
        overdispersion: Mean F statistic of the bank's own held-out models, over what is usual.

    Returns:
        None where fewer than two models were asked ten items together, or these items do not differ
        in slope.
    """
    asked = np.flatnonzero(np.isfinite(responses).all(axis=0))
    models, count = len(responses), len(asked)
    if models < 2 or count < LEAST_ITEMS:
        return None
    slope, weight = view.first[asked], 1.0 / view.noise[asked]
    design = np.stack([np.ones(count), slope])
    gram = (design * weight) @ design.T
    if not np.linalg.cond(gram) < 1e10:
        return None
    answers = responses[:, asked] - view.second[asked]
    apart = answers - answers.mean(axis=0)
    inverse = np.linalg.inv(gram)
    by_model = apart * weight @ design.T @ inverse  # constant and slope's factor, (m, 2)
    left = apart - by_model @ design
    df = (models - 1) * (count - 2)
    noise = float((left**2 * weight).sum()) / df
    constant = by_model[:, 0]
    usual = FIRST + LATER * count
    error = float(inverse[0, 0]) * max(noise, 1e-12)
    statistic = float((constant**2).sum()) / (models - 1) / error
    whole = constant + by_model[:, 1] * view.first.mean()
    total = float(whole @ whole)
    share = 1.0 - float(whole @ constant) / total if total > 0.0 else 1.0
    return Agreement(
        # Never less than were the bank right to the last digit.
        p_value=float(fdtrc(models - 1, df, statistic / max(overdispersion * usual, 1.0))),
        share=float(np.clip(share, LEAST_SHARE, 1.0)),
        items=count,
        ratio=statistic / usual,
    )
