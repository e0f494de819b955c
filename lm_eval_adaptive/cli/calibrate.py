"""``calibrate``: a bank from logs of the harness or a score file."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path
from typing import Any

from lm_eval_adaptive.core import defaults
from lm_eval_adaptive.errors import UsageError


def add_parser(subparsers: Any) -> None:
    """Add the command to the harness's subcommands."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
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
        help="Logs written by --log_samples, any format since 0.4.0, or records of Every Eval Ever",
    )
    parser.add_argument("--scores", metavar="FILE", help="Parquet or CSV, long or wide")
    parser.add_argument(
        "--include_path",
        default="",
        metavar="DIR",
        help="Where to look for --task, whose documents are read where scores name them by doc_id",
    )
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
        default=defaults.AUTO,
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
    parser.set_defaults(func=run)


def run(namespace: argparse.Namespace) -> int:
    """Calibrate, save, show."""
    from lm_eval_adaptive.banks.calibrate import calibrate_from
    from lm_eval_adaptive.banks.find import load_bank
    from lm_eval_adaptive.banks.options import CalibrateOptions, parse_range
    from lm_eval_adaptive.records.files import check_file
    from lm_eval_adaptive.report.bank_show import show_bank

    output = Path(namespace.output)
    check_file(output, "--output")
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
        include_path=namespace.include_path,
    )
    bank = calibrate_from(options)
    bank.save(output)
    show_bank(load_bank(output))
    return 0
