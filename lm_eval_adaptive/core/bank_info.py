"""What a bank was made for, from what, and what it learned: its information block.

This module owns that record and its form in the bank's file, with one writer and one reader; it
imports the scale, the correction, the names of the response models and the readers of JSON.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from lm_eval_adaptive.core.correction import correction_from_fields, correction_to_json
from lm_eval_adaptive.core.fields import Fields
from lm_eval_adaptive.core.response import RESPONSE_MODELS, needed_parameters
from lm_eval_adaptive.core.scale import ScoreScale
from lm_eval_adaptive.errors import DataError

if TYPE_CHECKING:
    from lm_eval_adaptive.core.correction import Correction
    from lm_eval_adaptive.core.fields import Json
    from lm_eval_adaptive.core.response import ResponseModelName

SCHEMA = 1
SELECTORS = ("draw", "fisher", "random")


@dataclass(frozen=True)
class CalibrationModel:
    """A model whose scores calibrated the bank.

    Attributes:
        name: The model's name.
        theta: Its ability, logits.
        mean_score: Its mean score over the bank's items, in [0, 1].
        mean_raw: The same in the metric's units.
        n_scores: Items it was scored on.
    """

    name: str
    theta: float
    mean_score: float
    mean_raw: float
    n_scores: int


@dataclass(frozen=True)
class Source:
    """A file that scores came from.

    Attributes:
        file: Its name.
        sha256: Its hash.
    """

    file: str
    sha256: str


@dataclass(frozen=True)
class Update:
    """Models that were added to a bank.

    Attributes:
        bank_sha256: Hash of the bank that they were added to.
        date: When.
        models: Their names.
    """

    bank_sha256: str
    date: str
    models: tuple[str, ...]


@dataclass(frozen=True)
class Provenance:
    """What made a bank, and from what.

    Attributes:
        date: When, year-month-day.
        lm_eval: Version of the harness.
        lm_eval_adaptive: Version of this package.
        sources: The files its scores came from.
        updates: Models that were added later, in the order they were.
    """

    date: str = ""
    lm_eval: str = ""
    lm_eval_adaptive: str = ""
    sources: tuple[Source, ...] = ()
    updates: tuple[Update, ...] = ()


@dataclass(frozen=True)
class PromptFacts:
    """What prompts have in common besides their examples; a run's own, or all calibration runs'.

    Texts stand as hashes, "" where there is none; None where they differ or are not known.

    Attributes:
        system_instruction: The system prompt.
        description: The task's description, as its configuration has it.
        doc_to_text: What makes the document's own part, as the configuration has it.
        chat_template: Whether a chat template was applied.
    """

    system_instruction: str | None = None
    description: str | None = None
    doc_to_text: str | None = None
    chat_template: bool | None = None


@dataclass(frozen=True)
class BankInfo:
    """What a bank was made for, and from what.

    Attributes:
        task: Harness task name.
        metric: Metric name as in ``process_results``.
        filter: Filter name the scores belong to.
        scale: Range and direction of the metric.
        range_source: ``declared`` by the task or the user, or ``observed`` in the calibration
            scores.
        response_model: Name of the response model.
        parameters: Its global parameters.
        models: The calibration models.
        task_version: ``metadata.version`` of the task, as text.
        dataset_path: The task's dataset, as the harness names it.
        dataset_name: Its configuration.
        split: The split the documents come from.
        num_fewshot: Few-shot examples in the calibration prompts, None when not known.
        prompts: What else all calibration prompts have in common.
        correction: Cross-validated correction of the confidence; None when there is none.
        selector: How items are chosen where the user does not say: ``draw``, ``random``, or
            ``fisher`` under ``paper-1pl`` and in banks of the first versions.
        provenance: What made it, from which files; None when that was not told.
        clipped: Share of calibration scores outside the range.
        licence: A note on what the scores were made from.
        notices: What calibration had to say.
    """

    task: str
    metric: str
    filter: str
    scale: ScoreScale
    range_source: str
    response_model: ResponseModelName
    parameters: dict[str, float]
    models: tuple[CalibrationModel, ...]
    task_version: str = ""
    dataset_path: str = ""
    dataset_name: str = ""
    split: str = ""
    num_fewshot: int | None = None
    prompts: PromptFacts = PromptFacts()
    correction: Correction | None = None
    selector: str = "fisher"
    provenance: Provenance | None = None
    clipped: float = 0.0
    licence: str = ""
    notices: tuple[str, ...] = ()


def info_to_json(info: BankInfo) -> dict[str, Json]:
    """A bank's information as it stands in its file, without the file's schema."""
    plain: dict[str, Json] = {
        **asdict(info),
        "correction": correction_to_json(info.correction),
        "provenance": provenance_to_json(info.provenance),
        "prompts": asdict(info.prompts),
        "models": [asdict(model) for model in info.models],
        "notices": list(info.notices),
    }
    return plain


def provenance_to_json(provenance: Provenance | None) -> dict[str, Json]:
    """Where a bank comes from as it stands in its file; what was not told is left out."""
    if provenance is None:
        return {}
    plain: dict[str, Json] = {
        "date": provenance.date,
        "lm_eval": provenance.lm_eval,
        "lm_eval_adaptive": provenance.lm_eval_adaptive,
        "sources": [asdict(each) for each in provenance.sources],
        "updates": [{**asdict(each), "models": list(each.models)} for each in provenance.updates],
    }
    return {name: value for name, value in plain.items() if value}


def info_from_json(value: Json) -> BankInfo:
    """Read what :func:`info_to_json` wrote, and the schema that the file put beside it.

    Raises:
        DataError: A field is missing, of another type, or of no meaning; its name and value are
            told.
    """
    fields = Fields(value)
    name = fields.text("response_model")
    if name not in RESPONSE_MODELS:
        raise DataError(
            f"the response model {name!r} is none that this version knows: "
            f"{', '.join(RESPONSE_MODELS)}"
        )
    model: ResponseModelName = name
    selector = fields.text("selector", "fisher")
    if selector not in SELECTORS:
        raise DataError(f"the selector {selector!r}, expected {' or '.join(SELECTORS)}")
    scale = fields.object("scale")
    return BankInfo(
        task=fields.text("task"),
        metric=fields.text("metric"),
        filter=fields.text("filter"),
        scale=ScoreScale(
            scale.number("lo"),
            scale.number("hi"),
            scale.flag("higher_is_better", default=True),
        ),
        range_source=fields.text("range_source"),
        response_model=model,
        parameters=_parameters(fields, model),
        models=tuple(
            CalibrationModel(
                name=each.text("name"),
                theta=each.number("theta"),
                mean_score=each.number("mean_score"),
                mean_raw=each.number("mean_raw"),
                n_scores=each.integer("n_scores"),
            )
            for each in fields.objects("models")
        ),
        task_version=fields.text("task_version", ""),
        dataset_path=fields.text("dataset_path", ""),
        dataset_name=fields.text("dataset_name", ""),
        split=fields.text("split", ""),
        num_fewshot=None if fields.is_null("num_fewshot") else fields.integer("num_fewshot"),
        prompts=_prompts(fields.object("prompts")),
        correction=correction_from_fields(fields.object("correction")),
        selector=selector,
        provenance=_provenance(fields.object("provenance")),
        clipped=fields.number("clipped", 0.0),
        licence=fields.text("licence", ""),
        notices=fields.texts("notices"),
    )


def _parameters(fields: Fields, model: ResponseModelName) -> dict[str, float]:
    """The global parameters, all that the response model needs among them."""
    found = fields.object("parameters")
    try:
        return {name: found.number(name) for name in sorted({*needed_parameters(model), *found})}
    except DataError as error:
        raise DataError(f"a global parameter: {error}") from error


def _prompts(fields: Fields) -> PromptFacts:
    def text(name: str) -> str | None:
        return None if fields.is_null(name) else fields.text(name)

    return PromptFacts(
        system_instruction=text("system_instruction"),
        description=text("description"),
        doc_to_text=text("doc_to_text"),
        chat_template=None if fields.is_null("chat_template") else fields.flag("chat_template"),
    )


def _provenance(fields: Fields) -> Provenance | None:
    if not len(fields):
        return None
    return Provenance(
        date=fields.text("date", ""),
        lm_eval=fields.text("lm_eval", ""),
        lm_eval_adaptive=fields.text("lm_eval_adaptive", ""),
        sources=tuple(
            Source(each.text("file"), each.text("sha256")) for each in fields.objects("sources")
        ),
        updates=tuple(
            Update(each.text("bank_sha256"), each.text("date"), each.texts("models"))
            for each in fields.objects("updates")
        ),
    )
