"""From a task to a contest: its bank or none, the checks that a bank fits, the rules, the recipe.

This module owns what has to hold before anything is asked; it imports the banks' room, the host's
documents and the core. It asks no model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lm_eval_adaptive.banks.calibrate import match_documents
from lm_eval_adaptive.banks.find import find_bank
from lm_eval_adaptive.core.build import refit
from lm_eval_adaptive.core.procedure import Procedure, ProcedureConfig
from lm_eval_adaptive.errors import BankError, TaskError, UsageError
from lm_eval_adaptive.host.settings import cost_of_tokens, metric_and_filter
from lm_eval_adaptive.run.cold import documents_as_bank, is_cold, shared_order
from lm_eval_adaptive.run.contest import Contest, Terms, View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.core.scale import ScoreScale
    from lm_eval_adaptive.host.settings import CandidateSpec
    from lm_eval_adaptive.host.task import TaskDocs
    from lm_eval_adaptive.run.config import AdaptiveConfig


def open_contest(
    docs: TaskDocs,
    adaptive: AdaptiveConfig,
    specs: Sequence[CandidateSpec],
    batch: int,
    seed: int,
) -> Contest:
    """The contest of some models on a task.

    Documents that are not in every metric's bank are asked for none.

    Args:
        docs: The task's documents.
        adaptive: The run's options.
        specs: The models, sorted by name.
        batch: Items the back ends answer in about the time of one.
        seed: Seed of the random sampler.

    Raises:
        BankError: There is no bank, or it is of another task, metric or filter, or the banks of
            several metrics have no document in common.
        DataError: The bank's items are not among the documents.
        UsageError: The rules cannot be met.
    """
    options = [adaptive]
    if len(adaptive.metrics) > 1:
        options = [replace(adaptive, metric=metric) for metric in adaptive.metrics]
    views = [_view(docs, each, specs, batch, seed) for each in options]
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
) -> View:
    """The contest by one metric."""
    cold = is_cold(docs, adaptive)
    bank = documents_as_bank(docs, adaptive) if cold else _bank_of(docs, adaptive)
    info, own = bank.info, [spec.name for spec in specs]
    where, notices = match_documents(bank, docs.keys)
    known, told = known_rows(bank, adaptive.against, own)
    procedure = Procedure(
        bank,
        expected_costs(bank, specs, int(docs.task.config.repeats or 1)),
        adaptive.procedure(info.scale.width, batch, seed),
        known,
        shared_order(docs, adaptive, seed) if cold else None,
    )
    scorer, said = _scorer(docs, specs, info.metric)
    names = (*own, *(info.models[row].name for row in known))
    recipe = Recipe(
        docs.name, docs.version, info.metric, info.filter, info.scale,
        bank.sha256, info.response_model, names[len(own):], scorer, cold,
    )  # fmt: skip
    terms = Terms(
        key=adaptive.metrics[0] if adaptive.metrics else info.metric,
        metric=info.metric,
        filter=info.filter,
        scale=info.scale,
        bank=None if cold else bank,
        options=adaptive,
        names=names,
        signature=recipe.signature(procedure, adaptive),
    )
    doc_ids = np.array([-1 if each is None else each for each in where])
    return View(terms, procedure, doc_ids, [*notices, *told, *said])


def _bank_of(docs: TaskDocs, adaptive: AdaptiveConfig) -> ItemBank:
    """The task's bank, as it is to be used.

    Raises:
        BankError: There is none, or it is of another task, version, metric or filter.
    """
    metric = next(iter(adaptive.metrics), None)
    bank = refit(find_bank(docs, adaptive.bank_for(docs.name), metric), adaptive.response_model)
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
    return bank


def _check_metric(bank: ItemBank, asked: str) -> None:
    metric, filter_name = metric_and_filter(asked)
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


def expected_costs(
    bank: ItemBank, specs: Sequence[CandidateSpec], repeats: int
) -> NDArray[np.float64]:
    """What each item is expected to cost each model, shape (m, n), by the bank's token counts.

    Raises:
        BankError: A model is priced by tokens, and the bank does not know how long answers are.
    """
    tokens_in, tokens_out = bank.input_tokens, bank.output_tokens
    by_tokens = [spec.name for spec in specs if isinstance(spec.cost, dict)]
    if by_tokens and not (np.isfinite(tokens_in) & np.isfinite(tokens_out)).all():
        raise BankError(
            f"{by_tokens[0]} is priced by tokens, and bank {bank.path} does not tell how many its "
            "items take: give a price per item, or calibrate the bank from logs"
        )
    tokens_in, tokens_out = np.nan_to_num(tokens_in), np.nan_to_num(tokens_out)
    rows = [
        # No item is free, or its worth per cost would have no end.
        np.maximum(
            cost_of_tokens(spec.cost, tokens_in * repeats, tokens_out * repeats, repeats), 1e-12
        )
        for spec in specs
    ]
    return np.array(rows)


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
        return "", ()
    if metric not in scoring.metrics:
        raise TaskError(
            f"task {docs.name} gives no metric {metric!r}; it has {', '.join(scoring.metrics)}: "
            "calibrate a bank for one of them"
        )
    made_of = {spec.name: f"{spec.model} {spec.model_args}" for spec in specs}
    notices = scoring.warnings(made_of, [metric])
    return str(scoring.signature([metric])[metric]), notices


@dataclass(frozen=True)
class Recipe:
    """What has to be equal for a ranking to come out again, beside the rules and the options.

    Attributes:
        task: The task.
        version: Its version.
        metric: The metric.
        filter: Its filter.
        scale: Its range.
        bank_sha256: Hash of the bank, ``none`` where there is none.
        response_model: How scores follow from abilities.
        known: Models that join with their recorded scores.
        scorer: What the metric's values depend on, "" where the task does not tell.
        cold: Whether there is no bank.
    """

    task: str
    version: Any
    metric: str
    filter: str
    scale: ScoreScale
    bank_sha256: str
    response_model: str
    known: tuple[str, ...]
    scorer: str
    cold: bool

    def signature(self, procedure: Procedure, adaptive: AdaptiveConfig) -> str:
        """The recipe on one line."""
        import lm_eval_adaptive

        rules, sampler = procedure.config, procedure.sampler_name
        parts: dict[str, Any] = {
            "task": self.task,
            "version": self.version,
            "metric": self.metric,
            "filter": self.filter,
            "bank": self.bank_sha256[:12] or "unsaved",
            "response": self.response_model,
            "sampler": "spread" if self.cold and sampler == "fisher" else sampler,
            "round": rules.round_size or f"auto{rules.batch}",
            "conf": rules.rule.confidence,
            "corr": rules.rule.correction,
            "pairs": rules.rule.pairs,
            "min": procedure.min_items,
            "max": procedure.max_items,
            "seed": rules.seed,
            "lea": lm_eval_adaptive.__version__,
        }
        if self.scorer:
            parts["scorer"] = self.scorer.replace("|", ";")
        if adaptive.range is not None:
            parts["range"] = f"{self.scale.lo:g},{self.scale.hi:g}"
        if adaptive.stratify is not None:
            parts["stratify"] = adaptive.stratify
        if self.known:
            parts["against"] = ",".join(self.known)
        if rules.rule.equivalence:
            parts["equiv"] = adaptive.equivalence
        if rules.futility != ProcedureConfig.futility:
            parts["futility"] = rules.futility
        for name in ("budget", "budget_items", "items_per_model", "precision"):
            if getattr(rules, name) is not None:
                parts[name] = getattr(adaptive, name)
        # On one line, in the manner of sacrebleu's signatures.
        return "|".join(f"{key}:{value}" for key, value in parts.items())
