"""Whether the numbers of a bank can be those of a calibration.

This module owns what a bank's numbers may be, each refused by what is wrong with it; it imports
numpy and the errors. It knows no file: the reader says where the bank is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from lm_eval_adaptive.core.response import information, variance
from lm_eval_adaptive.errors import BankError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lm_eval_adaptive.core.bank_info import BankInfo
    from lm_eval_adaptive.core.response import ItemParameters

    BoolArray = NDArray[np.bool_]
    FloatArray = NDArray[np.float64]

# Beyond this many logits from the middle an expected score is 0 or 1 in floating point, and no
# answer tells anything; calibration stays below 10.
FARTHEST = 40.0
_ABILITIES = np.linspace(-10.0, 10.0, 9)
LARGEST = 1e6
# Scores are kept in single precision.
_ROUNDING = 1e-4


class Numbers(Protocol):
    """What is looked at of a bank; see its attributes."""

    @property
    def info(self) -> BankInfo: ...  # noqa: D102  what it is for
    @property
    def parameters(self) -> ItemParameters: ...  # noqa: D102  item parameters
    @property
    def content_hash(self) -> tuple[str, ...]: ...  # noqa: D102  identity of each document
    @property
    def doc_id(self) -> NDArray[np.int_]: ...  # noqa: D102  row of each document
    @property
    def kept(self) -> BoolArray: ...  # noqa: D102  which may be asked
    @property
    def reason(self) -> tuple[str, ...]: ...  # noqa: D102  why others may not
    @property
    def n_scores(self) -> NDArray[np.int_]: ...  # noqa: D102  scores per item
    @property
    def mean_score(self) -> FloatArray: ...  # noqa: D102  mean score per item
    @property
    def scores(self) -> FloatArray: ...  # noqa: D102  calibration scores
    def __len__(self) -> int: ...


def check_bank(bank: Numbers, where: str) -> None:
    """Refuse a bank whose numbers no calibration gives.

    Args:
        bank: The bank.
        where: Its file.

    Raises:
        BankError: The first thing that is wrong.
    """
    for check in (_parameters, _documents, _models, _scores, _asked):
        check(bank, where)


def _refuse(where: str, what: str) -> BankError:
    return BankError(f"bank {where}: {what}; recalibrate it")


def _first(bank: Numbers, wrong: BoolArray, where: str, name: str, expected: str) -> None:
    """Refuse the first item of which a number is wrong."""
    at = np.flatnonzero(wrong)
    if len(at):
        value = getattr(bank.parameters, name, None)
        value = getattr(bank, name) if value is None else value
        raise _refuse(
            where,
            f"{name} of item {at[0]} (doc_id {bank.doc_id[at[0]]}) is {value[at[0]]}, expected "
            f"{expected}",
        )


def _parameters(bank: Numbers, where: str) -> None:
    items = bank.parameters
    for name in ("difficulty", "discrimination", "noise"):
        _first(bank, ~np.isfinite(getattr(items, name)), where, name, "a finite number")
    if (items.discrimination <= 0.0).any() or (items.noise <= 0.0).any():
        raise _refuse(where, "discriminations and noises must be above 0")
    for name in ("discrimination", "noise"):
        too_large = getattr(items, name) > LARGEST
        _first(bank, too_large, where, name, f"at most {LARGEST:g}")
    slope = items.discrimination if items.own_slopes else np.ones(len(items))
    far = np.abs(items.difficulty * slope) > FARTHEST
    _first(bank, far, where, "difficulty", "an ability that a model can have")
    if not np.isfinite(items.covariance).all():
        raise BankError(f"bank {where}: an item's standard error is not finite; recalibrate it")
    with np.errstate(all="ignore"):
        spread = variance(_ABILITIES, items)
        told = information(_ABILITIES, items)
    lost = np.flatnonzero(~(np.isfinite(spread) & np.isfinite(told)).all(axis=0))
    if len(lost):
        raise _refuse(
            where,
            f"the variance or information of item {lost[0]} is no finite number (difficulty "
            f"{items.difficulty[lost[0]]:g}, discrimination {items.discrimination[lost[0]]:g})",
        )


def _documents(bank: Numbers, where: str) -> None:
    if len(set(bank.content_hash)) != len(bank):
        raise _refuse(where, "it holds the same content_hash twice")
    if (bank.doc_id < 0).any():
        raise _refuse(where, f"doc_id {int(bank.doc_id.min())} is below 0")
    if len(set(bank.doc_id.tolist())) != len(bank):
        twice = next(i for i in bank.doc_id.tolist() if (bank.doc_id == i).sum() > 1)
        raise _refuse(where, f"it holds doc_id {twice} twice")
    for name in ("input_tokens", "output_tokens"):
        values = getattr(bank, name)
        _first(bank, np.isinf(values) | (values < 0.0), where, name, "a count of tokens")


def _models(bank: Numbers, where: str) -> None:
    names = [model.name for model in bank.info.models]
    if len(bank.scores) != len(names):
        raise _refuse(
            where,
            f"it names {len(names)} calibration models but holds scores of {len(bank.scores)}",
        )
    for model in bank.info.models:
        if names.count(model.name) > 1:
            raise _refuse(where, f"it names the calibration model {model.name!r} twice")
        if abs(model.theta) > FARTHEST:
            raise _refuse(where, f"the ability of {model.name} is {model.theta:g} logits")
    sd = bank.info.parameters.get("prior_sd", 1.0)
    if not 0.0 < sd <= LARGEST:
        raise _refuse(where, f"prior_sd is {sd:g}, expected a number above 0")


def _scores(bank: Numbers, where: str) -> None:
    scores = bank.scores
    outside = np.argwhere(np.isinf(scores) | (scores < -_ROUNDING) | (scores > 1.0 + _ROUNDING))
    if len(outside):
        row, column = outside[0]
        raise _refuse(
            where,
            f"the score of {bank.info.models[row].name} on item {column} is "
            f"{scores[row, column]:g}, expected one from 0 to 1",
        )
    seen = np.isfinite(scores)
    if (seen.sum(axis=0) != bank.n_scores).any():
        item = int(np.flatnonzero(seen.sum(axis=0) != bank.n_scores)[0])
        raise _refuse(
            where,
            f"item {item} has {int(seen[:, item].sum())} scores and says {bank.n_scores[item]}: "
            "it was edited",
        )
    if not seen.all():  # means are then completed by the models that were asked more
        return
    means = scores.mean(axis=0)
    off = np.flatnonzero(~(np.abs(means - bank.mean_score) <= _ROUNDING))
    if len(off):
        raise _refuse(
            where,
            f"the mean score of item {off[0]} is {bank.mean_score[off[0]]:g}, its scores' mean is "
            f"{means[off[0]]:g}: it was edited",
        )


def _asked(bank: Numbers, where: str) -> None:
    if not bank.kept.any():
        reasons = sorted({reason for reason in bank.reason if reason})
        raise _refuse(
            where,
            f"none of its {len(bank)} items may be asked ({', '.join(reasons) or 'none is kept'}), "
            "so nothing can be ranked with it",
        )
