"""Where samples files are: directories, globs and names, plain or gzipped."""

from __future__ import annotations

import glob
import os
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lm_eval_adaptive.errors import DataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

# The variable of the environment that sets another bound to what a packed file unpacks to.
MOST_UNPACKED = "LMEVAL_ADAPTIVE_MAX_UNPACKED"

_DATE = r"\d{4}-\d{2}-\d{2}T\d{2}-\d{2}-\d{2}(?:\.\d+)?"
_SAMPLES = re.compile(rf"^samples_(?P<task>.+)_(?P<date>{_DATE})\.jsonl?(?:\.gz)?$")
_SUFFIXES = (".jsonl", ".json", ".jsonl.gz", ".json.gz")


@dataclass(frozen=True)
class SamplesFile:
    """A samples file; formats before 0.4.3 tell neither task nor date in its name."""

    path: Path
    task: str | None
    date: str


def as_list(spec: str | Path | Sequence[str | Path]) -> list[str | Path]:
    """One or several places as a list."""
    return [spec] if isinstance(spec, str | Path) else list(spec)


def find_files(spec: str | Path | Sequence[str | Path]) -> list[SamplesFile]:
    """Samples files under the given places, each once, sorted by path."""
    entries: dict[Path, SamplesFile] = {}
    for one in as_list(spec):
        path = Path(one).expanduser()
        if path.exists():
            matches = [path]
        else:
            matches = [Path(match) for match in glob.glob(str(path), recursive=True)]  # noqa: PTH207  Path.glob takes no absolute pattern
            if not matches:
                raise DataError(f"{one}: no such file or directory of samples")
        for match in matches:
            named = match.is_file()
            files = [match] if named else sorted(match.rglob("*.json*"))
            for file in files:
                entry = _entry(file, named=named and match == path)
                if entry is not None:
                    entries.setdefault(file.resolve(), entry)
    return _without_gzipped_twins([entries[key] for key in sorted(entries)])


def _entry(file: Path, *, named: bool) -> SamplesFile | None:
    if not file.is_file() or not file.name.endswith(_SUFFIXES):
        if named:
            raise DataError(f"{file}: expected a samples file ending in .jsonl or .jsonl.gz")
        return None
    if match := _SAMPLES.match(file.name):
        return SamplesFile(file, match["task"], match["date"])
    # A file that the user names is taken at his word, one that is come across has to look like a
    # list of samples: directories hold results, configurations and data sets, too.
    if named or (file.name.endswith(".jsonl") and _starts_a_list(file)):
        return SamplesFile(file, None, "")
    return None


def _starts_a_list(file: Path) -> bool:
    with file.open("rb") as stream:
        return stream.read(64).lstrip().startswith(b"[")


def _without_gzipped_twins(entries: list[SamplesFile]) -> list[SamplesFile]:
    plain = {str(entry.path) for entry in entries}
    return [
        entry
        for entry in entries
        if str(entry.path).removesuffix(".gz") not in plain - {str(entry.path)}
    ]


def is_of_task(entry: SamplesFile, task: str) -> bool:
    """Whether a file belongs to the task, as far as its name tells."""
    if entry.task is not None:
        return entry.task == task
    stem = re.sub(r"\.jsonl?(\.gz)?$", "", entry.path.name)
    # 0.4.0 to 0.4.2 wrote <argument>__<value>_<task>; another name was given by the user.
    return stem.endswith(f"_{task}") or "__" not in stem


def most_unpacked() -> int:
    """How many bytes a packed file may unpack to.

    Raises:
        UsageError: The environment sets what is no number of bytes.
    """
    given = os.environ.get(MOST_UNPACKED, str(4 * 1024**3))
    if not given.isdecimal() or int(given) < 1:
        raise UsageError(
            f"{MOST_UNPACKED} must be a whole number of bytes, at least 1; got {given!r}"
        )
    return int(given)


def bytes_of(path: Path, notices: list[str]) -> bytes:
    """A file's bytes, unpacked; a packed file that ends early gives what it holds, with a notice.

    Raises:
        DataError: It cannot be read, is no gzip file, or unpacks to more than is taken in.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    if not path.name.endswith(".gz"):
        return data
    most = most_unpacked()
    unpacked, rest = bytearray(), data
    try:
        while rest:  # a gzip file may have several members
            member = zlib.decompressobj(wbits=31)
            unpacked += member.decompress(rest, most + 1 - len(unpacked))
            if len(unpacked) > most:
                raise DataError(
                    f"{path}: unpacks to more than {most} bytes, from {len(data)}; is it a log? "
                    f"unpack it yourself to read it, or set {MOST_UNPACKED} to a larger number"
                )
            if not member.eof:
                notices.append(f"{path}: the gzip file ends early; its whole lines were read")
                break
            rest = member.unused_data
    except zlib.error as error:
        raise DataError(f"{path}: is no intact gzip file ({error})") from error
    return bytes(unpacked)
