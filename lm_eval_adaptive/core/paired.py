"""Ranking without a bank: the same documents for all models, paired differences, valid at any time.

This module owns the order of the documents, and what paired scores prove about differences of full
scores; it imports numpy and scipy. It needs no model of items or models: only that scores lie in
[0, 1] and that the order was drawn at random.

A claim about a mean, such as "a is no better than b", is tested by betting against it
(Waudby-Smith and Ramdas 2024, J. R. Statist. Soc. B 86:1-27, arXiv 2010.09686, with their
correction for sampling without replacement): wealth starts at 1 and is multiplied by
1 + lambda (d - M) for every difference d, M being what the claim says the mean of the documents not
yet asked must be. If the claim is true, wealth is expected not to grow, and by Ville's inequality
it ever reaches 1 / alpha with a probability of at most alpha, however often and whenever one looks.
Nothing is assumed about the distribution, and no approximation is made for short tests.

Documents are asked in blocks with one from each stratum. Within a block lambda and M stay as they
are; given the past, its documents are drawn independently, so the expected product of their factors
is the product of 1 + lambda (mu_s - M) over strata s. The mu_s - M add up to 0 at most, so by the
inequality of arithmetic and geometric means it is at most 1. Wealth counts at the ends of blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import logit, ndtri

from lm_eval_adaptive.core.calibration import completed_means
from lm_eval_adaptive.core.estimates import Estimates
from lm_eval_adaptive.core.floor import alike_variance
from lm_eval_adaptive.core.forecast import FASTEST
from lm_eval_adaptive.core.inference import AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]
    IntArray = NDArray[np.intp]

# Documents in a block, one per stratum.
STRATA = 5
# Bets, as shares of the largest that cannot lose all, and the shares of wealth they start with.
# Most is bet boldly: continuous scores of one document differ by little of their range. Small bets
# win where the differences of two models are small against their spread, as with scores of 0 and 1.
BETS: FloatArray = np.array([0.1, 0.25, 0.5, 0.99])
STAKES: FloatArray = np.array([0.1, 0.1, 0.1, 0.7])
# Level of the intervals of scores.
INTERVAL_LEVEL = 0.95
_EPSILON = 0.001


@dataclass(frozen=True)
class SharedOrder:
    """The order in which all models are asked the documents.

    Attributes:
        items: Shape (n,), documents in their order.
        blocks: Shape (n,), the block that each of them belongs to, ascending from 0.
    """

    items: IntArray
    blocks: IntArray

    @property
    def step(self) -> int:
        """Documents in a whole block."""
        return int(np.bincount(self.blocks).max())


def spread_order(
    values: Sequence[float] | Sequence[str] | None, n: int, rng: np.random.Generator
) -> SharedOrder:
    """Draw an order in which every block holds short and long documents, or some of every kind.

    Documents are sorted by ``values`` and cut into strata of equal size; a block takes one document
    at random from each. What does not go into equal strata is asked first, each a block of its own.

    Args:
        values: What to spread over, of length n; None draws a plain random order.
        n: Documents.
        rng: The generator.
    """
    shuffled = rng.permutation(n)
    strata = 1 if values is None else max(1, min(STRATA, n // 4))
    first = n % strata
    rest = shuffled[first:]
    if values is not None:
        keys = [values[item] for item in rest]
        rest = rest[sorted(range(len(rest)), key=keys.__getitem__)]
    size = len(rest) // strata
    drawn = np.stack([rng.permutation(rest[k * size : (k + 1) * size]) for k in range(strata)])
    mixed = [rng.permutation(drawn[:, block]) for block in range(size)]
    items = np.concatenate([shuffled[:first], *mixed]).astype(np.intp)
    blocks = np.concatenate([np.arange(first), first + np.repeat(np.arange(size), strata)])
    return SharedOrder(items, blocks.astype(np.intp))


def log_evidence(
    values: FloatArray, blocks: IntArray, sizes: IntArray, claim: float, low: float, total: int
) -> float:
    """Log of the greatest wealth, so far, from betting that a mean is above what is claimed.

    Args:
        values: What was seen, in the order of the documents, each at least ``low``.
        blocks: The block of each, ascending.
        sizes: Number of documents in every block of the order.
        claim: The mean over all documents is claimed to be this or less.
        low: Least possible value.
        total: Number of all documents, of which ``values`` is a part.

    Returns:
        At least 0; the claim is refuted at level alpha where it reaches -log(alpha).
    """
    if not len(values):
        return 0.0
    # What the documents left would need, against what they can be.
    if total * claim - float(values.sum()) < (total - len(values)) * low - 1e-9:
        return np.inf
    ends = np.flatnonzero(np.diff(blocks, append=-1))
    # The last block counts when it is whole; earlier ones have lost documents that cannot be asked.
    if ends[-1] - (ends[-2] if len(ends) > 1 else -1) < sizes[blocks[-1]]:
        ends = ends[:-1]
    if not len(ends):
        return 0.0
    values, blocks = values[: ends[-1] + 1], blocks[: ends[-1] + 1]
    starts = np.concatenate([[0], ends[:-1] + 1])
    before = np.concatenate([[0.0], np.cumsum(values)])[starts]
    left = np.repeat((total * claim - before) / (total - starts), np.diff([*starts, len(values)]))
    left = np.maximum(left, low + 1e-9)
    factors = np.log1p(BETS[:, None] * ((values - left) / (left - low)))
    wealth = np.cumsum(factors, axis=1)[:, ends]
    top = wealth.max(axis=0)
    mixed = top + np.log(STAKES @ np.exp(wealth - top))
    return max(float(mixed.max()), 0.0)


def mean_interval(
    values: FloatArray, blocks: IntArray, sizes: IntArray, total: int, level: float
) -> tuple[float, float]:
    """Means in [0, 1] that are not refuted: an interval that is valid at any time.

    Args:
        values: Scores in the order of the documents.
        blocks: The block of each.
        sizes: Number of documents in every block of the order.
        total: Number of all documents.
        level: Its level.
    """
    bound = np.log(2.0 / (1.0 - level))

    def lowest(x: FloatArray) -> float:
        # Wealth falls with the claim: halve to where it stops refuting.
        low, high = 0.0, 1.0
        for _ in range(20):
            middle = 0.5 * (low + high)
            if log_evidence(x, blocks, sizes, middle, 0.0, total) >= bound:
                low = middle
            else:
                high = middle
        return low

    return lowest(values), 1.0 - lowest(1.0 - values)


class PairedPosterior:
    """What is known of models that are asked the same documents, without a bank.

    It answers as the inferences of a bank do. ``pair_var`` is such that the normal probability of a
    better level is 1 - p / 2, with p the two-sided p-value, valid at any time, of no difference.

    Args:
        order: The order in which documents are asked.
        margin: Difference of scores below which two models count as equal; 0 for none.
    """

    shared = True
    ranks_by_score = True
    one_at_a_time = False
    draws = False
    warm_up = AT_ONCE
    gives_up = False
    stop_share = 1.0
    forecast = FASTEST

    def __init__(self, order: SharedOrder, margin: float = 0.0) -> None:
        self.order = order
        self.margin = margin
        self.sizes: IntArray = np.bincount(order.blocks).astype(np.intp)

    @property
    def least_round(self) -> int:
        """Documents in a block: within one, nothing is concluded."""
        return self.order.step

    def worth(self, estimates: Estimates, items: NDArray[np.intp] | None = None) -> Alike:
        """All documents the same: nothing is known of any before it is asked."""
        del estimates
        return Alike(len(self.order.items if items is None else items))

    def misfitting(self, responses: FloatArray, estimates: Estimates) -> NDArray[np.bool_]:
        """Nobody's: nothing was expected of their answers."""
        del estimates
        return np.zeros(len(responses), dtype=bool)

    def estimate(self, responses: FloatArray) -> Estimates:
        """See :meth:`~lm_eval_adaptive.core.inference.Inference.estimate`."""
        m, n = responses.shape
        ordered = responses[:, self.order.items]
        score = _levels(responses)
        count = np.isfinite(responses).sum(axis=1)
        variance, half = np.full(m, 0.25), np.ones(m)
        for row in range(m):
            seen = np.isfinite(ordered[row])
            if count[row] > 1:
                own = float(ordered[row, seen].var(ddof=1)) / count[row]
                variance[row] = max(own * (1.0 - count[row] / n), alike_variance(n, n))
            if count[row]:
                low, high = mean_interval(
                    ordered[row, seen], self.order.blocks[seen], self.sizes, n, INTERVAL_LEVEL
                )
                least = 2.0 * float(np.sqrt(alike_variance(n, n)))
                half[row] = max(score[row] - low, high - score[row], least)
            if count[row] and not np.ptp(ordered[row, seen]) > 0.0:
                variance[row] = alike_variance(int(count[row]), n)
                half[row] = min(max(half[row], 2.0 * float(np.sqrt(variance[row]))), 1.0)
        pair_var, within = np.zeros((m, m)), np.eye(m)
        for a in range(m):
            for b in range(a + 1, m):
                seen = np.isfinite(ordered[a]) & np.isfinite(ordered[b])
                difference = ordered[a, seen] - ordered[b, seen]
                pair_var[a, b] = pair_var[b, a] = self._variance(
                    difference, seen, float(score[a] - score[b])
                )
                within[a, b] = within[b, a] = self._within(difference, seen)
        clipped = np.clip(score, _EPSILON, 1.0 - _EPSILON)
        cov = np.diag(variance)
        return Estimates(
            theta=np.asarray(logit(clipped)),
            theta_se=np.sqrt(variance) / (clipped * (1.0 - clipped)),
            score=score,
            score_cov=cov,
            level=score,
            level_cov=cov,
            pair_var=pair_var,
            half_interval=half,
            within=within,
        )

    def _log_evidence(self, values: FloatArray, seen: NDArray[np.bool_], claim: float) -> float:
        """Evidence that the mean difference is above ``claim``."""
        total = len(self.order.items)
        if len(values) < 2:  # one document alone decides nothing
            return 0.0
        return log_evidence(values, self.order.blocks[seen], self.sizes, claim, -1.0, total)

    def _variance(self, difference: FloatArray, seen: NDArray[np.bool_], gap: float) -> float:
        """The variance under which a gap of levels reads as the evidence for it."""
        sign = 1.0 if gap >= 0.0 else -1.0
        log_p = np.log(2.0) - self._log_evidence(sign * difference, seen, 0.0)
        p = float(np.exp(np.clip(log_p, -600.0, 0.0)))
        z = max(-float(ndtri(p / 2.0)), 1e-3)
        return max((gap / z) ** 2, 1e-18)

    def _within(self, difference: FloatArray, seen: NDArray[np.bool_]) -> float:
        """1 - p-value of a difference of the margin or more, in either direction."""
        if not self.margin > 0.0:
            return 0.0
        least = min(
            self._log_evidence(difference, seen, -self.margin),
            self._log_evidence(-difference, seen, -self.margin),
        )
        return float(1.0 - np.exp(-least))


class Alike:
    """Worth of n items of which nothing is known: 1 each, whatever was asked."""

    def __init__(self, n: int) -> None:
        self._each: FloatArray = np.ones(n)

    def worth(self, model: int) -> FloatArray:
        """See :meth:`~lm_eval_adaptive.core.inference.Worth.worth`."""
        del model
        return self._each

    def ask(self, item: int, models: Sequence[int]) -> None:
        """See :meth:`~lm_eval_adaptive.core.inference.Worth.ask`."""


def _levels(responses: FloatArray) -> FloatArray:
    """Mean scores, as if all models had been asked whatever any of them was."""
    seen = np.isfinite(responses)
    rows, columns = seen.any(axis=1), seen.any(axis=0)
    found = np.full(len(responses), 0.5)
    if rows.any():
        found[rows] = completed_means(responses[np.ix_(rows, columns)])[0]
    return found
