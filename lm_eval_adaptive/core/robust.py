"""``robust-2pl``: beliefs from pooled estimates, with errors that hold out of sample.

This module owns the errors of scores and pairs, and the bank's own correction; it imports numpy,
scipy, the views, the pooled estimate, the tests of held-out models and the constants of the error
model. Posterior errors are too small where a new model differs from all that calibrated, so they
are widened: by constants common to all banks, and by a factor of the bank's own, found by testing
its own calibration models as if they were new, and shrunk to 1.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import gammaln

from lm_eval_adaptive.core.holdout import drawn, hold_out
from lm_eval_adaptive.core.pooled import pool
from lm_eval_adaptive.core.posterior import Estimates
from lm_eval_adaptive.core.views import fit_views
from lm_eval_adaptive.core.widening import (
    FEW,
    INTERVAL_DF,
    PAIR_DF,
    PAIR_FEW,
    PAIR_PLAIN,
    PAIR_VIEWS,
    SCALE,
    SCALE_L,
    lack_of_models,
    log_length,
    pair_factor,
    score_extra,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.core.pooled import Pooled

    FloatArray = NDArray[np.float64]

# Models whose answers fit badly get their error widened: phi = ((n misfit + 10) / (n + 10))^1.25.
MISFIT_ITEMS, MISFIT_POWER = 10.0, 1.25
# A model does not fit whose misfit, after n >= MISFIT_ALARM_ITEMS answers, is above
# (MISFIT_ALARM + MISFIT_ALARM_N / n) (mean + 2 sd), mean and sd being those of the bank's own
# held-out models; where none could be held out, the middle of those of 12 real score matrices.
MISFIT_ALARM, MISFIT_ALARM_N, MISFIT_ALARM_ITEMS = 1.2, 3.0, 10
MISFIT_MEAN, MISFIT_SD = 1.1, 0.6
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


class RobustPosterior:
    """Beliefs about models from their answers, all models together.

    Args:
        bank: A bank calibrated as ``robust-2pl``, with its calibration scores.
    """

    shared = True  # models are asked the same items where they can be

    def __init__(self, bank: ItemBank) -> None:
        theta = np.array([model.theta for model in bank.info.models])
        self.items = bank.parameters
        views = fit_views(bank.scores, theta, bank.parameters, bank.levels)
        self.views = drawn(views, bank.info.correction.get("slopes"))
        self.mean = float(np.mean([model.mean_score for model in bank.info.models]))
        log_scale = float(bank.info.correction.get("log_scale", 0.0))
        lack = lack_of_models(len(bank.info.models))
        self.score_scale = log_scale + FEW * lack
        self.pair_scale = log_scale / 2.0 + PAIR_FEW * lack
        held_out = bank.info.correction
        self.usual_misfit = float(held_out.get("misfit", MISFIT_MEAN)) + 2.0 * float(
            held_out.get("misfit_sd", MISFIT_SD)
        )

    def estimate(self, responses: FloatArray) -> Estimates:
        """Abilities and scores of m models.

        Args:
            responses: Shape (m, n), scores in [0, 1], NaN where not asked.

        Returns:
            Estimates of all m models; the same whatever order the items were asked in.
        """
        found = pool(self.views, responses)
        answered = np.isfinite(responses).sum(axis=1)
        phi = (answered * found.misfit + MISFIT_ITEMS) / (answered + MISFIT_ITEMS)
        phi = phi**MISFIT_POWER
        cov = found.cov * np.sqrt(phi[:, None] * phi[None, :])
        logistic = found.latents[0]
        q = logistic.mean.shape[1]
        open_share = 1.0 - answered / responses.shape[1]
        return Estimates(
            theta=logistic.mean[:, 0],
            theta_se=np.sqrt(np.diag(logistic.cov)[::q]),
            score=found.score,
            score_cov=self._score_cov(found, cov, answered, open_share),
            level=found.score,
            level_cov=cov,
            pair_var=self._pair_var(found, cov, answered),
            interval_df=INTERVAL_DF,
            pair_df=PAIR_DF,
            misfit=found.misfit,
            latents=found.latents,
        )

    def misfitting(self, responses: FloatArray, estimates: Estimates) -> NDArray[np.bool_]:
        """Which models' answers do not fit the bank, shape (m,): their estimates are doubtful."""
        assert estimates.misfit is not None
        n = np.isfinite(responses).sum(axis=1)
        limit = (MISFIT_ALARM + MISFIT_ALARM_N / np.maximum(n, 1)) * self.usual_misfit
        return np.asarray((n >= MISFIT_ALARM_ITEMS) & (estimates.misfit[: len(n)] > limit))

    def _score_cov(
        self,
        found: Pooled,
        cov: FloatArray,
        answered: NDArray[np.int_],
        open_share: FloatArray,
    ) -> FloatArray:
        length = log_length(answered)
        factor = np.exp((self.score_scale + SCALE + SCALE_L * length) / 2.0)
        extra = score_extra(found.score - self.mean, found.views_apart, found.plain_apart, length)
        own = np.exp(self.score_scale) * extra * open_share
        return np.asarray(cov * factor[:, None] * factor[None, :] + np.diag(own))

    def _pair_var(self, found: Pooled, cov: FloatArray, answered: NDArray[np.int_]) -> FloatArray:
        own = np.diag(cov)
        differ = np.maximum(own[:, None] + own[None, :] - 2.0 * cov, 0.0)
        variance = pair_factor(answered) * differ
        for share, apart in ((PAIR_VIEWS, found.views_apart), (PAIR_PLAIN, found.plain_apart)):
            variance += share * (apart[:, None] - apart[None, :]) ** 2
        return np.asarray(np.exp(self.pair_scale) * variance)


