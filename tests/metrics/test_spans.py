"""Span score, by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_adaptive.errors import DataError
from lm_eval_adaptive.metrics import METRICS, Case, spans

GOLD = [("ann lee", "name"), ("ashby", "city"), ("4 pm", "time")]


@pytest.mark.parametrize(
    ("given_spans", "expected"),
    [
        (GOLD, 1.0),
        ([], 0.0),
        # Two of three found, both named right: F1 2*2/5.
        (GOLD[:2], (0.8 + 1.0) / 2),
        # Found, but named wrong.
        ([("ann lee", "city")], (2 / 4 + 0.0) / 2),
        # Contained counts half: F1 2*0.5/4.
        ([("ann", "name")], (0.25 + 1.0) / 2),
        ([("mrs ann lee", "name")], (0.25 + 1.0) / 2),
        # The exact match is taken before the one that holds it, whatever the order.
        ([("ann", "name"), ("ann lee", "name")], (2 / 5 + 1.0) / 2),
        # Invented spans cost precision only.
        ([*GOLD, ("x9", "pin")], (6 / 7 + 1.0) / 2),
    ],
)
def test_by_hand(given_spans, expected):
    assert spans.score(GOLD, given_spans) == pytest.approx(expected)


def test_nothing_to_find():
    assert spans.score([], []) == 1.0
    assert spans.score([], [("a", "b")]) == 0.0


def test_of_two_equal_texts_the_one_of_that_label_matches():
    gold = [("paris", "city"), ("paris", "first_name")]
    assert spans.score(gold, [("paris", "first_name"), ("paris", "city")]) == 1.0


def test_of_two_that_hold_each_other_the_nearer_in_length_matches():
    found = spans.match([("ann lee smith", "name")], [("ann", "name"), ("ann lee", "city")])
    assert found == [(0, 1, 0.5)]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("", []),
        ("no bar here", []),
        ("Ann  Lee|NAME\n* Ann Lee | name", [("ann lee", "name")]),
        ("1. a|b | Phone-Number", [("a|b", "phone_number")]),
        ("`secret` | password", [("secret", "password")]),
        (" | city\nx | ", []),
    ],
)
def test_reading_answers(answer, expected):
    assert spans.read_answer(answer) == expected


def test_gold_as_published_is_python_text_with_numbers_in_it():
    text = "[{'start': 0, 'end': 3, 'text': 123, 'label': 'pin'}, {'text': \"O'Hara\", 'label': 'last_name'}]"
    assert spans.read_gold(text) == [("123", "pin"), ("o'hara", "last_name")]
    assert spans.read_gold('[{"text": "a", "label": "b"}]') == [("a", "b")]


@pytest.mark.parametrize("value", ["__import__('os')", 3, [{"text": "a"}], "nonsense ["])
def test_other_gold_is_refused(value):
    with pytest.raises(DataError):
        spans.read_gold(value)


def test_edges_of_a_case():
    compute = METRICS["span_score"].compute
    doc = {"spans": "[{'text': 'ann', 'label': 'first_name'}]"}
    assert compute([Case("", doc=doc), Case("ann | first_name", doc=doc)], {}) == [0.0, 1.0]
    assert math.isnan(compute([Case("ann | first_name", doc={})], {})[0])
    long = "ann | first_name\n" + "\n".join(f"w{k} | pin" for k in range(12_000))
    assert 0.5 < compute([Case(long, doc=doc)], {})[0] < 0.51


_SPAN = st.tuples(st.text("ab ", min_size=1, max_size=4), st.sampled_from(["x", "y"]))


@given(st.lists(_SPAN, max_size=5), st.lists(_SPAN, max_size=5))
def test_a_score_is_a_share_and_matches_each_span_once(gold, mine):
    assert 0.0 <= spans.score(gold, mine) <= 1.0
    pairs = spans.match(gold, mine)
    assert (
        len({row for row, _, _ in pairs}) == len({column for _, column, _ in pairs}) == len(pairs)
    )
