"""The bank that a run was made with, found again by its hash.

This module owns where to look: a ranking and a journal name a bank by its hash alone, for folders
move. It reads files and asks nobody.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from lm_eval_adaptive.banks.hub import fetch_bank, is_hub_address
from lm_eval_adaptive.banks.shipped import shipped_banks
from lm_eval_adaptive.banks.store import Store
from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.core.build import refit
from lm_eval_adaptive.errors import BankError
from lm_eval_adaptive.host.find_tasks import tasks_folder
from lm_eval_adaptive.records.journal import NO_BANK

if TYPE_CHECKING:
    from collections.abc import Sequence


def bank_of_run(
    sha256: str, response_model: str, folder: Path, words: Sequence[str]
) -> tuple[ItemBank | None, list[str]]:
    """The bank of a given hash: where the command line, the run's or the tasks' folders have it.

    The package's own banks and the store, with what its banks were before, are looked at as well.

    Args:
        sha256: The bank's hash.
        response_model: What the run took its items by, ``auto`` for the bank's own.
        folder: The run's folder.
        words: The run's command line.

    Returns:
        The bank, None where it was not found; and what to tell the reader then.
    """
    if sha256 == NO_BANK:
        return None, ["The run was made without a bank (--bank none): there is no map of items."]
    named: list[Path] = []
    folders = [folder, tasks_folder()]
    option = ""
    for word in words:
        if word.startswith("--"):
            option, _, word = word.partition("=")  # noqa: PLW2901  both spellings of an option
        if option == "--bank" and word:
            named += [
                path
                for each in dict.fromkeys([word, word.partition("=")[2] or word])
                for path in [_local(each)]
                if path is not None
            ]
        elif option == "--include_path" and word:
            folders.append(Path(word))
        elif option == "--tasks" and word.endswith((".yaml", ".yml")):
            folders.append(Path(word).parent)
    tried = [each for path in named for each in (path, folder / path)]
    tried += [path for each in folders for path in sorted(each.glob("*.parquet"))]
    tried += [path for each in folders for path in sorted(each.glob("*/*.parquet"))]
    tried += [each.path for each in shipped_banks()]
    kept = Store().of_hash(sha256)
    tried += [] if kept is None else [kept]
    for path in tried:
        if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256:
            return refit(ItemBank.load(path), response_model), []
    return None, [
        f"The run's bank (sha256 {sha256[:12]}) was not found, so there is no map of its items."
    ]


def _local(name: str) -> Path | None:
    """A bank's file here, None where it is on the hub and cannot be had."""
    if not is_hub_address(name):
        return Path(name)
    try:
        return fetch_bank(name)
    except BankError:
        return None
