"""Pair confidences, verdicts and allocation."""

from __future__ import annotations

from math import erf, inf, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_adaptive.core import ranker
from lm_eval_adaptive.core.estimates import Estimates
from lm_eval_adaptive.core.ranker import (
    DecisionRule,
    allocation_value,
    difference_variance,
    judge_pairs,
    order,
    probability_from,
)
from lm_eval_adaptive.errors import UsageError
from tests.core.helpers import quick


def phi(z):
    return 0.5 * (1.0 + erf(z / sqrt(2.0)))


def beliefs(level, se, score=None, score_se=None):
    level, se = np.asarray(level, dtype=float), np.asarray(se, dtype=float)
    score = level if score is None else np.asarray(score, dtype=float)
    score_cov = np.diag((se if score_se is None else np.asarray(score_se)) ** 2)
    return Estimates(level, se, score, score_cov, level, np.diag(se**2))


LEVELS = st.lists(st.floats(-3.0, 3.0), min_size=2, max_size=6)


def probability_better(level, cov):
    return probability_from(level, difference_variance(cov), inf)


def test_probability_better_by_hand():
    # theta = 1.2 and 0.2, SE = 0.6 and 0.8: Phi(1.0 / sqrt(0.36 + 0.64)) = Phi(1) = 0.8413...
    p = probability_better(np.array([1.2, 0.2]), np.diag([0.36, 0.64]))
    np.testing.assert_allclose(p, [[0.5, phi(1.0)], [phi(-1.0), 0.5]])
    assert p[0, 1] == pytest.approx(0.841344746, abs=1e-9)


def test_a_shared_error_cancels_in_the_difference():
    # Variances 1 and 1, covariance 1/2: the difference has variance 1 + 1 - 1 = 1.
    p = probability_better(np.array([1.0, 0.0]), np.array([[1.0, 0.5], [0.5, 1.0]]))
    assert p[0, 1] == pytest.approx(phi(1.0))


@quick
@given(LEVELS, st.data())
def test_probabilities_of_a_pair_sum_to_one_and_grow_with_the_level(levels, data):
    m = len(levels)
    se = data.draw(st.lists(st.floats(0.0, 2.0), min_size=m, max_size=m))
    level, cov = np.array(levels), np.diag(np.square(se))
    p = probability_better(level, cov)
    np.testing.assert_allclose(p + p.T, 1.0)
    np.testing.assert_array_equal(np.diag(p), 0.5)
    raised = level.copy()
    raised[0] += data.draw(st.floats(0.0, 2.0))
    assert (probability_better(raised, cov)[0, 1:] >= p[0, 1:]).all()


def test_levels_known_exactly_are_told_apart_and_equal_ones_are_not():
    p = probability_better(np.array([0.3, 0.2, 0.2]), np.zeros((3, 3)))
    np.testing.assert_allclose(p, [[0.5, 1, 1], [0, 0.5, 0.5], [0, 0.5, 0.5]], atol=1e-8)
    assert ((p > 0.0) & (p < 1.0)).all(), "nothing is told as certain"


@pytest.mark.parametrize(("z", "verdict"), [(1.97, "a"), (1.95, "undecided")])
def test_a_pair_is_decided_above_one_minus_half_the_error(z, verdict):
    # gamma = 0.95: decided when P > 1 - 0.05 / 2 = 0.975 = Phi(1.96).
    (pair,) = judge_pairs(beliefs([z, 0.0], [0.6, 0.8]), DecisionRule(0.95))
    assert pair.verdict == verdict
    assert pair.p_a_better == pytest.approx(phi(z))


def test_the_better_placed_model_stands_first_whatever_the_rows():
    pairs = judge_pairs(beliefs([0.0, 5.0, 9.0], [0.1] * 3), DecisionRule())
    assert [(pair.a, pair.b, pair.verdict) for pair in pairs] == [
        (2, 1, "a"),
        (2, 0, "a"),
        (1, 0, "a"),
    ]


def test_holm_by_hand():
    """Three adjacent pairs with two-sided p of 0.04, 0.02 and 0.001, alpha = 0.05.

    In order 0.001 <= 0.05/3 and 0.02 <= 0.05/2 and 0.04 <= 0.05/1: all three. With 0.03 for 0.02
    the second step fails, 0.03 > 0.025, and the third is not looked at although 0.04 <= 0.05.
    """

    def verdicts(p_values, correction):
        # Differences between neighbours of z sd's, where each difference has variance 1.
        from scipy.special import ndtri

        z = [-ndtri(p / 2.0) for p in p_values]
        level = np.concatenate([[0.0], -np.cumsum(z)])
        found = judge_pairs(
            beliefs(level, [sqrt(0.5)] * 4), DecisionRule(0.95, correction=correction)
        )
        return [pair.verdict == "a" for pair in found if pair.required]

    assert verdicts([0.04, 0.02, 0.001], "holm") == [True, True, True]
    assert verdicts([0.04, 0.03, 0.001], "holm") == [False, False, True]
    assert verdicts([0.04, 0.03, 0.001], "none") == [True, True, True]


