"""``bank``: look into banks, keep them in a store of one's own, let them grow, hand them on.

This module owns the options; ``bank_look`` shows and checks, ``bank_store`` keeps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.cli import bank_look, bank_store
from lm_eval_adaptive.cli.bank_make import add_make

if TYPE_CHECKING:
    import argparse

_NAME = "Name in the store or the package, a file, or hf://org/dataset/path@revision#sha256"


def add_parser(subparsers: Any) -> None:
    """Add the command to the harness's subcommands."""
    parser = subparsers.add_parser(
        "bank", help="Look into banks, keep them in your store, let them grow, hand them on"
    )
    commands = "show|check|list|add|rm|export|grow|make"
    inner = parser.add_subparsers(dest="bank_command", required=True, metavar=commands)
    _add_looks(inner)
    _add_store(inner)
    _add_growth(inner)
    add_make(inner)


def _add_looks(inner: Any) -> None:
    show: argparse.ArgumentParser = inner.add_parser(
        "show",
        help="What a bank holds",
        epilog="example: lm-eval-adaptive bank show records.bank.parquet --json",
    )
    show.add_argument("file", metavar="NAME", help=_NAME)
    show.add_argument("--json", action="store_true", help="As JSON, with every item")
    show.set_defaults(func=bank_look.show_bank_file)
    check: argparse.ArgumentParser = inner.add_parser(
        "check",
        help="What a bank is before you use it, and whether it fits a task's documents",
        epilog="example: lm-eval-adaptive bank check my.bank.parquet --tasks my_task",
    )
    check.add_argument("file", metavar="NAME", help=_NAME)
    check.add_argument("--tasks", default=None, help="Task name or YAML file")
    check.add_argument("--include_path", default=None, help="Folder of external tasks")
    check.add_argument(
        "--trust_remote_code", action="store_true", help="Let the task's data run their own code"
    )
    check.set_defaults(func=bank_look.check_bank_file)


def _add_store(inner: Any) -> None:
    listing: argparse.ArgumentParser = inner.add_parser(
        "list",
        help="The banks of your store and of the package",
        epilog="example: lm-eval-adaptive bank list --tasks gsm8k,ifeval",
    )
    listing.add_argument(
        "--tasks", default="", metavar="NAMES", help="Those for these tasks; patterns will do"
    )
    listing.set_defaults(func=bank_store.list_banks)
    add: argparse.ArgumentParser = inner.add_parser(
        "add",
        help="Put a bank into your store, for runs that name none",
        epilog="example: lm-eval-adaptive bank add my.bank.parquet",
    )
    add.add_argument("file", metavar="FILE", help="A bank's file, or its address on the hub")
    add.add_argument("--name", default="", help="Its name there; default: task, metric, filter")
    add.add_argument("--overwrite", action="store_true", help="Replace the bank of that name")
    add.set_defaults(func=bank_store.add_bank)
    remove: argparse.ArgumentParser = inner.add_parser("rm", help="Take a bank out of your store")
    remove.add_argument("name", metavar="NAME")
    remove.set_defaults(func=bank_store.remove_bank)
    export: argparse.ArgumentParser = inner.add_parser(
        "export",
        help="Write a bank and its card into a folder, or to a dataset on the hub",
        epilog="example: lm-eval-adaptive bank export my_task_rougeL --to hf://org/banks/my_task",
    )
    export.add_argument("name", metavar="NAME", help=_NAME)
    export.add_argument(
        "to", nargs="?", default=None, metavar="DEST", help="Folder, or hf://org/dataset/path"
    )
    export.add_argument("--to", dest="to_option", default=None, metavar="DEST", help="The same")
    export.add_argument("--overwrite", action="store_true", help="Replace what is there")
    export.set_defaults(func=bank_store.export_bank)


def _add_growth(inner: Any) -> None:
    grow: argparse.ArgumentParser = inner.add_parser(
        "grow",
        help="Let runs add their models to the banks of your store",
        epilog="examples: lm-eval-adaptive bank grow on; lm-eval-adaptive bank grow --from out",
    )
    grow.add_argument(
        "state",
        nargs="?",
        metavar="on|off",
        choices=("on", "off"),
        help="For all runs from now on; off at first. Neither: say which it is",
    )
    grow.add_argument(
        "--from",
        dest="run",
        default=None,
        metavar="RUN",
        help="Add the models of a finished run, by its --output_path; again does no harm",
    )
    grow.set_defaults(func=bank_store.grow_banks)
