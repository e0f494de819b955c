"""From a task to a contest: its bank or none, the checks that a bank fits, the rules.

This module owns what has to hold before anything is asked; it imports the banks' room, the host's
documents and the core. It asks no model.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lm_eval_adaptive.banks.check import match_documents, part_of
from lm_eval_adaptive.banks.find import find_bank
from lm_eval_adaptive.core.build import refit
from lm_eval_adaptive.core.procedure import Procedure
from lm_eval_adaptive.errors import BankError, TaskError, UsageError
from lm_eval_adaptive.host.aggregations import averaging_of
from lm_eval_adaptive.host.measures import metric_and_filter
from lm_eval_adaptive.records.journal import NO_BANK
from lm_eval_adaptive.run.cold import is_cold, measure_of, shared_order
from lm_eval_adaptive.run.contest import Contest, Terms, View
from lm_eval_adaptive.run.costs import expected_costs, item_costs
from lm_eval_adaptive.run.recipe import recipe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lm_eval_adaptive.banks.at_hand import Circumstances
    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.host.settings import CandidateSpec
    from lm_eval_adaptive.host.task import TaskDocs
    from lm_eval_adaptive.run.config import AdaptiveConfig


def open_contest(
    docs: TaskDocs,
    adaptive: AdaptiveConfig,
    specs: Sequence[CandidateSpec],
    batch: int,
    seed: int,
    run: Circumstances | None = None,
) -> Contest:
    """The contest of some models on a task.

    Documents that are not in every metric's bank are asked for none.

    Args:
        docs: The task's documents.
        adaptive: The run's options.
        specs: The models, sorted by name.
        batch: Items the back ends answer in about the time of one.
        seed: Seed of the random sampler.
        run: What the run brings to the choice of a bank where nobody names one.

    Raises:
        BankError: There is no bank, or it is of another task, metric or filter, or the banks of
            several metrics have no document in common.
        DataError: The bank's items are not among the documents.
        UsageError: The rules cannot be met.
    """
    options = [adaptive]
    if len(adaptive.metrics) > 1:
        options = [replace(adaptive, metric=metric) for metric in adaptive.metrics]
    views = [_view(docs, each, specs, batch, seed, run) for each in options]
    if len(views) > 1:
        shared = set.intersection(*(set(view.item_of) for view in views))
        if not shared:
            raise BankError(
                f"the banks of {', '.join(adaptive.metrics)} have no document of task {docs.name} "
                "in common; calibrate them from the same logs"
            )
        for view in views:
            view.keep(shared)
    return Contest(docs.name, specs, views)


def _view(
    docs: TaskDocs,
    adaptive: AdaptiveConfig,
    specs: Sequence[CandidateSpec],
    batch: int,
    seed: int,
    run: Circumstances | None,
) -> View:
    """The contest by one metric."""
    if is_cold(docs, adaptive):
        return _view_without_bank(docs, adaptive, specs, batch, seed)
    return _view_of_bank(docs, adaptive, specs, batch, seed, run)


def _view_of_bank(
    docs: TaskDocs,
    adaptive: AdaptiveConfig,
    specs: Sequence[CandidateSpec],
    batch: int,
    seed: int,
    run: Circumstances | None,
) -> View:
    bank, found = _bank_of(docs, adaptive, run)
    info, own = bank.info, tuple(spec.name for spec in specs)
    where, notices = match_documents(
        bank, docs.keys, docs.seen_keys, sights=docs.sights, prompts=docs.prompts_alone
    )
    _check_asked(bank, where)
    known, told = known_rows(bank, adaptive.against, own)
    procedure = Procedure.for_bank(
        bank,
        expected_costs(bank, specs, _repeats(docs)),
        adaptive.procedure(info.scale.width, batch, seed),
        known,
    )
    averaging = averaging_of(docs.task, info.metric, info.scale)
    terms = Terms(
        key=adaptive.metrics[0] if adaptive.metrics else info.metric,
        metric=info.metric,
        filter=info.filter,
        scale=info.scale,
        bank=bank,
        options=adaptive,
        names=(*own, *(info.models[row].name for row in known)),
        averaging=averaging,
        score_of=part_of(len(bank), len(docs)),
    )
    if terms.score_of:
        told.append(
            f"scores and errors are of {terms.score_of}, not of all {len(docs)} of the task: what "
            f"the other {len(docs) - len(bank)} would change is in no number here; a bank of all "
            "documents, or --bank none, ranks by the whole task"
        )
    doc_ids = np.array([-1 if each is None else each for each in where])
    return _signed(docs, specs, terms, procedure, doc_ids, [*found, *notices, *told])


def _view_without_bank(
    docs: TaskDocs,
    adaptive: AdaptiveConfig,
    specs: Sequence[CandidateSpec],
    batch: int,
    seed: int,
) -> View:
    metric, filter_name, scale = measure_of(docs, adaptive)
    if adaptive.share is not None:
        count = min(max(int(np.ceil(adaptive.share * len(docs))), 1), len(docs))
        adaptive = replace(adaptive, items_per_model=count)
    unknown = np.full(len(docs), np.nan)
    procedure = Procedure.for_order(
        shared_order(docs, adaptive, seed),
        item_costs(specs, _repeats(docs), unknown, unknown, NO_BANK),
        adaptive.procedure(scale.width, batch, seed),
    )
    averaging = averaging_of(docs.task, metric, scale)
    terms = Terms(
        key=adaptive.metrics[0] if adaptive.metrics else metric,
        metric=metric,
        filter=filter_name,
        scale=scale,
        bank=None,
        options=adaptive,
        names=tuple(spec.name for spec in specs),
        averaging=averaging,
    )
    return _signed(docs, specs, terms, procedure, np.arange(len(docs)), [])


def _check_asked(bank: ItemBank, where: Sequence[int | None]) -> None:
    """Refuse a bank of which no item may be asked.

    Raises:
        BankError: It is one.
    """
    there = np.array([each is not None for each in where])
    if not (bank.kept & there).any():
        said = "its documents are not in the task" if bank.kept.any() else "none is kept"
        raise BankError(
            f"bank {bank.path}: none of its {len(bank)} items may be asked ({said}); recalibrate "
            "it with more models, or more different ones"
        )


def _repeats(docs: TaskDocs) -> int:
    return int(docs.task.config.repeats or 1)


def _signed(
    docs: TaskDocs,
    specs: Sequence[CandidateSpec],
    terms: Terms,
    procedure: Procedure,
    doc_ids: NDArray[np.int_],
    notices: Sequence[str],
) -> View:
    """A view with its recipe, and with what the metric itself gives reason to say."""
    worth, scale = terms.options.failure_score, terms.scale
    if worth is not None and not scale.lo <= worth <= scale.hi:
        raise UsageError(
            f"--on_error {terms.options.on_error}: {terms.metric} lies in [{scale.lo:g}, "
            f"{scale.hi:g}]; give a score of that range"
        )
    scorer, said = _scorer(docs, specs, terms.metric)
    terms = replace(terms, signature=recipe(docs, terms, procedure, scorer))
    return View(
        terms,
        procedure,
        doc_ids,
        [*docs.notices, *notices, *said, *filter(None, [terms.averaging.notice])],
    )


def _bank_of(
    docs: TaskDocs, adaptive: AdaptiveConfig, run: Circumstances | None
) -> tuple[ItemBank, tuple[str, ...]]:
    """The task's bank, as it is to be used, and which it is where nobody named it.

    Raises:
        BankError: There is none, or it is of another task, version, metric or filter.
    """
    metric = next(iter(adaptive.metrics), None)
    taken = find_bank(docs, adaptive.bank_for(docs.name), metric, run)
    bank = refit(taken.bank, adaptive.response_model)
    info, where = bank.info, bank.path
    if info.task != docs.name:
        raise BankError(
            f"bank {where} was made for task {info.task}, this run is of task {docs.name}; pass "
            "the right bank with --bank, or recalibrate"
        )
    if metric is not None:
        _check_metric(bank, metric)
    filters = [each.name for each in docs.task._filters]  # noqa: SLF001
    if info.filter not in filters:
        raise BankError(
            f"bank {where} was calibrated on filter {info.filter}, task {docs.name} has "
            f"{', '.join(filters)}; recalibrate it on logs of this version of the task"
        )
    if info.task_version and info.task_version != docs.version:
        raise BankError(
            f"bank {where} was made for version {info.task_version} of task {docs.name}, this is "
            f"version {docs.version}; recalibrate it, or use the version of the task it was made "
            "for"
        )
    return bank, taken.notices


def _check_metric(bank: ItemBank, asked: str) -> None:
    metric, filter_name = metric_and_filter(asked, [bank.info.metric])
    info, where = bank.info, bank.path
    if metric != info.metric:
        raise BankError(
            f"bank {where} ranks by {info.metric}, --metric asks for {metric}; leave --metric out, "
            f"or calibrate a bank for that metric and name it with --bank {info.task}:{metric}=PATH"
        )
    if filter_name is not None and filter_name != info.filter:
        raise BankError(
            f"bank {where} was calibrated on filter {info.filter}, --metric asks for "
            f"{filter_name}; calibrate a bank for that filter"
        )


def known_rows(
    bank: ItemBank, against: Sequence[str], candidates: Sequence[str]
) -> tuple[list[int], list[str]]:
    """The calibration models that join a ranking with their recorded scores.

    Args:
        bank: The bank.
        against: Their names, or ``all``.
        candidates: Names of the models to be ranked.

    Returns:
        Their rows in the bank, by name; and notices.

    Raises:
        UsageError: A name is not among the calibration models, or is a candidate's as well.
    """
    rows = {model.name: row for row, model in enumerate(bank.info.models)}
    if "all" in against and "all" not in rows:
        doubled = [name for name in candidates if name in rows]
        notices = [
            f"{name} is a model of the bank and is asked anew, so --against all leaves its "
            "recorded score out"
            for name in doubled
        ]
        return [rows[name] for name in sorted(rows) if name not in candidates], notices
    for name in against:
        if name not in rows:
            raise UsageError(
                f"--against {name}: bank {bank.path} has no such model; it holds "
                f"{', '.join(sorted(rows))}"
            )
        if name in candidates:
            raise UsageError(
                f"--against {name}: a model of that name is asked in this run; call the one to be "
                "asked differently with --model_name"
            )
    return [rows[name] for name in sorted(set(against))], []


def _scorer(
    docs: TaskDocs, specs: Sequence[CandidateSpec], metric: str
) -> tuple[str, Sequence[str]]:
    """What the metric's values depend on, "" where the task does not tell; and its ties.

    Raises:
        TaskError: The task does not have the bank's metric.
        UsageError: A setting of the metric is missing.
    """
    scoring = docs.task.config.process_results
    if not hasattr(scoring, "signature"):  # a function of another kind, see metrics.task
        _check_given(docs, metric)
        return "", ()
    if metric not in scoring.metrics:
        raise TaskError(
            f"task {docs.name} gives no metric {metric!r}; it has {', '.join(scoring.metrics)}: "
            "calibrate a bank for one of them"
        )
    made_of = {spec.name: f"{spec.model} {spec.model_args}" for spec in specs}
    notices = scoring.warnings(made_of, [metric])
    return str(scoring.signature([metric])[metric]), notices


def _check_given(docs: TaskDocs, metric: str) -> None:
    """Refuse a metric that the task does not give, before anything is paid.

    The harness aggregates what a task names; a metric that it does not name has no score.

    Raises:
        TaskError: It is one.
    """
    named = [str(name) for name in docs.task.aggregation()]
    if named and metric not in named:
        raise TaskError(
            f"task {docs.name} gives no metric {metric!r}; it has {', '.join(named)}: calibrate a "
            "bank for one of them, or name one with --metric"
        )
