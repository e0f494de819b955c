"""The page of what the walk found: a table by family, and what is refused or could not be tried.

This module owns ``docs/tasks.md``, which it writes whole; it reads the findings alone.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections import Counter, defaultdict
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

OUTCOMES = {
    "same": "the same prompts, answers and scores as the plain harness",
    "refused": "refused by an adaptive run, with the reason below",
    "differs": "not the same; see below",
    "not loaded": "could not be tried where the walk was made, with the reason below",
    "no generation": "a Python task that asks for likelihoods",
}
_WIDTH = 160
# What an error comes from, by a piece of its text: of those that say it badly themselves.
_CAUSES = {
    "'float' object is not iterable": "its aggregation wants pairs and its metric gives numbers: "
    "the plain harness fails, too",
    "Context is not a string": "its doc_to_text gives a tuple: the plain harness fails, too",
    "load: KeyError: None": "its metrics name no aggregation: the plain harness fails, too",
    "couldn't connect to 'https://huggingface.co'": "it needs a tokenizer of the hub",
    "LocalEntryNotFoundError": "its metric is a file of the hub",
    "PERSPECTIVE_API_KEY": "its scoring is a service on the net, with a key",
    "'o' is not in list": "it asks for likelihoods of choices",
    "score: ValueError: too many values to unpack": "it asks for likelihoods beside the answers",
}


def write_table(findings: Path, page: Path) -> None:
    """Write the page from the findings, the last of each task."""
    lines = findings.read_text(encoding="utf-8").splitlines()
    by_yaml = {row["yaml"]: row for row in map(json.loads, lines)}
    families: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in by_yaml.values():
        families[row["family"]].append(row)
    page.write_text(_page(families), encoding="utf-8")


def verdict(rows: Sequence[dict[str, Any]]) -> str:
    """What is said of a family: the worst that can be said of us, else the best that was seen."""
    seen = [row["outcome"] for row in rows]
    order = ("differs", "same", "refused", "not loaded", "no generation")
    return next(each for each in order if each in seen)


def _page(families: dict[str, list[dict[str, Any]]]) -> str:
    verdicts = {name: verdict(rows) for name, rows in families.items()}
    counts = Counter(verdicts.values())
    intro = f"""\
        # Generation tasks of the harness

        Written by `scripts/walk_tasks.py` with lm_eval {version("lm_eval")}; run it again after an
        update. A family is a folder of the harness's tasks. Of each, tasks that differ in code or
        prompt were run twice, by the harness itself and by an adaptive run without a bank that
        asks all documents, with two made-up models; prompts (by the harness's hash), targets,
        answers, filtered answers and all metric values have to be equal. Where the hub is out of
        reach, documents are made up from the columns that the task reads, or in the shape that its
        code wants (`scripts/walk/shapes.py`), and metrics of the hub and names that numpy 2 dropped
        are stood in for; *real* says that the family's own documents were asked. Families that read
        `transformers.data.metrics` were tried with transformers 4.

        | {len(families)} families | |
        |--:|---|
        """
    parts = [textwrap.dedent(intro).rstrip()]
    parts += [f"| {counts[name]} | {text} |" for name, text in OUTCOMES.items() if counts[name]]
    for name, title in (
        ("differs", "Not the same"),
        ("refused", "Refused"),
        ("not loaded", "Not tried"),
    ):
        rows = [row for each in families.values() for row in each if row["outcome"] == name]
        if rows:
            parts += ["", f"## {title}", "", *_reasons(rows)]
    parts += ["", "## All families", "", "| family | task | documents | metrics | |"]
    parts += ["|---|---|---|---|---|"]
    for name in sorted(families):
        parts += [_line(row) for row in families[name]]
    return "\n".join(parts) + "\n"


def _reasons(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each reason, with the tasks that it is true of."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        told = (cause for piece, cause in _CAUSES.items() if piece in row["reason"])
        reason = next(told, row["reason"].replace(row["task"], "…"))
        by_reason[_plain(reason)].append(row["task"])
    found = []
    for reason, tasks in sorted(by_reason.items(), key=lambda each: -len(each[1])):
        few = ", ".join(f"`{task}`" for task in tasks[:4])
        more = f" and {len(tasks) - 4} more" if len(tasks) > 4 else ""
        found.append(f"- {few}{more}: {reason}")
    return found


def _plain(text: str) -> str:
    """Text that a page can hold: no line breaks or table bars, not too long."""
    text = (
        re.sub(r" at 0x[0-9a-f]+", "", " ".join(text.split()))
        .replace("|", "\\|")
        .replace("<", "&lt;")
    )
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"


def _line(row: dict[str, Any]) -> str:
    metrics = ", ".join(_plain(name) for name in row["metrics"][:4])
    more = " …" if len(row["metrics"]) > 4 else ""
    return (
        f"| {row['family']} | `{row['task']}` | {row['documents']} | {metrics}{more} "
        f"| {row['outcome']} |"
    )
