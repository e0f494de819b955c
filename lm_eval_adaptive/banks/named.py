"""A bank by what a user calls it: a name in the store or the package, a file, an address."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from lm_eval_adaptive.banks.at_hand import is_plain_name, of_task, path_of
from lm_eval_adaptive.banks.card import CARD, hash_in_card
from lm_eval_adaptive.banks.find import load_bank
from lm_eval_adaptive.banks.hub import is_hub_address
from lm_eval_adaptive.banks.shipped import shipped_banks
from lm_eval_adaptive.banks.store import ENDING, Store, check_name
from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence


def bank_named(name: str) -> ItemBank:
    """The bank of a name: a file or an address goes first, then the store, then the package.

    Raises:
        UsageError: There is none of that name.
        BankError: It cannot be had or read.
    """
    if is_hub_address(name) or not is_plain_name(name) or Path(name).is_file():
        return load_bank(name)
    check_name(name)
    path = path_of(name)
    if path is not None:
        return ItemBank.load(path)
    store = Store()
    if name in store.unfinished():
        raise UsageError(
            f"bank {name} of the store {store.folder} has too few answers yet: runs with --grow "
            "add to it, and `bank list` tells how many there are"
        )
    stored, _ = store.entries()
    there = ", ".join([*(each.name for each in stored), *(each.name for each in shipped_banks())])
    raise UsageError(
        f"no bank {name!r}: it is no file, and neither the store {store.folder} nor the package "
        f"has it; they have {there}"
    )


def plain_name(name: str) -> str:
    """What a bank is called where it is written to, without folders, revision and ending.

    >>> plain_name("hf://org/banks/zoo.bank.parquet@main#00"), plain_name("out/zoo.parquet")
    ('zoo', 'zoo')
    """
    if is_hub_address(name):
        name = name.rpartition("@")[0]
    last = re.split(r"[/\\]", name)[-1]
    return check_name(last.removesuffix(ENDING).removesuffix(".parquet"))


def for_task(bank: ItemBank, task: str) -> ItemBank:
    """A shipped bank as that of one of the tasks that it serves; another bank as it is."""
    for each in shipped_banks():
        if each.sha256 == bank.sha256 and task in each.tasks:
            return of_task(bank, task, bank.info.filter)
    return bank


def check_card(bank: ItemBank) -> Sequence[str]:
    """What a card beside a bank's file says otherwise than the file, a line each."""
    file = Path(bank.path)
    for card in (file.with_name(CARD), file.with_name(f"{file.name.removesuffix(ENDING)}.md")):
        try:
            told = hash_in_card(card.read_text(encoding="utf-8"), file.name)
        except (OSError, ValueError):
            continue
        if told and told != bank.sha256:
            said = (
                f"the card {card} names another file (sha256 {told[:12]}, this one is "
                f"{bank.sha256[:12]}): the bank was changed after its card was written"
            )
            return [said]
    return []
