"""Banks that come with the package.

This module owns what is said of each of them; which one a task takes is ``at_hand``'s business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class ShippedBank:
    """A bank of the package.

    Attributes:
        name: What ``bank list`` and ``bank show`` call it.
        tasks: The harness's tasks that have its documents.
        metric: Metric.
        filters: Filters of these tasks that it serves; empty for any.
        path: Its file.
        n_models: Calibration models.
        n_docs: Documents.
        source: Where the scores are from.
        licence: The source's licence.
        date: When it was made, year-month-day.
        prompt: What a run has to say where its models answered another prompt than the task's, ""
            where it was the harness's own.
    """

    name: str
    tasks: tuple[str, ...]
    metric: str
    filters: tuple[str, ...]
    path: Path
    n_models: int
    n_docs: int
    source: str
    licence: str
    date: str
    prompt: str


def shipped_banks() -> list[ShippedBank]:
    """All banks of the package."""
    return []
