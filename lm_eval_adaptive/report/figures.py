"""Pictures of a run's report: the ranking, its pairs, items, and money.

This module owns the sections that draw numbers; it imports the page's building blocks and the view
of a task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lm_eval_adaptive.report.page import (
    STRETCHED,
    Axis,
    esc,
    fold_away,
    frame,
    limits,
    num,
    section,
    share,
    table,
)
from lm_eval_adaptive.report.view import MANY_MODELS, direction_of, excerpts_of

if TYPE_CHECKING:
    from lm_eval_adaptive.records.journal import AnswerRecord
    from lm_eval_adaptive.report.view import TaskView


def forest(view: TaskView, prefix: str) -> str:
    """The ranking: estimates with their intervals; plain means where there is no bank."""
    ranking = view.ranking
    entries = ranking.ranking
    if not entries:
        return _plain_means(view, prefix)
    low = min(entry.score_ci[0] for entry in entries)
    high = max(entry.score_ci[1] for entry in entries)
    pad = 0.03 * (high - low)
    axis = Axis(low - pad, high + pad)
    grid = "".join(f'<i class="g" style="left:{axis.at(tick)}%"></i>' for tick in axis.ticks)
    rows = []
    for entry in entries:
        lo, hi = entry.score_ci
        interval = f"{num(lo)} – {num(hi)}"
        tied = ", ".join(entry.tied_with)
        tip = f"{entry.model}: {num(entry.score)}, 95 % interval {interval}"
        left, right = axis.at(lo), axis.at(hi)
        tie = f'<span class="s">not told apart from {esc(tied)}</span>' if tied else ""
        far = f'<span class="s">{esc(entry.lies)}, errors widened</span>' if entry.beyond else ""
        rows.append(
            f'<li title="{esc(tip)}"><span class="name"><b>{entry.rank}</b> '
            f"{esc(entry.model)}{tie}{far}</span>"
            f'<span class="bar">{grid}<i class="ci" style="left:{left}%;width:{right - left:.2f}%">'
            f'</i><i class="dot" style="left:{axis.at(entry.score)}%"></i></span>'
            f'<span class="val"><b>{num(entry.score)}</b> '
            f'<span class="s">{interval}</span></span></li>'
        )
    ticks = "".join(f'<span style="left:{axis.at(tick)}%">{tick:g}</span>' for tick in axis.ticks)
    label = f"{ranking.metric}, {direction_of(ranking)}"
    plot = (
        f'<ol class="forest" data-plot="forest">{"".join(rows)}'
        f'<li class="axis" aria-hidden="true"><span class="name"></span><span class="bar">{ticks}'
        f'</span><span class="val s">{esc(label)}</span></li></ol>'
    )
    head = ("rank", "model", "score", "error", "95 % low", "95 % high", "ability", "items", "cost")
    placed = any(entry.lies for entry in entries)  # not without a bank
    listing = table(
        (*head, "lies") if placed else head,
        (
            (
                entry.rank,
                entry.model,
                num(entry.score),
                num(entry.score_se, 2),
                num(entry.score_ci[0]),
                num(entry.score_ci[1]),
                f"{num(entry.ability, 3)} ± {num(entry.ability_se, 2)}",
                entry.items,
                num(entry.cost),
                *([entry.lies] if placed else []),
            )
            for entry in entries
        ),
    )
    words = (
        f"Dots are the estimated {ranking.metric} on {ranking.whole} "
        f"({direction_of(ranking)}), bars hold it with 95 % confidence. Bars may overlap "
        "although a pair is decided: what counts is the next picture."
    )
    return section(prefix, "ranking", "Ranking", words, plot + fold_away("As a table", listing))


def _plain_means(view: TaskView, prefix: str) -> str:
    """Without a bank there is no estimate: answers and plain means, with the caveat."""
    rows = []
    for name in view.ranking.config.names:
        mine = [answer for answer in view.answers if answer.model == name]
        raw = [answer.raw_score for answer in mine if answer.raw_score is not None]
        rows.append((name, len(mine), num(float(np.mean(raw)) if raw else None)))
    words = (
        "Without its bank nothing can be estimated. The plain means below are over the documents "
        "that were chosen for each model: they are biased, differ in what was asked, and say "
        "nothing about the order of the models."
    )
    head = ("model", "answers", f"plain mean of {view.ranking.metric}, chosen documents only")
    return section(prefix, "ranking", "So far", words, table(head, rows))


def pair_matrix(view: TaskView, prefix: str) -> str:
    """The probability of every pair and its verdict."""
    entries = view.ranking.ranking
    if len(entries) < 2:
        return ""
    known: dict[tuple[str, str], tuple[float, str]] = {}
    for pair in view.ranking.pairs:
        p, verdict = pair.p_a_better, pair.verdict
        known[pair.a, pair.b] = p, verdict
        known[pair.b, pair.a] = 1.0 - p, verdict

    def cell(row: str, column: str) -> str:
        if (row, column) not in known:
            return '<td class="self">·</td>'
        p, verdict = known[row, column]
        text = ">99" if p > 0.995 else "<1" if p < 0.005 else f"{100 * p:.0f}"
        mark = {"undecided": "?", "equivalent": "≈"}.get(verdict, "")
        kind = ("w" if p >= 0.5 else "l") + str(min(int(abs(p - 0.5) * 10), 4))
        state = {"undecided": "undecided", "equivalent": "equivalent"}.get(verdict, "decided")
        if len(names) > MANY_MODELS:  # a tip for each of so many cells would be most of the page
            return f'<td class="{kind} {state}">{esc(text)}{mark}</td>'
        tip = f"{row} is better than {column} with probability {p:.4f}: {state}"
        return f'<td class="{kind} {state}" title="{esc(tip)}">{esc(text)}{mark}</td>'

    names = view.ranking.names
    top = "".join(
        f'<th scope="col" title="{esc(name)}">{place}</th>' for place, name in enumerate(names, 1)
    )
    body = "".join(
        f'<tr><th scope="row"><span>{place} {esc(name)}</span></th>'
        f"{''.join(cell(name, other) for other in names)}</tr>"
        for place, name in enumerate(names, 1)
    )
    confidence = view.ranking.config.confidence
    words = (
        "How probable it is, in percent, that the model of the row is better than the model of the "
        f"column. A question mark is a pair that is not decided at {confidence:.0%} confidence, ≈ "
        "one known to be equivalent."
    )
    inside = (
        '<div class="wide"><table class="matrix" data-plot="matrix"><thead><tr><td></td>'
        f"{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )
    return section(prefix, "pairs", "Which is better", words, inside)


def item_map(view: TaskView, prefix: str) -> str:
    """The bank's items by difficulty and discrimination, those asked marked."""
    bank = view.bank
    if bank is None:
        return ""
    paper = not bank.parameters.own_slopes
    height = bank.item_rest_correlation if paper else bank.parameters.discrimination
    b = bank.parameters.difficulty
    drawn = np.isfinite(height)
    if not drawn.any():
        return ""
    asked_by: dict[int, list[AnswerRecord]] = {}
    for answer in view.answers:
        asked_by.setdefault(answer.doc_id, []).append(answer)
    asked = drawn & np.isin(bank.doc_id, list(asked_by))
    abilities = [float(entry.ability) for entry in view.ranking.ranking]
    x = Axis(*limits(b[drawn], [*b[asked].tolist(), *abilities]), 6)
    y = Axis(*limits(height[drawn], height[asked].tolist()), 5)
    excerpts = excerpts_of(view)
    quiet, loud, rows = [], [], []
    most = max((len(each) for each in asked_by.values()), default=1)
    for item in np.flatnonzero(drawn):
        doc = int(bank.doc_id[item])
        left, top = x.at(b[item]), round(100 - y.at(height[item]), 2)
        if doc not in asked_by:
            quiet.append(f"M{10 * left:.0f} {10 * top:.0f}h0")
            continue
        answers = asked_by[doc]
        raw = ", ".join(f"{each.model} {num(each.raw_score, 3)}" for each in answers[:12])
        where = f"doc {doc}: difficulty {b[item]:.2f}, {'r' if paper else 'a'} {height[item]:.2f}"
        text = f"{where}\n{raw}\n{excerpts.get(doc, '')}".strip()
        size = 3.0 + 3.0 * len(answers) / most
        loud.append(
            f'<circle class="asked" cx="{left}%" cy="{top}%" r="{size:.1f}">'
            f"<title>{esc(text)}</title></circle>"
        )
        rows.append(
            (doc, f"{b[item]:.2f}", f"{height[item]:.2f}", len(answers), excerpts.get(doc, ""))
        )
    marks = "".join(
        f'<line class="mark" x1="{x.at(entry.ability)}%" x2="{x.at(entry.ability)}%" y1="0" '
        f'y2="12"><title>{esc(entry.model)}: ability {entry.ability:.2f}</title></line>'
        for entry in view.ranking.ranking
    )
    inside = f'{STRETCHED}<path class="quiet" d="{"".join(quiet)}"/></svg>{"".join(loud)}{marks}'
    name = "correlation with the rest of the test" if paper else "discrimination"
    label = f"{len(bank)} items by difficulty and {name}; {len(rows)} of them asked"
    outside = int(((b < x.lo) | (b > x.hi) | (height < y.lo) | (height > y.hi))[drawn].sum())
    words = (
        f"Each dot is a document of the bank: to the right the harder ones, upwards those whose "
        f"score tells more about a model ({name}). Filled dots were asked, larger ones of more "
        "models; the marks at the top edge are the models' abilities on the same scale."
    )
    if outside:
        words += f" {outside} item(s) beyond the frame are drawn at its edge."
    axes = f'<p class="s axes">across: difficulty, logits · upwards: {esc(name)}</p>'
    plot = f'<div data-plot="items">{frame(inside, x, y, "large", label)}</div>{axes}'
    rows.sort(key=lambda row: row[0])
    head = ("document", "difficulty", name, "models asked", "excerpt")
    listing = fold_away("Asked items as a table", table(head, rows))
    return section(prefix, "items", "Map of the items", words, plot + listing)


