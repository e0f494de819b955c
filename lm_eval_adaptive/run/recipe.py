"""A ranking's recipe on one line: what has to be equal for it to come out again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lm_eval_adaptive
from lm_eval_adaptive.core.rules import ProcedureConfig

if TYPE_CHECKING:
    from lm_eval_adaptive.core.procedure import Procedure
    from lm_eval_adaptive.host.task import TaskDocs
    from lm_eval_adaptive.run.contest import Terms


def recipe(docs: TaskDocs, terms: Terms, procedure: Procedure, scorer: str) -> str:
    """The recipe, in the manner of sacrebleu's signatures: ``key:value|key:value``.

    Args:
        docs: The task's documents.
        terms: What the metric brings.
        procedure: The rules, and how items are chosen.
        scorer: What the metric's values depend on, "" where the task does not tell.
    """
    rules, adaptive, scale = procedure.config, terms.options, terms.scale
    known = [name for name, is_known in zip(terms.names, procedure.known, strict=True) if is_known]
    parts: dict[str, object] = {
        "task": docs.name,
        "version": docs.version,
        "metric": terms.metric,
        "filter": terms.filter,
        "bank": terms.bank_sha256[:12] or "unsaved",
        "response": terms.response_model,
        "sampler": procedure.sampler.name,
        "round": rules.round_size or f"auto{rules.batch}",
        "conf": rules.rule.confidence,
        "corr": rules.rule.correction,
        "pairs": rules.rule.pairs,
        "min": procedure.min_items,
        "max": procedure.max_items,
        "seed": rules.seed,
        "lea": lm_eval_adaptive.__version__,
    }
    if adaptive.schedule != "lockstep":
        parts["schedule"] = adaptive.schedule
    if scorer:
        parts["scorer"] = scorer.replace("|", ";")
    if adaptive.range is not None:
        parts["range"] = f"{scale.lo:g},{scale.hi:g}"
    if adaptive.stratify is not None:
        parts["stratify"] = adaptive.stratify
    if adaptive.failure_score is not None:
        parts["on_error"] = adaptive.on_error
    if known:
        parts["against"] = ",".join(known)
    if rules.rule.equivalence:
        parts["equiv"] = adaptive.equivalence
    if rules.futility != ProcedureConfig.futility:
        parts["futility"] = rules.futility
    for name in ("budget", "budget_items", "items_per_model", "precision"):
        if getattr(rules, name) is not None:
            parts[name] = getattr(adaptive, name)
    return "|".join(f"{key}:{value}" for key, value in parts.items())
