"""Which items to ask models next.

This module owns item choice, in two steps that know nothing of each other: an inference says what
each item is *worth* (:class:`~lm_eval_adaptive.core.inference.Worth`), and a *draw* takes one of
those that may be asked. Who is asked how many is the ranker's business. A sampler never returns an
item that is administered or not available, and breaks ties by the bank's row order.

The default draws at random, the more probably the more an item is worth (:class:`WeightedDraw`):
items of extreme slope are where calibration erred most, and all of the same kind. With the
probability of every draw in the journal, what was asked is a sample of known design.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from lm_eval_adaptive.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from lm_eval_adaptive.core.estimates import Estimates
    from lm_eval_adaptive.core.inference import Inference, Worth

    FloatArray = NDArray[np.float64]
    BoolArray = NDArray[np.bool_]
    # Takes the worth of all items and which of them may be asked, both of shape (n,), and how many
    # more stand aside and may not be asked, and gives one of these that may.
    Draw = Callable[[FloatArray, BoolArray, int], "Chosen"]

SAMPLERS = ("draw", "fisher", "static", "random")
# A draw's probability is proportional to this power of an item's worth. Every fifth item of a test
# is drawn plainly at random, and every third once it is longer than FEW_PLAIN: the more is known
# by the bank's word, the more its word is what is in doubt.
POWER = 6.0
PLAIN_EVERY, LATER_PLAIN_EVERY, FEW_PLAIN = 5, 3, 20
# Of more items than MANY_ITEMS, so many drawn plainly at random are looked at in a round: they hold
# hundreds of the best, and draws are spread over as many anyway.
MANY_ITEMS, CANDIDATES = 20_000, 8_192


class Chosen(NamedTuple):
    """An item to ask.

    Attributes:
        item: Its index.
        probability: That of its being chosen among those that might have been, given all that was
            chosen before; 1 where nothing was left to chance.
    """

    item: int
    probability: float = 1.0


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
    ) -> dict[int, list[Chosen]]:
        """Items for several models.

        Args:
            wanted: How many items to ask, by row of the model in ``estimates``.
            estimates: Beliefs from the answers so far.
            free: Shape (m, n), items each model may still be asked; it is left as it is.
            costs: Expected cost of each item for each model, shape (m, n); None where all cost the
                same.

        Returns:
            Items by row, in the order of choice; fewer than wanted when items run out.
        """
        ...


def best(worth: FloatArray, free: BoolArray, aside: int = 0) -> Chosen:
    """The draw that takes the item of greatest worth."""
    del aside
    return Chosen(int(np.argmax(np.where(free, worth, -np.inf))))


class WeightedDraw:
    """Draws an item with a probability proportional to a power of its worth.

    That is the item of greatest power * log(worth) + G, the G being independent standard Gumbel
    variables. Some items are drawn with equal probabilities (:data:`PLAIN_EVERY`). The variables
    follow from the seed and from how many items are not free any more, so that a test that is
    resumed, or replayed, draws the same.

    Args:
        seed: Seed of the draws.
        power: What the worth is raised to.
    """

    def __init__(self, seed: int, power: float = POWER) -> None:
        self._seed, self._power = seed, power

    def __call__(self, worth: FloatArray, free: BoolArray, aside: int = 0) -> Chosen:
        """One of the free items."""
        taken = int((~free).sum()) + aside
        noise = np.random.default_rng([self._seed, taken]).gumbel(size=len(free))
        every = PLAIN_EVERY if taken < FEW_PLAIN else LATER_PLAIN_EVERY
        plain = taken % every == every - 1
        value = np.zeros(len(free)) if plain else self._power * _log(worth)
        value = np.where(free, value, -np.inf)
        item = int(np.argmax(value + noise))
        share = np.exp(value - value.max())
        return Chosen(item, float(share[item] / share.sum()))


def _log(worth: FloatArray) -> FloatArray:
    """Logarithms of worths, those of 0 far below all others."""
    return np.asarray(np.log(np.maximum(worth, 1e-12 * max(float(worth.max()), 1e-300))))


def choose_apart(
    wanted: Mapping[int, int],
    worth: Worth,
    free: BoolArray,
    costs: FloatArray | None,
    draw: Draw = best,
    aside: int = 0,
) -> dict[int, list[Chosen]]:
    """Items of each model by itself, one after the other by their worth per cost.

    Args:
        wanted: How many items to ask, by row of the model.
        worth: What items tell; those chosen count as asked at once.
        free: Shape (m, n), items each model may still be asked.
        costs: Expected cost, shape (m, n); None where all cost the same.
        draw: Takes one of the free items.
        aside: Items that are not in these arrays and may not be asked.
    """
    chosen: dict[int, list[Chosen]] = {}
    for model, count in wanted.items():
        left = free[model].copy()
        chosen[model] = []
        for _ in range(min(count, int(left.sum()))):
            value = worth.worth(model)
            taken = draw(value if costs is None else value / costs[model], left, aside)
            left[taken.item] = False
            worth.ask(taken.item, [model])
            chosen[model].append(taken)
    return chosen


def choose_shared(
    wanted: Mapping[int, int],
    worth: Worth,
    free: BoolArray,
    costs: FloatArray | None,
    draw: Draw = best,
    aside: int = 0,
) -> dict[int, list[Chosen]]:
    """The same items for all models of a round, as far as their counts and free items allow.

    The group asks the items with the greatest sum of worths. Items are shared because what is off
    about an item is off for all models, and drops out of their differences. Arguments are those of
    :func:`choose_apart`; a model's costs count relative to their mean.
    """
    free = free.copy()
    chosen: dict[int, list[Chosen]] = {model: [] for model in wanted}
    for step in range(max(wanted.values(), default=0)):
        who = [model for model, count in wanted.items() if count > step and free[model].any()]
        groups = [who] if who and free[who].all(axis=0).any() else [[model] for model in who]
        for group in groups:
            value = np.zeros(free.shape[1])
            for model in group:
                price = 1.0 if costs is None else costs[model] / costs[model].mean()
                value = value + worth.worth(model) / price
            taken = draw(value, np.asarray(free[group].all(axis=0)), aside)
            for model in group:
                chosen[model].append(taken)
            free[group, taken.item] = False
            worth.ask(taken.item, group)
    return chosen


class WorthSampler:
    """The items of most worth, shared between models where the inference shares them.

    Args:
        inference: What says the worth.
        draw: Takes one of the free items.
        name: What it is called in a run's signature.
        seed: Where more than :data:`MANY_ITEMS` may be asked, seed of the :data:`CANDIDATES` of
            them that are looked at in a round; None looks at all.
    """

    def __init__(
        self,
        inference: Inference,
        draw: Draw = best,
        name: str = "fisher",
        seed: int | None = None,
    ) -> None:
        self._inference, self._draw, self.name, self._seed = inference, draw, name, seed

    def choose(
        self,
        wanted: Mapping[int, int],
        estimates: Estimates,
        free: BoolArray,
        costs: FloatArray | None = None,
    ) -> dict[int, list[Chosen]]:
        """See :meth:`Sampler.choose`."""
        choose = choose_shared if self._inference.shared else choose_apart
        few = self._candidates(wanted, free)
        if few is None:
            return choose(wanted, self._inference.worth(estimates), free, costs, self._draw)
        items, count = few
        found = choose(
            wanted,
            self._inference.worth(estimates, items),
            free[:, items],
            None if costs is None else costs[:, items],
            self._draw,
            free.shape[1] - count,
        )
        share = len(items) / count
        return {
            model: [Chosen(int(items[each.item]), share * each.probability) for each in mine]
            for model, mine in found.items()
        }

    def _candidates(
        self, wanted: Mapping[int, int], free: BoolArray
    ) -> tuple[NDArray[np.intp], int] | None:
        """Items that are looked at, plainly at random, and of how many; None where it is all.

        They follow from the seed and from how many items may be asked, as a draw does.
        """
        if self._seed is None or free.shape[1] <= MANY_ITEMS:
            return None
        may = np.flatnonzero(free[list(wanted)].any(axis=0))
        if len(may) <= MANY_ITEMS or max(wanted.values(), default=0) > CANDIDATES // 8:
            return None
        rng = np.random.default_rng([self._seed, len(may), CANDIDATES])
        places = rng.choice(len(may), CANDIDATES, replace=False, shuffle=False)
        return may[np.sort(places)], len(may)


class OrderSampler:
    """A fixed order that all models share; the baselines are of this kind.

    Args:
        order: Items in their order, shape (n,).
        name: What the order is called.
        drawn: Whether the order was drawn at random, all orders being equally probable.
    """

    def __init__(self, order: NDArray[np.intp], name: str, *, drawn: bool = False) -> None:
        self._order, self.name, self._drawn = order, name, drawn

    def choose(
        self,
        wanted: Mapping[int, int],
        estimates: Estimates,
        free: BoolArray,
        costs: FloatArray | None = None,
    ) -> dict[int, list[Chosen]]:
        """See :meth:`Sampler.choose`; the beliefs are not looked at."""
        del estimates, costs
        found: dict[int, list[Chosen]] = {}
        for model, count in wanted.items():
            left = self._order[free[model][self._order]]
            found[model] = [
                Chosen(int(item), 1.0 / (len(left) - place) if self._drawn else 1.0)
                for place, item in enumerate(left[:count])
            ]
        return found


def static_order(item_rest_correlation: FloatArray) -> NDArray[np.intp]:
    """Items by how well they go with the rest of the test, those of which it is not known last."""
    return np.argsort(-np.nan_to_num(item_rest_correlation, nan=-2.0), kind="stable")


def make_sampler(
    name: str,
    inference: Inference,
    item_rest_correlation: FloatArray,
    seed: int,
) -> Sampler:
    """The sampler of that name.

    ``draw`` is the method; ``fisher`` is the published rule, the items of greatest worth;
    ``static`` asks all models the items with the highest item-rest correlation; ``random`` asks all
    models the same items in an order drawn by the seed.

    Raises:
        UsageError: There is no sampler of that name.
    """
    if name == "draw":
        return WorthSampler(inference, WeightedDraw(seed), name, seed)
    if name == "fisher":
        return WorthSampler(inference)
    if name == "static":
        return OrderSampler(static_order(item_rest_correlation), name)
    if name == "random":
        rng = np.random.default_rng(seed)
        return OrderSampler(rng.permutation(len(item_rest_correlation)), name, drawn=True)
    raise UsageError(f"--sampler must be one of {', '.join(SAMPLERS)}; got {name!r}")
