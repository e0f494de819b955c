"""The HTML report: one self-contained page that shows what a run found, or has found so far.

This module owns what stands on the page and in which order, its first words, and the forms a report
is written in; it imports the page's building blocks, what ``input`` gathered, and the
sections. It decides nothing and asks no model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from lm_eval_adaptive.errors import UsageError
from lm_eval_adaptive.report.documents import documents, repeat, warnings
from lm_eval_adaptive.report.figures import curves, forest, item_map, money, pair_matrix
from lm_eval_adaptive.report.input import views_of
from lm_eval_adaptive.report.page import (
    esc,
    fold_away,
    num,
    para,
    share,
    whole_page,
    write_text,
)
from lm_eval_adaptive.report.show import sentence
from lm_eval_adaptive.report.view import TaskView, direction_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.records.journal import AnswerRecord
    from lm_eval_adaptive.records.ranking import RankingDocument
    from lm_eval_adaptive.report.input import Standings
    from lm_eval_adaptive.report.view import Samples

HEADLINE_CHARS = 700

STOP_WORDS = {
    "decided": "every pair that had to be decided is decided",
    "budget": "the budget is spent",
    "max_items": "the models of every open pair reached the most items allowed (--max_items)",
    "bank_exhausted": "no items were left to ask",
    "precision": "the error asked for (--precision) is reached",
    "fixed_length": "every model was asked the fixed number of items (--items_per_model)",
    "failed": "no model was left that could answer",
}


def render_report(
    ranking: RankingDocument,
    *,
    bank: ItemBank | None,
    answers: Sequence[AnswerRecord],
    samples: Samples | None = None,
    command: str = "",
    unfinished: bool = False,
) -> str:
    """The page of one ranking.

    Args:
        ranking: A ranking document.
        bank: Its bank; None leaves out the item map.
        answers: The answers of its journal, in their order.
        samples: Logged samples by model and document id, for prompts and targets.
        command: The command line that repeats the run.
        unfinished: Whether the run is going on or was interrupted.

    Returns:
        HTML text.
    """
    return render_page([TaskView(ranking, bank, answers, samples or {}, command, unfinished)])


FORMS = {
    "html": "report.html",
    "md": "report.md",
    "csv": "ranking.csv",
    "png": "ranking.png",
}


def write_report(
    source: Path,
    output: Path | None = None,
    form: str = "html",
    standings: Standings | None = None,
) -> Path:
    """Write the report of a run that is finished, going on, or was interrupted; or of a bank.

    Reads only: the journal of a run that is going on is not touched.

    Args:
        source: The run's ``--output_path``, one ranking file in it, or a bank (``.parquet``).
        output: The file to write, or a folder for it; None is ``report.html`` (``report.md``,
            ``ranking.csv``, ``ranking.png``) in the run's folder, and ``NAME.html`` beside a bank.
        form: ``html``, ``md``, ``csv`` or ``png``.
        standings: What tells how far the tasks are that have no ranking file.

    Returns:
        The file written.

    Raises:
        UsageError: There is no such file or folder, or no run in it, or no such form.
        DataError: A ranking file or the journal cannot be read.
        BankError: The bank cannot be read.
    """
    if form not in FORMS:
        raise UsageError(f"--format must be one of {', '.join(FORMS)}; got {form!r}")
    if source.suffix == ".parquet":
        return _write_bank(source, output, form)
    folder, views = views_of(source, standings or (lambda *_: {}))
    target = output or folder
    if target.is_dir():
        target /= FORMS[form]
    if form == "png":
        from lm_eval_adaptive.report.picture import write_picture

        return write_picture(target, views)
    render = {"html": render_page, "md": render_markdown, "csv": render_csv}[form]
    return write_text(target, render(views))


def _write_bank(source: Path, output: Path | None, form: str) -> Path:
    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.report.bank_page import write_bank_report

    if form != "html":
        raise UsageError(
            f"--format {form} is for runs; a bank's numbers are in `bank show {source} --json`"
        )
    target = output or source.with_suffix(".html")
    if target.is_dir():
        target /= source.with_suffix(".html").name
    return write_bank_report(ItemBank.load(source), target)


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
        lines = [
            f"## {code(ranking.task)}: {code(ranking.metric)}, {direction}{state}",
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
        lines += ["", _short_headline(view), ""]
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


def _headline(view: TaskView) -> str:
    ranking = view.ranking
    asked = f"{ranking.items_total} items asked, {share(ranking.fraction)} of a full run"
    if not ranking.ranking:
        return f"{asked}; no estimate yet."
    if view.unfinished:
        return sentence(replace(ranking, stop_reason="not yet"))
    return sentence(ranking)


def _short_headline(view: TaskView) -> str:
    """A sentence without names of pairs, where no model's name may be taken for markup."""
    ranking = view.ranking
    pairs = ranking.pairs
    told = sum(pair.decided for pair in pairs)
    asked = f"{ranking.items_total} items asked, {share(ranking.fraction)} of a full run"
    if not pairs:
        return f"{asked}."
    confidence = ranking.config.confidence
    return (
        f"{told} of {len(pairs)} pairs are told apart with {confidence:.0%} confidence each; "
        f"{asked}."
    )


