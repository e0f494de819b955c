"""What calibration prompts have in common, and what sets a run's apart from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from lm_eval_adaptive.core.bank_info import PromptFacts
from lm_eval_adaptive.host.own_part import hash_of, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.host.logs import LoggedRun
    from lm_eval_adaptive.host.task import PromptSettings, TaskDocs

T = TypeVar("T")
_NAMES = {
    "system_instruction": "system instruction",
    "description": "description",
    "doc_to_text": "doc_to_text",
}


def shared_prompts(runs: Sequence[LoggedRun]) -> PromptFacts:
    """What the prompts of all runs have in common."""
    return PromptFacts(
        system_instruction=_shared(
            # A log that tells of chat templates tells of system instructions too.
            None if run.chat_template is None else _hashed(run.system_instruction or "")
            for run in runs
        ),
        description=_shared(_hashed(run.facts.description) for run in runs),
        doc_to_text=_shared(_hashed(run.facts.doc_to_text) for run in runs),
        chat_template=_shared(run.chat_template for run in runs),
    )


def prompts_of(docs: TaskDocs, settings: PromptSettings) -> PromptFacts:
    """What a model's prompts on a task have in common."""
    config = docs.task.config
    return PromptFacts(
        system_instruction=_hashed(settings.system_instruction or ""),
        description=_hashed(text_of(config.description)),
        doc_to_text=_hashed(text_of(config.doc_to_text) or None),
        chat_template=bool(settings.apply_chat_template),
    )


def prompt_differences(
    bank: ItemBank,
    num_fewshot: int | None,
    models: Mapping[str, PromptFacts],
    parts: Mapping[int, tuple[str, str]],
) -> tuple[list[str], list[str]]:
    """What sets a run's prompts apart from those that calibrated the bank.

    Prompts themselves are compared where the bank has their hashes; where its runs had several
    templates it has none, and this is what all of them shared.

    Args:
        bank: The bank.
        num_fewshot: Few-shot examples in the run's prompts, None where unknown.
        models: What each model's prompts have in common.
        parts: By item, the documents' own parts in the bank's prompts and in the run's, as hashes.

    Returns:
        The settings that differ, and what to tell of them, a line each.
    """
    names, told = [], []
    then = bank.info.num_fewshot
    # Banks made before named the number of one run where runs differed, and say so elsewhere.
    mixed = any(
        "the prompts of" in line and "documents differ" in line for line in bank.info.notices
    )
    if None not in (then, num_fewshot) and then != num_fewshot and not mixed:
        names.append("num_fewshot")
        told.append(
            f"the bank was calibrated on prompts with {then} few-shot examples, this run's have "
            f"{num_fewshot}: difficulties may have shifted; run with --num_fewshot {then}, or "
            "calibrate a bank for these prompts"
        )
    said = []
    differ = sum(before != now for before, now in parts.values())
    for field, name in _NAMES.items():
        if field == "doc_to_text" and parts and not differ:
            continue  # written otherwise, and gives the same text
        known = getattr(bank.info.prompts, field)
        others = [
            model
            for model, own in models.items()
            if None not in (known, getattr(own, field)) and getattr(own, field) != known
        ]
        if others:
            names.append(name)
            whose = "" if len(others) == len(models) else f" (of {', '.join(others)})"
            said.append(f"the {name}{whose}")
    if differ and "doc_to_text" not in names:
        names.append("doc_to_text")
        said.append(f"what the task makes of {differ} of {len(parts)} documents")
    templates = bank.info.prompts.chat_template
    if templates is not None and any(own.chat_template != templates for own in models.values()):
        names.append("chat template")  # a model's own: told where prompts are seen to differ
    if said:
        told.append(
            f"prompts are unlike those that the bank was calibrated on, in {' and '.join(said)}: "
            "difficulties may have shifted; set it as in the calibration runs, or calibrate a bank "
            "for these prompts"
        )
    return names, told


def _hashed(text: str | None) -> str | None:
    return hash_of(text) if text else text


def _shared(values: Iterable[T]) -> T | None:
    """The value that all runs share, None where they differ or one does not tell."""
    found = set(values)
    return found.pop() if len(found) == 1 else None
