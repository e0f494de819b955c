"""What ranked models answered makes the bank better for the others of the same run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lm_eval_adaptive.core.robust import RobustPosterior
from tests.core.helpers import FactorBenchmark

SEEDS, ITEMS, ASKED = range(40), 120, 20
# Of six calibration models, item curves are uncertain; for the ranked models they also moved.
CALIBRATING, DRIFT = 6, 0.5


def test_the_tenth_model_is_measured_by_a_bank_that_has_seen_nine():
    alone, beside_nine, control = [], [], []
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        benchmark = FactorBenchmark(rng, n=ITEMS, factors=1, loading=0.0)
        posterior = RobustPosterior(benchmark.bank(rng, models=CALIBRATING))
        benchmark.height = benchmark.height + DRIFT * rng.standard_normal(ITEMS)
        scores = benchmark.draw(rng.normal(size=10), rng)
        answers = scores.copy()
        answers[9] = np.nan
        asked = rng.permutation(ITEMS)[:ASKED]
        answers[9, asked] = scores[9, asked]
        truth = scores[9].mean()
        alone.append(posterior.estimate(answers[9:]).score[0] - truth)
        beside_nine.append(posterior.estimate(answers).score[9] - truth)
        # A bank that is sure of its curves learns nothing from the nine.
        posterior.views = tuple(
            replace(view, item_cov=1e-9 * view.item_cov) for view in posterior.views
        )
        control.append(posterior.estimate(answers).score[9] - truth)
    of_alone, of_nine, of_control = (np.square(each) for each in (alone, beside_nine, control))
    gain = of_alone - of_nine
    assert gain.mean() > 2.0 * gain.std() / np.sqrt(len(gain)), gain
    # Measured on seeds 0 to 29: .028 against .034, the control .034.
    assert of_nine.mean() < 0.85 * of_alone.mean()
    assert of_control.mean() > 0.9 * of_alone.mean()
