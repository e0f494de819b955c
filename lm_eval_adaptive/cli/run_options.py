"""The options of ``run --adaptive``, added to the harness's own parser.

This module owns names and help of the options; what they mean is ``request``'s business, and their
defaults are the options' own (``core.defaults``). It imports nothing heavy, so that ``--help`` is
quick.
"""

from __future__ import annotations

import argparse
import textwrap
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.core import defaults

if TYPE_CHECKING:
    from collections.abc import Sequence

CANDIDATES = "_candidates"
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
        if key in opened[-1]:
            parser.error(
                f"{option_string} is given twice for one --model ({opened[-1][key]}, {values})"
            )
        opened[-1][key] = values


def _candidates(namespace: argparse.Namespace) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = vars(namespace).setdefault(CANDIDATES, [])
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


def add_run_options(run: argparse.ArgumentParser) -> None:
    """Options of adaptive runs, added to the harness's ``run``."""
    # Re-adding an option with conflict_handler="resolve" takes its strings from the old action.
    run.conflict_handler = "resolve"
    _add_models(run.add_argument_group("several models (lm-eval-adaptive)"))
    own = run.add_argument_group("adaptive (lm-eval-adaptive)")
    own.add_argument(
        "--adaptive",
        action="store_true",
        default=argparse.SUPPRESS,
        help="Rank the models by asking each only the documents that tell most",
    )
    _add_measure(own)
    _add_rules(own)
    own.add_argument(
        "--generation_only",
        action="store_true",
        default=argparse.SUPPRESS,
        help="Of groups and patterns, leave out the tasks that generate no text, and say which",
    )
    own.add_argument(
        "--resume",
        default=argparse.SUPPRESS,
        metavar="<dir>",
        help="Go on with the run in this output folder; given alone it takes all options from it",
    )
    run.epilog = (run.epilog or "") + _RUN_EXAMPLES


def _add_models(models: argparse._ArgumentGroup) -> None:
    """Who is ranked."""
    quiet = argparse.SUPPRESS
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
        "system_instruction, batch_size, device, resources, replicas}",
    )


def _add_measure(own: argparse._ArgumentGroup) -> None:
    """What they are ranked by: bank, metric, known models."""
    quiet = argparse.SUPPRESS
    own.add_argument(
        "--bank",
        action="append",
        default=quiet,
        metavar="<path>|<task>[:<metric>]=<path>",
        help="Bank to use: a file, hf://org/dataset/path@revision#sha256, a name of `bank list`; "
        "default: the one the "
        "task's metadata.adaptive.bank names, else one of your store or of the package whose "
        "documents are the task's. none ranks without any calibration: all models are "
        "asked the same documents, and paired differences decide",
    )
    growing = own.add_mutually_exclusive_group()
    growing.add_argument(
        "--grow",
        dest="grow",
        action="store_true",
        default=quiet,
        help="After the run, have its answers join the task's bank in your store, which is made if "
        "there is none; default: as `bank grow on|off` says, off at first",
    )
    growing.add_argument(
        "--no_grow",
        dest="grow",
        action="store_false",
        default=quiet,
        help="Leave the store as it is after this run",
    )
    own.add_argument(
        "--range",
        default=quiet,
        metavar="<lo>,<hi>",
        help="With --bank none: the metric's lowest and highest value, e.g. --range 0,100; "
        "default: the task's metadata.adaptive.range, or what is known of the metric",
    )
    own.add_argument(
        "--clip",
        action="store_true",
        default=quiet,
        help="Go on where more than 1 %% of scores lie outside the metric's range; they count as "
        "its ends",
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


def _add_rules(own: argparse._ArgumentGroup) -> None:
    """When a pair is decided, how much is asked, in which order."""
    quiet = argparse.SUPPRESS
    own.add_argument(
        "--confidence",
        type=float,
        default=quiet,
        metavar="<level>",
        help=f"Two-sided level at which a pair counts as decided (default: {defaults.CONFIDENCE})",
    )
    own.add_argument(
        "--correction",
        choices=("none", "holm"),
        default=quiet,
        help=f"Family-wise control over the pairs to decide (default: {defaults.CORRECTION})",
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
        help=f"Pairs to decide before stopping, e.g. --pairs top:1 (default: {defaults.PAIRS})",
    )
    for name, kind, text in (
        ("min_items", int, f"Items of each model before any stop (default: {defaults.MIN_ITEMS})"),
        ("max_items", int, "Most items of one model (default: half the bank)"),
        ("budget", float, "Total cost, in the unit of the models' costs, e.g. --budget 5"),
        ("budget_items", int, "Total items of all models, e.g. --budget_items 200"),
        ("items_per_model", int, "Fixed number of items of each model, no early stop"),
        (
            "futility",
            float,
            f"Give up pairs with less chance of being decided; 0: never ({defaults.FUTILITY})",
        ),
        ("resident", int, "Most local models in memory at once (default: as many as fit)"),
        ("precision", float, "One model: stop at this standard error of its score, metric's units"),
    ):
        own.add_argument(f"--{name}", type=kind, default=quiet, metavar="<n>", help=text)
    own.add_argument(
        "--schedule",
        default=argparse.SUPPRESS,
        metavar="lockstep|async",
        help="async: models do not wait for each other, and what is asked next hangs on who "
        "answered first; the journal keeps the order, so that --resume and report follow it "
        "(default: lockstep)",
    )
    own.add_argument(
        "--executor",
        default=quiet,
        metavar="local|ray[:<address>]",
        help="Where models live: local is this process; ray a cluster, which the extra [ray] "
        "brings, e.g. --executor ray:10.0.0.1:6379 (default: local)",
    )
    own.add_argument(
        "--round_size",
        default=quiet,
        metavar="auto|<n>",
        help="Items asked of a model at once; auto is the batch size or num_concurrent",
    )
    own.add_argument(
        "--on_error",
        default=quiet,
        metavar="missing|score:<v>",
        help="What an answer counts as that its metric cannot score or the model did not give: "
        "missing, or a score in the metric's units, e.g. --on_error score:0 (default: missing)",
    )
    own.add_argument(
        "--sampler",
        choices=("auto", "draw", "fisher", "static", "random"),
        default=quiet,
        help="How items are chosen: drawn by their worth, those of most worth (fisher), by "
        "item-rest correlation (static) or at random; auto draws, unless calibration found that "
        "random shared items order models better, and takes fisher under paper-1pl (default: auto)",
    )
    own.add_argument(
        "--response_model",
        choices=("auto", "robust-2pl", "paper-1pl", "bernoulli-2pl"),
        default=quiet,
        help="Response model; another than the bank's refits its scores (default: auto)",
    )
