"""From a command line, and a ``--config`` file, to what a run takes.

This module owns the reading of ``run --adaptive``: which options are ours and which the harness's,
the candidates, the banks. It imports the options' classes inside functions.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.cli.run_options import CANDIDATES
from lm_eval_adaptive.errors import UsageError

if TYPE_CHECKING:
    from lm_eval_adaptive.host.settings import CandidateSpec, HarnessSettings
    from lm_eval_adaptive.run.config import AdaptiveConfig

# Options of the harness that would change which documents are asked, with the reason to refuse.
_REFUSED = {
    "limit": "it cuts the documents an adaptive run chooses from; use --max_items",
    "samples": "it fixes the documents that an adaptive run chooses; use plain lm-eval for that",
    "predict_only": "an adaptive run needs every answer's score to choose the next document",
    "cache_requests": (
        "the harness's request cache does not know which documents were chosen and would serve "
        "wrong prompts; use --use_cache, which caches answers"
    ),
    "check_integrity": "it tests the harness's own checkout; use `validate`",
}


@dataclass(frozen=True)
class Request:
    """What a run was asked for.

    Attributes:
        candidates: The models, sorted by name.
        settings: The harness's options.
        adaptive: The adaptive options.
    """

    candidates: tuple[CandidateSpec, ...]
    settings: HarnessSettings
    adaptive: AdaptiveConfig


def read_request(namespace: argparse.Namespace) -> Request:
    """What a command line asks for.

    Raises:
        UsageError: Something in it is wrong.
    """
    options, harness = _split(namespace)
    settings = _harness_settings(namespace, harness)
    return Request(_read_candidates(namespace, options), settings, _adaptive_config(options))


def own_keys() -> set[str]:
    """Names of the options that the harness does not know."""
    from lm_eval_adaptive.run.config import AdaptiveConfig

    return {each.name for each in fields(AdaptiveConfig)} | {
        "adaptive",
        "models",
        "model_name",
        "model_cost",
        "resume",
        CANDIDATES,
    }


def config_says_adaptive(namespace: argparse.Namespace) -> bool:
    """Whether the ``--config`` file asks for an adaptive run."""
    path = getattr(namespace, "config", None)
    if not path or not Path(path).is_file():
        return False
    data = _load_config(Path(path))
    return bool(data.get("adaptive"))


def _load_config(path: Path) -> dict[str, Any]:
    data = load_yaml(path)
    if not isinstance(data, dict):
        raise UsageError(
            f"--config {path}: expected a mapping of options, got {type(data).__name__}"
        )
    return data


def _split(namespace: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """Our options, and the harness's, from the command line over a ``--config`` file."""
    own = own_keys()
    options: dict[str, Any] = {}
    harness: dict[str, Any] = {}
    path = getattr(namespace, "config", None)
    if path:
        data = _load_config(Path(path))
        _refuse_unknown(data, own, path)
        for key, value in data.items():
            (options if key in own else harness)[key] = value
    options.update({key: value for key, value in vars(namespace).items() if key in own})
    return options, harness


def _refuse_unknown(data: dict[str, Any], own: set[str], path: str) -> None:
    """Refuse keys of a ``--config`` file that no option bears.

    Raises:
        UsageError: There are some; those near one are told.
    """
    import difflib

    from lm_eval.config.evaluate_config import EvaluatorConfig

    known = sorted((own - {CANDIDATES}) | {each.name for each in fields(EvaluatorConfig)})
    for key in data:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else "the options of `run` are"
            rest = "" if near else f" {', '.join(known)}"
            raise UsageError(f"--config {path}: there is no option {key!r}; {hint}{rest}")


