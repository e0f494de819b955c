"""Command lines and files that nobody would write: no traceback, no odd code, nothing changed.

Derandomised here; a longer profile runs by hand with ``FUZZ_EXAMPLES=2000``, and ``scripts/
attack.py`` goes further. Runs that would ask a model are left to the table and the script: here
every example takes milliseconds.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import bad_input

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "15"))
FUZZ = settings(
    max_examples=EXAMPLES,
    derandomize=EXAMPLES < 100,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
# Places where a file may turn out to be as good as it was, and then models are asked.
ASKS = ("run --models", "run --config", "run --tasks yaml", "run --bank")
READS = [place for place in bad_input.PLACES if place.name not in ASKS]
OPTIONS = (
    "--confidence", "--range", "--budget", "--bank", "--pairs", "--metric", "--seed", "--model_cost",
    "--resume", "--config", "--models", "--tasks", "--output_path", "--clip", "--scores", "--samples",
    "--output", "--update", "--dataset", "--input", "--prompt", "--holdout", "--family", "--regime",
)  # fmt: skip
COMMANDS = (
    "run --adaptive",
    "calibrate",
    "simulate",
    "init-task",
    "bank show",
    "bank check",
    "report",
)


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return bad_input.good_files(tmp_path_factory.mktemp("good"))


@FUZZ
@given(data=st.data())
@pytest.mark.parametrize("place", READS, ids=lambda place: place.name)
def test_a_file_with_any_bytes_in_it(good, tmp_path_factory, place, data):
    content = (good / place.good).read_bytes()
    at = data.draw(st.integers(0, len(content)))
    lost = data.draw(st.integers(0, 60))
    put = data.draw(st.one_of(st.binary(max_size=40), st.text(max_size=20).map(_as_bytes)))
    folder = tmp_path_factory.mktemp("fuzz")
    file = folder / "in" / place.file
    file.parent.mkdir(parents=True)
    file.write_bytes(content[:at] + put + content[at + lost :])
    (folder / "o").mkdir()
    before = bad_input.snapshot(folder / "in"), bad_input.snapshot(good)
    answer = bad_input.attempt(bad_input.words_of(place, good, file, folder / "o"))
    assert answer.faults() == []
    if "--resume" not in answer.words:  # that goes on in its file
        assert (bad_input.snapshot(folder / "in"), bad_input.snapshot(good)) == before


def _as_bytes(text):
    return text.encode("utf-8", "surrogatepass")


WORD = st.one_of(
    st.text(max_size=12),
    st.floats().map(str),
    st.integers().map(str),
    st.sampled_from(
        ("none", "all", "auto", "-1,1", "nan,1", "a=b", "{{", "x.parquet", "x.json", "")
    ),
)


@settings(FUZZ, max_examples=EXAMPLES * 8)
@given(
    command=st.sampled_from(COMMANDS),
    words=st.lists(st.one_of(st.sampled_from(OPTIONS), WORD), max_size=7),
)
def test_a_command_line_of_any_words(tmp_path_factory, command, words):
    folder = tmp_path_factory.mktemp("words")
    old = Path.cwd()
    os.chdir(folder)
    try:
        # No model is named, so that nothing is asked and no task is looked for far away.
        words = [word for word in words if not word.startswith(("/", "~", "..", "-h", "--h"))]
        answer = bad_input.attempt([*command.split(), *words])
    finally:
        os.chdir(old)
    assert answer.faults() == []
    assert answer.code == 2
    assert bad_input.snapshot(folder) == {}
