"""Held-out tests of very large score matrices look at a part of them."""

from __future__ import annotations

import numpy as np

from lm_eval_adaptive.core import holdout


def scores_of(rng, models, items):
    theta, height = rng.normal(0.0, 0.1, (models, 1)), rng.uniform(0.2, 0.8, items)
    return np.clip(height + theta + rng.normal(0.0, 0.1, (models, items)), 0.0, 1.0)


def test_a_small_matrix_is_looked_at_whole():
    scores = scores_of(np.random.default_rng(0), 20, 100)
    assert holdout.looked_at(scores)[0] is scores


def test_of_a_large_matrix_models_and_items_are_left_out_with_what_has_no_score_then(monkeypatch):
    monkeypatch.setattr(holdout, "MOST_MODELS", 10)
    monkeypatch.setattr(holdout, "MOST_ITEMS", 40)
    rng = np.random.default_rng(1)
    scores = scores_of(rng, 21, 200)
    scores[3, 5:] = np.nan  # a model that was asked five items
    levels = np.where(np.arange(21) % 2, np.nan, np.arange(21) / 21.0)
    part, told = holdout.looked_at(scores, levels)
    assert part.shape[0] <= 10
    assert 30 <= part.shape[1] <= 40
    assert np.isfinite(part).any(axis=1).all()
    assert np.isfinite(part).any(axis=0).all()
    # Levels stay with their models: each row is one of the matrix, and that row's level.
    for row, level in zip(part, told, strict=True):
        seen = row[np.isfinite(row)]
        (mine,) = [k for k in range(21) if np.isin(seen, scores[k][np.isfinite(scores[k])]).all()]
        np.testing.assert_equal(level, levels[mine])


def test_errors_told_by_a_part_are_those_of_the_whole(monkeypatch):
    """The share of items that is asked is what differs: errors of 10 items of 600 or of 300."""
    scores = scores_of(np.random.default_rng(2), 24, 600)
    whole = holdout.hold_out(scores)
    monkeypatch.setattr(holdout, "MOST_ITEMS", 300)
    part = holdout.hold_out(scores)

    def rmse(found):
        at = (found.length == 20) & (found.far == 0)
        return float(np.sqrt(((found.estimate - found.truth)[at] ** 2).mean()))

    assert set(part.items) == {300.0}
    assert 0.7 < rmse(part) / rmse(whole) < 1.4
