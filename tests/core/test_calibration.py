"""From scores to item parameters: golden values, filters, recovery of what was simulated."""

from __future__ import annotations

import json
from fractions import Fraction
from math import log
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit
from scipy.stats import norm, pearsonr, spearmanr

from lm_eval_adaptive.core.build import calibrate, choose_response_model, refit
from lm_eval_adaptive.core.calibration import calibrate_items, completed_means, correlations
from lm_eval_adaptive.core.ranker import allocation_value, better_by
from lm_eval_adaptive.core.response import expected_score
from lm_eval_adaptive.core.sampler import WorthSampler
from lm_eval_adaptive.errors import DataError, UsageError
from tests.core.helpers import (
    ALL_MODELS,
    FactorBenchmark,
    draw_scores,
    make_items,
    matrix_of,
    posterior_under,
    quick,
    random_items,
    standard_abilities,
)

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "golden" / "paper_1pl.json").read_text(encoding="utf-8")
)


# --- the paper's equations, by hand


def test_paper_difficulty_where_normalisation_changes_nothing():
    # Item means 0.99, 0.25, 0.01 already span [eps, 1 - eps] with eps = 0.01, so that min-max
    # normalisation leaves them: b = log((1 - p) / p) = -log 99, log 3, log 99.
    scores = np.array([[1.0, 0.40, 0.02], [1.0, 0.25, 0.01], [0.97, 0.10, 0.00]])
    fit = calibrate_items(scores, "paper-1pl")
    np.testing.assert_allclose(fit.items.difficulty, [-log(99), log(3), log(99)])


def test_paper_difficulty_with_normalisation():
    # Item means 0.8, 0.5, 0.65, 0.2. Shares of the way from 0.2 to 0.8: 1, 1/2, 3/4, 0. Stretched
    # to [0.01, 0.99]: 0.99, 0.5, 0.745, 0.01. b = -log 99, 0, log(0.255 / 0.745), log 99.
    scores = np.array([[0.9, 0.6, 0.75, 0.4], [0.8, 0.5, 0.65, 0.2], [0.7, 0.4, 0.55, 0.0]])
    fit = calibrate_items(scores, "paper-1pl")
    np.testing.assert_allclose(
        fit.items.difficulty, [-log(99), 0.0, log(0.255 / 0.745), log(99)], atol=1e-12
    )
    # The prior's mean is their median, half-way between 0 and log(0.255 / 0.745); its variance 25.
    assert fit.parameters["prior_mean"] == pytest.approx(log(0.255 / 0.745) / 2)
    assert fit.parameters["prior_sd"] ** 2 == 25.0


def test_paper_k_by_moments_in_fractions():
    """A 3 x 2 matrix in which every mu is a fraction.

    Item means 2/3 and 1/3 normalise to 0.99 and 0.01, so e^-b = 99 and 1/99. Model means 3/4, 1/2
    and 1/4 give e^theta = 3, 1, 1/3. With odds o, mu = o / (1 + o):
      odds 297, 3/99 | 99, 1/99 | 33, 1/297  ->  mu 297/298, 1/34 | 99/100, 1/100 | 33/34, 1/298.
    k = sum (y - mu)^2 / sum mu (1 - mu).
    """
    scores = np.array([[1.0, 0.5], [0.75, 0.25], [0.25, 0.25]])
    top = (
        Fraction(1, 298) ** 2  # 1 - 297/298
        + Fraction(8, 17) ** 2  # 1/2 - 1/34
        + Fraction(6, 25) ** 2  # 3/4 - 99/100
        + Fraction(6, 25) ** 2  # 1/4 - 1/100
        + Fraction(49, 68) ** 2  # 1/4 - 33/34
        + Fraction(147, 596) ** 2  # 1/4 - 1/298
    )
    bottom = 2 * Fraction(297, 298**2) + 2 * Fraction(33, 34**2) + 2 * Fraction(99, 100**2)
    fit = calibrate_items(scores, "paper-1pl")
    k = float(top / bottom)
    np.testing.assert_allclose(fit.theta, [log(3), 0.0, -log(3)], atol=1e-12)
    assert fit.parameters["k"] == pytest.approx(k, rel=1e-12)
    np.testing.assert_allclose(fit.items.noise, k)
    np.testing.assert_allclose(fit.items.discrimination, 1.0 / np.sqrt(k))


