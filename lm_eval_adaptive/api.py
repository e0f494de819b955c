"""The Python face of the package: what a program calls, and what the commands call as well.

This module owns the public names and the order of a run and what is made of it: the run asks and
ranks, then the page shows and trackers are told. Whoever needs the core alone gets it without the
harness, which is imported inside functions.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.core.build import calibrate
from lm_eval_adaptive.core.matrix import ScoreMatrix, read_scores
from lm_eval_adaptive.core.rank import rank
from lm_eval_adaptive.errors import AdaptiveError, Interrupted, UsageError
from lm_eval_adaptive.host.settings import (
    DEFAULT_SEEDS,
    CandidateSpec,
    HarnessSettings,
    make_candidates,
)
from lm_eval_adaptive.redact import hide
from lm_eval_adaptive.run.config import AdaptiveConfig

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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

# Keywords of ``lm_eval.simple_evaluate`` that would change which documents are asked.
_REFUSED = frozenset({"limit", "samples", "predict_only", "cache_requests", "model", "model_args"})
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
        tasks: Names of tasks, YAML paths or configurations.
        adaptive: The adaptive options; defaults otherwise.
        resume: Folder of a run to go on with.
        **harness: Keywords of ``lm_eval.simple_evaluate`` (``num_fewshot``, ``gen_kwargs``,
            ``apply_chat_template``, ``random_seed`` …), and ``output_path``, ``include_path``.

    Returns:
        ``{"results": {task: {model: harness results}}, "ranking": {task: ranking document},
        "files": {task: [paths]}, "output_path": path, "summary": over several tasks, else None}``.

    Raises:
        AdaptiveError: As the command line, with the same texts.
    """
    from lm_eval_adaptive.host.registries import register_all
    from lm_eval_adaptive.run.loop import AdaptiveRun

    register_all()
    settings = _settings(tasks, harness)
    entries = [asdict(each) if isinstance(each, CandidateSpec) else dict(each) for each in models]
    run = AdaptiveRun(
        make_candidates(entries, "models"),
        settings,
        adaptive or AdaptiveConfig(),
        resume=None if resume is None else Path(resume),
    )
    outcome = perform(run)
    return {
        "results": {name: each.results for name, each in outcome.tasks.items()},
        "ranking": {name: each.ranking.plain() for name, each in outcome.tasks.items()},
        "files": {name: each.files for name, each in outcome.tasks.items()},
        "output_path": outcome.output_path,
        "summary": None if outcome.summary is None else outcome.summary.plain(),
    }


def _settings(tasks: Sequence[Any], keywords: dict[str, Any]) -> HarnessSettings:
    """The harness's options from keywords of its own function.

    Raises:
        UsageError: A keyword is not known, or does not go with adaptive runs.
    """
    for name in sorted(_REFUSED & keywords.keys()):
        raise UsageError(f"adaptive runs do not take {name}; see the README on what is asked")
    given = dict(keywords)
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


def perform(run: AdaptiveRun) -> RunOutcome:
    """Run, then make the page and tell the trackers; the page of an interrupted run as well.

    Raises:
        AdaptiveError: See :meth:`~lm_eval_adaptive.run.loop.AdaptiveRun.run`.
    """
    from lm_eval_adaptive.host.environment import quiet_harness
    from lm_eval_adaptive.records.journal import NAME
    from lm_eval_adaptive.report.trackers import check_trackers, track

    check_trackers(run.settings)
    try:
        outcome = run.run()
    except Interrupted:
        _page(run.output_path)
        raise
    with quiet_harness(), run.saying_how_to_go_on(run.output_path / NAME):
        outcome = replace(outcome, report=_page(run.output_path))
        track(run.settings, outcome)
    return outcome


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
