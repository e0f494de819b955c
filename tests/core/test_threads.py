"""Halves side by side: the same numbers whatever number of threads is allowed."""

from __future__ import annotations

import numpy as np
from threadpoolctl import threadpool_limits

from lm_eval_adaptive.core.robust import RobustPosterior
from lm_eval_adaptive.core.threads import allowed, side_by_side
from tests.core.helpers import FactorBenchmark


def test_linear_algebra_has_one_thread_meanwhile_and_what_it_had_afterwards():
    with threadpool_limits(limits=2, user_api="blas"):
        before = allowed()
        assert side_by_side(lambda _: allowed(), range(3)) == [1, 1, 1]
        assert allowed() == before


def test_beliefs_do_not_hang_on_the_number_of_threads():
    rng = np.random.default_rng(2)
    robust = RobustPosterior(FactorBenchmark(rng, n=60).bank(rng, 7))
    responses = rng.uniform(0.1, 0.9, (16, 60))
    responses[:, 30:] = np.nan
    found = []
    for threads in (1, 2):
        with threadpool_limits(limits=threads, user_api="blas"):
            found.append(robust.estimate(responses))
    np.testing.assert_array_equal(found[0].score, found[1].score)
    np.testing.assert_array_equal(found[0].score_cov, found[1].score_cov)
