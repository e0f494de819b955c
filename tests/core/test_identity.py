"""The hash that names a document."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_adaptive.core.identity import content_hash, content_hash_of_json, item_keys
from lm_eval_adaptive.errors import DataError

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
docs = st.dictionaries(st.text(), json_values, max_size=5)


def test_the_hash_is_the_documented_one():
    text = '{"a":[1,2.5],"b":"ü"}'
    doc = {"b": "ü", "a": [1, 2.5]}
    assert content_hash(doc) == hashlib.sha256(text.encode()).hexdigest()


@given(docs, st.randoms(use_true_random=False))
def test_column_order_does_not_matter(doc, random):
    shuffled = list(doc.items())
    random.shuffle(shuffled)
    assert content_hash(dict(shuffled)) == content_hash(doc)


@given(docs, st.text(), json_values, json_values)
def test_values_do(doc, key, one, other):
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (content_hash({**doc, key: one}) == content_hash({**doc, key: other})) is same


@given(docs)
def test_a_live_document_and_its_logged_twin_agree(doc):
    logged = json.loads(json.dumps(doc, ensure_ascii=False))
    assert content_hash(doc) == content_hash_of_json(logged)


def test_types_that_the_harness_turns_into_text_or_numbers():
    live = {
        "count": np.int64(3),
        "ratio": np.float64(0.1),
        "flag": np.bool_(True),
        "pair": (1, 2),
        "day": dt.date(2024, 5, 1),
        "raw": b"\x00x",
        "by_number": {10: "ten", 9: "nine"},
    }
    logged = {
        "count": 3,
        "ratio": 0.1,
        "flag": True,
        "pair": [1, 2],
        "day": "2024-05-01",
        "raw": "b'\\x00x'",
        "by_number": {"10": "ten", "9": "nine"},
    }
    assert content_hash(live) == content_hash_of_json(logged)


def test_arrays_count_in_full():
    long = np.arange(2000)
    changed = long.copy()
    changed[1000] = -1  # in the part that str() leaves out
    assert content_hash({"x": long}) != content_hash({"x": changed})


def test_images_count_by_their_pixels():
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    red, also_red = (image.new("RGB", (2, 2), "red") for _ in range(2))
    assert content_hash({"x": red}) == content_hash({"x": also_red})
    assert content_hash({"x": red}) != content_hash({"x": image.new("RGB", (2, 2), "blue")})


def test_sets_do_not_depend_on_the_hash_seed():
    code = (
        "from lm_eval_adaptive.core.identity import content_hash;"
        "print(content_hash({'x': {'a', 'b', 'c', 'd', 'e'}}))"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(seen) == 1


def test_an_object_that_prints_its_address_is_refused():
    with pytest.raises(DataError, match=r"memory address.*process_docs"):
        content_hash({"x": object()})


def test_only_repeating_documents_get_their_id():
    assert item_keys(["a", "b", "a"], [4, 5, 6]) == ("a#4", "b", "a#6")
    assert item_keys(["a", "b"], [4, 5], repeated=frozenset({"b"})) == ("a", "b#5")
