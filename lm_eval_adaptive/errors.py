"""What can go wrong, as a tree: every error of the package has one root and an exit code.

The module owns the classes and nothing else; everything may import it, and it imports the redactor.
A message is one line that says what was expected, what came, where, and what to do next, because
the command line prints it as it stands and never shows a traceback for it.
"""

from __future__ import annotations

from lm_eval_adaptive.redact import hide


class AdaptiveError(Exception):
    """Root of all errors that the package raises on purpose."""

    exit_code = 2

    def __str__(self) -> str:
        """The message without secrets: what a server or a library said is quoted in it."""
        return hide(super().__str__())

    def __repr__(self) -> str:
        """The class and the message."""
        return f"{type(self).__name__}({str(self)!r})"


class UsageError(AdaptiveError):
    """The command line, a configuration file or a call's arguments are wrong."""


class DataError(AdaptiveError):
    """A file of scores or logs, or a score in it, cannot be used as it is."""


class BankError(AdaptiveError):
    """A bank is missing, damaged, or made for something else."""


class TaskError(AdaptiveError):
    """A task cannot be run adaptively as it is configured."""


class ModelError(AdaptiveError):
    """A model or its back end failed; what was asked so far is saved."""

    exit_code = 1


class ScoringError(AdaptiveError):
    """What a metric asks, such as a judge, is away; no candidate is to blame."""

    exit_code = 1


class Interrupted(AdaptiveError):  # noqa: N818  a stop asked for by the user is no error of ours
    """The user stopped the run; what was asked so far is saved."""

    exit_code = 130


def first_line(error: BaseException) -> str:
    """An exception of any kind as one line.

    >>> first_line(ZeroDivisionError("division by zero"))
    'ZeroDivisionError: division by zero'
    """
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
