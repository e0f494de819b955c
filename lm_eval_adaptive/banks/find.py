"""Which bank a task has: the user's, else its YAML's, else the store's or the package's.

A bank is a file, an address on the hub (``banks.hub``), or one at hand (``banks.at_hand``). The
module reads task files through the harness's own loader, and loads the bank; whether it fits the
run is checked there.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.banks.at_hand import (
    Taken,
    as_served,
    bank_at_hand,
    is_plain_name,
    path_of,
)
from lm_eval_adaptive.banks.hub import fetch_bank, is_hub_address
from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.errors import BankError
from lm_eval_adaptive.host.find_tasks import include_paths

if TYPE_CHECKING:
    from lm_eval_adaptive.banks.at_hand import Circumstances
    from lm_eval_adaptive.host.task import TaskDocs


def named_banks(include_path: Any) -> list[tuple[str, str, Path | str]]:
    """Tasks whose YAML names a bank, from our and the user's folders.

    Returns:
        Task, metric, and the bank's file, or its address where it is on the hub.
    """
    from lm_eval.tasks._yaml_loader import load_yaml

    found = []
    for folder in include_paths(include_path):
        for file in sorted(Path(folder).rglob("*.yaml")):
            config = load_yaml(str(file), resolve_func=False)
            block = (config.get("metadata") or {}).get("adaptive") or {}
            named = [(block.get("metric", ""), block.get("bank"))]
            named += (block.get("banks") or {}).items()
            for metric, address in named:
                if isinstance(config.get("task"), str) and address:
                    bank = address if is_hub_address(address) else file.parent / str(address)
                    found.append((config["task"], str(metric), bank))
    return found


def find_bank(
    docs: TaskDocs,
    given: str | Path | None,
    metric: str | None,
    run: Circumstances | None = None,
) -> Taken:
    """The bank for a task: the user's, else the one its YAML names, else one at hand.

    Args:
        docs: The task's documents.
        given: The bank that the user names, None where he names none.
        metric: The metric that the user ranks by, None for the task's own.
        run: What the run brings to the choice where nobody names a bank.

    Raises:
        BankError: There is none, or it cannot be read.
        UsageError: The store is of a newer version, or no folder.
    """
    if given is not None:
        return Taken(as_served(load_bank(given), docs, metric))
    named = docs.metadata.get("bank")
    name = None if metric is None else metric.partition(",")[0]
    if name is not None:
        named = (docs.metadata.get("banks") or {}).get(name, named)
    if is_hub_address(named):
        return Taken(load_bank(named))
    if named:
        path = Path(str(named))
        source = (docs.task.config.metadata or {}).get("config_source")
        if not path.is_absolute() and source and source != "inline":
            path = Path(source).parent / path
        return Taken(load_bank(path))
    taken, told = bank_at_hand(docs, metric, run)
    if taken is not None:
        return taken
    if run is not None and run.hashes:
        raise BankError(
            f"task {docs.name}: the bank that this run began with (sha256 "
            f"{', '.join(sorted(each[:12] for each in run.hashes))}) is not in the store any more; "
            "name its file with --bank"
        )
    why = f" ({'; '.join(told)})" if told else ""
    raise BankError(
        f"no bank for task {docs.name}: its YAML names none under metadata.adaptive.bank, and "
        f"neither the store nor the package has one for its documents{why}; make one with "
        f"`lm-eval-adaptive calibrate --task {docs.name} …` and pass it with --bank, or rank "
        "without one: --bank none"
    )


def load_bank(name: str | Path) -> ItemBank:
    """A bank by its file, its address on the hub, or its name in the store or the package.

    Raises:
        BankError: It cannot be had or read.
        UsageError: The store is of a newer version, or no folder.
    """
    if is_hub_address(name):
        return ItemBank.load(fetch_bank(name))
    path = Path(name)
    if not path.exists() and is_plain_name(str(name)):
        path = path_of(str(name)) or path
    return ItemBank.load(path)
