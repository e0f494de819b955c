"""What the oldest supported Python cannot do, and a newer one does not notice."""

from __future__ import annotations

import re
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "lm_eval_adaptive"


def test_class_variables_say_of_what():
    """Python 3.10 refuses a plain ``ClassVar`` where annotations are read as text: no record that
    has one can be written or read there.
    """
    bare = re.compile(r":\s*ClassVar\s*(=|$)", re.MULTILINE)
    assert bare.search("    KEYS: ClassVar = ()")
    found = [
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if bare.search(path.read_text(encoding="utf-8"))
    ]
    assert not found