def test_holm_counts_the_required_pairs_alone():
    """Three models at z = 2.054, 0 and -0.5: p = 0.04, 0.011 and, between the last two, 0.62.

    top:1 requires the first two: 0.011 <= 0.05/2 and 0.04 <= 0.05/1, both decided. Over all three
    pairs 0.011 <= 0.05/3, but 0.04 > 0.05/2.
    """
    belief = beliefs([2.0538, 0.0, -0.5], [sqrt(0.5)] * 3)
    found = judge_pairs(belief, DecisionRule(correction="holm", pairs="top:1"))
    assert [pair.verdict for pair in found] == ["a", "a", "undecided"]
    every = judge_pairs(belief, DecisionRule(correction="holm", pairs="all"))
    assert [pair.verdict for pair in every] == ["undecided", "a", "undecided"]


@quick
@given(LEVELS, st.floats(0.05, 1.5), st.sampled_from(["adjacent", "all", "top:2"]))
def test_holm_never_decides_more_than_no_correction(levels, se, pairs):
    belief = beliefs(levels, [se] * len(levels))
    plain = judge_pairs(belief, DecisionRule(pairs=pairs))
    holm = judge_pairs(belief, DecisionRule(pairs=pairs, correction="holm"))
    for one, other in zip(plain, holm, strict=True):
        assert (one.a, one.b, one.p_a_better) == (other.a, other.b, other.p_a_better)
        assert one.verdict == "a" or other.verdict == "undecided"


def test_holm_of_one_pair_is_no_correction_also_at_the_very_bound():
    p = 2.0 * (1.0 - phi(1.0))
    belief = beliefs([1.0, 0.0], [sqrt(0.5)] * 2)
    exact = judge_pairs(belief, DecisionRule())[0].p_a_better
    for gamma in (1.0 - p, 1.0 - 2.0 * (1.0 - exact), 0.6, 0.7):
        plain, holm = (
            judge_pairs(belief, DecisionRule(gamma, correction=how))[0].verdict
            for how in ("none", "holm")
        )
        assert plain == holm


def required_pairs(ranked, pairs, fixed=()):
    """The pairs (better placed, other) that must be decided, as rows."""
    ranked = np.array(ranked)
    first, second = np.triu_indices(len(ranked), 1)
    needed = ranker.required_pairs(ranked, first, second, pairs, fixed)
    return {
        (int(ranked[a]), int(ranked[b])) for a, b in zip(first[needed], second[needed], strict=True)
    }


def test_which_pairs_must_be_decided():
    ranked = [3, 1, 0, 2]
    assert required_pairs(ranked, "adjacent") == {(3, 1), (1, 0), (0, 2)}
    assert len(required_pairs(ranked, "all")) == 6
    assert required_pairs(ranked, "top:1") == {(3, 1), (3, 0), (3, 2)}
    assert required_pairs(ranked, "top:2") == {(3, 1), (3, 0), (3, 2), (1, 0), (1, 2)}
    assert required_pairs(ranked, "top:9") == required_pairs(ranked, "all")
    assert required_pairs([0], "adjacent") == set()


def test_equivalence_by_hand():
    # Difference 0, sd 1 / 2: P(|difference| < 1) = 2 Phi(2) - 1 = 0.9545; < 0.97: 0.9476.
    belief = beliefs([0.0, 0.0], [0.1, 0.1], [0.5, 0.5], [sqrt(1 / 8)] * 2)
    assert judge_pairs(belief, DecisionRule(0.95, equivalence=1.0))[0].verdict == "equivalent"
    assert judge_pairs(belief, DecisionRule(0.95, equivalence=0.97))[0].verdict == "undecided"
    assert judge_pairs(belief, DecisionRule(0.95))[0].verdict == "undecided"


def test_models_known_to_differ_by_less_than_the_margin_are_equivalent_not_ranked():
    belief = beliefs([0.51, 0.50], [1e-4, 1e-4])
    assert judge_pairs(belief, DecisionRule())[0].verdict == "a"
    assert judge_pairs(belief, DecisionRule(equivalence=0.05))[0].verdict == "equivalent"
    assert judge_pairs(belief, DecisionRule(equivalence=0.005))[0].verdict == "a"


def test_one_model_has_no_pairs():
    assert judge_pairs(beliefs([0.0], [1.0]), DecisionRule()) == []


def test_order_keeps_rows_of_equal_level():
    assert order(np.array([0.2, 0.7, 0.2, 0.7])) == [1, 3, 0, 2]


def test_allocation_value_by_hand():
    # SE = 1/2, n = 9 items, c = 2: (1/4) / (10 x 2) = 1/80. Half the SE: a quarter of the worth.
    found = allocation_value(np.array([1 / 4, 1 / 16]), np.array([9, 9]), np.array([2.0, 2.0]))
    np.testing.assert_allclose(found, [1 / 80, 1 / 320])


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"confidence": 1.0}, "--confidence must lie between 0 and 1, got 1.0"),
        ({"confidence": float("nan")}, "got nan"),
        ({"correction": "bonferroni"}, "none or holm, got 'bonferroni'"),
        ({"equivalence": -0.1}, "0 or more, got -0.1"),
        ({"pairs": "top:0"}, "K of at least 1, got 'top:0'"),
        ({"pairs": "adjacent:2"}, "got 'adjacent:2'"),
        ({"pairs": "top:x"}, "got 'top:x'"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(settings, says):
    with pytest.raises(UsageError) as caught:
        DecisionRule(**settings)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
