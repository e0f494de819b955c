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
from lm_eval_adaptive.redact import HIDDEN, is_secret_name, restore_words, variable_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence

    from lm_eval_adaptive.cli.request import Request
    from lm_eval_adaptive.host.noise import Noise
    from lm_eval_adaptive.host.settings import HarnessSettings
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
    _refuse_another_folder(namespace, resume)
    noise, progress = Noise(), Progress()
    progress.console  # noqa: B018  the terminal's stream, before libraries are led elsewhere
    with noise, progress:
        outcome = _perform(
            asked, None if resume is None else Path(resume), arguments, progress, noise
        )
    show_outcome(outcome)
    _show_on_request(asked.settings, outcome)
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


def _show_on_request(settings: HarnessSettings, outcome: RunOutcome) -> None:
    """``--write_out`` and ``--show_config``: a prompt as it was sent, and the results whole."""
    import json

    from lm_eval.utils import handle_non_serializable

    for name, task in outcome.tasks.items():
        for model, results in task.results.items():
            samples = results.get("samples", {}).get(name, [])
            if settings.write_out and samples:
                first = samples[0]
                print(f"\n{name}, {model}, document {first['doc_id']}:\n{first['arguments'][0][0]}")
                print(f"(end of prompt; target: {first['target']})")
            if settings.show_config and results:
                plain = {key: value for key, value in results.items() if key != "samples"}
                print(
                    json.dumps(plain, indent=2, default=handle_non_serializable, ensure_ascii=False)
                )


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


def _keys_given(namespace: argparse.Namespace, plain: argparse.Namespace) -> dict[str, str]:
    """Keys beside ``--resume``, as in ``--model_args api_key=K``; they are taken out."""
    given = namespace.model_args or {}
    opened = getattr(namespace, CANDIDATES, [])
    if opened or not given or not all(map(is_secret_name, given)):
        return {}
    namespace.model_args = plain.model_args
    delattr(namespace, CANDIDATES)
    return {variable_of(name): str(value) for name, value in given.items()}


def _with_secrets(command: Sequence[str], given: Mapping[str, str], folder: str) -> list[str]:
    """A kept command line with its keys, which a journal does not keep.

    Args:
        command: The words that were kept.
        given: Keys that were given now, by the name of their variable.
        folder: The run's folder.

    Raises:
        UsageError: Neither these nor the environment hold them.
    """
    words, missing = restore_words(command, {**os.environ, **given})
    if missing:
        names = ", ".join(name for name in missing if name)
        again = f"give the whole command line again, with --resume {folder}"
        raise UsageError(
            f"--resume {folder}: a journal keeps no secrets, and this run was given some "
            f"({shlex.join(word for word in words if HIDDEN[:-1] in word)}); "
            + (again if "" in missing else f"set {names} in the environment, or {again}")
        )
    return words


# Options that may be given anew to a run that is resumed.
_ANEW = frozenset({"adaptive", "clip", "executor", "resume", "verbosity"})


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
    plain = read(["run", "--adaptive"])
    kept = _with_secrets(_without_resume(command), _keys_given(namespace, plain), folder)
    _refuse_others(namespace, read(kept), plain, folder)
    clip = ["--clip"] if getattr(namespace, "clip", False) and "--clip" not in kept else []
    executor = getattr(namespace, "executor", None)
    where = [] if executor is None else ["--executor", executor]
    return [*kept, *clip, *where, "--resume", folder]


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
