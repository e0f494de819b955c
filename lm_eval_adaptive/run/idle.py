"""Options that would do nothing in the run asked for, refused before anything is asked.

This module owns which option needs which other, and which bank is whose; it imports the options.
An option that is silently without effect is read by its user as having had one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lm_eval_adaptive.banks.hub import is_hub_address
from lm_eval_adaptive.errors import UsageError
from lm_eval_adaptive.host.measures import metric_and_filter
from lm_eval_adaptive.records.journal import NO_BANK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lm_eval_adaptive.host.candidate import Candidate
    from lm_eval_adaptive.run.config import AdaptiveConfig
    from lm_eval_adaptive.run.contest import Contest

    Banks = str | Path | Mapping[str, str | Path] | None

# What only pairs have.
_OF_PAIRS = ("correction", "equivalence", "pairs", "futility", "confidence")
# What a test of fixed length does not look at.
_OF_STOPS = ("futility", "precision")


def banks_by_task(
    given: Banks | Sequence[str], tasks: Sequence[str], metrics: Sequence[str]
) -> Banks:
    """Which bank is whose: one for all tasks, or one by ``TASK`` or ``TASK:METRIC``.

    What stands before the first ``=`` of a text names a task only where the run has such a task;
    else the ``=`` is the path's.

    Args:
        given: What the user named.
        tasks: The run's tasks.
        metrics: The metrics that it ranks by, as they were named; empty for the banks' own.

    Raises:
        UsageError: A bank is of a task or metric that the run does not have, or it is not said
            whose it is.
    """
    if given is None or isinstance(given, str | Path):
        return given
    if isinstance(given, Mapping):
        for key in given:
            if not _is_of_run(str(key), tasks, metrics):
                raise UsageError(_unused(f"{key}={given[key]}", str(key), tasks, metrics))
        return {str(key): path for key, path in given.items()}
    found: dict[str, str | Path] = {}
    for text in given:
        key, separator, path = str(text).partition("=")
        if separator and _is_of_run(key, tasks, metrics):
            if not path:
                raise UsageError(f"--bank {text}: no path after the =; expected TASK=PATH")
            if key in found:
                raise UsageError(f"--bank names two banks for {key}: {found[key]} and {path}")
            found[key] = path
        elif separator and not is_hub_address(text) and not Path(text).exists():
            raise UsageError(_unused(text, key, tasks, metrics))
        elif len(given) > 1:
            raise UsageError(
                f"--bank {text}: with several --bank each must say its task, TASK=PATH; the tasks "
                f"are {', '.join(tasks)}"
            )
        else:
            return str(text)
    return found


def _is_of_run(key: str, tasks: Sequence[str], metrics: Sequence[str]) -> bool:
    if key in tasks:
        return True
    task, separator, metric = key.partition(":")
    while separator and task not in tasks:  # a task's name may hold a colon
        head, separator, metric = metric.partition(":")
        task = f"{task}:{head}"
    named = {metric_and_filter(each)[0] for each in metrics}
    return bool(separator) and task in tasks and metric in named


def _unused(text: str, key: str, tasks: Sequence[str], metrics: Sequence[str]) -> str:
    task, _, metric = key.partition(":")
    if task in tasks:
        told = f"--metric names {', '.join(metrics)}" if metrics else "no --metric is named"
        return (
            f"--bank {text} is used by nothing: {told}, so {metric!r} is not ranked by; add "
            f"--metric {metric}, or say --bank {task}=PATH"
        )
    return (
        f"--bank {text}: there is no such file, and {key!r} is no task of this run (it has "
        f"{', '.join(tasks)}); expected PATH or TASK[:METRIC]=PATH"
    )


def refuse_idle_options(adaptive: AdaptiveConfig, candidates: Sequence[Candidate]) -> None:
    """Refuse what has no effect on these models by these rules.

    Raises:
        UsageError: An option has none; the message names it and what makes it idle.
    """
    changed = adaptive.changed
    if adaptive.bank == NO_BANK:
        if adaptive.sampler not in ("auto", "random"):
            raise UsageError(
                f"--sampler {adaptive.sampler} needs a bank, and --bank none has none: all models "
                "are asked the same documents in one order; leave --sampler out, or name a bank"
            )
        if adaptive.stratify is not None and adaptive.sampler == "random":
            raise UsageError(
                "--sampler random has no effect with --stratify: the order is spread over the "
                "column; leave one of them out"
            )
    if len(candidates) == 1 and not adaptive.against:
        for name in _OF_PAIRS:
            if name in changed:
                raise UsageError(
                    f"--{name} is about pairs of models, and there is one --model alone; name a "
                    f"second one, or leave --{name} out"
                )
    if adaptive.items_per_model is not None:
        for name in _OF_STOPS:
            if name in changed:
                raise UsageError(
                    f"--{name} has no effect with --items_per_model "
                    f"{adaptive.items_per_model}: the length is fixed; leave one of them out"
                )
        _refuse_other_lengths(adaptive, adaptive.items_per_model)
    if adaptive.resident is not None and all(each.side_by_side for each in candidates):
        raise UsageError(
            f"--resident {adaptive.resident} is about models in this machine's memory, and no "
            "--model here is one (all are served or replayed); leave --resident out"
        )


def _refuse_other_lengths(adaptive: AdaptiveConfig, length: int) -> None:
    """Refuse bounds that a fixed length does not keep to."""
    least = adaptive.min_items if "min_items" in adaptive.changed else 1
    most = adaptive.max_items or length
    if least > length or most < length:
        name, bound = ("min_items", least) if least > length else ("max_items", most)
        raise UsageError(
            f"--{name} {bound} has no effect with --items_per_model {length}, which fixes the "
            "length; leave one of them out"
        )


def refuse_idle_rules(adaptive: AdaptiveConfig, contests: Sequence[Contest]) -> None:
    """Refuse what has no effect on these contests.

    Raises:
        UsageError: As :func:`refuse_idle_options`.
    """
    views = [view for contest in contests for view in contest.views]
    if "futility" in adaptive.changed and not any(v.procedure.inference.gives_up for v in views):
        why = "--bank none" if views[0].terms.bank is None else views[0].terms.response_model
        raise UsageError(
            f"--futility has no effect with {why}, which never gives up a pair; leave --futility "
            "out"
        )