def money(view: TaskView, prefix: str) -> str:
    """Items and cost of each model."""
    ranking = view.ranking
    if not ranking.ranking:
        return ""
    entries = [*ranking.ranking, *ranking.set_aside]
    tokens: dict[str, list[float]] = {}
    for answer in view.answers:
        mine = tokens.setdefault(answer.model, [0.0, 0.0])
        mine[0] += answer.input_tokens
        mine[1] += answer.output_tokens
    about = "" if all(answer.tokens_counted for answer in view.answers) else "about "
    total = ranking.cost_total or 1.0
    full = ranking.bank.items or ranking.items_full / len(entries)
    top = max(entry.cost for entry in entries) or 1.0
    rows, lines = [], []
    for entry in entries:
        part = entry.cost / total
        read, written = tokens.get(entry.model, [0.0, 0.0])
        rows.append(
            f'<li title="{esc(entry.model)}: {share(part)} of the cost"><span class="name">'
            f'{esc(entry.model)}</span><span class="bar"><i class="fill" style="width:'
            f'{100 * entry.cost / top:.1f}%"></i></span><span class="val"><b>'
            f'{num(entry.cost)}</b> <span class="s">{share(part)}, {entry.items} items'
            "</span></span></li>"
        )
        lines.append(
            (
                entry.model,
                entry.items,
                share(entry.items / full),
                num(entry.cost),
                share(part),
                f"{read:,.0f}" if read else "–",
                f"{written:,.0f}" if written else "–",
            )
        )
    sent = f"{about}tokens sent"
    head = ("model", "items", "of the bank", "cost", "of the total", sent, "received")
    plot = f'<ol class="forest money" data-plot="money">{"".join(rows)}</ol>'
    words = (
        f"Cost {num(ranking.cost_total)} instead of {num(ranking.cost_full)} for a full "
        "run, in the unit of the models' costs (1 an item where none was given). Models in close "
        "pairs are asked more."
    )
    inside = plot + fold_away("As a table", table(head, lines))
    return section(prefix, "cost", "Where the money went", words, inside)
