"""The HTML report: one self-contained page that shows what a run found, or has found so far.

This module owns what stands on the page and in which order; it imports the page's building blocks,
what ``report_input`` gathered, and the core's formulas to draw how estimates settled. It decides
nothing and asks no model. Answers are untrusted text: see ``page`` on how they stay text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lm_eval_adaptive.errors import UsageError
from lm_eval_adaptive.harness.page import (
    STRETCHED,
    Axis,
    as_text,
    cut,
    esc,
    fold_away,
    frame,
    limits,
    num,
    para,
    pre,
    section,
    share,
    table,
    whole_page,
    write_text,
)
from lm_eval_adaptive.harness.report_input import TaskView, views_of, without_secrets
from lm_eval_adaptive.harness.show import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.harness.report_input import Samples

NORMAL_95 = 1.959963984540054
DOCUMENTS_SHOWN = 15  # of those on which models differ most
SURPRISES_SHOWN = 10
SURPRISE = 3.0  # standardised residual from which an answer is listed as unexpected
HEADLINE_CHARS = 700
CURVE_POINTS = 50  # per model
PROMPT_CHARS, TARGET_CHARS, ANSWER_CHARS, EXCERPT_CHARS = 6000, 3000, 3000, 160
ANSWERS_CHARS = 36_000  # of all models on one document: keeps the page small with many models

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
    ranking: Mapping[str, Any],
    *,
    bank: ItemBank | None,
    answers: Sequence[Mapping[str, Any]],
    samples: Samples | None = None,
    command: str = "",
    unfinished: bool = False,
) -> str:
    """The page of one ranking.

    Args:
        ranking: A ranking document.
        bank: Its bank; None leaves out the item map.
        answers: The journal's ``answer`` records, in their order.
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


def write_report(source: Path, output: Path | None = None, form: str = "html") -> Path:
    """Write the report of a run that is finished, going on, or was interrupted; or of a bank.

    Reads only: the journal of a run that is going on is not touched.

    Args:
        source: The run's ``--output_path``, one ranking file in it, or a bank (``.parquet``).
        output: The file to write, or a folder for it; None is ``report.html`` (``report.md``,
            ``ranking.csv``, ``ranking.png``) in the run's folder, and ``NAME.html`` beside a bank.
        form: ``html``, ``md``, ``csv`` or ``png``.

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
    folder, views = views_of(source)
    target = output or folder
    if target.is_dir():
        target /= FORMS[form]
    if form == "png":
        from lm_eval_adaptive.harness.picture import write_picture

        return write_picture(target, views)
    render = {"html": render_page, "md": render_markdown, "csv": render_csv}[form]
    return write_text(target, render(views))


def _write_bank(source: Path, output: Path | None, form: str) -> Path:
    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.harness.bank_report import write_bank_report

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
        direction = _direction(ranking)
        state = " (unfinished)" if view.unfinished else ""
        lines = [
            f"## {code(ranking['task'])}: {code(ranking['metric'])}, {direction}{state}",
            "",
            "| rank | model | score | 95 % interval | items | cost | not told apart from |",
            "|---:|:---|---:|:---|---:|---:|:---|",
        ]
        for entry in ranking["ranking"]:
            low, high = entry["score_ci"]
            tied = ", ".join(map(cell, entry["tied_with"])) or "–"
            lines.append(
                f"| {entry['rank']} | {cell(entry['model'])} | {num(entry['score'])} | {num(low)} "
                f"– {num(high)} | {entry['items']} | {num(entry['cost'])} | {tied} |"
            )
        lines += ["", _short_headline(view), ""]
        lines += [f"- {code(each)}" for each in [*view.notes, *ranking["warnings"]]]
        lines += ["", f"Signature: {code(ranking['signature'])}", ""]
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
        for entry in view.ranking["ranking"]:
            writer.writerow(
                [
                    view.ranking["task"],
                    view.ranking["metric"],
                    *(entry[key] for key in keys),
                    *entry["score_ci"],
                    "; ".join(entry["tied_with"]),
                    not view.unfinished,
                ]
            )
    return text.getvalue()


def _headline(view: TaskView) -> str:
    ranking = view.ranking
    asked = f"{ranking['items_total']} items asked, {share(ranking['fraction'])} of a full run"
    if not ranking["ranking"]:
        return f"{asked}; no estimate yet."
    if view.unfinished:
        return sentence({**ranking, "stop_reason": "not yet"})
    return sentence(dict(ranking))


def _short_headline(view: TaskView) -> str:
    """A sentence without names of pairs, where no model's name may be taken for markup."""
    ranking = view.ranking
    pairs = ranking["pairs"]
    told = sum(pair["verdict"] in ("a", "b") for pair in pairs)
    asked = f"{ranking['items_total']} items asked, {share(ranking['fraction'])} of a full run"
    if not pairs:
        return f"{asked}."
    confidence = ranking["config"]["adaptive"]["confidence"]
    return (
        f"{told} of {len(pairs)} pairs are told apart with {confidence:.0%} confidence each; "
        f"{asked}."
    )


