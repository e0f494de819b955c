"""What the user asked for, validated once and frozen.

This module owns the options of an adaptive run and the list of candidates; it imports the core's
rules and yaml. Nothing is loaded here: banks, tasks and models are opened by the run.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from lm_eval_adaptive.core.ranker import DecisionRule
from lm_eval_adaptive.core.response import RESPONSE_MODELS
from lm_eval_adaptive.core.rules import ProcedureConfig
from lm_eval_adaptive.core.sampler import SAMPLERS
from lm_eval_adaptive.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lm_eval_adaptive.core.bank import ItemBank

DEFAULT_SEEDS: tuple[int | None, ...] = (0, 1234, 1234, 1234)


@dataclass(frozen=True)
class CandidateSpec:
    """One model to be ranked.

    Attributes:
        name: Its name in the ranking and its folder under the output path.
        model: The harness's model type, for example ``hf``.
        model_args: Arguments of that type.
        cost: Cost of one item, any unit, the same for all candidates; or prices of a million
            tokens, ``{input, output}``.
        gen_kwargs: Generation settings of its own; they update the run's.
        apply_chat_template: Its own setting; None takes the run's.
        system_instruction: Its own; None takes the run's.
        batch_size: Its own; None takes the run's.
        device: Its own; None takes the run's.
    """

    name: str
    model: str = "hf"
    model_args: dict[str, Any] = field(default_factory=dict)
    cost: float | dict[str, float] = 1.0
    gen_kwargs: dict[str, Any] = field(default_factory=dict)
    apply_chat_template: bool | str | None = None
    system_instruction: str | None = None
    batch_size: int | str | None = None
    device: str | None = None


@dataclass(frozen=True)
class AdaptiveConfig:
    """The options of ``run --adaptive``; see ``--help`` or README for each.

    Attributes:
        bank: Path of a bank for all tasks, or paths by ``TASK`` or ``TASK:METRIC``; None takes the
            task's own.
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
        sampler: ``fisher``, ``static`` or ``random``; ``auto`` is the bank's own choice.
        response_model: ``auto`` takes the bank's; another name refits the bank's scores.
        resident: Most local models in memory at once; None is as many as fit.
        range: Without a bank: the metric's lowest and highest value; None takes what is declared.
        stratify: Without a bank: column of the documents to spread the order over; None spreads it
            over their lengths.
    """

    bank: str | Path | Mapping[str, str | Path] | None = None
    against: Sequence[str] | str = ()
    metric: str | Sequence[str] | None = None
    confidence: float = 0.95
    correction: str = "none"
    equivalence: float = 0.0
    pairs: str = "adjacent"
    min_items: int = 10
    max_items: int | None = None
    budget: float | None = None
    budget_items: int | None = None
    items_per_model: int | None = None
    precision: float | None = None
    round_size: int | str = "auto"
    futility: float = 0.03
    sampler: str = "auto"
    response_model: str = "auto"
    resident: int | None = None
    range: tuple[float, float] | None = None
    stratify: str | None = None

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
        self.procedure(1.0, 1, 0)

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
        # A run by one of several metrics has that one alone.
        own = f"{task}:{self.metrics[0].partition(',')[0]}" if self.metrics else task
        return self.bank.get(own, self.bank.get(task))

    def choices(self) -> dict[str, Any]:
        """Options that change what is asked or concluded, for files; paths are left out."""
        found = asdict(self)
        found.pop("bank")
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
    if not low < high:
        raise UsageError(f"--range LO,HI needs LO below HI, got {low:g},{high:g}")
    return low, high


@dataclass(frozen=True)
class HarnessSettings:
    """The harness's own options that an adaptive run honours, under the harness's names.

    Attributes: as in ``lm_eval.simple_evaluate`` and ``lm-eval run --help``.
    """

    tasks: tuple[Any, ...] = ()
    num_fewshot: int | None = None
    batch_size: int | str | None = None
    max_batch_size: int | None = None
    device: str | None = None
    use_cache: str | None = None
    system_instruction: str | None = None
    apply_chat_template: bool | str = False
    fewshot_as_multiturn: bool | None = None
    gen_kwargs: dict[str, Any] = field(default_factory=dict)
    output_path: str | None = None
    include_path: Any = None
    seed: tuple[int | None, ...] = DEFAULT_SEEDS
    metadata: dict[str, Any] = field(default_factory=dict)
    write_out: bool = False
    show_config: bool = False
    confirm_run_unsafe_code: bool = False
    wandb_args: dict[str, Any] = field(default_factory=dict)
    wandb_config_args: dict[str, Any] = field(default_factory=dict)
    trackio_args: dict[str, Any] = field(default_factory=dict)
    hf_hub_log_args: dict[str, Any] = field(default_factory=dict)


_NAME_KEYS = ("peft", "delta", "pretrained", "model", "path", "engine", "samples")


def derive_name(model: str, model_args: Mapping[str, Any]) -> str:
    """A candidate's name where none was given: as the harness names its folder.

    >>> derive_name("hf", {"pretrained": "org/model"})
    'org/model'
    >>> derive_name("replay", {"samples": "logs/tiny/"})
    'tiny'
    """
    for key in _NAME_KEYS:
        if model_args.get(key):
            value = str(model_args[key])
            return Path(value).name if key == "samples" else value
    return model


def make_candidates(entries: Sequence[Mapping[str, Any]], where: str) -> tuple[CandidateSpec, ...]:
    """Validated candidates, sorted by name, so that the order of a command line changes nothing.

    Args:
        entries: Mappings with the fields of :class:`CandidateSpec`; ``name`` may be missing.
        where: Where they come from, for messages.

    Raises:
        UsageError: An entry has an unknown key or a wrong type, or two models share a name.
    """
    if not entries:
        raise UsageError(
            f"{where} names no model; give --model M --model_args …, or a list in --models"
        )
    known = {each.name for each in fields(CandidateSpec)}
    found: dict[str, CandidateSpec] = {}
    for number, entry in enumerate(entries, start=1):
        if not isinstance(entry, dict):
            raise UsageError(
                f"{where}, model {number}: expected a mapping with the keys "
                f"{', '.join(sorted(known))}; got {type(entry).__name__}"
            )
        unknown = sorted(set(entry) - known)
        if unknown:
            raise UsageError(
                f"{where}, model {number}: unknown key(s) {', '.join(map(repr, unknown))}; known "
                f"are {', '.join(sorted(known))}"
            )
        spec = _candidate(entry, f"{where}, model {number}")
        if spec.name in found:
            raise UsageError(
                f"{where}: two models are called {spec.name!r}; give each a name of its own with "
                "--model_name (or name: in a models file)"
            )
        found[spec.name] = spec
    folders: dict[str, str] = {}
    for name in found:
        folder = folder_name(name)
        if folder in folders:
            raise UsageError(
                f"{where}: the models {folders[folder]!r} and {name!r} would write to the same "
                f"folder {folder!r}; name one differently with --model_name"
            )
        folders[folder] = name
    return tuple(found[name] for name in sorted(found))


def _candidate(entry: Mapping[str, Any], where: str) -> CandidateSpec:
    data = {key: value for key, value in entry.items() if value is not None}
    data["model"] = str(data.get("model", "hf"))
    for key in ("model_args", "gen_kwargs"):
        data[key] = parse_mapping(data.get(key), f"{where}, {key}")
    data["name"] = str(data.get("name") or derive_name(data["model"], data["model_args"]))
    data["cost"] = parse_cost(data.get("cost", 1.0), where)
    return CandidateSpec(**data)


def parse_cost(value: object, where: str) -> float | dict[str, float]:
    """The price of one item, or prices of a million input and output tokens.

    >>> parse_cost("0.5,1.5", "here")
    {'input': 0.5, 'output': 1.5}
    """
    if isinstance(value, str) and "," in value:
        value = dict(zip(("input", "output"), value.split(","), strict=False))
    prices = value if isinstance(value, dict) else {"item": value}
    try:
        found = {str(key): float(price) for key, price in prices.items()}  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{where}: cost must be a number (of one item) or {{input: X, output: Y}} (of a "
            f"million tokens), got {value!r}"
        ) from error
    if "item" in found and len(found) == 1:
        if not 0.0 < found["item"] < float("inf"):
            raise UsageError(
                f"{where}: cost must be above 0, got {found['item']:g}; it is the price of one item"
            )
        return found["item"]
    wrong = set(found) != {"input", "output"} or min(found.values()) < 0.0
    if wrong or not 0.0 < sum(found.values()) < float("inf"):
        raise UsageError(
            f"{where}: token prices are {{input: X, output: Y}}, none negative and one above 0; "
            f"got {value!r}"
        )
    return found


def cost_of_tokens(
    cost: float | Mapping[str, float], input_tokens: Any, output_tokens: Any, repeats: int
) -> Any:
    """What answers cost: the item's price times its repeats, or the tokens' prices.

    Args:
        cost: As in :class:`CandidateSpec`.
        input_tokens: Tokens sent, of all repeats; a number or an array.
        output_tokens: Tokens received, of all repeats.
        repeats: Responses per document.
    """
    if isinstance(cost, int | float):
        return cost * repeats + 0.0 * input_tokens
    return (cost["input"] * input_tokens + cost["output"] * output_tokens) / 1e6


def parse_mapping(value: object, where: str) -> dict[str, Any]:
    """A mapping given as such, or as the harness's ``key=value,key2=value2`` text."""
    if value is None:
        return {}
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, str):
        from lm_eval._cli.utils import key_val_to_dict

        try:
            return dict(key_val_to_dict(value))
        except ValueError as error:
            raise UsageError(f"{where}: {error}; write key=value,key2=value2") from error
    raise UsageError(f"{where}: expected key=value pairs or a mapping, got {type(value).__name__}")


