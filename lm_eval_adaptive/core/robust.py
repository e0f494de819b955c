"""``robust-2pl``: beliefs from the joint posterior, with errors that hold out of sample.

This module owns the mean of the two views and the errors of scores and pairs; it imports numpy,
scipy, the views, the joint posterior and the constants of the error model. Posterior errors are too
small where a new model differs from all that calibrated, so they are widened: by constants common
to all banks, and by a factor of the bank's own, found by testing its own calibration models as if
they were new, and shrunk to 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import gammaln

from lm_eval_adaptive.core.calibration import calibrate_items
from lm_eval_adaptive.core.joint import full_scores, latent_posterior, misfit
from lm_eval_adaptive.core.posterior import Estimates
from lm_eval_adaptive.core.sampler import SharedSampler
from lm_eval_adaptive.core.views import fit_views
from lm_eval_adaptive.core.widening import (
    INTERVAL_DF,
    PAIR_VIEWS,
    SCALE,
    SCALE_L,
    SHRINK,
    SHRINK_L,
    VIEWS,
    log_length,
    pair_factor,
)
from lm_eval_adaptive.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.core.views import View

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
CV_LENGTHS = (10, 20, 40, 80)
CV_REPEATS = 2
CV_GROUP = 4
# With very many calibration models, folds and groups are bounded: the rest adds nothing.
CV_MAX_FOLDS = 6
CV_MAX_GROUP = 8
# Random shared items are asked in place of informative ones where these order held-out models by
# less than LEAST_GAIN tau better, over tests of up to GAIN_LENGTHS items, and where held-out models
# show less than LEAST_AGAIN of what slopes differ by between items; either alone is often chance.
LEAST_GAIN, LEAST_AGAIN = 0.03, 0.5
GAIN_LENGTHS, GAIN_DRAWS = 40, 20
# Least that is kept of the slopes' differences then.
LEAST_SHARE = 0.1
# A group of held-out models that lie further apart, sum of squares of theta, counts no more.
MOST_APART = 8.0
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
        self.log_scale = float(bank.info.correction.get("log_scale", 0.0))
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
        latents = tuple(latent_posterior(view, responses) for view in self.views)
        scores, covs, fits = [], [], []
        for latent in latents:
            score, cov = full_scores(latent, responses)
            scores.append(score)
            covs.append(cov)
            fits.append(misfit(latent, responses))
        answered = np.isfinite(responses).sum(axis=1)
        fit = np.mean(fits, axis=0)
        phi = ((answered * fit + MISFIT_ITEMS) / (answered + MISFIT_ITEMS)) ** MISFIT_POWER
        cov = np.mean(covs, axis=0) * np.sqrt(phi[:, None] * phi[None, :])
        score = np.mean(scores, axis=0)
        disagreement = scores[0] - scores[1]
        logistic = latents[0]
        q = logistic.mean.shape[1]
        open_share = 1.0 - answered / responses.shape[1]
        return Estimates(
            theta=logistic.mean[:, 0],
            theta_se=np.sqrt(np.diag(logistic.cov)[::q]),
            score=score,
            score_cov=self._score_cov(score, cov, disagreement, answered, open_share),
            level=score,
            level_cov=cov,
            pair_var=self._pair_var(cov, disagreement, answered),
            interval_df=INTERVAL_DF,
            misfit=fit,
            latents=latents,
        )

    def misfitting(self, responses: FloatArray, estimates: Estimates) -> NDArray[np.bool_]:
        """Which models' answers do not fit the bank, shape (m,): their estimates are doubtful."""
        assert estimates.misfit is not None
        n = np.isfinite(responses).sum(axis=1)
        limit = (MISFIT_ALARM + MISFIT_ALARM_N / np.maximum(n, 1)) * self.usual_misfit
        return np.asarray((n >= MISFIT_ALARM_ITEMS) & (estimates.misfit[: len(n)] > limit))

    def _score_cov(
        self,
        score: FloatArray,
        cov: FloatArray,
        disagreement: FloatArray,
        answered: NDArray[np.int_],
        open_share: FloatArray,
    ) -> FloatArray:
        length = log_length(answered)
        factor = np.exp((self.log_scale + SCALE + SCALE_L * length) / 2.0)
        extra = score_extra(score - self.mean, disagreement, length) * open_share
        return np.asarray(
            cov * factor[:, None] * factor[None, :] + np.diag(np.exp(self.log_scale) * extra)
        )

    def _pair_var(
        self, cov: FloatArray, disagreement: FloatArray, answered: NDArray[np.int_]
    ) -> FloatArray:
        own = np.diag(cov)
        differ = np.maximum(own[:, None] + own[None, :] - 2.0 * cov, 0.0)
        views = (disagreement[:, None] - disagreement[None, :]) ** 2
        found = pair_factor(answered) * differ + PAIR_VIEWS * views
        return np.asarray(np.exp(self.log_scale / 2.0) * found)


