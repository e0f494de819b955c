"""What has happened in a test, and what it asks next.

This module owns the shapes that go between a procedure and whoever asks the models; it imports
numpy only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from lm_eval_adaptive.core.money import add_up

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]
    BoolArray = NDArray[np.bool_]

StopReason = Literal[
    "decided", "budget", "max_items", "bank_exhausted", "precision", "fixed_length", "failed"
]


@dataclass
class RunState:
    """What has happened so far, for m models and n items.

    Attributes:
        responses: Scores in [0, 1], shape (m, n), NaN where not answered.
        available: Shape (n,), items that may be asked at all.
        missing: Shape (m, n), asked without a score to show for it; nothing is known of these.
        failed: Shape (m,), models that were set aside.
        answered: Answers paid for, shape (m,); those to excluded items count too.
        spent: What they cost, shape (m,).
    """

    responses: FloatArray
    available: BoolArray
    failed: BoolArray
    answered: NDArray[np.int_]
    spent: FloatArray
    missing: BoolArray

    @classmethod
    def start(cls, models: int, available: BoolArray) -> RunState:
        """No answers yet."""
        return cls(
            np.full((models, len(available)), np.nan),
            available.copy(),
            np.zeros(models, dtype=bool),
            np.zeros(models, dtype=np.int_),
            np.zeros(models),
            np.zeros((models, len(available)), dtype=bool),
        )

    @property
    def free(self) -> BoolArray:
        """Items that each model may still be asked, shape (m, n)."""
        return self.available[None, :] & ~np.isfinite(self.responses) & ~self.missing

    @property
    def asked(self) -> NDArray[np.int_]:
        """Items asked of each model, with a score or without, shape (m,)."""
        return np.asarray(self.administered + self.missing.sum(axis=1))

    @property
    def administered(self) -> NDArray[np.int_]:
        """Items answered by each model, shape (m,)."""
        return np.asarray(np.isfinite(self.responses).sum(axis=1))

    def record(self, model: int, item: int, score: float, cost: float = 1.0) -> None:
        """Take in one answer's score; an answer to an excluded item is only counted and paid.

        A score of NaN is missing: the item was asked, and will not be again.
        """
        self.answered[model] += 1
        self.spent[model] = add_up((self.spent[model], cost))
        if self.available[item]:
            self.responses[model, item] = score
            self.missing[model, item] = not np.isfinite(score)

    def exclude(self, item: int) -> None:
        """Leave an item out for all models, with what was answered to it."""
        self.available[item] = False
        self.responses[:, item] = np.nan
        self.missing[:, item] = False


@dataclass(frozen=True)
class Ask:
    """Items to ask of one model, in the order of choice.

    Attributes:
        model: Its row.
        items: The items.
        probabilities: With what probability each was drawn, given those before it; 1 where nothing
            was left to chance.
    """

    model: int
    items: tuple[int, ...]
    probabilities: tuple[float, ...] = ()


@dataclass(frozen=True)
class Round:
    """Questions that are decided together: no answer of a round changes the same round."""

    asks: tuple[Ask, ...]


@dataclass(frozen=True)
class Stop:
    """Why nothing more is asked."""

    reason: StopReason
