"""A matrix of scores, models × items, and reading it from Parquet or CSV.

The module owns the table that calibration and simulation start from. Scores are raw: in the
metric's own unit and direction. It knows no harness; logs become the same table elsewhere.

Three layouts of a file are understood, told apart by the names of the columns:

* long: columns ``model``, ``item``, ``score`` and optionally ``metric`` and ``run``; a row per
  answer. In place of ``score`` a column may bear the name of the metric that is asked for, in place
  of ``item`` may stand ``doc_id``, the number of a document of the task. Other columns are ignored.
* wide, items × models: the first column holds the item's id, every other column is a model.
* wide, models × items: the first column is called ``model`` (or the other columns are numbered and
  its cells are not), every other column is an item.

An empty cell, ``NaN``, ``NA`` or ``null`` is a missing score.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lm_eval_adaptive.core.layout import (
    contradicts_earlier,
    doc_ids_of,
    item_column,
    models_are_rows,
    names_of,
    told_layout,
)
from lm_eval_adaptive.errors import DataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray

_PARQUET = (".parquet", ".pq")
_CSV = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
CHUNK = 20_000  # rows of a CSV that are in memory as text
_MISSING = frozenset({"", "nan", "na", "n/a", "null", "none"})
_LAYOUTS = (
    "expected columns model, item, score (long), or an item id followed by one column per model "
    "(wide)"
)


@dataclass(frozen=True, eq=False)
class ScoreMatrix:
    """Raw scores of several models on the items of one task.

    Args:
        models: Names of the rows, all different.
        items: Ids of the columns, all different.
        scores: Shape (m, n), raw metric units, NaN where a model has no score. Copied, read-only.
        item_attributes: Columns that describe items (ids, lengths, domains), each of length n.
        groups: For each row, the model it belongs to: several runs of one model (temperatures,
            repeats) are rows of their own in one group. The row's own name when left out.
        notices: How a file was read where that could be otherwise, a line each.

    Raises:
        DataError: Shapes do not fit, a name stands twice, or a score is infinite.
    """

    models: tuple[str, ...]
    items: tuple[str, ...]
    scores: NDArray[np.float64]
    item_attributes: dict[str, NDArray[Any]] | None = None
    groups: tuple[str, ...] = field(default=())
    notices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        scores = np.array(self.scores, dtype=np.float64)
        scores.setflags(write=False)
        object.__setattr__(self, "scores", scores)
        object.__setattr__(self, "models", tuple(self.models))
        object.__setattr__(self, "items", tuple(self.items))
        object.__setattr__(self, "groups", tuple(self.groups) or self.models)
        expected = (len(self.models), len(self.items))
        if scores.shape != expected:
            raise DataError(
                f"scores have shape {scores.shape}, expected {expected}: models × items"
            )
        if len(self.groups) != len(self.models):
            raise DataError(
                f"{len(self.groups)} groups for {len(self.models)} models, expected one for each"
            )
        for what, names in (("model", self.models), ("item", self.items)):
            if len(set(names)) != len(names):
                twice = next(name for name, count in Counter(names).items() if count > 1)
                raise DataError(f"{what} {twice!r} stands twice; every {what} needs its own name")
        for name, column in (self.item_attributes or {}).items():
            if len(column) != len(self.items):
                raise DataError(
                    f"item attribute {name!r} has {len(column)} values for {len(self.items)} items"
                )
        if np.isinf(scores).any():
            row, col = np.argwhere(np.isinf(scores))[0]
            raise DataError(
                f"score of model {self.models[row]!r} on item {self.items[col]!r} is "
                f"{scores[row, col]}, expected a finite number or a missing value"
            )

    def select_models(self, names: Sequence[str]) -> ScoreMatrix:
        """The same items for some of the models, in the order of ``names``.

        Raises:
            UsageError: A name is not among the models; the message lists those that are.
        """
        rows = {name: row for row, name in enumerate(self.models)}
        for name in names:
            if name not in rows:
                raise UsageError(
                    f"model {name!r} is not among the scores; they hold: {', '.join(self.models)}"
                )
        picked = [rows[name] for name in names]
        return ScoreMatrix(
            tuple(names),
            self.items,
            self.scores[picked],
            self.item_attributes,
            tuple(self.groups[row] for row in picked),
            self.notices,
        )

    def select_items(self, keep: NDArray[np.bool_] | Sequence[int]) -> ScoreMatrix:
        """The same models on some of the items: a mask of length n, or column numbers."""
        columns = np.arange(len(self.items))[np.asarray(keep)]
        attributes = self.item_attributes
        return ScoreMatrix(
            self.models,
            tuple(self.items[col] for col in columns),
            self.scores[:, columns],
            None if attributes is None else {k: v[columns] for k, v in attributes.items()},
            self.groups,
            self.notices,
        )


def read_scores(path: str | Path, metric: str | None = None) -> ScoreMatrix:
    """Read a score matrix from a Parquet or CSV file; this module describes the layouts.

    Args:
        path: ``.parquet``, ``.csv`` or ``.tsv`` (also ``.gz``).
        metric: Which metric to take, where the file holds several. A wide file holds one metric
            and does not name it, so the argument changes nothing there.

    Returns:
        Models sorted by name, items in the order in which they first appear. With a ``run``
        column, a model with several runs has a row ``model#run`` for each, in one group. Items that
        are named by ``doc_id`` have it as an attribute, too.

    Raises:
        DataError: The file is missing or damaged, has no known layout, lacks the metric, scores a
            model twice and unequally on an item, or holds a score that is no finite number.
    """
    path = Path(path)
    table = _read_table(path, metric)
    columns = {str(name).strip().lower(): name for name in table.columns}
    if "model" in columns and item_column(list(columns)):
        return _from_long(path, table, columns, metric)
    return _from_wide(path, table)


def _read_table(path: Path, metric: str | None) -> pd.DataFrame:
    """The file as a data frame; ids of a CSV stay text, so that they keep their zeros."""
    import pandas as pd

    name = path.name.lower()
    if not name.endswith(_PARQUET + _CSV):
        raise DataError(f"{path}: expected a file ending in .parquet, .csv or .tsv")
    if not path.is_file():
        raise DataError(f"{path}: no such file of scores")
    try:
        if name.endswith(_PARQUET):
            table = pd.read_parquet(path)
        else:
            table = _read_csv(path, "\t" if ".tsv" in name else ",", metric)
    except DataError:
        raise
    except (ValueError, OSError, EOFError) as error:  # pandas' and Arrow's errors are ValueErrors
        raise DataError(f"{path}: cannot be read as a table of scores ({_why(error)})") from error
    if name.endswith(_PARQUET) and not isinstance(table.index, pd.RangeIndex):
        table = table.reset_index()  # item ids that pandas stored as the index
    if table.empty or len(table.columns) < 2:
        raise DataError(f"{path}: holds no scores; {_LAYOUTS}")
    return table


def _why(error: Exception) -> str:
    """The reason why a file is no table, with what is likely to be behind it."""
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if isinstance(error, UnicodeDecodeError):
        return f"{reason}; it is no UTF-8 text, save it as UTF-8"
    if "Expected" in reason and "fields" in reason:
        return f"{reason}; a text with commas needs quotes, and a decimal needs a point, 0.5"
    return reason


def _read_csv(path: Path, separator: str, metric: str | None) -> pd.DataFrame:
    """A CSV file, read by chunks: only scores, as numbers, and names, each once, stay in memory."""
    import pandas as pd

    head = pd.read_csv(path, sep=separator, dtype=str, keep_default_na=False, nrows=1)
    _check_head(path, head, separator)
    columns = {str(name).strip().lower(): str(name) for name in head.columns}
    item = item_column(list(columns))
    long = "model" in columns and item is not None
    wanted = list(head.columns)
    if long:
        score = columns.get("score") or columns.get((metric or "").lower())
        named = [columns.get(name) for name in ("model", item or "", "metric", "run")]
        if score is None:
            return head  # enough to tell what is missing
        wanted = [name for name in head.columns if name in {score, *named}]
        numeric = [name for name in wanted if name == score]
    else:
        numeric = wanted[1:]
    chunks = pd.read_csv(path, sep=separator, dtype=str, keep_default_na=False, chunksize=CHUNK)
    parts: dict[str, list[Any]] = {name: [] for name in wanted}
    for chunk in chunks:
        for name in wanted:
            column = chunk[name]
            parts[name].append(
                _numbers(path, column, chunk)
                if name in numeric and not _other_metric(chunk, columns, metric)
                else column.astype("category").array
            )
    return pd.DataFrame({name: _joined(values) for name, values in parts.items()})


def _other_metric(chunk: pd.DataFrame, columns: Mapping[str, str], metric: str | None) -> bool:
    """Whether a chunk may hold scores of metrics that were not asked for, which may be anything."""
    name = columns.get("metric")
    return metric is not None and name in chunk.columns and bool((chunk[name] != metric).any())


def _joined(parts: Sequence[Any]) -> Any:
    """Chunks of a column as one."""
    from pandas.api.types import union_categoricals

    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts) if parts else np.zeros(0)
    if any(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate([np.asarray(part, dtype=object) for part in parts])
    joined: Any = union_categoricals(list(parts))
    return joined


def _check_head(path: Path, head: pd.DataFrame, separator: str) -> None:
    """Refuse a CSV file whose cells are separated otherwise, or that has more cells than names.

    Raises:
        DataError: It is one; the message says what it seems to be.
    """
    import pandas as pd

    if len(head.columns) == 1:
        only = str(head.columns[0])
        other = next((each for each in (";", "\t", "|", ",") if each in only), None)
        if other is not None:
            shown = {"\t": "a tab"}.get(other, repr(other))
            expected = {"\t": "a tab, as .tsv has"}.get(separator, repr(separator))
            raise DataError(
                f"{path}: its cells seem to be separated by {shown}, expected {expected}; save it "
                "with that, and decimals with a point"
            )
    if not isinstance(head.index, pd.RangeIndex):
        raise DataError(
            f"{path}: row 1 has more cells than the header has names ({len(head.columns)}); a "
            "decimal comma? write 0.5, or put quotes around texts with commas"
        )


def _from_long(
    path: Path, table: pd.DataFrame, columns: Mapping[str, Hashable], metric: str | None
) -> ScoreMatrix:
    import pandas as pd

    score_column = columns.get("score")
    if score_column is None and metric is not None:
        score_column = columns.get(metric.lower())
    if score_column is None:
        wanted = "score" if metric is None else f"score or {metric}"
        raise DataError(f"{path}: no column {wanted} among {', '.join(map(str, table.columns))}")
    if "metric" in columns:
        table = _rows_of_metric(path, table, columns["metric"], metric)
    item = str(item_column(list(columns)))
    for name in ("model", item):
        blank = table[columns[name]].isna() | (table[columns[name]].astype(str).str.strip() == "")
        if blank.any():
            raise DataError(f"{path}: the {name} is empty in row {_row(table, blank.to_numpy())}")
    scores = _numbers(path, table[score_column], table)
    models = names_of(table[columns["model"]])
    groups = models
    if "run" in columns:
        runs = names_of(table[columns["run"]])
        several = runs.groupby(models).transform("nunique") > 1
        models = models.where(~several, models + "#" + runs)
    row_codes, row_names = pd.factorize(models, sort=True)
    col_codes, col_names = pd.factorize(names_of(table[columns[item]]))
    cells = row_codes * np.int64(len(col_names)) + col_codes
    twice = contradicts_earlier(cells, scores)
    if twice.any():
        first = int(np.flatnonzero(twice)[0])
        raise DataError(
            f"{path}: model {models.iloc[first]!r} has a second score for item "
            f"{col_names[col_codes[first]]!r} in row {_row(table, twice)}; keep one, or tell runs "
            "apart in a column named run"
        )
    notices = []
    if repeats := len(cells) - len(np.unique(cells)):
        notices.append(f"{repeats} rows repeat the score of another row and count once")
    matrix = np.full((len(row_names), len(col_names)), np.nan)
    matrix[row_codes, col_codes] = scores
    group_of = dict(zip(models, groups, strict=True))
    return ScoreMatrix(
        tuple(row_names),
        tuple(col_names),
        matrix,
        item_attributes=(
            {"doc_id": doc_ids_of(list(col_names), str(path))} if item == "doc_id" else None
        ),
        groups=tuple(group_of[name] for name in row_names),
        notices=tuple(notices),
    )


def _rows_of_metric(
    path: Path, table: pd.DataFrame, column: Hashable, metric: str | None
) -> pd.DataFrame:
    available = sorted(set(table[column].astype(str)))
    if metric is None:
        if len(available) > 1:
            raise DataError(f"{path}: holds several metrics, name one of: {', '.join(available)}")
        return table
    rows: pd.DataFrame = table[table[column].astype(str) == metric]
    if rows.empty:
        raise DataError(f"{path}: no metric {metric!r}; it holds: {', '.join(available)}")
    return rows


def _from_wide(path: Path, table: pd.DataFrame) -> ScoreMatrix:
    import pandas as pd

    ids = table.iloc[:, 0]
    blank = (ids.isna() | (ids.astype(str).str.strip() == "")).to_numpy()
    if blank.any():
        raise DataError(f"{path}: the first column is empty in row {_row(table, blank)}")
    names = names_of(ids)
    if pd.api.types.is_float_dtype(ids) and names.str.contains(".", regex=False).any():
        raise DataError(
            f"{path}: the first column ({ids.name}) holds decimal numbers, not ids; {_LAYOUTS}"
        )
    cells = np.column_stack([_numbers(path, table[col], table) for col in table.columns[1:]])
    first_of = {name: row for row, name in reversed(list(enumerate(names)))}
    again = np.array([first_of[name] for name in names])
    same = (cells == cells[again]) | (np.isnan(cells) & np.isnan(cells[again]))
    twice = ~same.all(axis=1)
    if twice.any():
        raise DataError(
            f"{path}: {names[twice].iloc[0]!r} stands a second time in the first column, with "
            f"other scores, in row {_row(table, twice)}; keep one"
        )
    kept = again == np.arange(len(again))
    cells, row_names = cells[kept], list(names[kept])
    col_names = [str(name) for name in table.columns[1:]]
    head = str(table.columns[0])
    rows = models_are_rows(head, row_names, col_names)
    if rows:
        models, items, scores = row_names, col_names, cells
    else:
        models, items, scores = col_names, row_names, cells.T
    notices = [told_layout(rows=rows, n_models=len(models), n_items=len(items))]
    if not kept.all():
        notices.append(f"{int((~kept).sum())} rows repeat another row and count once")
    by_id = head.strip().lower() == "doc_id" and not rows
    order = sorted(range(len(models)), key=models.__getitem__)
    return ScoreMatrix(
        tuple(models[row] for row in order),
        tuple(items),
        scores[order],
        {"doc_id": doc_ids_of(items, str(path))} if by_id else None,
        notices=tuple(notices),
    )


def _numbers(path: Path, column: pd.Series[Any], table: pd.DataFrame) -> NDArray[np.float64]:
    """The column as floats; what is neither a number nor a sign of absence is refused."""
    import pandas as pd

    values = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    unread = np.isnan(values) & column.notna().to_numpy()
    if unread.any() and not pd.api.types.is_numeric_dtype(column):
        absent = column.astype(str).str.strip().str.lower().isin(_MISSING).to_numpy()
        wrong = unread & ~absent
        if wrong.any():
            value = column.to_numpy()[wrong][0]
            if re.fullmatch(r"[+-]?\d+,\d+", str(value).strip()):
                raise DataError(
                    f"{path}: {value!r} in column {column.name}, row {_row(table, wrong)}, has a "
                    "decimal comma; write a point, as in 0.5"
                )
            raise DataError(
                f"{path}: {value!r} in column {column.name}, row {_row(table, wrong)}, is no "
                f"number; {_LAYOUTS}"
            )
    if np.isinf(values).any():
        raise DataError(
            f"{path}: column {column.name} is infinite in row {_row(table, np.isinf(values))}; "
            "expected finite scores or empty cells"
        )
    return values


def _row(table: pd.DataFrame, mask: NDArray[np.bool_]) -> int:
    """Number, from 1 and without the header, of the first row of the file that the mask marks."""
    return int(table.index[int(np.flatnonzero(mask)[0])]) + 1
