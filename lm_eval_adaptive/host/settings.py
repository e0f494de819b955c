"""What the user asks of the harness: the models to be ranked and the harness's own options.

This module owns both as validated, frozen records, and the rules that go with them: how a
candidate is named when nobody names it, what its answers cost, which of the run's options are its
own. Nothing is loaded here.
"""

from __future__ import annotations

import os
import re
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import UsageError
from lm_eval_adaptive.redact import hide, remember

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
        resources: With ``--executor ray``: what one replica takes of a node, ``{num_gpus: 2}``;
            empty for one GPU where it is a local back end and the cluster has GPUs.
        replicas: With ``--executor ray``: how many share its documents, or ``auto``.
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
    resources: dict[str, float] = field(default_factory=dict)
    replicas: int | str = 1

    def choices(self) -> dict[str, Any]:
        """What decides its answers and their cost, for files; not where it lives."""
        found = asdict(self)
        found.pop("resources")
        found.pop("replicas")
        return found


@dataclass(frozen=True)
class HarnessSettings:
    """The harness's own options that an adaptive run honours, under the harness's names.

    Attributes: as in ``lm_eval.simple_evaluate`` and ``lm-eval run --help``; ``generation_only`` is
    this package's: tasks that generate no text are left out instead of refused.
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
    trust_remote_code: bool = False
    wandb_args: dict[str, Any] = field(default_factory=dict)
    wandb_config_args: dict[str, Any] = field(default_factory=dict)
    trackio_args: dict[str, Any] = field(default_factory=dict)
    hf_hub_log_args: dict[str, Any] = field(default_factory=dict)
    generation_only: bool = False


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
    return tuple(found[name] for name in sorted(found))


def _candidate(entry: Mapping[str, Any], where: str) -> CandidateSpec:
    data = {key: value for key, value in entry.items() if value is not None}
    data["model"] = str(data.get("model", "hf"))
    for key in ("model_args", "gen_kwargs"):
        data[key] = parse_mapping(data.get(key), f"{where}, {key}")
    remember([data["model_args"], data["gen_kwargs"]])
    # A name stands in every file, and in names of folders.
    data["name"] = hide(str(data.get("name") or derive_name(data["model"], data["model_args"])))
    data["cost"] = parse_cost(data.get("cost", 1.0), where)
    data["resources"] = parse_resources(data.get("resources", {}), where)
    data["replicas"] = parse_replicas(data.get("replicas", 1), where)
    return CandidateSpec(**data)


def parse_resources(value: object, where: str) -> dict[str, float]:
    """What one replica takes of a node: ``num_gpus``, ``num_cpus``, or a resource of the cluster's.

    >>> parse_resources({"num_gpus": 2}, "here")
    {'num_gpus': 2.0}
    """
    try:
        found = {str(key): float(amount) for key, amount in value.items()}  # type: ignore[attr-defined]
    except (AttributeError, TypeError, ValueError) as error:
        raise UsageError(
            f"{where}: resources must be amounts by name, such as {{num_gpus: 2}}; got {value!r}"
        ) from error
    for key, amount in found.items():
        if not 0.0 <= amount < float("inf"):
            raise UsageError(f"{where}: resources: {key} must be at least 0, got {amount:g}")
        if key == "num_gpus" and amount > 1 and amount != int(amount):
            raise UsageError(
                f"{where}: resources: num_gpus above 1 must be whole, got {amount:g}; a part of a "
                "GPU is below 1"
            )
    return found


def parse_replicas(value: object, where: str) -> int | str:
    """How many replicas: a whole number above 0, or ``auto``.

    >>> parse_replicas("4", "here")
    4
    """
    if value == "auto":
        return "auto"
    if isinstance(value, bool) or not str(value).isdecimal() or int(str(value)) < 1:
        raise UsageError(
            f"{where}: replicas must be a whole number above 0, or auto; got {value!r}"
        )
    return int(str(value))


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


def shared_model_args(specs: Sequence[CandidateSpec]) -> dict[str, Any]:
    """Model arguments that all models have alike: the harness tells tasks of them as metadata.

    A task whose documents depend on the model (RULER cuts them by its tokenizer) has the plain
    run's where the models agree; where they do not, ``--metadata`` says what holds for all.
    """
    first, *others = [spec.model_args for spec in specs]
    return {
        key: value
        for key, value in first.items()
        if all(key in each and each[key] == value for each in others)
    }


def hub_arguments(settings: HarnessSettings) -> dict[str, Any]:
    """``--hf_hub_log_args`` with the token of the environment, as the harness's command has it."""
    given = dict(settings.hf_hub_log_args)
    token = os.environ.get("HF_TOKEN")
    if token and (given.get("push_results_to_hub") or given.get("push_samples_to_hub")):
        given.setdefault("token", token)
    return given


def folder_name(name: str) -> str:
    """The harness's folder for a model's name."""
    return re.sub(r"[\"<>:/\|\\?\*\[\]]+", "__", name)


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
