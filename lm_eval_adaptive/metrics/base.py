"""What a metric is, and the list of those that exist.

This module owns the shapes that the metric families share; it imports none of them: a family is
loaded when its metric is first computed.
"""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import TaskError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

NAN = math.nan


class Missing(float):
    """No score for a document, and why: NaN for whoever calculates, a reason for whoever asks.

    >>> value = Missing("no reference")
    >>> math.isnan(value), value.reason
    (True, 'no reference')
    """

    reason: str

    def __new__(cls, reason: str) -> Missing:  # noqa: PYI034  typing has Self from 3.11 on
        """A NaN that carries its reason."""
        made = super().__new__(cls, NAN)
        made.reason = str(reason)
        return made


NO_REFERENCE = Missing("the document has no reference")


@dataclass(frozen=True)
class Case:
    """One answer and what it is compared with.

    Attributes:
        answer: What the model wrote; may be empty.
        references: Right answers; blank ones are no references.
        incorrect: Answers known to be wrong.
        source: The text that was to be translated.
        doc: The whole document, for metrics that show it to a judge.
    """

    answer: str
    references: tuple[str, ...] = ()
    incorrect: tuple[str, ...] = ()
    source: str = ""
    doc: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Metric:
    """A metric.

    Attributes:
        name: Its key in ``process_results``.
        where: ``module:function`` that computes it from ``(cases, settings)``.
        lo: Raw value that maps to 0, or to 1 where lower is better.
        hi: The other end.
        higher_is_better: Direction.
        extra: Extra of this package that installs what it needs, "" for none.
        family: Key of its settings under ``metadata.metrics``, "" where it has none.
        open_ended: Whether single values can leave [lo, hi] and are clipped there.
        needs: ``references`` alone, or what more of a case it reads.
    """

    name: str
    where: str
    lo: float = 0.0
    hi: float = 1.0
    higher_is_better: bool = True
    extra: str = ""
    family: str = ""
    open_ended: bool = False
    needs: tuple[str, ...] = ("references",)

    def compute(self, cases: Sequence[Case], settings: Mapping[str, Any]) -> list[float]:
        """A number per case, :class:`Missing` or NaN where the document cannot be scored.

        Both mean "leave the document out": a reference is missing, or a judge's reply could not
        be read. It is never turned into a score. Lone surrogates are replaced before.

        Raises:
            UsageError: A package or a setting is missing.
        """
        if not cases:
            return []
        function = _load(self.where)
        readable = [_readable(case) for case in cases]
        found: list[float] = function(readable, self._own(settings))
        if len(found) != len(cases):
            raise TaskError(
                f"metric {self.name} ({self.where}) gave {len(found)} values for {len(cases)} "
                "documents; one each was expected, None where there is none"
            )
        return found

    def signature(self, settings: Mapping[str, Any]) -> str:
        """What the values depend on besides the texts: packages, models, rubrics."""
        module = importlib.import_module(self.where.partition(":")[0])
        text: str = module.signature(self.name, self._own(settings))
        return text

    def range_of(self, settings: Mapping[str, Any]) -> tuple[float, float]:
        """Lowest and highest value, in the metric's own units: the judge's are of its settings."""
        if self.name != "judge":
            return self.lo, self.hi
        from lm_eval_adaptive.metrics.judging.config import judge_settings

        return judge_settings(self._own(settings)).scale

    def _own(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        own = settings.get(self.family) or {}
        if not isinstance(own, dict):
            raise TaskError(
                f"metadata.metrics.{self.family} must be a mapping of settings, got "
                f"{type(own).__name__} {str(own)[:60]!r}"
            )
        return own


def _readable(case: Case) -> Case:
    return replace(
        case,
        answer=encodable(case.answer),
        references=tuple(map(encodable, case.references)),
        incorrect=tuple(map(encodable, case.incorrect)),
        source=encodable(case.source),
    )


def _load(where: str) -> Callable[..., list[float]]:
    module, _, name = where.partition(":")
    function: Callable[..., list[float]] = getattr(importlib.import_module(module), name)
    return function


_HERE = "lm_eval_adaptive.metrics"

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("rouge1", f"{_HERE}.rouge:rouge1"),
        Metric("rouge2", f"{_HERE}.rouge:rouge2"),
        Metric("rougeL", f"{_HERE}.rouge:rouge_l"),
        Metric("sentence_bleu", f"{_HERE}.translation:sentence_bleu", hi=100.0),
        Metric("sentence_chrf", f"{_HERE}.translation:sentence_chrf", hi=100.0),
        Metric(
            "fkgl",
            f"{_HERE}.readability:fkgl",
            hi=20.0,
            higher_is_better=False,
            extra="readability",
            open_ended=True,
            needs=(),
        ),
        Metric("bertscore_f1", f"{_HERE}.bertscore:f1", extra="bertscore", family="bertscore"),
        Metric(
            "bertscore_diff",
            f"{_HERE}.bertscore:differential",
            extra="bertscore",
            family="bertscore",
            needs=("references", "incorrect"),
        ),
        Metric(
            "comet",
            f"{_HERE}.comet:comet",
            extra="comet",
            family="comet",
            open_ended=True,
            needs=("references", "source"),
        ),
        Metric("span_score", f"{_HERE}.spans:span_score", needs=("spans",)),
        Metric("judge", f"{_HERE}.judge:judge", lo=1.0, hi=10.0, family="judge", needs=("doc",)),
    )
}

