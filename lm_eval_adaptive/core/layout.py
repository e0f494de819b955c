"""What the names in a table of scores mean: which are models, which items, which are the same.

This module owns the reading of names, apart from the reading of files: numbers that stand for
names, tables whose items are the documents' ids, and whether a wide table has its models as columns
or as rows.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from lm_eval_adaptive.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from numpy.typing import NDArray

_ITEM_NAMES = ("item", "doc_id")
_FIRST_OF_MODELS = ("model", "models", "model_name", "model_id", "system", "llm")
_FIRST_OF_ITEMS = (*_ITEM_NAMES, "items", "id", "item_id", "question_id", "document", "question")
_NUMBER = re.compile(r"-?\d+")


def item_column(columns: Sequence[str]) -> str | None:
    """The column of a long table that names the item: ``item``, else ``doc_id``.

    >>> item_column(["model", "doc_id", "score"])
    'doc_id'
    """
    return next((name for name in _ITEM_NAMES if name in columns), None)


def names_of(column: pd.Series[Any]) -> pd.Series[str]:
    """Names as text: whole numbers without a point, however the file kept them.

    A column of whole numbers becomes one of decimals where a cell is empty; its names are those of
    a CSV file still.
    """
    import pandas as pd

    if pd.api.types.is_float_dtype(column):
        whole = column.isna() | (column == column.round())
        if whole.all():
            return column.astype("Int64").astype(str)
    if column.dtype == object:
        return column.map(lambda one: str(int(one)) if _is_whole_float(one) else str(one))
    return column.astype(str)


def _is_whole_float(value: object) -> bool:
    return isinstance(value, float) and value.is_integer()


def doc_ids_of(names: Sequence[str], where: str) -> NDArray[np.int64]:
    """Names of items as the ids of documents.

    Args:
        names: As they stand in the column ``doc_id``.
        where: The file, for messages.

    Raises:
        DataError: One is no whole number from 0.
    """
    for name in names:
        if not (_NUMBER.fullmatch(name.strip()) and int(name) >= 0):
            raise DataError(
                f"{where}: doc_id is {name!r}, expected the number of a document, from 0; call the "
                "column item where it holds names"
            )
    return np.array([int(name) for name in names], dtype=np.int64)


def models_are_rows(first: str, rows: Sequence[str], columns: Sequence[str]) -> bool:
    """Whether a wide table has a row for each model, and not one for each item.

    Args:
        first: Name of the first column, which names the rows.
        rows: The names in it.
        columns: Names of the other columns.

    >>> models_are_rows("model", ["a", "b"], ["q1", "q2"])
    True
    >>> models_are_rows("", ["llama", "gemma"], ["0", "1", "2"])
    True
    >>> models_are_rows("item", ["0", "1", "2"], ["7", "8"])
    False
    """
    name = first.strip().lower()
    if name in _FIRST_OF_MODELS:
        return True
    if name in _FIRST_OF_ITEMS:
        return False
    # Without a word on it, what is numbered is items, and else there are more items than models.
    numbered_rows, numbered_columns = (
        all(_NUMBER.fullmatch(each) for each in names) for names in (rows, columns)
    )
    if numbered_rows != numbered_columns:
        return numbered_columns
    return False


def told_layout(*, rows: bool, n_models: int, n_items: int) -> str:
    """How a wide table was read, as a line.

    >>> told_layout(rows=True, n_models=2, n_items=3)
    "read as a wide table with 2 models as rows and 3 items as columns; name the first column 'item' if it is the other way round"
    """  # noqa: E501  one line is what is shown
    if rows:
        return (
            f"read as a wide table with {n_models} models as rows and {n_items} items as columns; "
            "name the first column 'item' if it is the other way round"
        )
    return (
        f"read as a wide table with {n_items} items as rows and {n_models} models as columns; name "
        "the first column 'model' if it is the other way round"
    )


def contradicts_earlier(codes: NDArray[np.int64], scores: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which rows repeat an earlier one's cell with another score, shape (n,).

    Args:
        codes: The cell of each row.
        scores: Its score; two missing ones are equal.
    """
    _, first, back = np.unique(codes, return_index=True, return_inverse=True)
    earlier = scores[first[back]]
    unequal: NDArray[np.bool_] = ~((scores == earlier) | (np.isnan(scores) & np.isnan(earlier)))
    return unequal