def test_paper_leaves_out_items_that_better_models_fail():
    # Model means fall from the first to the last; items 0 and 1 fall with them, item 2 rises.
    scores = np.array([[0.9, 0.8, 0.1], [0.6, 0.5, 0.2], [0.3, 0.1, 0.4]])
    fit = calibrate_items(scores, "paper-1pl")
    assert fit.kept.tolist() == [True, True, False]
    assert fit.reason == ("", "", "negative correlation")


def test_the_whole_paper_in_decimal_arithmetic():
    """Calibration, estimate, confidence, allocation and choice; see tests/golden/README.md."""
    fit = calibrate_items(np.array(GOLDEN["scores"]), "paper-1pl")
    np.testing.assert_allclose(fit.items.difficulty, GOLDEN["difficulty"], rtol=1e-10)
    np.testing.assert_allclose(fit.theta, GOLDEN["theta"], rtol=1e-10)
    np.testing.assert_allclose(fit.items.discrimination, GOLDEN["discrimination"], rtol=1e-10)
    assert fit.parameters["k"] == pytest.approx(GOLDEN["k"], rel=1e-10)
    assert fit.parameters["prior_mean"] == pytest.approx(GOLDEN["prior_mean"], rel=1e-10)
    assert fit.kept.tolist() == [each >= 0 for each in GOLDEN["correlation"]]
    assert not fit.kept.all()

    posterior = posterior_under(fit.items, fit.parameters)
    responses = np.full((2, len(fit.kept)), np.nan)
    for row, model in enumerate(GOLDEN["ranked"]):
        for item, score in model["asked"].items():
            responses[row, int(item)] = score
    found = posterior.estimate(responses)
    np.testing.assert_allclose(found.theta, [m["theta"] for m in GOLDEN["ranked"]], rtol=1e-8)
    np.testing.assert_allclose(found.theta_se, [m["se"] for m in GOLDEN["ranked"]], rtol=1e-8)
    np.testing.assert_allclose(
        [posterior.worth(found).worth(row) for row in range(2)],
        [m["information"] for m in GOLDEN["ranked"]],
        rtol=1e-8,
    )
    p = better_by(found)
    assert p[0, 1] == pytest.approx(GOLDEN["p_first_better"], rel=1e-8)
    value = allocation_value(found.level_se**2, np.array([3, 2]), np.array(GOLDEN["costs"]))
    np.testing.assert_allclose(value, GOLDEN["value"], rtol=1e-8)
    free = fit.kept & ~np.isfinite(responses)
    chosen = WorthSampler(posterior).choose({0: 1, 1: 1}, found, free)
    first = {row: [each.item for each in items] for row, items in chosen.items()}
    assert first == {row: [model["next_item"]] for row, model in enumerate(GOLDEN["ranked"])}


# --- means and correlations


def test_means_of_a_full_matrix_are_plain_means():
    scores = np.array([[0.2, 0.4, 0.9], [0.0, 0.5, 1.0]])
    models, items = completed_means(scores)
    np.testing.assert_allclose(models, [0.5, 0.5])
    np.testing.assert_allclose(items, [0.1, 0.45, 0.95])


def test_a_model_that_was_asked_easy_items_gets_no_credit_for_them():
    # Additive truth: model effects 0.3, 0.2, 0.1 plus item effects 0, 0.1, 0.5, whose mean is 0.2.
    # The best model was not asked the easiest item, nor one more; its plain mean would be 0.3.
    full = np.array([[0.3], [0.2], [0.1]]) + np.array([0.0, 0.1, 0.5])
    holes = full.copy()
    holes[0, 1:] = np.nan
    models, items = completed_means(holes)
    np.testing.assert_allclose(models, [0.5, 0.4, 0.3], atol=1e-8)
    np.testing.assert_allclose(items, [0.2, 0.3, 0.7], atol=1e-8)


