"""The ranking file and its parts, and the summary over several tasks.

This module owns the shape of ``ranking_*.json`` and ``summary_*.json``: what a run writes, what the
page, the terminal and the trackers read. One writer, one reader; the reader refuses in one line
what it does not know. Keys of the file are the fields' names, in the order of ``KEYS``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec
from msgspec.structs import force_setattr, replace

from lm_eval_adaptive.errors import DataError
from lm_eval_adaptive.records.files import finite, json_bytes, write_aside
from lm_eval_adaptive.records.journal import NO_BANK
from lm_eval_adaptive.redact import hide, redact

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = 1
ALARM = "alarm"  # stands among a ranking's doubts where the models do not bear the bank out

Verdict = Literal["a", "b", "undecided", "equivalent"]
DECIDED: tuple[Verdict, ...] = ("a", "b")


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a file: a mapping there, with these keys."""

    KEYS: ClassVar[tuple[str, ...]] = ()  # in the file's order, where it is not that of the fields

    def plain(self) -> dict[str, Any]:
        """The record as JSON holds it."""
        return {key: _plain(getattr(self, key)) for key in self.KEYS or self.__struct_fields__}


def _plain(value: Any) -> Any:
    if isinstance(value, _Record):
        return value.plain()
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


class Estimate(_Record, frozen=True, kw_only=True):
    """What is believed of a model, and what it took.

    Attributes:
        model: Its name.
        score: Estimated score on the whole benchmark, metric's units.
        score_se: Its standard error.
        score_ci: Its 95 % interval, within the metric's range.
        ability: The latent level, logits.
        ability_se: Its standard error.
        items: Items it was asked.
        cost: What they cost.
        known: Whether it was not asked, its scores being in the bank.
        lies: Where it lies among the models that calibrated the bank, such as ``above all 17
            calibration models``; "" without a bank, and in files of the first versions.
    """

    model: str
    score: float = float("nan")
    score_se: float = float("nan")
    score_ci: tuple[float, float] = (float("nan"), float("nan"))
    ability: float = float("nan")
    ability_se: float = float("nan")
    items: int = 0
    cost: float = float("nan")
    known: bool = False
    lies: str = ""

    @property
    def beyond(self) -> str:
        """``above`` or ``below`` where it lies outside the calibration models' range, else ""."""
        word = self.lies.partition(" ")[0]
        return word if word in ("above", "below") else ""


class Entry(Estimate, frozen=True, kw_only=True):
    """A model in the ranking.

    Attributes:
        rank: Its place, 1 the best.
        tied_with: Names of those it is not told apart from, in ranking order.
    """

    KEYS: ClassVar[tuple[str, ...]] = ("rank", *Estimate.__struct_fields__, "tied_with")
    rank: int
    tied_with: tuple[str, ...] = ()


class SetAside(Estimate, frozen=True, kw_only=True):
    """A model that failed and is not ranked; where nothing was estimated its numbers are NaN.

    Attributes:
        reason: Why.
    """

    reason: str

    def __post_init__(self) -> None:
        """Keep the reason without secrets: it quotes what a server said."""
        force_setattr(self, "reason", hide(self.reason))


class PairVerdict(_Record, frozen=True, kw_only=True):
    """What is known of two models.

    Attributes:
        a: Name of the one.
        b: Name of the other.
        p_a_better: Probability that the full score of ``a`` is better.
        verdict: Which is better, if that is decided.
        required: Whether the run had to decide it.
        note: What the verdict rests on that it should not, "" where nothing does.
    """

    a: str
    b: str
    p_a_better: float
    verdict: Verdict
    required: bool = True
    note: str = ""

    def plain(self) -> dict[str, Any]:
        """The record as JSON holds it; most have no note."""
        found = super().plain()
        if not self.note:
            del found["note"]
        return found

    @property
    def decided(self) -> bool:
        """Whether one is better."""
        return self.verdict in DECIDED

    @property
    def winner_and_loser(self) -> tuple[str, str]:
        """The better one and the other, of a decided pair."""
        return (self.a, self.b) if self.verdict == "a" else (self.b, self.a)


class TraceStep(_Record, frozen=True, kw_only=True):
    """An answer and what was believed of its model after its round.

    Attributes:
        step: Its number, from 1.
        round: Its round's.
        model: Who answered.
        doc_id: What.
        raw_score: The metric's value; None where the document is left out.
        score: In [0, 1]; None likewise.
        ability: The latent level then, logits.
        ability_se: Its standard error.
        estimate: Estimated full score then; None in files of before it was recorded.
        estimate_half: Half of its 95 % interval; None likewise.
    """

    step: int
    round: int
    model: str
    doc_id: int
    raw_score: float | None
    score: float | None
    ability: float
    ability_se: float
    estimate: float | None = None
    estimate_half: float | None = None


