"""What a model sees of a document and what it is held against, as one hash.

This module owns the identity of documents whose task is code that hands them on whole, so that
nobody can tell which columns it reads; it imports the core's hash of contents and
the guard of tasks' draws. What stands
around a document's own part of the prompt (instructions, fixed examples, a chat template) is the
same for all documents of a run and differs between runs: whatever all prompts of a run begin and
end with is left out.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.core.identity import content_hash
from lm_eval_adaptive.host.draws import draws_left_alone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


def sights(
    seen: Callable[[], Iterable[tuple[str, object]]], *, alone: bool = False
) -> tuple[str, ...]:
    r"""Hash of what sets each document apart in its prompt, and of its target.

    Args:
        seen: Gives the prompt, or the document's own part of it, as text or as the JSON of a chat,
            and the target of each document of one run. It is called twice, so that a log of any
            length can be read again in place of being held.
        alone: Leave the targets out, and white space apart: how other programs write these is
            not known.

    Returns:
        64 hexadecimal digits each, "" where a prompt holds nothing of its own.

    >>> one = sights(lambda: [("Q: a?\nA:", "x"), ("Q: b?\nA:", "y")])
    >>> one == sights(lambda: [("Hi. Q: a?\nA: <bot>", "x"), ("Hi. Q: b?\nA: <bot>", "y")])
    True
    """
    head = tail = None
    shortest = 0
    for prompt, _ in seen():
        text = _last_turn(prompt)
        if head is None or tail is None:
            head, tail, shortest = text, text[::-1], len(text)
        else:
            head, tail = _common(head, text), _common(tail, text[::-1])
            shortest = min(shortest, len(text))
    start = len(head or "")
    end = min(len(tail or ""), shortest - start)

    def own(prompt: str) -> str:
        text = _last_turn(prompt)
        return text[start : len(text) - end].strip()

    def named(part: str, target: object) -> str:
        if not part:
            return ""
        if alone:
            return content_hash({"prompt": " ".join(part.split())})
        return content_hash({"prompt": part, "target": _plain(target)})

    return tuple(named(own(prompt), target) for prompt, target in seen())


def live_sights(task: Any, docs: Sequence[Any], *, alone: bool = False) -> tuple[str, ...]:
    """The same of a live task's documents, "" for all where a part is no text."""
    with draws_left_alone():
        found = [(task.doc_to_text(doc), task.doc_to_target(doc)) for doc in docs]
    if not all(isinstance(part, str) for part, _ in found):
        return ("",) * len(docs)
    return sights(lambda: found, alone=alone)


def _common(one: str, other: str) -> str:
    """What both texts begin with."""
    return os.path.commonprefix([one, other])  # noqa: RUF071  of texts, not of paths


def _last_turn(prompt: str) -> str:
    """The user's last message of a chat that was logged as JSON, any other prompt as it is."""
    if not prompt.startswith("[{"):
        return prompt
    try:
        turns = json.loads(prompt)
        said = [turn["content"] for turn in turns if turn["role"] == "user"]
    except (ValueError, TypeError, KeyError):
        return prompt
    return said[-1] if said and isinstance(said[-1], str) else prompt


def _plain(target: object) -> str:
    """A target as a log has it: through JSON, then as text."""
    return str(json.loads(json.dumps(target, default=str)))
