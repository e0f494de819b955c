"""Curves from those calibration models that lie near the ranked ones.

A curve of two parameters fits where most calibration models lie. In a bank of hundreds, most of
them far below the models that are ranked today, what told these apart hardly tells those apart; the
calibration models near them know better. This module owns which these are, and the views fitted to
them alone; it imports numpy, the fits and the views.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lm_eval_adaptive.core.calibration import calibrate_items
from lm_eval_adaptive.core.siblings import effective_number
from lm_eval_adaptive.core.views import fit_views
from lm_eval_adaptive.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.core.views import View

    FloatArray = NDArray[np.float64]

# Models that are near: so many, and all that lie between the ranked ones; of banks that count for
# fewer than ENOUGH all are. The first of them goes in steps, so that a run fits few sets.
NEAR, ENOUGH, STEP = 60, 120, 20
# Answers of every ranked model from which it is known where it lies.
LEAST_ANSWERS = 6


class Nearby:
    """The calibration models of a bank by their level, and views of those near any level.

    Args:
        bank: A bank calibrated as ``robust-2pl``, with its calibration scores.
    """

    def __init__(self, bank: ItemBank) -> None:
        means = np.array([model.mean_score for model in bank.info.models])
        self._order = np.argsort(means, kind="stable")
        self._means = means[self._order]
        self._bank = bank
        self._fitted: dict[tuple[int, int], tuple[View, View] | None] = {}
        self.many = len(means) >= ENOUGH and effective_number(bank.scores) >= ENOUGH

    def views(self, score: FloatArray, answered: NDArray[np.int_]) -> tuple[View, View] | None:
        """Views of the calibration models near some scores.

        Args:
            score: Full scores as estimated by all of them, shape (m,).
            answered: Items answered, shape (m,).

        Returns:
            The logistic view and the linear one; None where all calibration models count: they are
            few, or little is known of the ranked ones.
        """
        asked = answered > 0
        if not self.many or not asked.any() or int(answered[asked].min()) < LEAST_ANSWERS:
            return None
        window = self._window(score[asked])
        if window not in self._fitted:
            self._fitted[window] = self._fit(window)
        return self._fitted[window]

    def _window(self, score: FloatArray) -> tuple[int, int]:
        """First and last place, by level, of the models near some scores."""
        count = len(self._means)
        low, high = np.searchsorted(self._means, [score.min(), score.max()])
        missing = max(NEAR - int(high - low), 0)
        first = int(np.clip(low - missing // 2, 0, max(count - NEAR, 0)))
        first -= first % STEP
        last = max(int(high), first + NEAR)
        last += -last % STEP
        return first, min(last, count)

    def _fit(self, window: tuple[int, int]) -> tuple[View, View] | None:
        rows = np.sort(self._order[window[0] : window[1]])
        scores, levels = self._bank.scores[rows], self._bank.levels
        own = None if levels is None else levels[rows]
        if not np.isfinite(scores).any(axis=0).all():
            return None
        try:
            fit = calibrate_items(scores, "robust-2pl", own)
        except DataError:  # these do not differ
            return None
        return fit_views(scores, fit.theta, fit.items, own)
