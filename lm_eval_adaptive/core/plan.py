"""What to simulate: which methods, on how many models, how often.

This module owns a simulation's plan and the names of its methods; it imports no numpy, so that
``--help`` can tell its defaults at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lm_eval_adaptive.core import defaults
from lm_eval_adaptive.errors import UsageError

ADAPTIVE = ("default", "robust-2pl", "paper-1pl", "bernoulli-2pl")
BASELINES = ("random-own", "random-shared", "static", "greedy")
METHODS = (*ADAPTIVE, *BASELINES)
# Items a model in tests that stop by themselves.
STOP_MAX_ITEMS = 100


@dataclass(frozen=True)
class Plan:
    """What to simulate.

    Attributes:
        holdout: Models ranked in each partition.
        calibration: Most models that calibrate.
        partitions: Number of partitions.
        seed: Partition r permutes the models by ``default_rng(seed + r)``.
        lengths: Fixed numbers of items a model.
        natural: Whether to run tests that stop by themselves as well (adaptive methods only).
        methods: Which methods.
        confidence: Two-sided level at which a pair counts as decided.
        round_size: Items asked of a model at once; None is the default's own choice.
        max_items: Most items of a model where a test stops by itself.
        higher_is_better: The metric's direction.
        costs: Cost of one item by model; others cost 1.
        ranked: Names of the models to rank in place of partitions.
        calibrating: Names of the models that then calibrate; None is all others.
    """

    holdout: int = 4
    calibration: int = 17
    partitions: int = 20
    seed: int = 0
    lengths: tuple[int, ...] = (10, 20, 40)
    natural: bool = True
    methods: tuple[str, ...] = METHODS
    confidence: float = defaults.CONFIDENCE
    round_size: int | None = None
    max_items: int = STOP_MAX_ITEMS
    higher_is_better: bool = True
    costs: dict[str, float] = field(default_factory=dict)
    ranked: tuple[str, ...] = ()
    calibrating: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        unknown = sorted(set(self.methods) - set(METHODS))
        if unknown:
            raise UsageError(
                f"--methods: unknown {', '.join(unknown)}; known are {', '.join(METHODS)}"
            )
        if self.holdout < 2 or self.calibration < 3 or self.partitions < 1:
            raise UsageError(
                "simulate needs --holdout of at least 2, --calibration of at least 3 and "
                f"--partitions of at least 1; got {self.holdout}, {self.calibration}, "
                f"{self.partitions}"
            )
        if self.seed < 0:
            raise UsageError(f"simulate takes a --seed from 0 on, got {self.seed}")
