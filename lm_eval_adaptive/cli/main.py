"""The command line: a superset of ``lm-eval``.

This module owns what commands do and exit codes; it wraps the harness's own parser, takes the
options from ``options``, and imports everything heavy inside functions, so that ``--help`` is
quick. Without ``--adaptive`` a ``run`` is handed to the harness as it stands.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.cli import init_task
from lm_eval_adaptive.cli.options import (
    CANDIDATES,
    add_bank,
    add_calibrate,
    add_report,
    add_run_options,
)
from lm_eval_adaptive.errors import AdaptiveError, Interrupted, ModelError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lm_eval_adaptive.core.bank import ItemBank

PROGRAM = "lm-eval-adaptive"

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


def build_parser() -> tuple[argparse.ArgumentParser, Any]:
    """The harness's parser with this package's options and commands added.

    Returns:
        The parser, and the object that holds its subcommands.
    """
    from lm_eval._cli import HarnessCLI

    from lm_eval_adaptive.cli import simulate as simulate_cli

    harness = HarnessCLI()
    parser: argparse.ArgumentParser = harness._parser  # noqa: SLF001  no plugin hook in 0.4.x
    subparsers = harness._subparsers  # noqa: SLF001
    parser.prog = PROGRAM
    parser.description = (
        "Language Model Evaluation Harness, with adaptive ranking of several models "
        "(run --adaptive), calibration (calibrate) and item banks (bank)"
    )
    add_run_options(subparsers.choices["run"])
    add_calibrate(subparsers).set_defaults(func=_calibrate)
    for bank_parser, command in zip(add_bank(subparsers), (_bank_show, _bank_check), strict=True):
        bank_parser.set_defaults(func=command)
    add_report(subparsers).set_defaults(func=_report)
    init_task.add_parser(subparsers)
    simulate_cli.add_parser(subparsers)
    return parser, subparsers


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line.

    Args:
        argv: Arguments without the program's name; those of the process when None.

    Returns:
        The exit code: 0 finished, 1 a model or the harness failed, 2 the user's mistake, 130
        interrupted.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser, subparsers = build_parser()
    # As the harness does: a line without a command is a run.
    if len(arguments) > 1 and arguments[0] not in subparsers.choices:
        arguments.insert(0, "run")
    elif arguments == ["run"]:
        subparsers.choices["run"].print_help()
        return 0
    try:
        namespace = parser.parse_args(arguments)
        return _execute(namespace, arguments)
    except AdaptiveError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"{PROGRAM}: interrupted before anything was asked", file=sys.stderr)
        return Interrupted.exit_code


def _execute(namespace: argparse.Namespace, arguments: list[str]) -> int:
    from lm_eval.utils import setup_logging

    command = getattr(namespace, "command", None)
    if command != "run":
        if command in ("ls", "validate"):
            from lm_eval_adaptive.host.registries import register_all

            setup_logging()
            register_all()
            _with_own_tasks(namespace)
        found = namespace.func(namespace)
        if command == "ls" and namespace.what in ("tasks", "subtasks"):
            _list_banks(namespace.include_path[1:])
        return int(found or 0)
    if getattr(namespace, "adaptive", False) or _config_says_adaptive(namespace):
        return _run_adaptive(namespace, arguments)
    return _run_plain(namespace)


def _list_banks(include_path: list[str]) -> None:
    from lm_eval_adaptive.banks.find import named_banks

    print("Item banks, for run --adaptive:")
    for task, metric, bank in named_banks(include_path):
        missing = isinstance(bank, Path) and not bank.is_file()
        print(f"  {task}: {bank} ({metric}){' (file is missing)' if missing else ''}")


def _own_keys() -> set[str]:
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


def _with_own_tasks(namespace: argparse.Namespace) -> None:
    from lm_eval_adaptive.host.find_tasks import include_paths

    namespace.include_path = include_paths(getattr(namespace, "include_path", None))


def _run_plain(namespace: argparse.Namespace) -> int:
    """Exactly the harness's own run, with this package's tasks and models known to it."""
    from lm_eval.utils import setup_logging

    from lm_eval_adaptive.host.registries import register_all

    given = [key for key in _own_keys() - {CANDIDATES} if hasattr(namespace, key)]
    if given:
        raise UsageError(f"--{given[0]} is an option of adaptive runs; add --adaptive")
    if hasattr(namespace, CANDIDATES):
        delattr(namespace, CANDIDATES)
    register_all()
    setup_logging()
    _with_own_tasks(namespace)
    namespace.func(namespace)
    return 0


def _config_says_adaptive(namespace: argparse.Namespace) -> bool:
    path = getattr(namespace, "config", None)
    if not path or not Path(path).is_file():
        return False
    data = _load_config(Path(path))
    return bool(data.get("adaptive"))


def _load_config(path: Path) -> dict[str, Any]:
    from lm_eval_adaptive.run.config import load_yaml

    data = load_yaml(path)
    if not isinstance(data, dict):
        raise UsageError(
            f"--config {path}: expected a mapping of options, got {type(data).__name__}"
        )
    return data


def _run_adaptive(namespace: argparse.Namespace, arguments: list[str]) -> int:
    from lm_eval_adaptive.report.live import silenced

    # Progress bars read this when tqdm is first imported.
    if silenced() or not os.environ.get("LMEVAL_LOG_LEVEL"):
        os.environ["TQDM_DISABLE"] = "1"
    from lm_eval_adaptive.host.registries import register_all
    from lm_eval_adaptive.run.loop import AdaptiveRun

    resume = getattr(namespace, "resume", None)
    if resume is not None and not (namespace.tasks or getattr(namespace, "config", None)):
        return _resume_alone(Path(resume))
    register_all()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    options, harness = _split(namespace)
    settings = _harness_settings(namespace, harness)
    candidates = _read_candidates(namespace, options)
    adaptive = _adaptive_config(options)
    from lm_eval_adaptive.report.live import Progress
    from lm_eval_adaptive.report.show import show_outcome

    with Progress() as progress:
        outcome = AdaptiveRun(
            candidates,
            settings,
            adaptive,
            resume=None if resume is None else Path(resume),
            command=arguments,
            listener=progress,
        ).run()
    show_outcome(outcome)
    lost = {
        each["model"]: each["reason"]
        for task in outcome.tasks.values()
        for each in task.ranking["set_aside"]
    }
    if lost:
        names = ", ".join(lost)
        raise ModelError(
            f"set aside for failing: {names} ({next(iter(lost.values()))}); the others are ranked. "
            f"Mend the cause and go on with --resume {outcome.output_path}"
        )
    return 0


def _resume_alone(folder: Path) -> int:
    """``--resume DIR`` without the other options: take the command line from the journal."""
    from lm_eval_adaptive.run.journal import NAME, read_journal

    records, _ = read_journal(folder / NAME)
    command = list(records[0].get("command") or [])
    if not command:
        raise UsageError(
            f"--resume {folder}: the run was started from Python; resume it there with resume="
        )
    kept = []
    skip = False
    for word in command:
        if skip:
            skip = False
        elif word == "--resume":
            skip = True
        else:
            kept.append(word)
    return main([*kept, "--resume", str(folder)])


def _split(namespace: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """Our options, and the harness's, from the command line over a ``--config`` file."""
    own = _own_keys()
    options: dict[str, Any] = {}
    harness: dict[str, Any] = {}
    path = getattr(namespace, "config", None)
    if path:
        for key, value in _load_config(Path(path)).items():
            (options if key in own else harness)[key] = value
    options.update({key: value for key, value in vars(namespace).items() if key in own})
    return options, harness


