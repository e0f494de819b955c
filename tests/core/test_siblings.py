"""How many models calibration models count for, and what that does to errors and hold-outs."""

from __future__ import annotations

import numpy as np
import pytest

from lm_eval_adaptive.core.error_model import ErrorModel
from lm_eval_adaptive.core.holdout import groups
from lm_eval_adaptive.core.siblings import effective_number, families
from lm_eval_adaptive.core.widening import lack_of_models
from tests.core.helpers import FactorBenchmark, standard_abilities

N = 200


def near_copies(rng, sizes, noise=0.03):
    """Families of models that err alike: copies of one model's scores, with a little noise."""
    own = FactorBenchmark(rng, N).draw(standard_abilities(len(sizes)), rng)
    rows = np.repeat(own, sizes, axis=0)
    return np.clip(rows + noise * rng.standard_normal(rows.shape), 0.0, 1.0)


def test_seventeen_models_that_are_five_families_count_as_about_five():
    rng = np.random.default_rng(0)
    scores = near_copies(rng, [4, 4, 3, 3, 3])
    assert effective_number(scores) == pytest.approx(5.0, abs=0.8)
    assert [len(each) for each in families(scores)] == [4, 4, 3, 3, 3]


@pytest.mark.parametrize("seed", range(3))
def test_models_of_different_kinds_count_each(seed):
    """The negative control: the same number of models, none of them related."""
    rng = np.random.default_rng(seed)
    scores = FactorBenchmark(rng, N).draw(standard_abilities(17), rng)
    assert effective_number(scores) > 15.0
    assert len(families(scores)) >= 15


def test_errors_of_five_families_are_as_of_five_models():
    rng = np.random.default_rng(1)
    scores = near_copies(rng, [4, 4, 3, 3, 3])
    means = scores.mean(axis=1)
    found = ErrorModel.of(means, effective_number(scores), None)
    five, seventeen = (ErrorModel.of(means, kinds, None) for kinds in (5.0, 17.0))
    assert found.score_scale == pytest.approx(five.score_scale, abs=0.25)
    assert found.score_scale > seventeen.score_scale + 0.5
    assert lack_of_models(17) == 0.0


def test_siblings_are_held_out_together():
    rng = np.random.default_rng(2)
    scores = near_copies(rng, [4, 4, 3, 3, 3])
    for group in groups(scores, np.random.default_rng(0)):
        if group.far:
            continue
        for family in families(scores):
            assert len(set(family) & set(group.rows)) in (0, len(family))


def test_the_best_and_the_worst_third_are_held_out_too():
    rng = np.random.default_rng(3)
    scores = FactorBenchmark(rng, N).draw(standard_abilities(12), rng)
    order = list(np.argsort(scores.mean(axis=1)))
    far = [set(group.rows) for group in groups(scores, rng) if group.far]
    assert far == [set(order[:4]), set(order[-4:])]
    near = [row for group in groups(scores, rng) if not group.far for row in group.rows]
    assert sorted(near) == list(range(12))


def test_cells_without_a_score_say_nothing():
    rng = np.random.default_rng(4)
    scores = near_copies(rng, [4, 4, 3, 3, 3])
    scores[rng.uniform(size=scores.shape) < 0.05] = np.nan
    assert 4.0 < effective_number(scores) < 9.0
