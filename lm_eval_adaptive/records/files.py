"""Writing a file so that nobody ever sees half of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write_aside(path: Path, content: bytes) -> None:
    """Write a file beside its place, then rename it there."""
    aside = path.with_name(f".{path.name}.part")
    aside.write_bytes(content)
    aside.replace(path)
