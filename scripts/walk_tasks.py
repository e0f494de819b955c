"""Walk every generation task of the installed harness, by family, and see that it runs the same.

A family is a folder of the harness's tasks. For some tasks of each, different in their code or
prompt, documents are made up from the columns that they read (``--documents`` has real ones), and
the task is run twice: by the harness and by an adaptive run over all documents. Prompts, filtered
answers and scores of the two have to be equal. Takes an hour or so in full and may be stopped and
started again; what was found is in ``--findings``, a line a task.

    python scripts/walk_tasks.py --findings walk.jsonl
    python scripts/walk_tasks.py --findings walk.jsonl --table docs/tasks.md
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
os.environ.setdefault("TQDM_DISABLE", "1")
os.environ.setdefault("LMEVAL_LOG_LEVEL", "ERROR")
os.environ.setdefault("HF_ALLOW_CODE_EVAL", "1")

# What tells tasks of one folder apart: they are tried one of each kind.
_RECIPE = (
    "doc_to_text",
    "doc_to_target",
    "process_docs",
    "process_results",
    "filter_list",
    "class",
)


class OutOfTimeError(BaseException):
    """A task took too long; no ``Exception``, so that nothing on the way takes it for one."""


def tasks_root() -> Path:
    import lm_eval.tasks

    return Path(lm_eval.tasks.__file__).parent


def generation_files(folder: Path) -> list[tuple[Path, str]]:
    """YAML files of generation tasks in a folder (not below), each with its kind."""
    from lm_eval.tasks._yaml_loader import load_yaml

    found = []
    for path in sorted(folder.glob("*.yaml")):
        try:
            config = load_yaml(path, resolve_func=False)
        except Exception:  # noqa: BLE001  templates that are included by others
            continue
        named = isinstance(config.get("task"), str) or "task_list" in config
        if not named or isinstance(config.get("task"), list):
            continue
        if "class" in config or config.get("output_type", "generate_until") == "generate_until":
            found.append((path, json.dumps([str(config.get(key)) for key in _RECIPE])))
    return found


def choose(root: Path, per_family: int, only: list[str]) -> list[Path]:
    """The tasks to walk, one of each kind in turn through all families."""
    folders = sorted({path.parent for path in root.rglob("*.yaml")})
    if only:
        folders = [each for each in folders if str(each.relative_to(root)) in only]
    rounds: list[list[Path]] = [[] for _ in range(per_family)]
    for folder in folders:
        kinds = {}
        for path, recipe in generation_files(folder):
            kinds.setdefault(recipe, path)
        for number, path in enumerate(list(kinds.values())[:per_family]):
            rounds[number].append(path)
    return [path for each in rounds for path in each]


@contextlib.contextmanager
def within(seconds: int) -> Any:
    def stop(*_: Any) -> None:
        raise OutOfTimeError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def walk(options: argparse.Namespace) -> None:
    from lm_eval.tasks import TaskManager
    from walk.check import METADATA, Finding, look_at
    from walk.stand_ins import register

    register()
    logging.disable(logging.ERROR)
    root, findings = tasks_root(), Path(options.findings)
    done = set()
    if findings.is_file():
        rows = [json.loads(line) for line in findings.read_text("utf-8").splitlines()]
        again = ("not loaded", "differs") if options.again else ()
        done = {row["yaml"] for row in rows if row["outcome"] not in again}
    manager = TaskManager(include_defaults=False, metadata=dict(METADATA))
    real = Path(options.documents) if options.documents else None
    paths = choose(root, options.per_family, options.only)
    nothing = Path(os.devnull).open("w")  # noqa: SIM115  tasks' loggers keep it
    for number, path in enumerate(paths):
        name = str(path.relative_to(root))
        if name in done:
            continue
        begin = time.monotonic()
        try:
            with (
                within(options.seconds * 2),
                contextlib.redirect_stdout(nothing),
                contextlib.redirect_stderr(nothing),
            ):
                found = look_at(manager, path, root, real, options.seconds)
        except OutOfTimeError:
            found = Finding(path.stem, str(path.parent.relative_to(root)), name)
            found.reason = f"took more than {options.seconds * 2} s"
        except SystemExit as error:  # a task's own, where a program of its is missing
            found = Finding(path.stem, str(path.parent.relative_to(root)), name)
            found.reason = f"SystemExit: {error}"[:200]
        except Exception as error:  # noqa: BLE001  the walk goes on
            found = Finding(path.stem, str(path.parent.relative_to(root)), name)
            found.outcome, found.reason = "differs", f"{type(error).__name__}: {error}"[:200]
        found.seconds = round(time.monotonic() - begin, 1)
        with findings.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(found)) + "\n")
        print(
            f"{number + 1}/{len(paths)} {found.outcome:12} {name} {found.seconds} {found.reason}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--findings", required=True, help="JSON lines of what was found")
    parser.add_argument("--per_family", type=int, default=2, help="tasks of a folder at most")
    parser.add_argument("--only", nargs="*", default=[], help="families by folder")
    parser.add_argument("--documents", help="folder with real documents, FAMILY.jsonl.gz")
    parser.add_argument("--seconds", type=int, default=40, help="for one task's documents")
    parser.add_argument("--again", action="store_true", help="what failed before is tried anew")
    parser.add_argument("--table", help="write the table of all findings to this page")
    options = parser.parse_args()
    if options.table:
        from walk.table import write_table

        write_table(Path(options.findings), Path(options.table))
    else:
        walk(options)


if __name__ == "__main__":
    main()
