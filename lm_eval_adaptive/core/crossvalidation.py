"""What a bank learns from its own calibration models: its correction and its selector.

This module owns the learning of a correction, from tests of models held out as if they were new;
it imports these tests, the constants of the error model and the correction's shape. The factor of
the errors is shrunk to 1, since few dependent tests say little.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln

from lm_eval_adaptive.core.correction import Correction, HeldOutErrors
from lm_eval_adaptive.core.holdout import hold_out
from lm_eval_adaptive.core.siblings import effective_number
from lm_eval_adaptive.core.widening import (
    FEW,
    INTERVAL_DF,
    SCALE,
    SCALE_L,
    lack_of_models,
    score_extra,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.core.holdout import HeldOut

    FloatArray = NDArray[np.float64]

# The bank's own factor: prior sd of its logarithm, and how much a fold's records count, which are
# dependent (lengths and models of one fold, repetitions).
LOG_SCALE_SD = 0.3
RECORD_WEIGHT = 0.1
# Fewer calibration models than this cannot be held out in groups.
MIN_CV_MODELS = 8
# Random shared items are asked in place of informative ones where these order held-out models by
# less than LEAST_GAIN tau better, and where held-out models show less than LEAST_AGAIN of what
# slopes differ by between items; either alone is often chance.
LEAST_GAIN, LEAST_AGAIN = 0.03, 0.5
# Least that is kept of the slopes' differences then.
LEAST_SHARE = 0.1
SELECTOR_NOTE = "auto took the selector"


def cross_validated_correction(
    scores: FloatArray, levels: FloatArray | None = None
) -> Correction | None:
    """The bank's own error factor, and how well held-out models were estimated.

    The logarithm of the factor maximises the Student t likelihood of the held-out errors, tempered
    because records are dependent, times a N(0, 0.3^2) prior.

    Args:
        scores: Calibration scores, shape (C, n).
        levels: See :func:`hold_out`.

    Returns:
        What was learned; None with fewer than 8 models, or too few items to test by.
    """
    if len(scores) < MIN_CV_MODELS:
        return None
    held = hold_out(scores, levels=levels)
    if not len(held.length):
        return None
    gain, again = held.order_gain, held.slopes_again
    held_far, overdispersion = held.far_again, held.overdispersion
    shares = None
    if gain < LEAST_GAIN and float(np.mean(np.clip(again, 0.0, 1.0))) < LEAST_AGAIN:
        first, second = (float(np.clip(share, LEAST_SHARE, 1.0)) for share in again)
        shares = first, second
        held = hold_out(scores, levels=levels, shares=shares)
    near = held.far == 0.0  # what is usual is told by models of the bank's own kind
    if not near.any():
        near = ~near
    base = _widened(held)
    error = held.estimate - held.truth
    log_scale = _log_scale(error, base)
    half = 2.306 * np.sqrt(base * np.exp(log_scale))  # t_8 at 97.5 %
    return Correction(
        log_scale=log_scale,
        misfit=float(held.misfit[near].mean()),
        misfit_sd=float(held.misfit[near].std()),
        models=len(scores),
        order_gain=gain,
        slopes_again=again,
        lengths={int(asked): _errors_at(held, asked, half) for asked in np.unique(held.length)},
        slopes=shares,
        far_again=held_far,
        overdispersion=overdispersion,
        kinds=effective_number(scores),
    )


def _widened(held: HeldOut) -> FloatArray:
    """Variances of held-out models' errors before the bank's own factor."""
    length = np.log(held.length / 20.0)
    open_share = 1.0 - held.length / held.items
    extra = score_extra(held.estimate - held.mean, held.plain_apart, held.own_apart, held.level_var)
    base = np.exp(SCALE + SCALE_L * length) * held.variance + extra * open_share
    return np.asarray(base * np.exp(FEW * np.array([lack_of_models(each) for each in held.kinds])))


def _log_scale(error: FloatArray, variance: FloatArray) -> float:
    """The most probable logarithm of the bank's own factor, on a grid."""
    grid = np.linspace(-2.0, 2.0, 81)
    tempered = [
        RECORD_WEIGHT * _student_log_density(error, variance * np.exp(s)).sum()
        - 0.5 * (s / LOG_SCALE_SD) ** 2
        for s in grid
    ]
    return float(grid[int(np.argmax(tempered))])


def _errors_at(held: HeldOut, length: float, half: FloatArray) -> HeldOutErrors:
    """Errors of the tests of one length, whose intervals have these half widths."""
    at = held.length == length
    error = (held.estimate - held.truth)[at]
    spread = held.estimate[at].std() * held.truth[at].std()
    correlation = float(np.corrcoef(held.estimate[at], held.truth[at])[0, 1]) if spread > 0 else 0.0
    return HeldOutErrors(
        mae=float(np.abs(error).mean()),
        rmse=float(np.sqrt((error**2).mean())),
        correlation=correlation,
        covered=float((np.abs(error) <= half[at]).mean()),
        tests=int(at.sum()),
    )


def _student_log_density(error: FloatArray, variance: FloatArray) -> FloatArray:
    """Log density of errors whose square divided by ``variance`` is that of a Student t_8."""
    df = INTERVAL_DF
    constant = gammaln((df + 1.0) / 2.0) - gammaln(df / 2.0) - 0.5 * np.log(df * np.pi)
    return np.asarray(
        constant - 0.5 * np.log(variance) - (df + 1.0) / 2.0 * np.log1p(error**2 / (df * variance))
    )


def corrected(bank: ItemBank) -> ItemBank:
    """The bank with its cross-validated correction, and the selector that follows from it."""
    correction = cross_validated_correction(bank.scores, bank.levels)
    selector, why = _selector(correction)
    notices = (*(each for each in bank.info.notices if not each.startswith(SELECTOR_NOTE)), why)
    info = replace(bank.info, correction=correction, selector=selector, notices=notices)
    return replace(bank, info=info)


def _selector(correction: Correction | None) -> tuple[str, str]:
    """How items are to be chosen, and why: a line for the bank's notices."""
    if correction is None:
        return "draw", f"{SELECTOR_NOTE} draw: there are too few models or items to compare by"
    gain, again = correction.order_gain, np.clip(correction.slopes_again, 0.0, 1.0).mean()
    far = np.clip(correction.far_again, 0.0, 1.0).mean()
    name = "draw" if correction.slopes is None else "random"
    return name, (
        f"{SELECTOR_NOTE} {name}: informative items order held-out models by {gain:+.3f} tau "
        f"against random shared ones, and {100.0 * again:.0f} % of what slopes differ by was found "
        f"again, {100.0 * far:.0f} % of it by the best and the worst third"
    )
