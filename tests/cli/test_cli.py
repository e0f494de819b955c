"""The command line: a superset of lm-eval, and one line for every mistake."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from lm_eval_adaptive.cli.main import main
from tests.support import toy

VOLATILE = (
    "date",
    "start_time",
    "end_time",
    "total_evaluation_time_seconds",
    "pretty_env_info",
    "upper_git_hash",
    "git_hash",
)


def fails(capsys, *words, code=2):
    """Run, expect an exit code and one line on stderr; returns the line."""
    assert main([str(word) for word in words]) == code
    error = capsys.readouterr().err
    lines = [line for line in error.splitlines() if line.startswith("lm-eval-adaptive:")]
    assert len(lines) == 1, error
    assert "Traceback" not in error
    return lines[0]


def adaptive(bank, *words, models=None):
    return [
        "run", "--adaptive", "--tasks", toy.TASK, "--bank", bank,
        *(toy.candidate_words() if models is None else models), *words,
    ]  # fmt: skip


def settled(path):
    """A results file without what changes from run to run."""
    found = json.loads(path.read_text())
    for key in VOLATILE:
        found.pop(key, None)
    return found


def test_without_adaptive_the_files_equal_lm_eval_s_own(tmp_path):
    words = [
        "run", "--model", "dummy", "--tasks", toy.TASK, "--limit", "12", "--num_fewshot", "2",
        "--include_path", str(toy.ROOT / "tasks"), "--log_samples",
    ]  # fmt: skip
    env = {**os.environ, "HF_HUB_OFFLINE": "1"}
    for program, folder in (("lm_eval", "theirs"), ("lm_eval_adaptive", "ours")):
        done = subprocess.run(
            [sys.executable, "-m", program, *words, "--output_path", str(tmp_path / folder)],
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for pattern in ("results_*.json", "samples_*.jsonl"):
        (one,), (two,) = theirs.rglob(pattern), ours.rglob(pattern)
        assert one.parent.name == two.parent.name
        if pattern.startswith("samples"):
            assert one.read_bytes() == two.read_bytes()
        else:
            assert settled(one) == settled(two)
            assert settled(one)["n-samples"][toy.TASK]["effective"] == 12


def test_three_ways_of_naming_models_are_one_run(toy_bank, tmp_path):
    entries = toy.models()
    (tmp_path / "models.yaml").write_text(json.dumps(entries))
    (tmp_path / "config.yaml").write_text(
        json.dumps(
            {
                "adaptive": True,
                "models": entries,
                "tasks": [toy.TASK],
                "bank": str(toy_bank),
                "items_per_model": 3,
                "min_items": 3,
                "output_path": str(tmp_path / "c"),
            }
        )
    )
    short = ["--items_per_model", "3", "--min_items", "3"]
    assert main([str(w) for w in adaptive(toy_bank, *short, "--output_path", tmp_path / "a")]) == 0
    by_file = adaptive(
        toy_bank, *short, "--output_path", tmp_path / "b",
        models=["--models", tmp_path / "models.yaml"],
    )  # fmt: skip
    assert main([str(word) for word in by_file]) == 0
    assert main(["run", "--config", str(tmp_path / "config.yaml")]) == 0
    one, two, three = (toy.undated(toy.ranking_of(tmp_path / each)) for each in "abc")
    assert one == two == three


def test_our_task_and_the_replay_model_are_known_without_adaptive(toy_logs, tmp_path, capsys):
    words = ["--model", "replay", "--model_args", f"samples={toy_logs / 'cal-0.20'},model=cal-0.20"]
    assert main(["run", *words, "--tasks", toy.TASK, "--output_path", str(tmp_path)]) == 0
    (file,) = tmp_path.rglob("results_*.json")
    (logged,) = (toy_logs / "cal-0.20").glob("results_*.json")
    expected = json.loads(logged.read_text())["results"][toy.TASK]["rougeL,none"]
    assert json.loads(file.read_text())["results"][toy.TASK]["rougeL,none"] == expected


def test_help_is_quick_and_shows_every_option_of_the_contract(capsys):
    code = (
        "import sys\nfrom lm_eval_adaptive.cli.main import main\n"
        "try:\n    main(['run', '--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'datasets', 'transformers', 'pandas', 'scipy'} & set(sys.modules)\n"
        "print(sorted(heavy), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    for option in (
        "--adaptive", "--model_name", "--model_cost", "--models", "--bank", "--metric",
        "--confidence", "--correction", "--equivalence", "--pairs", "--min_items", "--max_items",
        "--budget", "--budget_items", "--items_per_model", "--precision", "--round_size",
        "--sampler", "--response_model", "--resume", "--tasks", "--gen_kwargs",
    ):  # fmt: skip
        assert option in done.stdout, option


def test_no_bank_for_the_task(capsys, tmp_path):
    line = fails(
        capsys, "run", "--adaptive", "--tasks", toy.TASK, "--bank", "none.parquet",
        *toy.candidate_words(), "--output_path", tmp_path / "o",
    )  # fmt: skip
    assert "no bank at none.parquet" in line
    assert "calibrate" in line
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"task": "other_task"}, "was made for task other_task"),
        ({"task_version": "9.0"}, "was made for version 9.0"),
        ({"filter": "strict"}, "was calibrated on filter strict"),
    ],
)
def test_bank_of_something_else(capsys, toy_bank, tmp_path, change, said):
    from dataclasses import replace

    from lm_eval_adaptive.core.bank import ItemBank

    bank = ItemBank.load(toy_bank)
    other = replace(bank, info=replace(bank.info, **change)).save(tmp_path / "other.parquet")
    assert said in fails(capsys, *adaptive(other, "--output_path", tmp_path / "o"))
    assert not (tmp_path / "o").exists()


def test_bank_of_other_documents_is_refused_with_the_counts(capsys, toy_bank, tmp_path):
    table = pq.read_table(toy_bank)
    hashes = table["content_hash"].to_pylist()
    for share, refused in ((0.03, False), (0.2, True)):
        changed = [f"x{h}" if i < share * len(hashes) else h for i, h in enumerate(hashes)]
        index = table.schema.get_field_index("content_hash")
        path = tmp_path / f"edited{share}.parquet"
        pq.write_table(table.set_column(index, "content_hash", [changed]), path)
        words = adaptive(
            path, "--output_path", tmp_path / f"o{share}", "--items_per_model", 2, "--min_items", 2
        )
        if refused:
            assert "63 of the 312 items" in fails(capsys, *words)
        else:
            assert main([str(word) for word in words]) == 0
            ranking = toy.ranking_of(tmp_path / f"o{share}")
            assert any("10 of the bank's 312 items are left out" in w for w in ranking["warnings"])


def test_other_metric_or_filter_than_the_bank_s(capsys, toy_bank):
    assert "--metric asks for bleu" in fails(capsys, *adaptive(toy_bank, "--metric", "bleu"))
    line = fails(capsys, *adaptive(toy_bank, "--metric", "rougeL,strict"))
    assert "calibrated on filter none, --metric asks for strict" in line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--limit", "10"], "--limit does not go with --adaptive"),
        (["--samples", '{"records_to_text": [1]}'], "--samples does not go with --adaptive"),
        (["--predict_only"], "--predict_only does not go with --adaptive"),
        (["--cache_requests", "true"], "--cache_requests does not go with --adaptive"),
        (["--confidence", "1.5"], "--confidence must lie between 0 and 1, got 1.5"),
        (["--pairs", "top:0"], "--pairs must be adjacent, all or top:K"),
        (["--budget", "12"], "--budget 12 does not cover the first 10 items of each model (30)"),
        (["--budget_items", "20"], "--budget_items 20 does not cover"),
        (["--max_items", "5"], "--max_items 5 is below --min_items 10"),
        (["--round_size", "many"], "--round_size must be auto or a whole number, got 'many'"),
        (["--precision", "0.1"], "--precision is for one model alone, got 3 models"),
        (["--include_path", "/nowhere"], "--include_path /nowhere: no such folder"),
    ],
)
def test_options_that_cannot_be_met(capsys, toy_bank, tmp_path, words, said):
    assert said in fails(capsys, *adaptive(toy_bank, *words, "--output_path", tmp_path / "o"))
    assert not (tmp_path / "o").exists()


def test_one_model_has_nothing_to_be_ranked_against(capsys, toy_bank):
    words = toy.candidate_words({"alone": 0.5})
    line = fails(capsys, *adaptive(toy_bank, models=words))
    assert "second --model" in line
    assert "--precision" in line


def test_two_models_of_one_name(capsys, toy_bank):
    words = toy.candidate_words()[:4] * 2
    line = fails(capsys, *adaptive(toy_bank, models=words))
    assert "two models are called" in line
    assert "--model_name" in line


def test_unknown_names_get_near_ones(capsys, toy_bank):
    words = ["--model", "replai", "--model_args", "samples=x"]
    line = fails(capsys, *adaptive(toy_bank, "--precision", 1, models=words))
    assert "no model type 'replai'" in line
    assert "replay" in line
    line = fails(
        capsys, "run", "--adaptive", "--tasks", "records_to_txt", "--bank", toy_bank,
        *toy.candidate_words(),
    )  # fmt: skip
    assert "records_to_text" in line


def test_models_file_with_a_wrong_key(capsys, toy_bank, tmp_path):
    path = tmp_path / "m.yaml"
    path.write_text("- {name: a, model: toy, pretrained: x}\n")
    line = fails(capsys, *adaptive(toy_bank, models=["--models", path]))
    assert f"{path}, model 1: unknown key(s) 'pretrained'" in line
    path.write_text("- [a\n")
    assert "no valid YAML" in fails(capsys, *adaptive(toy_bank, models=["--models", path]))
    line = fails(capsys, *adaptive(toy_bank, models=["--models", tmp_path / "none.yaml"]))
    assert "no file" in line


def test_option_of_adaptive_runs_without_adaptive(capsys):
    line = fails(capsys, "run", "--model", "dummy", "--tasks", toy.TASK, "--bank", "x")
    assert "add --adaptive" in line


def test_a_failing_model_exits_with_1(toy_bank, tmp_path):
    words = adaptive(toy_bank, "--output_path", tmp_path / "o")
    words[words.index("share=0.4,name=weak")] = "share=0.4,name=weak,fail_after=3"
    done = toy.command(*words, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert f"--resume {tmp_path / 'o'}" in done.stderr.splitlines()[-1]
    assert "set aside for failing: weak" in done.stderr.splitlines()[-1]


def test_resume_of_nothing(capsys, tmp_path):
    assert "no journal.jsonl" in fails(capsys, "run", "--adaptive", "--resume", tmp_path)


def calibrate(output, *words):
    return ["calibrate", "--task", toy.TASK, "--metric", "rougeL", "--output", output, *words]


def test_calibrate_from_logs_shows_and_checks(toy_logs, tmp_path, capsys):
    bank = tmp_path / "b.bank.parquet"
    words = calibrate(bank, "--samples", toy_logs, "--exclude_model", "cal-0.20")
    assert main([str(word) for word in words]) == 0
    assert "cal-0.90" in capsys.readouterr().out
    assert main(["bank", "show", str(bank), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert len(shown["items"]) == 312
    assert [model["name"] for model in shown["info"]["models"]] == [
        name for name in sorted(toy.CALIBRATION) if name != "cal-0.20"
    ]
    assert shown["info"]["range_source"] == "declared"
    assert len(shown["info"]["provenance"]["sources"]) == 7
    assert main(["bank", "check", str(bank), "--tasks", toy.TASK]) == 0
    assert "312 of 312 items" in capsys.readouterr().out


def test_calibrate_does_not_write_over_a_bank(toy_logs, toy_bank, tmp_path, capsys):
    bank = tmp_path / "b.bank.parquet"
    shutil.copy(toy_bank, bank)
    before = bank.read_bytes()
    assert "--overwrite" in fails(capsys, *calibrate(bank, "--samples", toy_logs))
    assert bank.read_bytes() == before


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    ability = np.linspace(0.2, 0.8, 6)
    scores = np.clip(ability[:, None] + 0.1 * rng.standard_normal((6, 20)), 0, 1)
    rows = [(f"m{m}", f"i{i}", scores[m, i]) for m in range(6) for i in range(20)]
    return pd.DataFrame(rows, columns=["model", "item", "score"])


@pytest.mark.parametrize(
    ("spoil", "words", "said"),
    [
        (lambda t: t[t.model < "m2"], [], "at least 3 models, got 2"),
        (lambda t: t.assign(score=0.5), [], "the same mean score"),
        (lambda t: t.assign(score=t.score * 100), ["--range", "0,1"], "outside the declared range"),
        (lambda t: t.assign(score="good"), [], "good"),
        (lambda t: pd.concat([t, t[:1].assign(score=0.9)]), [], "m0"),
        (lambda t: t.rename(columns={"score": "points"}), [], "score"),
        (lambda t: t, ["--exclude_model", "m9"], "no such model"),
        (lambda t: t, ["--range", "0"], "--range takes two numbers"),
    ],
)
def test_calibrate_refuses_bad_tables(capsys, tmp_path, table, spoil, words, said):
    path = tmp_path / "scores.csv"
    spoil(table).to_csv(path, index=False)
    line = fails(capsys, *calibrate(tmp_path / "b.parquet", "--scores", path, *words))
    assert said in line
    assert not (tmp_path / "b.parquet").exists()


def test_calibrate_from_a_table_clips_when_told_to(tmp_path, table, capsys):
    path = tmp_path / "scores.parquet"
    table.assign(score=table.score * 1.2).to_parquet(path)
    words = calibrate(tmp_path / "b.parquet", "--scores", path, "--range", "0,1", "--clip")
    assert main([str(word) for word in words]) == 0
    assert "notice: clipped" in capsys.readouterr().out


def test_calibrate_needs_one_source(capsys, tmp_path):
    line = fails(capsys, *calibrate(tmp_path / "b.parquet"))
    assert "--samples" in line
    assert "--scores" in line


def test_ls_and_validate_know_our_tasks(capsys):
    assert main(["ls", "subtasks", "--include_path", str(toy.ROOT / "tasks")]) in (0, None)
    out = capsys.readouterr().out
    assert toy.TASK in out.split("Item banks")[0]
    assert "records_to_text.bank.parquet (rougeL)" in out
    assert main(["validate", "--tasks", toy.TASK]) == 0


def test_several_processes_are_refused_before_anything_is_written(toy_bank, tmp_path):
    """Two processes as torchrun starts them, on this machine's CPUs."""
    words = adaptive(toy_bank, "--output_path", tmp_path / "o")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from tests.support import toy; toy.register();"
        "from lm_eval_adaptive.cli.main import main; sys.exit(main(sys.argv[2:]))"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(toy.ROOT), *map(str, words)],
            env={**os.environ, "WORLD_SIZE": "2", "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        for rank in range(2)
    ]
    for process in started:
        _, stderr = process.communicate(timeout=120)
        assert process.returncode == 2
        assert "adaptive runs take one process, this is one of 2" in stderr.splitlines()[-1]
    assert not (tmp_path / "o").exists()


def test_a_reader_that_has_seen_enough_ends_a_command_quietly():
    """`bank list | head -1`: no line about a fault of ours."""
    import os
    import subprocess

    script = f"{sys.executable} -m lm_eval_adaptive bank list; echo code $? >&2"
    done = subprocess.run(
        ["bash", "-c", f"({script}) | head -c 1"],
        env={**os.environ, "PYTHONPATH": str(toy.ROOT), "PYTHONUNBUFFERED": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr.strip() in ("code 141", "code 0"), done.stderr
