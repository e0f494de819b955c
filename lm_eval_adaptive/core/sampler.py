"""Which items to ask a model next.

This module owns item choice: maximum information and two baselines. It imports numpy and the
posteriors; who is asked is the ranker's business. A sampler never returns an item that
is administered, pending or not available, and breaks ties by the bank's row order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from lm_eval_adaptive.core.joint import Prospects
from lm_eval_adaptive.core.posterior import Posterior
from lm_eval_adaptive.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lm_eval_adaptive.core.joint import Latent
    from lm_eval_adaptive.core.posterior import Estimates
    from lm_eval_adaptive.core.robust import RobustPosterior

    FloatArray = NDArray[np.float64]
    BoolArray = NDArray[np.bool_]

SAMPLERS = ("fisher", "static", "random")


class Sampler(Protocol):
    """Picks items for one model."""

    def pick(
        self,
        model: int,
        estimates: Estimates,
        available: BoolArray,
        pending: list[int],
        count: int,
        costs: FloatArray | None = None,
    ) -> list[int]:
        """Up to ``count`` items for a model.

        Args:
            model: Row of the model in ``estimates``.
            estimates: Beliefs from the answers so far.
            available: Shape (n,), True for items the model may still be asked.
            pending: Items already sent to this model and not answered.
            count: How many to pick.
            costs: Expected cost of each item for this model, shape (n,); None where all cost the
                same.

        Returns:
            Item indices in the order of choice; fewer than ``count`` when items run out.
        """
        ...


class FisherSampler:
    """Maximum Fisher information per cost, averaged over the posterior, pending items counted.

    An item in flight will narrow the posterior. Until its answer is known it is treated as if it
    came out as expected: the weights are multiplied by a normal curve about the posterior mean
    with the pending items' information as precision, and the next item is chosen under those.
    """

    def __init__(self, posterior: Posterior) -> None:
        self._posterior = posterior

    def pick(
        self,
        model: int,
        estimates: Estimates,
        available: BoolArray,
        pending: list[int],
        count: int,
        costs: FloatArray | None = None,
    ) -> list[int]:
        """See :meth:`Sampler.pick`."""
        free = available.copy()
        free[pending] = False
        weights = None if estimates.weights is None else estimates.weights[[model]]
        theta = estimates.theta[[model]]
        informative = self._posterior.item_information(weights, theta)[0]
        precision = float(informative[pending].sum())
        chosen: list[int] = []
        for _ in range(min(count, int(free.sum()))):
            if precision > 0.0 and weights is not None and estimates.grid is not None:
                # Scaled by its peak: very precise items would underflow at every grid point.
                with np.errstate(divide="ignore"):
                    height = np.log(weights[0])
                height = height - 0.5 * precision * (estimates.grid - theta[0]) ** 2
                narrowed = np.exp(height - height.max())
                narrowed = narrowed / narrowed.sum()
                informative = self._posterior.item_information(narrowed[None, :], theta)[0]
            worth = informative if costs is None else informative / costs
            item = int(np.argmax(np.where(free, worth, -np.inf)))
            free[item] = False
            precision += float(informative[item])
            chosen.append(item)
        return chosen


class OrderSampler:
    """A fixed order, shared by all models or one per model; the baselines are of this kind.

    Args:
        orders: Shape (n,) for one order, or (m, n) for an order of each model.
    """

    def __init__(self, orders: NDArray[np.intp]) -> None:
        self._orders = orders

    def pick(
        self,
        model: int,
        estimates: Estimates,
        available: BoolArray,
        pending: list[int],
        count: int,
        costs: FloatArray | None = None,
    ) -> list[int]:
        """See :meth:`Sampler.pick`; the beliefs are not looked at."""
        del estimates, costs
        free = available.copy()
        free[pending] = False
        mine = self._orders if self._orders.ndim == 1 else self._orders[model]
        return [int(item) for item in mine[free[mine]][:count]]


class SharedSampler:
    """The items that lower the variance of full scores most, the same for all models of a round.

    For each model that is asked, an item's worth is the fall of the variance of its full score,
    relative to the best item's (:class:`~lm_eval_adaptive.core.joint.Prospects`); the group asks
    the items with the greatest sum. Items are shared because what is off about an item is off for
    all models, and drops out of their differences. Items chosen count as asked at once.
    """

    def pick(
        self,
        model: int,
        estimates: Estimates,
        available: BoolArray,
        pending: list[int],
        count: int,
        costs: FloatArray | None = None,
    ) -> list[int]:
        """See :meth:`Sampler.pick`."""
        free = np.zeros((len(estimates.theta), len(available)), dtype=bool)
        free[model] = available
        free[model, pending] = False
        rows = None if costs is None else np.repeat(costs[None, :], len(free), axis=0)
        return self.choose({model: count}, estimates.latents, free, rows, pending)[model]

    def choose(
        self,
        wanted: dict[int, int],
        latents: Sequence[Latent],
        free: BoolArray,
        costs: FloatArray | None,
        pending: Sequence[int] = (),
    ) -> dict[int, list[int]]:
        """Items for several models, shared as far as their counts and free items allow.

        Args:
            wanted: How many items to ask, by row of the model.
            latents: Posteriors under each view.
            free: Shape (m, n), items each model may still be asked.
            costs: Expected cost, shape (m, n); None where all cost the same.
            pending: Items that all of the models were sent and have not answered.

        Returns:
            Items by row, in the order of choice.
        """
        prospects = Prospects(latents)
        for item in pending:
            prospects.ask(item, list(wanted))
        free = free.copy()
        chosen: dict[int, list[int]] = {model: [] for model in wanted}
        for step in range(max(wanted.values(), default=0)):
            who = [model for model, count in wanted.items() if count > step and free[model].any()]
            groups = [who] if who and free[who].all(axis=0).any() else [[model] for model in who]
            for group in groups:
                worth = np.zeros(free.shape[1])
                for model in group:
                    price = 1.0 if costs is None else costs[model] / costs[model].mean()
                    worth = worth + prospects.worth(model) / price
                item = int(np.argmax(np.where(free[group].all(axis=0), worth, -np.inf)))
                for model in group:
                    chosen[model].append(item)
                free[group, item] = False
                prospects.ask(item, group)
        return chosen


def plan_items(
    sampler: Sampler | SharedSampler,
    wanted: dict[int, int],
    estimates: Estimates,
    free: BoolArray,
    costs: FloatArray,
) -> dict[int, list[int]]:
    """Items of a round for several models, by row.

    Args:
        sampler: How items are chosen.
        wanted: How many items each model is asked, by row.
        estimates: Beliefs from the answers so far.
        free: Shape (m, n), items each model may still be asked.
        costs: Expected cost of each item for each model, shape (m, n).
    """
    if isinstance(sampler, SharedSampler):
        return sampler.choose(wanted, estimates.latents, free, costs)
    return {
        model: sampler.pick(model, estimates, free[model], [], count, costs[model])
        for model, count in wanted.items()
    }


def make_sampler(
    name: str,
    posterior: Posterior | RobustPosterior,
    item_rest_correlation: FloatArray,
    rng: np.random.Generator,
) -> Sampler:
    """The sampler of that name.

    ``fisher`` is the method; ``static`` asks all models the items with the highest item-rest
    correlation; ``random`` asks all models the same items in an order drawn from ``rng``.

    Raises:
        UsageError: There is no sampler of that name.
    """
    if name == "fisher":
        return FisherSampler(posterior) if isinstance(posterior, Posterior) else SharedSampler()
    if name == "static":
        worth = np.where(np.isfinite(item_rest_correlation), item_rest_correlation, -2.0)
        return OrderSampler(np.argsort(-worth, kind="stable"))
    if name == "random":
        return OrderSampler(rng.permutation(len(item_rest_correlation)))
    raise UsageError(f"--sampler must be one of {', '.join(SAMPLERS)}; got {name!r}")
