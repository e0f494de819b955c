"""From raw scores to a bank.

This module owns the making of a bank: range, response model, fit, cross-validated correction and
notices. It imports the fits, the bank's shape and the default inference.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.core.bank_info import BankInfo, CalibrationModel, PromptFacts
from lm_eval_adaptive.core.bernoulli import BernoulliPosterior
from lm_eval_adaptive.core.calibration import MIN_MODELS, calibrate_items, completed_means
from lm_eval_adaptive.core.crossvalidation import MIN_CV_MODELS
from lm_eval_adaptive.core.holdout import (
    MAX_GROUP,
    groups,
    hold_out,
    looked_at,
    tested_together,
)
from lm_eval_adaptive.core.methods import learned
from lm_eval_adaptive.core.response import RESPONSE_MODELS
from lm_eval_adaptive.core.sampler import WeightedDraw, choose_shared
from lm_eval_adaptive.core.scale import ScoreScale
from lm_eval_adaptive.errors import DataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lm_eval_adaptive.core.bank_info import Provenance
    from lm_eval_adaptive.core.calibration import Calibration
    from lm_eval_adaptive.core.matrix import ScoreMatrix
    from lm_eval_adaptive.core.response import ResponseModelName

    FloatArray = NDArray[np.float64]


def choose_response_model(scores: FloatArray) -> tuple[ResponseModelName, str]:
    """The response model that ``auto`` stands for, and why: from the calibration scores alone.

    Continuous scores take ``robust-2pl``. Scores of 0 and 1 take whichever of ``bernoulli-2pl``
    and ``robust-2pl`` estimates held-out calibration models better from 40 items each, random ones
    and the best and the worst third; with fewer than 8 models, which are too few to compare by,
    ``bernoulli-2pl``.

    Args:
        scores: Shape (C, n), in [0, 1], NaN where not asked.

    Returns:
        The name and the reason, a line for the bank's notices.
    """
    seen = scores[np.isfinite(scores)]
    if not bool(np.isin(seen, (0.0, 1.0)).all()):
        return "robust-2pl", "auto took robust-2pl: the scores are continuous"
    if len(scores) < MIN_CV_MODELS:
        why = f"all scores are 0 or 1, and {len(scores)} models are too few to compare by"
        return "bernoulli-2pl", f"auto took bernoulli-2pl: {why}"
    errors = held_out_errors(scores)
    if not errors:
        why = f"all scores are 0 or 1, and {scores.shape[1]} items are too few to compare by"
        return "bernoulli-2pl", f"auto took bernoulli-2pl: {why}"
    best = min(errors, key=lambda name: errors[name])
    shown = ", ".join(f"{name} {error:.4f}" for name, error in errors.items())
    return best, f"auto took {best}: error of held-out models after 40 items: {shown}"


def held_out_errors(scores: FloatArray) -> dict[ResponseModelName, float]:
    """Root mean squared error of held-out models' full scores after 40 items, by response model.

    Args:
        scores: Scores of 0 and 1, shape (C, n), NaN where not asked.

    Returns:
        Both errors, of shorter tests where there are few items; {} where none can be made.
    """
    scores, _ = looked_at(scores)
    held = hold_out(scores)
    if not len(held.length):
        return {}
    at = held.length == (40 if (held.length == 40).any() else held.length.max())
    robust = float(np.sqrt(((held.estimate - held.truth)[at] ** 2).mean()))
    off: list[float] = []
    for group in groups(scores, np.random.default_rng(0)):
        kept = np.setdiff1d(np.arange(len(scores)), group.rows)
        seen = np.isfinite(scores[kept]).any(axis=0)
        try:
            fit = calibrate_items(scores[kept][:, seen], "bernoulli-2pl")
        except DataError:  # those kept do not differ; the held-out ones did
            continue
        for tested in tested_together(scores[:, seen], group.rows[:MAX_GROUP]):
            truth = scores[tested][:, seen]
            has: NDArray[np.bool_] = np.asarray(np.isfinite(truth).all(axis=0))
            off += _bernoulli_errors(fit, has, truth[:, has])
    if not off:
        return {}
    return {"bernoulli-2pl": float(np.sqrt(np.mean(np.square(off)))), "robust-2pl": robust}


def _bernoulli_errors(fit: Calibration, has: NDArray[np.bool_], truth: FloatArray) -> list[float]:
    """Errors of full scores over some items after an adaptive test, one per row of ``truth``."""
    posterior = BernoulliPosterior(fit.items.take(has), fit.parameters)
    length = min(40, truth.shape[1] // 2)
    responses = np.full(truth.shape, np.nan)
    for _ in range(4):
        worth = posterior.worth(posterior.estimate(responses))
        free = np.isnan(responses) & fit.kept[has]
        wanted = dict.fromkeys(range(len(truth)), length // 4)
        for row, chosen in choose_shared(wanted, worth, free, None, WeightedDraw(0)).items():
            items = [each.item for each in chosen]
            responses[row, items] = truth[row, items]
    return [float(each) for each in posterior.estimate(responses).score - truth.mean(axis=1)]


def calibrate(
    matrix: ScoreMatrix,
    *,
    task: str,
    metric: str,
    filter: str = "none",  # noqa: A002  the harness's word
    score_range: tuple[float, float] | None = None,
    clip: bool = False,
    higher_is_better: bool = True,
    response_model: str = "auto",
    notices: Sequence[str] = (),
    task_version: str = "",
    dataset_path: str = "",
    dataset_name: str = "",
    split: str = "",
    num_fewshot: int | None = None,
    prompts: PromptFacts | None = None,
    licence: str = "",
    provenance: Provenance | None = None,
    levels: FloatArray | None = None,
) -> ItemBank:
    """Make a bank from raw scores.

    Args:
        matrix: Raw scores, models x items, NaN where a model has none. Item attributes named
            ``doc_id``, ``doc_hash``, ``prompt_hash``, ``part_hash``, ``sight_hash``,
            ``input_tokens`` and ``output_tokens`` go into the bank.
        task: The harness task the scores belong to.
        metric: The metric.
        filter: The filter.
        score_range: Raw values that map to 0 and 1; observed in the scores when None.
        clip: Clip scores outside a given range and count them, instead of refusing.
        higher_is_better: The metric's direction.
        response_model: ``auto``, or one of the response models.
        notices: Lines to keep with the bank.
        task_version: See :class:`~lm_eval_adaptive.core.bank_info.BankInfo`, likewise the others.
        dataset_path: The task's dataset.
        dataset_name: Its configuration.
        split: The split the documents come from.
        num_fewshot: Few-shot examples in the prompts.
        prompts: What else they have in common.
        licence: A note on what the scores were made from.
        provenance: What made the bank, from which files.
        levels: Full scores in [0, 1] of models whose items were chosen for them, as estimated
            elsewhere, NaN for the others; one a model.

    Returns:
        The bank, not saved yet.

    Raises:
        DataError: Fewer than 3 models, a score outside a declared range, or scores that do not
            vary.
        UsageError: The response model is not known.
    """
    if response_model not in ("auto", *RESPONSE_MODELS):
        raise UsageError(
            f"--response_model must be auto, {', '.join(RESPONSE_MODELS)}; got {response_model!r}"
        )
    if len(matrix.models) < MIN_MODELS:
        raise DataError(
            f"calibration needs at least {MIN_MODELS} models, got {len(matrix.models)} "
            f"({', '.join(matrix.models) or 'none'}); add runs of other models with --samples or "
            "--scores"
        )
    notes = list(notices)
    answered: NDArray[np.bool_] = np.asarray(np.isfinite(matrix.scores).any(axis=0))
    if not answered.all():
        notes.append(f"left out {int((~answered).sum())} item(s) without any score")
        matrix = matrix.select_items(answered)
    raw = matrix.scores
    if not raw.size:
        raise DataError("there is no score to calibrate from; check the metric and the files")
    if score_range is None:
        lo, hi = float(np.nanmin(raw)), float(np.nanmax(raw))
    else:
        lo, hi = score_range
    scale = ScoreScale(lo, hi, higher_is_better)
    outside = np.isfinite(raw) & scale.outside(raw)
    if outside.any():
        row, column = (int(each) for each in np.argwhere(outside)[0])
        count = int(outside.sum())
        if not clip:
            raise DataError(
                f"{count} score(s) lie outside the declared range [{lo:g}, {hi:g}], the first is "
                f"{raw[row, column]:g} of {matrix.models[row]} on item "
                f"{matrix.items[column][:12]}; give the metric's true range with --range LO,HI, or "
                "--clip to clip and count them"
            )
        notes.append(f"clipped {count} of {int(np.isfinite(raw).sum())} scores to [{lo:g}, {hi:g}]")
    scores = scale.to_score(raw)
    if response_model == "auto":
        name, why = choose_response_model(scores)
        notes.append(why)
    else:
        name = cast("ResponseModelName", response_model)
    given = levels if levels is not None and np.isfinite(levels).any() else None
    fit = calibrate_items(scores, name, given)
    dropped = [reason for reason in fit.reason if reason]
    notes += [
        f"{dropped.count(reason)} item(s) are not asked: {reason}"
        for reason in sorted(set(dropped))
    ]
    columns = matrix.item_attributes or {}
    n = len(matrix.items)

    def texts(key: str) -> tuple[str, ...]:
        return tuple(str(each) for each in columns[key]) if key in columns else ("",) * n

    def numbers(key: str) -> FloatArray:
        return np.asarray(columns.get(key, np.full(n, np.nan)), dtype=np.float64)

    doc_id = columns.get("doc_id", np.arange(n))
    bank = ItemBank(
        info=BankInfo(
            task=task,
            metric=metric,
            filter=filter,
            scale=scale,
            range_source="observed" if score_range is None else "declared",
            response_model=name,
            parameters=fit.parameters,
            models=models_of(matrix.models, fit, scores, scale),
            clipped=float(outside.sum() / np.isfinite(raw).sum()),
            notices=tuple(notes),
            task_version=task_version,
            dataset_path=dataset_path,
            dataset_name=dataset_name,
            split=split,
            num_fewshot=num_fewshot,
            prompts=prompts or PromptFacts(),
            licence=licence,
            provenance=provenance,
        ),
        parameters=fit.items,
        content_hash=matrix.items,
        doc_id=np.asarray(doc_id, dtype=np.int_),
        doc_hash=texts("doc_hash"),
        prompt_hash=texts("prompt_hash"),
        part_hash=texts("part_hash") if any(columns.get("part_hash", ())) else (),
        sight_hash=texts("sight_hash") if any(columns.get("sight_hash", ())) else (),
        kept=fit.kept,
        reason=fit.reason,
        n_scores=np.isfinite(scores).sum(axis=0),
        mean_score=(
            np.nanmean(scores, axis=0) if given is None else completed_means(scores, given)[1]
        ),
        item_rest_correlation=fit.item_rest_correlation,
        input_tokens=numbers("input_tokens"),
        output_tokens=numbers("output_tokens"),
        scores=scores,
    )
    return learned(bank)


def models_of(
    names: Sequence[str], fit: Calibration, scores: FloatArray, scale: ScoreScale
) -> tuple[CalibrationModel, ...]:
    """The calibration models as a bank names them, in the order of the rows of ``scores``."""
    counts = np.isfinite(scores).sum(axis=1)
    return tuple(
        CalibrationModel(
            name,
            float(fit.theta[row]),
            float(fit.mean_score[row]),
            float(scale.to_raw(fit.mean_score[row])),
            int(counts[row]),
        )
        for row, name in enumerate(names)
    )


def refit(bank: ItemBank, response_model: str) -> ItemBank:
    """The same bank under another response model, fitted to the scores it holds."""
    if response_model in ("auto", bank.info.response_model):
        return bank
    fit = calibrate_items(bank.scores, cast("ResponseModelName", response_model), bank.levels)
    models = tuple(
        replace(model, theta=float(theta))
        for model, theta in zip(bank.info.models, fit.theta, strict=True)
    )
    info = replace(
        bank.info,
        response_model=fit.items.model,
        parameters=fit.parameters,
        models=models,
        correction=None,
        selector="fisher",
    )
    return learned(replace(bank, info=info, parameters=fit.items, kept=fit.kept, reason=fit.reason))
