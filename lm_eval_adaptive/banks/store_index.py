"""The index of a store of banks: what is in each file, so that not every file has to be opened.

This module owns that record, with one writer and one reader. It is a help and no truth: where it is
lost, broken or older than the files, it is made anew from these. It also tells the store's version.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

HOME = "LM_EVAL_ADAPTIVE_HOME"
SCHEMA = 1
INDEX = "index.json"


class StoredBank(msgspec.Struct, frozen=True, kw_only=True):
    """A bank of the store, as its index has it.

    Attributes:
        name: Its name.
        task: The harness's task.
        metric: Metric.
        filter: Filter.
        n_models: Calibration models.
        n_docs: Items.
        date: When it was made or last grew, year-month-day, "" where it does not tell.
        sha256: Hash of its file.
        size: Bytes of its file.
        mtime_ns: When the file was written.
    """

    name: str
    task: str
    metric: str
    filter: str
    n_models: int
    n_docs: int
    date: str
    sha256: str
    size: int
    mtime_ns: int


class _Index(msgspec.Struct, frozen=True, kw_only=True):
    schema: int
    banks: tuple[StoredBank, ...]


def read_index(folder: Path) -> tuple[StoredBank, ...]:
    """What the index of a store holds, nothing where it is missing or broken.

    Raises:
        UsageError: It is of a newer version, or the store is no folder.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"the store {folder} is a file; set {HOME} to a folder")
    try:
        data = (folder / INDEX).read_bytes()
        schema = msgspec.json.decode(data).get("schema")
        if isinstance(schema, int) and schema > SCHEMA:
            raise UsageError(
                f"the store {folder} has schema {schema}, this version reads {SCHEMA}: upgrade "
                f"lm-eval-adaptive, or set {HOME} to another folder"
            )
        return msgspec.json.decode(data, type=_Index).banks
    except (OSError, msgspec.DecodeError, AttributeError):
        return ()


def write_index(folder: Path, banks: Iterable[StoredBank]) -> None:
    """Write the index; where it cannot be, files are opened once more next time."""
    ordered = tuple(sorted(banks, key=lambda each: each.name))
    data = msgspec.json.encode(_Index(schema=SCHEMA, banks=ordered))
    aside = folder / f".{INDEX}.{os.getpid()}.part"
    try:
        aside.write_bytes(msgspec.json.format(data, indent=1))
        aside.replace(folder / INDEX)
    except OSError:
        return


def stamp_of(file: Path) -> tuple[int, int]:
    """By what a file that was replaced is known: its size and when it was written."""
    told = file.stat()
    return told.st_size, told.st_mtime_ns


def entry_of(name: str, file: Path) -> StoredBank:
    """What the index says of a file.

    Raises:
        BankError: It is no bank.
    """
    size, mtime_ns = stamp_of(file)
    bank = ItemBank.load(file)
    made = bank.info.provenance
    return StoredBank(
        name=name,
        task=bank.info.task,
        metric=bank.info.metric,
        filter=bank.info.filter,
        n_models=len(bank.info.models),
        n_docs=len(bank),
        date="" if made is None else max([made.date, *(each.date for each in made.updates)]),
        sha256=bank.sha256,
        size=size,
        mtime_ns=mtime_ns,
    )
