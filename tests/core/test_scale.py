"""Raw scores to [0, 1] and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_adaptive.core.scale import ScoreScale
from lm_eval_adaptive.errors import DataError
from tests.core.helpers import quick

RANGES = st.tuples(st.floats(-1e4, 1e4), st.floats(0.01, 1e4)).map(lambda r: (r[0], r[0] + r[1]))


@quick
@given(RANGES, st.booleans(), st.lists(st.floats(0.0, 1.0), min_size=1))
def test_to_raw_and_to_score_are_inverse_inside_the_range(ends, up, shares):
    scale = ScoreScale(*ends, higher_is_better=up)
    raw = scale.to_raw(shares)
    assert (raw >= ends[0] - 1e-9).all()
    assert (raw <= ends[1] + 1e-9).all()
    np.testing.assert_allclose(scale.to_score(raw), shares, atol=1e-6)


def test_bleu_in_percent_by_hand():
    # A range of 0 to 50: 20 is 2/5 of the way up, and the raw value of 2/5 is 20 again.
    scale = ScoreScale(0.0, 50.0)
    assert scale.to_score([20.0]).tolist() == [0.4]
    assert scale.to_raw([0.4]).tolist() == [20.0]


def test_an_error_rate_is_flipped_so_that_1_is_best():
    # Error rates from 0.2 (best) to 1.0 (worst): 0.4 is a quarter of the way from the best end.
    scale = ScoreScale(0.2, 1.0, higher_is_better=False)
    np.testing.assert_allclose(scale.to_score([0.2, 0.4, 1.0]), [1.0, 0.75, 0.0])
    np.testing.assert_allclose(scale.to_raw([1.0, 0.75, 0.0]), [0.2, 0.4, 1.0])


@pytest.mark.parametrize("up", [True, False])
def test_values_outside_are_clipped_and_told(up):
    scale = ScoreScale(0.0, 10.0, higher_is_better=up)
    raw = [-1.0, 0.0, 10.0, 11.0]
    assert scale.to_score(raw).tolist() == ([0, 0, 1, 1] if up else [1, 1, 0, 0])
    assert scale.outside(raw).tolist() == [True, False, False, True]


def test_rounding_at_the_ends_is_not_outside():
    scale = ScoreScale(0.0, 0.3)
    assert not scale.outside([0.1 + 0.2, -1e-17]).any()


@pytest.mark.parametrize("up", [True, False])
def test_a_missing_score_stays_missing(up):
    scale = ScoreScale(0.0, 10.0, higher_is_better=up)
    assert np.isnan(scale.to_score([np.nan, 5.0])).tolist() == [True, False]
    assert np.isnan(scale.to_raw([np.nan, 0.5])).tolist() == [True, False]
    assert not scale.outside([np.nan]).any()


@pytest.mark.parametrize("ends", [(1.0, 1.0), (2.0, 1.0), (np.nan, 1.0), (0.0, np.inf)])
def test_a_range_that_is_none_is_refused_in_one_line(ends):
    with pytest.raises(DataError, match="two finite numbers, low below high") as caught:
        ScoreScale(*ends)
    assert "\n" not in str(caught.value)
