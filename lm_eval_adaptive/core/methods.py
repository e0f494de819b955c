"""Where the name of a bank's response model becomes the class that infers by it.

This module owns that table and nothing else; it imports the inferences. A new response model is
entered here, in ``response`` (its formulas) and in ``calibration`` (its fit).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lm_eval_adaptive.core.bernoulli import BernoulliPosterior
from lm_eval_adaptive.core.paper import PaperPosterior
from lm_eval_adaptive.core.robust import RobustPosterior

if TYPE_CHECKING:
    from collections.abc import Callable

    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.core.inference import Inference
    from lm_eval_adaptive.core.response import ResponseModelName

_INFERENCES: dict[ResponseModelName, Callable[[ItemBank], Inference]] = {
    "paper-1pl": lambda bank: PaperPosterior(bank.parameters, bank.info.parameters),
    "robust-2pl": RobustPosterior,
    "bernoulli-2pl": lambda bank: BernoulliPosterior(bank.parameters, bank.info.parameters),
}


def inference_of(bank: ItemBank) -> Inference:
    """The inference of a bank's response model."""
    return _INFERENCES[bank.info.response_model](bank)
