"""robust-2pl: beliefs of all models together, errors that hold, the bank's own correction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.core.build import calibrate, refit
from lm_eval_adaptive.core.crossvalidation import cross_validated_correction
from lm_eval_adaptive.core.full_scores import full_scores
from lm_eval_adaptive.core.levels import levels_by_regression
from lm_eval_adaptive.core.pooled import from_plain_means
from lm_eval_adaptive.core.procedure import Procedure
from lm_eval_adaptive.core.ranker import better_by
from lm_eval_adaptive.core.robust import RobustPosterior
from lm_eval_adaptive.core.rules import ProcedureConfig
from lm_eval_adaptive.core.siblings import effective_number
from lm_eval_adaptive.core.widening import lack_of_models
from tests.core.helpers import (
    FactorBenchmark,
    make_items,
    matrix_of,
    quick,
    standard_abilities,
)

N = 80


@pytest.fixture(scope="module")
def bank():
    rng = np.random.default_rng(1)
    return FactorBenchmark(rng, N).bank(rng, 14)


@pytest.fixture(scope="module")
def posterior(bank):
    return RobustPosterior(bank)


def partly(scores, items):
    """The scores of some items, the others not asked."""
    asked = np.full_like(scores, np.nan)
    asked[:, items] = scores[:, items]
    return asked


def some_answers(rng, models=4, share=0.3):
    scores = rng.uniform(size=(models, N))
    scores[rng.uniform(size=scores.shape) > share] = np.nan
    return scores


def bank_of(scores, **settings):
    return calibrate(matrix_of(scores), task="t", metric="m", score_range=(0.0, 1.0), **settings)


# --- the errors, from the documented formulas


def test_errors_are_the_posteriors_widened_as_documented(bank, posterior):
    """The formulas of the docstrings with their numbers written out."""
    rng = np.random.default_rng(2)
    responses = partly(rng.uniform(0.2, 0.9, (3, N)), np.arange(12))
    responses[1, 8:] = np.nan
    responses[2] = np.nan
    found = posterior.estimate(responses)
    scores, covs = zip(*(full_scores(each, responses) for each in found.latents), strict=True)
    by_views = (scores[0] + scores[1]) / 2
    plain = from_plain_means(posterior.views[1], responses)
    n = np.array([12, 8, 0])
    pooled = (by_views + plain) / 2
    levels = levels_by_regression(posterior.views[1], responses, pooled, 0.0)
    dl = pooled.mean() - levels.common
    np.testing.assert_allclose(found.score, pooled - 0.5 * dl * (1 - n / N))
    dv, dp = scores[0] - scores[1], by_views - plain
    phi = ((n * found.misfit + 10) / (n + 10)) ** 1.25
    cov = (covs[0] + covs[1]) / 2 * np.sqrt(np.outer(phi, phi))
    np.testing.assert_allclose(found.level_cov, cov)
    log_length = np.log(np.maximum(n, 5) / 20)
    scale = bank.info.correction.log_scale
    lack = 1 / effective_number(bank.scores) - 1 / 17  # 14 models calibrated
    means = np.array([model.mean_score for model in bank.info.models])
    extra = 0.0025 * (found.score - means.mean()) ** 2 + 0.135 * dp**2 + 0.59 * levels.variance
    # No regression without an answer.
    extra += 0.41 * np.where(n > 0, found.score - levels.own, 0.0) ** 2
    variance = np.exp(-0.55 + 0.20 * log_length) * np.diag(cov) + extra * (1 - n / N)
    np.testing.assert_allclose(found.score_se**2, np.exp(scale + 6 * lack) * variance)
    above = np.maximum(found.score - means.max(), 0.0) + np.maximum(means.min() - found.score, 0.0)
    out = np.minimum(above / means.std(), 4.0)
    for a, b, least in ((0, 1, 8), (0, 2, 5), (1, 2, 5)):
        difference = cov[a, a] + cov[b, b] - 2 * cov[a, b]
        expected = 0.50 * (least / 20) ** -0.20 * difference
        expected *= 1 + 0.23 * max(out[a], out[b]) ** 2
        expected += 0.10 * (dv[a] - dv[b]) ** 2 + 0.12 * (dp[a] - dp[b]) ** 2
        assert found.pair_var[a, b] == pytest.approx(np.exp(scale / 2 + 3 * lack) * expected)
        assert found.pair_var[b, a] == pytest.approx(found.pair_var[a, b])
    assert found.interval_df == found.pair_df == 8.0


def test_the_banks_own_factor_widens_scores_by_itself_and_pairs_by_its_root(bank, posterior):
    rng = np.random.default_rng(3)
    responses = some_answers(rng)
    learned = bank.info.correction
    info = replace(bank.info, correction=replace(learned, log_scale=learned.log_scale + 0.5))
    wider = RobustPosterior(replace(bank, info=info)).estimate(responses)
    found = posterior.estimate(responses)
    np.testing.assert_allclose(wider.score, found.score)
    np.testing.assert_allclose(np.diag(wider.score_cov), np.exp(0.5) * np.diag(found.score_cov))
    np.testing.assert_allclose(wider.pair_var, np.exp(0.25) * found.pair_var)


def test_a_model_whose_answers_fit_badly_is_told_and_gets_wider_errors():
    rng = np.random.default_rng(4)
    made = FactorBenchmark(rng, N)
    posterior = RobustPosterior(made.bank(rng, 14))
    good = made.draw([0.0], rng)
    odd = rng.permutation(good[0])[None]
    asked = partly(np.vstack([good, odd]), np.arange(40))
    found = posterior.estimate(asked)
    assert found.misfit[0] < 1.6 < 2.0 < found.misfit[1]
    assert found.score_se[1] > 1.3 * found.score_se[0]


# --- properties


@quick
@given(st.integers(0, 10_000))
def test_models_may_come_in_any_order(posterior, seed):
    rng = np.random.default_rng(seed)
    responses = some_answers(rng)
    rows = rng.permutation(4)
    one, other = posterior.estimate(responses), posterior.estimate(responses[rows])
    for name in ("theta", "theta_se", "score", "score_se", "level_se", "misfit"):
        np.testing.assert_allclose(
            getattr(other, name), getattr(one, name)[rows], atol=1e-12, err_msg=name
        )
    np.testing.assert_allclose(other.pair_var, one.pair_var[np.ix_(rows, rows)], atol=1e-12)


def test_items_may_come_in_any_order(bank):
    rng = np.random.default_rng(5)
    scores = bank.scores
    columns = rng.permutation(N)
    shuffled = bank_of(scores[:, columns], response_model="robust-2pl")
    responses = some_answers(rng)
    one = RobustPosterior(bank).estimate(responses)
    other = RobustPosterior(replace(shuffled, info=bank.info)).estimate(responses[:, columns])
    np.testing.assert_allclose(other.score, one.score, atol=1e-4)
    np.testing.assert_allclose(other.score_se, one.score_se, rtol=1e-3)


def test_a_full_evaluation_has_only_the_error_of_one_more_document_left(posterior):
    responses = np.random.default_rng(6).uniform(size=(3, N))
    found = posterior.estimate(responses)
    np.testing.assert_allclose(found.score, responses.mean(axis=1), atol=1e-14)
    # By the rule of succession: 1 in N + 2 is another, and counts for 1 of N + 1.
    least = (N + 1) / (N + 2) ** 3 / (N + 1)
    np.testing.assert_allclose(found.score_cov, np.diag(np.full(3, least)), rtol=1e-9)
    np.testing.assert_allclose(found.pair_var, 2 * least * (1 - np.eye(3)), rtol=1e-9)


@pytest.mark.parametrize("count", [1, 12, N])
def test_models_that_answer_alike_or_all_right_are_never_certain(posterior, count):
    right = np.full(N, np.nan)
    right[:count] = 1.0
    found = posterior.estimate(np.stack([right, right, 0.0 * right]))
    assert (found.score_se > 1e-4).all()
    assert (found.score_half_interval > 1e-4).all()
    p = better_by(found)
    assert p[0, 1] == pytest.approx(0.5, abs=1e-9)
    assert 0.5 < p[0, 2] < 1.0
    assert 0.0 < p[2, 0] < 0.5


def test_another_model_that_was_asked_other_items_moves_an_estimate_within_its_error(posterior):
    """Ranked models tell of each other only what the bank is wrong about for all of them."""
    rng = np.random.default_rng(7)
    responses = rng.uniform(0.2, 0.9, (2, N))
    responses[0, 30:] = np.nan
    responses[1, :30] = responses[1, 50:] = np.nan
    found = posterior.estimate(responses)
    for row in range(2):
        alone = posterior.estimate(responses[[row]])
        assert abs(alone.score[0] - found.score[row]) < 0.5 * found.score_se[row]
        assert alone.misfit[0] == pytest.approx(found.misfit[row], rel=0.1)


def test_without_answers_every_model_is_an_average_one_and_may_be_any(bank, posterior):
    found = posterior.estimate(np.full((2, N), np.nan))
    means = np.array([model.mean_score for model in bank.info.models])
    assert found.score[0] == found.score[1] == pytest.approx(means.mean(), abs=0.03)
    low, high = (found.score[0] + sign * found.score_half_interval[0] for sign in (-1, 1))
    assert low < means.min() < means.max() < high


@pytest.mark.parametrize("end", [0.0, 1.0])
def test_only_zeros_or_ones_give_finite_scores_within_the_range(posterior, end):
    for count in (1, 10, N // 2):
        found = posterior.estimate(partly(np.full((1, N), end), np.arange(count)))
        for name in ("theta", "theta_se", "score", "score_cov", "pair_var", "level_cov"):
            assert np.isfinite(getattr(found, name)).all(), name
        assert -0.05 <= found.score[0] <= 1.05
        assert abs(found.score[0] - end) < abs(found.score[0] - (1.0 - end)) or count < 10


# --- known answers, each with a negative control


def test_score_intervals_cover_and_half_of_them_do_not():
    """Banks of 16 models, 10 new models each, 20 items: 120 intervals of 95 % in 12 banks.

    Errors are widened for real models, which differ more than these: more than 95 % may be covered.
    """
    rng = np.random.default_rng(8)
    inside = halved = 0
    for _ in range(12):
        made = FactorBenchmark(rng, 100)
        procedure = Procedure.for_bank(
            made.bank(rng), np.ones(10), ProcedureConfig(items_per_model=20, round_size=None)
        )
        scores = made.draw(rng.normal(size=10), rng)
        state, _ = procedure.run(lambda row, items, y=scores: y[row, list(items)].tolist())
        found = procedure.estimate(state)
        off = np.abs(found.score - scores.mean(axis=1))
        inside += int((off <= found.score_half_interval).sum())
        halved += int((off <= found.score_half_interval / 2).sum())
    least = binom.ppf(0.005, 120, 0.95)
    assert inside >= least
    assert halved < least


def test_intervals_from_a_bank_of_four_models_cover_and_a_quarter_of_them_does_not():
    """What four models do not know of the items, their own errors do not tell: 120 intervals."""
    rng = np.random.default_rng(8)
    inside = narrow = 0
    for _ in range(12):
        made = FactorBenchmark(rng, 100, loading=0.12)
        config = ProcedureConfig(items_per_model=20, round_size=None)
        procedure = Procedure.for_bank(made.bank(rng, 4), np.ones(10), config)
        scores = made.draw(rng.normal(size=10), rng)
        state, _ = procedure.run(lambda row, items, y=scores: y[row, list(items)].tolist())
        found = procedure.estimate(state)
        off = np.abs(found.score - scores.mean(axis=1))
        inside += int((off <= found.score_half_interval).sum())
        narrow += int((off <= found.score_half_interval / 4).sum())
    least = binom.ppf(0.005, 120, 0.95)
    assert inside >= least
    assert narrow < least


@pytest.mark.parametrize(("models", "lack"), [(3, 1 / 4 - 1 / 17), (8, 1 / 8 - 1 / 17), (40, 0.0)])
def test_errors_grow_as_calibration_models_lack(models, lack):
    assert lack_of_models(models) == pytest.approx(lack)


def test_a_missing_fifth_of_the_calibration_moves_estimates_little():
    rng = np.random.default_rng(9)
    made = FactorBenchmark(rng, 150)
    scores = made.draw(standard_abilities(24), rng)
    holes = scores.copy()
    holes[rng.uniform(size=scores.shape) < 0.2] = np.nan
    whole, part = (bank_of(each, response_model="robust-2pl") for each in (scores, holes))
    off = part.parameters.difficulty - whole.parameters.difficulty
    spread = np.sqrt(part.parameters.covariance[:, 0, 0])
    assert np.median(np.abs(off) / spread) < 0.6
    new = made.draw(rng.normal(size=8), rng)
    asked = partly(new, rng.permutation(150)[:25])
    one, other = (RobustPosterior(each).estimate(asked) for each in (whole, part))
    moved = np.abs(one.score - other.score) / one.score_se
    assert np.median(moved) < 0.25
    assert moved.max() < 1.0
    assert np.median(other.score_se / one.score_se) == pytest.approx(1.0, abs=0.2)
    assert (np.abs(other.score - new.mean(axis=1)) < other.score_half_interval).mean() >= 7 / 8


# --- few models, ends of the range, hardly any differences


@pytest.mark.parametrize("models", [3, 4, 5])
@pytest.mark.parametrize("kind", ["continuous", "binary"])
def test_a_bank_from_very_few_models_ranks_from_end_to_end(models, kind):
    rng = np.random.default_rng(10)
    made = FactorBenchmark(rng, 60)
    scores = made.draw(standard_abilities(models), rng)
    new = made.draw([-1.5, 1.5], rng)
    if kind == "binary":
        scores, new = (scores > 0.5).astype(float), (new > 0.5).astype(float)
    bank = bank_of(scores, response_model="robust-2pl")
    assert bank.info.correction is None
    procedure = Procedure.for_bank(bank, np.ones(2), ProcedureConfig(max_items=50, round_size=5))
    state, stop = procedure.run(lambda row, items: new[row, list(items)].tolist())
    assert stop.reason == "decided"
    (pair,) = procedure.pairs(state)
    assert (pair.a, pair.b, pair.verdict) == (1, 0, "a")
    found = procedure.estimate(state)
    assert (np.abs(found.score - new.mean(axis=1)) < found.score_half_interval).all()


def test_scores_of_exactly_0_and_1_are_ranked_in_the_true_order():
    """Bernoulli answers under robust-2pl: 0.35, 0.65 and 0.9 right on average."""
    rng = np.random.default_rng(11)
    items = make_items("bernoulli-2pl", rng.normal(size=150), rng.uniform(0.7, 1.5, 150))
    draw = lambda theta: (  # noqa: E731
        rng.uniform(size=(len(theta), 150))
        < 1 / (1 + np.exp(-items.discrimination * (np.array(theta)[:, None] - items.difficulty)))
    ).astype(float)
    bank = bank_of(draw(standard_abilities(20)), response_model="robust-2pl")
    assert np.isfinite(bank.parameters.covariance).all()
    new = draw([-0.8, 0.8, 2.5])
    procedure = Procedure.for_bank(bank, np.ones(3), ProcedureConfig(max_items=120, round_size=10))
    state, stop = procedure.run(lambda row, asked: new[row, list(asked)].tolist())
    assert stop.reason == "decided"
    assert [pair.a for pair in procedure.pairs(state)] == [2, 2, 1]
    found = procedure.estimate(state)
    assert (np.abs(found.score - new.mean(axis=1)) < found.score_half_interval).all()


@pytest.mark.parametrize("case", ["five items differ", "one model differs", "tiny differences"])
def test_hardly_any_differences_between_models_give_finite_beliefs(case):
    rng = np.random.default_rng(12)
    scores = np.full((6, 40), 0.5)
    if case == "five items differ":
        scores[:, :5] = rng.uniform(size=(6, 5))
    elif case == "one model differs":
        scores[0] = rng.uniform(size=40)
    else:
        scores += 1e-9 * rng.standard_normal((6, 40))
    bank = bank_of(scores, response_model="robust-2pl")
    posterior = RobustPosterior(bank)
    responses = np.full((2, 40), np.nan)
    for count in (0, 8, 40):
        responses[:, :count] = rng.uniform(size=(2, count))
        found = posterior.estimate(responses)
        for name in ("theta", "theta_se", "score", "score_cov", "level_cov", "pair_var"):
            assert np.isfinite(getattr(found, name)).all(), (name, count)
        assert (np.diag(found.score_cov) >= 0.0).all()


# --- the correction, cross-validated


def test_the_correction_grows_when_some_models_are_unlike_the_others():
    """A third of the calibration models answers at random: held out, they are off by more."""
    rng = np.random.default_rng(13)
    scores = FactorBenchmark(rng, 100).draw(standard_abilities(15), rng)
    odd = scores.copy()
    odd[::3] = rng.uniform(size=odd[::3].shape) < 0.5
    calm, wild = cross_validated_correction(scores), cross_validated_correction(odd)
    assert wild.log_scale > calm.log_scale + 0.1
    # Few dependent tests do not carry it far from the constants common to all banks.
    assert max(abs(calm.log_scale), abs(wild.log_scale)) < 0.4
    assert wild.lengths[20].rmse > 1.2 * calm.lengths[20].rmse


def test_the_correction_tells_how_well_held_out_models_were_estimated():
    rng = np.random.default_rng(14)
    scores = FactorBenchmark(rng, 60).draw(standard_abilities(12), rng)
    found = cross_validated_correction(scores)
    assert found == cross_validated_correction(scores)
    assert found.models == 12
    assert list(found.lengths) == [10, 20, 40]  # 80 are more than there are
    errors = [each.rmse for each in found.lengths.values()]
    assert errors[0] > errors[1] > errors[2]
    for each in found.lengths.values():
        assert each.tests == 20  # every model, and the best and the worst third once more
        assert each.mae <= each.rmse
        assert each.correlation > 0.8
        assert each.covered > 0.8


def test_too_few_models_to_hold_any_out_have_no_correction():
    rng = np.random.default_rng(15)
    scores = FactorBenchmark(rng, 60).draw(standard_abilities(7), rng)
    assert cross_validated_correction(scores) is None
    assert bank_of(scores).info.correction is None


def test_a_bank_with_missing_cells_is_corrected_too():
    rng = np.random.default_rng(16)
    scores = FactorBenchmark(rng, 100).draw(standard_abilities(12), rng)
    whole = cross_validated_correction(scores)
    holes = scores.copy()
    holes[rng.uniform(size=scores.shape) < 0.05] = np.nan
    part = cross_validated_correction(holes)
    assert part.log_scale == pytest.approx(whole.log_scale, abs=0.25)
    assert part.lengths[20].tests == 20


@pytest.mark.parametrize("missing", [0.0, 0.1, 0.4])
@pytest.mark.parametrize("items", [6, 30, 120])
def test_right_and_wrong_answers_calibrate_with_missing_cells_and_few_items(missing, items):
    rng = np.random.default_rng(17)
    scores = (FactorBenchmark(rng, items).draw(standard_abilities(10), rng) > 0.5).astype(float)
    scores[rng.uniform(size=scores.shape) < missing] = np.nan
    bank = bank_of(scores)
    assert bank.info.response_model in ("bernoulli-2pl", "robust-2pl")
    assert any(notice.startswith("auto took") for notice in bank.info.notices)


def test_models_that_only_differ_in_one_fold_still_calibrate():
    """Without the one model that differs, the others have the same mean: no reason to fail."""
    scores = np.tile(np.linspace(0.2, 0.8, 30), (9, 1))
    scores[0] += 0.1
    bank = bank_of(scores, response_model="robust-2pl")
    assert np.isfinite(bank.parameters.difficulty).all()


# --- the selector, chosen from the calibration scores


def alike_items(rng, models=12, n=250):
    """Scores whose items all separate alike: weaker models fail more often, anywhere."""
    rate = np.clip(0.12 * np.exp(-0.5 * standard_abilities(models)), 0.0, 0.9)
    good = 0.95 - 0.03 * rng.uniform(size=(models, n))
    return np.where(rng.uniform(size=(models, n)) < rate[:, None], rng.uniform(0.1, 0.7), good)


@pytest.mark.parametrize("seed", range(3))
def test_items_that_all_separate_alike_are_asked_at_random_and_others_by_information(seed):
    rng = np.random.default_rng(seed)
    alike = bank_of(alike_items(rng))
    other = bank_of(FactorBenchmark(rng, 250).draw(standard_abilities(12), rng))
    assert (alike.info.selector, other.info.selector) == ("random", "draw")
    for bank in (alike, other):
        told = [note for note in bank.info.notices if note.startswith("auto took the selector")]
        assert len(told) == 1
        assert f"selector {bank.info.selector}: informative items order" in told[0]
        assert f"{bank.info.correction.order_gain:+.3f} tau" in told[0]


def test_a_bank_of_alike_items_asks_all_models_random_ones_unless_told_otherwise(tmp_path):
    bank = bank_of(alike_items(np.random.default_rng(0)))
    path = bank.save(tmp_path / "alike.parquet")
    assert ItemBank.load(path).info == bank.info

    def asked(**settings):
        procedure = Procedure.for_bank(
            bank, [1.0, 1.0], ProcedureConfig(items_per_model=12, **settings)
        )
        state, _ = procedure.run(lambda _, items: [0.9] * len(items))
        assert (np.isfinite(state.responses[0]) == np.isfinite(state.responses[1])).all()
        return set(np.flatnonzero(np.isfinite(state.responses[0])))

    assert asked(seed=3) == asked(seed=3, sampler="random") != asked(seed=4)
    assert asked(seed=3, sampler="fisher") == asked(seed=4, sampler="fisher") != asked(seed=3)


def test_slopes_that_were_not_found_again_are_drawn_to_their_mean():
    scores = alike_items(np.random.default_rng(0))
    bank = bank_of(scores)
    plain = replace(bank, info=replace(bank.info, correction=None))
    for one, own, share in zip(
        RobustPosterior(bank).views,
        RobustPosterior(plain).views,
        bank.info.correction.slopes,
        strict=True,
    ):
        assert share < 0.5
        # Logistic slopes have a floor and a ceiling, which few of them reach.
        expected = own.slope.mean() + share * (own.slope - own.slope.mean())
        assert np.median(np.abs(one.slope - expected)) < 1e-9


def test_another_response_model_takes_items_by_information_again():
    bank = bank_of(alike_items(np.random.default_rng(0)))
    assert refit(bank, "bernoulli-2pl").info.selector == "fisher"
    assert refit(refit(bank, "paper-1pl"), "robust-2pl").info.selector == "random"


def test_too_few_models_to_compare_by_draw_items_by_information():
    bank = bank_of(alike_items(np.random.default_rng(0), models=6))
    assert bank.info.selector == "draw"
    assert "auto took the selector draw: there are too few models" in bank.info.notices[-1]
