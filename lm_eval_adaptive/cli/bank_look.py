"""``bank show`` and ``bank check``: what a bank holds, and whether it fits a task's documents."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lm_eval_adaptive.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from lm_eval_adaptive.core.bank import ItemBank


def show_bank_file(namespace: argparse.Namespace) -> int:
    """Print what a bank holds."""
    from lm_eval_adaptive.banks.named import bank_named
    from lm_eval_adaptive.records.files import finite
    from lm_eval_adaptive.report.bank_show import bank_as_json, show_bank

    bank = bank_named(namespace.file)
    if namespace.json:
        print(json.dumps(finite(bank_as_json(bank)), indent=2, ensure_ascii=False))
    else:
        show_bank(bank)
    return 0


def check_bank_file(namespace: argparse.Namespace) -> int:
    """Tell what a bank is before it is used; hold it against the documents of a task."""
    from lm_eval_adaptive.banks.card import told_of_bank, warnings_of_bank
    from lm_eval_adaptive.banks.named import bank_named, check_card
    from lm_eval_adaptive.report.texts import printable

    bank = bank_named(namespace.file)
    for line in told_of_bank(bank):
        print(printable(line))
    for line in [*warnings_of_bank(bank), *check_card(bank)]:
        print(printable(f"note: {line}"))
    if namespace.tasks is not None:
        _hold_against(bank, namespace)
    return 0


def _hold_against(bank: ItemBank, namespace: argparse.Namespace) -> None:
    """Whether a task's documents are the bank's.

    Raises:
        UsageError: It is of another task or version.
        DataError: Too few of its items are there.
    """
    from lm_eval_adaptive.banks.check import match_documents
    from lm_eval_adaptive.banks.named import for_task
    from lm_eval_adaptive.host.find_tasks import make_task_manager, resolve_tasks
    from lm_eval_adaptive.host.registries import register_all
    from lm_eval_adaptive.host.remote_code import remote_code_checked
    from lm_eval_adaptive.host.settings import HarnessSettings
    from lm_eval_adaptive.host.task import TaskDocs, load_task

    register_all()
    settings = HarnessSettings(tasks=(namespace.tasks,), include_path=namespace.include_path)
    manager = make_task_manager(settings)
    (name,) = resolve_tasks(manager, settings.tasks)
    with remote_code_checked(trusted=namespace.trust_remote_code):
        docs = TaskDocs(load_task(manager, name))
    bank = for_task(bank, docs.name)
    if bank.info.task != docs.name:
        raise UsageError(
            f"bank {namespace.file} was made for task {bank.info.task}, not for {docs.name}"
        )
    if bank.info.task_version and bank.info.task_version != docs.version:
        raise UsageError(
            f"bank {namespace.file} was made for version {bank.info.task_version} of "
            f"{docs.name}, this is version {docs.version}; recalibrate it"
        )
    found, notices = match_documents(
        bank, docs.keys, docs.seen_keys, sights=docs.sights, prompts=docs.prompts_alone
    )
    for notice in notices:
        print(notice)
    matched = sum(each is not None for each in found)
    print(
        f"{namespace.file} fits {docs.name}: {matched} of {len(bank)} items are among its "
        f"{len(docs)} documents"
    )
