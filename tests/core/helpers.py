"""Small builders for the tests of the core: items, banks and simulated answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import settings
from scipy.special import expit
from scipy.stats import binom, norm

from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.core.bank_info import BankInfo, CalibrationModel
from lm_eval_adaptive.core.bernoulli import BernoulliPosterior
from lm_eval_adaptive.core.build import calibrate
from lm_eval_adaptive.core.matrix import ScoreMatrix
from lm_eval_adaptive.core.paper import PaperPosterior
from lm_eval_adaptive.core.response import RESPONSE_MODELS, ItemParameters
from lm_eval_adaptive.core.scale import ScoreScale

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike, NDArray

    from lm_eval_adaptive.core.procedure import Procedure
    from lm_eval_adaptive.core.state import RunState

ALL_MODELS = RESPONSE_MODELS
# The same examples on every machine, and no time limit on a loaded one.
quick = settings(max_examples=40, deadline=None, derandomize=True)


def make_items(
    model: str, difficulty: ArrayLike, discrimination: ArrayLike = 1.0, noise: ArrayLike = 0.2
) -> ItemParameters:
    """Items without calibration error; under paper-1pl ``noise`` is k and fixes a."""
    b = np.asarray(difficulty, dtype=float)
    shape = np.zeros_like(b)
    s = shape + np.asarray(noise, dtype=float)
    a = shape + np.asarray(discrimination, dtype=float)
    if model == "paper-1pl":
        a = 1.0 / np.sqrt(s)
    elif model == "bernoulli-2pl":
        s = np.ones_like(b)
    return ItemParameters(model, b, a, s, np.zeros((len(b), 2, 2)))  # type: ignore[arg-type]


def global_parameters(items: ItemParameters, **changes: float) -> dict[str, float]:
    """The parameters that calibration would give along with such items."""
    if items.model == "paper-1pl":
        found = {
            "k": float(items.noise[0]),
            "prior_mean": float(np.median(items.difficulty)),
            "prior_sd": 5.0,
            "score_intercept": 0.0,
            "score_slope": 1.0,
            "score_sd": 0.0,
        }
    else:
        found = {
            "theta_centre": 0.0,
            "theta_spread": 1.0,
            "log_discrimination_mean": 0.0,
            "prior_mean": 0.0,
            "prior_sd": 1.5,
            "largest_step": 0.0,
        }
    return {**found, **changes}


def posterior_under(
    items: ItemParameters, parameters: dict[str, float]
) -> PaperPosterior | BernoulliPosterior:
    """The posterior of items whose models are inferred one at a time."""
    found = PaperPosterior if items.model == "paper-1pl" else BernoulliPosterior
    return found(items, parameters)


def random_items(model: str, n: int, rng: np.random.Generator) -> ItemParameters:
    """n items spread over the abilities that occur."""
    return make_items(
        model,
        rng.normal(0.0, 1.2, n),
        rng.uniform(0.6, 1.6, n),
        0.2 if model == "paper-1pl" else rng.uniform(0.1, 0.25, n),
    )


def draw_scores(
    items: ItemParameters, theta: ArrayLike, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Answers of models of known ability, shape (m, n), from the items' own response model.

    paper-1pl: Beta with mean mu and variance k mu (1 - mu), that is, with mu / k - mu and
    (1 - mu) / k - (1 - mu) as its two counts. robust-2pl: normal noise, cut to [0, 1].
    """
    distance = np.asarray(theta, dtype=float)[:, None] - items.difficulty[None, :]
    if items.model == "paper-1pl":
        mu = expit(distance)
        size = 1.0 / items.noise[None, :] - 1.0
        return rng.beta(np.maximum(mu * size, 1e-6), np.maximum((1.0 - mu) * size, 1e-6))
    mu = expit(items.discrimination[None, :] * distance)
    if items.model == "bernoulli-2pl":
        return rng.binomial(1, mu).astype(float)
    return np.clip(mu + items.noise[None, :] * rng.standard_normal(mu.shape), 0.0, 1.0)


def standard_abilities(count: int) -> NDArray[np.float64]:
    """Normal quantiles with mean 0 and standard deviation 1: a well-behaved set of models."""
    theta = norm.ppf((np.arange(count) + 0.5) / count)
    return np.asarray(theta / theta.std())


