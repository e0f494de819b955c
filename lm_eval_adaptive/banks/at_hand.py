"""Which bank a task takes where nobody names one: of the user's store, else of the package.

This module owns that choice and what is said of it; it imports the store, the shipped banks and the
one function that holds a bank against documents. A bank is taken only where its items are among the
task's documents, by content.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lm_eval_adaptive.banks.check import match_documents
from lm_eval_adaptive.banks.prompts import prompt_differences
from lm_eval_adaptive.banks.shipped import shipped_banks
from lm_eval_adaptive.banks.store import Store
from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.errors import BankError, DataError
from lm_eval_adaptive.host.measures import metrics_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from lm_eval_adaptive.core.bank_info import PromptFacts
    from lm_eval_adaptive.host.task import TaskDocs

STORE, PACKAGE = "store", "package"
# A bank that runs made from nothing is young while it has fewer models than a bank pays from, or
# less than this share of the task's documents: then a shipped one goes before it.
YOUNG_MODELS, YOUNG_SHARE = 8, 0.5


@dataclass(frozen=True)
class Offer:
    """A bank that a task might take.

    Attributes:
        place: :data:`STORE` or :data:`PACKAGE`.
        name: Its name there.
        path: Its file.
        metric: Metric.
        filters: Filters that it serves, empty for any.
        n_models: Calibration models.
        n_docs: Items.
        date: When it was made, or last grew.
        prompt: What is to be said of its prompts, "" for nothing.
        made_of_runs: Whether runs made it from nothing.
    """

    place: str
    name: str
    path: Path
    metric: str
    filters: tuple[str, ...]
    n_models: int
    n_docs: int
    date: str
    prompt: str = ""
    made_of_runs: bool = False

    @property
    def told(self) -> str:
        """What it is, in some words."""
        date = f", of {self.date}" if self.date else ""
        return f"{self.metric}, {self.n_models} models{date}"

    def is_young(self, documents: int) -> bool:
        """Whether runs made it from nothing and it knows little yet of so many documents."""
        few = self.n_models < YOUNG_MODELS or self.n_docs < YOUNG_SHARE * documents
        return self.made_of_runs and few


@dataclass(frozen=True)
class Circumstances:
    """What a run brings to the choice of a bank.

    Attributes:
        prompts: What each model's prompts have in common, by model.
        hashes: Where a run is resumed: hashes of the banks it began with, of which one is taken,
            wherever it lies now; None for a run that begins.
    """

    prompts: Mapping[str, PromptFacts] = field(default_factory=dict)
    hashes: Collection[str] | None = None


@dataclass(frozen=True)
class Taken:
    """The bank that a task takes.

    Attributes:
        bank: The bank, its information being of the task and the filter.
        notices: Which it is and why, and what else was looked at; empty where it was named.
    """

    bank: ItemBank
    notices: tuple[str, ...] = ()


def is_plain_name(text: str) -> bool:
    """Whether a text may be the name of a bank, not the path of a file.

    >>> is_plain_name("gsm8k"), is_plain_name("banks/gsm8k"), is_plain_name("x.bank.parquet")
    (True, False, False)
    """
    return bool(text) and not text.endswith(".parquet") and "/" not in text and "\\" not in text


def path_of(name: str) -> Path | None:
    """The file of a bank by its name: the store's, else the package's; None where there is none.

    Raises:
        UsageError: The store is of a newer version, or no folder.
    """
    store = Store()
    for each in store.entries()[0]:
        if each.name == name:
            return store.path(each)
    return next((each.path for each in shipped_banks() if each.name == name), None)


def offers(task: str, documents: int) -> tuple[list[Offer], list[str]]:
    """Banks for a task by name, the first choice first.

    Those of the store go before those of the package, young ones last; in each place the newest by
    its models first, of one day that with more models.

    Args:
        task: The task's name.
        documents: How many documents it has.

    Returns:
        The offers, and a line for each file of the store that is no bank.

    Raises:
        UsageError: The store is of a newer version, or no folder.
    """
    store = Store()
    stored, broken = store.entries()
    found = [
        Offer(
            STORE, each.name, store.path(each), each.metric, (each.filter,), each.n_models,
            each.n_docs, each.date, made_of_runs=store.answers_of(each.name).is_file(),
        )
        for each in stored
        if each.task == task
    ]  # fmt: skip
    found += [
        Offer(
            PACKAGE, each.name, each.path, each.metric, tuple(each.filters), each.n_models,
            each.n_docs, each.date, each.prompt,
        )
        for each in shipped_banks()
        if task in each.tasks
    ]  # fmt: skip
    found.sort(key=lambda each: (each.date, each.n_models), reverse=True)
    found.sort(key=lambda each: (each.is_young(documents), each.place != STORE))
    return found, broken


def bank_at_hand(
    docs: TaskDocs, metric: str | None, run: Circumstances | None = None
) -> tuple[Taken | None, list[str]]:
    """The bank at hand for a task.

    Args:
        docs: The task's documents.
        metric: ``NAME`` or ``NAME,FILTER``; None takes the first of the task's metrics that a bank
            is there for.
        run: What the run brings to the choice.

    Returns:
        The bank, None where there is none; and what is to be said of it and of others, a line each.

    Raises:
        UsageError: The store is of a newer version, or no folder.
    """
    run = run or Circumstances()
    found, told = offers(docs.name, len(docs))
    if run.hashes is not None:
        found = _of_hashes(found, run.hashes)
    wanted, _, filter_name = (metric or "").partition(",")
    if wanted:
        found = [each for each in found if each.metric == wanted]
    else:
        order = list(metrics_of(docs.task))
        found.sort(key=lambda each: order.index(each.metric) if each.metric in order else 99)
    fitting = _fitting(found, docs, filter_name, told)
    if not fitting:
        return None, told
    # What runs with other prompts made is there for these; else the order holds.
    fitting.sort(key=lambda each: _is_of_other_prompts(each[0], each[1], docs, run))
    (offer, bank, here), *others = fitting
    said = (
        f"no bank was named: took {offer.name} of the {offer.place} ({offer.told}): {here} of its "
        f"{len(bank)} items are among the {len(docs)} documents of task {docs.name}"
    )
    notices = [said]
    if offer.prompt:
        notices.append(f"bank {offer.name}: {offer.prompt}; the run tests whether it holds here")
    notices += [
        f"bank {other.name} of the {other.place} ({other.told}) fits as well; --bank {other.path} "
        "takes it"
        for other, _, _ in others
        if other.metric == offer.metric
    ]
    return Taken(bank, (*notices, *told)), [*notices, *told]


def _fitting(
    found: Sequence[Offer], docs: TaskDocs, filter_name: str, told: list[str]
) -> list[tuple[Offer, ItemBank, int]]:
    """Offers of one metric whose items are among the documents, with how many there are."""
    fitting: list[tuple[Offer, ItemBank, int]] = []
    for offer in found:
        if fitting and offer.metric != fitting[0][0].metric:
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
        else:
            fitting.append((offer, bank, sum(each is not None for each in where)))
    return fitting


def _is_of_other_prompts(
    offer: Offer, bank: ItemBank, docs: TaskDocs, run: Circumstances
) -> tuple[bool, bool]:
    """Whether a bank comes after others: for it is young, or for its prompts are others."""
    young = offer.is_young(len(docs))
    if offer.place != STORE or not run.prompts:
        return young, bool(offer.prompt)
    names, _ = prompt_differences(bank, docs.num_fewshot, run.prompts, {})
    return young, any(name != "chat template" for name in names)


def _of_hashes(found: Sequence[Offer], hashes: Collection[str]) -> list[Offer]:
    """The offers with the file of one of these hashes, of former banks where need be."""
    by_hash = {each: offer for offer in found if (each := _hash_of(offer)) in hashes}
    kept = list(by_hash.values())
    for missing in set(hashes) - set(by_hash):
        path = Store().of_hash(missing)
        if path is not None:
            info = ItemBank.load(path).info
            kept.append(
                Offer(STORE, path.name, path, info.metric, (info.filter,), len(info.models), 0, "")
            )
    return kept


def _hash_of(offer: Offer) -> str:
    try:
        return ItemBank.load(offer.path).sha256
    except BankError:
        return ""


def _for_task(offer: Offer, docs: TaskDocs, filter_name: str) -> ItemBank | None:
    """The bank as that of the task and of the filter asked for; None where it serves another.

    Raises:
        BankError: It cannot be read, or is of another version of the task.
    """
    may = _filters(docs, offer.filters, filter_name)
    if not may:
        return None
    bank = ItemBank.load(offer.path)
    if offer.place == PACKAGE:  # one file serves several tasks and filters
        return of_task(bank, docs.name, may[0])
    if bank.info.task_version and bank.info.task_version != docs.version:
        raise BankError(
            f"it was made for version {bank.info.task_version} of task {docs.name}, this is "
            f"version {docs.version}"
        )
    return bank


def as_served(bank: ItemBank, docs: TaskDocs, metric: str | None) -> ItemBank:
    """A bank that was named, as that of the task where it is one of the package; else as it is.

    Args:
        bank: The bank.
        docs: The task's documents.
        metric: ``NAME`` or ``NAME,FILTER`` as the user named it, None where nobody did.
    """
    for each in shipped_banks():
        if each.sha256 == bank.sha256 and docs.name in each.tasks:
            filter_name = (metric or "").partition(",")[2]
            may = _filters(docs, each.filters, filter_name)
            return of_task(bank, docs.name, may[0]) if may else bank
    return bank


def _filters(docs: TaskDocs, served: Sequence[str], asked: str) -> list[str]:
    """The task's filters that a bank serves, none for any, and of these the one asked for."""
    there = [each.name for each in docs.task._filters]  # noqa: SLF001
    return [each for each in there if (not served or each in served) and asked in ("", each)]


def of_task(bank: ItemBank, task: str, filter_name: str) -> ItemBank:
    """A shipped bank as that of one of the tasks and filters that it serves."""
    return replace(bank, info=replace(bank.info, task=task, filter=filter_name, task_version=""))
