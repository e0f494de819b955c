"""Which models are of one family: judges favour their own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_FAMILIES = {
    "openai": ("gpt", "chatgpt", "o1", "o3", "o4", "davinci", "openai"),
    "anthropic": ("claude", "anthropic"),
    "google": ("gemini", "gemma", "palm", "t5gemma"),
    "llama": ("llama", "vicuna", "tulu"),
    "qwen": ("qwen", "qwq", "qvq"),
    "mistral": ("mistral", "mixtral", "ministral", "codestral", "magistral", "zephyr"),
    "deepseek": ("deepseek",),
    "phi": ("phi",),
    "cohere": ("command", "aya", "c4ai"),
    "smollm": ("smollm",),
    "olmo": ("olmo",),
    "falcon": ("falcon",),
    "granite": ("granite",),
    "nemotron": ("nemotron",),
    "glm": ("glm", "chatglm"),
    "yi": ("yi",),
    "grok": ("grok",),
    "kimi": ("kimi", "moonshot"),
    "pythia": ("pythia", "neox"),
}


def family(name: str) -> str | None:
    """Family of a model by its name, None where it is not known.

    >>> family("meta-llama/Llama-3.1-8B-Instruct"), family("gpt-4o"), family("my-model")
    ('llama', 'openai', None)
    """
    # "DeepSeek-R1-Distill-Qwen-7B" is a Qwen in DeepSeek's words: the first part decides.
    for part in re.split(r"[\W_]+", name.rpartition("/")[2].lower()):
        for known, words in _FAMILIES.items():
            if any(re.fullmatch(rf"{word}[\d.]*[a-z]?", part) for word in words):
                return known
    return None


def family_warnings(judge_name: str, candidates: Mapping[str, str]) -> list[str]:
    """A warning per candidate of the judge's own family.

    Args:
        judge_name: The judge's name at its server.
        candidates: What each candidate is made of (model and arguments as text), by its name.
    """
    own = family(judge_name)
    found = []
    for name, text in candidates.items():
        words = [text, *re.split(r"[,=\s]+", text), name]
        if own is not None and own in {family(word) for word in words if word}:
            found.append(
                f"judge {judge_name} and candidate {name} are of one family ({own}): judges favour "
                "their own; compare with another judge"
            )
    return found
