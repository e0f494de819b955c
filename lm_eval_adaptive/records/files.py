"""Writing a file so that nobody ever sees half of it, and that any reader of JSON reads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def write_aside(path: Path, content: bytes) -> None:
    """Write a file beside its place, then rename it there."""
    aside = path.with_name(f".{path.name}.part")
    aside.write_bytes(content)
    aside.replace(path)


def finite(value: Any) -> Any:
    """Plain data without what JSON has no number for: NaN and infinity become null.

    >>> finite({"a": [1.0, float("nan")], "b": float("inf")})
    {'a': [1.0, None], 'b': None}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return value
