"""What a run found: handed by the run to whoever shows it, tracks it or returns it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lm_eval_adaptive.records.ranking import RankingDocument, SummaryDocument


@dataclass(frozen=True)
class TaskOutcome:
    """What a run found on one task.

    Attributes:
        ranking: The content of the ranking file.
        results: The harness's results of each model.
        files: The files written, the ranking first.
        problems: A line for each file that could not be written, with the reason.
    """

    ranking: RankingDocument
    results: Mapping[str, dict[str, Any]]
    files: list[Path]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunOutcome:
    """What a run found.

    Attributes:
        output_path: The run's folder.
        tasks: Outcome by task.
        report: The page that shows it, None where there is none.
        summary: Over several tasks: mean rank and mean standardised score of each model.
        summary_file: Where it was written.
        grown: What the run's answers did to the banks of the store, a line each.
    """

    output_path: Path
    tasks: dict[str, TaskOutcome] = field(default_factory=dict)
    report: Path | None = None
    summary: SummaryDocument | None = None
    summary_file: Path | None = None
    grown: tuple[str, ...] = ()
