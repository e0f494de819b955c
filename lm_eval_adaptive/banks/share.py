"""A bank handed on: its file and its card in a folder, or in a dataset on the hub.

This module owns where they go and what is not written over; huggingface_hub uploads. A README that
is not a card of ours is somebody's, and stays.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol

from lm_eval_adaptive.banks.card import CARD, card_of_bank, is_ours
from lm_eval_adaptive.banks.hub import SCHEME, is_hub_address
from lm_eval_adaptive.banks.store import ENDING
from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.errors import BankError, UsageError, first_line
from lm_eval_adaptive.records.files import check_folder, write_aside

if TYPE_CHECKING:
    from collections.abc import Mapping

_PLACE = re.compile(r"hf://(?P<repo>[\w.\-]+/[\w.\-]+)(?P<path>(/[^@#/]+)*)/?")


class _Place(Protocol):
    """Where files are written to, together."""

    def read(self, name: str) -> bytes | None:
        """A file's content, None where it is not there."""

    def write(self, files: Mapping[str, bytes]) -> str:
        """Write files, and give what ``--bank`` takes before the file's name."""


@dataclass(frozen=True)
class Folder:
    """A folder on this machine."""

    path: Path

    def read(self, name: str) -> bytes | None:
        """A file's content, None where it is not there."""
        file = self.path / name
        return file.read_bytes() if file.is_file() else None

    def write(self, files: Mapping[str, bytes]) -> str:
        """Write files, each aside first."""
        self.path.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            write_aside(self.path / name, content)
        return str(self.path)


@dataclass(frozen=True)
class HubFolder:
    """A folder of a dataset on the hub.

    Attributes:
        repo: ``org/dataset``.
        folder: The folder inside, "" for the top.
    """

    repo: str
    folder: str

    def _inside(self, name: str) -> str:
        return f"{self.folder}/{name}" if self.folder else name

    def read(self, name: str) -> bytes | None:
        """A file's content, None where it is not there.

        Raises:
            BankError: The dataset cannot be reached, or is not there.
        """
        from huggingface_hub import HfApi, hf_hub_download

        try:
            if not HfApi().file_exists(self.repo, self._inside(name), repo_type="dataset"):
                return None
            return Path(
                hf_hub_download(self.repo, self._inside(name), repo_type="dataset")
            ).read_bytes()
        except Exception as error:  # what its transport raises is of no family of its own
            raise self._refused(error) from error

    def write(self, files: Mapping[str, bytes]) -> str:
        """Write files in one commit, so that nobody sees a bank without its card.

        Returns:
            The commit.

        Raises:
            BankError: The hub refuses.
        """
        from huggingface_hub import CommitOperationAdd, HfApi

        operations = [
            CommitOperationAdd(path_in_repo=self._inside(name), path_or_fileobj=content)
            for name, content in files.items()
        ]
        message = f"Item bank {next(iter(files))} and its card"
        try:
            done: Any = HfApi().create_commit(
                self.repo, operations, commit_message=message, repo_type="dataset"
            )
        except Exception as error:  # what its transport raises is of no family of its own
            raise self._refused(error) from error
        return str(done.oid)

    def _refused(self, error: Exception) -> BankError:
        return BankError(
            f"the dataset {self.repo} cannot be written to ({first_line(error)}); make it on the "
            "hub first, and check HF_TOKEN and HF_HUB_OFFLINE"
        )


def share(bank: ItemBank, name: str, to: str, *, overwrite: bool) -> list[str]:
    """Write a bank's file and its card.

    Args:
        bank: The bank.
        name: What its file is called, without ending.
        to: A folder, or ``hf://org/dataset/path``.
        overwrite: Whether a bank of that name there may be replaced.

    Returns:
        Where they are, and how they are used, a line each.

    Raises:
        UsageError: The place is none, or holds something that may not be written over.
        BankError: The hub refuses.
    """
    on_hub = is_hub_address(to)
    place: _Place = _hub_folder(to) if on_hub else _folder(to)
    file = f"{name}{ENDING}"
    content, bank = _as_file(bank, file)
    before = place.read(file)
    if before is not None and before != content and not overwrite:
        raise UsageError(f"{to} holds a {file} already, another one; add --overwrite to replace it")
    card = CARD
    readme = place.read(CARD)
    if readme is not None and not _may_replace(readme, file):
        card = f"{name}.md"  # the README is of something else
    base = to.rstrip("/")
    address = f"{base}/{file}"
    shown = f"{address}@main#{bank.sha256}" if on_hub else file  # no folder of this machine
    told = card_of_bank(bank, file, shown).encode("utf-8", "surrogatepass")
    where = place.write({file: content, card: told})
    if on_hub:
        address = f"{base}/{file}@{where}#{bank.sha256}"
    return [f"wrote {file} and its card {card} to {to}", f"use it with --bank '{address}'"]


def _may_replace(readme: bytes, file: str) -> bool:
    text = readme.decode("utf-8", "replace")
    return is_ours(text) and f"| sha256 of {file} |" in text


def _as_file(bank: ItemBank, file: str) -> tuple[bytes, ItemBank]:
    """The bytes of a bank's file, as it was read where it was, and the bank with their hash."""
    if bank.path and Path(bank.path).is_file():
        return Path(bank.path).read_bytes(), bank
    with TemporaryDirectory() as folder:
        path = bank.save(Path(folder) / file)
        return path.read_bytes(), ItemBank.load(path)


def _hub_folder(to: str) -> HubFolder:
    match = _PLACE.fullmatch(to.strip())
    path = [] if match is None else match["path"].strip("/").split("/")
    if match is None or ".." in path:
        raise UsageError(
            f"{to}: expected {SCHEME}org/dataset/path, a folder of a dataset; revision and hash "
            "are told when the bank is there"
        )
    return HubFolder(match["repo"], "/".join(path))


def _folder(to: str) -> Folder:
    path = Path(to)
    check_folder(path, "--to")
    return Folder(path)
