"""Whole runs give what they gave before: journal, ranking, results, samples, page and screen.

A difference that is wanted is kept by ``python tests/golden/runs.py store``; look at it in ``git
diff`` first.
"""

from __future__ import annotations

import json
import shutil

import pytest

from tests.golden import runs

needs_runs = pytest.mark.skipif(
    not (runs.LOGGED.is_dir() and runs.STORED.is_dir()),
    reason="a source distribution holds neither logged runs nor what they gave",
)


@needs_runs
@pytest.mark.slow
@pytest.mark.parametrize("name", runs.RUNS)
def test_a_run_gives_what_it_gave(name, tmp_path):
    runs.make(tmp_path, [name])
    found = runs.shortened(tmp_path / name)
    stored = json.loads((runs.STORED / f"{name}.json").read_text(encoding="utf-8"))
    assert sorted(found) == sorted(stored), "the files that a run leaves"
    told = []
    for file, lines in stored.items():
        shown = file.endswith((".html", ".txt"))
        changes = runs.differences(lines, found[file], shown=shown)
        if changes:
            told += [f"{file}: {len(changes)} change(s)", *changes[:5]]
    assert not told, "\n".join(told)


def stored_lines(name, file):
    (lines,) = (
        lines
        for path, lines in json.loads((runs.STORED / f"{name}.json").read_text("utf-8")).items()
        if path.startswith(file)
    )
    return lines


@needs_runs
def test_the_runs_are_what_they_are_named_for():
    """A run without its peculiarity would guard nothing."""
    journal = {name: stored_lines(name, "journal") for name in runs.RUNS}
    ranking = {name: "\n".join(stored_lines(name, "ranking_")) for name in runs.RUNS}
    kinds = [json.loads(line)["type"] for line in journal["resumed"]]
    assert kinds.count("resumed") == 1
    assert kinds[: kinds.index("resumed")].count("round") == runs.KILL_ROUND
    assert kinds[-1] == "end"
    assert {name for name in runs.RUNS if "|bank:none|" in ranking[name]} == {"no_bank"}
    assert {name for name in runs.RUNS if "|against:" in ranking[name]} == {"against"}
    assert "metric:slot_coverage" in ranking["several_metrics"]
    assert "metric:rougeL" in ranking["several_metrics"]


@pytest.mark.parametrize(
    ("before", "after", "shown", "same"),
    [
        ('"score": 0.123456789', '"score": 0.123456790', False, True),
        ('"score": 0.123456789', '"score": 0.123457789', False, False),
        ('"score": 1e-12', '"score": 3e-12', False, True),
        ('"score": 0.5', '"score": 0.4', False, False),
        ("doc 12: asked", "doc 13: asked", False, False),
        ("12 items", "13 items", True, False),
        ("0.441 ± 0.038", "0.442 ± 0.038", True, True),
        ("0.441 ± 0.038", "0.443 ± 0.038", True, False),
        ("0.441 ± 0.038", "0.441 ± 0.038 ?", True, False),
        ("smollm2-3shot-t0", "smollm2-5shot-t0", True, False),
        ("digest 1a2b3c", "digest 1a2b3d", True, False),
        ("digest 111111111111", "digest 111111111112", False, False),
        ("digest 1234567e12", "digest 1234567e13", False, False),
    ],
)
def test_numbers_may_differ_by_arithmetic_alone(before, after, shown, same):
    assert runs.alike(before, after, shown=shown) is same


def test_added_and_lost_lines_are_told():
    assert runs.differences(["a", "b"], ["a", "b", "c"], shown=False) == ["@@ -2,0 +3 @@", "+c"]
    assert runs.differences(["a", "b"], ["a"], shown=False) == ["@@ -2 +1,0 @@", "-b"]


def test_compare_tells_every_kind_of_difference(tmp_path):
    before, after = tmp_path / "before", tmp_path / "after"
    (before / "demo").mkdir(parents=True)
    (before / "demo" / "journal.jsonl").write_text('{"a": 0.10000000000000001}\n')
    (before / "demo" / "stdout.txt").write_text("one\ntwo\n")
    shutil.copytree(before, after)
    assert runs.compare(before, after) == []
    (after / "demo" / "stdout.txt").write_text("one\nthree\n")
    (after / "demo" / "more.txt").write_text("")
    (after / "demo" / "journal.jsonl").unlink()
    assert runs.compare(before, after) == [
        f"only in {before}: demo/journal.jsonl",
        f"only in {after}: demo/more.txt",
        "demo/stdout.txt differs:",
        "    @@ -2 +2 @@",
        "    -two",
        "    +three",
    ]
    assert runs.compare(tmp_path / "nothing", tmp_path / "nothing") != []


def test_what_hangs_on_clock_machine_and_threads_is_taken_out(tmp_path):
    text = (
        f"{tmp_path}/out/ranking_2026-12-01T02-55-14.170455.json of 2026-12-01 02-55, "
        "seed:1234|lea:0.1.0 about 552 items left, 20 s | 1 a 0.4"
    )
    assert runs.plain(text, tmp_path) == (
        "WORK/out/ranking_DATE.json of DATE, seed:1234|lea:VERSION about 552 items left, TIME | 1 a 0.4"
    )
    found = runs.steady({"date": 1.5, "score": 0.1, "of": [{"git_hash": "abc"}]}, str)
    assert found == {"date": "…", "score": 0.1, "of": [{"git_hash": "…"}]}
    answer = {"type": "answer", "round": 1}
    records = [
        {"type": "round", "round": 1},
        {**answer, "model": "b", "doc_id": 1},
        {"type": "resumed"},
        {**answer, "model": "a", "doc_id": 2},
        {**answer, "model": "a", "doc_id": 1},
        {"type": "end"},
    ]
    kept = [(each["type"], each.get("model"), each.get("doc_id")) for each in runs.journal_in_order(records)]  # fmt: skip
    assert kept == [
        ("round", None, None),
        ("answer", "a", 1),
        ("answer", "a", 2),
        ("answer", "b", 1),
        ("resumed", None, None),
        ("end", None, None),
    ]
    assert runs.answers_in_order("b-1 0.5, a-1 0.25\nb, a\n") == "a-1 0.25, b-1 0.5\nb, a\n"


def test_progress_keeps_what_was_decided_and_not_what_was_waited_for():
    kept = ["head", "round 1: 0 of 3 pairs decided; x", "round 9: 1 of 3 pairs decided; stopped: y"]
    waited = "round 4: 0 of 3 pairs decided; z"
    assert runs.progress_in_order("\n".join([*kept[:2], waited, kept[2]])).splitlines() == kept
    mixed = "warning: b\nwarning: a\nhead\nwarning: 0"
    assert runs.progress_in_order(mixed) == "warning: a\nwarning: b\nhead\nwarning: 0\n"
