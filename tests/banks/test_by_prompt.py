"""Documents that are told by their prompts alone, white space apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lm_eval_adaptive.banks.check import match_documents
from lm_eval_adaptive.errors import DataError
from lm_eval_adaptive.host.sight import sights
from tests.core.helpers import make_bank, make_items

SEEN = [(f"Rate:  item {i} of the list \n", {"reference": i}) for i in range(8)]


def test_white_space_and_references_do_not_count():
    other = [(prompt.replace("  ", " ").strip(), "other") for prompt, _ in SEEN]
    assert sights(lambda: SEEN, alone=True) == sights(lambda: other, alone=True)
    assert sights(lambda: SEEN) != sights(lambda: other)
    changed = [(prompt.replace("3", "9"), target) for prompt, target in SEEN]
    same = [a == b for a, b in zip(sights(lambda: SEEN, alone=True),
                                   sights(lambda: changed, alone=True), strict=True)]  # fmt: skip
    assert same.count(False) == 1


def test_they_are_asked_last_and_it_is_told():
    bank = make_bank(make_items("robust-2pl", np.linspace(-1, 1, 8)))
    names = sights(lambda: SEEN, alone=True)
    bank = replace(bank, sight_hash=names)
    keys = tuple(f"{i + 100:064d}" for i in range(8))
    order = [3, 1, 0, 2, 7, 6, 5, 4]

    def prompts():
        return sights(lambda: [SEEN[i] for i in order], alone=True)

    found, notices = match_documents(bank, keys, sights=lambda: ("",) * 8, prompts=prompts)
    assert [order[place] for place in found] == list(range(8))
    assert "8 documents are told by their prompts alone, white space apart" in notices[0]
    with pytest.raises(DataError, match="8 of the 8 items"):
        match_documents(bank, keys, sights=lambda: ("",) * 8)
    # Where contents tell, nothing else is asked.
    match_documents(bank, bank.content_hash, prompts=lambda: pytest.fail("asked in vain"))
