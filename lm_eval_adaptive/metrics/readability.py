"""Flesch-Kincaid grade level by textstat: years of school that a text asks of its reader.

Lower is better where plain language is the task. This module owns what textstat leaves open: an
answer with nothing to read in it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import UsageError
from lm_eval_adaptive.metrics.base import METRICS, require, version_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lm_eval_adaptive.metrics.base import Case

# The formula counts English syllables. Without a Latin letter there are none to count, and
# textstat's 0 or -3.4 would make saying nothing the plainest language.
_READABLE = re.compile(r"[A-Za-z\u00c0-\u024f]")


def fkgl(cases: Sequence[Case], _: Mapping[str, Any]) -> list[float]:
    """Grade level of each answer, textstat's own value; lower is better.

    An answer without a Latin letter (empty, blank, another script) gets the worst of the range,
    20. Values are not bounded: a text without a full stop reaches thousands.

    Raises:
        UsageError: textstat, or the dictionary it needs, is missing.
    """
    textstat = require("textstat", "fkgl", METRICS["fkgl"].extra)
    worst = METRICS["fkgl"].hi
    found = []
    for case in cases:
        if not _READABLE.search(case.answer):
            found.append(worst)
            continue
        try:
            found.append(float(textstat.flesch_kincaid_grade(case.answer)))
        except LookupError as error:
            raise UsageError(
                f"metric fkgl: textstat {version_of('textstat')} looks for the CMU dictionary in "
                'NLTK\'s data and finds none: pip install "lm-eval-adaptive[readability]" takes a '
                "version that brings it, or run python -m nltk.downloader cmudict once"
            ) from error
    return found


def signature(name: str, _: Mapping[str, Any]) -> str:
    """The package's version: syllables are counted differently between versions."""
    return f"{name}|textstat {version_of('textstat')}"
