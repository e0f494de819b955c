"""``robust-2pl``: beliefs from pooled estimates, with errors that hold out of sample.

This module puts the default inference together: the views of a bank, the pooled estimate, the error
model, and which models do not fit. It imports these; what a bank learned from its own held-out
models comes with the bank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lm_eval_adaptive.core.calibration import MODEL_EPSILON
from lm_eval_adaptive.core.correction import Correction
from lm_eval_adaptive.core.error_model import ErrorModel
from lm_eval_adaptive.core.estimates import Estimates
from lm_eval_adaptive.core.floor import least_pair_variance, with_least_variance
from lm_eval_adaptive.core.forecast import OBSERVED
from lm_eval_adaptive.core.inference import AT_ONCE
from lm_eval_adaptive.core.nearby import LEAST_ANSWERS, Nearby
from lm_eval_adaptive.core.pooled import pool
from lm_eval_adaptive.core.prospects import Prospects
from lm_eval_adaptive.core.siblings import effective_number
from lm_eval_adaptive.core.views import drawn, fit_views
from lm_eval_adaptive.core.widening import INTERVAL_DF, PAIR_DF

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lm_eval_adaptive.core.bank import ItemBank

    FloatArray = NDArray[np.float64]

# A model does not fit whose misfit, after n >= MISFIT_ALARM_ITEMS answers, is above
# (MISFIT_ALARM + MISFIT_ALARM_N / n) (mean + 2 sd), mean and sd being those of the bank's own
# held-out models.
MISFIT_ALARM, MISFIT_ALARM_N, MISFIT_ALARM_ITEMS = 1.2, 3.0, 10


class RobustPosterior:
    """Beliefs about models from their answers, all models together.

    Args:
        bank: A bank calibrated as ``robust-2pl``, with its calibration scores.
    """

    shared = True
    ranks_by_score = True
    one_at_a_time = False
    draws = True
    gives_up = True
    stop_share = 0.5
    least_round = 1
    forecast = OBSERVED

    def __init__(self, bank: ItemBank) -> None:
        models, correction = bank.info.models, bank.info.correction
        theta = np.array([model.theta for model in models])
        self.items = bank.parameters
        views = fit_views(bank.scores, theta, bank.parameters, bank.levels)
        self.views = drawn(views, None if correction is None else correction.slopes)
        means = np.array([model.mean_score for model in models])
        told = Correction(log_scale=0.0) if correction is None else correction
        kinds = told.kinds if told.kinds > 0.0 else effective_number(bank.scores)
        self.errors = ErrorModel.of(means, kinds, correction)
        self.overdispersion = told.overdispersion
        self.scale = (
            bank.info.parameters.get("theta_centre", 0.0),
            max(bank.info.parameters.get("theta_spread", 1.0), 1e-9),
        )
        self.nearby = Nearby(bank)
        # Where few calibration models count, which these are is to be known early.
        self.warm_up = LEAST_ANSWERS if self.nearby.many else AT_ONCE
        self.usual_misfit = told.misfit + 2.0 * told.misfit_sd

    def estimate(self, responses: FloatArray) -> Estimates:
        """See :meth:`~lm_eval_adaptive.core.inference.Inference.estimate`."""
        found = pool(self.views, responses, self.overdispersion)
        answered = np.isfinite(responses).sum(axis=1)
        near = self.nearby.views(found.score, answered)
        if near is not None:
            found = pool(near, responses, self.overdispersion)
        cov = self.errors.level_cov(found, answered)
        open_share = 1.0 - answered / responses.shape[1]
        n = responses.shape[1]
        score_cov = with_least_variance(self.errors.score_cov(found, cov, answered, open_share), n)
        theta, theta_se = self._abilities(found.score, np.sqrt(np.diag(score_cov)))
        return Estimates(
            theta=theta,
            theta_se=theta_se,
            score=found.score,
            score_cov=score_cov,
            level=found.score,
            level_cov=with_least_variance(cov, n),
            pair_var=least_pair_variance(self.errors.pair_var(found, cov, answered), n),
            interval_df=INTERVAL_DF,
            pair_df=PAIR_DF,
            misfit=found.misfit,
            latents=found.latents,
            outside=self.errors.outside(found.score),
            agreement=found.agreement,
        )

    def _abilities(self, score: FloatArray, score_se: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Abilities of scores, as those of the calibration models are defined: standardised logits.

        Errors are those of the scores, by the delta method.
        """
        centre, spread = self.scale
        share = np.clip(score, MODEL_EPSILON, 1.0 - MODEL_EPSILON)
        theta = (np.log(share / (1.0 - share)) - centre) / spread
        return theta, score_se / (share * (1.0 - share) * spread)

    def worth(self, estimates: Estimates, items: NDArray[np.intp] | None = None) -> Prospects:
        """How far the variance of full scores would fall, relative to the best item's."""
        latents = [each.without_offsets() for each in estimates.latents]
        return Prospects(latents if items is None else [each.at(items) for each in latents])

    def misfitting(self, responses: FloatArray, estimates: Estimates) -> NDArray[np.bool_]:
        """Models whose misfit is far above that of the bank's own held-out models."""
        assert estimates.misfit is not None
        n = np.isfinite(responses).sum(axis=1)
        limit = (MISFIT_ALARM + MISFIT_ALARM_N / np.maximum(n, 1)) * self.usual_misfit
        return np.asarray((n >= MISFIT_ALARM_ITEMS) & (estimates.misfit[: len(n)] > limit))