def make_bank(items: ItemParameters, **changes: Any) -> ItemBank:
    """A bank of items whose true parameters are known, with scores of 12 models drawn from them."""
    n = len(items)
    rng = np.random.default_rng(5)
    drawn = draw_scores(items, standard_abilities(12), rng).astype(np.float32).astype(float)
    scores = np.asarray(changes.get("scores", drawn))
    means = np.nanmean(scores, axis=1)
    info = {
        "task": "toy",
        "metric": "score",
        "filter": "none",
        "scale": ScoreScale(0.0, 1.0),
        "range_source": "declared",
        "response_model": items.model,
        "parameters": global_parameters(items),
        "models": tuple(
            CalibrationModel(f"c{row:02d}", float(theta), float(mean), float(mean), n)
            for row, (theta, mean) in enumerate(
                zip(standard_abilities(len(scores)), means, strict=True)
            )
        ),
    }
    columns = {
        "content_hash": tuple(f"{item:064x}" for item in range(n)),
        "doc_id": np.arange(n),
        "doc_hash": ("",) * n,
        "prompt_hash": ("",) * n,
        "kept": np.ones(n, dtype=bool),
        "reason": ("",) * n,
        "n_scores": np.isfinite(scores).sum(axis=0),
        "mean_score": np.nanmean(scores, axis=0),
        "item_rest_correlation": rng.uniform(-0.2, 0.9, n),
        "input_tokens": np.full(n, np.nan),
        "output_tokens": np.full(n, np.nan),
        "scores": scores,
    }
    for name, value in changes.items():
        (columns if name in columns else info)[name] = value
    return ItemBank(info=BankInfo(**info), parameters=items, **columns)  # type: ignore[arg-type]


def matrix_of(scores: ArrayLike, **attributes: Any) -> ScoreMatrix:
    """A matrix with made-up names of models (m0, m1, ...) and items (i000, ...)."""
    scores = np.asarray(scores, dtype=float)
    return ScoreMatrix(
        tuple(f"m{row}" for row in range(scores.shape[0])),
        tuple(f"i{column:03d}" for column in range(scores.shape[1])),
        scores,
        {name: np.asarray(value) for name, value in attributes.items()} or None,
    )


class FactorBenchmark:
    """A benchmark whose models differ in ability and in things besides it.

    Scores are expit(a theta + d) + f' w + noise, cut to [0, 1]: an ability theta, factor scores f
    that other models share by chance only, and a noise of each item's own.
    """

    def __init__(
        self, rng: np.random.Generator, n: int = 200, factors: int = 3, loading: float = 0.06
    ) -> None:
        self.height = rng.normal(0.3, 1.0, n)
        self.slope = np.exp(rng.normal(-0.3, 0.25, n))
        self.loadings = rng.normal(0.0, loading, (factors, n))
        self.noise = rng.uniform(0.08, 0.2, n)

    def draw(
        self, theta: ArrayLike, rng: np.random.Generator, noise: float = 1.0, factor: float = 1.0
    ) -> NDArray[np.float64]:
        """Scores of models of these abilities, shape (m, n); noise and factor scores by a factor."""
        theta = np.asarray(theta, dtype=float)
        f = factor * rng.standard_normal((len(theta), len(self.loadings)))
        mean = expit(self.slope * theta[:, None] + self.height) + f @ self.loadings
        return np.clip(mean + noise * self.noise * rng.standard_normal(mean.shape), 0.0, 1.0)

    def bank(
        self, rng: np.random.Generator, models: int = 16, response_model: str = "robust-2pl"
    ) -> ItemBank:
        """A bank calibrated on models of abilities drawn from N(0, 1)."""
        scores = self.draw(rng.normal(size=models), rng)
        return calibrate(
            matrix_of(scores),
            task="toy",
            metric="score",
            score_range=(0.0, 1.0),
            response_model=response_model,
        )


def answers(scores: NDArray[np.float64]) -> Callable[[int, tuple[int, ...]], list[float]]:
    """A callback that answers from a full matrix and fails when an item is asked twice."""
    asked: set[tuple[int, int]] = set()

    def respond(model: int, items: Sequence[int]) -> list[float]:
        for item in items:
            assert (model, item) not in asked, f"model {model} was asked item {item} twice"
            asked.add((model, item))
        return [float(scores[model, item]) for item in items]

    return respond


def play(procedure: Procedure, scores: NDArray[np.float64]) -> tuple[RunState, str]:
    """A run to its end over a full matrix: the final state and the stop reason."""
    state, stop = procedure.run(answers(scores))
    return state, stop.reason


def coverage_is_plausible(
    hits: int, trials: int, nominal: float = 0.95, share: float = 0.01
) -> bool:
    """Whether a count of covered truths agrees with the nominal level, two-sided.

    Args:
        hits: Intervals that held the truth.
        trials: Intervals.
        nominal: Their level.
        share: Probability of refusing a right method: this case's Bonferroni share.
    """
    low, high = binom.ppf([share / 2, 1.0 - share / 2], trials, nominal)
    return bool(low <= hits <= high)
