"""Which items to ask models next.

This module owns item choice, in two steps that know nothing of each other: an inference says what
each item is *worth* (:class:`~lm_eval_adaptive.core.inference.Worth`), and a *draw* takes one of
those that may be asked. Who is asked how many is the ranker's business. A sampler never returns an
item that is administered or not available, and breaks ties by the bank's row order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from lm_eval_adaptive.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from lm_eval_adaptive.core.estimates import Estimates
    from lm_eval_adaptive.core.inference import Inference, Worth

    FloatArray = NDArray[np.float64]
    BoolArray = NDArray[np.bool_]
    # Takes the worth of all items and which of them may be asked, both of shape (n,), and gives the
    # index of one of these.
    Draw = Callable[[FloatArray, BoolArray], int]

SAMPLERS = ("fisher", "static", "random")


class Sampler(Protocol):
    """Picks the items of a round."""

    @property
    def name(self) -> str:
        """What it is called in a run's signature."""
        ...

    def choose(
        self,
        wanted: Mapping[int, int],
        estimates: Estimates,
        free: BoolArray,
        costs: FloatArray | None = None,
    ) -> dict[int, list[int]]:
        """Items for several models.

        Args:
            wanted: How many items to ask, by row of the model in ``estimates``.
            estimates: Beliefs from the answers so far.
            free: Shape (m, n), items each model may still be asked; it is left as it is.
            costs: Expected cost of each item for each model, shape (m, n); None where all cost the
                same.

        Returns:
            Item indices by row, in the order of choice; fewer than wanted when items run out.
        """
        ...


def best(worth: FloatArray, free: BoolArray) -> int:
    """The draw that takes the item of greatest worth."""
    return int(np.argmax(np.where(free, worth, -np.inf)))


def choose_apart(
    wanted: Mapping[int, int],
    worth: Worth,
    free: BoolArray,
    costs: FloatArray | None,
    draw: Draw = best,
) -> dict[int, list[int]]:
    """Items of each model by itself, one after the other by their worth per cost.

    Args:
        wanted: How many items to ask, by row of the model.
        worth: What items tell; those chosen count as asked at once.
        free: Shape (m, n), items each model may still be asked.
        costs: Expected cost, shape (m, n); None where all cost the same.
        draw: Takes one of the free items.
    """
    chosen: dict[int, list[int]] = {}
    for model, count in wanted.items():
        left = free[model].copy()
        chosen[model] = []
        for _ in range(min(count, int(left.sum()))):
            value = worth.worth(model)
            item = draw(value if costs is None else value / costs[model], left)
            left[item] = False
            worth.ask(item, [model])
            chosen[model].append(item)
    return chosen


def choose_shared(
    wanted: Mapping[int, int],
    worth: Worth,
    free: BoolArray,
    costs: FloatArray | None,
    draw: Draw = best,
) -> dict[int, list[int]]:
    """The same items for all models of a round, as far as their counts and free items allow.

    The group asks the items with the greatest sum of worths. Items are shared because what is off
    about an item is off for all models, and drops out of their differences. Arguments are those of
    :func:`choose_apart`; a model's costs count relative to their mean.
    """
    free = free.copy()
    chosen: dict[int, list[int]] = {model: [] for model in wanted}
    for step in range(max(wanted.values(), default=0)):
        who = [model for model, count in wanted.items() if count > step and free[model].any()]
        groups = [who] if who and free[who].all(axis=0).any() else [[model] for model in who]
        for group in groups:
            value = np.zeros(free.shape[1])
            for model in group:
                price = 1.0 if costs is None else costs[model] / costs[model].mean()
                value = value + worth.worth(model) / price
            item = draw(value, np.asarray(free[group].all(axis=0)))
            for model in group:
                chosen[model].append(item)
            free[group, item] = False
            worth.ask(item, group)
    return chosen


class WorthSampler:
    """The items of most worth, shared between models where the inference shares them.

    Args:
        inference: What says the worth.
        draw: Takes one of the free items.
    """

    name = "fisher"

    def __init__(self, inference: Inference, draw: Draw = best) -> None:
        self._inference, self._draw = inference, draw

    def choose(
        self,
        wanted: Mapping[int, int],
        estimates: Estimates,
        free: BoolArray,
        costs: FloatArray | None = None,
    ) -> dict[int, list[int]]:
        """See :meth:`Sampler.choose`."""
        choose = choose_shared if self._inference.shared else choose_apart
        return choose(wanted, self._inference.worth(estimates), free, costs, self._draw)


class OrderSampler:
    """A fixed order that all models share; the baselines are of this kind.

    Args:
        order: Items in their order, shape (n,).
        name: What the order is called.
    """

    def __init__(self, order: NDArray[np.intp], name: str) -> None:
        self._order, self.name = order, name

    def choose(
        self,
        wanted: Mapping[int, int],
        estimates: Estimates,
        free: BoolArray,
        costs: FloatArray | None = None,
    ) -> dict[int, list[int]]:
        """See :meth:`Sampler.choose`; the beliefs are not looked at."""
        del estimates, costs
        return {
            model: [int(item) for item in self._order[free[model][self._order]][:count]]
            for model, count in wanted.items()
        }


def static_order(item_rest_correlation: FloatArray) -> NDArray[np.intp]:
    """Items by how well they go with the rest of the test, those of which it is not known last."""
    return np.argsort(-np.nan_to_num(item_rest_correlation, nan=-2.0), kind="stable")


def make_sampler(
    name: str,
    inference: Inference,
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
        return WorthSampler(inference)
    if name == "static":
        return OrderSampler(static_order(item_rest_correlation), name)
    if name == "random":
        return OrderSampler(rng.permutation(len(item_rest_correlation)), name)
    raise UsageError(f"--sampler must be one of {', '.join(SAMPLERS)}; got {name!r}")
