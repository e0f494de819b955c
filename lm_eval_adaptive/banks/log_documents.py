"""Which document each logged answer is to, over several runs.

This module owns the table of answers by document and run: documents that repeat, that moved, that
were edited between runs, that a log knows by number alone. It imports the log reader's runs and
what names a document.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lm_eval_adaptive.core.identity import item_keys
from lm_eval_adaptive.errors import DataError
from lm_eval_adaptive.host.sight import sights

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from lm_eval_adaptive.host.logs import LoggedRun

BY_DOC_ID = "doc_id:"
"""Begins the name of a document that the logs know by its id alone."""


@dataclass(frozen=True, eq=False)
class DocumentTable:
    """Where each run's answer to each document is.

    Attributes:
        items: Names of the n documents.
        contents: Their content hashes.
        doc_ids: Their ids in the first run that has them, shape (n,).
        places: Row of each answer in its run's columns, shape (m, n), -1 where there is none.
    """

    items: tuple[str, ...]
    contents: tuple[str, ...]
    doc_ids: NDArray[np.int64]
    places: NDArray[np.int32]


def rows_under(run: LoggedRun, name: str | None) -> NDArray[np.intp]:
    """Rows of a run's columns that are under a filter; all where the logs name none."""
    columns = run.answers.columns
    if name is None:
        return np.arange(len(columns.doc_ids))
    wanted = [code for code, label in enumerate(columns.filters) if label == name]
    return np.flatnonzero(np.isin(columns.filter_of, wanted))


def sights_of(run: LoggedRun, rows: NDArray[np.intp]) -> tuple[str, ...]:
    """What the model saw of some rows' documents and what they were held against, as hashes."""

    def seen() -> Iterator[tuple[str, object]]:
        for row in rows:
            answer = run.answers[int(row)]
            yield answer.prompt, answer.target

    return sights(seen)


class Documents:
    """Which document each row of each run answers, by number.

    Rows without a document take that of another run with their doc_id; where no run has it, the
    document is named by its id alone.

    Args:
        runs: The runs.
        name: The filter whose rows count, None for all.
        read: The columns of a document that the task reads, None for all.
        notices: Takes a line for each run without documents.
        whole_documents: Whether every column counts, whatever the task reads.

    Attributes:
        contents: The content hash of each number.
    """

    def __init__(
        self,
        runs: Sequence[LoggedRun],
        name: str | None,
        read: frozenset[str] | None,
        notices: list[str],
        *,
        whole_documents: bool,
    ) -> None:
        self._runs = runs
        self._name = name
        numbers: dict[str, int] = {}
        self._maps: dict[int, NDArray[np.int64]] = {}
        for book in {id(run.answers.book): run.answers.book for run in runs}.values():
            codes = [numbers.setdefault(each, len(numbers)) for each in book.seen(read)]
            self._maps[id(book)] = np.array([*codes, -1], dtype=np.int64)
        whole = [run for run in runs if (run.answers.columns.content_of >= 0).all()]
        bare = [run for run in runs if (run.answers.columns.content_of < 0).any()]
        self._by_doc_id: dict[int, int] = {}
        if bare and whole:
            columns = whole[0].answers.columns
            mapped = self._maps[id(whole[0].answers.book)][columns.content_of]
            pairs = zip(columns.doc_ids.tolist(), mapped.tolist(), strict=True)
            self._by_doc_id = dict(pairs)
        for run in bare:
            for doc_id in run.answers.columns.doc_ids.tolist():
                if doc_id not in self._by_doc_id:
                    own = numbers.setdefault(f"{BY_DOC_ID}{doc_id}", len(numbers))
                    self._by_doc_id[doc_id] = own
            if whole:
                told = "has no documents; they were matched to the others' by id"
                notices.append(f"{run.path}: {told}")
        self.contents = list(numbers)
        if read is None and not whole_documents:
            self._take_alike_as_one(notices)

    def _take_alike_as_one(self, notices: list[str]) -> None:
        """Give documents one number that are asked and judged alike, whatever else they hold.

        Where a task's code hands its documents on, a column that changed between runs may be one
        that nothing reads: prompts and targets decide.
        """
        found = [self.of(run) for run in self._runs]
        if len({frozenset(numbers.tolist()) for _, _, numbers in found}) < 2:
            return
        one_of = np.arange(len(self.contents) + 1)
        one_of[-1] = -1
        first_with: dict[str, int] = {}
        for run, (rows, _, numbers) in zip(self._runs, found, strict=True):
            own = sights_of(run, rows)
            counts = Counter(own)
            for sight, number in zip(own, numbers.tolist(), strict=True):
                if sight and counts[sight] == 1:
                    one_of[number] = first_with.setdefault(sight, number)
        alike = int((one_of[:-1] != np.arange(len(self.contents))).sum())
        if alike:
            self._maps = {book: one_of[numbers] for book, numbers in self._maps.items()}
            self._by_doc_id = {id_: int(one_of[n]) for id_, n in self._by_doc_id.items()}
            notices.append(
                f"{alike} documents differ between runs in columns that neither their prompts nor "
                "their targets show, and count as the same"
            )

    def of(self, run: LoggedRun) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int64]]:
        """A run's rows under the filter, their doc_ids, and the numbers of their documents."""
        columns, rows = run.answers.columns, rows_under(run, self._name)
        ids = columns.doc_ids[rows]
        numbers = self._maps[id(run.answers.book)][columns.content_of[rows]]
        for place in np.flatnonzero(numbers < 0).tolist():
            numbers[place] = self._by_doc_id[int(ids[place])]
        return rows, ids, numbers


