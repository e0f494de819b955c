"""The HTML report: one self-contained page that shows what a run found, or has found so far.

This module owns the page; it imports the ranking's shape from ``outputs``, the fold from
``session``, the journal's file name, and the core's posterior to draw how estimates settled. It
decides nothing and asks no model.

Pictures are hand-made: HTML bars and inline SVG, drawn here. ``plotly.js`` alone is 4.8 MB as the
Python package ships it (7.1), which leaves nothing of a page of 5 MB; packed (gzip in base64, 2 MB)
it needs a browser with ``DecompressionStream``, scripts, and ``eval``-like loading, and shows
nothing without. Hand-made pictures are some hundred kilobytes, show without any script, print, and
let the page forbid all scripts but its own small one: answers of models are untrusted text, so
everything is escaped, and on top of that a content security policy names the hash of the one script
that may run and allows no connection at all. That script only turns tooltips into ones that appear
at once and on touch.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.errors import AdaptiveError, DataError, UsageError
from lm_eval_adaptive.harness.config import AdaptiveConfig, CandidateSpec, folder_name
from lm_eval_adaptive.harness.journal import NAME, SCHEMA
from lm_eval_adaptive.harness.show import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lm_eval_adaptive.core.procedure import RunState
    from lm_eval_adaptive.harness.candidate import Candidate
    from lm_eval_adaptive.harness.session import Fold, Session

    Samples = Mapping[str, Mapping[int, Mapping[str, Any]]]

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


@dataclass(frozen=True)
class TaskView:
    """All that the report shows of one task.

    Attributes:
        ranking: A ranking document (see ``outputs``); its ``ranking`` list is empty where only
            the journal is known.
        bank: The bank, None where it was not found.
        answers: The journal's ``answer`` records.
        samples: The harness's logged samples, by model and document id.
        command: The command line that repeats the run, "" where it is not known.
        unfinished: Whether the run is going on or was interrupted.
        notes: What the reader of this page has to know about the page.
    """

    ranking: Mapping[str, Any]
    bank: ItemBank | None = None
    answers: Sequence[Mapping[str, Any]] = ()
    samples: Samples = field(default_factory=dict)
    command: str = ""
    unfinished: bool = False
    notes: tuple[str, ...] = ()


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


def write_report(run_dir_or_ranking_file: Path, output: Path | None = None) -> Path:
    """Write the report of a run that is finished, going on, or was interrupted.

    Reads only: the journal of a run that is going on is not touched.

    Args:
        run_dir_or_ranking_file: The run's ``--output_path``, or one ranking file in it.
        output: The page's file; None is ``report.html`` beside the ranking.

    Returns:
        The file written.

    Raises:
        UsageError: There is no such file or folder, or no run in it.
        DataError: A ranking file or the journal cannot be read.
    """
    source = run_dir_or_ranking_file
    if source.name == NAME:
        source = source.parent
    if not source.exists():
        raise UsageError(
            f"report: no {source}; give the --output_path of an adaptive run, or one of its "
            "ranking_*.json files"
        )
    folder = source if source.is_dir() else source.parent
    views = _views_of_folder(folder) if source.is_dir() else [_finished_view(source)]
    if not views:
        raise UsageError(
            f"report: {folder} holds neither ranking_*.json nor {NAME}; give the --output_path of "
            "an adaptive run"
        )
    target = output or folder / "report.html"
    if target.is_dir():
        target /= "report.html"
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.part")
    # Answers may hold lone surrogates, which UTF-8 cannot.
    aside.write_bytes(render_page(views).encode("utf-8", "replace"))
    aside.replace(target)
    return target


# ---------------------------------------------------------------------------------- reading a run


def _views_of_folder(folder: Path) -> list[TaskView]:
    """One view per task: from the current journal, and from rankings it does not know."""
    newest: dict[str, Path] = {}
    for path in sorted(folder.glob("ranking_*.json"), key=lambda each: each.stat().st_mtime_ns):
        newest[str(_read_ranking(path)["task"])] = path
    records = _read_records(folder / NAME)
    views = []
    if records:
        ended = {record["task"] for record in records if record["type"] == "end"}
        for task in records[0]["config"]["tasks"]:
            path = newest.pop(task, folder)
            if task in ended and path != folder:
                views.append(_finished_view(path))
            else:
                views.append(_unfinished_view(folder, records, task))
    return views + [_finished_view(path) for _, path in sorted(newest.items())]


def _read_ranking(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise DataError(
            f"{path} is no readable ranking file ({error}); restore it, or write it again with "
            f"--resume {path.parent}"
        ) from error
    if not isinstance(data, dict) or "ranking" not in data or "task" not in data:
        raise DataError(f"{path} is JSON but no ranking file; give a ranking_*.json of a run")
    if data.get("schema") != 1:
        raise DataError(
            f"{path} has schema {data.get('schema')}, this version reads schema 1; use the version "
            "that wrote it"
        )
    return data


def _read_records(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a journal, [] where there is none; the file is never changed.

    ``journal.read_journal`` cuts a half-written last line off the file, which must not happen to a
    run that is still writing it.
    """
    if not path.is_file():
        return []
    records = []
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):  # the last one has no newline yet
        if not line:
            continue
        try:
            records.append(json.loads(line))
        except ValueError as error:
            raise DataError(
                f"{path} line {number} is damaged ({error}); restore the file from a copy"
            ) from error
    if not records or records[0].get("type") != "run" or records[0].get("schema") != SCHEMA:
        raise DataError(
            f"{path} does not start with a run's configuration of schema {SCHEMA}; it is no "
            "journal of this version"
        )
    return records