class Excluded(_Record, frozen=True, kw_only=True):
    """A document that counts for no model, and why."""

    doc_id: int
    reason: str

    def __post_init__(self) -> None:
        """Keep the reason without secrets."""
        force_setattr(self, "reason", hide(self.reason))


class BankStamp(_Record, frozen=True, kw_only=True):
    """Which bank a ranking was made with; what a journal alone does not tell is empty.

    Attributes:
        path: Name of its file.
        sha256: Its hash, :data:`NO_BANK` where the run had none.
        items: Its items.
        response_model: By which its items were taken.
        range: The metric's least and greatest value.
        models: Names of the models it was calibrated on.
    """

    path: str = ""
    sha256: str = ""
    items: int = 0
    response_model: str = ""
    range: tuple[float, float] = (float("-inf"), float("inf"))
    models: tuple[str, ...] = ()

    @property
    def exists(self) -> bool:
        """Whether the run had a bank."""
        return self.sha256 != NO_BANK


class Recipe(_Record, frozen=True, kw_only=True):
    """The options of a run as the user chose them; keys are the options' own.

    Attributes:
        adaptive: Those of the ranking.
        models: Those of each model.
    """

    adaptive: dict[str, Any] = {}
    models: tuple[dict[str, Any], ...] = ()

    def __post_init__(self) -> None:
        """Keep the options without secrets."""
        force_setattr(self, "models", redact(self.models))

    @property
    def confidence(self) -> float:
        """Level at which a pair counts as decided."""
        return float(self.adaptive["confidence"])

    @property
    def correction(self) -> str:
        """How the level is shared among pairs."""
        return str(self.adaptive.get("correction", "none"))

    @property
    def names(self) -> list[str]:
        """Names of the models that were to be asked."""
        return [str(spec["name"]) for spec in self.models]


class MetricRanking(_Record, frozen=True, kw_only=True):
    """A ranking by one metric: what differs between the metrics of a run.

    Attributes:
        metric: The metric.
        filter: The filter that its answers went through.
        higher_is_better: Its direction; None where only the journal is known.
        bank: The bank.
        signature: What has to be equal for the same ranking to come out again.
        ranking: Models, best first; empty where nothing was estimated.
        set_aside: Models that failed.
        pairs: Verdicts on pairs.
        stop_reason: Why it was over, "" while it is not.
        items_total: Items asked of all models.
        items_full: Items a full run asks.
        fraction: The one divided by the other.
        cost_total: What was spent.
        cost_full: What a full run costs.
        excluded: Documents that count for nobody.
        warnings: What to know before trusting the numbers.
        trace: Every answer, in order.
        score_of: What scores are of, where it is less than the task: "the 100 documents in the
            bank"; a file has it only then.
        doubts: What speaks against the bank: ``alarm`` where the models do not bear it out, and
            settings in which prompts differ from its own; a file has it only then.
    """

    metric: str
    filter: str = "none"
    higher_is_better: bool | None
    bank: BankStamp = BankStamp()
    signature: str
    ranking: tuple[Entry, ...]
    set_aside: tuple[SetAside, ...] = ()
    pairs: tuple[PairVerdict, ...]
    stop_reason: str
    items_total: int
    items_full: int
    fraction: float
    cost_total: float
    cost_full: float
    excluded: tuple[Excluded, ...] = ()
    warnings: tuple[str, ...] = ()
    trace: tuple[TraceStep, ...] = ()
    score_of: str = ""
    doubts: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        """The ranking as JSON holds it."""
        found = super().plain()
        return _without_whole(found)

    @property
    def whole(self) -> str:
        """What scores are of, in words."""
        return self.score_of or "the whole benchmark"

    def __post_init__(self) -> None:
        """Keep the warnings without secrets."""
        force_setattr(self, "warnings", tuple(map(hide, self.warnings)))

    @property
    def names(self) -> list[str]:
        """Names of the ranked models, best first."""
        return [entry.model for entry in self.ranking]

    def entry_of(self, model: str) -> Entry | SetAside:
        """A model's entry, ranked or set aside."""
        held: tuple[Entry | SetAside, ...] = (*self.ranking, *self.set_aside)
        return next(each for each in held if each.model == model)


