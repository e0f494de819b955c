"""``bank show`` and ``bank check``: what a bank holds, and whether it fits a task's documents."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import UsageError

if TYPE_CHECKING:
    import argparse


def add_parser(subparsers: Any) -> None:
    """Add the command to the harness's subcommands."""
    parser = subparsers.add_parser("bank", help="Look into a bank, or check it against a task")
    inner = parser.add_subparsers(dest="bank_command", required=True, metavar="show|check")
    show = inner.add_parser(
        "show",
        help="What a bank holds",
        epilog="example: lm-eval-adaptive bank show records.bank.parquet --json",
    )
    show.add_argument("file")
    show.add_argument("--json", action="store_true", help="As JSON, with every item")
    check = inner.add_parser(
        "check",
        help="Whether a bank fits a task's documents",
        epilog="example: lm-eval-adaptive bank check my.bank.parquet --tasks my_task",
    )
    check.add_argument("file")
    check.add_argument("--tasks", required=True, help="Task name or YAML file")
    check.add_argument("--include_path", default=None, help="Folder of external tasks")
    show.set_defaults(func=show_bank_file)
    check.set_defaults(func=check_bank_file)


def show_bank_file(namespace: argparse.Namespace) -> int:
    """Print what a bank holds."""
    from lm_eval_adaptive.banks.find import load_bank
    from lm_eval_adaptive.records.files import finite
    from lm_eval_adaptive.report.bank_show import bank_as_json, show_bank

    bank = load_bank(namespace.file)
    if namespace.json:
        print(json.dumps(finite(bank_as_json(bank)), indent=2, ensure_ascii=False))
    else:
        show_bank(bank)
    return 0


def check_bank_file(namespace: argparse.Namespace) -> int:
    """Hold a bank against the documents of a task."""
    from lm_eval_adaptive.banks.check import match_documents
    from lm_eval_adaptive.banks.find import load_bank
    from lm_eval_adaptive.host.find_tasks import make_task_manager, resolve_tasks
    from lm_eval_adaptive.host.registries import register_all
    from lm_eval_adaptive.host.settings import HarnessSettings
    from lm_eval_adaptive.host.task import TaskDocs, load_task

    register_all()
    bank = load_bank(namespace.file)
    settings = HarnessSettings(tasks=(namespace.tasks,), include_path=namespace.include_path)
    manager = make_task_manager(settings)
    (name,) = resolve_tasks(manager, settings.tasks)
    docs = TaskDocs(load_task(manager, name))
    if bank.info.task != docs.name:
        raise UsageError(
            f"bank {namespace.file} was made for task {bank.info.task}, not for {docs.name}"
        )
    if bank.info.task_version and bank.info.task_version != docs.version:
        raise UsageError(
            f"bank {namespace.file} was made for version {bank.info.task_version} of "
            f"{docs.name}, this is version {docs.version}; recalibrate it"
        )
    found, notices = match_documents(bank, docs.keys, docs.seen_keys, sights=docs.sights)
    for notice in notices:
        print(notice)
    matched = sum(each is not None for each in found)
    print(
        f"{namespace.file} fits {docs.name}: {matched} of {len(bank)} items are among its "
        f"{len(docs)} documents"
    )
    return 0
