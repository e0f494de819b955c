"""Which pairs of models are decided, and who should be asked next.

This module owns pairwise confidence, verdicts and allocation; it imports numpy and scipy only and
sees models as rows. Sources: pairwise confidence, adjacent stopping and allocation, Balkir et al.
2026, arXiv 2601.13885, section "Adaptive Ranker"; Holm 1979, Scand. J. Statist. 6:65-70.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.special import stdtr, stdtrit

from lm_eval_adaptive.core import defaults
from lm_eval_adaptive.core.floor import MOST_SURE
from lm_eval_adaptive.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

    from lm_eval_adaptive.core.estimates import Estimates

    FloatArray = NDArray[np.float64]

Verdict = Literal["a", "b", "equivalent", "undecided"]


@dataclass(frozen=True)
class DecisionRule:
    """When a pair of models counts as decided.

    Attributes:
        confidence: Two-sided level gamma, between 0 and 1.
        correction: ``none``, or ``holm`` over the pairs that must be decided.
        equivalence: Score difference in [0, 1] below which two models count as equal; 0 is off.
        pairs: Which pairs must be decided: ``adjacent``, ``all`` or ``top:K`` (every pair with a
            model that now stands among the first K).
    """

    confidence: float = defaults.CONFIDENCE
    correction: Literal["none", "holm"] = defaults.CORRECTION
    equivalence: float = defaults.EQUIVALENCE
    pairs: str = defaults.PAIRS

    def __post_init__(self) -> None:
        if not 0.0 < self.confidence < 1.0:
            raise UsageError(
                f"--confidence must lie between 0 and 1, got {self.confidence}; 0.95 is usual"
            )
        if self.correction not in ("none", "holm"):
            raise UsageError(f"--correction must be none or holm, got {self.correction!r}")
        if not 0.0 <= self.equivalence < math.inf:
            raise UsageError(
                f"--equivalence must be a finite number, 0 or more, got {self.equivalence}"
            )
        kind, _, count = self.pairs.partition(":")
        if not (
            self.pairs in ("adjacent", "all")
            or (kind == "top" and count.isdecimal() and int(count) > 0)
        ):
            raise UsageError(
                f"--pairs must be adjacent, all or top:K with K of at least 1, got {self.pairs!r}"
            )


@dataclass(frozen=True)
class Pair:
    """Two models, the better placed first.

    Attributes:
        a: Row of the model that stands higher now.
        b: Row of the other.
        p_a_better: Probability that a's full-benchmark level is above b's.
        verdict: a, b, equivalent or undecided.
        required: Whether the run goes on until this pair is decided.
    """

    a: int
    b: int
    p_a_better: float
    verdict: Verdict
    required: bool


def order(level: FloatArray) -> list[int]:
    """Rows best first; equal levels keep their row order."""
    return [int(row) for row in np.argsort(-level, kind="stable")]


def better_by(estimates: Estimates) -> FloatArray:
    """P(level_i > level_j) by what is believed, shape (m, m)."""
    return probability_from(estimates.level, pair_variance(estimates), estimates.pair_df)


def errors_to_decide(estimates: Estimates, rule: DecisionRule) -> float:
    """How many of its errors a difference must be from zero for its pair to be decided."""
    return float(stdtrit(estimates.pair_df, 1.0 - (1.0 - rule.confidence) / 2.0))


def pair_variance(estimates: Estimates) -> FloatArray:
    """Variance of every difference of two levels, shape (m, m)."""
    if estimates.pair_var is not None:
        return estimates.pair_var
    return difference_variance(estimates.level_cov)


def probability_from(level: FloatArray, variance: FloatArray, df: float) -> FloatArray:
    """P(level_i > level_j) under a Student t; normal with infinite ``df``.

    F((level_i - level_j) / sqrt(var_ij)), F being the distribution function; with normal,
    independent levels this is the paper's equation for P(theta_i > theta_j).

    Args:
        level: Shape (m,).
        variance: Variances of differences, the t's squared scale, shape (m, m).
        df: Degrees of freedom.

    Returns:
        Shape (m, m); p[i, j] + p[j, i] = 1, one half on the diagonal; never 0 or 1, see ``floor``.

    >>> variance = difference_variance(np.diag([0.36, 0.64]))
    >>> p = probability_from(np.array([1.0, 0.0]), variance, np.inf)
    >>> round(float(p[0, 1]), 4)  # Phi(1)
    0.8413
    """
    difference = level[:, None] - level[None, :]
    sd = np.sqrt(variance)
    with np.errstate(invalid="ignore", divide="ignore"):
        z = np.where(sd > 0.0, difference / sd, np.sign(difference) * np.inf)
    z = np.where(difference == 0.0, 0.0, z)
    p = np.minimum(stdtr(df, np.abs(z)), MOST_SURE)
    return np.asarray(np.where(z >= 0.0, p, 1.0 - p))


def difference_variance(cov: FloatArray) -> FloatArray:
    """Variance of every difference of two levels, shape (m, m)."""
    own = np.diag(cov)
    return np.asarray(np.maximum(own[:, None] + own[None, :] - 2.0 * cov, 0.0))


def required_pairs(
    ranked: NDArray[np.intp],
    first: NDArray[np.intp],
    second: NDArray[np.intp],
    pairs: str,
    fixed: Collection[int] = (),
) -> NDArray[np.bool_]:
    """Which pairs must be decided.

    Args:
        ranked: Rows, best first.
        first: Places in this order of the better placed of each pair.
        second: Places of the other.
        pairs: ``adjacent``, ``all`` or ``top:K``.
        fixed: Rows of models that are asked nothing; a pair of two of them is never required.
    """
    if pairs == "adjacent":
        found = second == first + 1
    elif pairs == "all":
        found = np.ones(len(first), dtype=bool)
    else:
        found = first < int(pairs.partition(":")[2])
    if len(fixed):
        still = np.isin(ranked, list(fixed))
        found &= ~(still[first] & still[second])
    return np.asarray(found)


def _holm(p_values: FloatArray, alpha: float) -> NDArray[np.bool_]:
    """Which hypotheses Holm's step-down procedure rejects at family-wise level alpha."""
    rejected = np.zeros(len(p_values), dtype=bool)
    ranked = np.argsort(p_values, kind="stable")
    for step, index in enumerate(ranked):
        # At the bound itself nothing is decided, as for a pair without correction.
        if p_values[index] >= alpha / (len(p_values) - step):
            break
        rejected[index] = True
    return rejected


