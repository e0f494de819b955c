"""Where samples files are: directories, globs and names, plain, packed or as Parquet."""

from __future__ import annotations

import glob
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lm_eval_adaptive.errors import DataError
from lm_eval_adaptive.host.logs.foreign import is_samples_parquet, kind_of, starts_samples

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_DATE = r"\d{4}-\d{2}-\d{2}T\d{2}[-:]\d{2}[-:]\d{2}(?:\.\d+)?"
_ENDING = re.compile(r"\.(?:jsonl?(?:\.gz|\.zst)?|parquet)$")
_SAMPLES = re.compile(rf"^samples_(?P<task>.+)_(?P<date>{_DATE})(?P<ending>{_ENDING.pattern})")
# The hub's Parquet twins of the leaderboard's details lie in a folder for each model and task.
_DETAILS = re.compile(r"^(?P<model>.+?)__(?P<task>leaderboard_.+)$")
_SHARD = re.compile(r"^(?P<split>.*?)-?(?P<number>\d{4,5})(?:-of-\d{5})?\.parquet$")
_SPLIT_DATE = re.compile(r"(\d{4})_(\d{2})_(\d{2})T(\d{2})_(\d{2})_(\d{2})")
_SNIFFED = 50  # foreign files to look at before saying what a folder holds


@dataclass(frozen=True)
class SamplesFile:
    """A samples file; formats before 0.4.3 tell neither task nor date in its name.

    Attributes:
        path: The file, the first where it was cut into several.
        task: Task in its name, None where the name has none.
        date: The harness's date id, "" where the name has none.
        model: Model in its folder's name, None where only the results tell it.
        parts: All files of a split that the hub cut into several; ``path`` alone otherwise.
        filter: Filter in its name, where filters are kept a file each.
    """

    path: Path
    task: str | None
    date: str
    model: str | None = None
    parts: tuple[Path, ...] = ()
    filter: str | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files in the order of their rows."""
        return self.parts or (self.path,)


def as_list(spec: str | Path | Sequence[str | Path]) -> list[str | Path]:
    """One or several places as a list."""
    return [spec] if isinstance(spec, str | Path) else list(spec)


def stem_of(path: Path) -> str:
    """A samples file's name without its ending.

    >>> stem_of(Path("runs/mine.jsonl.zst"))
    'mine'
    """
    return _ENDING.sub("", path.name)


def find_files(spec: str | Path | Sequence[str | Path]) -> list[SamplesFile]:
    """Samples files under the given places, each once, sorted by path.

    Raises:
        DataError: A place does not exist, or a file that is named there is of another program.
    """
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
            files = [match] if named else _files_under(match)
            for file in files:
                entry = _entry(file, named=named and match == path)
                if entry is not None:
                    entries.setdefault(file.resolve(), entry)
    return _with_shards_joined(_without_packed_twins([entries[key] for key in sorted(entries)]))


def what_else_is_there(spec: str | Path | Sequence[str | Path]) -> str:
    """What the files under the given places are, where other programs wrote them; else "".

    >>> what_else_is_there("no-such-folder")
    ''
    """
    looked = 0
    for one in as_list(spec):
        path = Path(one).expanduser()
        for file in [path] if path.is_file() else sorted(path.rglob("*")) if path.is_dir() else []:
            if not file.is_file():
                continue
            looked += 1
            if kind := kind_of(file):
                return f"{file} is {kind}"
            if looked == _SNIFFED:
                return ""
    return ""


def _files_under(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if _ENDING.search(file.name))


def _entry(file: Path, *, named: bool) -> SamplesFile | None:
    if not file.is_file() or not _ENDING.search(file.name):
        if named:
            kind = kind_of(file)
            told = f"; this is {kind}" if kind else ""
            raise DataError(
                f"{file}: expected a samples file ending in .jsonl, .jsonl.gz, .jsonl.zst or "
                f".parquet{told}"
            )
        return None
    if match := _SAMPLES.match(file.name):
        return SamplesFile(file, match["task"], match["date"])
    if file.name.endswith(".parquet"):
        return _parquet_entry(file) if named or is_samples_parquet(file) else None
    # A file that the user names is taken at his word, one that is come across has to look like a
    # list of samples: directories hold results, configurations and data sets, too.
    if named or (".jsonl" in file.name and starts_samples(file)):
        return SamplesFile(file, None, "")
    return None


def _parquet_entry(file: Path) -> SamplesFile:
    """A Parquet file of samples; the hub's folders are named by model and task."""
    for part in (stem_of(file), *reversed(file.parts[:-1])):
        if match := _DETAILS.match(part):
            when = _SPLIT_DATE.search(str(file))
            # A split called latest repeats the newest one.
            date = "{}-{}-{}T{}-{}-{}".format(*when.groups()) if when else "latest"
            model = match["model"].replace("__", "/", 1)
            return SamplesFile(file, match["task"], date, model)
    return SamplesFile(file, None, "")


def _with_shards_joined(entries: Iterable[SamplesFile]) -> list[SamplesFile]:
    """One entry for the numbered Parquet files of one split."""
    joined: dict[tuple[Path, str], SamplesFile] = {}
    for entry in entries:
        match = _SHARD.match(entry.path.name)
        key = (entry.path.parent, match["split"] if match else entry.path.name)
        known = joined.get(key)
        joined[key] = entry if known is None else replace(known, parts=(*known.paths, entry.path))
    return list(joined.values())


def _without_packed_twins(entries: list[SamplesFile]) -> list[SamplesFile]:
    plain = {str(entry.path) for entry in entries}
    return [
        entry
        for entry in entries
        if re.sub(r"\.(gz|zst)$", "", str(entry.path)) not in plain - {str(entry.path)}
    ]


def is_of_task(entry: SamplesFile, task: str) -> bool:
    """Whether a file belongs to the task, as far as its name tells."""
    if entry.task is not None:
        return entry.task == task
    stem = stem_of(entry.path)
    # 0.4.0 to 0.4.2 wrote <argument>__<value>_<task>; another name was given by the user.
    return stem.endswith(f"_{task}") or "__" not in stem


def filter_in_name(entry: SamplesFile, task: str) -> str | None:
    """What follows the task's name in a file's name, where filters are kept a file each.

    >>> filter_in_name(SamplesFile(Path("x.jsonl"), "gsm8k_strict-match", "d"), "gsm8k")
    'strict-match'
    """
    match = re.match(rf"^{re.escape(task)}[_,@.-](?P<filter>.+)$", entry.task or "")
    return match["filter"] if match else None
