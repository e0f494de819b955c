"""How a command line is read: one line for a mistake, values that begin with a minus.

This module owns what argparse does not: every refusal is a :class:`UsageError` on one line, an
unknown option near a known one is named, and ``--range -1,1`` is an option with its value. It
imports nothing heavy.
"""

from __future__ import annotations

import argparse
import difflib
import re
from typing import TYPE_CHECKING, Any, NoReturn

from lm_eval_adaptive.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_UNKNOWN = "unrecognized arguments:"
# What may follow an option as its value although it begins with a minus: a number, or several.
_MINUS = re.compile(r"-(\d|\.\d|inf|nan)", re.IGNORECASE)


def speak_in_one_line(parser: argparse.ArgumentParser) -> None:
    """Have a parser, and those of its commands, refuse with a :class:`UsageError`."""
    for each in _parsers(parser):
        each.error = _refusal(each)  # type: ignore[method-assign]  # the harness made the parser


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for inner in _commands(parser).values():
        yield from _parsers(inner)


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:  # noqa: SLF001  argparse tells it nowhere else
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            return dict(action.choices)
    return {}


def _refusal(parser: argparse.ArgumentParser) -> Any:
    def error(message: str) -> NoReturn:
        raise UsageError(f"{' '.join(message.split())}; {_help(parser)}")

    return error


def _help(parser: argparse.ArgumentParser) -> str:
    # The commands that the harness made bear its name.
    name = re.sub(r"^lm-eval(?= |$)", "lm-eval-adaptive", parser.prog)
    return f"`{name} --help` shows what there is"


def parse(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line.

    Raises:
        UsageError: It is wrong; an option that does not exist is told with those near it.
        SystemExit: Help was asked for and printed.
    """
    spoken_to = _spoken_to(parser, arguments)
    words = join_minus(arguments, spoken_to)
    try:
        namespace, unknown = parser.parse_known_args(words)
    except (ValueError, RecursionError) as error:  # the harness reads mappings while it parses
        raise UsageError(f"{' '.join(str(error).split())[:300]}; {_help(spoken_to)}") from error
    if unknown:
        raise UsageError(_unknown(unknown, spoken_to))
    return namespace


def _spoken_to(
    parser: argparse.ArgumentParser, arguments: Sequence[str]
) -> argparse.ArgumentParser:
    """The parser of the command that a command line names."""
    for word in arguments:
        commands = _commands(parser)
        if word in commands:
            parser = commands[word]
        elif commands and not word.startswith("-"):
            break
    return parser


def _options(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    return dict(parser._option_string_actions)  # noqa: SLF001  argparse tells it nowhere else


def join_minus(arguments: Sequence[str], parser: argparse.ArgumentParser) -> list[str]:
    """Words in which an option and its value that begins with a minus are one.

    A value is what argparse would take for an option: a minus and a number after an option that
    takes one value (``--range -1,1``), or any word with one minus that is no option.
    """
    options = _options(parser)
    found: list[str] = []
    for word in arguments:
        option = _option(found[-1], options) if found else None
        takes_one = option is not None and option.nargs is None and option.const is None
        if takes_one and _is_value(word, options):
            found[-1] += f"={word}" if found[-1].startswith("--") else word
        else:
            found.append(word)
    return found


def _option(word: str, options: dict[str, argparse.Action]) -> argparse.Action | None:
    """The option that a word is; as in argparse, the beginning of one alone will do."""
    if word in options:
        return options[word]
    begun = [name for name in options if word.startswith("--") and name.startswith(word)]
    return options[begun[0]] if len(begun) == 1 and len(word) > 2 else None


def _is_value(word: str, options: dict[str, argparse.Action]) -> bool:
    if _MINUS.match(word):
        return True
    one_minus = len(word) > 1 and word[0] == "-" and word[1] != "-"
    return one_minus and word[:2] not in options


def _unknown(words: Sequence[str], parser: argparse.ArgumentParser) -> str:
    options = [name for name in _options(parser) if name.startswith("--")]
    wrong = next((word for word in words if word.startswith("-")), words[0])
    name = wrong.partition("=")[0]
    if not wrong.startswith("-"):
        return f"what is {wrong!r} for? no option before it takes it; {_help(parser)}"
    near = difflib.get_close_matches(name.replace("-", "_").replace("__", "--", 1), options, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else _help(parser)
    return f"no option {name}; {hint}"