@quick
@given(st.integers(0, 10_000))
def test_completed_means_stay_within_the_scores_range(seed):
    rng = np.random.default_rng(seed)
    scores = np.round(rng.uniform(size=(4, 6)))
    scores[rng.uniform(size=scores.shape) < 0.5] = np.nan
    scores[np.arange(4), np.arange(4)] = 1.0
    scores[0, 4:] = 0.0
    for means in completed_means(scores):
        assert ((means >= 0.0) & (means <= 1.0)).all()


def test_item_rest_correlation_is_pearsons_with_the_mean_of_the_other_items():
    rng = np.random.default_rng(0)
    scores = rng.uniform(size=(7, 5))
    found = correlations(scores, scores.mean(axis=1), rest=True)
    for item in range(5):
        others = np.delete(scores, item, axis=1).mean(axis=1)
        assert found[item] == pytest.approx(pearsonr(scores[:, item], others).statistic)


def test_correlation_of_a_constant_item_is_unknown_and_missing_cells_are_left_out():
    scores = np.array([[0.1, 0.5, 0.3], [0.2, 0.5, np.nan], [0.6, 0.5, 0.8], [0.9, 0.5, 0.4]])
    ability = np.array([1.0, 2.0, 3.0, 4.0])
    found = correlations(scores, ability, rest=False)
    assert found[0] == pytest.approx(pearsonr(scores[:, 0], ability).statistic)
    assert np.isnan(found[1])
    seen = [0, 2, 3]
    assert found[2] == pytest.approx(pearsonr(scores[seen, 2], ability[seen]).statistic)


# --- all response models


@pytest.mark.parametrize("model", ALL_MODELS)
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_calibration_recovers_difficulties(model, missing):
    """100 models answer 80 items, all or 70 % of them; the truth is known up to the scale."""
    rng = np.random.default_rng(21)
    true = random_items(model, 80, rng)
    scores = draw_scores(true, rng.normal(0.0, 1.0, 100), rng)
    scores[rng.uniform(size=scores.shape) < missing] = np.nan
    fit = calibrate_items(scores, model)
    # The scale of b is fixed by the data (item means, sd of abilities): compare after a line.
    slope, intercept = np.polyfit(fit.items.difficulty, true.difficulty, 1)
    off = intercept + slope * fit.items.difficulty - true.difficulty
    assert np.corrcoef(fit.items.difficulty, true.difficulty)[0, 1] > 0.93
    assert np.sqrt((off**2).mean()) < 0.4
    # The same check refuses difficulties of other items.
    assert np.corrcoef(np.roll(fit.items.difficulty, 1), true.difficulty)[0, 1] < 0.5


@pytest.mark.parametrize("model", ["robust-2pl", "bernoulli-2pl"])
def test_calibration_recovers_discriminations_from_many_models(model):
    rng = np.random.default_rng(22)
    true = make_items(model, rng.normal(size=60), np.repeat([0.5, 2.0], 30), 0.15)
    fit = calibrate_items(draw_scores(true, rng.normal(size=300), rng), model)
    low, high = fit.items.discrimination[:30], fit.items.discrimination[30:]
    assert np.median(high) > 2.0 * np.median(low)
    assert (low.mean() < high).mean() > 0.95


def test_discriminations_shrink_to_the_banks_own_level_not_to_one():
    # Abilities are standardised, so that slopes of 1 become their sd, about 2.
    rng = np.random.default_rng(29)
    true = make_items("robust-2pl", rng.normal(size=100), 1.0, 0.15)
    theta = np.linspace(-3.0, 3.0, 6)
    fit = calibrate_items(draw_scores(true, theta, rng), "robust-2pl")
    assert np.median(fit.items.discrimination) == pytest.approx(theta.std(), rel=0.25)


