"""The command line: a superset of ``lm-eval``.

This module owns arguments and exit codes; it wraps the harness's own parser and imports everything
heavy inside functions, so that ``--help`` is quick. Without ``--adaptive`` a ``run`` is handed to
the harness as it stands.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import textwrap
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import AdaptiveError, Interrupted, ModelError, UsageError
from lm_eval_adaptive.harness import init_task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lm_eval_adaptive.core.bank import ItemBank

PROGRAM = "lm-eval-adaptive"
_CANDIDATES = "_candidates"

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

_RUN_EXAMPLES = textwrap.dedent("""
    adaptive examples (lm-eval-adaptive):
      # Rank two models on a task that has a bank
      $ lm-eval-adaptive run --adaptive --tasks records_to_text \\
          --model hf --model_args pretrained=org/a --model hf --model_args pretrained=org/b

      # Rank the models of a file, with a bank of one's own, at most 40 items each
      $ lm-eval-adaptive run --adaptive --tasks my_task --bank my_task.bank.parquet \\
          --models candidates.yaml --max_items 40 --output_path out

      # Go on with a run that was interrupted
      $ lm-eval-adaptive run --adaptive --resume out
""")


class _ModelAction(argparse.Action):
    """``--model`` as the harness has it, which also opens a new candidate."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        del parser, option_string
        setattr(namespace, self.dest, values)
        _candidates(namespace).append({"model": values})


