"""What the items of a test are expected to cost, before anything is asked.

This module owns the prices of items; what an answer did cost is told when it is marked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lm_eval_adaptive.errors import BankError
from lm_eval_adaptive.host.settings import cost_of_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.host.settings import CandidateSpec


def expected_costs(
    bank: ItemBank, specs: Sequence[CandidateSpec], repeats: int
) -> NDArray[np.float64]:
    """What each item is expected to cost each model, shape (m, n), by the bank's token counts.

    Raises:
        BankError: A model is priced by tokens, and the bank does not know how long answers are.
    """
    return item_costs(specs, repeats, bank.input_tokens, bank.output_tokens, bank.path)


def item_costs(
    specs: Sequence[CandidateSpec],
    repeats: int,
    tokens_in: NDArray[np.float64],
    tokens_out: NDArray[np.float64],
    bank: str,
) -> NDArray[np.float64]:
    """What each item is expected to cost each model, shape (m, n).

    Args:
        specs: m models.
        repeats: Responses per document.
        tokens_in: Tokens of each item's prompt, shape (n,), NaN where they are not known.
        tokens_out: Tokens of an answer, likewise.
        bank: What the tokens are known from, for messages.

    Raises:
        BankError: A model is priced by tokens, and these are not known.
    """
    by_tokens = [spec.name for spec in specs if isinstance(spec.cost, dict)]
    if by_tokens and not (np.isfinite(tokens_in) & np.isfinite(tokens_out)).all():
        raise BankError(
            f"{by_tokens[0]} is priced by tokens, and bank {bank} does not tell how many its items "
            "take: give a price per item, or calibrate the bank from logs"
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
