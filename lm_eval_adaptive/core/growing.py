"""Adding models to a bank, also models that were asked only the items chosen for them.

This module owns how a bank grows; it imports the fits, the bank's shape and the inferences. A model
under an adaptive test is asked items that fit its ability, so the mean of its scores is near the
middle whatever it can do, and a fit that takes such means for abilities finds hard items too easy
and easy ones too hard. The old bank's posterior allows for the choice of items: it is the model's
ability here, and given abilities the choice of items no longer matters to the fit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lm_eval_adaptive.core.bank import WHOLE_SHARE
from lm_eval_adaptive.core.build import models_of
from lm_eval_adaptive.core.calibration import calibrate_items, completed_means
from lm_eval_adaptive.core.full_scores import full_scores
from lm_eval_adaptive.core.joint import latent_posterior
from lm_eval_adaptive.core.methods import inference_of, learned
from lm_eval_adaptive.errors import DataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.core.bank_info import Provenance
    from lm_eval_adaptive.core.matrix import ScoreMatrix

    FloatArray = NDArray[np.float64]

# Share of the new models' items that may be unknown to the bank.
MAX_UNKNOWN = 0.05
# New models that are estimated together, and the distance of two estimates, in standard deviations
# of the calibration models' scores, at which they count alike.
TOGETHER, AGREED = 24, 0.8


def extend(
    bank: ItemBank,
    matrix: ScoreMatrix,
    *,
    clip: bool = False,
    notices: Sequence[str] = (),
    provenance: Provenance | None = None,
) -> ItemBank:
    """The bank with further models, refitted.

    Range, metric, response model and items stay those of the bank.

    Args:
        bank: The bank.
        matrix: Raw scores of the new models, by the bank's ``content_hash``; NaN where not asked.
        clip: Clip scores outside the bank's range and count them, instead of refusing. Where the
            bank's range was observed in its own scores, they are clipped anyway.
        notices: Lines to keep with the bank.
        provenance: Where the new scores come from; replaces the bank's own.

    Returns:
        The new bank, not saved yet.

    Raises:
        UsageError: A model is in the bank already.
        DataError: Over 5 % of the items are not in the bank, a model has no score on any item of
            it, or a score lies outside the range.
    """
    known = {model.name for model in bank.info.models}
    for name in matrix.models:
        if name in known:
            raise UsageError(
                f"{name} is in bank {bank.path or bank.info.task} already; leave it out with "
                "--exclude_model, or recalibrate from all logs to replace it"
            )
    notes = [*bank.info.notices, *notices]
    raw = _by_item(bank, matrix, notes)
    scale = bank.info.scale
    outside = np.isfinite(raw) & scale.outside(raw)
    if outside.any():
        row, column = (int(each) for each in np.argwhere(outside)[0])
        count = int(outside.sum())
        if not clip and bank.info.range_source == "declared":
            raise DataError(
                f"{count} score(s) lie outside the bank's range [{scale.lo:g}, {scale.hi:g}], the "
                f"first is {raw[row, column]:g} of {matrix.models[row]} on doc "
                f"{bank.doc_id[column]}; add --clip to clip and count them, or recalibrate with "
                "another --range"
            )
        notes.append(
            f"clipped {count} of {int(np.isfinite(raw).sum())} added scores to "
            f"[{scale.lo:g}, {scale.hi:g}]"
        )
    added = scale.to_score(raw)
    scores = np.concatenate([bank.scores, added])
    levels = np.concatenate([_old_levels(bank), _estimated(bank, added)])
    given = levels if np.isfinite(levels).any() else None
    fit = calibrate_items(scores, bank.info.response_model, given)
    names = [*(model.name for model in bank.info.models), *matrix.models]
    partial = int(np.isfinite(levels[len(bank.scores) :]).sum())
    notes.append(
        f"added {len(matrix.models)} model(s), {partial} of them with the scores of a test that "
        "chose their items"
    )
    dropped = [reason for reason in fit.reason if reason]
    before = [reason for reason in bank.reason if reason]
    if len(dropped) != len(before):
        notes.append(
            f"{len(dropped)} item(s) are not asked, {len(before)} before models were added"
        )
    old, fresh = int(np.isfinite(bank.scores).sum()), int(np.isfinite(raw).sum())
    info = replace(
        bank.info,
        parameters=fit.parameters,
        models=models_of(names, fit, scores, scale),
        correction=None,
        clipped=float((bank.info.clipped * old + outside.sum()) / (old + fresh)),
        notices=tuple(notes),
        provenance=provenance or bank.info.provenance,
    )
    return learned(
        replace(
            bank,
            info=info,
            parameters=fit.items,
            kept=fit.kept,
            reason=fit.reason,
            n_scores=np.asarray(np.isfinite(scores).sum(axis=0)),
            mean_score=completed_means(scores, given)[1],
            item_rest_correlation=fit.item_rest_correlation,
            scores=scores,
            sha256="",
            path="",
        )
    )


def without_models(bank: ItemBank, names: Collection[str]) -> ItemBank:
    """The bank without some of its models, its items fitted to the others' scores.

    What it learned of its errors stays as it is: the bank serves to place models that come again.

    Args:
        bank: The bank.
        names: Models to leave out; those that are not there count for nothing.

    Raises:
        DataError: Too few are left, or they do not differ.
    """
    rows = [row for row, each in enumerate(bank.info.models) if each.name not in names]
    if len(rows) == len(bank.info.models):
        return bank
    scores = bank.scores[rows]
    seen = np.isfinite(scores).any(axis=0)
    if not seen.all():
        raise DataError(
            f"{int((~seen).sum())} of the bank's {len(bank)} items were answered by none but the "
            "models that come again"
        )
    levels = _old_levels(bank)[rows]
    given = levels if np.isfinite(levels).any() else None
    fit = calibrate_items(scores, bank.info.response_model, given)
    kept = [bank.info.models[row].name for row in rows]
    info = replace(
        bank.info,
        parameters=fit.parameters,
        models=models_of(kept, fit, scores, bank.info.scale),
    )
    return replace(
        bank,
        info=info,
        parameters=fit.items,
        kept=fit.kept,
        reason=fit.reason,
        n_scores=np.asarray(np.isfinite(scores).sum(axis=0)),
        mean_score=completed_means(scores, given)[1],
        item_rest_correlation=fit.item_rest_correlation,
        scores=scores,
    )


def levels_of(bank: ItemBank, added: FloatArray) -> FloatArray:
    """Full scores by a bank of models that were asked a part of its items, NaN for the others.

    Args:
        bank: The bank.
        added: Scores in [0, 1] by the bank's items, shape (m, n), NaN where not asked.
    """
    return _estimated(bank, added)


def _by_item(bank: ItemBank, matrix: ScoreMatrix, notes: list[str]) -> FloatArray:
    """Raw scores of the new models in the order of the bank's items."""
    place = {name: item for item, name in enumerate(bank.content_hash)}
    columns = np.array([place.get(name, -1) for name in matrix.items], dtype=np.intp)
    unknown = int((columns < 0).sum())
    if unknown > MAX_UNKNOWN * len(columns):
        raise DataError(
            f"{unknown} of the {len(columns)} documents of the new runs are not in bank "
            f"{bank.path or bank.info.task}: the documents were edited, or the runs are of another "
            "dataset or split; recalibrate from logs on one version of the data"
        )
    if unknown:
        notes.append(f"left out {unknown} document(s) that are not in the bank")
    raw = np.full((len(matrix.models), len(bank)), np.nan)
    raw[:, columns[columns >= 0]] = matrix.scores[:, columns >= 0]
    for row, name in enumerate(matrix.models):
        if not np.isfinite(raw[row]).any():
            raise DataError(f"{name} has no score on any item of the bank; leave it out")
    return raw