def test_slopes_are_drawn_to_what_is_usual_at_an_items_height():
    """Very easy and very hard items separate models less; eight models tell little of each one."""
    rng = np.random.default_rng(4)
    d = rng.uniform(-2.5, 2.5, 200)
    a = np.exp(0.3 - 0.15 * d**2)
    true = make_items("robust-2pl", -d / a, a, 0.12)
    fit = calibrate_items(draw_scores(true, standard_abilities(8), rng), "robust-2pl")
    for part in (np.abs(d) > 1.8, np.abs(d) < 0.7):
        found, expected = np.median(fit.items.discrimination[part]), np.median(a[part])
        assert found == pytest.approx(expected, rel=0.22)
    assert np.median(fit.items.discrimination) > 1.4 * np.median(
        fit.items.discrimination[np.abs(d) > 1.8]
    )


def test_errors_of_difficulties_are_as_large_as_their_scatter():
    """Two calibrations from different answers of the same models differ by sqrt(2) errors."""
    rng = np.random.default_rng(32)
    for model in ("robust-2pl", "bernoulli-2pl"):
        true = make_items(model, rng.normal(0.0, 1.5, 200), rng.uniform(0.7, 1.4, 200), 0.15)
        theta = rng.normal(size=80)
        one, other = (calibrate_items(draw_scores(true, theta, rng), model) for _ in range(2))
        for part in (np.abs(true.difficulty) > 1.5, np.abs(true.difficulty) < 1.0):
            scatter = (one.items.difficulty - other.items.difficulty)[part] ** 2
            claimed = (one.items.covariance + other.items.covariance)[part, 0, 0]
            assert 0.5 < np.sqrt(np.median(scatter / claimed)) / 0.6745 < 1.2


def test_robust_calibration_tells_noisy_items_from_clean_ones():
    rng = np.random.default_rng(23)
    true = make_items("robust-2pl", rng.normal(size=60), 1.0, np.repeat([0.05, 0.25], 30))
    fit = calibrate_items(draw_scores(true, rng.normal(size=40), rng), "robust-2pl")
    assert fit.items.noise[:30].max() < np.median(fit.items.noise[30:])


def test_the_noise_of_items_is_right_on_the_whole_also_from_few_models():
    rng = np.random.default_rng(28)
    true = make_items("robust-2pl", rng.normal(size=300), 1.0, 0.1)
    fit = calibrate_items(draw_scores(true, np.linspace(-1.5, 1.5, 8), rng), "robust-2pl")
    assert np.sqrt((fit.items.noise**2).mean()) == pytest.approx(0.1, rel=0.2)


@pytest.mark.parametrize("model", ALL_MODELS)
def test_abilities_of_calibration_models_follow_their_mean_scores(model):
    rng = np.random.default_rng(24)
    scores = draw_scores(random_items(model, 30, rng), rng.normal(size=8), rng)
    fit = calibrate_items(scores, model)
    np.testing.assert_allclose(fit.mean_score, scores.mean(axis=1))
    assert (np.argsort(fit.theta) == np.argsort(scores.mean(axis=1))).all()


@pytest.mark.parametrize("model", ALL_MODELS)
def test_relabelling_models_and_items_permutes_the_parameters(model):
    rng = np.random.default_rng(25)
    scores = draw_scores(random_items(model, 20, rng), rng.normal(size=6), rng)
    scores[0, 3] = scores[4, 7] = np.nan
    rows, columns = rng.permutation(6), rng.permutation(20)
    one, other = calibrate_items(scores, model), calibrate_items(scores[rows][:, columns], model)
    np.testing.assert_allclose(other.theta, one.theta[rows], rtol=1e-6, atol=1e-9)
    for name in ("difficulty", "discrimination", "noise", "covariance"):
        np.testing.assert_allclose(
            getattr(other.items, name), getattr(one.items, name)[columns], rtol=1e-3, atol=1e-6
        )
    assert other.kept.tolist() == one.kept[columns].tolist()


@pytest.mark.parametrize("model", ALL_MODELS)
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_scores_of_exactly_0_and_1_give_finite_parameters(model, missing):
    rng = np.random.default_rng(26)
    scores = (rng.uniform(size=(5, 25)) < np.linspace(0.1, 0.9, 5)[:, None]).astype(float)
    scores[:, 0], scores[:, 1] = 0.0, 1.0
    scores[rng.uniform(size=scores.shape) < missing] = np.nan
    fit = calibrate_items(scores, model)
    for part in (fit.items.difficulty, fit.items.discrimination, fit.items.noise, fit.theta):
        assert np.isfinite(part).all()
    assert np.isfinite(fit.items.covariance).all()
    assert (fit.items.discrimination > 0).all()
    assert (fit.items.noise > 0).all()
    assert all(np.isfinite(value) for value in fit.parameters.values())
    assert fit.reason[:2] == ("constant", "constant")