class _CandidateAction(argparse.Action):
    """An option that belongs to the ``--model`` before it."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        key = {"model_name": "name", "model_cost": "cost"}[self.dest]
        opened = _candidates(namespace)
        if not opened:
            parser.error(f"{option_string} belongs to the --model before it, and there is none")
        opened[-1][key] = values


def _candidates(namespace: argparse.Namespace) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = vars(namespace).setdefault(_CANDIDATES, [])
    return found


def _model_args_action() -> type[argparse.Action]:
    from lm_eval._cli.utils import MergeDictAction

    class ModelArgsAction(MergeDictAction):  # type: ignore[misc]  # the harness is untyped
        """``--model_args`` as the harness has it, kept for the candidate as well."""

        def __call__(
            self,
            parser: argparse.ArgumentParser,
            namespace: argparse.Namespace,
            values: str | Sequence[Any] | None,
            option_string: str | None = None,
        ) -> None:
            own = argparse.Namespace()
            super().__call__(parser, own, values, option_string)
            merged = {**(getattr(namespace, self.dest, None) or {}), **vars(own).get(self.dest, {})}
            setattr(namespace, self.dest, merged)
            opened = _candidates(namespace)
            if opened:
                mine = opened[-1].setdefault("model_args", {})
                mine.update(vars(own).get(self.dest, {}))

    return ModelArgsAction


def _range(text: str) -> tuple[float, float]:
    from lm_eval_adaptive.harness.calibrate import parse_range

    return parse_range(text)


def _add_run_options(run: argparse.ArgumentParser) -> None:
    # Re-adding an option with conflict_handler="resolve" takes its strings from the old action.
    run.conflict_handler = "resolve"
    quiet = argparse.SUPPRESS
    models = run.add_argument_group("several models (lm-eval-adaptive)")
    models.add_argument(
        "--model",
        "-M",
        action=_ModelAction,
        default=None,
        metavar="<model>",
        help="Model type (default: hf). With --adaptive it may be repeated: each opens a candidate",
    )
    models.add_argument(
        "--model_args",
        "-a",
        nargs="+",
        action=_model_args_action(),
        default=None,
        metavar="<arg>",
        help="Model arguments as key=val,key2=val2; with --adaptive those of the --model before it",
    )
    models.add_argument(
        "--model_name",
        action=_CandidateAction,
        default=quiet,
        metavar="<name>",
        help="Name of the --model before it in the ranking, e.g. --model_name small",
    )
    models.add_argument(
        "--model_cost",
        action=_CandidateAction,
        default=quiet,
        metavar="<cost>|<input>,<output>",
        help="Cost of one item of the --model before it, any unit, e.g. --model_cost 0.02; or its "
        "prices of a million input and output tokens, e.g. --model_cost 0.15,0.6",
    )
    models.add_argument(
        "--models",
        default=quiet,
        metavar="<file>",
        help="YAML list of {name, model, model_args, cost, gen_kwargs, apply_chat_template, "
        "system_instruction, batch_size, device}",
    )
    own = run.add_argument_group("adaptive (lm-eval-adaptive)")
    own.add_argument(
        "--adaptive",
        action="store_true",
        default=quiet,
        help="Rank the models by asking each only the documents that tell most",
    )
    own.add_argument(
        "--bank",
        action="append",
        default=quiet,
        metavar="<path>|<task>[:<metric>]=<path>",
        help="Bank to use, a file or hf://org/dataset/path@revision#sha256; default: the one the "
        "task's metadata.adaptive.bank names. none ranks without any calibration: all models are "
        "asked the same documents, and paired differences decide",
    )
    own.add_argument(
        "--range",
        default=quiet,
        metavar="<lo>,<hi>",
        help="With --bank none: the metric's lowest and highest value, e.g. --range 0,100; "
        "default: the task's metadata.adaptive.range, or what is known of the metric",
    )
    own.add_argument(
        "--stratify",
        default=quiet,
        metavar="<column>",
        help="With --bank none: spread the order over this column of the documents, e.g. "
        "--stratify domain; default: over their lengths",
    )
    own.add_argument(
        "--against",
        default=quiet,
        metavar="all|<name>,<name>",
        help="Models of the bank that join the ranking with their recorded scores and are asked "
        "nothing, e.g. --against all",
    )
    own.add_argument(
        "--metric",
        action="append",
        default=quiet,
        metavar="<name>[,<filter>]",
        help="Metric to rank by, e.g. --metric rougeL,none; default: the bank's. Repeated: a "
        "ranking by each, from one set of answers",
    )
    own.add_argument(
        "--confidence",
        type=float,
        default=quiet,
        metavar="<level>",
        help="Two-sided level at which a pair counts as decided (default: 0.95)",
    )
    own.add_argument(
        "--correction",
        choices=("none", "holm"),
        default=quiet,
        help="Family-wise control over the pairs to decide (default: none)",
    )
    own.add_argument(
        "--equivalence",
        type=float,
        default=quiet,
        metavar="<difference>",
        help="Score difference, in the metric's units, below which two models count as equal",
    )
    own.add_argument(
        "--pairs",
        default=quiet,
        metavar="adjacent|all|top:K",
        help="Pairs to decide before stopping, e.g. --pairs top:1 (default: adjacent)",
    )
    for name, kind, text in (
        ("min_items", int, "Items of each model before any stop (default: 10)"),
        ("max_items", int, "Most items of one model (default: half the bank)"),
        ("budget", float, "Total cost, in the unit of the models' costs, e.g. --budget 5"),
        ("budget_items", int, "Total items of all models, e.g. --budget_items 200"),
        ("items_per_model", int, "Fixed number of items of each model, no early stop"),
        ("futility", float, "Give up pairs with less chance of being decided; 0: never (0.03)"),
        ("resident", int, "Most local models in memory at once (default: as many as fit)"),
        ("precision", float, "One model: stop at this standard error of its score, metric's units"),
    ):
        own.add_argument(f"--{name}", type=kind, default=quiet, metavar="<n>", help=text)
    own.add_argument(
        "--round_size",
        default=quiet,
        metavar="auto|<n>",
        help="Items asked of a model at once; auto is the batch size or num_concurrent",
    )
    own.add_argument(
        "--sampler",
        choices=("auto", "fisher", "static", "random"),
        default=quiet,
        help="How items are chosen; auto is the bank's own choice, fisher unless calibration found "
        "that random shared items order models better (default: auto)",
    )
    own.add_argument(
        "--response_model",
        choices=("auto", "robust-2pl", "paper-1pl", "bernoulli-2pl"),
        default=quiet,
        help="Response model; another than the bank's refits its scores (default: auto)",
    )
    own.add_argument(
        "--resume",
        default=quiet,
        metavar="<dir>",
        help="Go on with the run in this output folder; given alone it takes all options from it",
    )
    run.epilog = (run.epilog or "") + _RUN_EXAMPLES


def _add_calibrate(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "calibrate",
        help="Make a bank from logs of the harness or a score file",
        description="Make an item bank from scores of models that answered the whole benchmark.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=textwrap.dedent("""
            examples:
              # From folders of `lm-eval run --log_samples`
              $ lm-eval-adaptive calibrate --task records_to_text --metric rougeL \\
                  --samples runs --output records.bank.parquet

              # From a table with the columns model, item, score
              $ lm-eval-adaptive calibrate --task my_task --metric judge --range 1,10 \\
                  --scores scores.csv --output my_task.bank.parquet

              # Add the models of two adaptive runs to a bank
              $ lm-eval-adaptive calibrate --update records.bank.parquet \\
                  --samples out_may out_june --output records_june.bank.parquet
        """),
    )
    parser.add_argument("--task", default="", help="Name of the harness task")
    parser.add_argument("--metric", default="", metavar="NAME[,FILTER]", help="Metric to use")
    parser.add_argument(
        "--update",
        metavar="BANK",
        help="Add the models of --samples (output folders of adaptive runs as well) to this bank; "
        "task, metric, range and response model are the bank's",
    )
    parser.add_argument(
        "--samples",
        nargs="+",
        action="extend",
        default=[],
        metavar="DIR_OR_GLOB",
        help="Logs written by --log_samples, any format since 0.4.0",
    )
    parser.add_argument("--scores", metavar="FILE", help="Parquet or CSV, long or wide")
    parser.add_argument("--output", required=True, metavar="FILE", help="Bank file to write")
    parser.add_argument(
        "--exclude_model",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="Models to leave out, for example those to be ranked later",
    )
    parser.add_argument(
        "--response_model",
        default="auto",
        choices=("auto", "robust-2pl", "paper-1pl", "bernoulli-2pl"),
        help="Default: bernoulli-2pl for 0/1 scores, robust-2pl otherwise",
    )
    parser.add_argument(
        "--range",
        metavar="LO,HI",
        help="Raw values that map to 0 and 1; default: the task's, the metric's, else observed",
    )
    parser.add_argument(
        "--clip", action="store_true", help="Clip scores outside the range and count them"
    )
    direction = parser.add_mutually_exclusive_group()
    direction.add_argument(
        "--higher_is_better", dest="lower_is_better", action="store_false", default=None
    )
    direction.add_argument("--lower_is_better", action="store_true", default=None)
    parser.add_argument(
        "--allow",
        nargs="+",
        default=[],
        choices=("task_version", "few_shot", "prompts", "partial"),
        help="Differences between the logs to accept, e.g. --allow few_shot",
    )
    parser.add_argument("--licence", default="", help="A note on the scores' licence, kept inside")
    parser.add_argument("--overwrite", action="store_true", help="Replace an existing bank")
    parser.set_defaults(func=_calibrate)


def _add_bank(subparsers: Any) -> None:
    parser = subparsers.add_parser("bank", help="Look into a bank, or check it against a task")
    inner = parser.add_subparsers(dest="bank_command", required=True, metavar="show|check")
    show = inner.add_parser(
        "show",
        help="What a bank holds",
        epilog="example: lm-eval-adaptive bank show records.bank.parquet --json",
    )
    show.add_argument("file")
    show.add_argument("--json", action="store_true", help="As JSON, with every item")
    show.set_defaults(func=_bank_show)
    check = inner.add_parser(
        "check",
        help="Whether a bank fits a task's documents",
        epilog="example: lm-eval-adaptive bank check my.bank.parquet --tasks my_task",
    )
    check.add_argument("file")
    check.add_argument("--tasks", required=True, help="Task name or YAML file")
    check.add_argument("--include_path", default=None, help="Folder of external tasks")
    check.set_defaults(func=_bank_check)


def _add_report(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "report",
        help="The report of a run, finished or not, or of a bank",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=textwrap.dedent("""
            examples:
              $ lm-eval-adaptive report out                 # out/report.html
              $ lm-eval-adaptive report out --format md
              $ lm-eval-adaptive report my.bank.parquet
        """),
    )
    parser.add_argument("file", help="A run's --output_path, a ranking_*.json in it, or a bank")
    parser.add_argument(
        "--output", default=None, help="File or folder to write; default: report.html beside it"
    )
    parser.add_argument("--format", choices=("html", "md", "csv", "png"), default="html")
    parser.set_defaults(func=_report)


def _add_simulate(subparsers: Any) -> None:
    from lm_eval_adaptive.harness.simulate_cli import add_parser

    add_parser(subparsers)


def build_parser() -> tuple[argparse.ArgumentParser, Any]:
    """The harness's parser with this package's options and commands added.

    Returns:
        The parser, and the object that holds its subcommands.
    """
    from lm_eval._cli import HarnessCLI

    harness = HarnessCLI()
    parser: argparse.ArgumentParser = harness._parser  # noqa: SLF001  no plugin hook in 0.4.x
    subparsers = harness._subparsers  # noqa: SLF001
    parser.prog = PROGRAM
    parser.description = (
        "Language Model Evaluation Harness, with adaptive ranking of several models "
        "(run --adaptive), calibration (calibrate) and item banks (bank)"
    )
    _add_run_options(subparsers.choices["run"])
    _add_calibrate(subparsers)
    _add_bank(subparsers)
    _add_report(subparsers)
    init_task.add_parser(subparsers)
    _add_simulate(subparsers)
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
            from lm_eval_adaptive.harness.run import register_all

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
    from lm_eval_adaptive.harness.run import named_banks

    print("Item banks, for run --adaptive:")
    for task, metric, bank in named_banks(include_path):
        missing = isinstance(bank, Path) and not bank.is_file()
        print(f"  {task}: {bank} ({metric}){' (file is missing)' if missing else ''}")


def _own_keys() -> set[str]:
    """Names of the options that the harness does not know."""
    from lm_eval_adaptive.harness.config import AdaptiveConfig

    return {each.name for each in fields(AdaptiveConfig)} | {
        "adaptive",
        "models",
        "model_name",
        "model_cost",
        "resume",
        _CANDIDATES,
    }


def _with_own_tasks(namespace: argparse.Namespace) -> None:
    from lm_eval_adaptive.harness.run import include_paths

    namespace.include_path = include_paths(getattr(namespace, "include_path", None))


def _run_plain(namespace: argparse.Namespace) -> int:
    """Exactly the harness's own run, with this package's tasks and models known to it."""
    from lm_eval.utils import setup_logging

    from lm_eval_adaptive.harness.run import register_all

    given = [key for key in _own_keys() - {_CANDIDATES} if hasattr(namespace, key)]
    if given:
        raise UsageError(f"--{given[0]} is an option of adaptive runs; add --adaptive")
    if hasattr(namespace, _CANDIDATES):
        delattr(namespace, _CANDIDATES)
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
    from lm_eval_adaptive.harness.config import load_yaml

    data = load_yaml(path)
    if not isinstance(data, dict):
        raise UsageError(
            f"--config {path}: expected a mapping of options, got {type(data).__name__}"
        )
    return data


def _run_adaptive(namespace: argparse.Namespace, arguments: list[str]) -> int:
    from lm_eval_adaptive.harness.live import silenced

    # Progress bars read this when tqdm is first imported.
    if silenced() or not os.environ.get("LMEVAL_LOG_LEVEL"):
        os.environ["TQDM_DISABLE"] = "1"
    from lm_eval_adaptive.harness.run import AdaptiveRun, register_all

    resume = getattr(namespace, "resume", None)
    if resume is not None and not (namespace.tasks or getattr(namespace, "config", None)):
        return _resume_alone(Path(resume))
    register_all()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    options, harness = _split(namespace)
    settings = _harness_settings(namespace, harness)
    candidates = _read_candidates(namespace, options)
    adaptive = _adaptive_config(options)
    from lm_eval_adaptive.harness.live import Progress
    from lm_eval_adaptive.harness.show import show_outcome

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
    from lm_eval_adaptive.harness.journal import NAME, read_journal

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

    from lm_eval_adaptive.harness.config import HarnessSettings

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
    from lm_eval_adaptive.harness.config import load_yaml, make_candidates

    opened = [dict(each) for each in options.get(_CANDIDATES, [])]
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
    from lm_eval_adaptive.harness.config import AdaptiveConfig

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
    from lm_eval_adaptive.harness.hub import is_hub_address

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
    from lm_eval_adaptive.harness.calibrate import CalibrateOptions, calibrate_from, parse_range
    from lm_eval_adaptive.harness.show import show_bank

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
    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.harness.hub import fetch_bank, is_hub_address

    return ItemBank.load(fetch_bank(name) if is_hub_address(name) else Path(name))


def _bank_show(namespace: argparse.Namespace) -> int:
    from lm_eval_adaptive.harness.show import bank_as_json, show_bank

    bank = _loaded(namespace.file)
    if namespace.json:
        print(json.dumps(bank_as_json(bank), indent=2, ensure_ascii=False))
    else:
        show_bank(bank)
    return 0


def _bank_check(namespace: argparse.Namespace) -> int:
    from lm_eval_adaptive.harness.calibrate import match_documents
    from lm_eval_adaptive.harness.config import HarnessSettings
    from lm_eval_adaptive.harness.run import make_task_manager, register_all, resolve_tasks
    from lm_eval_adaptive.harness.task import TaskDocs, load_task

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
    from lm_eval_adaptive.harness.report import write_report

    output = None if namespace.output is None else Path(namespace.output)
    print(write_report(Path(namespace.file), output, namespace.format))
    return 0
