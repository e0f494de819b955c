"""``bank list``, ``add``, ``rm``, ``export`` and ``grow``: banks kept for all runs of a machine."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from lm_eval_adaptive.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


def list_banks(namespace: argparse.Namespace) -> int:
    """Print the banks at hand."""
    from lm_eval_adaptive.banks.answers import read_answers
    from lm_eval_adaptive.banks.shipped import shipped_banks
    from lm_eval_adaptive.banks.store import Store

    patterns = [each.strip() for each in namespace.tasks.split(",") if each.strip()]
    store = Store()
    banks, broken = store.entries()
    growth = "grows with runs" if store.grows else "grows with runs of --grow alone"
    print(f"store {store.folder} ({growth}):")
    rows = [
        (each.name, each.task, _measure(each.metric, [each.filter]), each.n_models, each.n_docs,
         each.date)
        for each in banks
        if _is_asked(patterns, [each.task])
    ]  # fmt: skip
    _print_rows(rows)
    for name in store.unfinished():
        kept = read_answers(store.answers_of(name))
        if _is_asked(patterns, [kept.of.task]):
            print(
                f"  {name}: no bank yet, answers of {len(kept.matrix.models)} model(s) to "
                f"{len(kept.matrix.items)} documents are kept for it"
            )
    for line in broken:
        print(f"  {line}")
    print("package:")
    _print_rows(
        [
            (each.name, ", ".join(each.tasks), _measure(each.metric, each.filters), each.n_models,
             each.n_docs, each.date)
            for each in shipped_banks()
            if _is_asked(patterns, each.tasks)
        ]
    )  # fmt: skip
    return 0


def _is_asked(patterns: Sequence[str], tasks: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(task, each) for task in tasks for each in patterns)


def _measure(metric: str, filters: Sequence[str]) -> str:
    named = [each for each in filters if each != "none"]
    return f"{metric} ({', '.join(named)})" if named else metric


def _print_rows(rows: Sequence[tuple[str, str, str, int, int, str]]) -> None:
    for name, tasks, metric, models, documents, date in rows:
        made = f", of {date}" if date else ""
        print(f"  {name}: {tasks}, {metric}, {models} models x {documents} documents{made}")
    if not rows:
        print("  none")


def add_bank(namespace: argparse.Namespace) -> int:
    """Put a bank into the store."""
    from lm_eval_adaptive.banks.find import load_bank
    from lm_eval_adaptive.banks.store import Store, usual_name

    bank = load_bank(namespace.file)
    info, store = bank.info, Store()
    name = namespace.name or usual_name(info.task, info.metric, info.filter)
    store.add(bank, name, overwrite=namespace.overwrite)
    print(
        f"bank {name} is in the store {store.folder}: runs of task {info.task} that name no bank "
        "take it where its documents are the task's"
    )
    return 0


def remove_bank(namespace: argparse.Namespace) -> int:
    """Take a bank out of the store."""
    from lm_eval_adaptive.banks.store import Store

    store = Store()
    store.remove(namespace.name)
    print(f"bank {namespace.name} is not in the store {store.folder} any more")
    return 0


def export_bank(namespace: argparse.Namespace) -> int:
    """Write a bank and its card where others find them."""
    from lm_eval_adaptive.banks.named import bank_named, plain_name
    from lm_eval_adaptive.banks.share import share

    given = [each for each in (namespace.to, namespace.to_option) if each]
    if len(given) != 1:
        raise UsageError(
            "bank export takes one place to write to, a folder or hf://org/dataset/path; got "
            f"{' and '.join(given) or 'none'}"
        )
    bank = bank_named(namespace.name)
    for line in share(bank, plain_name(namespace.name), given[0], overwrite=namespace.overwrite):
        print(line)
    return 0


def grow_banks(namespace: argparse.Namespace) -> int:
    """Say whether banks grow, or let them grow by a run."""
    from lm_eval_adaptive.banks.store import Store

    store = Store()
    if namespace.run is not None:
        from lm_eval_adaptive.banks.grow import grow_from
        from lm_eval_adaptive.host.registries import register_all

        register_all()
        if namespace.state is not None:
            raise UsageError(f"bank grow takes {namespace.state} or --from RUN, not both")
        store.check_writable()
        for line in grow_from(Path(namespace.run), store):
            print(line)
        return 0
    if namespace.state is not None:
        store.let_grow(on=namespace.state == "on")
    what = "grow by every run" if store.grows else "grow by runs with --grow alone"
    print(f"the banks of the store {store.folder} {what}")
    return 0
