"""``run``: an adaptive run, or the harness's own as it stands.

This module owns what the command does; its options are ``run_options``', their reading is
``request``'s.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from lm_eval_adaptive.cli.listing import with_own_tasks
from lm_eval_adaptive.cli.request import config_says_adaptive, own_keys, read_request
from lm_eval_adaptive.cli.run_options import CANDIDATES
from lm_eval_adaptive.errors import ModelError, UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from lm_eval_adaptive.records.outcome import RunOutcome


def execute(namespace: argparse.Namespace, arguments: list[str]) -> int:
    """Run adaptively where that is asked for, else as the harness does."""
    if _is_adaptive(namespace):
        return _run_adaptive(namespace, arguments)
    return _run_plain(namespace)


def _is_adaptive(namespace: argparse.Namespace) -> bool:
    return bool(getattr(namespace, "adaptive", False)) or config_says_adaptive(namespace)


def _run_plain(namespace: argparse.Namespace) -> int:
    """Exactly the harness's own run, with this package's tasks and models known to it."""
    from lm_eval.utils import setup_logging

    from lm_eval_adaptive.host.registries import register_all

    given = [key for key in own_keys() - {CANDIDATES} if hasattr(namespace, key)]
    if given:
        raise UsageError(f"--{given[0]} is an option of adaptive runs; add --adaptive")
    if hasattr(namespace, CANDIDATES):
        delattr(namespace, CANDIDATES)
    register_all()
    setup_logging()
    with_own_tasks(namespace)
    namespace.func(namespace)
    return 0


def _run_adaptive(namespace: argparse.Namespace, arguments: list[str]) -> int:
    """Rank the models, show the ranking, and say who was lost."""
    from lm_eval_adaptive.host.environment import hush_bars

    hush_bars()  # before anything imports tqdm
    from lm_eval_adaptive.api import perform
    from lm_eval_adaptive.host.registries import register_all
    from lm_eval_adaptive.report.live import Progress
    from lm_eval_adaptive.report.show import show_outcome
    from lm_eval_adaptive.run.loop import AdaptiveRun

    register_all()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    asked = read_request(namespace)
    resume = getattr(namespace, "resume", None)
    _refuse_another_folder(namespace, resume)
    with Progress() as progress:
        outcome = perform(
            AdaptiveRun(
                asked.candidates,
                asked.settings,
                asked.adaptive,
                resume=None if resume is None else Path(resume),
                command=arguments,
                listener=progress,
            )
        )
    show_outcome(outcome)
    _raise_for_lost_models(outcome)
    return 0


def _refuse_another_folder(namespace: argparse.Namespace, resume: str | None) -> None:
    """A resumed run writes where it did.

    Raises:
        UsageError: ``--output_path`` names another folder.
    """
    output = getattr(namespace, "output_path", None)
    if resume is None or output is None or Path(output).resolve() == Path(resume).resolve():
        return
    raise UsageError(
        f"--output_path {output} has no effect with --resume {resume}: the run goes on in its own "
        "folder; leave --output_path out"
    )


def _raise_for_lost_models(outcome: RunOutcome) -> None:
    """A run that ranked some models only is no success.

    Raises:
        ModelError: A model was set aside.
    """
    lost = {
        each.model: each.reason
        for task in outcome.tasks.values()
        for each in task.ranking.set_aside
    }
    if lost:
        raise ModelError(
            f"set aside for failing: {', '.join(lost)} ({next(iter(lost.values()))}); the others "
            f"are ranked. Mend the cause and go on with --resume {outcome.output_path}"
        )


# Options that may be given anew to a run that is resumed.
_ANEW = frozenset({"adaptive", "clip", "resume", "verbosity"})


def words_to_resume(
    namespace: argparse.Namespace, read: Callable[[list[str]], argparse.Namespace]
) -> list[str] | None:
    """The whole command line of ``--resume DIR`` without a task, from the run's journal.

    Args:
        namespace: What was given now.
        read: Parses a command line.

    Returns:
        Its words; None where the command line says everything itself.

    Raises:
        UsageError: The run was started from Python, or an option is given that is not the run's.
        DataError: The journal cannot be read.
    """
    folder = getattr(namespace, "resume", None)
    alone = not (namespace.tasks or getattr(namespace, "config", None))
    if folder is None or not alone or not _is_adaptive(namespace):
        return None
    from lm_eval_adaptive.records.journal import NAME, read_journal

    command = read_journal(Path(folder) / NAME).header.command
    if not command:
        raise UsageError(
            f"--resume {folder}: the run was started from Python; resume it there with resume="
        )
    kept = _without_resume(command)
    _refuse_others(namespace, read(kept), read(["run", "--adaptive"]), folder)
    clip = ["--clip"] if getattr(namespace, "clip", False) and "--clip" not in kept else []
    return [*kept, *clip, "--resume", folder]


def _without_resume(command: Sequence[str]) -> list[str]:
    kept: list[str] = []
    skip = False
    for word in command:
        if not skip and word != "--resume" and not word.startswith("--resume="):
            kept.append(word)
        skip = word == "--resume"
    return kept


def _refuse_others(
    now: argparse.Namespace, then: argparse.Namespace, plain: argparse.Namespace, folder: str
) -> None:
    """Refuse options beside ``--resume`` that are not those of the run.

    Raises:
        UsageError: There are some; they are named.
    """
    began, untouched = vars(then), vars(plain)
    others = [
        name
        for name, value in vars(now).items()
        if name not in _ANEW and value != untouched.get(name) and value != began.get(name)
    ]
    if CANDIDATES in others:
        others = [name for name in others if name not in ("model", "model_args", CANDIDATES)]
        others.insert(0, "model")
    if others:
        told = "; ".join(
            f"--{name} ({_shown(began.get(name))} when it began, {_shown(getattr(now, name))} now)"
            if name != "model"
            else "--model (other models than when it began)"
            for name in others
        )
        raise UsageError(
            f"--resume {folder} takes all options from the run, and these differ: {told}; leave "
            "them out, or start a new run"
        )


def _shown(value: object) -> str:
    return "not given" if value is None else str(value)
