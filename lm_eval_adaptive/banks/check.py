"""Whether a bank fits a task's documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lm_eval_adaptive.core.identity import item_keys
from lm_eval_adaptive.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lm_eval_adaptive.core.bank import ItemBank

MAX_LOST = 0.05
"""Share of a bank's items that may be missing from a task's documents."""

_BY_SIGHT = (
    "prompts and targets: other columns than these show have changed since the bank was made"
)
_BY_PROMPT = (
    "prompts alone, white space apart: the bank was made of records that do not tell more, and "
    "references were not compared"
)


def part_of(items: int, documents: int) -> str:
    """What scores are of where a bank has a part of a task's documents, "" where it has all.

    >>> part_of(100, 500), part_of(500, 500)
    ('the 100 documents in the bank', '')
    """
    return f"the {items} documents in the bank" if items < documents else ""


def match_documents(
    bank: ItemBank,
    *names: Sequence[str],
    sights: Callable[[], Sequence[str]] | None = None,
    prompts: Callable[[], Sequence[str]] | None = None,
) -> tuple[list[int | None], list[str]]:
    """Where each item of a bank stands among a task's documents.

    Args:
        bank: The bank.
        *names: Item keys of the task's documents, by doc_id: by all columns, and by those that the
            task reads. Those that find most items count.
        sights: Gives what models see of each document and of its target, as hashes; asked where
            ``names`` find too little and the bank has the same of its items.
        prompts: Gives the same of what models see alone, white space apart; asked last.

    Returns:
        A doc_id per item, None for items whose document is not there; and notices: what was left
        out, edited, moved or is there twice, each with its count.

    Raises:
        DataError: More than 5 % of the items are not among the documents.
    """
    tried = [_places(keys, bank.content_hash) for keys in names]
    found = min(tried, key=lambda each: each.count(None))
    notices = []
    for seen_as, told in ((sights, _BY_SIGHT), (prompts, _BY_PROMPT)):
        if not _too_few(found) or seen_as is None or not any(bank.sight_hash):
            continue
        seen = _places(
            item_keys(seen_as(), range(len(names[0]))),
            item_keys(bank.sight_hash, bank.doc_id.tolist()),
        )
        seen = [place if own else None for place, own in zip(seen, bank.sight_hash, strict=True)]
        changed = sum(
            place is not None and before is None for place, before in zip(seen, found, strict=True)
        )
        if seen.count(None) < found.count(None):
            found = seen
            notices.append(f"{changed} documents are told by their {told}")
    lost = found.count(None)
    edited = _edited(bank, found, len(names[0]))
    if _too_few(found):
        raise DataError(
            f"{lost} of the {len(found)} items of bank {bank.path or bank.info.task} are not among "
            f"the {len(names[0])} documents of task {bank.info.task}: the documents were edited, "
            "or the bank is of another dataset or split; recalibrate it on these documents"
        )
    if lost:
        which = f" ({edited} of them edited: another document has their doc_id)" if edited else ""
        notices.append(
            f"{lost} of the bank's {len(found)} items are left out: their documents are not (or no "
            f"longer) in the task{which}"
        )
    moved = sum(
        place is not None and place != then
        for place, then in zip(found, bank.doc_id.tolist(), strict=True)
    )
    if moved and _knows_order(bank):
        notices.append(
            f"{moved} documents have another doc_id than when the bank was made (another order); "
            "they were found by their content"
        )
    twice = sum("#" in name for name in bank.content_hash)
    if twice:
        notices.append(
            f"{twice} items of the bank are documents that repeat word for word; each counts, told "
            "apart by its doc_id"
        )
    return found, notices


def _places(keys: Sequence[str], items: Sequence[str]) -> list[int | None]:
    where = {key: doc_id for doc_id, key in enumerate(keys)}
    return [where.get(item) for item in items]


def _too_few(found: Sequence[int | None]) -> bool:
    return found.count(None) > MAX_LOST * len(found)


def _edited(bank: ItemBank, found: Sequence[int | None], documents: int) -> int:
    """Items without a document whose doc_id some document has that no item knows."""
    if not _knows_order(bank):
        return 0
    known = {place for place in found if place is not None}
    return sum(
        place is None and then < documents and then not in known
        for place, then in zip(found, bank.doc_id.tolist(), strict=True)
    )


def _knows_order(bank: ItemBank) -> bool:
    """Whether the bank's doc_ids are those of logs, not the rows of a table."""
    return any(bank.doc_hash) or any(bank.prompt_hash)
