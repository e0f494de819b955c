"""The ranking as a picture, for slides and papers.

This module owns one figure per task: scores with their 95 % intervals, and how they came about. It
imports matplotlib, which the extra ``report`` brings, and reads the ranking document alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lm_eval_adaptive.records.ranking import RankingDocument
    from lm_eval_adaptive.report.view import TaskView


def write_picture(target: Path, views: Sequence[TaskView]) -> Path:
    """Draw the rankings into one PNG file, a row of two panels per task.

    Args:
        target: The file.
        views: The tasks.

    Returns:
        The file written.

    Raises:
        UsageError: matplotlib is missing, or there is no ranking to draw yet.
    """
    drawn = [view.ranking for view in views if view.ranking.ranking]
    if not drawn:
        raise UsageError(
            "--format png draws a ranking, and this run has none yet; --format html shows a run "
            "that is going on"
        )
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError(
            "--format png needs matplotlib; install it with pip install 'lm-eval-adaptive[report]'"
        ) from error
    tallest = max(len(ranking.ranking) for ranking in drawn)
    figure = Figure(figsize=(11, len(drawn) * (1.6 + 0.32 * tallest)), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(drawn), 2, squeeze=False)
    for (left, right), ranking in zip(grid, drawn, strict=True):
        _scores(left, ranking)
        _course(right, ranking)
    aside = target.with_name(f".{target.name}.part")
    figure.savefig(aside, dpi=150, format="png")
    aside.replace(target)
    return target


def _plain(text: object) -> str:
    """A name as it stands: a dollar sign would begin a formula."""
    return str(text).replace("$", r"\$")


def _scores(axes: Any, ranking: RankingDocument) -> None:
    """Estimated full scores, best on top."""
    entries = ranking.ranking
    places = list(range(len(entries), 0, -1))
    scores = [entry.score for entry in entries]
    low = [entry.score - entry.score_ci[0] for entry in entries]
    high = [entry.score_ci[1] - entry.score for entry in entries]
    axes.errorbar(scores, places, xerr=[low, high], fmt="o", capsize=3)
    axes.set_yticks(places, [_plain(entry.model) for entry in entries])
    axes.set_ylim(0.4, len(entries) + 0.6)
    arrow = "higher is better" if ranking.higher_is_better else "lower is better"
    axes.set_xlabel(f"{_plain(ranking.metric)} on {ranking.whole} ({arrow}), 95 % intervals")
    axes.set_title(_plain(ranking.task))
    axes.grid(axis="x", alpha=0.3)


def _course(axes: Any, ranking: RankingDocument) -> None:
    """Estimates against items asked."""
    for entry in ranking.ranking:
        mine = [step for step in ranking.trace if step.model == entry.model]
        known = [
            (step.estimate, step.estimate_half)
            for step in mine
            if step.estimate is not None and step.estimate_half is not None
        ]
        if not known:
            continue
        asked = range(1, len(known) + 1)
        (line,) = axes.plot(asked, [middle for middle, _ in known], label=_plain(entry.model))
        axes.fill_between(
            asked,
            [middle - half for middle, half in known],
            [middle + half for middle, half in known],
            alpha=0.12,
            color=line.get_color(),
            linewidth=0,
        )
    axes.set_xlabel("items asked")
    axes.set_ylabel(_plain(ranking.metric))
    total, share = ranking.items_total, ranking.fraction
    axes.set_title(f"{total} items asked, {share:.1%} of a full run".replace("%", " %"))
    if axes.lines:
        axes.legend(fontsize="small", frameon=False)
    axes.grid(alpha=0.3)
