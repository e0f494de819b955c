"""Models whose scores are known already: they join a ranking and are asked nothing.

This module owns what is believed about a bank's calibration models; it imports numpy and the shape
of estimates. A model that was scored on all of the bank's items has no sampling error on them; one
that was scored on a part is estimated as a model under test would be.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lm_eval_adaptive.core.estimates import Estimates
from lm_eval_adaptive.core.ranker import pair_variance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.core.inference import Inference

    FloatArray = NDArray[np.float64]


def recorded(bank: ItemBank, inference: Inference, rows: Sequence[int]) -> Estimates:
    """What is known of some of a bank's calibration models.

    Each is estimated from all of its recorded scores, by itself; where these are complete, the
    score is the recorded one and its error 0.

    Args:
        bank: The bank.
        inference: Its inference.
        rows: Rows of the models in the bank's scores, at least one.

    Returns:
        Estimates of ``len(rows)`` models, independent of each other.
    """
    found = [inference.estimate(bank.scores[[row]]) for row in rows]
    score = np.array([float(each.score[0]) for each in found])
    variance = np.array([float(each.score_cov[0, 0]) for each in found])
    complete = np.isfinite(bank.scores[list(rows)]).all(axis=1)
    by_record = np.array([bank.info.models[row].mean_score for row in rows])
    score = np.where(complete, by_record, score)
    score_cov = np.diag(np.where(complete, 0.0, variance))
    level, level_cov = score, score_cov
    if not inference.ranks_by_score:  # then by theta
        level = np.array([float(each.level[0]) for each in found])
        level_cov = np.diag([float(each.level_cov[0, 0]) for each in found])
    return Estimates(
        theta=np.array([float(each.theta[0]) for each in found]),
        theta_se=np.array([float(each.theta_se[0]) for each in found]),
        score=score,
        score_cov=score_cov,
        level=level,
        level_cov=level_cov,
    )


def beside(own: Estimates, known: Estimates) -> Estimates:
    """Beliefs about models under test, followed by those about known models.

    The errors of the two kinds are independent. What items have in common drops out of the
    difference of two models under test, but not of a difference to a recorded score; where
    ``own`` tells the variance of differences apart, those to known models get that of the score
    itself.

    Args:
        own: m models.
        known: k models.

    Returns:
        m + k models; ``grid``, ``weights`` and ``latents`` are those of the first m.
    """
    m, k = len(own.theta), len(known.theta)
    pair_var = None
    if own.pair_var is not None:
        across = np.diag(own.score_cov)[:, None] + np.diag(known.score_cov)[None, :]
        pair_var = np.zeros((m + k, m + k))
        pair_var[:m, :m] = own.pair_var
        pair_var[:m, m:] = across
        pair_var[m:, :m] = pair_var[:m, m:].T
        pair_var[m:, m:] = pair_variance(known)
    return replace(
        own,
        theta=np.concatenate([own.theta, known.theta]),
        theta_se=np.concatenate([own.theta_se, known.theta_se]),
        score=np.concatenate([own.score, known.score]),
        score_cov=_blocks(own.score_cov, known.score_cov),
        level=np.concatenate([own.level, known.level]),
        level_cov=_blocks(own.level_cov, known.level_cov),
        pair_var=pair_var,
        misfit=None if own.misfit is None else np.concatenate([own.misfit, np.ones(k)]),
        outside=None if own.outside is None else np.concatenate([own.outside, np.zeros(k)]),
    )


def _blocks(first: FloatArray, second: FloatArray) -> FloatArray:
    m, k = len(first), len(second)
    found = np.zeros((m + k, m + k))
    found[:m, :m], found[m:, m:] = first, second
    return found