def _old_levels(bank: ItemBank) -> FloatArray:
    return np.full(len(bank.scores), np.nan) if bank.levels is None else bank.levels


def _estimated(bank: ItemBank, added: FloatArray) -> FloatArray:
    """Full scores by the old bank of new models scored in part, NaN for the others.

    They are estimated together, a few at a time: what the bank is wrong about it is wrong about for
    all of them alike, which one model's answers hardly show.
    """
    inference = inference_of(bank)
    found = np.full(len(added), np.nan)
    part = np.flatnonzero(np.isfinite(added).mean(axis=1) < WHOLE_SHARE)
    spread = float(np.std([model.mean_score for model in bank.info.models]))
    for first in range(0, len(part), TOGETHER):
        rows = part[first : first + TOGETHER]
        estimates = inference.estimate(added[rows])
        found[rows] = estimates.score
        curves = [latent.view.without_offsets() for latent in estimates.latents]
        if curves:
            within = [
                full_scores(latent_posterior(view, added[rows]), added[rows])[0] for view in curves
            ]
            found[rows] = _agreed(estimates.score, np.mean(within, axis=0), AGREED * spread)
    return found


def _agreed(free: FloatArray, within: FloatArray, scale: float) -> FloatArray:
    """The mean of two estimates where they agree, weighted toward the first where they do not.

    The curves alone say more of models as the bank knows them. Of models far from these they are
    wrong, and the estimate that is free of them tells so by its distance.

    Args:
        free: Scores with offsets, plain means and regression, shape (m,).
        within: Scores by the curves alone, shape (m,).
        scale: Distance at which the curves' weight is a half.
    """
    weight = 1.0 / (1.0 + ((free - within) / max(scale, 1e-9)) ** 2)
    return np.asarray(weight * within + (1.0 - weight) * free)
