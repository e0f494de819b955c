"""``bank``: look into banks, check them against a task, keep, share and grow them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import UsageError

if TYPE_CHECKING:
    import argparse

_WHICH = "A file, hf://org/dataset/path@revision#sha256, or a name of `bank list`"


def add_parser(subparsers: Any) -> None:
    """Add the command to the harness's subcommands."""
    parser = subparsers.add_parser(
        "bank", help="List, look into, check, keep, share and grow item banks"
    )
    inner = parser.add_subparsers(
        dest="bank_command", required=True, metavar="list|show|check|add|rm|export|grow"
    )
    listed = inner.add_parser("list", help="The banks of the store and of the package")
    listed.add_argument("--tasks", default="", help="Only those for these tasks, by commas")
    listed.set_defaults(func=list_banks)
    show = inner.add_parser(
        "show",
        help="What a bank holds",
        epilog="example: lm-eval-adaptive bank show records.bank.parquet --json",
    )
    show.add_argument("file", metavar="BANK", help=_WHICH)
    show.add_argument("--json", action="store_true", help="As JSON, with every item")
    show.set_defaults(func=show_bank_file)
    check = inner.add_parser(
        "check",
        help="What is inside a bank, and whether it fits a task's documents",
        epilog="example: lm-eval-adaptive bank check my.bank.parquet --tasks my_task",
    )
    check.add_argument("file", metavar="BANK", help=_WHICH)
    check.add_argument("--tasks", required=True, help="Task name or YAML file")
    check.add_argument("--include_path", default=None, help="Folder of external tasks")
    check.add_argument(
        "--trust_remote_code", action="store_true", help="Let the task's data run their own code"
    )
    check.set_defaults(func=check_bank_file)
    add = inner.add_parser("add", help="Put a bank into the store")
    add.add_argument("file", metavar="BANK", help=_WHICH)
    add.add_argument("--name", default=None, help="Its name there; default: task and metric")
    add.add_argument("--overwrite", action="store_true", help="Replace one of that name")
    add.set_defaults(func=add_bank)
    remove = inner.add_parser("rm", help="Take a bank out of the store")
    remove.add_argument("name", metavar="NAME", help="A name of `bank list`")
    remove.set_defaults(func=remove_bank)
    export = inner.add_parser(
        "export",
        help="Copy a bank, with a card that says what it is, to a folder or to the hub",
        epilog="example: lm-eval-adaptive bank export gsm8k --to hf://org/banks/gsm8k",
    )
    export.add_argument("name", metavar="BANK", help=_WHICH)
    export.add_argument(
        "--to", required=True, metavar="PLACE", help="A folder, a file, or hf://org/dataset/path"
    )
    export.set_defaults(func=export_one)
    grow = inner.add_parser(
        "grow",
        help="Whether runs add their models to the store's banks, or do so for a run",
        epilog="examples: lm-eval-adaptive bank grow on; lm-eval-adaptive bank grow out_may",
    )
    grow.add_argument(
        "what",
        metavar="on|off|RUN",
        nargs="?",
        default="",
        help="on, off, or the --output_path of a run; default: say which it is",
    )
    grow.set_defaults(func=grow_banks)


