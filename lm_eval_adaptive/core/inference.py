"""What a test asks of an inference, whatever stands behind it.

This module owns two protocols and imports their words only. Four classes are inferences today:
``paper`` (the published method), ``bernoulli``, ``robust`` and, without a bank, ``paired``;
``methods`` is where a bank's name becomes one of them. Nobody else asks which one it is: what a
procedure, a sampler or a page must know stands here. What is believed of pairs, their variances and
degrees of freedom, is part of the estimates, and ``ranker`` judges by them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from lm_eval_adaptive.core.estimates import Estimates
    from lm_eval_adaptive.core.forecast import Forecast

    FloatArray = NDArray[np.float64]
    BoolArray = NDArray[np.bool_]


class Worth(Protocol):
    """How much every item would tell of each model, as the items of a round are being chosen."""

    def worth(self, model: int) -> FloatArray:
        """Worth of each item for a model, shape (n,), never negative; its unit is the inference's.

        It is comparable between the items of one model, and, where an inference is ``shared``,
        between models.
        """
        ...

    def ask(self, item: int, models: Sequence[int]) -> None:
        """Count an item as asked of some models: its answer is unknown, but not what it tells."""
        ...


# Items of a warm-up that is planned as a whole.
AT_ONCE = 1_000_000


class Inference(Protocol):
    """From answers to beliefs about models, and what these mean for asking on.

    Attributes:
        shared: Models are asked the same items where they can be.
        ranks_by_score: The ranking compares full-benchmark scores; else abilities.
        one_at_a_time: A round asks one model, as the published method does.
        draws: Items are drawn by their worth where the user does not say how to choose them; else
            those of greatest worth are taken, as the published method does.
        warm_up: Items of a model in a round of the warm-up: all at once where the best first ones
            are known before any answer, else a few, or 1 where each hangs on the last.
        gives_up: Pairs that have hardly a chance of being decided may be given up: predictions are
            good enough for that.
        stop_share: Share of the error level at which a run stops asking for a pair. Whoever looks
            often and stops where a pair happens to be decided is wrong more often than the level
            says; where that is not allowed for otherwise, the run goes on until pairs are surer.
        least_round: Fewest items of a model in a round that can conclude anything.
        forecast: How its errors fall with the number of items.
    """

    @property
    def shared(self) -> bool: ...  # noqa: D102  see the class
    @property
    def ranks_by_score(self) -> bool: ...  # noqa: D102
    @property
    def one_at_a_time(self) -> bool: ...  # noqa: D102
    @property
    def draws(self) -> bool: ...  # noqa: D102
    @property
    def warm_up(self) -> int: ...  # noqa: D102
    @property
    def gives_up(self) -> bool: ...  # noqa: D102
    @property
    def stop_share(self) -> float: ...  # noqa: D102
    @property
    def least_round(self) -> int: ...  # noqa: D102
    @property
    def forecast(self) -> Forecast: ...  # noqa: D102

    def estimate(self, responses: FloatArray) -> Estimates:
        """Beliefs about m models.

        Args:
            responses: Scores in [0, 1], shape (m, n), NaN where not asked.

        Returns:
            Estimates of all m models; the same whatever order the items were asked in.
        """
        ...

    def worth(self, estimates: Estimates, items: NDArray[np.intp] | None = None) -> Worth:
        """Worth of the items that may be asked next.

        Args:
            estimates: Beliefs.
            items: Those that are looked at, by which they are then counted; None for all.
        """
        ...

    def misfitting(self, responses: FloatArray, estimates: Estimates) -> BoolArray:
        """Which models' answers do not fit, shape (m,); nobody's where the inference cannot tell.

        Args:
            responses: Scores of the models under test, shape (m, n).
            estimates: Beliefs about them, which may be followed by those about further models.
        """
        ...
