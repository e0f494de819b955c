"""A run's answers as columns of numbers, with their texts a look-up away.

A score matrix of a thousand logs needs of each answer its document, its prompt's hash, two lengths
and its metrics; the texts would take a hundred times the room. Hashes stand once, in a
:class:`HashBook` that all runs of one reading share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from lm_eval_adaptive.host.columns import seen_hash_of_json
from lm_eval_adaptive.host.logs.samples import answer_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from lm_eval_adaptive.host.logs.reading import RowStore
    from lm_eval_adaptive.host.logs.records import LoggedAnswer
    from lm_eval_adaptive.host.logs.samples import Row


@dataclass(frozen=True, eq=False)
class MetricColumn:
    """One metric's values.

    Attributes:
        values: Shape (n,), NaN where the value is no number or there is none.
        present: Shape (n,), whether the row has the metric.
        others: Values that are no numbers (pairs, lists, None), by row.
    """

    values: NDArray[np.float64]
    present: NDArray[np.bool_]
    others: Mapping[int, object]

    def value(self, row: int) -> object:
        """A row's raw value."""
        return self.others.get(row, float(self.values[row]))


@dataclass(frozen=True, eq=False)
class FileColumns:
    """The answers of one file as columns; hashes by their number in the file's own lists."""

    places: NDArray[np.integer[Any]]
    doc_ids: NDArray[np.integer[Any]]
    filter_of: NDArray[np.int16]
    content_of: NDArray[np.int32]
    prompts: NDArray[np.uint64]
    doc_hashes: NDArray[np.uint64]
    n_requests: NDArray[np.int16]
    prompt_chars: NDArray[np.int32]
    reply_chars: NDArray[np.float32]
    filters: tuple[str | None, ...]
    contents: tuple[str, ...]
    full_prompts: tuple[str, ...]
    full_doc_hashes: tuple[str, ...]
    metrics: Mapping[str, MetricColumn]


class HashBook:
    """Hashes of all runs that were read together.

    Attributes:
        contents: Content hashes by their number.
    """

    def __init__(self) -> None:
        self.contents: list[str] = []
        self._first: list[tuple[RowStore, int]] = []  # where each document was met
        self._number: dict[str, int] = {}
        self._documents: set[tuple[int, int]] = set()
        self._full: dict[int, str] = {}

    def take(
        self, columns: FileColumns, store: RowStore, *, used: frozenset[str] | None = None
    ) -> FileColumns:
        """A file's columns by this book's numbers, with what the file alone needs let go.

        Args:
            columns: As they were read.
            store: Reads a row again.
            used: Metrics to keep; all when left out.
        """
        numbers = np.array([*map(self._of, columns.contents), -1], dtype=np.int32)
        content_of = numbers[columns.content_of]
        if len(self.contents) > len(self._first):
            new, rows = np.unique(content_of, return_index=True)
            for number, row in zip(new.tolist(), rows.tolist(), strict=True):
                if number == len(self._first):
                    self._first.append((store, int(columns.places[row])))
        keys = zip(content_of.tolist(), columns.doc_ids.tolist(), strict=True)
        # The whole hash is told of documents on which all runs agree: the first run's will do.
        for row, key in enumerate(keys):
            if key not in self._documents:
                self._documents.add(key)
                self._full[int(columns.prompts[row])] = columns.full_prompts[row]
                self._full[int(columns.doc_hashes[row])] = columns.full_doc_hashes[row]
        return FileColumns(
            **{
                **columns.__dict__,
                "content_of": content_of,
                "contents": (),
                "full_prompts": (),
                "full_doc_hashes": (),
                "metrics": {
                    name: column
                    for name, column in columns.metrics.items()
                    if used is None or name in used
                },
            }
        )

    def full(self, short: int) -> str:
        """The whole hash of a prompt or a document, "" where it is not known."""
        return self._full.get(short, "")

    def seen(self, read: frozenset[str] | None) -> list[str]:
        """Hashes of the documents by their numbers, of the columns that a task reads.

        Args:
            read: Those columns; None for the whole documents.
        """
        if read is None:
            return self.contents
        found = []
        last = None
        for store, place in self._first:
            if last is not None and last is not store:
                last.close()
            found.append(seen_hash_of_json(answer_of(store.row(place), None).doc, read))
            last = store
        if last is not None:
            last.close()
        return found

    def _of(self, content: str) -> int:
        number = self._number.setdefault(content, len(self.contents))
        if number == len(self.contents):
            self.contents.append(content)
        return number


class AnswerTable(Sequence["LoggedAnswer"]):
    """A run's answers, sorted by document and filter.

    As a sequence it gives each answer in full, read from the file; its columns are in memory.

    Args:
        columns: The columns, by the book's numbers.
        book: Hashes by their numbers.
        stores: Read a row again, one for each file of the run.
        store_of: The file of each row, shape (n,); left out where there is one.
    """

    def __init__(
        self,
        columns: FileColumns,
        book: HashBook,
        stores: Sequence[RowStore],
        store_of: NDArray[np.int16] | None = None,
    ) -> None:
        self.columns = columns
        self.book = book
        self.stores = tuple(stores)
        self._store_of = store_of

    def __len__(self) -> int:
        return len(self.columns.doc_ids)

    @overload
    def __getitem__(self, index: int) -> LoggedAnswer: ...
    @overload
    def __getitem__(self, index: slice) -> list[LoggedAnswer]: ...
    def __getitem__(self, index: int | slice) -> LoggedAnswer | list[LoggedAnswer]:
        """An answer in full."""
        if isinstance(index, slice):
            return [self[row] for row in range(*index.indices(len(self)))]
        row = range(len(self))[index]
        store = self.stores[0 if self._store_of is None else self._store_of[row]]
        text = store.row(int(self.columns.places[row]))
        return answer_of(text, self.filters[self.columns.filter_of[row]])

    @property
    def filters(self) -> tuple[str | None, ...]:
        """The filters, in the order in which they were applied."""
        return self.columns.filters

    def content(self, row: int) -> str:
        """A row's content hash, "" where it has no document."""
        number = int(self.columns.content_of[row])
        return "" if number < 0 else self.book.contents[number]