def _harness_settings(namespace: argparse.Namespace, from_file: dict[str, Any]) -> HarnessSettings:
    """The harness's options as it would read them itself."""
    import tempfile

    import yaml
    from lm_eval.config.evaluate_config import EvaluatorConfig

    from lm_eval_adaptive.host.settings import HarnessSettings

    for name, reason in _REFUSED.items():
        given = (getattr(namespace, name, None), from_file.get(name))
        if any(value is not None and value is not False for value in given):
            raise UsageError(f"--{name} does not go with --adaptive: {reason}")
    plain = argparse.Namespace(
        **{key: value for key, value in vars(namespace).items() if key not in own_keys()}
    )
    plain.model = plain.model_args = None  # candidates are read elsewhere
    from_file = {
        key: value for key, value in from_file.items() if key not in ("model", "model_args")
    }
    plain.config = None
    with tempfile.TemporaryDirectory() as folder:
        if from_file:
            plain.config = str(Path(folder) / "config.yaml")
            Path(plain.config).write_text(yaml.safe_dump(from_file), encoding="utf-8")
        if not getattr(plain, "output_path", None) and not from_file.get("output_path"):
            plain.log_samples = False  # an adaptive run writes samples anyway, and picks a folder
        try:
            with _silent_stdout():
                config = EvaluatorConfig.from_cli(plain)
        except (ValueError, TypeError, FileNotFoundError) as error:
            raise UsageError(" ".join(str(error).split())) from error
    tasks = config.tasks.split(",") if isinstance(config.tasks, str) else list(config.tasks)
    known = {each.name for each in fields(HarnessSettings)} - {"tasks", "seed"}
    values = {name: getattr(config, name) for name in known}
    if getattr(namespace, "device", None) is None and "device" not in from_file:
        values["device"] = config.device
    seeds = tuple(config.seed) if config.seed else (None,) * 4
    _check_numbers(config.batch_size, config.num_fewshot)
    for each in seeds:
        if each is not None and not 0 <= int(each) < 2**32:
            raise UsageError(f"--seed takes whole numbers from 0 to {2**32 - 1}, got {each}")
    return HarnessSettings(tasks=tuple(tasks), seed=seeds, **values)


def _check_numbers(batch_size: Any, num_fewshot: Any) -> None:
    """Refuse what a back end would stumble over after it is loaded."""
    size = str(batch_size)
    whole = size.isdecimal() and int(size) > 0
    if batch_size is not None and not whole and not re.fullmatch(r"auto(:\d+(\.\d+)?)?", size):
        raise UsageError(
            f"--batch_size must be a whole number above 0, auto or auto:N, got {batch_size!r}"
        )
    if num_fewshot is not None and num_fewshot < 0:
        raise UsageError(f"--num_fewshot must be 0 or more, got {num_fewshot}")


class _silent_stdout:  # noqa: N801  used as a with-statement
    """The harness prints its whole configuration when a file is read."""

    def __enter__(self) -> None:
        self._stdout = sys.stdout
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")

    def __exit__(self, *_: object) -> None:
        sys.stdout.close()
        sys.stdout = self._stdout


def _read_candidates(
    namespace: argparse.Namespace, options: dict[str, Any]
) -> tuple[CandidateSpec, ...]:
    from lm_eval_adaptive.host.settings import make_candidates

    opened = [dict(each) for each in options.get(CANDIDATES, [])]
    everywhere = namespace.model_args or {}
    if len(opened) == 1:
        opened[0]["model_args"] = dict(everywhere)  # --model_args may stand before its --model
    listed = options.get("models")
    placed = {key for each in opened for key in each.get("model_args", {})}
    early = [key for key in everywhere if key not in placed]
    if early and (len(opened) > 1 or listed is not None):
        raise UsageError(
            f"--model_args {early[0]}=… belongs to the --model before it, and there is none; write "
            "--model M --model_args … for each"
        )
    if not opened and everywhere:
        opened = [{"model": "hf", "model_args": everywhere}]
    where = "the command line"
    if isinstance(listed, str):
        where = f"--models {listed}"
        listed = load_yaml(Path(listed))
        if isinstance(listed, dict) and "models" in listed:
            listed = listed["models"]
    elif listed is not None:
        where = f"models: in --config {namespace.config}"
    if listed is None:
        return make_candidates(opened, where)
    if not isinstance(listed, list):
        raise UsageError(f"{where}: expected a list of models, got {type(listed).__name__}")
    return make_candidates([*listed, *opened], where)


def _adaptive_config(options: dict[str, Any]) -> AdaptiveConfig:
    from lm_eval_adaptive.run.config import AdaptiveConfig

    values = {
        each.name: options[each.name] for each in fields(AdaptiveConfig) if each.name in options
    }
    size = values.get("round_size")
    if isinstance(size, str) and size != "auto":
        if not size.isdecimal():
            raise UsageError(f"--round_size must be auto or a whole number, got {size!r}")
        values["round_size"] = int(size)
    if isinstance(values.get("bank"), str):
        values["bank"] = [values["bank"]]  # PATH or TASK=PATH: the run knows its tasks
    return AdaptiveConfig(**values)


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
    except (yaml.YAMLError, ValueError, OSError, RecursionError) as error:
        line = " ".join(str(error).split())
        raise UsageError(f"{path} is no valid YAML: {line}") from error
