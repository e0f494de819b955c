"""``report``: the page of a run, finished or not, or of a bank."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path
from typing import Any

from lm_eval_adaptive.errors import DataError


def add_parser(subparsers: Any) -> None:
    """Add the command to the harness's subcommands."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
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
    parser.set_defaults(func=run)


def run(namespace: argparse.Namespace) -> int:
    """Write the report and name its file."""
    from lm_eval_adaptive.records.files import check_file
    from lm_eval_adaptive.report.write import write_report
    from lm_eval_adaptive.run.standing import standings

    output = None if namespace.output is None else Path(namespace.output)
    if output is not None and not output.is_dir():
        check_file(output, "--output")
    source = Path(namespace.file)
    if source.is_char_device():  # /dev/zero has no end
        raise DataError(f"report: {source} is a device; expected a run's folder, ranking or bank")
    try:
        print(write_report(source, output, namespace.format, standings))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        # Each file was read; what one says of the others, or of itself, cannot be.
        what = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise DataError(
            f"report: the files of {source} were edited or are damaged ({what}); restore them, or "
            "write them again with --resume"
        ) from error
    return 0