def table_of(
    runs: Sequence[LoggedRun],
    name: str | None,
    read: frozenset[str] | None,
    notices: list[str],
    max_edited: float,
    *,
    whole_documents: bool = False,
) -> DocumentTable:
    """Answers by document and run, without documents that were edited between runs."""
    documents = Documents(runs, name, read, notices, whole_documents=whole_documents)
    contents = documents.contents
    repeats = np.zeros(len(contents), dtype=bool)
    for run in runs:
        repeats |= np.bincount(documents.of(run)[2], minlength=len(contents)) > 1
    # A document's key: its number, with its id where the document repeats word for word.
    span = max(int(run.answers.columns.doc_ids.max()) for run in runs) + 2

    def keys_of(ids: NDArray[Any], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        keys: NDArray[np.int64] = numbers * span + np.where(repeats[numbers], ids + 1, 0)
        return keys

    keys = np.zeros(0, dtype=np.int64)
    for run in runs:
        _, ids, numbers = documents.of(run)
        new = np.setdiff1d(keys_of(ids, numbers), keys)
        if len(new):
            keys = np.union1d(keys, new)
    places = np.full((len(runs), len(keys)), -1, dtype=np.int32)
    doc_ids = np.full((len(runs), len(keys)), -1, dtype=np.int32)
    total = 0
    for row, run in enumerate(runs):
        rows, ids, numbers = documents.of(run)
        columns = np.searchsorted(keys, keys_of(ids, numbers))
        places[row, columns] = rows
        doc_ids[row, columns] = ids
        total = max(total, len(ids))
    first = doc_ids[(places >= 0).argmax(axis=0), np.arange(len(keys))].astype(np.int64)
    edited = _edited(places, first, doc_ids)
    positions = sorted(set(first[edited].tolist()))
    if positions:
        shown = ", ".join(map(str, positions[:5])) + (", …" if len(positions) > 5 else "")
        told = f"{len(positions)} of {total} documents differ between runs (doc_id {shown})"
        if len(positions) > max_edited * total:
            raise DataError(
                f"{told}, more than {max_edited:.0%}; give runs on one version of the data"
            )
        notices.append(f"{told} and were left out")
    moved = np.zeros(len(keys), dtype=bool)
    for own in doc_ids:
        moved |= (own >= 0) & (own != first)
    if count := int((moved & ~edited).sum()):
        notices.append(f"{count} documents have different doc_ids in different runs")
    hashes = [contents[int(key) // span] for key in keys]
    names = item_keys(
        hashes,
        first.tolist(),
        frozenset(contents[number] for number in np.flatnonzero(repeats)),
    )
    kept = sorted(np.flatnonzero(~edited).tolist(), key=lambda col: (first[col], names[col]))
    if not kept:
        raise DataError("the runs have no document in common; give runs on one version of the data")
    return DocumentTable(
        tuple(names[col] for col in kept),
        tuple(hashes[col] for col in kept),
        first[kept],
        places[:, kept],
    )


def _edited(
    places: NDArray[np.int32], first: NDArray[np.int64], doc_ids: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """Which documents were edited: those that a run lacks while it has another one in their place.

    One that a run lacks without a substitute is a missing answer; one that moved keeps its name
    and its scores.
    """
    edited = np.zeros(len(first), dtype=bool)
    for own, ids in zip(places, doc_ids, strict=True):
        lacking = own < 0
        if lacking.any():
            edited[lacking] |= np.isin(first[lacking], ids[~lacking])
    return edited