def _harness_settings(namespace: argparse.Namespace, from_file: dict[str, Any]) -> Any:
    """The harness's options as it would read them itself."""
    import tempfile

    import yaml
    from lm_eval.config.evaluate_config import EvaluatorConfig

    from lm_eval_adaptive.host.settings import HarnessSettings

    for name, reason in _REFUSED.items():
        if getattr(namespace, name, None) or from_file.get(name):
            raise UsageError(f"--{name} does not go with --adaptive: {reason}")
    plain = argparse.Namespace(
        **{key: value for key, value in vars(namespace).items() if key not in _own_keys()}
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
    return HarnessSettings(tasks=tuple(tasks), seed=seeds, **values)


class _silent_stdout:  # noqa: N801  used as a with-statement
    """The harness prints its whole configuration when a file is read."""

    def __enter__(self) -> None:
        self._stdout = sys.stdout
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")

    def __exit__(self, *_: object) -> None:
        sys.stdout.close()
        sys.stdout = self._stdout


def _read_candidates(namespace: argparse.Namespace, options: dict[str, Any]) -> Any:
    from lm_eval_adaptive.host.settings import make_candidates
    from lm_eval_adaptive.run.config import load_yaml

    opened = [dict(each) for each in options.get(CANDIDATES, [])]
    everywhere = namespace.model_args or {}
    if len(opened) == 1:
        opened[0]["model_args"] = everywhere  # --model_args may stand before its --model
    elif not opened and everywhere:
        opened = [{"model": "hf", "model_args": everywhere}]
    listed = options.get("models")
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


def _adaptive_config(options: dict[str, Any]) -> Any:
    from lm_eval_adaptive.run.config import AdaptiveConfig

    values = {
        each.name: options[each.name] for each in fields(AdaptiveConfig) if each.name in options
    }
    size = values.get("round_size")
    if isinstance(size, str) and size != "auto":
        if not size.isdecimal():
            raise UsageError(f"--round_size must be auto or a whole number, got {size!r}")
        values["round_size"] = int(size)
    if "bank" in values:
        values["bank"] = _banks(values["bank"])
    return AdaptiveConfig(**values)


def _banks(given: str | list[str] | dict[str, str]) -> str | dict[str, str]:
    """``--bank PATH`` for all tasks, or ``TASK=PATH`` for each."""
    from lm_eval_adaptive.banks.hub import is_hub_address

    if isinstance(given, dict):
        return given
    texts = [given] if isinstance(given, str) else list(given)
    by_task: dict[str, str] = {}
    for text in texts:
        task, separator, path = text.partition("=")
        if not separator or is_hub_address(text) or Path(text).exists():
            if len(texts) > 1:
                raise UsageError(
                    f"--bank {text}: with several --bank each must say its task, TASK=PATH"
                )
            return text
        by_task[task] = path
    return by_task


def _calibrate(namespace: argparse.Namespace) -> int:
    from lm_eval_adaptive.banks.calibrate import calibrate_from
    from lm_eval_adaptive.banks.options import CalibrateOptions, parse_range
    from lm_eval_adaptive.report.show import show_bank

    output = Path(namespace.output)
    if output.exists() and not namespace.overwrite:
        raise UsageError(f"{output} exists already; choose another --output or add --overwrite")
    options = CalibrateOptions(
        task=namespace.task,
        metric=namespace.metric,
        samples=tuple(namespace.samples),
        scores=namespace.scores,
        exclude_model=tuple(namespace.exclude_model),
        response_model=namespace.response_model,
        score_range=None if namespace.range is None else parse_range(namespace.range),
        clip=namespace.clip,
        lower_is_better=namespace.lower_is_better,
        allow=tuple(namespace.allow),
        licence=namespace.licence,
        update=namespace.update,
    )
    bank = calibrate_from(options)
    bank.save(output)
    show_bank(_loaded(output))
    return 0


def _loaded(name: str | Path) -> ItemBank:
    """A bank by its file, or by its address on the hub."""
    from lm_eval_adaptive.banks.hub import fetch_bank, is_hub_address
    from lm_eval_adaptive.core.bank import ItemBank

    return ItemBank.load(fetch_bank(name) if is_hub_address(name) else Path(name))


def _bank_show(namespace: argparse.Namespace) -> int:
    from lm_eval_adaptive.report.show import bank_as_json, show_bank

    bank = _loaded(namespace.file)
    if namespace.json:
        print(json.dumps(bank_as_json(bank), indent=2, ensure_ascii=False))
    else:
        show_bank(bank)
    return 0


def _bank_check(namespace: argparse.Namespace) -> int:
    from lm_eval_adaptive.banks.check import match_documents
    from lm_eval_adaptive.host.find_tasks import make_task_manager, resolve_tasks
    from lm_eval_adaptive.host.registries import register_all
    from lm_eval_adaptive.host.settings import HarnessSettings
    from lm_eval_adaptive.host.task import TaskDocs, load_task

    register_all()
    bank = _loaded(namespace.file)
    settings = HarnessSettings(tasks=(namespace.tasks,), include_path=namespace.include_path)
    manager = make_task_manager(settings)
    (name,) = resolve_tasks(manager, settings.tasks)
    docs = TaskDocs(load_task(manager, name))
    if bank.info.task != docs.name:
        raise UsageError(
            f"bank {namespace.file} was made for task {bank.info.task}, not for {docs.name}"
        )
    if bank.info.task_version and bank.info.task_version != docs.version:
        raise UsageError(
            f"bank {namespace.file} was made for version {bank.info.task_version} of "
            f"{docs.name}, this is version {docs.version}; recalibrate it"
        )
    found, notices = match_documents(bank, docs.keys)
    for notice in notices:
        print(notice)
    matched = sum(each is not None for each in found)
    print(
        f"{namespace.file} fits {docs.name}: {matched} of {len(bank)} items are among its "
        f"{len(docs)} documents"
    )
    return 0


def _report(namespace: argparse.Namespace) -> int:
    from lm_eval_adaptive.report.write import write_report

    output = None if namespace.output is None else Path(namespace.output)
    print(write_report(Path(namespace.file), output, namespace.format))
    return 0
