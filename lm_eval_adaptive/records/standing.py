"""How far a run is that has no ranking yet: handed by the command from the run to the report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.records.ranking import RankingDocument


@dataclass(frozen=True)
class Standing:
    """A task that has no ranking file, as its journal and its bank tell it.

    Attributes:
        ranking: The ranking so far; None where nothing can be estimated.
        bank: The bank it was estimated with.
        notes: What the reader has to know, such as why there is no estimate.
    """

    ranking: RankingDocument | None = None
    bank: ItemBank | None = None
    notes: tuple[str, ...] = ()
