"""``run``: an adaptive run, or the harness's own as it stands.

This module owns what the command does; its options are ``run_options``', their reading is
``request``'s.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from lm_eval_adaptive.cli.listing import with_own_tasks
from lm_eval_adaptive.cli.request import config_says_adaptive, own_keys, read_request
from lm_eval_adaptive.cli.run_options import CANDIDATES
from lm_eval_adaptive.errors import ModelError, ScoringError, UsageError
from lm_eval_adaptive.redact import restore_words

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from lm_eval_adaptive.cli.request import Request
    from lm_eval_adaptive.host.noise import Noise
    from lm_eval_adaptive.records.outcome import RunOutcome
    from lm_eval_adaptive.report.live import Progress
    from lm_eval_adaptive.run.contest import Contest


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
    from lm_eval_adaptive.host.noise import Noise
    from lm_eval_adaptive.host.registries import register_all
    from lm_eval_adaptive.report.live import Progress
    from lm_eval_adaptive.report.show import show_outcome

    register_all()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    asked = read_request(namespace)
    resume = getattr(namespace, "resume", None)
    noise, progress = Noise(), Progress()
    progress.console  # noqa: B018  the terminal's stream, before libraries are led elsewhere
    with noise, progress:
        outcome = _perform(
            asked, None if resume is None else Path(resume), arguments, progress, noise
        )
    show_outcome(outcome)
    _raise_for_lost_models(outcome, noise)
    return 0


def _perform(
    asked: Request, resume: Path | None, arguments: list[str], progress: Progress, noise: Noise
) -> RunOutcome:
    """Run; what libraries say is in the run's folder, and named when something failed."""
    from lm_eval_adaptive.api import perform
    from lm_eval_adaptive.run.loop import AdaptiveRun

    def listen(contest: Contest, event: str) -> None:
        if event == "start":  # the journal is begun: the folder is this run's
            noise.open(run.output_path)
        progress(contest, event)

    run = AdaptiveRun(
        asked.candidates,
        asked.settings,
        asked.adaptive,
        resume=resume,
        command=arguments,
        listener=listen,
    )
    try:
        return perform(run)
    except (ModelError, ScoringError) as error:
        raise type(error)(f"{error}{noise.named()}") from error


def _raise_for_lost_models(outcome: RunOutcome, noise: Noise) -> None:
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
            f"{noise.named()}"
        )


def _with_secrets(command: Sequence[str], folder: str) -> tuple[str, ...]:
    """A kept command line with its keys, which a journal does not keep, from the environment.

    Raises:
        UsageError: The environment does not hold them.
    """
    words, missing = restore_words(command)
    if missing:
        unnamed = "?" in missing
        names = ", ".join(name for name in missing if name != "?")
        told = shlex.join(word for word in words if "[hidden" in word)
        environment = f"set {names} in the environment, or " if not unnamed else ""
        raise UsageError(
            f"--resume {folder}: a journal keeps no secrets, and this run was given {told}: "
            f"{environment}give the whole command line again, with --resume {folder}"
        )
    return tuple(words)


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
    command = _with_secrets(command, folder)
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