def _headline_html(view: TaskView) -> str:
    """The sentence; where many models make it long, a short one with the long one folded away."""
    full = _headline(view)
    if len(full) <= HEADLINE_CHARS:
        return f'<p class="headline">{esc(full)}</p>'
    first = view.ranking.ranking[0]
    tied = f", not told apart from {len(first.tied_with)} other(s)" if first.tied_with else ""
    short = f"{first.model} stands first{tied}; {_short_headline(view)}"
    return f'<p class="headline">{esc(short)}</p>{fold_away("All pairs in words", para(full))}'


def _facts(view: TaskView) -> str:
    ranking = view.ranking
    needed = [pair for pair in ranking.pairs if pair.required]
    decided = sum(pair.verdict != "undecided" for pair in needed)
    reason = ranking.stop_reason
    facts = [
        ("items asked", f"{ranking.items_total}", f"of {ranking.items_full} in a full run"),
        (
            "share of a full run",
            share(ranking.fraction),
            f"cost {num(ranking.cost_total)} of {num(ranking.cost_full)}",
        ),
    ]
    if needed:
        facts.append(("pairs decided", f"{decided} of {len(needed)}", "of those that had to be"))
    facts.append(
        ("stopped", reason or "not yet", STOP_WORDS.get(reason, "") if reason else "unfinished")
    )
    cards = "".join(
        f"<div><dt>{esc(name)}</dt><dd>{esc(value)}</dd><dd class=s>{esc(more)}</dd></div>"
        for name, value, more in facts
    )
    return f'<dl class="facts">{cards}</dl>'


def _how_to_read() -> str:
    facts = {
        "Score": (
            "the estimate of what the model would get on the whole benchmark, not the mean over "
            "the documents it was asked: those were chosen for what they tell."
        ),
        "Ability": (
            "the level behind the scores, in logits; a model is expected to get half of the full "
            "score on an item whose difficulty equals its ability."
        ),
        "Decided": (
            "the probability that one model is better is beyond the run's confidence level. "
            "Undecided means too little evidence, not equality."
        ),
        "When not to trust it": (
            "when warnings name a changed prompt format or many unexpected answers: the bank was "
            "calibrated under other conditions than these."
        ),
    }
    rows = "".join(f"<dt>{esc(name)}</dt><dd>{esc(text)}</dd>" for name, text in facts.items())
    return (
        f'<section id="read"><h2>How to read this page</h2><dl class="read">{rows}</dl></section>'
    )


def _task_body(view: TaskView, prefix: str) -> str:
    ranking = view.ranking
    count = len(ranking.ranking) or len(ranking.config.models)
    models = "1 model" if count == 1 else f"{count} models"
    direction = direction_of(ranking)
    filtered = "" if ranking.filter == "none" else f" ({ranking.filter})"
    metric = f"{ranking.metric}{filtered}"
    about = f"{models}, ranked by {metric}{', ' if direction else ''}{direction}"
    banner = (
        '<p class="banner" role="note">Unfinished: this run is going on or was interrupted. What '
        "stands here is the state of its journal; order and verdicts may still change.</p>"
        if view.unfinished
        else ""
    )
    date = f" · {ranking.date[:16].replace('T', ' ')}" if ranking.date else ""
    head = (
        f'<header id="{prefix}top"><h1>{esc(ranking.task)}</h1><p class="s">'
        f"{esc(about)}{esc(date)}</p>{banner}{_headline_html(view)}{_facts(view)}</header>"
    )
    parts = (forest, pair_matrix, curves, item_map, money, warnings, documents, repeat)
    return head + "".join(part(view, prefix) for part in parts)


def render_page(views: Sequence[TaskView]) -> str:
    """The page of one or several tasks."""
    bodies = [_task_body(view, f"t{number}-") for number, view in enumerate(views, 1)]
    names = [view.ranking.task for view in views]
    links = "".join(
        f'<a href="#t{number}-top">{esc(name)}</a>' for number, name in enumerate(names, 1)
    )
    nav = f"<nav>{links}</nav>" if len(views) > 1 else ""
    body = f"{nav}{''.join(bodies)}{_how_to_read()}"
    return whole_page(f"{', '.join(names)}: adaptive ranking", body)
