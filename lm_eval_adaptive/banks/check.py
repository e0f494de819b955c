"""Whether a bank fits a task's documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lm_eval_adaptive.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lm_eval_adaptive.core.bank import ItemBank


def part_of(items: int, documents: int) -> str:
    """What scores are of where a bank has a part of a task's documents, "" where it has all.

    >>> part_of(100, 500), part_of(500, 500)
    ('the 100 documents in the bank', '')
    """
    return f"the {items} documents in the bank" if items < documents else ""


def match_documents(bank: ItemBank, *names: Sequence[str]) -> tuple[list[int | None], list[str]]:
    """Where each item of a bank stands among a task's documents.

    Args:
        bank: The bank.
        *names: Item keys of the task's documents, by doc_id: by all columns, and by those that the
            task reads. Those that find most items count.

    Returns:
        A doc_id per item, None for items whose document is not there; and notices.

    Raises:
        DataError: More than 5 % of the items are not among the documents.
    """
    tried = []
    for keys in names:
        where = {key: doc_id for doc_id, key in enumerate(keys)}
        tried.append([where.get(key) for key in bank.content_hash])
    found = min(tried, key=lambda each: each.count(None))
    lost = sum(doc_id is None for doc_id in found)
    if lost > 0.05 * len(found):
        raise DataError(
            f"{lost} of the {len(found)} items of bank {bank.path or bank.info.task} are not among "
            f"the {len(names[0])} documents of task {bank.info.task}: the documents were edited, "
            "or the bank is of another dataset or split; recalibrate it on these documents"
        )
    notices = []
    if lost:
        notices.append(
            f"{lost} of the bank's {len(found)} items are left out: their documents are not (or no "
            "longer) in the task"
        )
    return found, notices
