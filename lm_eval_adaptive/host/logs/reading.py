"""The rows of a samples file as pieces of JSON, one at a time: memory does not grow with the file.

Lines are read in blocks, packed files are unpacked on the way, a JSON list and a Parquet file are
turned into lines. ``RowStore`` finds a row again by its place.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import tempfile
import zlib
from typing import IO, TYPE_CHECKING, Any

from lm_eval_adaptive.errors import DataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_BLOCK = 1 << 22
# A few bytes can unpack to any number. A packed log may unpack to so many bytes, and a row may have
# so many; the environment can set another bound to the first.
MOST_UNPACKED = "LMEVAL_ADAPTIVE_MAX_UNPACKED"
_MOST_UNPACKED = 16 << 30
_MOST_OF_A_ROW = 1 << 28
_PARQUET_ROWS = 256


class RowReader:
    """Reads a file's rows in order.

    Args:
        paths: The file, or the files of one split.

    Attributes:
        notices: A line for each packed file that ends early.
        digest: SHA-256 of the unpacked bytes, complete once all rows were read.
        is_plain: Whether a row's place is its offset in the first file itself.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = tuple(paths)
        self.notices: list[str] = []
        self.digest = hashlib.sha256()
        self.is_plain = len(self.paths) == 1 and not paths[0].name.endswith(
            (".gz", ".zst", ".parquet")
        )

    def __iter__(self) -> Iterator[tuple[int, int, bytes]]:
        """Number from 1, place and text of each row that is not blank.

        A place is where the row begins in the text that all rows make together.

        Raises:
            DataError: A file cannot be read, or is damaged before its end.
        """
        number, place = 0, 0
        for path in self.paths:
            if path.name.endswith(".parquet"):
                rows = _parquet_rows(path, self.digest)
                is_list = True
            else:
                blocks = _Blocks(path, self.notices, self.digest)
                is_list = blocks.starts_a_list
                rows = blocks.elements() if is_list else blocks.lines()
            if is_list:
                self.is_plain = False
            for row in rows:
                number += 1
                if row.strip():
                    yield number, place, row
                place += len(row) + 1


class RowStore:
    """A file's rows by their places, read when asked for.

    What is no plain file of lines is unpacked into a temporary file first.
    """

    def __init__(self, paths: Sequence[Path], *, is_plain: bool) -> None:
        self._paths = tuple(paths)
        self._is_plain = is_plain
        self._file: IO[bytes] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None}

    def row(self, place: int) -> bytes:
        """The text of the row that begins at a place."""
        if self._file is None:
            self._file = self._opened()
        self._file.seek(place)
        return self._file.readline()

    def close(self) -> None:
        """Let the file go; it is opened again when a row is asked for."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _opened(self) -> IO[bytes]:
        if self._is_plain:
            return self._paths[0].open("rb")
        copy: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed with the store
        for _, place, row in RowReader(self._paths):
            copy.seek(place)
            copy.write(row + b"\n")
        return copy


class _Blocks:
    """A text file, unpacked, in blocks."""

    def __init__(self, path: Path, notices: list[str], digest: Any) -> None:
        self.path = path
        self._digest = digest
        self._source = _unpacked(path, notices)
        self._first = self._next()
        self.starts_a_list = self._first.lstrip()[:1] == b"["

    def _next(self) -> bytes:
        block = next(self._source, b"")
        self._digest.update(block)
        return block

    def _check_row(self, size: int) -> None:
        if size > _MOST_OF_A_ROW:
            raise DataError(
                f"{self.path}: has a row of more than {_MOST_OF_A_ROW >> 20} MiB; it is no log of "
                "samples"
            )

    def lines(self) -> Iterator[bytes]:
        """The lines, without their ends; the last one may be cut off."""
        rest: list[bytes] = []
        block = self._first
        while block:
            lines = block.split(b"\n")
            if len(lines) > 1:
                yield b"".join([*rest, lines[0]])
                yield from lines[1:-1]
                rest = []
            rest.append(lines[-1])
            self._check_row(sum(map(len, rest)))
            block = self._next()
        if last := b"".join(rest):
            yield last

    def elements(self) -> Iterator[bytes]:
        """The elements of one JSON list, each as a line of JSON."""
        decoder = json.JSONDecoder()
        text, pending = "", bytearray(self._first)
        position, started = 0, False
        while True:
            # A block may end within a character.
            whole = pending.decode("utf-8", "ignore")
            del pending[: len(whole.encode("utf-8"))]
            text, position = text[position:] + whole, 0
            while True:
                position = _skip(text, position, " \t\r\n," if started else " \t\r\n")
                if position == len(text):
                    break
                if not started:
                    position, started = position + 1, True
                    continue
                if text[position] == "]":
                    return
                try:
                    value, position = decoder.raw_decode(text, position)
                except (ValueError, RecursionError) as error:
                    fault: Exception = error
                    break
                yield json.dumps(value).encode()
            block = self._next()
            if not block:
                break
            self._check_row(len(text) - position)
            pending += block
        if position == len(text):
            fault = ValueError("the list is not closed")
        raise DataError(f"{self.path}: is no intact JSON list ({fault}); run it again")


def _skip(text: str, position: int, blanks: str) -> int:
    while position < len(text) and text[position] in blanks:
        position += 1
    return position


def most_unpacked() -> int:
    """How many bytes a packed file may unpack to.

    Raises:
        UsageError: The environment sets what is no number of bytes.
    """
    given = os.environ.get(MOST_UNPACKED, str(_MOST_UNPACKED))
    if not given.isdecimal() or int(given) < 1:
        raise UsageError(
            f"{MOST_UNPACKED} must be a whole number of bytes, at least 1; got {given!r}"
        )
    return int(given)


def _unpacked(path: Path, notices: list[str]) -> Iterator[bytes]:
    """A file's bytes in blocks, unpacked.

    Raises:
        DataError: It cannot be read, is no intact packed file, or unpacks to too much.
    """
    kind = {".gz": "gzip", ".zst": "zstd"}.get(path.suffix)
    got, size, most = False, 0, most_unpacked()
    try:
        with path.open("rb") as file:
            stream: Any = file
            if kind == "gzip":
                stream = gzip.GzipFile(fileobj=file)
            elif kind == "zstd":
                import pyarrow as pa

                stream = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")
            while block := (stream.read1(_BLOCK) if kind == "gzip" else stream.read(_BLOCK)):
                got = True
                size += len(block)
                if kind is not None and size > most:
                    raise DataError(
                        f"{path}: unpacks to more than {most} bytes, from {path.stat().st_size}; "
                        f"is it a log? unpack it yourself, or set {MOST_UNPACKED} to a larger "
                        "number"
                    )
                yield bytes(block)
    except EOFError:
        notices.append(f"{path}: the {kind} file ends early; its whole lines were read")
    except (zlib.error, OSError) as error:
        if kind == "zstd" and got:
            notices.append(f"{path}: the zstd file ends early; its whole lines were read")
        elif kind is not None and not isinstance(error, FileNotFoundError | PermissionError):
            raise DataError(f"{path}: is no intact {kind} file ({error})") from error
        else:
            raise DataError(
                f"{path}: cannot be read ({getattr(error, 'strerror', error)})"
            ) from error


def _parquet_rows(path: Path, digest: Any) -> Iterator[bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_PARQUET_ROWS):
                for row in batch.to_pylist():
                    text = json.dumps(row, default=str).encode()
                    digest.update(text)
                    yield text
    except (OSError, pa.ArrowException) as error:
        reason = str(error).strip().splitlines()[0]
        raise DataError(f"{path}: cannot be read as Parquet ({reason})") from error