def score_extra(deviation: FloatArray, disagreement: FloatArray, length: FloatArray) -> FloatArray:
    """Variance of a score beyond its posterior's, before the bank's own factor; see the constants.

    Args:
        deviation: Score less the calibration models' mean, shape (m,).
        disagreement: Difference of the two views' scores, shape (m,).
        length: log(items / 20), shape (m,).
    """
    return np.asarray(
        np.exp(SHRINK + SHRINK_L * length) * deviation**2 + np.exp(VIEWS) * disagreement**2
    )


def drawn(views: tuple[View, View], shares: Sequence[float] | None) -> tuple[View, View]:
    """The views with their slopes drawn to the mean by a share each; None leaves them."""
    if shares is None:
        return views
    return views[0].with_slopes_drawn(shares[0]), views[1].with_slopes_drawn(shares[1])


@dataclass(frozen=True)
class HeldOut:
    """Simulated tests of held-out calibration models; arrays have one entry per test.

    Attributes:
        length: Items asked.
        items: Items there were.
        estimate: Estimated full score.
        truth: Full score.
        variance: Posterior variance of the estimate, not widened.
        disagreement: Difference of the two views.
        mean: Mean full score of the models that calibrated.
        misfit: Mean squared standardised residual of the answers.
        order_gain: How much better tests order held-out models than as many random shared items
            do, a difference of rank correlations (Kendall); 0 where no two were tested together.
        slopes_again: What share of the slopes' differences between items the held-out models show
            again, under each view; 1 where it is not known.
    """

    length: FloatArray
    items: FloatArray
    estimate: FloatArray
    truth: FloatArray
    variance: FloatArray
    disagreement: FloatArray
    mean: FloatArray
    misfit: FloatArray
    order_gain: float
    slopes_again: tuple[float, float]


def hold_out(
    scores: FloatArray,
    seed: int = 0,
    levels: FloatArray | None = None,
    shares: Sequence[float] | None = None,
) -> HeldOut:
    """Calibrate without a few models, test these as if they were new, and do so with all.

    A model that misses cells is tested on the items it has a score of.

    Args:
        scores: Calibration scores, shape (C, n), in [0, 1], NaN where not asked.
        seed: Seed of the groups.
        levels: Mean scores of models whose items were chosen for them, shape (C,), NaN for others.
            Such models calibrate and are not tested.
        shares: With them, models are asked random shared items, and slopes are drawn to their mean;
            see :func:`drawn`.

    Returns:
        A record per held-out model and test length.
    """
    rng, draws = np.random.default_rng(seed), np.random.default_rng(seed + 1)
    models = len(scores)
    rows: list[tuple[float, ...]] = []
    gains: list[float] = []
    again = np.zeros((2, 2))
    for _ in range(CV_REPEATS):
        folds = int(np.clip(round(models / CV_GROUP), 2, CV_MAX_FOLDS))
        for group in np.array_split(rng.permutation(models), folds):
            kept = np.setdiff1d(np.arange(models), group)
            seen = np.isfinite(scores[kept]).any(axis=0)
            calibration = scores[kept][:, seen]
            known = None if levels is None else levels[kept]
            try:
                fit = calibrate_items(calibration, "robust-2pl", known)
            except DataError:  # those kept do not differ; the held-out ones did
                continue
            views = fit_views(calibration, fit.theta, fit.items, known)
            whole = group if levels is None else group[np.isnan(levels[group])]
            for tested in tested_together(scores[:, seen], whole[:CV_MAX_GROUP]):
                has = np.flatnonzero(np.isfinite(scores[tested][:, seen]).all(axis=0))
                part = drawn((views[0].take(has), views[1].take(has)), shares)
                truth = scores[tested][:, seen][:, has]
                order = draws.permutation(len(has)) if shares is not None else None
                found = _one_group(part, float(fit.mean_score.mean()), truth, order)
                rows += found
                if len(tested) > 1 and shares is None:
                    gains.append(_order_gain(found, truth, draws))
                    again += _slopes_again(part, fit.mean_score, truth)
    columns = np.array(rows, dtype=np.float64).reshape(-1, 8).T
    ratio = [float(part / whole) if whole > 0.0 else 1.0 for part, whole in again]
    length, items, estimate, known_score, variance, disagreement, means, fits = columns
    return HeldOut(
        length=length,
        items=items,
        estimate=estimate,
        truth=known_score,
        variance=variance,
        disagreement=disagreement,
        mean=means,
        misfit=fits,
        order_gain=float(np.mean(gains)) if gains else 0.0,
        slopes_again=(ratio[0], ratio[1]),
    )


