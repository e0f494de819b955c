"""How items are chosen where the bank says: told in the ranking file, and overruled by the user."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lm_eval_adaptive.api import simple_evaluate
from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.run.config import AdaptiveConfig
from tests.support import toy

WORDS = "documents were drawn at random, the same for all models"


def ranking(bank, folder, **settings):
    found = simple_evaluate(
        toy.models(),
        [toy.TASK],
        AdaptiveConfig(bank=str(bank), items_per_model=12, **settings),
        output_path=str(folder),
    )
    return found["ranking"][toy.TASK]


@pytest.mark.parametrize("selector", ["fisher", "draw", "random"])
@pytest.mark.parametrize("sampler", ["auto", "fisher", "random"])
def test_the_banks_choice_holds_unless_the_user_names_one(selector, sampler, toy_bank, tmp_path):
    bank = ItemBank.load(toy_bank)
    path = replace(bank, info=replace(bank.info, selector=selector)).save(tmp_path / "a.parquet")
    found = ranking(path, tmp_path / "out", sampler=sampler)
    # Banks made before items were drawn say fisher, and mean that information is worth asking for.
    chosen = {"fisher": "draw"}.get(selector, selector)
    used = chosen if sampler == "auto" else sampler
    assert f"|sampler:{used}|" in found["signature"]
    told = [text for text in found["warnings"] if WORDS in text]
    # The user who asked for random documents need not be told.
    assert len(told) == (selector == "random" and sampler == "auto")
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert (WORDS in page) == bool(told)
    by_model = {}
    for step in found["trace"]:
        by_model.setdefault(step["model"], set()).add(step["doc_id"])
    documents = list(by_model.values())
    assert all(each == documents[0] for each in documents[1:])
