"""What a model sees of a document and what it is held against, as one hash.

This module owns the identity of documents whose task is code that hands them on whole, so that
nobody can tell which columns it reads; it imports the core's hash of contents alone. What stands
around a document's own part of the prompt (instructions, fixed examples, a chat template) is the
same for all documents of a run and differs between runs: whatever all prompts of a run begin and
end with is left out.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.core.identity import content_hash
from lm_eval_adaptive.host.draws import TASK_CODE, RandomState

if TYPE_CHECKING:
    from collections.abc import Sequence


def sights(prompts: Sequence[str], targets: Sequence[object]) -> tuple[str, ...]:
    r"""Hash of what sets each document apart in its prompt, and of its target.

    Args:
        prompts: The prompts of one run, or the documents' own parts of them; as text or as the JSON
            of a chat.
        targets: What each answer is held against, of the same length.

    Returns:
        64 hexadecimal digits each, "" where a prompt holds nothing of its own.

    >>> one = sights(["Q: a?\nA:", "Q: b?\nA:"], ["x", "y"])
    >>> one == sights(["Hi. Q: a?\nA: <bot>", "Hi. Q: b?\nA: <bot>"], ["x", "y"])
    True
    """
    texts = [_last_turn(prompt) for prompt in prompts]
    start = _common(texts)
    rest = [text[start:] for text in texts]
    end = _common([text[::-1] for text in rest])
    own = [text[: len(text) - end].strip() for text in rest]
    return tuple(
        content_hash({"prompt": part, "target": _plain(target)}) if part else ""
        for part, target in zip(own, targets, strict=True)
    )


def live_sights(task: Any, docs: Sequence[Any]) -> tuple[str, ...]:
    """The same of a live task's documents, "" for all where a part is no text."""
    prompts: list[str] = []
    targets: list[object] = []
    with TASK_CODE:
        before = RandomState.now()
        try:
            for doc in docs:
                part = task.doc_to_text(doc)
                if not isinstance(part, str):
                    return ("",) * len(docs)
                prompts.append(part)
                targets.append(task.doc_to_target(doc))
        finally:
            before.restore()
    return sights(prompts, targets)


def _common(texts: Sequence[str]) -> int:
    """How many characters all texts begin with: as many as the least and the greatest share."""
    if not texts:
        return 0
    first, last = min(texts), max(texts)
    pairs = enumerate(zip(first, last, strict=False))
    return next((place for place, (a, b) in pairs if a != b), len(first))


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
