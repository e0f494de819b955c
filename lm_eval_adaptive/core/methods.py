"""Where the name of a bank's response model becomes the class that infers by it.

This module owns that table and nothing else; it imports the inferences, and what banks learn from
their own models. A new response model is entered here, in ``response`` (its formulas) and in
``calibration`` (its fit).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lm_eval_adaptive.core.bernoulli import BernoulliPosterior
from lm_eval_adaptive.core.crossvalidation import corrected
from lm_eval_adaptive.core.paper import PaperPosterior
from lm_eval_adaptive.core.robust import RobustPosterior

if TYPE_CHECKING:
    from collections.abc import Callable

    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.core.inference import Inference
    from lm_eval_adaptive.core.response import ResponseModelName


@dataclass(frozen=True)
class _Method:
    """What goes with a response model.

    Attributes:
        inference: Makes it from a bank.
        learn: The bank with what it learns from its own calibration models.
    """

    inference: Callable[[ItemBank], Inference]
    learn: Callable[[ItemBank], ItemBank] = lambda bank: bank


_METHODS: dict[ResponseModelName, _Method] = {
    "paper-1pl": _Method(lambda bank: PaperPosterior(bank.parameters, bank.info.parameters)),
    "robust-2pl": _Method(RobustPosterior, learn=corrected),
    "bernoulli-2pl": _Method(
        lambda bank: BernoulliPosterior(bank.parameters, bank.info.parameters)
    ),
}


def inference_of(bank: ItemBank) -> Inference:
    """The inference of a bank's response model."""
    return _METHODS[bank.info.response_model].inference(bank)


def learned(bank: ItemBank) -> ItemBank:
    """A calibrated bank with what its inference learns from the bank's own models."""
    return _METHODS[bank.info.response_model].learn(bank)