def _finished_view(path: Path) -> TaskView:
    ranking = _read_ranking(path)
    records = _journal_of(path.parent, ranking)
    words = list(records[0].get("command") or []) if records else []
    bank, notes = _find_bank(
        ranking["bank"]["sha256"], ranking["bank"]["response_model"], path.parent, words
    )
    if not records:
        notes.append("The run's journal was not found beside the ranking.")
    answers = [
        record
        for record in records
        if record["type"] == "answer" and record["task"] == ranking["task"]
    ]
    names = [entry["model"] for entry in ranking["ranking"]]
    samples = _read_samples(path.parent, ranking, names)
    return TaskView(ranking, bank, answers, samples, _command(words), False, tuple(notes))


def _journal_of(folder: Path, ranking: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The journal, among those kept in the folder, that holds the answers of a ranking."""
    wanted = {(step["model"], step["doc_id"], step["raw_score"]) for step in ranking["trace"]}
    for path in (folder / NAME, *sorted(folder.glob("journal_*.jsonl"))):
        records = _read_records(path)
        held = {
            (record["model"], record["doc_id"], record["raw_score"])
            for record in records
            if record["type"] == "answer" and record["task"] == ranking["task"]
        }
        if records and wanted <= held:
            return records
    return []


_SECRET = re.compile(r"(?i)\b((?:\w+_)?(?:key|token|secret|password|authorization))(=|: ?)[^,\s]+")


def _command(words: Sequence[str]) -> str:
    """The command line without secrets: a report is made to be passed on."""
    words = [_SECRET.sub(r"\1\2***", word) for word in words]
    return f"lm-eval-adaptive {shlex.join(words)}" if words else ""


def _without_secrets(value: Any) -> Any:
    """Options as they may be shown."""
    if isinstance(value, dict):
        return {
            key: "***" if each and _SECRET.match(f"{key}=x") else _without_secrets(each)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [_without_secrets(each) for each in value]
    return _SECRET.sub(r"\1\2***", value) if isinstance(value, str) else value


def _find_bank(
    sha256: str, response_model: str, folder: Path, words: Sequence[str]
) -> tuple[ItemBank | None, list[str]]:
    """The bank of a given hash: where the command line, the run's or the tasks' folders have it."""
    from lm_eval_adaptive.core.calibration import refit
    from lm_eval_adaptive.harness.run import tasks_folder

    named: list[Path] = []
    folders = [folder, tasks_folder()]
    option = ""
    for word in words:
        if word.startswith("--"):
            option, _, word = word.partition("=")  # noqa: PLW2901  both spellings of an option
        if option == "--bank" and word:
            named += [Path(word), Path(word.partition("=")[2] or word)]
        elif option == "--include_path" and word:
            folders.append(Path(word))
        elif option == "--tasks" and word.endswith((".yaml", ".yml")):
            folders.append(Path(word).parent)
    tried = [each for path in named for each in (path, folder / path)]
    tried += [path for each in folders for path in sorted(each.glob("*.parquet"))]
    tried += [path for each in folders for path in sorted(each.glob("*/*.parquet"))]
    for path in tried:
        if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256:
            return refit(ItemBank.load(path), response_model), []
    return None, [
        f"The run's bank (sha256 {sha256[:12]}) was not found, so there is no map of its items."
    ]


def _read_samples(
    folder: Path, ranking: Mapping[str, Any], names: Sequence[str]
) -> dict[str, dict[int, dict[str, Any]]]:
    """The samples logged with a ranking, by model and document id."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    prefix, date = f"samples_{ranking['task']}_", str(ranking.get("date", "9"))
    for name in names:
        files = sorted((folder / folder_name(name)).glob(f"{prefix}[0-9]*.jsonl"))
        files = [path for path in files if path.stem[len(prefix) :] <= date]
        if not files:
            continue
        mine = found.setdefault(name, {})
        with files[-1].open(encoding="utf-8") as lines:
            for line in lines:
                try:
                    sample = json.loads(line)
                except ValueError:  # a file that was cut off: what is whole is shown
                    break
                if sample.get("filter", ranking["filter"]) == ranking["filter"]:
                    mine[int(sample["doc_id"])] = sample
    return found


class _JournalledSession:
    """What the fold and the ranking document need of a session, from a journal and a bank alone.

    A run in progress is shown without loading its task, whose data may be far away or changing.
    Documents are taken to have the ids they had in calibration; :func:`_ids_agree` checks it.
    """

    def __init__(self, bank: ItemBank, header: Mapping[str, Any], task: str, repeats: int) -> None:
        from lm_eval_adaptive.core.procedure import Procedure

        self.bank = bank
        self.docs = SimpleNamespace(name=task)
        self.adaptive = AdaptiveConfig(**header["adaptive"])
        self.specs = [CandidateSpec(**each) for _, each in sorted(header["models"].items())]
        self.names = [spec.name for spec in self.specs]
        self.metric, self.filter = bank.info.metric, bank.info.filter
        self.scale = bank.info.scale
        self.doc_ids = bank.doc_id
        self.item_of = {int(doc): item for item, doc in enumerate(bank.doc_id)}
        self.notices: list[str] = []
        self.recipe = header["tasks"][task]["signature"]
        self.procedure = Procedure(
            bank,
            [spec.cost * repeats for spec in self.specs],
            self.adaptive.procedure(self.scale.width, 1, 0),
        )

    def start(self) -> RunState:
        """No answers yet."""
        return self.procedure.start()


def _ids_agree(bank: ItemBank, answers: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the journal's document ids are those of the bank, as far as prompts can tell."""
    item_of = {int(doc): item for item, doc in enumerate(bank.doc_id)}
    if any(int(record["doc_id"]) not in item_of for record in answers):
        return False
    row_of = {prompt: row for row, prompt in enumerate(bank.prompt_hash) if prompt}
    return all(
        row_of.get(record["prompt_hash"], item_of[int(record["doc_id"])])
        == item_of[int(record["doc_id"])]
        for record in answers
    )


def _unfinished_view(folder: Path, records: Sequence[dict[str, Any]], task: str) -> TaskView:
    """What a journal tells of a task that has no ranking yet."""
    from lm_eval_adaptive.harness.outputs import ranking_document, run_warnings
    from lm_eval_adaptive.harness.session import Fold

    header = records[0]["config"]
    mine = [record for record in records[1:] if record.get("task") == task]
    answers = [record for record in mine if record["type"] == "answer"]
    words = list(records[0].get("command") or [])
    about = header["tasks"][task]
    bank, notes = _find_bank(
        about["bank_sha256"], str(header["adaptive"].get("response_model", "auto")), folder, words
    )
    command = _command(words)
    if bank is not None and not _ids_agree(bank, answers):
        bank = None
        notes.append(
            "The documents' ids are not those of the bank, so nothing is estimated before the run "
            "has finished."
        )
    if bank is not None:
        repeats = max((len(record["resps"]) for record in answers), default=1) or 1
        try:
            held = _JournalledSession(bank, header, task, repeats)
        except (AdaptiveError, TypeError) as error:  # options of another version
            notes.append(f"The run's state could not be rebuilt: {error}")
        else:
            session = cast("Session", held)
            fold: Fold = Fold(session)
            for record in mine:
                fold.take(record)
            candidates = [cast("Candidate", SimpleNamespace(spec=spec)) for spec in held.specs]
            ranking = ranking_document(session, fold, candidates, run_warnings(session, fold))
            ranking["versions"] = header.get("versions", ranking["versions"])
            return TaskView(ranking, bank, answers, {}, command, True, tuple(notes))
    return TaskView(
        _journal_document(header, mine, task), None, answers, {}, command, True, tuple(notes)
    )


def _journal_document(
    header: Mapping[str, Any], records: Sequence[Mapping[str, Any]], task: str
) -> dict[str, Any]:
    """A ranking document without estimates: what the journal alone tells."""
    recipe = header["tasks"][task]["signature"]
    parts = dict(part.partition(":")[::2] for part in recipe.split("|"))
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        kinds.setdefault(record["type"], []).append(record)
    models = sorted(header["models"].items())
    answers = kinds.get("answer", [])
    items_full = len(models) * int(header["tasks"][task]["documents"])
    cost = {name: float(spec.get("cost", 1.0)) for name, spec in models}
    return {
        "task": task,
        "metric": parts.get("metric", ""),
        "filter": parts.get("filter", ""),
        "higher_is_better": None,
        "bank": {"path": "", "sha256": header["tasks"][task]["bank_sha256"], "models": []},
        "config": {"adaptive": header["adaptive"], "models": [spec for _, spec in models]},
        "signature": recipe,
        "versions": header.get("versions", {}),
        "ranking": [],
        "pairs": [],
        "stop_reason": "".join(record["stop_reason"] for record in kinds.get("end", [])[-1:]),
        "items_total": len(answers),
        "items_full": items_full,
        "fraction": len(answers) / items_full if items_full else 0.0,
        "cost_total": sum(cost[record["model"]] for record in answers),
        "cost_full": sum(cost.values()) * int(header["tasks"][task]["documents"]),
        "excluded": [
            {"doc_id": record["doc_id"], "reason": record["reason"]}
            for record in kinds.get("excluded", [])
        ],
        "warnings": [],
        "trace": [],
    }


# ------------------------------------------------------------------------------ numbers and escape


def _e(value: object) -> str:
    """Text as HTML shows it, for content and for quoted attributes."""
    return html.escape(str(value), quote=True)


def _num(value: float | None, digits: int = 4) -> str:
    return "–" if value is None or not math.isfinite(value) else f"{value:.{digits}g}"


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def _cut(text: str, length: int, *, keep_end: bool = False) -> str:
    """At most ``length`` characters, saying how many are left out."""
    if len(text) <= length:
        return text
    left = f"[… {len(text) - length} characters left out …]"
    return f"{left}\n{text[-length:]}" if keep_end else f"{text[:length]}\n{left}"


class _Axis:
    """A linear axis with round ticks.

    Args:
        lo: Low end, data units.
        hi: High end.
        count: About how many ticks.
    """

    def __init__(self, lo: float, hi: float, count: int = 5) -> None:
        if hi - lo < 1e-12 * max(1.0, abs(lo)):
            lo, hi = lo - 0.5, hi + 0.5
        self.lo, self.hi = lo, hi
        rough = (hi - lo) / count
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(each for each in (1, 2, 2.5, 5, 10) if each * power >= rough * 0.999) * power
        first, last = math.ceil(lo / step - 1e-9), math.floor(hi / step + 1e-9)
        self.ticks = [round(each * step, 12) for each in range(first, last + 1)]

    def at(self, value: float) -> float:
        """Place of a value in percent of the axis, clipped to it."""
        share = (value - self.lo) / (self.hi - self.lo)
        return round(100.0 * min(max(share, 0.0), 1.0), 2)


def _table(head: Sequence[str], rows: Iterable[Sequence[object]], kind: str = "") -> str:
    """A table; cells that are numbers or end in a percent sign stand right."""

    def cell(value: object) -> str:
        text = str(value)
        number = len(text) < 24 and text[:1] in tuple("0123456789+-−–")
        return f"<td{' class=n' if number else ''}>{_e(text)}</td>"

    body = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows)
    top = "".join(f'<th scope="col">{_e(name)}</th>' for name in head)
    return (
        f'<div class="wide"><table class="{kind}"><thead><tr>{top}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _fold_away(summary: str, inside: str) -> str:
    return f"<details><summary>{_e(summary)}</summary>{inside}</details>"


def _section(prefix: str, name: str, title: str, words: str, inside: str) -> str:
    return (
        f'<section id="{prefix}{name}"><h2>{_e(title)}</h2>'
        f'<p class="words">{_e(words)}</p>{inside}</section>'
    )


# ------------------------------------------------------------------------------------- the pieces


def _headline(view: TaskView) -> str:
    ranking = view.ranking
    asked = f"{ranking['items_total']} items asked, {_share(ranking['fraction'])} of a full run"
    if not ranking["ranking"]:
        return f"{asked}; no estimate yet."
    if view.unfinished:
        return sentence({**ranking, "stop_reason": "not yet"})
    return sentence(dict(ranking))


def _headline_html(view: TaskView) -> str:
    """The sentence; where many models make it long, a short one with the long one folded away."""
    full = _headline(view)
    if len(full) <= HEADLINE_CHARS:
        return f'<p class="headline">{_e(full)}</p>'
    ranking = view.ranking
    told = sum(pair["verdict"] in ("a", "b") for pair in ranking["pairs"])
    first = ranking["ranking"][0]
    tied = f", not told apart from {len(first['tied_with'])} other(s)" if first["tied_with"] else ""
    short = (
        f"{first['model']} stands first{tied}; {told} of {len(ranking['pairs'])} pairs are told "
        f"apart with {ranking['config']['adaptive']['confidence']:.0%} confidence each; "
        f"{ranking['items_total']} items asked, {_share(ranking['fraction'])} of a full run."
    )
    return f'<p class="headline">{_e(short)}</p>{_fold_away("All pairs in words", _para(full))}'


def _para(text: str) -> str:
    return f"<p>{_e(text)}</p>"


def _facts(view: TaskView) -> str:
    ranking = view.ranking
    needed = [pair for pair in ranking["pairs"] if pair.get("required", True)]
    decided = sum(pair["verdict"] != "undecided" for pair in needed)
    reason = ranking["stop_reason"]
    facts = [
        ("items asked", f"{ranking['items_total']}", f"of {ranking['items_full']} in a full run"),
        (
            "share of a full run",
            _share(ranking["fraction"]),
            f"cost {_num(ranking['cost_total'])} of {_num(ranking['cost_full'])}",
        ),
    ]
    if needed:
        facts.append(("pairs decided", f"{decided} of {len(needed)}", "of those that had to be"))
    facts.append(
        ("stopped", reason or "not yet", STOP_WORDS.get(reason, "") if reason else "unfinished")
    )
    cards = "".join(
        f"<div><dt>{_e(name)}</dt><dd>{_e(value)}</dd><dd class=s>{_e(more)}</dd></div>"
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
    axis = _Axis(low - pad, high + pad)
    grid = "".join(f'<i class="g" style="left:{axis.at(tick)}%"></i>' for tick in axis.ticks)
    rows = []
    for entry in entries:
        lo, hi = entry["score_ci"]
        interval = f"{_num(lo)} – {_num(hi)}"
        tied = ", ".join(entry["tied_with"])
        tip = f"{entry['model']}: {_num(entry['score'])}, 95 % interval {interval}"
        left, right = axis.at(lo), axis.at(hi)
        tie = f'<span class="s">not told apart from {_e(tied)}</span>' if tied else ""
        rows.append(
            f'<li title="{_e(tip)}"><span class="name"><b>{entry["rank"]}</b> '
            f"{_e(entry['model'])}{tie}</span>"
            f'<span class="bar">{grid}<i class="ci" style="left:{left}%;width:{right - left:.2f}%">'
            f'</i><i class="dot" style="left:{axis.at(entry["score"])}%"></i></span>'
            f'<span class="val"><b>{_num(entry["score"])}</b> '
            f'<span class="s">{interval}</span></span></li>'
        )
    ticks = "".join(f'<span style="left:{axis.at(tick)}%">{tick:g}</span>' for tick in axis.ticks)
    label = f"{ranking['metric']}, {_direction(ranking)}"
    plot = (
        f'<ol class="forest" data-plot="forest">{"".join(rows)}'
        f'<li class="axis" aria-hidden="true"><span class="name"></span><span class="bar">{ticks}'
        f'</span><span class="val s">{_e(label)}</span></li></ol>'
    )
    head = ("rank", "model", "score", "error", "95 % low", "95 % high", "ability", "items", "cost")
    table = _table(
        head,
        (
            (
                entry["rank"],
                entry["model"],
                _num(entry["score"]),
                _num(entry["score_se"], 2),
                _num(entry["score_ci"][0]),
                _num(entry["score_ci"][1]),
                f"{_num(entry['ability'], 3)} ± {_num(entry['ability_se'], 2)}",
                entry["items"],
                _num(entry["cost"]),
            )
            for entry in entries
        ),
    )
    words = (
        f"Dots are the estimated {ranking['metric']} on the whole benchmark "
        f"({_direction(ranking)}), bars hold it with 95 % confidence. Bars may overlap "
        "although a pair is decided: what counts is the next picture."
    )
    return _section(prefix, "ranking", "Ranking", words, plot + _fold_away("As a table", table))


def _plain_means(view: TaskView, prefix: str) -> str:
    """Without a bank there is no estimate: answers and plain means, with the caveat."""
    rows = []
    for spec in view.ranking["config"]["models"]:
        mine = [each for each in view.answers if each["model"] == spec["name"]]
        raw = [each["raw_score"] for each in mine if each["raw_score"] is not None]
        rows.append((spec["name"], len(mine), _num(float(np.mean(raw)) if raw else None)))
    words = (
        "Without its bank nothing can be estimated. The plain means below are over the documents "
        "that were chosen for each model: they are biased, differ in what was asked, and say "
        "nothing about the order of the models."
    )
    name = f"plain mean of {view.ranking['metric']}, chosen documents only"
    return _section(prefix, "ranking", "So far", words, _table(("model", "answers", name), rows))


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
        return f'<td class="{kind} {state}" title="{_e(tip)}">{_e(text)}{mark}</td>'

    names = [entry["model"] for entry in entries]
    top = "".join(
        f'<th scope="col" title="{_e(name)}">{place}</th>' for place, name in enumerate(names, 1)
    )
    body = "".join(
        f'<tr><th scope="row"><span>{place} {_e(name)}</span></th>'
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
    return _section(prefix, "pairs", "Which is better", words, inside)


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
    """Score and interval after every answer, by the posterior itself.

    None where they cannot be had, or do not end at the ranking's own numbers (another bank or other
    document ids): then the recorded abilities are drawn. Where the run widened its errors, the
    intervals are widened by the same factor, so that they end at the ranking's.
    """
    if view.bank is None or not view.answers:
        return None
    from lm_eval_adaptive.core.posterior import Posterior

    bank, scale = view.bank, view.bank.info.scale
    item_of = {int(doc): item for item, doc in enumerate(bank.doc_id)}
    posterior = Posterior(bank.parameters, bank.info.parameters)
    final = {entry["model"]: entry for entry in view.ranking["ranking"]}
    curves = {}
    for model, records in _valid_answers(view).items():
        if any(int(record["doc_id"]) not in item_of for record in records):
            return None
        steps = _thin(len(records))
        responses = np.full((len(steps), len(bank)), np.nan)
        for row, step in enumerate(steps):
            for record in records[: step + 1]:
                responses[row, item_of[int(record["doc_id"])]] = record["score"]
        if not steps:
            continue
        estimates = posterior.estimate(responses)
        middle = scale.to_raw(estimates.score)
        half = NORMAL_95 * estimates.score_se * scale.width
        if half[-1] > 0.0:
            half *= NORMAL_95 * final[model]["score_se"] / half[-1]
        if abs(middle[-1] - final[model]["score"]) > 1e-6 * scale.width:
            return None
        curves[model] = _Curve(
            [step + 1 for step in steps],
            middle.tolist(),
            np.clip(middle - half, scale.lo, scale.hi).tolist(),
            np.clip(middle + half, scale.lo, scale.hi).tolist(),
        )
    return curves


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


def _frame(inside: str, x: _Axis, y: _Axis, kind: str, label: str) -> str:
    """A plot area with grid and tick labels; labels are HTML, so they keep their size anywhere."""
    grid = "".join(
        f'<line x1="{x.at(t)}%" x2="{x.at(t)}%" y1="0" y2="100%" class="g"/>' for t in x.ticks
    )
    grid += "".join(
        f'<line y1="{100 - y.at(t):g}%" y2="{100 - y.at(t):g}%" x1="0" x2="100%" class="g"/>'
        for t in y.ticks
    )
    labels = "".join(f'<span class="x" style="left:{x.at(t)}%">{t:g}</span>' for t in x.ticks)
    labels += "".join(
        f'<span class="y" style="top:{100 - y.at(t):g}%">{t:g}</span>' for t in y.ticks
    )
    return (
        f'<div class="frame {kind}"><svg role="img" aria-label="{_e(label)}" width="100%" '
        f'height="100%">{grid}{inside}</svg><div aria-hidden="true">{labels}</div></div>'
    )


_STRETCHED = '<svg viewBox="0 0 1000 1000" preserveAspectRatio="none" width="100%" height="100%">'


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
    y = _Axis(min(low for low, _ in settled), max(high for _, high in settled), 4)
    x = _Axis(0, max(curve.items[-1] for curve in curves.values()), 4)

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
            f"{_num(curve.middle[-1])} ({_num(curve.low[-1])} to {_num(curve.high[-1])}) "
            f"after {curve.items[-1]} items"
        )
        inside = (
            f'{_STRETCHED}{others}<path class="band" d="M{"L".join(band)}Z"/>'
            f'<use href="#{prefix}c{number}" class="line"/></svg>'
        )
        inside += "".join(
            f'<circle class="hit" cx="{x.at(items)}%" cy="{100 - y.at(middle):g}%" r="5"><title>'
            f"{_e(model)} after {items} items: {_num(middle)} ({_num(low)} to {_num(high)})"
            "</title></circle>"
            for items, middle, low, high in zip(
                curve.items, curve.middle, curve.low, curve.high, strict=True
            )
        )
        label = f"{model}: {unit} against items asked, {last}"
        panels.append(
            f"<figure><figcaption>{_e(model)} <span class=s>{_e(last)}</span></figcaption>"
            f"{_frame(inside, x, y, 'small', label)}</figure>"
        )
        shown = sorted({0, *np.linspace(0, len(curve.items) - 1, 6).round().astype(int).tolist()})
        rows += [
            (
                model,
                curve.items[step],
                _num(curve.middle[step]),
                _num(curve.low[step]),
                _num(curve.high[step]),
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
    table = _table(("model", "items asked", unit, "95 % low", "95 % high"), rows)
    return _section(
        prefix,
        "curves",
        "How the estimates settled",
        words,
        inside + _fold_away("As a table", table),
    )


def _limits(values: Any, inside: Sequence[float]) -> tuple[float, float]:
    """Range of an axis: all but the outermost of many values, and some that must be seen."""
    low, high = (float(each) for each in np.percentile(values, [0.5, 99.5]))
    low, high = min([low, *inside]), max([high, *inside])
    pad = 0.04 * (high - low)
    return low - pad, high + pad


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
    x = _Axis(*_limits(b[drawn], [*b[asked].tolist(), *abilities]), 6)
    y = _Axis(*_limits(height[drawn], height[asked].tolist()), 5)
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
        raw = ", ".join(f"{each['model']} {_num(each['raw_score'], 3)}" for each in records[:12])
        where = f"doc {doc}: difficulty {b[item]:.2f}, {'r' if paper else 'a'} {height[item]:.2f}"
        text = f"{where}\n{raw}\n{excerpts.get(doc, '')}".strip()
        size = 3.0 + 3.0 * len(records) / most
        loud.append(
            f'<circle class="asked" cx="{left}%" cy="{top}%" r="{size:.1f}">'
            f"<title>{_e(text)}</title></circle>"
        )
        rows.append(
            (doc, f"{b[item]:.2f}", f"{height[item]:.2f}", len(records), excerpts.get(doc, ""))
        )
    marks = "".join(
        f'<line class="mark" x1="{x.at(entry["ability"])}%" x2="{x.at(entry["ability"])}%" y1="0" '
        f'y2="12"><title>{_e(entry["model"])}: ability {entry["ability"]:.2f}</title></line>'
        for entry in view.ranking["ranking"]
    )
    inside = f'{_STRETCHED}<path class="quiet" d="{"".join(quiet)}"/></svg>{"".join(loud)}{marks}'
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
    axes = f'<p class="s axes">across: difficulty, logits · upwards: {_e(name)}</p>'
    plot = f'<div data-plot="items">{_frame(inside, x, y, "large", label)}</div>{axes}'
    rows.sort(key=lambda row: row[0])
    head = ("document", "difficulty", name, "models asked", "excerpt")
    table = _fold_away("Asked items as a table", _table(head, rows))
    return _section(prefix, "items", "Map of the items", words, plot + table)


def _money(view: TaskView, prefix: str) -> str:
    ranking = view.ranking
    if not ranking["ranking"]:
        return ""
    chars: dict[str, list[int]] = {}
    for record in view.answers:
        mine = chars.setdefault(record["model"], [0, 0])
        mine[0] += int(record.get("prompt_chars", 0))
        mine[1] += int(record.get("answer_chars", 0))
    total = ranking["cost_total"] or 1.0
    full = ranking["bank"].get("items") or ranking["items_full"] / len(ranking["ranking"])
    top = max(entry["cost"] for entry in ranking["ranking"]) or 1.0
    rows, lines = [], []
    for entry in ranking["ranking"]:
        share = entry["cost"] / total
        read, written = chars.get(entry["model"], [0, 0])
        rows.append(
            f'<li title="{_e(entry["model"])}: {_share(share)} of the cost"><span class="name">'
            f'{_e(entry["model"])}</span><span class="bar"><i class="fill" style="width:'
            f'{100 * entry["cost"] / top:.1f}%"></i></span><span class="val"><b>'
            f'{_num(entry["cost"])}</b> <span class="s">{_share(share)}, {entry["items"]} items'
            "</span></span></li>"
        )
        lines.append(
            (
                entry["model"],
                entry["items"],
                _share(entry["items"] / full),
                _num(entry["cost"]),
                _share(share),
                f"{read:,}",
                f"{written:,}",
            )
        )
    head = ("model", "items", "of the bank", "cost", "of the total", "characters sent", "received")
    plot = f'<ol class="forest money" data-plot="money">{"".join(rows)}</ol>'
    words = (
        f"Cost {_num(ranking['cost_total'])} instead of {_num(ranking['cost_full'])} for a full "
        "run, in the unit of the models' costs (1 an item where none was given). Models in close "
        "pairs are asked more."
    )
    inside = plot + _fold_away("As a table", _table(head, lines))
    return _section(prefix, "cost", "Where the money went", words, inside)


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
                row = (model, record["doc_id"], _num(record["raw_score"]), _num(raw), f"{z:+.1f}")
                found.append((-abs(z), row))
    found.sort(key=lambda each: (each[0], str(each[1])))
    return [row for _, row in found]


def _warnings(view: TaskView, prefix: str) -> str:
    ranking = view.ranking
    listed = [*view.notes, *ranking["warnings"]]
    inside = "".join(f"<li>{_e(each)}</li>" for each in listed)
    inside = f'<ul class="warn">{inside}</ul>' if listed else "<p>No warnings.</p>"
    excluded = ranking.get("excluded", [])
    if excluded:
        rows = ((each["doc_id"], each["reason"]) for each in excluded)
        inside += "<h3>Documents left out for all models</h3>" + _table(("document", "why"), rows)
    surprises = _surprises(view)
    if surprises:
        head = ("model", "document", "score", "expected", "deviations")
        more = len(surprises) - SURPRISES_SHOWN
        inside += (
            "<h3>Answers the bank did not expect</h3><p class=words>Three standard deviations or "
            "more from what a model of this ability is expected to get on the document. A "
            "few are normal; many of one model say that the bank fits it badly (leaked documents, another prompt format, broken answers)."
            f"{f' {more} more are not shown.' if more > 0 else ''}</p>"
            f"{_table(head, surprises[:SURPRISES_SHOWN])}"
        )
    words = "What to know before trusting the numbers."
    return _section(prefix, "warnings", "Warnings and misfits", words, inside)


# ------------------------------------------------------------------------------------- documents


def _prompt(sample: Mapping[str, Any]) -> str:
    """The prompt text of a logged sample, whatever shape the harness gave its arguments."""
    found: Any = sample.get("arguments", "")
    while isinstance(found, dict | list) and found:
        found = next(iter(found.values())) if isinstance(found, dict) else found[0]
    return found if isinstance(found, str) else _text(found)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)


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
    return [_text(responses)]


def _documents(view: TaskView, prefix: str) -> str:
    """The documents on which models differ most, answers side by side."""
    order = [entry["model"] for entry in view.ranking["ranking"]] or [
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
        summary = f"doc {doc}: {len(held)} models, {_num(min(values), 3)} to {_num(max(values), 3)}"
        inside = ""
        if samples:
            same = len({_prompt(sample) for sample in samples}) == 1
            title = "Prompt" if same else "Prompt (of the best placed; the models' prompts differ)"
            prompt = _cut(_prompt(samples[0]), PROMPT_CHARS, keep_end=True)
            target = _cut(_text(samples[0].get("target", "")), TARGET_CHARS)
            inside += f"<h4>{title}</h4>{_pre(prompt)}<h4>Target</h4>{_pre(target)}"
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
            shown = "".join(_pre(_cut(text, length)) if text.strip() else empty for text in texts)
            cards.append(
                f"<article><h5>{_e(model)} <b>{_num(held[model]['raw_score'], 3)}</b></h5>"
                f"{shown}</article>"
            )
        inside += f'<h4>Answers</h4><div class="answers">{"".join(cards)}</div>'
        is_open = " open" if place == 0 else ""
        blocks.append(
            f'<details class="doc"{is_open}><summary>{_e(summary)}</summary>{inside}</details>'
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
    return _section(prefix, "documents", "Where the models differ most", words, inside)


def _pre(text: str) -> str:
    return f'<pre dir="auto">{_e(text)}</pre>'


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
    inside = "".join(f"<h3>{_e(name)}</h3>{_pre(value)}" for name, value in parts)
    inside += _fold_away("All options", _pre(_text(_without_secrets(ranking["config"]))))
    words = (
        "The same bank, models' answers, options and seed give the same ranking; the signature "
        "names what has to be equal."
    )
    return _section(prefix, "repeat", "To repeat it", words, inside)


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
    rows = "".join(f"<dt>{_e(name)}</dt><dd>{_e(text)}</dd>" for name, text in facts.items())
    return (
        f'<section id="read"><h2>How to read this page</h2><dl class="read">{rows}</dl></section>'
    )


# ------------------------------------------------------------------------------------------- page


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
        f'<header id="{prefix}top"><h1>{_e(ranking["task"])}</h1><p class="s">{_e(about)}{_e(date)}'
        f"</p>{banner}{_headline_html(view)}{_facts(view)}</header>"
    )
    parts = (_forest, _matrix, _curves, _item_map, _money, _warnings, _documents, _repeat)
    return head + "".join(part(view, prefix) for part in parts)


def render_page(views: Sequence[TaskView]) -> str:
    """The page of one or several tasks."""
    bodies = [_task_body(view, f"t{number}-") for number, view in enumerate(views, 1)]
    names = [str(view.ranking["task"]) for view in views]
    links = "".join(
        f'<a href="#t{number}-top">{_e(name)}</a>' for number, name in enumerate(names, 1)
    )
    nav = f"<nav>{links}</nav>" if len(views) > 1 else ""
    digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{_e(', '.join(names))}: adaptive ranking</title><style>{_STYLE}</style></head>"
        f"<body><main>{nav}{''.join(bodies)}{_how_to_read()}</main>"
        f"<script>{_SCRIPT}</script></body></html>\n"
    )


_STYLE = """
:root{--bg:#fff;--fg:#1c2128;--soft:#5b6470;--line:#d8dde3;--card:#f5f7f9;--hue:31 90 196;
--bad:176 58 20;--warn:#fff4d6;--warnline:#d9a400}
@media (prefers-color-scheme:dark){:root{--bg:#14171b;--fg:#e4e8ec;--soft:#9aa5b1;--line:#343b44;
--card:#1d2228;--hue:122 168 255;--bad:255 140 92;--warn:#3a3013;--warnline:#b98f1a}}
@media print{:root{--bg:#fff;--fg:#000;--soft:#444;--line:#bbb;--card:#fff;--hue:31 90 196;
--bad:176 58 20;--warn:#fff;--warnline:#888}body{font-size:10pt}section,figure,li,article
{break-inside:avoid}#tip{display:none}nav{display:none}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,sans-serif}
main{max-width:66rem;margin:0 auto;padding:1rem}
h1,h2,h3,h4,h5,p,dd,summary,.name,figcaption,li{overflow-wrap:anywhere}
td,th{overflow-wrap:break-word;max-width:24rem}
h1{font-size:1.6rem;line-height:1.2;margin:.5rem 0 0}
h2{font-size:1.25rem;margin:2.5rem 0 .25rem}
h3{font-size:1rem;margin:1.25rem 0 .25rem}
h4,h5{font-size:.9rem;margin:1rem 0 .25rem}
header+section h2{margin-top:1.5rem}
header~header{border-top:3px solid var(--line);margin-top:3rem;padding-top:1rem}
nav a{margin-right:1rem}a{color:rgb(var(--hue))}
.s{color:var(--soft);font-size:.85rem}
.words{color:var(--soft);margin:0 0 .75rem;max-width:46rem}
.headline{font-size:1.1rem;max-width:52rem}
.banner,.warn{background:var(--warn);border-left:4px solid var(--warnline);margin:.75rem 0}
.banner{padding:.5rem .75rem}.warn{padding:.5rem .75rem .5rem 2rem}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr));gap:.6rem;margin:0}
.facts div{background:var(--card);border:1px solid var(--line);border-radius:6px;padding:.6rem}
.facts dt{color:var(--soft);font-size:.85rem}.facts dd{margin:0;font-size:1.25rem}
.facts dd.s{font-size:.85rem}
.forest{list-style:none;padding:0;margin:0}
.forest li{display:grid;grid-template-columns:minmax(8rem,16rem) minmax(0,1fr) 12rem;
gap:0 1rem;align-items:center;padding:.3rem 0;border-bottom:1px solid var(--line)}
.forest .name .s{display:block}
.forest .bar{position:relative;height:1.5rem;display:block;margin:0 .5rem}
.forest .axis{border:0}.forest .axis .bar span{position:absolute;transform:translateX(-50%);
font-size:.8rem;color:var(--soft)}
.bar i{position:absolute;display:block}
.bar .g{top:-.3rem;bottom:-.3rem;width:1px;background:var(--line)}
.bar .ci{top:50%;height:4px;margin-top:-2px;background:rgb(var(--hue)/.55);border-radius:2px;
min-width:2px;print-color-adjust:exact}
.bar .dot{top:50%;width:12px;height:12px;margin:-6px;border-radius:50%;background:rgb(var(--hue));
print-color-adjust:exact}
.bar .fill{top:.25rem;bottom:.25rem;left:0;background:rgb(var(--hue)/.7);border-radius:2px;
print-color-adjust:exact}
.val b{font-variant-numeric:tabular-nums}
.wide{overflow-x:auto;max-width:100%}
table{border-collapse:collapse;font-size:.9rem}
th,td{padding:.25rem .6rem;text-align:left;border-bottom:1px solid var(--line);vertical-align:top}
td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.matrix td,.matrix thead th{text-align:center;min-width:2.6rem;padding:.35rem .2rem;
font-variant-numeric:tabular-nums;border:1px solid var(--bg);print-color-adjust:exact}
.matrix tbody th{font-weight:400;position:sticky;left:0;background:var(--bg)}
.matrix tbody th span{display:block;max-width:16rem;min-width:6rem}
.matrix .undecided{font-style:italic;outline:2px dashed var(--soft);outline-offset:-3px}
.w0{background:rgb(var(--hue)/.04)}.w1{background:rgb(var(--hue)/.12)}
.w2{background:rgb(var(--hue)/.2)}.w3{background:rgb(var(--hue)/.28)}
.w4{background:rgb(var(--hue)/.38)}.l0{background:rgb(var(--bad)/.04)}
.l1{background:rgb(var(--bad)/.1)}.l2{background:rgb(var(--bad)/.16)}
.l3{background:rgb(var(--bad)/.22)}.l4{background:rgb(var(--bad)/.3)}
.defs{position:absolute}
.panels{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,19rem),1fr));
gap:1rem 1.5rem}
figure{margin:0;min-width:0}figcaption{font-size:.9rem;font-weight:600;margin-bottom:.4rem}
figcaption .s{font-weight:400;display:block}
.frame{position:relative;margin:0 .6rem 1.6rem 2.8rem;border:1px solid var(--line)}
.frame.small{height:10rem}.frame.large{height:26rem}
.frame svg{display:block;overflow:visible}
.frame span{position:absolute;font-size:.75rem;color:var(--soft)}
.frame .x{top:100%;transform:translateX(-50%);padding-top:.1rem}
.frame .y{right:100%;transform:translateY(-50%);padding-right:.3rem}
line.g{stroke:var(--line);stroke-width:1}
path{fill:none}
.other{stroke:var(--soft);stroke-width:1;opacity:.35}
.line{stroke:rgb(var(--hue));stroke-width:2}
path,.other,.line{vector-effect:non-scaling-stroke}
.band{fill:rgb(var(--hue)/.2);print-color-adjust:exact}
.hit{fill:transparent}.hit:hover{fill:rgb(var(--hue))}
.quiet{stroke:var(--soft);stroke-width:4;stroke-linecap:round;opacity:.4}
.asked{fill:rgb(var(--hue)/.65);stroke:var(--bg);stroke-width:1;print-color-adjust:exact}
.asked:hover{fill:rgb(var(--bad))}
.mark{stroke:rgb(var(--bad));stroke-width:3}
.axes{margin:0 0 .5rem 2.8rem}
details{margin:.6rem 0}summary{cursor:pointer;color:rgb(var(--hue))}
details.doc{border:1px solid var(--line);border-radius:6px;padding:.4rem .75rem}
pre{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--card);border:1px solid var(--line);
border-radius:4px;padding:.5rem;margin:.25rem 0;max-height:24rem;overflow-y:auto;
font:.85rem/1.45 ui-monospace,monospace;unicode-bidi:isolate}
.answers{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,18rem),1fr));
gap:.5rem 1rem}
article{min-width:0}article h5{display:flex;justify-content:space-between;gap:1rem;margin:.25rem 0}
article h5 b{white-space:nowrap}
.read dt{font-weight:600}.read dd{margin:0 0 .5rem}
#tip{position:fixed;z-index:9;max-width:min(24rem,90vw);background:var(--fg);color:var(--bg);
padding:.35rem .6rem;border-radius:4px;font-size:.85rem;white-space:pre-line;
overflow-wrap:anywhere;pointer-events:none}
@media (max-width:640px){main{padding:.75rem}h1{font-size:1.35rem}
.forest li{grid-template-columns:minmax(0,1fr) max-content}
.forest .bar{grid-row:2;grid-column:1/3}.forest .val .s{display:block}
.forest .val{text-align:right}.forest .axis .val{grid-row:3;grid-column:1/3}
.forest .axis .name{display:none}.frame.large{height:20rem}
.matrix tbody th span{max-width:7.5rem;font-size:.8rem;line-height:1.2;word-break:break-all}
.matrix td,.matrix thead th{min-width:2.1rem;font-size:.8rem}}
@media print{pre{max-height:none;overflow:visible}}
"""

# Written without < and &, so that the script's text is the same to every parser.
_SCRIPT = """
(function () {
  "use strict";
  var root = document.documentElement, mark = root.dataset;
  mark.errors = "0";
  window.addEventListener("error", function () { mark.errors = String(Number(mark.errors) + 1); });
  document.addEventListener("securitypolicyviolation", function (event) {
    mark.blocked = event.violatedDirective;
  });
  document.querySelectorAll("svg title").forEach(function (title) {
    var owner = title.parentNode;
    owner.setAttribute("data-tip", title.textContent);
    title.remove();
  });
  document.querySelectorAll("[title]").forEach(function (owner) {
    owner.setAttribute("data-tip", owner.getAttribute("title"));
    owner.removeAttribute("title");
  });
  var tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  document.body.appendChild(tip);
  function show(event) {
    var owner = event.target.closest ? event.target.closest("[data-tip]") : null;
    tip.hidden = !owner;
    if (!owner) { return; }
    tip.textContent = owner.getAttribute("data-tip");
    var left = Math.min(event.clientX + 12, root.clientWidth - tip.offsetWidth - 4);
    var below = event.clientY + 16;
    var over = below + tip.offsetHeight > window.innerHeight;
    tip.style.left = Math.max(4, left) + "px";
    tip.style.top = (over ? Math.max(4, event.clientY - tip.offsetHeight - 10) : below) + "px";
  }
  document.addEventListener("pointermove", show);
  document.addEventListener("pointerdown", show);
  window.addEventListener("scroll", function () { tip.hidden = true; }, { passive: true });
  window.addEventListener("beforeprint", function () {
    document.querySelectorAll("details").forEach(function (each) { each.open = true; });
  });
  mark.ready = "1";
})();
"""
