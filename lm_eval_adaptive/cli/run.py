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


def words_to_resume(namespace: argparse.Namespace) -> list[str] | None:
    """The whole command line of ``--resume DIR`` without other options, from the run's journal.

    Returns:
        Its words; None where the command line says everything itself.

    Raises:
        UsageError: The run was started from Python.
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
    kept = []
    skip = False
    for word in command:
        if skip:
            skip = False
        elif word == "--resume":
            skip = True
        else:
            kept.append(word)
    return [*kept, "--resume", folder]
