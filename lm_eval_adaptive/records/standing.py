"""How far a run is that has no ranking yet: handed by the command from the run to the report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lm_eval_adaptive.core.bank import ItemBank


@dataclass(frozen=True)
class Standing:
    """A task that has no ranking file, as its journal and its bank tell it.

    Attributes:
        ranking: The ranking so far; None where nothing can be estimated.
        bank: The bank it was estimated with.
        notes: What the reader has to know, such as why there is no estimate.
    """

    ranking: Mapping[str, Any] | None = None
    bank: ItemBank | None = None
    notes: tuple[str, ...] = ()
