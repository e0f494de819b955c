"""``simulate`` on a command line: regimes, families and sources, its JSON, errors in one line."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lm_eval_adaptive.cli.main import main
from lm_eval_adaptive.cli.simulate_tables import show
from lm_eval_adaptive.core.plan import Plan
from lm_eval_adaptive.core.summary import summarise
from tests.core.test_summary import ROW

BASE = ["--metric", "score", "--methods", "random-shared", "static", "--partitions", "2"]
ROW_KEYS = [
    "matrix", "metric", "method", "items_per_model", "partition", "tau", "decided", "correct",
    "decided_pairs", "score_abs_error", "covered", "items", "cost",
]  # fmt: skip


def write(path, models=16, items=40, prefix="m", seed=0):
    rng = np.random.default_rng(seed)
    ability, difficulty = rng.normal(size=models), rng.normal(size=items)
    noise = rng.normal(scale=0.5, size=(models, items))
    scores = 1.0 / (1.0 + np.exp(-ability[:, None] - difficulty[None, :] - noise))
    lines = ["model,item,score"]
    for row in range(models):
        for column in range(items):
            name = f"{prefix}{'ab'[row % 2]}-{row:02d}"
            lines.append(f"{name},i{column},{scores[row, column]:.6f}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


@pytest.fixture
def scores(tmp_path):
    return write(tmp_path / "toy.csv")


def simulated(tmp_path, *words):
    output = tmp_path / f"out{len(list(tmp_path.iterdir()))}.json"
    assert main(["simulate", *BASE, *words, "--jobs", "1", "--json", str(output)]) == 0
    return json.loads(output.read_text(encoding="utf-8"))


def test_regimes_stand_in_the_rows_the_means_the_plan_and_the_table(tmp_path, scores, capsys):
    source = write(tmp_path / "source.csv", models=9, items=30, prefix="s", seed=1)
    words = ["--scores", scores, "--regime", "all", "--calibrate_on", source]
    found = simulated(tmp_path, *words)
    regimes = ["random", "stronger", "weaker", "top", "family", "source"]
    assert found["plan"]["regimes"] == regimes
    assert list(dict.fromkeys(row["regime"] for row in found["rows"])) == regimes
    for row in found["rows"]:
        assert list(row)[: len(ROW_KEYS)] == ROW_KEYS
        assert set(row) - set(ROW_KEYS) == {"regime", "shared"}
        assert (row["shared"] is None) == (row["method"] == "random-shared")
    for mean in found["means"]:
        known = mean["method"] != "random-shared"
        assert (mean["tau_diff"] is not None) == known
        assert (mean["score_abs_error_diff_se"] is not None) == known
        assert mean["accuracy_low"] <= (mean["accuracy"] or 0.0) <= mean["accuracy_high"]
    assert found["skipped"] == []
    printed = capsys.readouterr().out
    for regime in regimes:
        assert f"{regime} (2)" in printed  # two tests in each
    for head in ("accuracy, 95 %", "Δτ", "Δdecided", "× MAE"):
        assert head in printed
    assert "…" not in printed  # nothing is cut


def test_without_a_regime_rows_are_those_of_random_partitions(tmp_path, scores):
    plain = simulated(tmp_path, "--scores", scores)
    named = simulated(tmp_path, "--scores", scores, "--regime", "random", "--regime", "top")
    assert {row["regime"] for row in plain["rows"]} == {"random"}
    assert plain["rows"] == [row for row in named["rows"] if row["regime"] == "random"]
    # Partition r draws by seed + r.
    later = simulated(tmp_path, "--scores", scores, "--regime", "top", "--seed", "1")
    moved = [row for row in named["rows"] if row["regime"] == "top" and row["partition"] == 1]
    again = [row for row in later["rows"] if row["partition"] == 0]
    assert [{**row, "partition": 1} for row in again] == moved


def test_a_matrix_too_small_for_a_regime_is_said_in_a_line_and_counted(tmp_path, scores, capsys):
    small = write(tmp_path / "small.csv", models=8)
    words = ["--scores", scores, "--scores", small, "--regime", "random", "stronger", "family"]
    found = simulated(tmp_path, *words)
    cells = {(row["matrix"], row["regime"]) for row in found["rows"]}
    assert cells == {
        ("toy", "random"), ("toy", "stronger"), ("toy", "family"), ("small", "random"),
    }  # fmt: skip
    assert [(each["matrix"], each["regime"]) for each in found["skipped"]] == [
        ("small", "stronger"),
        ("small", "family"),
    ]
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("left out")]
    assert said[0] == (
        "left out: small score: no regime stronger, 8 complete models leave 3 to rank 4 of and 5 "
        "to calibrate with, expected 6 at least"
    )
    assert said[2:] == ["left out: 2 of 6 (matrix, regime) pairs"]


def test_a_family_comes_from_a_file_a_column_or_the_names(tmp_path, scores):
    table = tmp_path / "toy.models.csv"
    members = [f"m{'ab'[row % 2]}-{row:02d}" for row in range(4)]
    lines = [f"{name},{int(name in members[:3])},one" for name in members]
    table.write_text("model,group,family\n" + "\n".join(lines) + "\n", encoding="utf-8")
    by_column = simulated(tmp_path, "--scores", scores, "--regime", "family", "--family", "group")
    by_file = simulated(tmp_path, "--scores", scores, "--regime", "family", "--family", str(table))
    by_name = simulated(tmp_path, "--scores", scores, "--regime", "family")
    prefix = simulated(tmp_path, "--scores", scores, "--regime", "family", "--family", "prefix")
    assert by_name["rows"] == prefix["rows"]
    # Three, four and eight members, of whom at most four are ranked.
    costs = [
        {row["cost"] / row["items"] for row in each["rows"]}
        for each in (by_column, by_file, prefix)
    ]
    assert costs == [{3.0}, {4.0}, {4.0}]
    assert by_file["rows"] != prefix["rows"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--regime", "best"], "--regime: unknown best; known are random, stronger,"),
        (["--regime", "source"], "--regime source needs --calibrate_on"),
        (["--family", "prefix"], "--family serves --regime family (or all)"),
        (["--regime", "family", "--family", "color"], "--family color: color is no file"),
        (["--regime", "family", "--family", "none.csv"], "none.csv cannot be read as a table"),
        (["--regime", "family", "--family", "{other}"], "names none of the 16 models"),
        (["--regime", "all", "--family", "prefix", "--family", "prefix", "--family", "x"],
         "1 matrices and 3 --family: give one for all, or one for each"),
        (["--calibrate_on", "{foreign}"], "have 0 in common; both files need the same item ids"),
        (["--calibrate_on", "none.parquet"], "none.parquet"),
        (["--regime", "top", "--holdout_models", "ma-00", "mb-01"], "leave out --regime"),
        (["--regime", "stronger", "--holdout", "12"], "no regime stronger, 16 complete models"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_line(tmp_path, scores, capsys, words, message):
    other = tmp_path / "other.csv"
    other.write_text("model,family\nsomebody,x\n", encoding="utf-8")
    foreign = tmp_path / "foreign.csv"
    rows = [f"s{row},x{column},0.{row}{column}" for row in range(8) for column in range(9)]
    foreign.write_text("model,item,score\n" + "\n".join(rows) + "\n", encoding="utf-8")
    words = [word.format(other=other, foreign=foreign) for word in words]
    assert main(["simulate", "--scores", scores, *BASE, *words]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.strip().splitlines()
    assert line.startswith("lm-eval-adaptive: ")
    assert message in line


def test_a_narrow_terminal_gets_the_differences_in_a_table_of_their_own(monkeypatch, capsys):
    for name, value in (("COLUMNS", "80"), ("FORCE_COLOR", "1"), ("TERM", "xterm")):
        monkeypatch.setenv(name, value)
    show(summarise([ROW]), Plan(partitions=1))
    narrow = capsys.readouterr().out
    assert "beside random items" in narrow
    assert "…" not in narrow
    monkeypatch.setenv("COLUMNS", "160")
    show(summarise([ROW]), Plan(partitions=1))
    assert "beside random items" not in capsys.readouterr().out
