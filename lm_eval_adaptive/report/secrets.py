"""What must not be passed on with a report: keys and tokens in options and command lines."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_SECRET = re.compile(r"(?i)\b((?:\w+_)?(?:key|token|secret|password|authorization))(=|: ?)[^,\s]+")


def command_line(words: Sequence[str]) -> str:
    """The command line without secrets: a report is made to be passed on."""
    words = [_SECRET.sub(r"\1\2***", word) for word in words]
    return f"lm-eval-adaptive {shlex.join(words)}" if words else ""


def without_secrets(value: Any) -> Any:
    """Options as they may be shown."""
    if isinstance(value, dict):
        return {
            key: "***" if each and _SECRET.match(f"{key}=x") else without_secrets(each)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [without_secrets(each) for each in value]
    return _SECRET.sub(r"\1\2***", value) if isinstance(value, str) else value