@pytest.mark.parametrize("model", ALL_MODELS)
def test_the_easiest_items_are_those_with_the_highest_means(model):
    scores = np.array([[0.9, 0.7, 0.5, 0.3], [0.8, 0.6, 0.5, 0.2], [0.7, 0.6, 0.4, 0.1]])
    fit = calibrate_items(scores, model)
    # By height at average ability: b itself also depends on how steep an item is (b = -d / a), so
    # that of two easy items the flatter one may have the lower b.
    height = expected_score(np.array([fit.theta.mean()]), fit.items)[0]
    assert (np.diff(height) < 0).all()


@pytest.mark.parametrize("model", ALL_MODELS)
def test_difficulties_follow_the_means_of_many_items(model):
    rng = np.random.default_rng(33)
    scores = draw_scores(random_items(model, 100, rng), rng.normal(size=20), rng)
    fit = calibrate_items(scores, model)
    assert spearmanr(fit.items.difficulty, -scores.mean(axis=0)).statistic > 0.97


def test_the_link_of_the_paper_gives_back_the_mean_scores_of_the_calibration_models():
    """A model whose answers are all in reads as its mean score, within the link's own error."""
    rng = np.random.default_rng(27)
    scores = draw_scores(random_items("paper-1pl", 60, rng), rng.normal(size=12), rng)
    fit = calibrate_items(scores, "paper-1pl")
    found = posterior_under(fit.items, fit.parameters).estimate(scores)
    off = found.score - scores.mean(axis=1)
    assert np.abs(off).max() < 0.05
    assert (np.abs(off) < 3.0 * fit.parameters["score_sd"] + 1e-9).all()


def test_auto_is_by_the_kind_of_scores_where_models_or_items_are_too_few_to_compare():
    name, why = choose_response_model(np.array([[0.0, 1.0], [1.0, np.nan]]))
    assert (name, "2 models are too few" in why) == ("bernoulli-2pl", True)
    name, why = choose_response_model(np.array([[0.0, 1.0], [0.5, np.nan]]))
    assert (name, "continuous" in why) == ("robust-2pl", True)
    name, why = choose_response_model((np.arange(40).reshape(10, 4) % 3 == 0).astype(float))
    assert (name, "4 items are too few" in why) == ("bernoulli-2pl", True)


@pytest.mark.parametrize("missing", [0.0, 0.05])
def test_auto_takes_what_estimates_held_out_models_better_of_right_and_wrong_answers(missing):
    """Answers that hang on ability alone, and answers that hang more on other things."""
    rng = np.random.default_rng(34)
    ability = draw_scores(random_items("bernoulli-2pl", 200, rng), standard_abilities(14), rng)
    made = FactorBenchmark(rng, 200, loading=0.25)
    other = (made.draw(0.4 * standard_abilities(14), rng) > 0.6).astype(float)
    for scores, expected in ((ability, "bernoulli-2pl"), (other, "robust-2pl")):
        scores[rng.uniform(size=scores.shape) < missing] = np.nan
        name, why = choose_response_model(scores)
        assert name == expected
        assert f"auto took {expected}: error of held-out models" in why


@pytest.mark.parametrize("model", ALL_MODELS)
@pytest.mark.parametrize("high", [False, True])
def test_models_that_are_all_at_one_end_are_refused(model, high):
    end = 0.01 if model == "paper-1pl" else 0.001
    means = end * np.array([0.1, 0.3, 0.6])
    scores = (np.arange(10_000)[None, :] < 10_000 * means[:, None]).astype(float)
    scores = 1.0 - scores if high else scores
    says = rf"mean scores of [01]\.\d+ to .* within {end} of the end"
    with pytest.raises(DataError, match=says):
        calibrate_items(scores, model)


