"""Writing a file so that nobody ever sees half of it, and that any reader of JSON reads."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


# Endings of files; the harness takes a folder that is called so for the file itself.
_FILES = frozenset({".json", ".jsonl", ".parquet", ".csv", ".yaml", ".yml", ".html"})


def check_folder(folder: Path, option: str) -> None:
    """Refuse a folder that cannot be written to, before anything is paid.

    Raises:
        UsageError: It is a file, is called as one, lies in a file, or is read-only.
    """
    if folder.suffix.lower() in _FILES:
        raise UsageError(
            f"{option} {folder} ends in {folder.suffix} like a file, expected a folder; leave the "
            "ending out"
        )
    there = _nearest(folder, option)
    if not there.is_dir():
        what = "is a file" if there == folder else f"cannot be made: {there} is a file"
        raise UsageError(f"{option} {folder} {what}; expected a folder")
    _check_writable(there, folder, option)


def check_file(path: Path, option: str) -> None:
    """Refuse a file that cannot be written, before anything is computed.

    A device or a pipe is refused as well: what is written aside and renamed would replace it.

    Raises:
        UsageError: It is a folder or no regular file, lies in a file, or is read-only.
    """
    there = _nearest(path, option)
    if there == path and not path.is_file():
        what = "a folder" if path.is_dir() else "no regular file"
        raise UsageError(f"{option} {path} is {what}; expected a file to write")
    if there != path and not there.is_dir():
        raise UsageError(f"{option} {path} cannot be made: {there} is a file")
    _check_writable(path.parent if there == path else there, path, option)


def _nearest(path: Path, option: str) -> Path:
    """The path, or the nearest above it that is there."""
    there = path
    try:
        while not there.exists() and there != there.parent:
            there = there.parent
    except (OSError, ValueError) as error:  # too long a name, a NUL in it
        reason = getattr(error, "strerror", None) or str(error)
        shown = str(path)[-80:]
        raise UsageError(f"{option} {shown!r} cannot be written to ({reason})") from error
    return there


def _check_writable(there: Path, path: Path, option: str) -> None:
    if not os.access(there, os.W_OK | os.X_OK):
        raise UsageError(f"{option} {path}: {there} is read-only; choose another")


def write_aside(path: Path, content: bytes) -> None:
    """Write a file beside its place, then rename it there.

    Raises:
        UsageError: In its place is a folder or a device.
    """
    check_file(path, "writing")
    aside = path.with_name(f".{path.name}.part")
    aside.write_bytes(content)
    aside.replace(path)


def finite(value: Any) -> Any:
    """Plain data without what JSON has no number for: NaN and infinity become null.

    >>> finite({"a": [1.0, float("nan")], "b": float("inf")})
    {'a': [1.0, None], 'b': None}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return value
