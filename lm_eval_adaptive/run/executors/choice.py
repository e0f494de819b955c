"""Which executor an option means; heavy ones are imported only where they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lm_eval_adaptive.run.executors.local import Local

if TYPE_CHECKING:
    from lm_eval_adaptive.run.config import AdaptiveConfig
    from lm_eval_adaptive.run.executors.base import Executor


def executor_of(adaptive: AdaptiveConfig) -> Executor:
    """The executor that a run's options name; nothing is started yet."""
    kind, _, address = adaptive.executor.partition(":")
    if kind == "local":
        return Local(adaptive.resident)
    from lm_eval_adaptive.run.executors.ray import Fleet

    return Fleet(address, adaptive.resident)