# Metrics whose single values can leave the range: calibration clips them and counts.
OPEN_ENDED = frozenset(name for name, metric in METRICS.items() if metric.open_ended)


def known_ranges() -> dict[str, tuple[float, float]]:
    """Range of every metric whose range does not depend on a setting.

    >>> known_ranges()["sentence_bleu"]
    (0.0, 100.0)
    """
    return {name: (each.lo, each.hi) for name, each in METRICS.items() if name != "judge"}


def known_directions() -> dict[str, bool]:
    """Whether a higher value is better, by metric.

    >>> known_directions()["fkgl"]
    False
    """
    return {name: each.higher_is_better for name, each in METRICS.items()}


def metric(name: str) -> Metric:
    """A metric by name.

    Raises:
        UsageError: There is none of that name; the message names near ones.
    """
    import difflib

    if name not in METRICS:
        near = difflib.get_close_matches(name, METRICS, n=3)
        hint = f"did you mean {', '.join(near)}?" if near else f"there are {', '.join(METRICS)}"
        raise UsageError(f"no metric {name!r} in lm_eval_adaptive.metrics; {hint}")
    return METRICS[name]


def require(package: str, metric_name: str, extra: str) -> Any:
    """Import a metric's package.

    Raises:
        UsageError: It is not installed; the message says how to install it.
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        reason = "" if error.name == package else f" ({error})"
        install = f'pip install "lm-eval-adaptive[{extra}]"' if extra else f"pip install {package}"
        raise UsageError(
            f"metric {metric_name} needs the package {package}, which cannot be "
            f"imported{reason}: {install}, or leave the metric out with "
            "LMEVAL_ADAPTIVE_METRICS=<the others>"
        ) from error


def version_of(distribution: str) -> str:
    """Installed version of a distribution, "none" where it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return "none"


def filled(texts: Sequence[str]) -> list[str]:
    """The texts that are not blank."""
    return [text for text in texts if text.strip()]


_NOTED: dict[str, tuple[int, int]] = {}


def note(text: str, some: int = 1, of: int = 1) -> None:
    """Remember what readers of the scores have to know, such as texts that were cut.

    Args:
        text: The notice; ``{some}`` and ``{of}`` stand for the counts over all calls.
        some: How many documents of this call it is true of.
        of: How many it could have been true of.
    """
    before = _NOTED.get(text, (0, 0))
    _NOTED[text] = before[0] + some, before[1] + of


def take_notices() -> list[str]:
    """The notices since the last call, with their counts."""
    found = [
        text.replace("{some}", str(some)).replace("{of}", str(of))
        for text, (some, of) in _NOTED.items()
        if some
    ]
    _NOTED.clear()
    return found


def encodable(text: str) -> str:
    r"""The text without lone surrogates, which no tokenizer, database or file takes.

    >>> encodable("ok \ud83d"), encodable("\ud83d\ude00")
    ('ok \ufffd', '😀')
    """
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def best_of(
    cases: Sequence[Case], score: Callable[[str, str], float], *, empty: float = 0.0
) -> list[float]:
    """The maximum over the references of each case.

    Args:
        cases: Answers with their references.
        score: From (answer, reference) to a number.
        empty: Score of a blank answer.

    Returns:
        A number per case; missing where a case has no reference.
    """
    found: list[float] = []
    for case in cases:
        references = filled(case.references)
        if not references:
            found.append(NO_REFERENCE)
        elif not case.answer.strip():
            found.append(empty)
        else:
            found.append(max(score(case.answer, each) for each in references))
    return found
