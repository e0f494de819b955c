"""The document's own part of a prompt: what a task makes of it, whatever stands around it.

A chat template, a system prompt or examples change a prompt and leave this part as it is.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.host.columns import is_code
from lm_eval_adaptive.host.draws import draws_left_alone

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def text_of(part: Any) -> str | None:
    """A part of a task's configuration as a log has it, "" where it is empty, None if unknown.

    >>> text_of("Q: {{question}}"), text_of(None)
    ('Q: {{question}}', '')
    """
    if callable(part):
        try:
            return inspect.getsource(part)
        except (OSError, TypeError):
            return None
    if part is None:
        return ""
    text = str(part)
    return None if " at 0x" in text else text


def hash_of(text: str) -> str:
    """SHA-256 of a text, hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def logged_part(template: str | None, doc: Mapping[str, Any], prompt: str) -> str:
    """Hash of the document's own part of a logged prompt, "" where it cannot be told.

    Args:
        template: The task's ``doc_to_text`` as logged; functions cannot be called again.
        doc: The document as logged.
        prompt: The prompt as logged; the part counts only where it is seen there.
    """
    if not template or not doc or is_code(template):
        return ""
    from lm_eval.utils import apply_template

    try:
        part = str(doc[template] if template in doc else apply_template(template, dict(doc)))
    except Exception:  # noqa: BLE001  any template, on a document that went through JSON
        return ""
    part = part.strip()
    # Servers' prompts are logged as JSON.
    seen = part in prompt or json.dumps(part)[1:-1] in prompt
    return hash_of(part) if part and seen else ""


def live_parts(task: Any, docs: Any, doc_ids: Iterable[int]) -> dict[int, str]:
    """The same of a live task's documents, without those whose part is not a text."""
    found = {}
    with draws_left_alone():
        for doc_id in doc_ids:
            part = task.doc_to_text(docs[doc_id])
            if isinstance(part, str | int):
                found[doc_id] = hash_of(str(part).strip())
    return found
