"""What a person sees in the terminal when a run is over, and of a bank.

This module owns text and tables on standard output, and the sentence to quote; it imports rich
inside functions and reads the ranking document. It decides nothing.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from lm_eval_adaptive.report.live import bare_names, printable, score_text, short_names
from lm_eval_adaptive.report.live import share as percent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.records.outcome import RunOutcome
    from lm_eval_adaptive.records.ranking import Entry, PairVerdict, RankingDocument

TOLD_IN_FULL = 4  # models, up to which the sentence tells every pair
SHORT_NAME = 12  # columns that a shortened name gets at least


def _console() -> Any:
    from rich.console import Console

    # Names of models, tasks and metrics are the users' own: nothing in them is markup.
    return Console(soft_wrap=False, markup=False, highlight=False, emoji=False)


def show_outcome(outcome: RunOutcome, console: Any = None) -> None:
    """Print each task's table, ranking and sentence, and name the files.

    Args:
        outcome: What a run found.
        console: A rich console; default: standard output.
    """
    console = console or _console()
    for task in outcome.tasks.values():
        _line(console, harness_table(task.ranking, task.results, console.width))
        console.print()
        _show_ranking(console, task.ranking)
        for further in task.ranking.further:
            _show_ranking(console, further)
        _show_files(console, outcome, task.files)
    _show_summary(console, outcome)


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


def groups_of(ranking: RankingDocument) -> list[list[str]]:
    """Models in ranking order, in groups: every model beats all of the groups below its own.

    Within a group some pairs may be decided as well: ties are not transitive, A and B and likewise
    B and C may be undecided while A beats C.
    """
    names = ranking.names
    tied = {entry.model: set(entry.tied_with) for entry in ranking.ranking}
    groups: list[list[str]] = []
    reach = -1  # the last place that a tie of the group so far leads to
    for place, name in enumerate(names):
        if place > reach:
            groups.append([])
        groups[-1].append(name)
        reach = max([reach, place, *(at for at, each in enumerate(names) if each in tied[name])])
    return groups


def possible_ranks(ranking: RankingDocument) -> dict[str, tuple[int, int]]:
    """Best and worst rank that the verdicts leave to each model."""
    names = ranking.names
    better = dict.fromkeys(names, 0)  # models that certainly stand above
    worse = dict.fromkeys(names, 0)
    for winner, loser in _decided(ranking):
        better[loser] += 1
        worse[winner] += 1
    return {name: (better[name] + 1, len(names) - worse[name]) for name in names}


def _pairs(ranking: RankingDocument) -> list[PairVerdict]:
    """Pairs of models that are in the ranking."""
    names = set(ranking.names)
    return [pair for pair in ranking.pairs if pair.a in names and pair.b in names]


def _decided(ranking: RankingDocument) -> list[tuple[str, str]]:
    """Decided pairs as (winner, loser)."""
    return [pair.winner_and_loser for pair in _pairs(ranking) if pair.decided]


def _show_ranking(console: Any, ranking: RankingDocument) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    arrow = "↑" if ranking.higher_is_better else "↓"
    title = f"{ranking.task}: {ranking.metric} {arrow}"
    if ranking.filter != "none":
        title = f"{title} ({ranking.filter})"
    priced = any(entry.cost != entry.items for entry in ranking.ranking)
    table = Table(title=Text(printable(title)), title_justify="left", box=box.HORIZONTALS)
    table.add_column("rank", justify="right", no_wrap=True)
    table.add_column("model", overflow="fold")
    for name in ("score", "95 % interval", "items", *(["cost"] if priced else [])):
        table.add_column(name, justify="right", no_wrap=True)
    groups, ranks = groups_of(ranking), possible_ranks(ranking)
    tied = any(len(group) > 1 for group in groups)
    # Lines stand around ties; between models that are all told apart they would say nothing.
    ends = {a[-1] for a, b in pairwise(groups) if max(len(a), len(b)) > 1}
    names = ranking.names
    labels = dict(zip(names, bare_names(names), strict=True))
    fits = max(map(len, names), default=0) <= console.width - (60 if priced else 50)
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
            end_section=entry.model in ends,
        )
    console.print(table)
    if tied:
        _prose(
            console,
            "2–3: any of these ranks is possible; all models above a line beat all below it",
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


def expected_wrong(ranking: RankingDocument) -> str:
    """How many of the decided pairs are expected to be wrong: the sum of 1 - P; "" without any."""
    chances = [
        1.0 - pair.p_a_better if pair.verdict == "a" else pair.p_a_better
        for pair in _pairs(ranking)
        if pair.decided
    ]
    if not chances:
        return ""
    total = sum(chances)
    count = f"{total:.2f}" if total >= 0.005 else "fewer than 0.01"
    pairs = "pair" if len(chances) == 1 else "pairs"
    told = f"{len(chances)} decided {pairs}, of which {count} are expected to be wrong"
    if ranking.bank.response_model == "paired":  # it assumes nothing of them
        return told
    return f"{told}, where the models are like those the bank was calibrated on"


def sentence(ranking: RankingDocument, labels: Mapping[str, str] | None = None) -> str:
    """What a person would quote of a ranking.

    Up to four models every pair is told; of more, where the first one stands and how many pairs are
    decided.

    Args:
        ranking: A ranking document.
        labels: What to call models, where it is not by their names.
    """
    entries = ranking.ranking
    labels = labels or {entry.model: entry.model for entry in entries}
    parts = []
    if len(entries) == 1:
        entry = entries[0]
        low, high = (f"{each:.4g}" for each in entry.score_ci)
        score = score_text(entry.score, entry.score_se)
        parts.append(f"{labels[entry.model]} scores {score} (95 % interval {low} to {high})")
    elif 1 < len(entries) <= TOLD_IN_FULL:
        parts += _every_pair(ranking, labels)
    elif entries:
        parts += _the_first(ranking, labels)
    asked = f"{ranking.items_total} items asked"
    needed = f"{asked}, {percent(ranking.fraction)} of the answers a full run needs"
    if ranking.cost_total != ranking.items_total:
        needed += f", cost {ranking.cost_total:.3g} of {ranking.cost_full:.3g}"
    return f"{'; '.join([*parts, needed])} (stopped: {ranking.stop_reason})."


def _level(ranking: RankingDocument) -> str:
    """The level of a verdict, in words."""
    level = f"{100.0 * ranking.config.confidence:.4g} % confidence"
    if ranking.config.correction == "holm":
        return f"{level} for all required pairs together"
    several = sum(pair.decided for pair in _pairs(ranking)) > 1
    return f"{level} each" if several else level


def _every_pair(ranking: RankingDocument, labels: Mapping[str, str]) -> list[str]:
    beaten: dict[str, list[str]] = {}
    for winner, loser in _decided(ranking):
        beaten.setdefault(labels[winner], []).append(labels[loser])
    told = [f"{winner} beats {_listed(losers)}" for winner, losers in beaten.items()]
    parts = []
    if told:
        parts.append(f"{'; '.join(told)} with {_level(ranking)}")
    for verdict in ("equivalent", "undecided"):
        alike = [(pair.a, pair.b) for pair in _pairs(ranking) if pair.verdict == verdict]
        if alike:
            sets = _cliques(alike, ranking.names)
            groups = [_listed([labels[name] for name in each]) for each in sets]
            parts.append(f"{', '.join(groups)} are {verdict}")
    parts[-1] += f" after {_items(ranking)}"
    return parts


def _the_first(ranking: RankingDocument, labels: Mapping[str, str]) -> list[str]:
    first, *others = ranking.ranking
    name, tied = labels[first.model], [labels[each] for each in first.tied_with]
    behind = len(others) - len(tied)
    if not tied:
        stands = f"{name} beats all {len(others)} others"
    elif len(tied) <= 3:
        stands = f"{name} is not told apart from {_listed(tied)}"
    else:
        stands = f"{name} stands first but is not told apart from {len(tied)} others"
    if tied and behind:
        stands += f" and beats the other {behind}" if behind > 1 else " and beats the other one"
    pairs = _pairs(ranking)
    counts = {
        verdict: sum(pair.verdict in verdicts for pair in pairs)
        for verdict, verdicts in (
            ("decided", ("a", "b")),
            ("equivalent", ("equivalent",)),
            ("undecided", ("undecided",)),
        )
    }
    told = f"{counts['decided']} of {len(pairs)} pairs are decided with {_level(ranking)}"
    rest = [f"{counts[word]} {word}" for word in ("equivalent", "undecided") if counts[word]]
    return [stands, ", ".join([told, *rest]) + f" after {_items(ranking)}"]


def _cliques(pairs: Sequence[tuple[str, str]], order: Sequence[str]) -> list[list[str]]:
    """Sets of models of which every two are among the pairs, in ranking order.

    >>> _cliques([("a", "b"), ("a", "c"), ("b", "c"), ("c", "d")], ["a", "b", "c", "d"])
    [['a', 'b', 'c'], ['c', 'd']]
    """
    alike = {frozenset(pair) for pair in pairs}
    found: list[list[str]] = []
    for start, name in enumerate(order):
        group = [name]
        for other in order[start + 1 :]:
            if all(frozenset((other, each)) in alike for each in group):
                group.append(other)
        if len(group) > 1 and not any(set(group) <= set(each) for each in found):
            found.append(group)
    covered = {frozenset((a, b)) for group in found for a in group for b in group if a != b}
    return found + [[a, b] for a, b in pairs if frozenset((a, b)) not in covered]


def _items(ranking: RankingDocument) -> str:
    """How many items the models were asked."""
    counts = [entry.items for entry in ranking.ranking if not entry.known] or [0]
    if min(counts) == max(counts):
        return f"{counts[0]} items a model"
    return f"{min(counts)} to {max(counts)} items a model"


def _listed(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]}"


def bank_as_json(bank: ItemBank) -> dict[str, Any]:
    """A bank as plain data: its information and one mapping per item."""
    from lm_eval_adaptive.core.bank_info import info_to_json

    def number(value: float) -> float | None:
        return None if not np.isfinite(value) else float(value)

    return {
        "path": bank.path,
        "sha256": bank.sha256,
        "info": info_to_json(bank.info),
        "items": [
            {
                "doc_id": int(bank.doc_id[row]),
                "content_hash": bank.content_hash[row],
                "difficulty": float(bank.parameters.difficulty[row]),
                "difficulty_se": float(np.sqrt(bank.parameters.covariance[row, 0, 0])),
                "discrimination": float(bank.parameters.discrimination[row]),
                "discrimination_se": float(np.sqrt(bank.parameters.covariance[row, 1, 1])),
                "noise": float(bank.parameters.noise[row]),
                "n_scores": int(bank.n_scores[row]),
                "mean_score": number(bank.mean_score[row]),
                "item_rest_correlation": number(bank.item_rest_correlation[row]),
                "kept": bool(bank.kept[row]),
                "reason": bank.reason[row],
            }
            for row in range(len(bank))
        ],
    }


def show_bank(bank: ItemBank) -> None:
    """Print what a bank holds."""
    from rich.table import Table
    from rich.text import Text

    console = _console()
    info = bank.info
    arrow = "higher is better" if info.scale.higher_is_better else "lower is better"
    version = f" version {info.task_version}" if info.task_version else ""
    lines = [
        f"bank      {bank.path} (sha256 {bank.sha256[:12]})",
        f"task      {info.task}{version}",
        (
            f"metric    {info.metric}, filter {info.filter}, {arrow}, range {info.scale.lo:g} to "
            f"{info.scale.hi:g} ({info.range_source}), {info.clipped:.1%} of the scores clipped"
        ),
        f"model     {info.response_model}",
        f"items     {len(bank)}, of which {int(bank.kept.sum())} may be asked",
        f"difficulty     {_spread(bank.parameters.difficulty)}",
        f"discrimination {_spread(bank.parameters.discrimination)}",
    ]
    for line in lines:
        console.print(line, markup=False, soft_wrap=True, highlight=False)
    table = Table(title="calibration models")
    for name in ("model", "score", "ability", "items"):
        table.add_column(name, justify="left" if name == "model" else "right", overflow="fold")
    for model in sorted(info.models, key=lambda each: -each.mean_score):
        table.add_row(
            Text(printable(model.name)),
            f"{model.mean_raw:.4g}",
            f"{model.theta:+.2f}",
            str(model.n_scores),
        )
    console.print(table)
    for notice in info.notices:
        console.print(f"notice: {notice}", markup=False, soft_wrap=True)


def _spread(values: Any) -> str:
    low, middle, high = np.percentile(values, [5, 50, 95])
    return f"median {middle:.2f}, 5 % {low:.2f}, 95 % {high:.2f}"
