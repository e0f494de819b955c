"""Banks kept in a dataset on the Hugging Face hub: ``hf://org/dataset/path@revision#sha256``.

This module owns the address and the check; huggingface_hub downloads and caches. A bank is taken
only where its bytes have the hash that the address names, so that nobody can change it unseen.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lm_eval_adaptive.errors import BankError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeGuard

SCHEME = "hf://"
_FORM = "hf://org/dataset/path/to/file.bank.parquet@revision#sha256"
_ADDRESS = re.compile(
    r"hf://(?P<repo>[\w.\-]+/[\w.\-]+)/(?P<path>[^@#]+)@(?P<revision>[^@#\s]+)#(?P<sha256>[^@#\s]+)"
)


@dataclass(frozen=True)
class HubBank:
    """Where a bank is on the hub.

    Attributes:
        repo: ``org/dataset``.
        path: The file inside.
        revision: Commit, tag or branch.
        sha256: Hash of the file's bytes, 64 hexadecimal digits.
    """

    repo: str
    path: str
    revision: str
    sha256: str


def is_hub_address(text: object) -> TypeGuard[str]:
    """Whether a bank's name is an address on the hub.

    >>> is_hub_address("hf://org/banks/x.parquet@main#00"), is_hub_address("x.bank.parquet")
    (True, False)
    """
    return isinstance(text, str) and text.startswith(SCHEME)


def parse_address(address: str) -> HubBank:
    """The parts of an address.

    Raises:
        BankError: A part is missing or wrong; the message shows the form.
    """
    match = _ADDRESS.fullmatch(address.strip())
    if match is None:
        missing = next(
            (
                f"it names no {what}"
                for sign, what in (("@", "revision"), ("#", "sha256"))
                if sign not in address
            ),
            "its parts are not in that order",
        )
        raise BankError(f"bank {address}: expected {_FORM}, and {missing}")
    found = HubBank(**match.groupdict())
    if not re.fullmatch(r"[0-9a-f]{64}", found.sha256):
        raise BankError(
            f"bank {address}: sha256 must be 64 lower-case hexadecimal digits, got "
            f"{len(found.sha256)} characters; `sha256sum FILE` prints it"
        )
    if ".." in found.path.split("/"):
        raise BankError(f"bank {address}: the path may not lead out of the dataset")
    return found


def _hub_download(repo: str, path: str, revision: str) -> str:
    from huggingface_hub import hf_hub_download

    return str(hf_hub_download(repo, path, repo_type="dataset", revision=revision))


def fetch_bank(address: str, download: Callable[[str, str, str], str] = _hub_download) -> Path:
    """The local file of a bank on the hub, downloaded if it is not cached.

    Args:
        address: ``hf://org/dataset/path@revision#sha256``.
        download: From repository, path and revision to a local file.

    Returns:
        A file whose bytes have the named hash.

    Raises:
        BankError: The address is wrong, the file cannot be had, or it is another file.
    """
    bank = parse_address(address)
    try:
        path = Path(download(bank.repo, bank.path, bank.revision))
        data = path.read_bytes()
    except (OSError, ValueError, RuntimeError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise BankError(
            f"bank {address} cannot be had from the hub ({type(error).__name__}: {first}); check "
            "its parts, HF_TOKEN for a gated dataset and HF_HUB_OFFLINE, or download it and name "
            "the file"
        ) from error
    digest = hashlib.sha256(data).hexdigest()
    if digest != bank.sha256:
        raise BankError(
            f"bank {address}: the file at revision {bank.revision} has sha256 {digest}; it is not "
            "the bank that was named: check where the address came from"
        )
    return path
