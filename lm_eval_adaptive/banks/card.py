"""What is said of a bank to whom it is handed: its card, and what ``bank check`` tells.

This module owns these words; it imports the bank and computes nothing. A card is Markdown with the
block of metadata that the hub reads; it says what the bank says of itself, so that a reader can see
what it is made of without opening it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from lm_eval_adaptive.core.bank import WHOLE_SHARE
from lm_eval_adaptive.core.calibration import MIN_MODELS

if TYPE_CHECKING:
    from lm_eval_adaptive.core.bank import ItemBank

CARD = "README.md"
# By this a card is known as one of ours, which may be written over.
MARK = "<!-- a card of lm-eval-adaptive -->"
_HASH = re.compile(r"^\| sha256 of (?P<file>\S+) \| `(?P<sha256>[0-9a-f]{64})` \|$", re.MULTILINE)
# Licences under the names that the hub has for them.
_ON_THE_HUB = {
    "mit": "mit", "apache-2.0": "apache-2.0", "apache 2.0": "apache-2.0", "cc-by-4.0": "cc-by-4.0",
    "cc by 4.0": "cc-by-4.0", "cc0-1.0": "cc0-1.0", "cc-by-sa-4.0": "cc-by-sa-4.0",
}  # fmt: skip
_WHAT = (
    "A bank of calibrated items for `lm-eval-adaptive`, which ranks language models by asking each "
    "only the documents that tell most. It holds scores and fitted parameters, no text of any "
    "document or answer."
)
_HOW_GOOD = (
    "Its own calibration models, held out and tested as if they were new; errors of the estimated "
    "full score in % of the range."
)
FEW_MODELS, LOW_COVER = 8, 0.9


def facts_of_bank(bank: ItemBank) -> list[tuple[str, str]]:
    """What a bank is, as pairs of a word and what it says."""
    info, made = bank.info, bank.info.provenance
    direction = "higher is better" if info.scale.higher_is_better else "lower is better"
    version = f", version {info.task_version}" if info.task_version else ""
    data = " ".join(filter(None, (info.dataset_path, info.dataset_name, info.split)))
    whole = np.isfinite(bank.scores).mean(axis=1) >= WHOLE_SHARE
    part = f", {int((~whole).sum())} of them on a part of the items" if not whole.all() else ""
    shots = "not known" if info.num_fewshot is None else str(info.num_fewshot)
    facts = [
        ("task", f"{info.task}{version}"),
        ("dataset", data or "not told"),
        ("metric", f"{info.metric}, filter {info.filter}, {direction}"),
        ("range", f"{info.scale.lo:g} to {info.scale.hi:g} ({info.range_source})"),
        ("response model", info.response_model),
        ("items", f"{len(bank)}, of which {int(bank.kept.sum())} may be asked"),
        ("models", f"{len(info.models)}{part}"),
        ("few-shot examples", shots),
        ("prompts", "; ".join(_prompts(bank)) or "not known"),
        ("licence of the scores", info.licence or "not told"),
    ]
    if made is not None:
        files = len(made.sources)
        named = ", ".join(each.file for each in made.sources[:3])
        more = f" and {files - 3} more" if files > 3 else ""
        facts += [
            ("made", made.date or "not told"),
            ("made from", f"{named}{more}" if files else "not told"),
            ("made with", f"lm-eval-adaptive {made.lm_eval_adaptive}, lm_eval {made.lm_eval}"),
        ]
        facts += [
            ("grown", f"{each.date} by {', '.join(each.models)}") for each in made.updates[-5:]
        ]
    else:
        facts.append(("made", "not told"))
    return facts


def _prompts(bank: ItemBank) -> list[str]:
    own = bank.info.prompts
    told = {True: "with a chat template", False: "without a chat template"}
    found = [told[own.chat_template]] if own.chat_template is not None else []
    for name, words in (("system_instruction", "a system instruction"), ("description", "a text")):
        value = getattr(own, name)
        if value:
            found.append(f"{words} before it (sha256 {value[:12]})")
    same = sum(map(bool, bank.prompt_hash))
    if same:
        found.append(f"hashes of {same} prompts are kept")
    return found


def figures_of_bank(bank: ItemBank) -> list[tuple[str, ...]]:
    """The bank's own cross-validation, a row a length of test; nothing where it has none.

    Columns: items asked, tests, mean absolute and root mean squared error in percent of the range,
    correlation with the full scores, share of the 95 % intervals that held them.
    """
    correction = bank.info.correction
    if correction is None:
        return []
    return [
        (
            str(length), str(each.tests), f"{100 * each.mae:.2f}", f"{100 * each.rmse:.2f}",
            f"{each.correlation:.3f}", f"{each.covered:.3f}",
        )
        for length, each in sorted(correction.lengths.items())
    ]  # fmt: skip


_FIGURES = ("items", "tests", "MAE %", "RMSE %", "correlation", "cover of 95 %")


def told_of_bank(bank: ItemBank) -> list[str]:
    """What ``bank check`` tells of a bank before it is used, a line each."""
    lines = [f"bank {bank.path}", f"sha256 {bank.sha256}"]
    lines += [f"{name}: {value}" for name, value in facts_of_bank(bank)]
    lines.append(f"calibration models: {', '.join(each.name for each in bank.info.models)}")
    for row in figures_of_bank(bank):
        told = ", ".join(f"{name} {value}" for name, value in zip(_FIGURES, row, strict=True))
        lines.append(f"held-out models of its own: {told}")
    lines.append("its numbers can be those of a calibration; reading it ran no code of its maker's")
    return lines


def warnings_of_bank(bank: ItemBank) -> list[str]:
    """What should make a reader think before a bank of others is used, a line each."""
    info, found = bank.info, []
    count = len(info.models)
    if count < FEW_MODELS:
        least = ", the least there can be" if count == MIN_MODELS else ""
        found.append(f"it has {count} models{least}; a bank pays from about {FEW_MODELS}")
    correction = info.correction
    if correction is None or not correction.lengths:
        found.append("it could not be cross-validated, so nothing says how good it is")
    else:
        low = [n for n, each in correction.lengths.items() if each.covered < LOW_COVER]
        if low:
            found.append(
                f"its 95 % intervals hold fewer than {LOW_COVER:.0%} of its own held-out scores "
                f"after {', '.join(map(str, sorted(low)))} items"
            )
    if correction is not None and 0.0 < correction.kinds < count / 2:
        found.append(f"its {count} models count for {correction.kinds:.1f} of different kinds only")
    if not info.licence:
        found.append("it does not tell the licence of its scores")
    if info.provenance is None or not info.provenance.sources:
        found.append("it does not tell the files it was made from")
    if info.num_fewshot is None and not any(bank.prompt_hash):
        found.append("it does not tell its prompts; a run cannot see whether its own are the same")
    if info.clipped > 0.01:
        found.append(f"{info.clipped:.1%} of its scores lay outside the metric's range")
    return found


def card_of_bank(bank: ItemBank, file: str, address: str) -> str:
    """A bank's card.

    Args:
        bank: The bank, as it was read from its file.
        file: The file's name beside the card.
        address: What ``--bank`` is given, as far as it is known when the card is written.
    """
    info = bank.info
    licence = _ON_THE_HUB.get(info.licence.strip().lower())
    front = ["---", f"license: {licence or ('other' if info.licence else 'unknown')}"]
    front += ["tags:", "- lm-eval-adaptive", "- item-bank", "---"]
    lines = [
        *front,
        MARK,
        "",
        f"# Item bank: {_cell(info.task)}, {_cell(info.metric)}",
        "",
        _WHAT,
        "",
        "```sh",
        f"lm-eval-adaptive bank check '{address}'",
        f"lm-eval-adaptive run --adaptive --tasks {info.task} --bank '{address}' …",
        "```",
        "",
        "| | |",
        "|---|---|",
        f"| sha256 of {file} | `{bank.sha256}` |",
        *(f"| {name} | {_cell(value)} |" for name, value in facts_of_bank(bank)),
        "",
        "## How good it is",
        "",
    ]
    figures = figures_of_bank(bank)
    if figures:
        lines += [
            _HOW_GOOD,
            "",
            f"| {' | '.join(_FIGURES)} |",
            f"|{'---|' * len(_FIGURES)}",
            *(f"| {' | '.join(row)} |" for row in figures),
        ]
    else:
        lines.append("It could not be cross-validated: that takes 8 models or more, and a score "
                     "between 0 and 1 or enough items.")  # fmt: skip
    lines += ["", *(f"- {line}" for line in warnings_of_bank(bank))]
    lines += ["", "## Models", "", "| model | score | items |", "|---|---|---|"]
    lines += [
        f"| {_cell(each.name)} | {each.mean_raw:.4g} | {each.n_scores} |"
        for each in sorted(info.models, key=lambda each: -each.mean_score)
    ]
    if info.provenance is not None and info.provenance.sources:
        lines += ["", "## Sources", "", "| file | sha256 |", "|---|---|"]
        lines += [f"| {_cell(each.file)} | `{each.sha256}` |" for each in info.provenance.sources]
    if info.notices:
        lines += ["", "## What calibration had to say", ""]
        lines += [f"- {_cell(line)}" for line in info.notices]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """A text within a table's cell: one line, nothing in it that ends a cell or begins a tag."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def hash_in_card(text: str, file: str) -> str:
    """The hash that a card has for a file, "" where it has none."""
    found = {each["file"]: each["sha256"] for each in _HASH.finditer(text)}
    return found.get(file, "")


def is_ours(text: str) -> bool:
    """Whether a README is a card of this package, which may be written over."""
    return MARK in text