class RankingDocument(MetricRanking, frozen=True, kw_only=True):
    """A ranking file.

    Attributes:
        schema: Version of its shape.
        task: The task.
        config: The run's options.
        versions: Of the tools that made it.
        rankings: With several metrics, the ranking by each; the first is the document's own.
        date: When it was written, "" where it was not.
    """

    schema: int = SCHEMA
    task: str
    config: Recipe
    versions: dict[str, str] = {}
    rankings: dict[str, MetricRanking] = {}
    date: str = ""

    def plain(self) -> dict[str, Any]:
        """The document as JSON holds it."""
        found = {key: _plain(getattr(self, key)) for key in _DOCUMENT_KEYS}
        found = _without_whole(found)
        if self.rankings:
            found["rankings"] = {key: each.plain() for key, each in self.rankings.items()}
        if self.date:
            found["date"] = self.date
        return found

    @property
    def further(self) -> list[RankingDocument]:
        """With several metrics, the document of each after the first."""
        fields = MetricRanking.__struct_fields__
        return [
            replace(self, **{name: getattr(each, name) for name in fields})
            for each in list(self.rankings.values())[1:]
        ]


def _without_whole(found: dict[str, Any]) -> dict[str, Any]:
    """Scores of the whole task need no word, nor does a bank that nothing speaks against."""
    rare = ("score_of", "doubts")
    return {key: value for key, value in found.items() if key not in rare or value}


_DOCUMENT_KEYS = (
    "schema", "task", "metric", "filter", "score_of", "higher_is_better", "bank", "config",
    "signature", "versions", "ranking", "set_aside", "pairs", "stop_reason", "items_total",
    "items_full", "fraction", "cost_total", "cost_full", "excluded", "warnings", "doubts",
    "trace",
)  # fmt: skip


class SummaryRow(_Record, frozen=True, kw_only=True):
    """A model over several tasks.

    Attributes:
        model: Its name.
        mean_rank: Mean of its ranks.
        mean_z: Mean of its standardised scores.
        mean_z_se: The standard error of that.
        tasks: On how many tasks it was ranked.
    """

    model: str
    mean_rank: float
    mean_z: float
    mean_z_se: float
    tasks: int


class SummaryDocument(_Record, frozen=True, kw_only=True):
    """A summary file; it is written with its date.

    Attributes:
        schema: Version of its shape.
        tasks: The tasks.
        summary: A row per model, best mean z first.
        date: When it was written.
    """

    schema: int = SCHEMA
    tasks: tuple[str, ...]
    summary: tuple[SummaryRow, ...]
    date: str = ""


def write_document(path: Path, document: RankingDocument | SummaryDocument) -> None:
    """Write a ranking or a summary; no half-written file is ever seen."""
    write_aside(path, json_bytes(finite(document.plain()), indent=2) + b"\n")


def read_ranking(path: Path) -> RankingDocument:
    """The ranking that a file holds.

    Raises:
        DataError: It cannot be read, is no ranking file, or is of another schema.
    """
    try:
        data = json.loads(path.read_bytes().decode("utf-8", "surrogatepass"))
    except (ValueError, OSError, RecursionError) as error:
        raise DataError(
            f"{path} is no readable ranking file ({error}); restore it, or write it again with "
            f"--resume {path.parent}"
        ) from error
    if not isinstance(data, dict) or "ranking" not in data or "task" not in data:
        raise DataError(f"{path} is JSON but no ranking file; give a ranking_*.json of a run")
    if data.get("schema") != SCHEMA:
        raise DataError(
            f"{path} has schema {data.get('schema')}, this version reads schema {SCHEMA}; use the "
            "version that wrote it"
        )
    try:
        return ranking_from(data)
    except msgspec.ValidationError as error:
        raise DataError(
            f"{path} is a damaged ranking file ({error}); restore it, or write it again with "
            f"--resume {path.parent}"
        ) from error


def ranking_from(data: Mapping[str, Any]) -> RankingDocument:
    """A ranking from plain data, as ``simple_evaluate`` gives it.

    Raises:
        msgspec.ValidationError: A value is missing or of the wrong type; the text says where.
    """
    return msgspec.convert(_numbered(data), RankingDocument)


# Numbers that are NaN where nothing was estimated; a file has null for them.
_UNKNOWN = frozenset(
    {"score", "score_se", "score_ci", "ability", "ability_se", "cost", "cost_total", "cost_full"}
)


def _numbered(value: Any) -> Any:
    """Plain data in which numbers that nobody knows are NaN again."""
    if isinstance(value, list | tuple):
        return [_numbered(each) for each in value]
    if not isinstance(value, Mapping):
        return value
    found = {key: _numbered(each) for key, each in value.items()}
    if "raw_score" in found:  # a step of the trace: null is a document that was left out
        return found
    for key in _UNKNOWN & found.keys():
        if found[key] is None or found[key] == [None, None]:
            found[key] = [math.nan, math.nan] if key == "score_ci" else math.nan
    return found