def columns_of(rows: Sequence[tuple[Row, str | None]]) -> FileColumns:
    """Rows and their filters as columns."""
    contents: dict[str, int] = {}
    filters: dict[str | None, int] = {}
    for row, label in rows:
        filters.setdefault(label, len(filters))
        if row.content:
            contents.setdefault(row.content, len(contents))
    names = dict.fromkeys(name for row, _ in rows for name in row.metrics)
    return FileColumns(
        places=_smallest([row.place for row, _ in rows]),
        doc_ids=_smallest([row.doc_id for row, _ in rows]),
        filter_of=np.array([filters[label] for _, label in rows], np.int16),
        content_of=np.array([contents.get(row.content, -1) for row, _ in rows], np.int32),
        prompts=np.array([short(row.prompt_hash) for row, _ in rows], np.uint64),
        doc_hashes=np.array([short(row.doc_hash) for row, _ in rows], np.uint64),
        n_requests=np.array([row.n_requests for row, _ in rows], np.int16),
        prompt_chars=np.array([row.prompt_chars for row, _ in rows], np.int32),
        reply_chars=np.array([row.reply_chars for row, _ in rows], np.float32),
        filters=tuple(filters),
        contents=tuple(contents),
        full_prompts=tuple(row.prompt_hash for row, _ in rows),
        full_doc_hashes=tuple(row.doc_hash for row, _ in rows),
        metrics={name: _column(name, rows) for name in names},
    )


def joined(parts: Sequence[FileColumns]) -> tuple[FileColumns, NDArray[np.int16]]:
    """The columns of several files of one run as one, by one book's numbers.

    Returns:
        The columns, sorted by document and filter, and the file of each row.
    """
    filters = {label: None for part in parts for label in part.filters}
    order = {label: place for place, label in enumerate(filters)}
    filter_of = np.concatenate(
        [np.array([order[label] for label in part.filters])[part.filter_of] for part in parts]
    )
    doc_ids = np.concatenate([part.doc_ids for part in parts])
    by = np.lexsort((filter_of, doc_ids))

    def column(name: str) -> Any:
        return np.concatenate([getattr(part, name) for part in parts])[by]

    names = dict.fromkeys(name for part in parts for name in part.metrics)
    file_of = np.repeat(np.arange(len(parts)), [len(part.doc_ids) for part in parts])[by]
    names_of_columns = (
        "places", "content_of", "prompts", "doc_hashes", "n_requests", "prompt_chars",
        "reply_chars",
    )  # fmt: skip
    columns = FileColumns(
        **{name: column(name) for name in names_of_columns},
        doc_ids=doc_ids[by],
        filter_of=filter_of[by].astype(np.int16),
        filters=tuple(filters),
        contents=(),
        full_prompts=(),
        full_doc_hashes=(),
        metrics={name: _joined_metric(name, parts, by) for name in names},
    )
    return columns, file_of.astype(np.int16)


def _joined_metric(name: str, parts: Sequence[FileColumns], by: NDArray[np.intp]) -> MetricColumn:
    lengths = [len(part.doc_ids) for part in parts]
    starts = np.cumsum([0, *lengths[:-1]])
    values = [
        part.metrics[name].values if name in part.metrics else np.full(n, np.nan)
        for part, n in zip(parts, lengths, strict=True)
    ]
    present = [
        part.metrics[name].present if name in part.metrics else np.zeros(n, np.bool_)
        for part, n in zip(parts, lengths, strict=True)
    ]
    place_of = np.argsort(by)
    others = {
        int(place_of[start + row]): value
        for part, start in zip(parts, starts, strict=True)
        if name in part.metrics
        for row, value in part.metrics[name].others.items()
    }
    return MetricColumn(np.concatenate(values)[by], np.concatenate(present)[by], others)


def _smallest(numbers: Sequence[int]) -> NDArray[np.integer[Any]]:
    """Numbers in four bytes each, where they fit."""
    fit = min(numbers) >= -(2**31) and max(numbers) < 2**31
    return np.array(numbers, np.int32 if fit else np.int64)


def short(digest: str) -> int:
    """Eight bytes of a hash, 0 for none.

    >>> short("00000000000000ff" + "ab" * 24), short("")
    (255, 0)
    """
    try:
        return int(digest[:16] or "0", 16)
    except ValueError:
        return hash_of_text(digest)


def hash_of_text(text: str) -> int:
    """Eight bytes of a text's hash, for hashes that are not written in hexadecimal."""
    import hashlib

    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def _column(name: str, rows: Sequence[tuple[Row, str | None]]) -> MetricColumn:
    values = np.full(len(rows), np.nan)
    present = np.zeros(len(rows), np.bool_)
    others: dict[int, Any] = {}
    for place, (row, _) in enumerate(rows):
        if name not in row.metrics:
            continue
        present[place] = True
        value = row.metrics[name]
        if isinstance(value, bool | int | float):
            values[place] = value
        else:
            others[place] = value
    return MetricColumn(values, present, others)