@pytest.mark.parametrize("model", ["robust-2pl", "bernoulli-2pl"])
def test_models_near_one_end_that_differ_still_calibrate(model):
    """One far outlier makes a range in which all mean scores lie near its end."""
    rng = np.random.default_rng(41)
    means = np.array([0.991, 0.993, 0.994, 0.996])
    fit = calibrate_items(np.clip(means[:, None] + rng.normal(0.0, 0.002, (4, 60)), 0, 1), model)
    assert (np.diff(fit.theta) > 0.1).all()
    assert np.isfinite(fit.items.difficulty).all()


@pytest.mark.parametrize(
    ("scores", "says"),
    [
        ([[0.1, 0.2], [0.3, 0.4]], "at least 3 models, got 2"),
        ([[0.1, 0.2], [0.3, 1.4], [0.5, 0.5]], "score 1.4 of model 1 on item 1 is outside"),
        ([[0.1, 0.2], [np.nan, np.nan], [0.5, 0.5]], "model 1 has no score"),
        ([[0.1, np.nan], [0.2, np.nan], [0.5, np.nan]], "item 1 has no score"),
        ([[0.2, 0.4], [0.4, 0.2], [0.3, 0.3]], "same mean score 0.3000"),
        ([0.1, 0.2], "shape (models, items), got shape (2,)"),
    ],
)
def test_scores_that_cannot_calibrate_are_refused_in_one_line(scores, says):
    with pytest.raises(DataError) as caught:
        calibrate_items(np.array(scores), "robust-2pl")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


# --- from raw scores to a bank


def raw_scores(seed=0, models=6, items=20):
    rng = np.random.default_rng(seed)
    true = random_items("robust-2pl", items, rng)
    return draw_scores(true, np.linspace(-1, 1, models), rng)


def test_a_bank_reads_raw_scores_in_their_own_units_and_direction():
    scores = raw_scores()
    up = calibrate(matrix_of(100 * scores), task="t", metric="chrf", score_range=(0.0, 100.0))
    down = calibrate(
        matrix_of(1.0 - scores),
        task="t",
        metric="ter",
        score_range=(0.0, 1.0),
        higher_is_better=False,
    )
    np.testing.assert_allclose(down.parameters.difficulty, up.parameters.difficulty, atol=1e-6)
    np.testing.assert_allclose(down.mean_score, up.mean_score)
    np.testing.assert_allclose([m.mean_raw for m in up.info.models], 100 * scores.mean(axis=1))
    np.testing.assert_allclose([m.mean_raw for m in down.info.models], 1 - scores.mean(axis=1))
    assert (up.info.range_source, up.info.response_model) == ("declared", "robust-2pl")


def test_without_a_range_it_is_the_observed_one():
    scores = raw_scores() * 3.0 - 1.0
    bank = calibrate(matrix_of(scores), task="t", metric="m")
    assert (bank.info.scale.lo, bank.info.scale.hi) == (scores.min(), scores.max())
    assert bank.info.range_source == "observed"
    assert (bank.scores.min(), bank.scores.max()) == (0.0, 1.0)


def test_scores_outside_a_declared_range_are_refused_or_clipped_and_counted():
    scores = raw_scores()
    scores[2, 5], scores[3, 1] = 1.2, -0.1
    with pytest.raises(DataError, match=r"2 score\(s\) lie outside .* 1.2 of m2 on item i005"):
        calibrate(matrix_of(scores), task="t", metric="m", score_range=(0.0, 1.0))
    bank = calibrate(matrix_of(scores), task="t", metric="m", score_range=(0.0, 1.0), clip=True)
    assert bank.info.clipped == pytest.approx(2 / scores.size)
    assert "clipped 2 of 120 scores to [0, 1]" in bank.info.notices


