"""``ls`` and ``validate``: the harness's own, with this package's tasks and banks included."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def execute(namespace: argparse.Namespace) -> int:
    """Do what the harness does, and name the banks where tasks are listed."""
    from lm_eval.utils import setup_logging

    from lm_eval_adaptive.host.registries import register_all

    setup_logging()
    register_all()
    with_own_tasks(namespace)
    found = namespace.func(namespace)
    if namespace.command == "ls" and namespace.what in ("tasks", "subtasks"):
        _list_banks(namespace.include_path[1:])
    return int(found or 0)


def with_own_tasks(namespace: argparse.Namespace) -> None:
    """Have the harness look for tasks in this package's folder as well."""
    from lm_eval_adaptive.host.find_tasks import include_paths

    namespace.include_path = include_paths(getattr(namespace, "include_path", None))


def _list_banks(include_path: list[str]) -> None:
    from lm_eval_adaptive.banks.find import named_banks

    print("Item banks, for run --adaptive:")
    for task, metric, bank in named_banks(include_path):
        missing = isinstance(bank, Path) and not bank.is_file()
        print(f"  {task}: {bank} ({metric}){' (file is missing)' if missing else ''}")