def list_banks(namespace: argparse.Namespace) -> int:
    """Print the banks of the store and of the package."""
    from rich.table import Table

    from lm_eval_adaptive.banks.shipped import shipped_banks
    from lm_eval_adaptive.banks.store import Store
    from lm_eval_adaptive.report.texts import console_of_users

    asked = {each.strip() for each in namespace.tasks.split(",") if each.strip()}
    store = Store()
    stored, broken = store.entries()
    table = Table(box=None)
    for heading in ("name", "where", "tasks", "metric", "models", "documents", "date"):
        table.add_column(heading, overflow="fold")
    rows: list[tuple[str, str, tuple[str, ...], str, int, int, str]] = [
        (each.name, "store", (each.task,), f"{each.metric},{each.filter}", each.n_models,
         each.n_docs, each.date)
        for each in stored
    ]  # fmt: skip
    rows += [
        (each.name, "package", each.tasks, each.metric, each.n_models, each.n_docs, each.date)
        for each in shipped_banks()
    ]
    shown = [row for row in rows if not asked or asked & set(row[2])]
    for name, where, tasks, metric, models, documents, date in shown:
        table.add_row(name, where, ", ".join(tasks), metric, str(models), str(documents), date)
    if shown:
        console_of_users().print(table)
    else:
        print(f"no bank for {', '.join(sorted(asked))}")
    for line in broken:
        print(line)
    print(f"store: {store.folder}{' (grows after every run)' if store.grows else ''}")
    return 0


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
    """Say what is in a bank, and hold it against the documents of a task."""
    from lm_eval_adaptive.banks.check import match_documents
    from lm_eval_adaptive.banks.find import load_bank
    from lm_eval_adaptive.banks.share import facts
    from lm_eval_adaptive.banks.shipped import shipped_banks
    from lm_eval_adaptive.host.find_tasks import make_task_manager, resolve_tasks
    from lm_eval_adaptive.host.registries import register_all
    from lm_eval_adaptive.host.remote_code import remote_code_checked
    from lm_eval_adaptive.host.settings import HarnessSettings
    from lm_eval_adaptive.host.task import TaskDocs, load_task

    register_all()
    bank = load_bank(namespace.file)
    for name, value in facts(bank):
        print(f"{name}: {value}")
    settings = HarnessSettings(tasks=(namespace.tasks,), include_path=namespace.include_path)
    manager = make_task_manager(settings)
    (name,) = resolve_tasks(manager, settings.tasks)
    with remote_code_checked(trusted=namespace.trust_remote_code):
        docs = TaskDocs(load_task(manager, name))
    serves = next(
        (each.tasks for each in shipped_banks() if each.sha256 == bank.sha256), (bank.info.task,)
    )
    if docs.name not in serves:
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
    return 0


def add_bank(namespace: argparse.Namespace) -> int:
    """Put a bank into the store."""
    from lm_eval_adaptive.banks.find import load_bank
    from lm_eval_adaptive.banks.store import Store, usual_name

    bank, store = load_bank(namespace.file), Store()
    name = usual_name(bank) if namespace.name is None else namespace.name
    entry = store.add(bank, name, overwrite=namespace.overwrite)
    print(
        f"{entry.name} is in the store: {entry.task} by {entry.metric}, {entry.n_models} models, "
        f"{entry.n_docs} documents"
    )
    return 0


def remove_bank(namespace: argparse.Namespace) -> int:
    """Take a bank out of the store."""
    from lm_eval_adaptive.banks.store import Store

    store = Store()
    store.remove(namespace.name)
    print(f"{namespace.name} is out of the store {store.folder}")
    return 0


def export_one(namespace: argparse.Namespace) -> int:
    """Copy a bank with its card."""
    from lm_eval_adaptive.banks.find import load_bank
    from lm_eval_adaptive.banks.share import export_bank

    path = Path(load_bank(namespace.name).path)
    name = path.name.removesuffix(".parquet").removesuffix(".bank")
    for line in export_bank(path, name, namespace.to):
        print(line)
    return 0


def grow_banks(namespace: argparse.Namespace) -> int:
    """Turn growing on or off, say which it is, or let a run's models enter."""
    from lm_eval_adaptive.banks.grow import grow_from
    from lm_eval_adaptive.banks.store import Store

    store = Store()
    if namespace.what in ("on", "off"):
        store.let_grow(on=namespace.what == "on")
    elif namespace.what:
        for line in grow_from(Path(namespace.what), store):
            print(line)
        return 0
    state = "on: runs add their models" if store.grows else "off: runs leave the banks as they are"
    print(f"{store.folder}: growing is {state}")
    return 0
