"""The command line: a superset of ``lm-eval``.

This module owns the parser as a whole, which command does what, and exit codes; a command's own
options and doings stand in its file. Everything heavy is imported inside functions, so that
``--help`` is quick. Without ``--adaptive`` a ``run`` is handed to the harness as it stands.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.cli import bank, calibrate, init_task, listing, report, run, simulate
from lm_eval_adaptive.cli.run_options import add_run_options
from lm_eval_adaptive.cli.words import parse, speak_in_one_line
from lm_eval_adaptive.errors import AdaptiveError, Interrupted, ModelError, UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

PROGRAM = "lm-eval-adaptive"
# What a shell gives for a program that a closed pipe ended.
CLOSED_PIPE = 141


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
    add_run_options(subparsers.choices["run"])
    for command in (calibrate, bank, report, init_task, simulate):
        command.add_parser(subparsers)
    speak_in_one_line(parser)
    return parser, subparsers


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line.

    Args:
        argv: Arguments without the program's name; those of the process when None.

    Returns:
        The exit code: 0 finished, 1 a model or the harness failed, 2 the user's mistake, 130
        interrupted.
    """
    arguments = _with_ranges_bound(sys.argv[1:] if argv is None else argv)
    parser, subparsers = build_parser()
    # As the harness does: a line without a command is a run.
    if len(arguments) > 1 and arguments[0] not in subparsers.choices:
        arguments.insert(0, "run")
    elif arguments == ["run"]:
        subparsers.choices["run"].print_help()
        return 0
    try:
        return _execute(parser, arguments)
    except AdaptiveError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        return _nobody_reads()
    except KeyboardInterrupt:
        print(f"{PROGRAM}: interrupted before anything was asked", file=sys.stderr)
        return Interrupted.exit_code
    except OSError as error:
        if error.filename is None:
            return _own_fault(error)
        print(f"{PROGRAM}: {error.filename}: {error.strerror}", file=sys.stderr)
        return UsageError.exit_code
    except Exception as error:  # noqa: BLE001  the last net: one line, and the rest in a file
        return _own_fault(error)


def _nobody_reads() -> int:
    """End quietly where whoever read the output has seen enough, as in ``… | head``."""
    # Python flushes the stream once more when it exits.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return CLOSED_PIPE


def _with_ranges_bound(words: Sequence[str]) -> list[str]:
    """Two words as one where a range begins below 0, which argparse takes for an option.

    >>> _with_ranges_bound(["--range", "-1,3", "--clip", "0,1"])
    ['--range=-1,3', '--clip', '0,1']
    """
    found: list[str] = []
    for word in words:
        if found and found[-1] in ("--range", "--clip") and word[:1] == "-" and "," in word:
            found[-1] += f"={word}"
        else:
            found.append(word)
    return found


def _execute(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    namespace = parse(parser, arguments)
    command = getattr(namespace, "command", None)
    if command == "run":
        words = run.words_to_resume(namespace, lambda given: parse(parser, given))
        if words is not None:
            arguments, namespace = words, parse(parser, words)
            namespace.output_path = None  # it goes on in its folder
        return run.execute(namespace, arguments)
    if command in ("ls", "validate"):
        return listing.execute(namespace)
    return int(namespace.func(namespace) or 0)


def _own_fault(error: Exception) -> int:
    """Say in one line what nobody foresaw; its traceback goes into a file."""
    import tempfile
    import traceback

    with tempfile.NamedTemporaryFile(
        "w", prefix=f"{PROGRAM}_", suffix=".log", delete=False, encoding="utf-8"
    ) as file:
        file.writelines(traceback.format_exception(error))
    what = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    print(
        f"{PROGRAM}: {what}; that is a fault of ours, or of the task's or the harness's code: "
        f"please report it with {file.name}",
        file=sys.stderr,
    )
    return ModelError.exit_code
