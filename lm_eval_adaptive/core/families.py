"""Which family each model belongs to: from a table, or from the names' prefixes.

This module owns the labels that regime *family* of ``core.regimes`` draws by; it imports nothing
but the errors. A model without a label belongs to no family: it may calibrate, it is never ranked.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import TYPE_CHECKING

from lm_eval_adaptive.errors import DataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

PREFIX = "prefix"
# Cells of a table that say "of no family": a column may mark the members of one group by 1.
_NONE = frozenset({"", "0", "0.0", "no", "false", "nan", "none", "null"})


def prefix_family(name: str) -> str:
    """The name up to its first separator or digit, in lower case.

    >>> [prefix_family(name) for name in ("Qwen2.5-7B", "qwen-max", "org/model", "01-ai/Yi-6B")]
    ['qwen', 'qwen', 'org', '01']
    """
    word = re.split(r"[-_.@ /]", name)[0].lower()
    return re.sub(r"\d.*$", "", word) or word


def read_families(word: str, models: Sequence[str], scores: Path | None = None) -> dict[str, str]:
    """Families of some models.

    Args:
        word: ``prefix``; a CSV or TSV file with the columns ``model`` and ``family``; or the name
            of a column in the table ``<scores>.models.csv`` beside the scores.
        models: Names of the models.
        scores: The file of scores, where there is one.

    Returns:
        The family of each model that has one.

    Raises:
        UsageError: The file or the column is not there.
        DataError: The table cannot be read, names none of the models, or gives one two families.
    """
    if word == PREFIX:
        return {name: prefix_family(name) for name in models}
    path, column = Path(word), "family"
    if path.suffix.lower() not in {".csv", ".tsv"} and not path.is_file():
        if scores is None:
            raise UsageError(
                f"--family {word}: a column needs a file of scores with a table of models beside "
                "it; give a CSV file with the columns model and family, or prefix"
            )
        path, column = scores.with_name(f"{_stem(scores)}.models.csv"), word
        if not path.is_file():
            raise UsageError(
                f"--family {word}: {word} is no file, and for a column of that name there is no "
                f"table of models at {path}; give a CSV file with the columns model and family, or "
                "prefix"
            )
    table = _read(path)
    names = {name.strip().lower(): name for name in table[0]} if table else {}
    for wanted in ("model", column.lower()):
        if wanted not in names:
            raise UsageError(
                f"--family {word}: {path} has no column {wanted}; its columns are "
                f"{', '.join(names) or 'none'}"
            )
    found: dict[str, str] = {}
    known = set(models)
    listed = False
    for row in table:
        name = (row[names["model"]] or "").strip()
        family = (row[names[column.lower()]] or "").strip()
        if name not in known:
            continue
        listed = True
        if family.lower() in _NONE:
            continue
        if found.setdefault(name, family) != family:
            raise DataError(
                f"{path}: model {name!r} stands in two families, {found[name]} and {family}; keep "
                "one row for each model"
            )
    if not listed:
        example = ", ".join(list(models)[:3])
        raise DataError(
            f"--family {word}: {path} names none of the {len(models)} models of the scores, such "
            f"as {example}"
        )
    return found


def _stem(path: Path) -> str:
    """The name of a file of scores without what says how it is written."""
    return re.sub(r"(\.(parquet|pq|csv|tsv|gz))+$", "", path.name, flags=re.IGNORECASE)


def _read(path: Path) -> list[dict[str, str]]:
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file, delimiter=delimiter, restval="")
            return [{str(name): cell for name, cell in row.items()} for row in rows]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(f"--family: {path} cannot be read as a table ({reason})") from error
