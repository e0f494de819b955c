"""What a person sees in the terminal when a run is over.

This module owns text and tables on standard output; it imports rich inside functions and reads the
outcome of a run. It decides nothing.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.report.texts import (
    bare_names,
    console_of_users,
    printable,
    score_text,
    short_names,
)
from lm_eval_adaptive.report.words import expected_wrong, groups_of, possible_ranks, sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from lm_eval_adaptive.records.outcome import RunOutcome
    from lm_eval_adaptive.records.ranking import Entry, RankingDocument

SHORT_NAME = 12  # columns that a shortened name gets at least


def show_outcome(outcome: RunOutcome, console: Any = None) -> None:
    """Print each task's table, ranking and sentence, and name the files.

    Args:
        outcome: What a run found.
        console: A rich console; default: standard output.
    """
    console = console or console_of_users()
    for task in outcome.tasks.values():
        _line(console, harness_table(task.ranking, task.results, console.width))
        console.print()
        _show_ranking(console, task.ranking)
        for further in task.ranking.further:
            _show_ranking(console, further)
        _show_files(console, outcome, task.files)
    _show_summary(console, outcome)
    for line in outcome.grown:
        _line(console, line)


def _line(console: Any, text: str, style: str = "") -> None:
    """What is copied in one piece, such as a path: the terminal wraps it."""
    from rich.text import Text

    console.print(Text(text, style=style), soft_wrap=True)


def _prose(console: Any, text: str, style: str = "") -> None:
    """What is read: wrapped between words on a terminal, one line elsewhere."""
    from rich.text import Text

    console.print(Text(text, style=style), soft_wrap=not console.is_terminal)


def harness_table(
    ranking: RankingDocument, results: Mapping[str, Mapping[str, Any]], width: int = 1000
) -> str:
    """The harness's own table, one row per model and metric, with ``adaptive`` as filter.

    It is Markdown, as the harness prints it, with models where it has tasks.

    Args:
        ranking: A ranking document.
        results: The harness's results by model.
        width: Columns to fit into, by shortening names where need be.
    """
    from lm_eval.utils import make_table

    task, metric = ranking.task, ranking.metric
    names = ranking.names

    def table(labels: Sequence[str]) -> str:
        # The harness sorts rows by key, and takes what is printed from the alias.
        keys = [f"{place:06d}" for place in range(len(names))]
        of = dict(zip(keys, names, strict=True))
        found = {
            "results": {
                key: {"alias": label, **_estimates(entry, metric, results, task)}
                for key, label, entry in zip(keys, labels, ranking.ranking, strict=True)
            },
            "higher_is_better": {
                key: {
                    **results.get(of[key], {}).get("higher_is_better", {}).get(task, {}),
                    metric: ranking.higher_is_better,
                }
                for key in keys
            },
            **{
                part: {key: results.get(of[key], {}).get(part, {}).get(task, "") for key in keys}
                for part in ("versions", "n-shot")
            },
        }
        # Both words have five letters, so the columns stay as they are.
        return str(make_table(found)).replace("Tasks", "Model", 1).rstrip()

    text = table([printable(name) for name in names])
    over = max(len(line) for line in text.splitlines()) - width
    longest = max(map(len, names), default=0)
    if over > 0 and longest > SHORT_NAME:
        text = table(short_names(names, max(longest - over, SHORT_NAME)))
    return text


def _estimates(
    entry: Entry, metric: str, results: Mapping[str, Mapping[str, Any]], task: str
) -> dict[str, Any]:
    """A model's estimates by metric; one that was not asked has the ranking's alone."""
    table = results.get(entry.model, {}).get("results", {}).get(task, {})
    found = {key: value for key, value in table.items() if key.endswith(",adaptive")}
    return found or {
        f"{metric},adaptive": entry.score,
        f"{metric}_stderr,adaptive": entry.score_se,
    }


def _show_ranking(console: Any, ranking: RankingDocument) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    arrow = "↑" if ranking.higher_is_better else "↓"
    title = f"{ranking.task}: {ranking.metric} {arrow}"
    if ranking.filter != "none":
        title = f"{title} ({ranking.filter})"
    if ranking.score_of:
        title = f"{title}, of {ranking.score_of}"
    priced = any(entry.cost != entry.items for entry in ranking.ranking)
    table = Table(title=Text(printable(title)), title_justify="left", box=box.HORIZONTALS)
    table.add_column("rank", justify="right", no_wrap=True)
    table.add_column("model", overflow="fold")
    far = any(entry.beyond for entry in ranking.ranking)
    further = [*(["cost"] if priced else []), *(["bank"] if far else [])]
    for name in ("score", "95 % interval", "items", *further):
        table.add_column(name, justify="right", no_wrap=True)
    groups, ranks = groups_of(ranking), possible_ranks(ranking)
    tied = any(len(group) > 1 for group in groups)
    # Lines stand around ties; between models that are all told apart they would say nothing.
    ends = {a[-1] for a, b in pairwise(groups) if max(len(a), len(b)) > 1}
    names = ranking.names
    labels = dict(zip(names, bare_names(names), strict=True))
    fits = max(map(len, names), default=0) <= console.width - 50 - 10 * len(further)
    for entry in ranking.ranking:
        low, high = (f"{each:.4g}" for each in entry.score_ci)
        best, worst = ranks[entry.model]
        table.add_row(
            str(best) if best == worst else f"{best}–{worst}",
            Text(printable(entry.model) if fits else labels[entry.model]),
            Text(score_text(entry.score, entry.score_se)),
            f"{low} – {high}",
            "known" if entry.known else str(entry.items),
            *([f"{entry.cost:.4g}"] if priced else []),
            *([entry.beyond] if far else []),
            end_section=entry.model in ends,
        )
    console.print(table)
    if tied:
        _prose(
            console,
            "2–3: any of these ranks is possible; all models above a line beat all below it",
        )
    if far:
        _prose(
            console,
            "bank: above or below all models that calibrated it; errors are widened for that",
        )
    for lost in ranking.set_aside:
        _prose(console, f"set aside: {printable(lost.model)}: {printable(lost.reason)}")
    _prose(console, sentence(ranking, labels), style="bold")
    wrong = expected_wrong(ranking)
    if wrong:
        _prose(console, wrong)
    for warning in ranking.warnings:
        _prose(console, f"warning: {printable(warning)}")
    _line(console, f"signature {ranking.signature}")


def _show_files(console: Any, outcome: RunOutcome, files: Sequence[Path]) -> None:
    """The files to open first; those of the harness are counted."""
    _line(console, f"files in {outcome.output_path}:")
    for file in [files[0], outcome.output_path / "journal.jsonl", outcome.report]:
        if file is not None and file.exists():
            _line(console, f"  {file}")
    if len(files) > 1:
        _line(console, "  <model>/results_*.json and samples_*.jsonl, as the harness writes them")


def _show_summary(console: Any, outcome: RunOutcome) -> None:
    from rich.table import Table
    from rich.text import Text

    if outcome.summary is None:
        return
    table = Table(
        title=f"over {len(outcome.summary.tasks)} tasks", title_justify="left", pad_edge=False
    )
    table.add_column("model", overflow="fold")
    for name in ("mean rank", "mean z", "± se", "tasks"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in outcome.summary.summary:
        table.add_row(
            Text(printable(row.model)),
            f"{row.mean_rank:.2f}",
            f"{row.mean_z:+.2f}",
            f"{row.mean_z_se:.2f}",
            str(row.tasks),
        )
    console.print(table)
    _prose(console, "z: score less the calibration models' mean, in their standard deviations")
    _line(console, f"  {outcome.summary_file}")
