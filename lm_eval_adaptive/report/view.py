"""What the report shows of one task, and what its sections ask of that.

This module owns the view and small facts drawn from it; where a view comes from is ``input``'s.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.report.page import as_text, share

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.records.journal import AnswerRecord
    from lm_eval_adaptive.records.ranking import RankingDocument

    # As the harness logs them, by model and document id.
    Samples = Mapping[str, Mapping[int, Mapping[str, Any]]]

EXCERPT_CHARS = 160
# With more models than this, what grows with their square is drawn with less detail.
MANY_MODELS = 40


@dataclass(frozen=True)
class TaskView:
    """All that the report shows of one task.

    Attributes:
        ranking: A ranking document; its ``ranking`` is empty where only the journal is known.
        bank: The bank, None where it was not found.
        answers: The answers of the journal.
        samples: The harness's logged samples, by model and document id.
        command: The command line that repeats the run, "" where it is not known.
        unfinished: Whether the run is going on or was interrupted.
        notes: What the reader of this page has to know about the page.
    """

    ranking: RankingDocument
    bank: ItemBank | None = None
    answers: Sequence[AnswerRecord] = ()
    samples: Samples = field(default_factory=dict)
    command: str = ""
    unfinished: bool = False
    notes: tuple[str, ...] = ()


def direction_of(ranking: RankingDocument) -> str:
    """The metric's direction in words, "" where it is unknown."""
    better = ranking.higher_is_better
    return "" if better is None else "higher is better" if better else "lower is better"


def valid_answers(view: TaskView) -> dict[str, list[AnswerRecord]]:
    """Answers that count, by model in ranking order."""
    excluded = {each.doc_id for each in view.ranking.excluded}
    found: dict[str, list[AnswerRecord]] = {name: [] for name in view.ranking.names}
    for answer in view.answers:
        counts = answer.score is not None and answer.doc_id not in excluded
        if counts and answer.model in found:
            found[answer.model].append(answer)
    return found


def prompt_of(sample: Mapping[str, Any]) -> str:
    """The prompt text of a logged sample, whatever shape the harness gave its arguments."""
    found: Any = sample.get("arguments", "")
    while isinstance(found, dict | list) and found:
        found = next(iter(found.values())) if isinstance(found, dict) else found[0]
    return found if isinstance(found, str) else as_text(found)


def _common(first: str, last: str) -> int:
    """Length of the common start of two texts; of a sorted list's ends, that of the list."""
    for place, (one, other) in enumerate(zip(first, last, strict=False)):
        if one != other:
            return place
    return min(len(first), len(last))


def excerpts_of(view: TaskView) -> dict[int, str]:
    """The start of what is particular to each document: prompts without what all have in common."""
    found: dict[int, str] = {}
    for samples in view.samples.values():
        prompts = {doc: prompt_of(sample) for doc, sample in samples.items()}
        head = _common(min(prompts.values()), max(prompts.values())) if len(prompts) > 1 else 0
        for doc, prompt in prompts.items():
            if doc not in found:
                own = " ".join(prompt[head:].split())
                found[doc] = own if len(own) <= EXCERPT_CHARS else own[:EXCERPT_CHARS] + "…"
    return found


def short_headline(view: TaskView) -> str:
    """A sentence without names of pairs, where no model's name may be taken for markup."""
    ranking = view.ranking
    pairs = ranking.pairs
    told = sum(pair.decided for pair in pairs)
    asked = f"{ranking.items_total} items asked, {share(ranking.fraction)} of a full run"
    if not pairs:
        return f"{asked}."
    confidence = ranking.config.confidence
    return (
        f"{told} of {len(pairs)} pairs are told apart with {confidence:.0%} confidence each; "
        f"{asked}."
    )
