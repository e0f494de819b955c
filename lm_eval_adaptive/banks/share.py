"""A bank that others trust: its card, and where it is exported to.

This module owns the card's text and the upload; huggingface_hub talks to the hub. A card says what
a bank was made from, by which models, when, under which licence, its hash, and how well its own
held-out models were estimated.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from lm_eval_adaptive.banks.hub import SCHEME
from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.errors import BankError, UsageError

if TYPE_CHECKING:
    from lm_eval_adaptive.core.bank_info import BankInfo

_PLACE = re.compile(r"hf://(?P<repo>[\w.\-]+/[\w.\-]+)/(?P<path>[^@#]+)")
SHOWN_MODELS = 20


class Hub(Protocol):
    """What is needed of the hub; ``huggingface_hub.HfApi`` has it."""

    def create_repo(self, repo_id: str, *, repo_type: str, exist_ok: bool) -> object:
        """Make a dataset where there is none."""
        ...

    def file_exists(self, repo_id: str, filename: str, *, repo_type: str) -> bool:
        """Whether a dataset has a file."""
        ...

    def upload_file(
        self, *, path_or_fileobj: bytes, path_in_repo: str, repo_id: str, repo_type: str
    ) -> object:
        """Put a file there; what comes back has the commit as ``oid``."""
        ...


def facts(bank: ItemBank) -> list[tuple[str, str]]:
    """What there is to know of a bank before it is used: names and values."""
    info = bank.info
    made = info.provenance
    sources = () if made is None else made.sources
    found = [
        ("task", f"{info.task}{f' (version {info.task_version})' if info.task_version else ''}"),
        ("metric", f"{info.metric}, filter {info.filter}, in {_range(info)}"),
        ("documents", f"{len(bank)}, {int(bank.kept.sum())} of which are asked"),
        ("models", _models(info)),
        ("prompts", _prompts(info)),
        ("made", "not told" if made is None or not made.date else made.date),
        ("from", ", ".join(f"{each.file} (sha256 {each.sha256[:12]})" for each in sources)),
        ("licence", info.licence or "not told"),
        ("response model", info.response_model),
        *_held_out(info),
        ("sha256", bank.sha256),
    ]
    if made is not None and made.updates:
        last = made.updates[-1]
        found.append(("grown", f"{len(made.updates)} times, the last {last.date}"))
    return [(name, value or "not told") for name, value in found]


def _range(info: BankInfo) -> str:
    scale = info.scale
    better = "higher" if scale.higher_is_better else "lower"
    return f"[{scale.lo:g}, {scale.hi:g}] ({info.range_source}), {better} is better"


def _models(info: BankInfo) -> str:
    names = [model.name for model in info.models]
    more = f" and {len(names) - SHOWN_MODELS} more" if len(names) > SHOWN_MODELS else ""
    return f"{len(names)}: {', '.join(names[:SHOWN_MODELS])}{more}"


def _prompts(info: BankInfo) -> str:
    shots = "not told" if info.num_fewshot is None else str(info.num_fewshot)
    return f"few-shot examples: {shots}"


def _held_out(info: BankInfo) -> list[tuple[str, str]]:
    """How well the bank's own models were estimated when they were held out."""
    if info.correction is None:
        return []
    width = info.scale.width
    found = []
    for length, each in sorted(info.correction.lengths.items()):
        said = (
            f"MAE {each.mae * width:.3g}, correlation {each.correlation:.2f}, "
            f"{each.covered:.0%} of 95 % intervals hold ({each.tests} tests)"
        )
        found.append((f"held out, {length} items", said))
    return found


def card(bank: ItemBank, name: str) -> str:
    """A bank's card, Markdown with the header that the hub reads."""
    rows = "\n".join(f"| {key} | {value.replace('|', '/')} |" for key, value in facts(bank))
    notices = "\n".join(f"- {line}" for line in bank.info.notices) or "- none"
    return (
        "---\n"
        "tags:\n- lm-eval-adaptive\n- item-bank\n"
        "---\n"
        f"# {name}\n\n"
        f"An item bank for `lm-eval-adaptive run --adaptive --tasks {bank.info.task}`.\n\n"
        f"| | |\n|---|---|\n{rows}\n\n"
        f"What calibration had to say:\n\n{notices}\n"
    )


def export_bank(path: Path, name: str, place: str, hub: Hub | None = None) -> list[str]:
    """Copy a bank with its card to a file, a folder, or a dataset on the hub.

    Args:
        path: The bank's file.
        name: Its name.
        place: A file ending in ``.parquet``, a folder, or ``hf://org/dataset/path``.
        hub: The hub; None takes the real one.

    Returns:
        Where it is now, a line each; of the hub the address that ``--bank`` takes.

    Raises:
        UsageError: The place is none, or is taken.
        BankError: The hub does not take it.
    """
    bank = ItemBank.load(path)
    data, text = path.read_bytes(), card(bank, name)
    if place.startswith(SCHEME):
        return [_upload(data, text, place, name, hub)]
    target = Path(place)
    if target.suffix != ".parquet":
        target = target / f"{name}.bank.parquet"
    beside = target.with_name(target.name.removesuffix(".parquet").removesuffix(".bank") + ".md")
    for file in (target, beside):
        if file.exists():
            raise UsageError(f"{file} exists already; export to another place")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    beside.write_text(text, encoding="utf-8")
    return [str(target), str(beside)]


def _upload(data: bytes, text: str, place: str, name: str, hub: Hub | None) -> str:
    match = _PLACE.fullmatch(place.rstrip("/"))
    if match is None or ".." in place.split("/"):
        raise UsageError(
            f"cannot export to {place}: expected hf://org/dataset/path, without revision and hash"
        )
    repo, inside = match["repo"], match["path"]
    if not inside.endswith(".parquet"):
        inside = f"{inside}/{name}.bank.parquet"
    beside = inside.removesuffix(".parquet").removesuffix(".bank") + ".md"
    if hub is None:
        from huggingface_hub import HfApi

        hub = HfApi()
    try:
        hub.create_repo(repo, repo_type="dataset", exist_ok=True)
        if not hub.file_exists(repo, "README.md", repo_type="dataset"):
            _put(hub, repo, "README.md", text.encode())
        _put(hub, repo, beside, text.encode())
        commit = _put(hub, repo, inside, data)
    except (OSError, ValueError, RuntimeError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise BankError(
            f"the hub does not take {inside} ({type(error).__name__}: {first}); check HF_TOKEN, "
            f"its rights to {repo} and HF_HUB_OFFLINE, or export to a folder"
        ) from error
    return f"{SCHEME}{repo}/{inside}@{commit}#{hashlib.sha256(data).hexdigest()}"


def _put(hub: Hub, repo: str, path: str, data: bytes) -> str:
    told = hub.upload_file(
        path_or_fileobj=data, path_in_repo=path, repo_id=repo, repo_type="dataset"
    )
    return str(getattr(told, "oid", "main"))
