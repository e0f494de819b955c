"""The Python face of the package: what a program calls, and what the commands call as well.

This module owns the public names and the order of a run and what is made of it: the run asks and
ranks, then the page shows and trackers are told. Whoever needs the core alone gets it without the
harness, which is imported inside functions.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.core.build import calibrate
from lm_eval_adaptive.core.matrix import ScoreMatrix, read_scores
from lm_eval_adaptive.core.rank import rank
from lm_eval_adaptive.errors import AdaptiveError, Interrupted, UsageError, first_line
from lm_eval_adaptive.host.settings import (
    DEFAULT_SEEDS,
    CandidateSpec,
    HarnessSettings,
    make_candidates,
    parse_mapping,
)
from lm_eval_adaptive.redact import hide
from lm_eval_adaptive.run.config import AdaptiveConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lm_eval_adaptive.records.outcome import RunOutcome
    from lm_eval_adaptive.run.loop import AdaptiveRun

log = logging.getLogger(__name__)

__all__ = [
    "AdaptiveConfig",
    "AdaptiveError",
    "CandidateSpec",
    "ItemBank",
    "ScoreMatrix",
    "calibrate",
    "rank",
    "read_scores",
    "simple_evaluate",
]

# Keywords of ``lm_eval.simple_evaluate`` that would change which documents are asked, or whose
# meaning another argument has.
_REFUSED = frozenset(
    {
        "limit", "samples", "predict_only", "cache_requests", "rewrite_requests_cache",
        "delete_requests_cache", "check_integrity", "model", "model_args",
    }
)  # fmt: skip
# Keywords that an adaptive run takes and cannot honour, with what holds in their place.
_IDLE = {
    "bootstrap_iters": "standard errors are those of the ranking",
    "log_samples": "samples are always written",
    "verbosity": "set LMEVAL_LOG_LEVEL",
}
_IDLE_UNLESS = {"bootstrap_iters": (100000, 0), "log_samples": (True,), "verbosity": (None,)}
_SEEDS = ("random_seed", "numpy_random_seed", "torch_random_seed", "fewshot_random_seed")


def simple_evaluate(
    models: Sequence[Mapping[str, Any] | CandidateSpec],
    tasks: Sequence[Any],
    adaptive: AdaptiveConfig | None = None,
    *,
    resume: str | Path | None = None,
    **harness: Any,
) -> dict[str, Any]:
    """Rank several models adaptively; the Python face of ``run --adaptive``.

    Args:
        models: Candidates: mappings ``{name, model, model_args, cost, gen_kwargs,
            apply_chat_template, system_instruction, batch_size, device}``, or specs.
        tasks: Names of tasks, YAML paths, configurations, or task objects of the harness.
        adaptive: The adaptive options; defaults otherwise.
        resume: Folder of a run to go on with.
        **harness: Keywords of ``lm_eval.simple_evaluate`` (``num_fewshot``, ``gen_kwargs``,
            ``apply_chat_template``, ``random_seed``, ``task_manager``, ``evaluation_tracker`` …),
            and ``output_path``, ``include_path``. Those that would choose documents are refused;
            those that an adaptive run cannot honour are named in one line.

    Returns:
        ``{"results": {task: {model: harness results}}, "ranking": {task: ranking document},
        "files": {task: [paths]}, "output_path": path, "summary": over several tasks, else None,
        "grown": what the answers did to the banks of the store, a line each}``.

    Raises:
        AdaptiveError: As the command line, with the same texts.
    """
    from lm_eval_adaptive.host.registries import register_all
    from lm_eval_adaptive.run.loop import AdaptiveRun

    register_all()
    given = dict(harness)
    task_manager = given.pop("task_manager", None)
    settings = _settings([tasks] if isinstance(tasks, str | dict) else tasks, given)
    entries = [asdict(each) if isinstance(each, CandidateSpec) else dict(each) for each in models]
    run = AdaptiveRun(
        make_candidates(entries, "models"),
        settings,
        adaptive or AdaptiveConfig(),
        resume=None if resume is None else Path(resume),
        task_manager=task_manager,
    )
    outcome = perform(run)
    return {
        "results": {name: each.results for name, each in outcome.tasks.items()},
        "ranking": {name: each.ranking.plain() for name, each in outcome.tasks.items()},
        "files": {name: each.files for name, each in outcome.tasks.items()},
        "output_path": outcome.output_path,
        "grown": list(outcome.grown),
        "summary": None if outcome.summary is None else outcome.summary.plain(),
    }


def _settings(tasks: Sequence[Any], keywords: dict[str, Any]) -> HarnessSettings:
    """The harness's options from keywords of its own function.

    Raises:
        UsageError: A keyword is not known, or does not go with adaptive runs.
    """
    for name in sorted(_REFUSED & keywords.keys()):
        if keywords[name] not in (None, False, {}, ""):
            raise UsageError(f"adaptive runs do not take {name}; see the README on what is asked")
    given = {key: value for key, value in keywords.items() if key not in _REFUSED}
    _say_what_is_idle(given)
    _take_tracker(given)
    for name in ("gen_kwargs", "metadata"):
        given[name] = parse_mapping(given.pop(name, None), name)
    seeds = tuple(
        given.pop(name, default) for name, default in zip(_SEEDS, DEFAULT_SEEDS, strict=True)
    )
    known = set(HarnessSettings.__dataclass_fields__)
    unknown = sorted(set(given) - known)
    if unknown:
        raise UsageError(
            f"unknown keyword(s) {', '.join(unknown)}; known are {', '.join(sorted(known))}"
        )
    return replace(HarnessSettings(**given), tasks=tuple(tasks), seed=seeds)


def _say_what_is_idle(given: dict[str, Any]) -> None:
    """Take keywords away that an adaptive run cannot honour, and say so in one line."""
    idle = {name: given.pop(name) for name in _IDLE if name in given}
    told = [
        f"{name} ({_IDLE[name]})" for name, value in idle.items() if value not in _IDLE_UNLESS[name]
    ]
    if told:
        log.warning("without effect in an adaptive run: %s", ", ".join(told))


def _take_tracker(given: dict[str, Any]) -> None:
    """``evaluation_tracker``: its folder is the run's; every model gets a tracker of its own.

    Raises:
        UsageError: It pushes to the hub, for which its arguments are needed.
    """
    tracker = given.pop("evaluation_tracker", None)
    if tracker is None:
        return
    if getattr(tracker, "push_results_to_hub", False) or tracker.push_samples_to_hub:
        raise UsageError(
            "an evaluation_tracker that pushes to the hub serves one model; give its arguments as "
            "hf_hub_log_args, and every model gets one"
        )
    given.setdefault("output_path", tracker.output_path)


def perform(run: AdaptiveRun) -> RunOutcome:
    """Run, then make the page, tell the trackers and let the store's banks grow if that is asked.

    An interrupted run gets its page as well.

    Raises:
        AdaptiveError: See :meth:`~lm_eval_adaptive.run.loop.AdaptiveRun.run`; or the answers are
            to go into a store that cannot be written to.
    """
    from lm_eval_adaptive.host.environment import quiet_harness
    from lm_eval_adaptive.records.journal import NAME
    from lm_eval_adaptive.report.trackers import check_trackers, track

    check_trackers(run.settings)
    grows = _grows(run.adaptive)
    try:
        outcome = run.run()
    except Interrupted:
        _page(run.output_path)
        raise
    with quiet_harness(), run.saying_how_to_go_on(run.output_path / NAME):
        outcome = replace(outcome, report=_page(run.output_path))
        track(run.settings, outcome)
    return replace(outcome, grown=_grown(run, outcome)) if grows else outcome


def _grows(adaptive: AdaptiveConfig) -> bool:
    """Whether the store's banks are to grow by a run, before anything is asked in it.

    Raises:
        UsageError: The user says so, and the store cannot be written to.
    """
    from lm_eval_adaptive.banks.store import Store

    if adaptive.grow is False:
        return False
    store = Store()
    if adaptive.grow:
        store.check_writable()
    return adaptive.grow or store.grows


def _grown(run: AdaptiveRun, outcome: RunOutcome) -> tuple[str, ...]:
    """Let the store's banks grow; what goes wrong there must not cost a run its result."""
    from lm_eval_adaptive.banks.grow import grow_from

    given = run.adaptive.bank
    named = given.values() if isinstance(given, Mapping) else [given] if given else []
    banks = [path for each in named for path in ([each] if isinstance(each, str | Path) else each)]
    try:
        return tuple(grow_from(outcome.output_path, banks=banks))
    except Exception as error:  # noqa: BLE001  the run is over and written
        why = str(error) if isinstance(error, AdaptiveError) else first_line(error)
        again = f"`bank grow --from {outcome.output_path}` does it again"
        log.warning("the store's banks did not grow (%s); %s", hide(why), again)
        return ()


def _page(folder: Path) -> Path | None:
    """The run's page; a page that cannot be made must not cost a run its result."""
    from lm_eval_adaptive.report.write import write_report
    from lm_eval_adaptive.run.standing import standings

    try:
        return write_report(folder, standings=standings)
    except Exception as error:  # noqa: BLE001
        log.warning(
            "no report.html (%s: %s); everything else is written",
            type(error).__name__,
            hide(str(error)),
        )
        return None