def test_items_without_scores_and_constant_items_are_told():
    scores = raw_scores()
    scores[:, 3] = np.nan
    scores[:, 7] = 0.5
    bank = calibrate(matrix_of(scores, doc_id=np.arange(100, 120)), task="t", metric="m")
    assert len(bank) == 19
    assert "i003" not in bank.content_hash
    assert 103 not in bank.doc_id
    constant = bank.content_hash.index("i007")
    assert bank.doc_id[constant] == 107
    assert (bool(bank.kept[constant]), bank.reason[constant]) == (False, "constant")
    assert "left out 1 item(s) without any score" in bank.info.notices
    assert "1 item(s) are not asked: constant" in bank.info.notices


def test_attributes_of_items_go_into_the_bank():
    tokens = np.arange(20.0)
    hashes = [f"h{item}" for item in range(20)]
    bank = calibrate(
        matrix_of(raw_scores(), doc_hash=hashes, input_tokens=tokens),
        task="t",
        metric="m",
        split="test",
    )
    assert bank.doc_hash == tuple(hashes)
    assert bank.prompt_hash == ("",) * 20
    np.testing.assert_array_equal(bank.input_tokens, tokens)
    assert np.isnan(bank.output_tokens).all()
    assert bank.info.split == "test"


def test_what_calibrate_is_given_wrongly_is_refused():
    with pytest.raises(UsageError, match=r"--response_model must be auto, .*; got 'rasch'"):
        calibrate(matrix_of(raw_scores()), task="t", metric="m", response_model="rasch")
    with pytest.raises(DataError, match=r"at least 3 models, got 2 \(m0, m1\)"):
        calibrate(matrix_of(raw_scores()[:2]), task="t", metric="m")
    with pytest.raises(DataError, match="same for all answers cannot rank"):
        calibrate(matrix_of(np.full((3, 4), 0.5)), task="t", metric="m")
    with pytest.raises(DataError, match="no score to calibrate from"):
        calibrate(matrix_of(np.full((3, 4), np.nan)), task="t", metric="m")


def test_refitting_a_bank_equals_calibrating_with_the_other_model():
    matrix = matrix_of(raw_scores())
    robust = calibrate(matrix, task="t", metric="m", response_model="robust-2pl")
    paper = calibrate(matrix, task="t", metric="m", response_model="paper-1pl")
    changed = refit(robust, "paper-1pl")
    np.testing.assert_allclose(changed.parameters.difficulty, paper.parameters.difficulty)
    assert changed.info.parameters == pytest.approx(paper.info.parameters)
    assert changed.kept.tolist() == paper.kept.tolist()
    assert [m.theta for m in changed.info.models] == [m.theta for m in paper.info.models]
    assert refit(robust, "auto") is robust


def test_difficulty_errors_shrink_with_more_calibration_models():
    rng = np.random.default_rng(30)
    for model in ALL_MODELS:
        true = random_items(model, 40, rng)
        # The same abilities four times: their spread is the unit of b.
        scores = draw_scores(true, np.tile(norm.ppf((np.arange(40) + 0.5) / 40.0), 4), rng)
        few, many = (calibrate_items(scores[:count], model) for count in (40, 160))
        ratio = np.sqrt(few.items.covariance[:, 0, 0] / many.items.covariance[:, 0, 0])
        assert np.median(ratio) > 1.3
        # About sqrt(160 / 40) = 2 near the middle. Far from it the error of b = -d / a is that of
        # a, which is held by its prior from 40 models and from 160.
        middle = np.abs(many.items.difficulty) < 0.5
        assert middle.sum() > 8
        assert 1.6 < np.median(ratio[middle]) < 2.4


def test_expected_scores_match_the_calibration_means():
    """The fitted curves, at the calibration models' abilities, average to the items' means."""
    rng = np.random.default_rng(31)
    for model in ("robust-2pl", "bernoulli-2pl"):
        true = random_items(model, 40, rng)
        scores = draw_scores(true, rng.normal(size=60), rng)
        fit = calibrate_items(scores, model)
        mu = expit(fit.items.discrimination * (fit.theta[:, None] - fit.items.difficulty[None, :]))
        np.testing.assert_allclose(mu.mean(axis=0), scores.mean(axis=0), atol=0.08)
        assert np.corrcoef(fit.theta, logit(scores.mean(axis=1)))[0, 1] > 0.999
