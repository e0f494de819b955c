"""Banks that come with the package.

This module owns their index, ``shipped/index.json``, with one writer and one reader; it imports the
readers of JSON and opens no bank. ``scripts/ship_banks.py`` makes banks and index.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from lm_eval_adaptive.core.fields import Fields
from lm_eval_adaptive.errors import BankError, DataError

SCHEMA = 1
INDEX = "index.json"


@dataclass(frozen=True)
class ShippedBank:
    """A bank of the package, as the index has it.

    Attributes:
        name: What ``bank list`` and ``bank show`` call it.
        tasks: The harness's tasks that have its documents.
        metric: Metric.
        filters: Filters of these tasks that it serves; empty for any, where its scores were made by
            none of them.
        file: Its file's name beside the index.
        sha256: The file's hash.
        n_models: Calibration models.
        n_docs: Documents.
        source: Where the scores are from, and the commit.
        licence: The source's licence.
        mapping: How scores were brought together with documents, and how sure that is.
        date: When it was made, year-month-day.
        prompt: What a run has to say where the models answered another prompt than the task's, ""
            where it was the harness's own.
    """

    name: str
    tasks: tuple[str, ...]
    metric: str
    filters: tuple[str, ...]
    file: str
    sha256: str
    n_models: int
    n_docs: int
    source: str
    licence: str
    mapping: str
    date: str
    prompt: str

    @property
    def path(self) -> Path:
        """The bank's file."""
        return shipped_folder() / self.file


def shipped_folder() -> Path:
    """Where the banks lie."""
    return Path(__file__).resolve().parents[1] / "shipped"


@cache
def shipped_banks() -> tuple[ShippedBank, ...]:
    """All banks of the package.

    Raises:
        BankError: The index is missing or broken.
    """
    return read_index(shipped_folder() / INDEX)


def read_index(path: Path) -> tuple[ShippedBank, ...]:
    """Read what :func:`write_index` wrote.

    Raises:
        BankError: It is missing, no index, or of a newer version.
    """
    try:
        fields = Fields(json.loads(path.read_text(encoding="utf-8")))
        schema = fields.integer("schema")
        _refuse_newer(schema)
        return tuple(
            ShippedBank(
                name=each.text("name"),
                tasks=each.texts("tasks"),
                metric=each.text("metric"),
                filters=each.texts("filters"),
                file=each.text("file"),
                sha256=each.text("sha256"),
                n_models=each.integer("n_models"),
                n_docs=each.integer("n_docs"),
                source=each.text("source"),
                licence=each.text("licence"),
                mapping=each.text("mapping"),
                date=each.text("date"),
                prompt=each.text("prompt"),
            )
            for each in fields.objects("banks")
        )
    except (OSError, ValueError, DataError) as error:
        raise BankError(
            f"the index of shipped banks, {path}, cannot be read ({error}); install "
            "lm-eval-adaptive anew, or name a bank with --bank"
        ) from error


def _refuse_newer(schema: int) -> None:
    if schema > SCHEMA:
        raise DataError(f"schema {schema}, this version reads {SCHEMA}")


def write_index(banks: list[ShippedBank], path: Path) -> None:
    """Write the index."""
    plain = {"schema": SCHEMA, "banks": [asdict(each) for each in banks]}
    path.write_text(json.dumps(plain, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