def _order_gain(
    rows: list[tuple[float, ...]], truth: FloatArray, rng: np.random.Generator
) -> float:
    """How much better a group's tests order it than random shared items, over test lengths."""
    full = truth.mean(axis=1)
    found = []
    for length in sorted({int(row[0]) for row in rows if row[0] <= GAIN_LENGTHS}):
        estimate = np.array([row[2] for row in rows if int(row[0]) == length])
        draws = [
            _concordance(truth[:, rng.permutation(truth.shape[1])[:length]].mean(axis=1), full)
            for _ in range(GAIN_DRAWS)
        ]
        found.append(_concordance(estimate, full) - float(np.mean(draws)))
    return float(np.mean(found)) if found else 0.0


def _concordance(estimate: FloatArray, truth: FloatArray) -> float:
    a, b = np.triu_indices(len(truth), 1)
    return float(np.mean(np.sign(estimate[a] - estimate[b]) * np.sign(truth[a] - truth[b])))


def _slopes_again(
    views: tuple[View, View], calibrated: FloatArray, truth: FloatArray
) -> FloatArray:
    """Regression of held-out models' own slopes on the views', in units of their mean.

    Weighted over items by 1 / (noise + mean noise), over groups by how far their models lie apart.

    Returns:
        Sum of products and of squares under each view, shape (2, 2).
    """
    theta = truth.mean(axis=1) / max(float(calibrated.std()), 1e-9)
    theta = theta - theta.mean()
    apart = float(theta @ theta)
    own = theta @ (truth - truth.mean(axis=0)) / max(float(calibrated.std()), 1e-9)
    found = np.zeros((2, 2))
    for row, view in enumerate(views):
        weight = 1.0 / (view.noise + view.noise.mean())
        weight = weight / weight.sum()
        slope = view.slope / view.slope.mean()
        slope = slope - weight @ slope
        found[row] = weight @ (slope * own), apart * (weight @ slope**2)
    return found * min(1.0, MOST_APART / max(apart, 1e-9))


def tested_together(scores: FloatArray, group: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """Held-out models as they can be tested: all at once, or by themselves if cells are missing."""
    if len(group) and np.isfinite(scores[group]).all():
        return [group]
    return [group[[place]] for place in range(len(group))]


def _one_group(
    views: tuple[View, View], mean: float, truth: FloatArray, order: NDArray[np.intp] | None
) -> list[tuple[float, ...]]:
    """Records of one group's test, by informative items or in a given order of all items."""
    m, n = truth.shape
    lengths = [length for length in CV_LENGTHS if length < n]
    responses = np.full((m, n), np.nan)
    sampler = SharedSampler()
    asked = 0
    rows: list[tuple[float, ...]] = []
    for length in lengths:
        if order is None:
            latents = tuple(latent_posterior(view, responses) for view in views)
            # Chosen in blocks: the worth of items hardly depends on the answers.
            wanted = dict.fromkeys(range(m), length - asked)
            chosen = sampler.choose(wanted, latents, np.isnan(responses), None)[0]
        else:
            chosen = [int(item) for item in order[asked:length]]
        responses[:, chosen] = truth[:, chosen]
        asked = length
        latents = tuple(latent_posterior(view, responses) for view in views)
        found = [full_scores(latent, responses) for latent in latents]
        score = np.mean([each[0] for each in found], axis=0)
        variance = np.mean([np.diag(each[1]) for each in found], axis=0)
        disagreement = found[0][0] - found[1][0]
        fits = np.mean([misfit(latent, responses) for latent in latents], axis=0)
        rows += [
            (length, n, score[a], truth[a].mean(), variance[a], disagreement[a], mean, fits[a])
            for a in range(m)
        ]
    return rows


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
    extra = score_extra(held.estimate - held.mean, held.disagreement, length) * open_share
    base = np.exp(SCALE + SCALE_L * length) * held.variance + extra
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
