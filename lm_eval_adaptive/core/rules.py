"""The rules of a test: what a user may ask of it.

This module owns these rules and their refusals; it imports the ranker's rule for pairs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from lm_eval_adaptive.core import defaults
from lm_eval_adaptive.core.ranker import DecisionRule
from lm_eval_adaptive.errors import UsageError


@dataclass(frozen=True)
class ProcedureConfig:
    """Everything that decides who is asked what, and when to stop.

    Attributes:
        rule: When a pair counts as decided.
        min_items: Items each model is asked before any stop.
        max_items: Most items of one model; None is half the bank.
        budget: Total cost in the unit of the models' costs; None is no limit.
        budget_items: Total items of all models; None is no limit.
        items_per_model: Fixed length without early stop; None is off.
        precision: One model alone: stop at this standard error of its score in [0, 1].
        round_size: Items asked of a model at once; None chooses by how far the ranking is from
            decided, see ``Procedure.round_size``.
        batch: Items a model's back end answers in about the time of one; the least that a chosen
            round asks.
        futility: A pair that has less than this chance of being decided by ``max_items`` is given
            up; 0 is off. The published method, ``paper-1pl``, never gives up.
        sampler: ``draw``, ``fisher``, ``static`` or ``random``; ``auto`` is the bank's own choice.
        seed: Seed of the random sampler.
    """

    rule: DecisionRule = field(default_factory=DecisionRule)
    min_items: int = defaults.MIN_ITEMS
    max_items: int | None = None
    budget: float | None = None
    budget_items: int | None = None
    items_per_model: int | None = None
    precision: float | None = None
    round_size: int | None = 1
    batch: int = 1
    futility: float = defaults.FUTILITY
    sampler: str = defaults.AUTO
    seed: int = 0

    def __post_init__(self) -> None:
        for name in (
            "min_items",
            "max_items",
            "budget_items",
            "items_per_model",
            "round_size",
            "batch",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"--{name} must be at least 1, got {value}")
        if self.seed < 0:
            raise UsageError(f"--seed must be at least 0, got {self.seed}")
        for name in ("budget", "precision"):
            value = getattr(self, name)
            if value is not None and not value > 0.0:
                raise UsageError(f"--{name} must be above 0, got {value}")
            if value == math.inf:
                raise UsageError(f"--{name} must be finite, got {value}; leave it out for no limit")
        if not 0.0 <= self.futility < 1.0:
            raise UsageError(f"--futility must be at least 0 and below 1, got {self.futility}")
        if self.max_items is not None and self.max_items < self.min_items:
            raise UsageError(
                f"--max_items {self.max_items} is below --min_items {self.min_items}; raise the "
                "one or lower the other"
            )
