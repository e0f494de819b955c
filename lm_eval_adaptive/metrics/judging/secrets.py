"""What must not be read in a message or a file: keys, passwords, signed queries.

This module owns the forms of secrets as they occur in a judge's settings and in what servers say.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

HIDDEN = "[hidden]"

_NAME = r"[\w.-]*(?:key|token|secret|passw(?:or)?d|auth|cookie|credential|signature)[\w.-]*|sig|pwd"
# name=value, "name": "value", …
_NAMED = re.compile(
    rf"""(?<![\w.-])({_NAME})(["']?\s*[=:]\s*)("[^"]*"|'[^']*'|[^\s"',;&}})\]]+)""", re.IGNORECASE
)
# Settings that carry such a word in their name and hide nothing.
_HARMLESS = re.compile(
    r"(?:max|min|num|n|total|prompt|completion)[\w.-]*tokens\w*|tokeni[sz]\w*|author\w*"
    r"|(?:add|think|eos|bos|pad|unk|end)[\w-]*token\w*",
    re.IGNORECASE,
)
_FORMS = (
    (re.compile(r"(?<=://)\S+@"), f"{HIDDEN}@"),
    (re.compile(r"\b(Bearer|Basic)\s+[\w.~+/=-]{4,}", re.IGNORECASE), rf"\1 {HIDDEN}"),
    (re.compile(r"\b(?:sk|pk|rk|hf|gsk|xai|ghp)[-_][\w*.-]{6,}"), HIDDEN),
    (re.compile(r"\bAKIA[0-9A-Z]{12,}"), HIDDEN),
    (re.compile(r"\beyJ[\w-]{5,}\.[\w-]+(?:\.[\w-]*)?"), HIDDEN),
)


def without(text: str, values: Iterable[str], shortest: int = 4) -> str:
    """The text without secrets of known value; shorter values are words texts are full of."""
    for value in sorted(set(values), key=len, reverse=True):
        if len(value) >= shortest:
            text = text.replace(value, HIDDEN)
    return text


def hide(text: str, values: Iterable[str] = ()) -> str:
    """The text without secrets: those of known value, and what has a secret's name or form.

    >>> hide("model=m,api_key=abc,base_url=http://me:pw@host/v1")
    'model=m,api_key=[hidden],base_url=http://[hidden]@host/v1'
    >>> hide("max_tokens=5: no such key s3same", ["s3same"])
    'max_tokens=5: no such key [hidden]'
    """
    text = _NAMED.sub(_unless_harmless, without(text, values))
    for form, replacement in _FORMS:
        text = form.sub(replacement, text)
    return text


def _unless_harmless(found: re.Match[str]) -> str:
    if _HARMLESS.fullmatch(found[1]):
        return found[0]
    return f"{found[1]}{found[2]}{HIDDEN}"
