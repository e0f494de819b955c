"""Response models: what score an item is expected to give a model of ability theta.

This module owns the formulas of mean, variance and information; it imports numpy and scipy only.
Three models share one table of item parameters:

``paper-1pl``
    mu = expit(theta - b), variance k mu (1 - mu), information mu (1 - mu) / k, with one k for the
    bank; ``discrimination`` is a = 1/sqrt(k) and ``noise`` is k. Source: Balkir et al. 2026, arXiv
    2601.13885, section "Continuous CAT".
``robust-2pl``
    mu = expit(a (theta - b)), constant noise s per item (``noise`` is the standard deviation s).
    V(theta) = s^2 + grad mu' Sigma grad mu adds what calibration leaves unsure.
``bernoulli-2pl``
    mu = expit(a (theta - b)) is the probability of a score of 1; variance mu (1 - mu), ``noise``
    is 1, a multiplier of that variance.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

import numpy as np
from scipy.special import expit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

ResponseModelName = Literal["paper-1pl", "robust-2pl", "bernoulli-2pl"]
RESPONSE_MODELS: tuple[ResponseModelName, ...] = get_args(ResponseModelName)


@dataclass(frozen=True)
class ItemParameters:
    """Calibrated parameters of n items under one response model.

    Attributes:
        model: Which response model the numbers belong to.
        difficulty: b, shape (n,), logits: the ability at which the expected score is one half.
        discrimination: a, shape (n,), per logit, positive.
        noise: Shape (n,), see the module's text for its meaning under each model.
        covariance: Shape (n, 2, 2): calibration covariance of (difficulty, discrimination).
    """

    model: ResponseModelName
    difficulty: FloatArray
    discrimination: FloatArray
    noise: FloatArray
    covariance: FloatArray

    def __len__(self) -> int:
        return len(self.difficulty)

    @property
    def own_slopes(self) -> bool:
        """Whether items have discriminations of their own, or one for the bank."""
        return _FORMULAS[self.model].own_slopes

    def take(self, index: NDArray[np.intp] | NDArray[np.bool_]) -> ItemParameters:
        """The parameters of some of the items."""
        return ItemParameters(
            self.model,
            self.difficulty[index],
            self.discrimination[index],
            self.noise[index],
            self.covariance[index],
        )


class _Formulas(ABC):
    """A response model: formulas in ``distance`` theta - b and ``slope`` mu (1 - mu), both (g, n).

    Attributes:
        own_slopes: Items have discriminations of their own.
        needs: Global parameters that a bank cannot do without.
    """

    own_slopes: ClassVar[bool] = True
    needs: ClassVar[tuple[str, ...]] = ("prior_mean", "prior_sd")

    def logits(self, distance: FloatArray, items: ItemParameters) -> FloatArray:
        return np.asarray(items.discrimination[None, :] * distance)

    def variance(
        self, distance: FloatArray, slope: FloatArray, items: ItemParameters
    ) -> FloatArray:
        del distance
        return np.asarray(items.noise[None, :] * slope)

    @abstractmethod
    def information(
        self, distance: FloatArray, slope: FloatArray, items: ItemParameters
    ) -> FloatArray: ...


class _Paper(_Formulas):
    own_slopes = False
    needs = ("prior_mean", "prior_sd", "score_intercept", "score_slope", "score_sd")

    def logits(self, distance: FloatArray, items: ItemParameters) -> FloatArray:
        del items
        return distance

    def information(
        self, distance: FloatArray, slope: FloatArray, items: ItemParameters
    ) -> FloatArray:
        del distance
        return np.asarray(slope / items.noise[None, :])


class _Bernoulli(_Formulas):
    def information(
        self, distance: FloatArray, slope: FloatArray, items: ItemParameters
    ) -> FloatArray:
        del distance
        return np.asarray(items.discrimination[None, :] ** 2 * slope / items.noise[None, :])


class _Robust(_Formulas):
    def variance(
        self, distance: FloatArray, slope: FloatArray, items: ItemParameters
    ) -> FloatArray:
        d_difficulty = -items.discrimination[None, :] * slope
        d_discrimination = distance * slope
        cov = items.covariance
        calibration = (
            d_difficulty**2 * cov[None, :, 0, 0]
            + d_discrimination**2 * cov[None, :, 1, 1]
            + 2.0 * d_difficulty * d_discrimination * cov[None, :, 0, 1]
        )
        return np.asarray(items.noise[None, :] ** 2 + calibration)

    def information(
        self, distance: FloatArray, slope: FloatArray, items: ItemParameters
    ) -> FloatArray:
        spread = self.variance(distance, slope, items)
        return np.asarray((items.discrimination[None, :] * slope) ** 2 / spread)


# Where a response model's name becomes its formulas.
_FORMULAS: dict[ResponseModelName, _Formulas] = {
    "paper-1pl": _Paper(),
    "robust-2pl": _Robust(),
    "bernoulli-2pl": _Bernoulli(),
}


def needed_parameters(model: ResponseModelName) -> tuple[str, ...]:
    """Names of the global parameters that a bank of this response model must hold."""
    return _FORMULAS[model].needs


def _distance(theta: FloatArray, items: ItemParameters) -> FloatArray:
    return theta[:, None] - items.difficulty[None, :]


def expected_score(theta: FloatArray, items: ItemParameters) -> FloatArray:
    """Expected score mu of each item at each ability.

    Args:
        theta: Abilities, shape (g,), logits.
        items: n items.

    Returns:
        Shape (g, n), in [0, 1].

    >>> one = ItemParameters("paper-1pl", *np.array([[0.0], [2.0], [0.25]]), np.zeros((1, 2, 2)))
    >>> expected_score(np.array([0.0]), one).tolist()
    [[0.5]]
    """
    return np.asarray(expit(_FORMULAS[items.model].logits(_distance(theta, items), items)))


def variance(theta: FloatArray, items: ItemParameters) -> FloatArray:
    """Variance of a score about its expectation, shape (g, n), at abilities of shape (g,).

    Under ``robust-2pl`` it includes the calibration error of the item's parameters, by the delta
    method in (b, a).
    """
    mu = expected_score(theta, items)
    return _FORMULAS[items.model].variance(_distance(theta, items), mu * (1.0 - mu), items)


def information(theta: FloatArray, items: ItemParameters) -> FloatArray:
    """Fisher information each item adds about theta: (d mu / d theta)^2 / variance.

    For ``paper-1pl`` this is mu (1 - mu) / k, for ``bernoulli-2pl`` a^2 mu (1 - mu). The term that
    a variance depending on theta would add, (1 - 2 mu)^2 / 2 and the like, is left out as in the
    paper: it rewards items far from theta.

    Args:
        theta: Abilities, shape (g,), logits.
        items: n items.

    Returns:
        Shape (g, n), logits^-2, never negative.

    >>> one = ItemParameters("paper-1pl", *np.array([[0.0], [2.0], [0.25]]), np.zeros((1, 2, 2)))
    >>> information(np.array([0.0]), one).tolist()  # a = 2, k = 1/4: 4 x 1/4
    [[1.0]]
    """
    mu = expected_score(theta, items)
    return _FORMULAS[items.model].information(_distance(theta, items), mu * (1.0 - mu), items)