def cross_validated_correction(
    scores: FloatArray, levels: FloatArray | None = None
) -> dict[str, Any]:
    """The bank's own error factor, and how well held-out models were estimated.

    The logarithm of the factor maximises the Student t likelihood of the held-out errors, tempered
    because records are dependent, times a N(0, 0.3^2) prior.

    Args:
        scores: Calibration scores, shape (C, n).
        levels: See :func:`hold_out`.

    Returns:
        ``{"log_scale", "misfit", "misfit_sd", "models", "order_gain", "slopes_again", "lengths":
        {length: {"mae", "rmse", "correlation", "covered", "tests"}}}``, errors in [0, 1] units, and
        ``"slopes"`` where random items are to be asked; {} with fewer than 8 models.
    """
    if len(scores) < MIN_CV_MODELS:
        return {}
    held = hold_out(scores, levels=levels)
    if not len(held.length):
        return {}
    gain, again = held.order_gain, held.slopes_again
    shares = None
    if gain < LEAST_GAIN and float(np.mean(np.clip(again, 0.0, 1.0))) < LEAST_AGAIN:
        shares = [float(np.clip(share, LEAST_SHARE, 1.0)) for share in again]
        held = hold_out(scores, levels=levels, shares=shares)
    length = np.log(held.length / 20.0)
    open_share = 1.0 - held.length / held.items
    error = held.estimate - held.truth
    extra = score_extra(held.estimate - held.mean, held.views_apart, held.plain_apart, length)
    base = np.exp(SCALE + SCALE_L * length) * held.variance + extra * open_share
    base = base * np.exp(FEW * np.array([lack_of_models(int(each)) for each in held.models]))
    grid = np.linspace(-2.0, 2.0, 81)
    tempered = [
        RECORD_WEIGHT * _student_log_density(error, base * np.exp(s)).sum()
        - 0.5 * (s / LOG_SCALE_SD) ** 2
        for s in grid
    ]
    log_scale = float(grid[int(np.argmax(tempered))])
    half = 2.306 * np.sqrt(base * np.exp(log_scale))  # t_8 at 97.5 %
    found: dict[str, Any] = {}
    for asked in np.unique(held.length):
        at = held.length == asked
        spread = held.estimate[at].std() * held.truth[at].std()
        correlation = (
            float(np.corrcoef(held.estimate[at], held.truth[at])[0, 1]) if spread > 0 else 0.0
        )
        found[str(int(asked))] = {
            "mae": float(np.abs(error[at]).mean()),
            "rmse": float(np.sqrt((error[at] ** 2).mean())),
            "correlation": correlation,
            "covered": float((np.abs(error[at]) <= half[at]).mean()),
            "tests": int(at.sum()),
        }
    return {
        **({} if shares is None else {"slopes": shares}),
        "order_gain": gain,
        "slopes_again": list(again),
        "log_scale": log_scale,
        "misfit": float(held.misfit.mean()),
        "misfit_sd": float(held.misfit.std()),
        "models": len(scores),
        "lengths": found,
    }


def _student_log_density(error: FloatArray, variance: FloatArray) -> FloatArray:
    """Log density of errors whose square divided by ``variance`` is that of a Student t_8."""
    df = INTERVAL_DF
    constant = gammaln((df + 1.0) / 2.0) - gammaln(df / 2.0) - 0.5 * np.log(df * np.pi)
    return np.asarray(
        constant - 0.5 * np.log(variance) - (df + 1.0) / 2.0 * np.log1p(error**2 / (df * variance))
    )


def corrected(bank: ItemBank) -> ItemBank:
    """The bank with its cross-validated correction."""
    if bank.info.response_model != "robust-2pl":
        return bank
    correction = cross_validated_correction(bank.scores, bank.levels)
    selector, why = _selector(correction)
    notices = (*(each for each in bank.info.notices if not each.startswith(SELECTOR_NOTE)), why)
    info = replace(bank.info, correction=correction, selector=selector, notices=notices)
    return replace(bank, info=info)


def _selector(correction: dict[str, Any]) -> tuple[str, str]:
    """How items are to be chosen, and why: a line for the bank's notices."""
    if not correction:
        return "fisher", f"{SELECTOR_NOTE} fisher: there are too few models or items to compare by"
    gain, again = correction["order_gain"], np.clip(correction["slopes_again"], 0.0, 1.0).mean()
    name = "random" if "slopes" in correction else "fisher"
    return name, (
        f"{SELECTOR_NOTE} {name}: informative items order held-out models by {gain:+.3f} tau "
        f"against random shared ones, and {100.0 * again:.0f} % of what slopes differ by was found "
        "again"
    )
