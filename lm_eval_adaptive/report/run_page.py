"""The page of a run: what stands on it and in which order, and its first words.

This module imports the page's building blocks and the sections. It decides nothing and asks no
model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from lm_eval_adaptive.report.curves import curves
from lm_eval_adaptive.report.documents import documents, repeat, warnings
from lm_eval_adaptive.report.figures import forest, item_map, money, pair_matrix
from lm_eval_adaptive.report.page import esc, fold_away, num, para, share, whole_page
from lm_eval_adaptive.report.view import TaskView, direction_of, short_headline
from lm_eval_adaptive.report.words import sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.records.journal import AnswerRecord
    from lm_eval_adaptive.records.ranking import RankingDocument
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


def _task_body(view: TaskView, prefix: str) -> str:
    ranking = view.ranking
    count = len(ranking.ranking) or len(ranking.config.models)
    models = "1 model" if count == 1 else f"{count} models"
    direction = direction_of(ranking)
    filtered = "" if ranking.filter == "none" else f" ({ranking.filter})"
    metric = f"{ranking.metric}{filtered}"
    about = f"{models}, ranked by {metric}{', ' if direction else ''}{direction}"
    if ranking.score_of:
        about = f"{about}; scores are of {ranking.score_of} alone"
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


def _headline_html(view: TaskView) -> str:
    """The sentence; where many models make it long, a short one with the long one folded away."""
    full = _headline(view)
    if len(full) <= HEADLINE_CHARS:
        return f'<p class="headline">{esc(full)}</p>'
    first = view.ranking.ranking[0]
    tied = f", not told apart from {len(first.tied_with)} other(s)" if first.tied_with else ""
    short = f"{first.model} stands first{tied}; {short_headline(view)}"
    return f'<p class="headline">{esc(short)}</p>{fold_away("All pairs in words", para(full))}'


def _headline(view: TaskView) -> str:
    ranking = view.ranking
    asked = f"{ranking.items_total} items asked, {share(ranking.fraction)} of a full run"
    if not ranking.ranking:
        return f"{asked}; no estimate yet."
    if view.unfinished:
        return sentence(replace(ranking, stop_reason="not yet"))
    return sentence(ranking)


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