def _headline_html(view: TaskView) -> str:
    """The sentence; where many models make it long, a short one with the long one folded away."""
    full = _headline(view)
    if len(full) <= HEADLINE_CHARS:
        return f'<p class="headline">{esc(full)}</p>'
    first = view.ranking["ranking"][0]
    tied = f", not told apart from {len(first['tied_with'])} other(s)" if first["tied_with"] else ""
    short = f"{first['model']} stands first{tied}; {_short_headline(view)}"
    return f'<p class="headline">{esc(short)}</p>{fold_away("All pairs in words", para(full))}'


def _facts(view: TaskView) -> str:
    ranking = view.ranking
    needed = [pair for pair in ranking["pairs"] if pair.get("required", True)]
    decided = sum(pair["verdict"] != "undecided" for pair in needed)
    reason = ranking["stop_reason"]
    facts = [
        ("items asked", f"{ranking['items_total']}", f"of {ranking['items_full']} in a full run"),
        (
            "share of a full run",
            share(ranking["fraction"]),
            f"cost {num(ranking['cost_total'])} of {num(ranking['cost_full'])}",
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


def _direction(ranking: Mapping[str, Any]) -> str:
    better = ranking["higher_is_better"]
    return "" if better is None else "higher is better" if better else "lower is better"


def _forest(view: TaskView, prefix: str) -> str:
    ranking = view.ranking
    entries = ranking["ranking"]
    if not entries:
        return _plain_means(view, prefix)
    low = min(entry["score_ci"][0] for entry in entries)
    high = max(entry["score_ci"][1] for entry in entries)
    pad = 0.03 * (high - low)
    axis = Axis(low - pad, high + pad)
    grid = "".join(f'<i class="g" style="left:{axis.at(tick)}%"></i>' for tick in axis.ticks)
    rows = []
    for entry in entries:
        lo, hi = entry["score_ci"]
        interval = f"{num(lo)} – {num(hi)}"
        tied = ", ".join(entry["tied_with"])
        tip = f"{entry['model']}: {num(entry['score'])}, 95 % interval {interval}"
        left, right = axis.at(lo), axis.at(hi)
        tie = f'<span class="s">not told apart from {esc(tied)}</span>' if tied else ""
        rows.append(
            f'<li title="{esc(tip)}"><span class="name"><b>{entry["rank"]}</b> '
            f"{esc(entry['model'])}{tie}</span>"
            f'<span class="bar">{grid}<i class="ci" style="left:{left}%;width:{right - left:.2f}%">'
            f'</i><i class="dot" style="left:{axis.at(entry["score"])}%"></i></span>'
            f'<span class="val"><b>{num(entry["score"])}</b> '
            f'<span class="s">{interval}</span></span></li>'
        )
    ticks = "".join(f'<span style="left:{axis.at(tick)}%">{tick:g}</span>' for tick in axis.ticks)
    label = f"{ranking['metric']}, {_direction(ranking)}"
    plot = (
        f'<ol class="forest" data-plot="forest">{"".join(rows)}'
        f'<li class="axis" aria-hidden="true"><span class="name"></span><span class="bar">{ticks}'
        f'</span><span class="val s">{esc(label)}</span></li></ol>'
    )
    head = ("rank", "model", "score", "error", "95 % low", "95 % high", "ability", "items", "cost")
    listing = table(
        head,
        (
            (
                entry["rank"],
                entry["model"],
                num(entry["score"]),
                num(entry["score_se"], 2),
                num(entry["score_ci"][0]),
                num(entry["score_ci"][1]),
                f"{num(entry['ability'], 3)} ± {num(entry['ability_se'], 2)}",
                entry["items"],
                num(entry["cost"]),
            )
            for entry in entries
        ),
    )
    words = (
        f"Dots are the estimated {ranking['metric']} on the whole benchmark "
        f"({_direction(ranking)}), bars hold it with 95 % confidence. Bars may overlap "
        "although a pair is decided: what counts is the next picture."
    )
    return section(prefix, "ranking", "Ranking", words, plot + fold_away("As a table", listing))


def _plain_means(view: TaskView, prefix: str) -> str:
    """Without a bank there is no estimate: answers and plain means, with the caveat."""
    rows = []
    for spec in view.ranking["config"]["models"]:
        mine = [each for each in view.answers if each["model"] == spec["name"]]
        raw = [each["raw_score"] for each in mine if each["raw_score"] is not None]
        rows.append((spec["name"], len(mine), num(float(np.mean(raw)) if raw else None)))
    words = (
        "Without its bank nothing can be estimated. The plain means below are over the documents "
        "that were chosen for each model: they are biased, differ in what was asked, and say "
        "nothing about the order of the models."
    )
    name = f"plain mean of {view.ranking['metric']}, chosen documents only"
    return section(prefix, "ranking", "So far", words, table(("model", "answers", name), rows))


def _matrix(view: TaskView, prefix: str) -> str:
    entries = view.ranking["ranking"]
    if len(entries) < 2:
        return ""
    known: dict[tuple[str, str], tuple[float, str]] = {}
    for pair in view.ranking["pairs"]:
        p, verdict = pair["p_a_better"], pair["verdict"]
        known[pair["a"], pair["b"]] = p, verdict
        known[pair["b"], pair["a"]] = 1.0 - p, verdict

    def cell(row: str, column: str) -> str:
        if (row, column) not in known:
            return '<td class="self">·</td>'
        p, verdict = known[row, column]
        text = ">99" if p > 0.995 else "<1" if p < 0.005 else f"{100 * p:.0f}"
        mark = {"undecided": "?", "equivalent": "≈"}.get(verdict, "")
        kind = ("w" if p >= 0.5 else "l") + str(min(int(abs(p - 0.5) * 10), 4))
        state = {"undecided": "undecided", "equivalent": "equivalent"}.get(verdict, "decided")
        tip = f"{row} is better than {column} with probability {p:.4f}: {state}"
        return f'<td class="{kind} {state}" title="{esc(tip)}">{esc(text)}{mark}</td>'

    names = [entry["model"] for entry in entries]
    top = "".join(
        f'<th scope="col" title="{esc(name)}">{place}</th>' for place, name in enumerate(names, 1)
    )
    body = "".join(
        f'<tr><th scope="row"><span>{place} {esc(name)}</span></th>'
        f"{''.join(cell(name, other) for other in names)}</tr>"
        for place, name in enumerate(names, 1)
    )
    confidence = view.ranking["config"]["adaptive"]["confidence"]
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


@dataclass(frozen=True)
class _Curve:
    """How a model's estimate settled: arrays of items asked, estimate and its interval."""

    items: list[int]
    middle: list[float]
    low: list[float]
    high: list[float]


def _thin(count: int) -> list[int]:
    """At most ``CURVE_POINTS`` of 0 … count-1, the last among them."""
    picks = np.linspace(0, count - 1, min(count, CURVE_POINTS)).round().astype(int)
    return [int(each) for each in np.unique(picks)]


def _valid_answers(view: TaskView) -> dict[str, list[Mapping[str, Any]]]:
    """Answers that count, by model in ranking order."""
    excluded = {each["doc_id"] for each in view.ranking.get("excluded", [])}
    found: dict[str, list[Mapping[str, Any]]] = {
        entry["model"]: [] for entry in view.ranking["ranking"]
    }
    for record in view.answers:
        counts = record["score"] is not None and record["doc_id"] not in excluded
        if counts and record["model"] in found:
            found[record["model"]].append(record)
    return found


def _score_curves(view: TaskView) -> dict[str, _Curve] | None:
    """Score and 95 % interval after every answer, as the run recorded them.

    None where it did not (a ranking of an older version): then the abilities are drawn.
    """
    lo, hi = view.ranking["bank"].get("range", [-np.inf, np.inf])
    curves = {}
    for entry in view.ranking["ranking"]:
        mine = [step for step in view.ranking["trace"] if step["model"] == entry["model"]]
        if any("estimate" not in step for step in mine):
            return None
        steps = _thin(len(mine))
        if not steps:
            continue
        middle = np.array([mine[step]["estimate"] for step in steps])
        half = np.array([mine[step]["estimate_half"] for step in steps])
        curves[entry["model"]] = _Curve(
            [step + 1 for step in steps],
            middle.tolist(),
            np.clip(middle - half, lo, hi).tolist(),
            np.clip(middle + half, lo, hi).tolist(),
        )
    return curves or None


def _ability_curves(view: TaskView) -> dict[str, _Curve]:
    curves = {}
    for entry in view.ranking["ranking"]:
        mine = [step for step in view.ranking["trace"] if step["model"] == entry["model"]]
        if not mine:
            continue
        steps = _thin(len(mine))
        middle = np.array([mine[step]["ability"] for step in steps])
        half = NORMAL_95 * np.array([mine[step]["ability_se"] for step in steps])
        curves[entry["model"]] = _Curve(
            [step + 1 for step in steps],
            middle.tolist(),
            (middle - half).tolist(),
            (middle + half).tolist(),
        )
    return curves


def _curves(view: TaskView, prefix: str) -> str:
    if not view.ranking["ranking"]:
        return ""
    scored = _score_curves(view)
    curves = scored if scored is not None else _ability_curves(view)
    if not curves:
        return ""
    unit = f"estimated {view.ranking['metric']}" if scored is not None else "ability in logits"
    # The first few intervals are as wide as the scale; later ones decide the picture's range.
    settled = [
        (low, high)
        for curve in curves.values()
        for items, low, high in zip(curve.items, curve.low, curve.high, strict=True)
        if items >= 5 or items == curve.items[-1]
    ]
    y = Axis(min(low for low, _ in settled), max(high for _, high in settled), 4)
    x = Axis(0, max(curve.items[-1] for curve in curves.values()), 4)

    def place(items: int, value: float) -> str:
        return f"{10 * x.at(items):.0f} {1000 - 10 * y.at(value):.0f}"

    lines, panels, rows = [], [], []
    for number, curve in enumerate(curves.values(), 1):
        path = "L".join(map(place, curve.items, curve.middle))
        lines.append(f'<path id="{prefix}c{number}" d="M{path}"/>')
    for number, (model, curve) in enumerate(curves.items(), 1):
        band = list(map(place, curve.items, curve.high))
        band += list(map(place, curve.items, curve.low))[::-1]
        others = "".join(
            f'<use href="#{prefix}c{other}" class="other"/>'
            for other in range(1, len(curves) + 1)
            if other != number
        )
        last = (
            f"{num(curve.middle[-1])} ({num(curve.low[-1])} to {num(curve.high[-1])}) "
            f"after {curve.items[-1]} items"
        )
        inside = (
            f'{STRETCHED}{others}<path class="band" d="M{"L".join(band)}Z"/>'
            f'<use href="#{prefix}c{number}" class="line"/></svg>'
        )
        inside += "".join(
            f'<circle class="hit" cx="{x.at(items)}%" cy="{100 - y.at(middle):g}%" r="5"><title>'
            f"{esc(model)} after {items} items: {num(middle)} ({num(low)} to {num(high)})"
            "</title></circle>"
            for items, middle, low, high in zip(
                curve.items, curve.middle, curve.low, curve.high, strict=True
            )
        )
        label = f"{model}: {unit} against items asked, {last}"
        panels.append(
            f"<figure><figcaption>{esc(model)} <span class=s>{esc(last)}</span></figcaption>"
            f"{frame(inside, x, y, 'small', label)}</figure>"
        )
        shown = sorted({0, *np.linspace(0, len(curve.items) - 1, 6).round().astype(int).tolist()})
        rows += [
            (
                model,
                curve.items[step],
                num(curve.middle[step]),
                num(curve.low[step]),
                num(curve.high[step]),
            )
            for step in shown
        ]
    words = (
        f"Each model's {unit} (line) with its 95 % interval (band) against the items it was asked; "
        "the other models are thin lines. A band that no longer narrows shows a model that was not "
        "asked further."
    )
    inside = (
        f'<svg width="0" height="0" class="defs" aria-hidden="true"><defs>{"".join(lines)}</defs>'
        f'</svg><div class="panels" data-plot="curves">{"".join(panels)}</div>'
    )
    listing = table(("model", "items asked", unit, "95 % low", "95 % high"), rows)
    return section(
        prefix,
        "curves",
        "How the estimates settled",
        words,
        inside + fold_away("As a table", listing),
    )


def _item_map(view: TaskView, prefix: str) -> str:
    bank = view.bank
    if bank is None:
        return ""
    paper = bank.info.response_model == "paper-1pl"
    height = bank.item_rest_correlation if paper else bank.parameters.discrimination
    b = bank.parameters.difficulty
    drawn = np.isfinite(height)
    if not drawn.any():
        return ""
    asked_by: dict[int, list[Mapping[str, Any]]] = {}
    for record in view.answers:
        asked_by.setdefault(int(record["doc_id"]), []).append(record)
    asked = drawn & np.isin(bank.doc_id, list(asked_by))
    abilities = [float(entry["ability"]) for entry in view.ranking["ranking"]]
    x = Axis(*limits(b[drawn], [*b[asked].tolist(), *abilities]), 6)
    y = Axis(*limits(height[drawn], height[asked].tolist()), 5)
    excerpts = _excerpts(view)
    quiet, loud, rows = [], [], []
    most = max((len(each) for each in asked_by.values()), default=1)
    for item in np.flatnonzero(drawn):
        doc = int(bank.doc_id[item])
        left, top = x.at(b[item]), round(100 - y.at(height[item]), 2)
        if doc not in asked_by:
            quiet.append(f"M{10 * left:.0f} {10 * top:.0f}h0")
            continue
        records = asked_by[doc]
        raw = ", ".join(f"{each['model']} {num(each['raw_score'], 3)}" for each in records[:12])
        where = f"doc {doc}: difficulty {b[item]:.2f}, {'r' if paper else 'a'} {height[item]:.2f}"
        text = f"{where}\n{raw}\n{excerpts.get(doc, '')}".strip()
        size = 3.0 + 3.0 * len(records) / most
        loud.append(
            f'<circle class="asked" cx="{left}%" cy="{top}%" r="{size:.1f}">'
            f"<title>{esc(text)}</title></circle>"
        )
        rows.append(
            (doc, f"{b[item]:.2f}", f"{height[item]:.2f}", len(records), excerpts.get(doc, ""))
        )
    marks = "".join(
        f'<line class="mark" x1="{x.at(entry["ability"])}%" x2="{x.at(entry["ability"])}%" y1="0" '
        f'y2="12"><title>{esc(entry["model"])}: ability {entry["ability"]:.2f}</title></line>'
        for entry in view.ranking["ranking"]
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


def _money(view: TaskView, prefix: str) -> str:
    ranking = view.ranking
    if not ranking["ranking"]:
        return ""
    entries = [*ranking["ranking"], *ranking.get("set_aside", [])]
    tokens: dict[str, list[float]] = {}
    for record in view.answers:
        mine = tokens.setdefault(record["model"], [0.0, 0.0])
        mine[0] += record.get("input_tokens") or 0.0
        mine[1] += record.get("output_tokens") or 0.0
    about = "" if all(record.get("tokens_counted") for record in view.answers) else "about "
    total = ranking["cost_total"] or 1.0
    full = ranking["bank"].get("items") or ranking["items_full"] / len(entries)
    top = max(entry["cost"] for entry in entries) or 1.0
    rows, lines = [], []
    for entry in entries:
        part = entry["cost"] / total
        read, written = tokens.get(entry["model"], [0.0, 0.0])
        rows.append(
            f'<li title="{esc(entry["model"])}: {share(part)} of the cost"><span class="name">'
            f'{esc(entry["model"])}</span><span class="bar"><i class="fill" style="width:'
            f'{100 * entry["cost"] / top:.1f}%"></i></span><span class="val"><b>'
            f'{num(entry["cost"])}</b> <span class="s">{share(part)}, {entry["items"]} items'
            "</span></span></li>"
        )
        lines.append(
            (
                entry["model"],
                entry["items"],
                share(entry["items"] / full),
                num(entry["cost"]),
                share(part),
                f"{read:,.0f}" if read else "–",
                f"{written:,.0f}" if written else "–",
            )
        )
    sent = f"{about}tokens sent"
    head = ("model", "items", "of the bank", "cost", "of the total", sent, "received")
    plot = f'<ol class="forest money" data-plot="money">{"".join(rows)}</ol>'
    words = (
        f"Cost {num(ranking['cost_total'])} instead of {num(ranking['cost_full'])} for a full "
        "run, in the unit of the models' costs (1 an item where none was given). Models in close "
        "pairs are asked more."
    )
    inside = plot + fold_away("As a table", table(head, lines))
    return section(prefix, "cost", "Where the money went", words, inside)


def _surprises(view: TaskView) -> list[tuple[object, ...]]:
    """Answers far from what the bank expects of the model: (model, doc, score, expected, z)."""
    if view.bank is None:
        return []
    from lm_eval_adaptive.core.response import expected_score, variance

    bank = view.bank
    item_of = {int(doc): item for item, doc in enumerate(bank.doc_id)}
    ability = {entry["model"]: entry["ability"] for entry in view.ranking["ranking"]}
    found: list[tuple[float, tuple[object, ...]]] = []
    for model, records in _valid_answers(view).items():
        known = [record for record in records if int(record["doc_id"]) in item_of]
        if not known:
            continue
        items = bank.parameters.take(
            np.array([item_of[int(record["doc_id"])] for record in known], dtype=np.intp)
        )
        theta = np.array([ability[model]])
        mean, sd = expected_score(theta, items)[0], np.sqrt(variance(theta, items)[0])
        for record, mu, spread in zip(known, mean, sd, strict=True):
            z = (record["score"] - mu) / spread
            if abs(z) >= SURPRISE:
                raw = float(bank.info.scale.to_raw(mu))
                row = (model, record["doc_id"], num(record["raw_score"]), num(raw), f"{z:+.1f}")
                found.append((-abs(z), row))
    found.sort(key=lambda each: (each[0], str(each[1])))
    return [row for _, row in found]


def _warnings(view: TaskView, prefix: str) -> str:
    ranking = view.ranking
    listed = [*view.notes, *ranking["warnings"]]
    inside = "".join(f"<li>{esc(each)}</li>" for each in listed)
    inside = f'<ul class="warn">{inside}</ul>' if listed else "<p>No warnings.</p>"
    aside = ranking.get("set_aside", [])
    if aside:
        lost = ((each["model"], each["items"], each["reason"]) for each in aside)
        inside += "<h3>Models set aside, not in the ranking</h3>"
        inside += table(("model", "items asked", "why"), lost)
    excluded = ranking.get("excluded", [])
    if excluded:
        rows = ((each["doc_id"], each["reason"]) for each in excluded)
        inside += "<h3>Documents left out for all models</h3>" + table(("document", "why"), rows)
    surprises = _surprises(view)
    if surprises:
        head = ("model", "document", "score", "expected", "deviations")
        more = len(surprises) - SURPRISES_SHOWN
        inside += (
            "<h3>Answers the bank did not expect</h3><p class=words>Three standard deviations or "
            "more from what a model of this ability is expected to get on the document. A few are "
            "normal; many of one model say that the bank fits it badly (leaked documents, another "
            "prompt format, broken answers)."
            f"{f' {more} more are not shown.' if more > 0 else ''}</p>"
            f"{table(head, surprises[:SURPRISES_SHOWN])}"
        )
    words = "What to know before trusting the numbers."
    return section(prefix, "warnings", "Warnings and misfits", words, inside)


def _prompt(sample: Mapping[str, Any]) -> str:
    """The prompt text of a logged sample, whatever shape the harness gave its arguments."""
    found: Any = sample.get("arguments", "")
    while isinstance(found, dict | list) and found:
        found = next(iter(found.values())) if isinstance(found, dict) else found[0]
    return found if isinstance(found, str) else as_text(found)


def _common(first: str, last: str) -> int:
    """Length of the common start of two texts; of a sorted list's ends, that of the list."""
    for place, (one, other) in enumerate(zip(first, last, strict=False)):
        if one != other:
            return place
    return min(len(first), len(last))


def _excerpts(view: TaskView) -> dict[int, str]:
    """The start of what is particular to each document: prompts without what all have in common."""
    found: dict[int, str] = {}
    for samples in view.samples.values():
        prompts = {doc: _prompt(sample) for doc, sample in samples.items()}
        head = _common(min(prompts.values()), max(prompts.values())) if len(prompts) > 1 else 0
        for doc, prompt in prompts.items():
            if doc not in found:
                own = " ".join(prompt[head:].split())
                found[doc] = own if len(own) <= EXCERPT_CHARS else own[:EXCERPT_CHARS] + "…"
    return found


def _flat(responses: object) -> list[str]:
    if isinstance(responses, list):
        return [text for each in responses for text in _flat(each)]
    return [as_text(responses)]


def _documents(view: TaskView, prefix: str) -> str:
    """The documents on which models differ most, answers side by side."""
    placed = [*view.ranking["ranking"], *view.ranking.get("set_aside", [])]
    order = [entry["model"] for entry in placed] or [
        spec["name"] for spec in view.ranking["config"]["models"]
    ]
    by_doc: dict[int, dict[str, Mapping[str, Any]]] = {}
    for record in view.answers:
        by_doc.setdefault(int(record["doc_id"]), {})[record["model"]] = record
    if not view.answers:  # no journal: the trace has the scores, the samples the texts
        for step in view.ranking["trace"]:
            by_doc.setdefault(int(step["doc_id"]), {})[step["model"]] = step

    def spread(doc: int) -> float:
        scores = [each["score"] for each in by_doc[doc].values() if each["score"] is not None]
        return max(scores) - min(scores) if len(scores) > 1 else 0.0

    docs = sorted((doc for doc in by_doc if spread(doc) > 0), key=lambda doc: (-spread(doc), doc))
    blocks = []
    for place, doc in enumerate(docs[:DOCUMENTS_SHOWN]):
        held = by_doc[doc]
        samples = [
            view.samples[model][doc] for model in order if doc in view.samples.get(model, {})
        ]
        values = [each["raw_score"] for each in held.values() if each["raw_score"] is not None]
        summary = f"doc {doc}: {len(held)} models, {num(min(values), 3)} to {num(max(values), 3)}"
        inside = ""
        if samples:
            same = len({_prompt(sample) for sample in samples}) == 1
            title = "Prompt" if same else "Prompt (of the best placed; the models' prompts differ)"
            prompt = cut(_prompt(samples[0]), PROMPT_CHARS, keep_end=True)
            target = cut(as_text(samples[0].get("target", "")), TARGET_CHARS)
            inside += f"<h4>{title}</h4>{pre(prompt)}<h4>Target</h4>{pre(target)}"
        else:
            inside += (
                "<p class=words>Prompt and target are in the samples files, which the harness "
                "writes at the end of a run.</p>"
            )
        length = min(ANSWER_CHARS, ANSWERS_CHARS // max(len(held), 1))
        cards = []
        for model in order:
            if model not in held:
                continue
            logged = view.samples.get(model, {}).get(doc, {})
            texts = _flat(held[model].get("resps", logged.get("resps", ["(not logged)"])))
            empty = '<p class="s">(empty answer)</p>'
            shown = "".join(pre(cut(text, length)) if text.strip() else empty for text in texts)
            cards.append(
                f"<article><h5>{esc(model)} <b>{num(held[model]['raw_score'], 3)}</b></h5>"
                f"{shown}</article>"
            )
        inside += f'<h4>Answers</h4><div class="answers">{"".join(cards)}</div>'
        is_open = " open" if place == 0 else ""
        blocks.append(
            f'<details class="doc"{is_open}><summary>{esc(summary)}</summary>{inside}</details>'
        )
    if not blocks:
        inside = "<p>No document was answered differently by two models.</p>"
    else:
        inside = "".join(blocks)
    words = (
        f"The {len(blocks)} documents whose scores lie furthest apart, of {len(by_doc)} that were "
        f"asked. Numbers are the {view.ranking['metric']} of each answer; texts are shown as the "
        "models wrote them."
        if blocks
        else "Documents that two models or more were asked are compared here."
    )
    return section(prefix, "documents", "Where the models differ most", words, inside)


def _repeat(view: TaskView, prefix: str) -> str:
    ranking = view.ranking
    bank = ranking["bank"]
    versions = ", ".join(f"{name} {each}" for name, each in ranking.get("versions", {}).items())
    about = f"{bank['path']} sha256 {bank['sha256']}" if bank.get("path") else bank["sha256"]
    parts = [
        ("Command", view.command or "The run was started from Python, or its journal is gone."),
        ("Signature", ranking["signature"]),
        ("Versions", versions or "not recorded"),
        ("Bank", about),
        ("Bank calibrated on", ", ".join(map(str, bank.get("models", []))) or "not known here"),
    ]
    inside = "".join(f"<h3>{esc(name)}</h3>{pre(value)}" for name, value in parts)
    inside += fold_away("All options", pre(as_text(without_secrets(ranking["config"]))))
    words = (
        "The same bank, models' answers, options and seed give the same ranking; the signature "
        "names what has to be equal."
    )
    return section(prefix, "repeat", "To repeat it", words, inside)


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
    count = len(ranking["ranking"]) or len(ranking["config"]["models"])
    models = "1 model" if count == 1 else f"{count} models"
    direction = _direction(ranking)
    filtered = "" if ranking["filter"] == "none" else f" ({ranking['filter']})"
    metric = f"{ranking['metric']}{filtered}"
    about = f"{models}, ranked by {metric}{', ' if direction else ''}{direction}"
    banner = (
        '<p class="banner" role="note">Unfinished: this run is going on or was interrupted. What '
        "stands here is the state of its journal; order and verdicts may still change.</p>"
        if view.unfinished
        else ""
    )
    date = f" · {str(ranking['date'])[:16].replace('T', ' ')}" if ranking.get("date") else ""
    head = (
        f'<header id="{prefix}top"><h1>{esc(ranking["task"])}</h1><p class="s">'
        f"{esc(about)}{esc(date)}</p>{banner}{_headline_html(view)}{_facts(view)}</header>"
    )
    parts = (_forest, _matrix, _curves, _item_map, _money, _warnings, _documents, _repeat)
    return head + "".join(part(view, prefix) for part in parts)


def render_page(views: Sequence[TaskView]) -> str:
    """The page of one or several tasks."""
    bodies = [_task_body(view, f"t{number}-") for number, view in enumerate(views, 1)]
    names = [str(view.ranking["task"]) for view in views]
    links = "".join(
        f'<a href="#t{number}-top">{esc(name)}</a>' for number, name in enumerate(names, 1)
    )
    nav = f"<nav>{links}</nav>" if len(views) > 1 else ""
    body = f"{nav}{''.join(bodies)}{_how_to_read()}"
    return whole_page(f"{', '.join(names)}: adaptive ranking", body)
