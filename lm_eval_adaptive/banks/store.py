"""Banks of one's own, kept for all runs of a machine.

This module owns the store's folder: its files, its locks and whether it grows; its index is
``store_index``'s. Which bank a task takes is decided in ``at_hand``.

The folder holds one file a bank, ``banks/NAME.bank.parquet``; what a bank was before it was
replaced or taken out stays for a while in ``former/``, so that a run that began with it can be
resumed. Of a bank that runs make from nothing, ``answers/NAME.json`` holds what it is made of
(``banks.answers``). The index only saves opening every file: it is made anew from the files
wherever it is missing, broken or older than they are. Readers take no lock, for files are replaced
whole; who changes a bank holds the bank's lock, and the store's for the moment of writing.
"""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lm_eval_adaptive.banks.store_index import (
    HOME,
    StoredBank,
    entry_of,
    read_index,
    stamp_of,
    write_index,
)
from lm_eval_adaptive.errors import BankError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lm_eval_adaptive.core.bank import ItemBank

ENDING = ".bank.parquet"
# Replaced files that are kept for runs to be resumed, and seconds that a writer waits for another.
MOST_FORMER, PATIENCE = 50, 60.0
# Who makes a bank grow holds it while it is fitted, which takes minutes for the largest.
LONG_PATIENCE = 1800.0
_MOST = 120
_NAME = re.compile(r"[^\W_][\w.,+@=-]{0,119}")
_NOT_IN_A_NAME = re.compile(r"[^\w.,+@=-]")


def home() -> Path:
    """The store's folder: that of ``LM_EVAL_ADAPTIVE_HOME``, else the platform's for data."""
    named = os.environ.get(HOME, "")
    if named:
        return Path(named).expanduser()
    from platformdirs import user_data_path

    return Path(user_data_path("lm-eval-adaptive", appauthor=False))


