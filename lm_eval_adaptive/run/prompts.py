"""A run's prompts held against its bank's, before anything is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lm_eval_adaptive.banks.prompts import prompt_differences, prompts_of
from lm_eval_adaptive.host.own_part import live_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lm_eval_adaptive.host.candidate import Candidate
    from lm_eval_adaptive.host.task import TaskDocs
    from lm_eval_adaptive.run.contest import View


def tell_prompt_differences(docs: TaskDocs, view: View, candidates: Sequence[Candidate]) -> None:
    """Add to a view's notices what sets its prompts apart from its bank's."""
    bank = view.terms.bank
    if bank is None:
        return
    # Banks without any such part hold no column of them.
    then = dict(enumerate(bank.part_hash))
    wanted = {item: doc for doc, item in view.item_of.items() if then.get(item)}
    own = live_parts(docs.task, docs.docs, wanted.values())
    parts = {item: (then[item], own[doc]) for item, doc in wanted.items() if doc in own}
    models = {each.name: prompts_of(docs, each.prompt) for each in candidates}
    names, told = prompt_differences(bank, docs.num_fewshot, models, parts)
    view.unlike = tuple(names)
    view.notices += told
