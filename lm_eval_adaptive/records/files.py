"""Writing files: no half of one is ever seen, and any text that Python holds is written.

This module owns how JSON becomes bytes, what a name becomes as a part of a path, and the renaming
of a finished file into its place; it imports the standard library only.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

# Bytes that a name may take of a file's name: file systems take 255 in all, and a date, a word and
# an ending stand beside it.
LONGEST_NAME = 120

# UTF-8 has no lone surrogates, and some readers end lines at the others.
_TO_ESCAPE = re.compile("[\ud800-\udfff\x85\u2028\u2029]")
# Two characters that JSON's escapes would make one of.
_SPLIT_PAIR = re.compile("[\ud800-\udbff](?=[\udc00-\udfff])")
# What the harness replaces in a model's name, and what no file system or terminal likes.
_NOT_IN_A_NAME = re.compile('["<>:/|\\\\?*\\[\\]\x00-\x1f\x7f\ud800-\udfff]+')


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
    aside = path.with_name(f".{path.name[:LONGEST_NAME]}.part")
    aside.write_bytes(content)
    aside.replace(path)


def as_json(value: Any, indent: int | None = None) -> str:
    r"""JSON of which any text comes back equal, with nothing in it that UTF-8 cannot hold.

    Lone surrogates are written as JSON's escapes. Where a high one stands before a low one, the low
    one stays as it is: escapes of both would be read as one character.

    >>> as_json("a\ud83d ☃")
    '"a\\ud83d ☃"'
    """
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    if not _TO_ESCAPE.search(text):
        return text
    kept = {match.start() + 1 for match in _SPLIT_PAIR.finditer(text)}
    return _TO_ESCAPE.sub(
        lambda found: found[0] if found.start() in kept else f"\\u{ord(found[0]):04x}", text
    )


def json_bytes(value: Any, indent: int | None = None) -> bytes:
    """:func:`as_json` as a file holds it; ``json.loads`` reads these bytes."""
    return as_json(value, indent).encode("utf-8", "surrogatepass")


def file_part(name: str) -> str:
    """A name as a part of a file's name: itself where it can be, else told apart by its hash.

    >>> file_part("records_to_text"), file_part("a/b")
    ('records_to_text', 'a__b-c14cddc0')
    """
    part = _shortened(_NOT_IN_A_NAME.sub("__", name))
    return part if part == name else f"{part}-{_digest(name)}"


def folders_of(names: Iterable[str]) -> dict[str, str]:
    """The folder of each model of a run: the harness's name of it, where that is its own.

    Names whose folders would be one, also where case is not told apart, get a hash each; one that
    is its folder's name to the letter keeps it, if it is the only one.

    >>> folders_of(["org/model", "a/b", "a__b"])
    {'org/model': 'org__model', 'a/b': 'a__b-c14cddc0', 'a__b': 'a__b'}
    """
    all_names = list(dict.fromkeys(names))
    plain = {name: _NOT_IN_A_NAME.sub("__", name) for name in all_names}
    short = {name: _shortened(plain[name]) for name in all_names}
    count = Counter(part.casefold() for part in short.values())
    exact = Counter(name.casefold() for name in all_names if short[name] == name)
    found = {}
    for name, part in short.items():
        alone = count[part.casefold()] == 1
        keeps = part == name and exact[name.casefold()] == 1
        own = part == plain[name] and (alone or keeps)
        found[name] = part if own else f"{part}-{_digest(name)}"
    return found


def folder_of(name: str, names: Iterable[str]) -> str:
    """The folder of one model among those of a run."""
    return folders_of([*names, name])[name]


def _shortened(part: str) -> str:
    """A name that fits, and is neither a folder's own name nor its parent's."""
    short = part.encode("utf-8")[:LONGEST_NAME].decode("utf-8", "ignore")
    return short if short.strip(". ") else "__"


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]


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