def check_name(name: str) -> str:
    """A name that may become a file's.

    Raises:
        UsageError: It may not: it is empty, too long, or leads somewhere else.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"a bank cannot be named {name!r}: expected a letter or digit, then letters, digits "
            "and . , + @ = _ -, 120 at most; give another with --name"
        )
    return name


def usual_name(task: str, metric: str, filter_name: str, prompts: str = "") -> str:
    """What a bank is called where nobody names it: by task, metric, filter and prompts.

    Args:
        task: The harness's task.
        metric: Metric.
        filter_name: Filter; ``none`` is not told.
        prompts: What tells its prompts from those of the task's first bank, "" for that one.

    >>> usual_name("gsm8k", "exact_match", "strict-match")
    'gsm8k_exact_match_strict-match'
    """
    parts = [task, metric, *([filter_name] if filter_name != "none" else []), prompts]
    whole = "_".join(filter(None, parts))
    name = _NOT_IN_A_NAME.sub("_", whole).lstrip("._-")
    if name == whole and len(name) <= _MOST:
        return name
    digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{name[: _MOST - 10] or 'bank'}-{digest}"


class Store:
    """The banks of a folder; nothing is made there before something is added.

    Args:
        folder: The folder; None takes :func:`home`.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or home()
        self.banks, self.former = self.folder / "banks", self.folder / "former"
        self._answers, self._locks = self.folder / "answers", self.folder / "locks"
        self._grow = self.folder / "grow"

    def path(self, bank: StoredBank) -> Path:
        """A bank's file."""
        return self.banks / f"{bank.name}{ENDING}"

    def file_of(self, name: str) -> Path:
        """Where the bank of a name lies, or would."""
        return self.banks / f"{check_name(name)}{ENDING}"

    def answers_of(self, name: str) -> Path:
        """Where the answers lie, or would, that runs make a bank of."""
        return self._answers / f"{check_name(name)}.json"

    def unfinished(self) -> list[str]:
        """Names of banks that runs began to make and that have too few answers yet."""
        return [
            file.stem
            for file in sorted(self._answers.glob("*.json"))
            if not file.name.startswith(".") and not (self.banks / f"{file.stem}{ENDING}").is_file()
        ]

    def entries(self) -> tuple[tuple[StoredBank, ...], list[str]]:
        """All banks by name, and a line for each file that is none.

        Raises:
            UsageError: The store is of a newer version, or no folder.
        """
        known = {each.name: each for each in read_index(self.folder)}
        found: list[StoredBank] = []
        broken: list[str] = []
        for file in sorted(self.banks.glob(f"*{ENDING}")):
            name = file.name.removesuffix(ENDING)
            if name.startswith("."):  # half written
                continue
            try:
                own = known.get(name)
                if own is None or (own.size, own.mtime_ns) != stamp_of(file):
                    own = entry_of(name, file)
            except (BankError, OSError) as error:
                broken.append(f"{file} is left out of the store: {error}")
            else:
                found.append(own)
        banks = tuple(found)
        if set(banks) != set(known.values()):
            write_index(self.folder, banks)
        return banks, broken

    def named(self, name: str) -> StoredBank:
        """The bank of that name.

        Raises:
            UsageError: There is none.
        """
        banks, _ = self.entries()
        for bank in banks:
            if bank.name == name:
                return bank
        there = ", ".join(bank.name for bank in banks) or "none"
        raise UsageError(f"the store {self.folder} has no bank {name!r}; it has {there}")

    def of_hash(self, sha256: str) -> Path | None:
        """The file of that hash, former ones included."""
        for file in [*self.banks.glob(f"*{ENDING}"), *self.former.glob(f"*{ENDING}")]:
            try:
                if hashlib.sha256(file.read_bytes()).hexdigest() == sha256:
                    return file
            except OSError:  # replaced meanwhile: what it was lies in former
                continue
        return None

    def name_of_hash(self, sha256: str) -> str | None:
        """The name of the bank that is, or was, the file of that hash."""
        path = self.of_hash(sha256)
        if path is None:
            return None
        name = path.name.removesuffix(ENDING)
        return name if path.parent == self.banks else name.rpartition(".")[0]

    def add(self, bank: ItemBank, name: str, *, overwrite: bool = False) -> StoredBank:
        """Put a bank into the store.

        Raises:
            UsageError: There is one of that name, or nothing can be written there.
        """
        check_name(name)
        with self.changing(name):
            if self.file_of(name).exists() and not overwrite:
                raise UsageError(
                    f"the store {self.folder} has a bank {name} already; add --overwrite to "
                    "replace it, or give another --name"
                )
            self.forget_answers(name)  # it is made of others from now on
            return self.put(bank, name)

    def put(self, bank: ItemBank, name: str) -> StoredBank:
        """The same where the bank's lock is held: what was there is kept in ``former``.

        Raises:
            UsageError: Nothing can be written there.
        """
        file = self.file_of(name)
        with self.writing():
            self._set_aside(file, move=False)
            try:
                bank.save(file)
            except OSError:
                file.with_name(f".{file.name}.part").unlink(missing_ok=True)  # it takes up room
                raise
            entry = entry_of(name, file)
            others = tuple(each for each in read_index(self.folder) if each.name != name)
            write_index(self.folder, (*others, entry))
        return entry

    def put_answers(self, name: str, content: bytes) -> None:
        """Keep the answers that a bank is made of, where the bank's lock is held.

        Raises:
            UsageError: Nothing can be written there.
        """
        file = self.answers_of(name)
        with self.writing():
            file.parent.mkdir(parents=True, exist_ok=True)
            aside = file.with_name(f".{file.name}.part")
            try:
                aside.write_bytes(content)
            except OSError:
                aside.unlink(missing_ok=True)
                raise
            aside.replace(file)

    def forget_answers(self, name: str) -> None:
        """Let a bank be made of nothing that runs left, where the bank's lock is held."""
        with self.writing():
            self.answers_of(name).unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        """Take a bank out, and what runs left of it; its file stays in ``former`` for a while.

        Raises:
            UsageError: There is none, or nothing can be written there.
        """
        check_name(name)
        if name not in self.unfinished() and not self.file_of(name).is_file():
            self.named(name)  # it is not there, which is told
        with self.changing(name), self.writing():
            self.answers_of(name).unlink(missing_ok=True)
            self._set_aside(self.file_of(name), move=True)
            write_index(
                self.folder, tuple(each for each in read_index(self.folder) if each.name != name)
            )

    def check_writable(self) -> None:
        """Refuse a store that nothing can be written to, before anything is paid.

        Raises:
            UsageError: It is one.
        """
        with self.writing():
            return

    @property
    def grows(self) -> bool:
        """Whether runs add their models to the banks here."""
        return self._grow.is_file()

    def let_grow(self, *, on: bool) -> None:
        """Say whether runs add their models from now on.

        Raises:
            UsageError: Nothing can be written there.
        """
        with self.writing():
            if on:
                self._grow.touch()
            else:
                self._grow.unlink(missing_ok=True)

    @contextmanager
    def changing(self, name: str, patience: float = PATIENCE) -> Iterator[None]:
        """Hold a bank's lock: nobody else changes it between its reading and its writing.

        Args:
            name: The bank's name.
            patience: Seconds to wait for who holds it.

        Raises:
            UsageError: Nothing can be written there, or another process holds it for too long.
        """
        with self._held(self._locks / f"{check_name(name)}.lock", patience, f"bank {name} of "):
            yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the store's lock; one process at a time writes.

        Raises:
            UsageError: As for :meth:`changing`.
        """
        with self._held(self.folder / "store.lock", PATIENCE, ""):
            yield

    @contextmanager
    def _held(self, file: Path, patience: float, what: str) -> Iterator[None]:
        from filelock import FileLock, Timeout

        read_index(self.folder)  # a newer version's store is not written to
        lock = FileLock(str(file), timeout=patience)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self.banks.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except Timeout:
            raise UsageError(
                f"{what}the store {self.folder} is being written to by another process for over "
                f"{patience:.0f} s; try again, or set {HOME} to another folder"
            ) from None
        except OSError as error:
            raise self._refused(error) from error
        try:
            yield
        except OSError as error:
            raise self._refused(error) from error
        finally:
            lock.release()

    def _refused(self, error: OSError) -> UsageError:
        why = error.strerror or " ".join(str(error).split())[:200] or type(error).__name__
        return UsageError(
            f"the store {self.folder} cannot be written to ({why}); make room or rights there, or "
            f"set {HOME} to another folder"
        )

    def _set_aside(self, file: Path, *, move: bool) -> None:
        """Keep a file in ``former``, by its hash; the oldest beyond fifty go."""
        if not file.is_file():
            return
        data = file.read_bytes()
        digest = hashlib.sha256(data).hexdigest()[:12]
        name = file.name.removesuffix(ENDING)
        self.former.mkdir(parents=True, exist_ok=True)
        kept = self.former / f"{name}.{digest}{ENDING}"
        if move:
            file.replace(kept)
        elif not kept.exists():
            aside = kept.with_name(f".{kept.name}.part")
            aside.write_bytes(data)
            aside.replace(kept)
        by_age = sorted(self.former.glob(f"*{ENDING}"), key=lambda each: each.stat().st_mtime_ns)
        for old in by_age[:-MOST_FORMER]:
            old.unlink(missing_ok=True)
