"""What the user asked for, validated once and frozen.

This module owns the options of an adaptive run; it imports the core's rules. Nothing is
loaded here: banks, tasks and models are opened by the run. The models and the harness's own options
are ``host.settings``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from lm_eval_adaptive.core import defaults
from lm_eval_adaptive.core.ranker import DecisionRule
from lm_eval_adaptive.core.response import RESPONSE_MODELS
from lm_eval_adaptive.core.rules import ProcedureConfig
from lm_eval_adaptive.core.sampler import SAMPLERS
from lm_eval_adaptive.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

MISSING = "missing"


@dataclass(frozen=True)
class AdaptiveConfig:
    """The options of ``run --adaptive``; see ``--help`` or README for each.

    Attributes:
        bank: Path of a bank for all tasks, or paths by ``TASK`` or ``TASK:METRIC``, or a list of
            texts ``PATH`` and ``TASK[:METRIC]=PATH``; None takes the task's own.
        against: Calibration models of the bank that join the ranking with their recorded scores:
            names, or ``all``.
        metric: ``NAME`` or ``NAME,FILTER``, or several of them to rank by each from one set of
            answers; None takes the bank's.
        confidence: Two-sided level at which a pair counts as decided.
        correction: ``none`` or ``holm``.
        equivalence: Score difference, raw metric units, below which models count as equal.
        pairs: ``adjacent``, ``all`` or ``top:K``.
        min_items: Items of each model before any stop.
        max_items: Most items of one model; None is half the bank.
        budget: Total cost in the unit of the candidates' costs.
        budget_items: Total items.
        items_per_model: Fixed length, no early stop.
        precision: One model: stop at this standard error of its score, raw metric units.
        round_size: Items asked of a model at once, or ``auto``.
        futility: A pair with less than this chance of being decided by ``max_items`` is given up.
        sampler: ``draw``, ``fisher``, ``static`` or ``random``; ``auto`` is the bank's own choice.
        response_model: ``auto`` takes the bank's; another name refits the bank's scores.
        resident: Most local models in memory at once; None is as many as fit.
        range: Without a bank: the metric's lowest and highest value; None takes what is declared.
        stratify: Without a bank: column of the documents to spread the order over; None spreads it
            over their lengths.
        on_error: What an answer without a score counts as: ``missing``, or ``score:V`` with V in
            raw metric units.
        clip: Whether to go on where many scores lie outside the metric's range.
        share: Without a bank: a fixed length, as a share of the documents; of ``bank make``.
        grow: Whether the answers join the task's bank in the store; None as the store is set.
        schedule: ``lockstep``, where a round begins when the last one's answers are all there, or
            ``async``, where models do not wait for each other.
        executor: Where models live: ``local`` is this process, ``ray`` or ``ray:ADDRESS`` a
            cluster. It changes no ranking.
    """

    bank: str | Path | Mapping[str, str | Path] | Sequence[str] | None = None
    against: Sequence[str] | str = ()
    metric: str | Sequence[str] | None = None
    confidence: float = defaults.CONFIDENCE
    correction: str = defaults.CORRECTION
    equivalence: float = defaults.EQUIVALENCE
    pairs: str = defaults.PAIRS
    min_items: int = defaults.MIN_ITEMS
    max_items: int | None = None
    budget: float | None = None
    budget_items: int | None = None
    items_per_model: int | None = None
    precision: float | None = None
    round_size: int | str = defaults.AUTO
    futility: float = defaults.FUTILITY
    sampler: str = defaults.AUTO
    response_model: str = defaults.AUTO
    resident: int | None = None
    range: tuple[float, float] | None = None
    stratify: str | None = None
    on_error: str = MISSING
    clip: bool = False
    share: float | None = None
    grow: bool | None = None
    executor: str = "local"
    schedule: str = "lockstep"

    def __post_init__(self) -> None:
        names = self.against.split(",") if isinstance(self.against, str) else self.against
        against = tuple(str(name).strip() for name in names)
        if not all(against):
            raise UsageError("--against takes all, or names of the bank's models: NAME,NAME")
        object.__setattr__(self, "against", against)
        self._settle_metrics()
        if self.range is not None:
            object.__setattr__(self, "range", _two_numbers(self.range))
        if self.round_size != "auto" and not isinstance(self.round_size, int):
            raise UsageError(
                f"--round_size must be auto or a whole number, got {self.round_size!r}"
            )
        if self.response_model not in ("auto", *RESPONSE_MODELS):
            raise UsageError(
                f"--response_model must be auto, {', '.join(RESPONSE_MODELS)}; got "
                f"{self.response_model!r}"
            )
        if self.sampler not in ("auto", *SAMPLERS):
            raise UsageError(
                f"--sampler must be one of auto, {', '.join(SAMPLERS)}; got {self.sampler!r}"
            )
        if self.resident is not None and self.resident < 1:
            raise UsageError(f"--resident must be at least 1, got {self.resident}")
        if self.schedule not in ("lockstep", "async"):
            raise UsageError(f"--schedule must be lockstep or async, got {self.schedule!r}")
        if self.schedule == "async" and not (self.budget is None and self.budget_items is None):
            raise UsageError(
                "--schedule async does not go with a budget: what is under way is not spent yet; "
                "leave --budget and --budget_items out, or take --schedule lockstep"
            )
        if self.executor.partition(":")[0] not in ("local", "ray") or self.executor[:6] == "local:":
            raise UsageError(
                f"--executor must be local, ray or ray:ADDRESS, got {self.executor!r}; for example "
                "--executor ray:10.0.0.1:6379"
            )
        if self.failure_score is not None and len(self.metrics) > 1:
            raise UsageError(
                f"--on_error {self.on_error} is in the units of one metric, and --metric names "
                f"{len(self.metrics)}; leave it out, or rank by one metric"
            )
        if self.grow not in (None, True, False):
            raise UsageError(f"grow must be true or false, got {self.grow!r}")
        self.procedure(1.0, 1, 0)

    @property
    def failure_score(self) -> float | None:
        """What an answer without a score counts as, raw metric units; None where it is missing.

        Raises:
            UsageError: The option says neither.
        """
        if self.on_error == MISSING:
            return None
        word, _, value = str(self.on_error).partition(":")
        try:
            found = float(value) if word == "score" else math.nan
        except ValueError:
            found = math.nan
        if not math.isfinite(found):
            raise UsageError(
                "--on_error takes missing or score:V with a number V in the metric's units, got "
                f"{self.on_error!r}; for example --on_error score:0"
            )
        return found

    def _settle_metrics(self) -> None:
        given = [self.metric] if isinstance(self.metric, str) else list(self.metric or ())
        if len(set(given)) < len(given):
            raise UsageError(f"--metric names one metric twice: {', '.join(given)}")
        units = ("equivalence", "precision", "range")
        named = [name for name in units if getattr(self, name) not in (None, 0.0)]
        if len(given) > 1 and named:
            raise UsageError(
                f"--{named[0]} is in the units of one metric, and --metric names {len(given)}; "
                "leave it out, or rank by one metric"
            )
        if len(given) < 2:
            object.__setattr__(self, "metric", given[0] if given else None)
        else:
            object.__setattr__(self, "metric", tuple(given))

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that were named, in their order."""
        if self.metric is None:
            return ()
        return (self.metric,) if isinstance(self.metric, str) else tuple(self.metric)

    def procedure(self, width: float, batch: int, seed: int) -> ProcedureConfig:
        """The core's rules on a bank whose range is ``width`` raw metric units wide."""
        return ProcedureConfig(
            rule=DecisionRule(
                confidence=self.confidence,
                correction=cast("Literal['none', 'holm']", self.correction),  # checked there
                equivalence=self.equivalence / width,
                pairs=self.pairs,
            ),
            min_items=self.min_items,
            max_items=self.max_items,
            budget=self.budget,
            budget_items=self.budget_items,
            items_per_model=self.items_per_model,
            precision=None if self.precision is None else self.precision / width,
            round_size=None if self.round_size == "auto" else int(self.round_size),
            batch=batch,
            futility=self.futility,
            sampler=self.sampler,
            seed=seed,
        )

    def bank_for(self, task: str) -> str | Path | None:
        """The bank the user named for a task, None where there is none."""
        if self.bank is None or isinstance(self.bank, str | Path):
            return self.bank
        if not isinstance(self.bank, Mapping):
            raise UsageError("the tasks that --bank names are not known yet")
        # A run by one of several metrics has that one alone.
        own = f"{task}:{self.metrics[0].partition(',')[0]}" if self.metrics else task
        return self.bank.get(own, self.bank.get(task))

    @property
    def changed(self) -> frozenset[str]:
        """Names of the options that are not at their defaults."""
        plain = {each.name: each.default for each in fields(self)}
        return frozenset(name for name, value in plain.items() if getattr(self, name) != value)

    def choices(self) -> dict[str, Any]:
        """Options that change what is asked or concluded, for files; paths are left out."""
        found = asdict(self)
        found.pop("bank")
        if self.schedule == "lockstep":  # journals of earlier versions do not have it
            found.pop("schedule")
        found.pop("executor")  # a run may go on somewhere else
        if self.on_error == MISSING:  # journals of the first versions do not have it
            found.pop("on_error")
        if self.share is None:  # journals of other runs do not have it
            found.pop("share")
        found.pop("grow")  # what becomes of the answers is not what was asked
        found.pop("clip")  # it may be said when the run is resumed; the ranking's warnings tell it
        return found


def _two_numbers(given: Any) -> tuple[float, float]:
    """A range: two numbers, or text ``LO,HI``."""
    try:
        low, high = (
            float(each) for each in (given.split(",") if isinstance(given, str) else given)
        )
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"--range takes two numbers LO,HI, got {given!r}; for example --range 0,100"
        ) from error
    if not (math.isfinite(low) and math.isfinite(high)):
        raise UsageError(f"--range LO,HI takes two finite numbers, got {low:g},{high:g}")
    if not low < high:
        raise UsageError(f"--range LO,HI needs LO below HI, got {low:g},{high:g}")
    return low, high
