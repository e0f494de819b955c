"""What a person sees in the terminal.

This module owns text and tables on the screen; it imports rich, and reads the fold and the ranking
document. It decides nothing.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import Self

if TYPE_CHECKING:
    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.harness.run import RunOutcome
    from lm_eval_adaptive.harness.session import Session, TaskRun


def _silenced() -> bool:
    level = logging.getLevelName(os.environ.get("LMEVAL_LOG_LEVEL", "").upper())
    return isinstance(level, int) and level >= logging.ERROR


class Progress:
    """A line for every round: who stands where, how many pairs are decided."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def __call__(self, session: Session, run: TaskRun, event: str) -> None:
        """Print the state after an event of the loop."""
        if _silenced():
            return
        from rich.console import Console

        console = Console(stderr=True, soft_wrap=True)
        if event == "start":
            console.print(
                f"{session.docs.name}: {len(session.names)} models, {len(session.bank)} items, "
                f"ranked by {session.metric} ({session.bank.info.response_model})",
                markup=False,
            )
            for notice in session.notices:
                console.print(notice, markup=False)
            return
        if event != "round":
            return
        estimates = session.procedure.estimate(run.state)
        pairs = session.procedure.pairs(run.state, estimates)
        needed = [pair for pair in pairs if pair.required]
        decided = sum(pair.verdict != "undecided" for pair in needed)
        raw = session.scale.to_raw(estimates.score)
        errors = estimates.score_se * session.scale.width
        order = np.argsort(-estimates.level, kind="stable")
        standing = "  ".join(
            f"{session.names[row]} {raw[row]:.4g}±{errors[row]:.2g}" for row in order
        )
        console.print(
            f"round {run.rounds}: {int(run.state.answered.sum())} items, {decided} of "
            f"{len(needed)} pairs decided | {standing}",
            markup=False,
        )


def _console() -> Any:
    from rich.console import Console

    return Console(soft_wrap=False)


def show_outcome(outcome: RunOutcome) -> None:
    """Print each task's ranking and name the files."""
    console = _console()
    for task in outcome.tasks.values():
        _show_ranking(console, task.ranking)
        console.print(f"files in {outcome.output_path}:", markup=False, soft_wrap=True)
        others = [outcome.output_path / "journal.jsonl", outcome.report]
        for file in [*task.files, *others]:
            if file is not None and file.exists():
                console.print(f"  {file}", markup=False, soft_wrap=True, highlight=False)
    _show_summary(console, outcome)


def _show_summary(console: Any, outcome: RunOutcome) -> None:
    from rich.table import Table

    if outcome.summary is None:
        return
    table = Table(title=f"over {len(outcome.summary['tasks'])} tasks")
    table.add_column("model", overflow="fold")
    for name in ("mean rank", "mean z", "± se", "tasks"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in outcome.summary["summary"]:
        table.add_row(
            row["model"],
            f"{row['mean_rank']:.2f}",
            f"{row['mean_z']:+.2f}",
            f"{row['mean_z_se']:.2f}",
            str(row["tasks"]),
        )
    console.print(table)
    console.print("z: score less the calibration models' mean, in their standard deviations")
    console.print(f"  {outcome.summary_file}", markup=False, soft_wrap=True, highlight=False)


def _show_ranking(console: Any, ranking: dict[str, Any]) -> None:
    from rich.table import Table

    arrow = "↑" if ranking["higher_is_better"] else "↓"
    title = f"{ranking['task']}: {ranking['metric']} {arrow}"
    table = Table(title=title if ranking["filter"] == "none" else f"{title} ({ranking['filter']})")
    places = {entry["model"]: entry["rank"] for entry in ranking["ranking"]}
    priced = any(entry["cost"] != entry["items"] for entry in ranking["ranking"])
    table.add_column("rank", justify="right")
    table.add_column("model", overflow="fold")
    for name in ("score", "± se", "95 % interval", "items", *(["cost"] if priced else [])):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("ties with", overflow="fold")
    for entry in ranking["ranking"]:
        low, high = entry["score_ci"]
        table.add_row(
            str(entry["rank"]),
            entry["model"],
            f"{entry['score']:.4g}",
            f"{entry['score_se']:.2g}",
            f"{low:.4g} – {high:.4g}",
            str(entry["items"]),
            *([f"{entry['cost']:.4g}"] if priced else []),
            ", ".join(str(places[name]) for name in entry["tied_with"]) or "–",
        )
    console.print(table)
    console.print(sentence(ranking), markup=False, soft_wrap=True)
    for warning in ranking["warnings"]:
        console.print(f"warning: {warning}", markup=False, soft_wrap=True)
    console.print(f"signature {ranking['signature']}", markup=False, soft_wrap=True)


def sentence(ranking: dict[str, Any]) -> str:
    """What a person would quote of a ranking."""
    confidence = ranking["config"]["adaptive"]["confidence"]
    beaten: dict[str, list[str]] = {}
    for pair in ranking["pairs"]:
        if pair["verdict"] in ("a", "b"):
            winner, loser = (
                (pair["a"], pair["b"]) if pair["verdict"] == "a" else (pair["b"], pair["a"])
            )
            beaten.setdefault(winner, []).append(loser)
    told = [f"{winner} beats {_listed(losers)}" for winner, losers in beaten.items()]
    open_pairs = [
        f"{pair['a']} and {pair['b']}"
        for pair in ranking["pairs"]
        if pair["verdict"] == "undecided"
    ]
    equal = [
        f"{pair['a']} and {pair['b']}"
        for pair in ranking["pairs"]
        if pair["verdict"] == "equivalent"
    ]
    parts = []
    if told:
        parts.append(f"{'; '.join(told)} with {confidence:.0%} confidence each")
    if equal:
        parts.append(f"{_listed(equal)} are equivalent")
    if open_pairs:
        parts.append(f"{_listed(open_pairs)} are undecided")
    asked = f"{ranking['items_total']} items asked, {ranking['fraction']:.1%} of a full run"
    return f"{'; '.join([*parts, asked])} (stopped: {ranking['stop_reason']})."


def _listed(names: list[str]) -> str:
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]}"


def bank_as_json(bank: ItemBank) -> dict[str, Any]:
    """A bank as plain data: its information and one mapping per item."""
    from dataclasses import asdict

    def number(value: float) -> float | None:
        return None if not np.isfinite(value) else float(value)

    return {
        "path": bank.path,
        "sha256": bank.sha256,
        "info": asdict(bank.info),
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
            model.name, f"{model.mean_raw:.4g}", f"{model.theta:+.2f}", str(model.n_scores)
        )
    console.print(table)
    for notice in info.notices:
        console.print(f"notice: {notice}", markup=False, soft_wrap=True)


def _spread(values: Any) -> str:
    low, middle, high = np.percentile(values, [5, 50, 95])
    return f"median {middle:.2f}, 5 % {low:.2f}, 95 % {high:.2f}"