def folder_name(name: str) -> str:
    """The harness's folder for a model's name."""
    return re.sub(r"[\"<>:/\|\\?\*\[\]]+", "__", name)


def load_yaml(path: Path) -> Any:
    """Read a YAML file.

    Raises:
        UsageError: The file is missing or no YAML.
    """
    import yaml

    if not path.is_file():
        raise UsageError(f"no file {path}; expected a YAML file")
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        line = " ".join(str(error).split())
        raise UsageError(f"{path} is no valid YAML: {line}") from error


def effective(spec: CandidateSpec, settings: HarnessSettings) -> HarnessSettings:
    """The harness's settings as they hold for one candidate."""
    chat = (
        settings.apply_chat_template
        if spec.apply_chat_template is None
        else spec.apply_chat_template
    )
    multiturn = settings.fewshot_as_multiturn
    return replace(
        settings,
        gen_kwargs={**settings.gen_kwargs, **spec.gen_kwargs},
        apply_chat_template=chat,
        # The harness turns it on with a chat template unless told otherwise.
        fewshot_as_multiturn=bool(chat) if multiturn is None else bool(multiturn and chat),
        system_instruction=(
            settings.system_instruction
            if spec.system_instruction is None
            else spec.system_instruction
        ),
        batch_size=settings.batch_size if spec.batch_size is None else spec.batch_size,
        device=settings.device if spec.device is None else spec.device,
    )


def metric_and_filter(text: str) -> tuple[str, str | None]:
    """``NAME`` or ``NAME,FILTER`` taken apart."""
    name, _, filter_name = text.partition(",")
    return name.strip(), filter_name.strip() or None


def signature(parts: Mapping[str, Any]) -> str:
    """A run's recipe on one line, in the manner of sacrebleu's signatures.

    >>> signature({"task": "t", "conf": 0.95})
    'task:t|conf:0.95'
    """
    return "|".join(f"{key}:{value}" for key, value in parts.items())


def bank_signature(bank: ItemBank) -> str:
    """The first digits of a bank's hash."""
    return bank.sha256[:12] or "unsaved"
