"""Which bank a task takes where nobody names one: of the user's store, else of the package.

This module owns that choice and what is said of it; it imports the store, the shipped banks and the
one function that holds a bank against documents. A bank is taken only where its items are among the
task's documents, by content.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lm_eval_adaptive.banks.check import match_documents
from lm_eval_adaptive.banks.shipped import shipped_banks
from lm_eval_adaptive.banks.store import Store
from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.errors import BankError, DataError
from lm_eval_adaptive.host.measures import metrics_of

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from lm_eval_adaptive.host.task import TaskDocs


@dataclass(frozen=True)
class Offer:
    """A bank that a task might take.

    Attributes:
        place: ``store`` or ``package``.
        name: Its name there.
        path: Its file.
        metric: Metric.
        filters: Filters that it serves, empty for any.
        n_models: Calibration models.
        date: When it was made, or last grew.
        prompt: What is to be said of its prompts, "" for nothing.
    """

    place: str
    name: str
    path: Path
    metric: str
    filters: tuple[str, ...]
    n_models: int
    date: str
    prompt: str = ""


@dataclass(frozen=True)
class Taken:
    """The bank that a task takes.

    Attributes:
        bank: The bank, its information being of the task and the filter.
        notices: Which it is and why, and what else was looked at.
    """

    bank: ItemBank
    notices: tuple[str, ...]


def is_plain_name(text: str) -> bool:
    """Whether a text may be the name of a bank, not the path of a file.

    >>> is_plain_name("gsm8k"), is_plain_name("banks/gsm8k"), is_plain_name("x.bank.parquet")
    (True, False, False)
    """
    return bool(text) and not text.endswith(".parquet") and "/" not in text and "\\" not in text


def path_of(name: str) -> Path | None:
    """The file of a bank by its name: the store's, else the package's; None where there is none."""
    store = Store()
    stored, _ = store.entries()
    for each in stored:
        if each.name == name:
            return store.path(each)
    return next((each.path for each in shipped_banks() if each.name == name), None)


def offers(task: str) -> tuple[list[Offer], list[str]]:
    """Banks for a task by name: those of the store first, in each place the newest by models first.

    Returns:
        The offers, and a line for each file of the store that is no bank.
    """
    store = Store()
    stored, broken = store.entries()
    own = [
        Offer("store", each.name, store.path(each), each.metric, (each.filter,), each.n_models,
              each.date)
        for each in stored
        if each.task == task
    ]  # fmt: skip
    shipped = [
        Offer("package", each.name, each.path, each.metric, each.filters, each.n_models, each.date,
              each.prompt)
        for each in shipped_banks()
        if task in each.tasks
    ]  # fmt: skip
    for group in (own, shipped):
        group.sort(key=lambda each: (each.date, each.n_models), reverse=True)
    return own + shipped, broken


def bank_at_hand(
    docs: TaskDocs, metric: str | None, hashes: Collection[str] | None = None
) -> tuple[Taken | None, list[str]]:
    """The bank at hand for a task.

    Args:
        docs: The task's documents.
        metric: ``NAME`` or ``NAME,FILTER``; None takes the first of the task's metrics that a bank
            is there for.
        hashes: Where a run is resumed: hashes of the banks it began with, of which one is taken,
            wherever it lies now.

    Returns:
        The bank, None where there is none; and why others were left.
    """
    found, told = offers(docs.name)
    if hashes is not None:
        found = _of_hashes(found, hashes)
    wanted, _, filter_name = (metric or "").partition(",")
    if wanted:
        found = [each for each in found if each.metric == wanted]
    else:
        order = list(metrics_of(docs.task))
        found.sort(key=lambda each: order.index(each.metric) if each.metric in order else 99)
    taken: Taken | None = None
    for offer in found:
        if taken is not None and offer.metric != taken.bank.info.metric:
            break
        try:
            bank = _for_task(offer, docs, filter_name)
            if bank is None:
                continue
            where, _ = match_documents(
                bank, docs.keys, docs.seen_keys, sights=docs.sights, prompts=docs.prompts_alone
            )
        except (BankError, DataError) as error:
            told.append(f"bank {offer.name} of the {offer.place} is not taken: {error}")
            continue
        if taken is not None:
            told.append(
                f"bank {offer.name} of the {offer.place} ({_made(offer)}) fits as well; name it "
                f"with --bank {offer.path} to take it"
            )
            continue
        here = sum(each is not None for each in where)
        told.append(
            f"no bank was named: took {offer.name} of the {offer.place} ({_made(offer)}), "
            f"{here} of its {len(bank)} items are among the {len(docs)} documents"
        )
        if offer.prompt:
            told.append(f"bank {offer.name}: {offer.prompt}; the run tests whether it holds here")
        taken = Taken(bank, ())
    return None if taken is None else replace(taken, notices=tuple(told)), told


def _made(offer: Offer) -> str:
    date = f", made {offer.date}" if offer.date else ""
    return f"{offer.metric}, {offer.n_models} models{date}"


def _of_hashes(found: list[Offer], hashes: Collection[str]) -> list[Offer]:
    """The offers with the file of one of these hashes, if need be of a former bank."""
    kept = [each for each in found if ItemBank.load(each.path).sha256 in hashes]
    had = {ItemBank.load(each.path).sha256 for each in kept}
    for missing in set(hashes) - had:
        path = Store().of_hash(missing)
        if path is not None:
            info = ItemBank.load(path).info
            kept.append(
                Offer("store", path.name, path, info.metric, (info.filter,), len(info.models), "")
            )
    return kept


def _for_task(offer: Offer, docs: TaskDocs, filter_name: str) -> ItemBank | None:
    """The bank as that of the task and of the filter asked for; None where it serves another."""
    there = [each.name for each in docs.task._filters]  # noqa: SLF001
    may = [each for each in there if not offer.filters or each in offer.filters]
    if filter_name:
        may = [each for each in may if each == filter_name]
    if not may:
        return None
    bank = ItemBank.load(offer.path)
    if offer.place == "store":
        return bank
    info = replace(bank.info, task=docs.name, filter=may[0], task_version="")
    return replace(bank, info=info)