def judge_pairs(
    estimates: Estimates,
    rule: DecisionRule,
    fixed: Collection[int] = (),
    *,
    names: Sequence[int] | None = None,
    all_pairs: bool = True,
) -> list[Pair]:
    """Verdicts on pairs, in ranking order.

    A pair is decided when P(a better) > 1 - (1 - gamma)/2, that is, when the two-sided p-value
    2 (1 - P) is below 1 - gamma, by itself or after Holm's correction over the required pairs
    (for pairs that are not required: over all pairs). It is equivalent when the difference of
    scores lies within the equivalence margin with probability at least gamma.

    Args:
        estimates: Beliefs about m models.
        rule: When a pair is decided.
        fixed: Rows of models that are asked nothing; see :func:`required_pairs`.
        names: What pairs call the rows, where these are not a caller's own, shape (m,).
        all_pairs: Whether pairs that are not required are judged too.

    Returns:
        m (m - 1) / 2 pairs, or those required.
    """
    ranked = np.argsort(-estimates.level, kind="stable")
    first, second = np.triu_indices(len(ranked), 1)
    if not len(first):
        return []
    needed = required_pairs(ranked, first, second, rule.pairs, fixed)
    if not all_pairs:
        first, second, needed = first[needed], second[needed], needed[needed]
    a, b = ranked[first], ranked[second]
    p = better_by(estimates)[a, b]
    p_values = 2.0 * np.minimum(p, 1.0 - p)
    alpha = 1.0 - rule.confidence
    if rule.correction == "holm":
        decided = _holm(p_values, alpha)
        decided[needed] = _holm(p_values[needed], alpha)
    else:
        decided = p_values < alpha
    verdicts = np.where(decided, np.where(p > 0.5, "a", "b"), "undecided")
    if rule.equivalence > 0.0:
        within = estimates.within
        if within is None:
            within = _probability_within(estimates, rule.equivalence)
        verdicts = np.where(within[a, b] >= rule.confidence, "equivalent", verdicts)
    rows = np.arange(len(ranked)) if names is None else np.asarray(names)
    columns = rows[a].tolist(), rows[b].tolist(), p.tolist(), verdicts.tolist(), needed.tolist()
    return [Pair(*each) for each in zip(*columns, strict=True)]


def _probability_within(estimates: Estimates, margin: float) -> FloatArray:
    """P(|score_i - score_j| < margin), shape (m, m)."""
    difference = estimates.score[:, None] - estimates.score[None, :]
    sd = np.sqrt(np.maximum(difference_variance(estimates.score_cov), 1e-300))
    df = estimates.pair_df
    return np.asarray(
        stdtr(df, (margin - difference) / sd) - stdtr(df, (-margin - difference) / sd)
    )


def common_variance(cov: FloatArray) -> float:
    """The part of all variances that no difference shows: the least covariance, 0 at least.

    Args:
        cov: Covariance of levels, shape (m, m).

    >>> common_variance(np.array([[3.0, 1.0], [1.0, 2.0]]))
    1.0
    """
    if len(cov) < 2:
        return 0.0
    apart = cov[~np.eye(len(cov), dtype=bool)]
    return float(np.clip(apart.min(), 0.0, 0.99 * np.diag(cov).min()))


def allocation_value(
    variance: FloatArray, administered: NDArray[np.int_], cost: FloatArray
) -> FloatArray:
    """Worth of asking each model one more item: SE^2 / ((n + 1) c), the paper's value_m.

    Args:
        variance: SE^2 of each model's level, shape (m,).
        administered: Items asked or pending, n, shape (m,).
        cost: Cost c of one item, shape (m,), positive.

    >>> allocation_value(np.array([0.2, 0.2]), np.array([9, 9]), np.array([1.0, 2.0])).tolist()
    [0.02, 0.01]
    """
    return np.asarray(variance / ((administered + 1) * cost))
