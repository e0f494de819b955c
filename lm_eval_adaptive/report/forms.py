"""The rankings as Markdown and as CSV."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lm_eval_adaptive.report.page import num
from lm_eval_adaptive.report.view import direction_of, short_headline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lm_eval_adaptive.report.view import TaskView


def render_markdown(views: Sequence[TaskView]) -> str:
    """The rankings as Markdown, for an issue or a model card."""

    def code(value: object) -> str:
        return f"`{' '.join(str(value).replace('`', chr(39)).split())}`"

    def cell(value: object) -> str:  # a bar ends a cell, even inside a code span
        return code(value).replace("|", "\\|")

    parts = []
    for view in views:
        ranking = view.ranking
        direction = direction_of(ranking)
        state = " (unfinished)" if view.unfinished else ""
        of = f", of {ranking.score_of}" if ranking.score_of else ""
        lines = [
            f"## {code(ranking.task)}: {code(ranking.metric)}, {direction}{state}{of}",
            "",
            "| rank | model | score | 95 % interval | items | cost | not told apart from |",
            "|---:|:---|---:|:---|---:|---:|:---|",
        ]
        for entry in ranking.ranking:
            low, high = entry.score_ci
            tied = ", ".join(map(cell, entry.tied_with)) or "–"
            lines.append(
                f"| {entry.rank} | {cell(entry.model)} | {num(entry.score)} | {num(low)} "
                f"– {num(high)} | {entry.items} | {num(entry.cost)} | {tied} |"
            )
        lines += ["", short_headline(view), ""]
        lines += [f"- {code(each)}" for each in [*view.notes, *ranking.warnings]]
        lines += ["", f"Signature: {code(ranking.signature)}", ""]
        parts.append("\n".join(lines))
    return "\n".join(parts)


def render_csv(views: Sequence[TaskView]) -> str:
    """The rankings as CSV, a row per task and model."""
    import csv
    import io

    keys = ("rank", "model", "score", "score_se", "ability", "ability_se", "items", "cost")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["task", "metric", *keys, "score_low", "score_high", "tied_with", "finished"])
    for view in views:
        for entry in view.ranking.ranking:
            writer.writerow(
                [
                    view.ranking.task,
                    view.ranking.metric,
                    *(getattr(entry, key) for key in keys),
                    *entry.score_ci,
                    "; ".join(entry.tied_with),
                    not view.unfinished,
                ]
            )
    return text.getvalue()
