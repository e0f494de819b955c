"""The defaults of a test, in one place: the rules, the options and ``--help`` all take them here.

This module imports nothing, so that ``--help`` can name a default without loading the core.
"""

from __future__ import annotations

from typing import Final, Literal

CONFIDENCE: Final = 0.95
CORRECTION: Final[Literal["none", "holm"]] = "none"
EQUIVALENCE: Final = 0.0
PAIRS: Final = "adjacent"
MIN_ITEMS: Final = 10
FUTILITY: Final = 0.03
AUTO: Final = "auto"  # what the bank, the back ends or the data say
