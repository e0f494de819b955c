"""The shipped task ``records_to_text``: its documents, its metrics, and the logs kept of it."""

from __future__ import annotations

import gzip
import importlib.util
import itertools
import json
import re
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TASK_DIR = ROOT / "tasks" / "records"
RUNS = ROOT / "scripts" / "make" / "records_runs"
RUN_DIRS = sorted(path for path in RUNS.glob("*") if path.is_dir() and path.suffix != ".part")
needs_runs = pytest.mark.skipif(
    not RUN_DIRS, reason="the logs of scripts/make/records_runs are absent"
)


def load_module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"records_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


utils = load_module(TASK_DIR / "utils.py")


def read_docs(split: str) -> list[dict[str, Any]]:
    lines = (TASK_DIR / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def record(*values: str) -> list[dict[str, str]]:
    return [{"field": f"f{index}", "value": value} for index, value in enumerate(values)]


def load_task(directory: Path) -> Any:
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(directory), include_defaults=False)
    return manager.load(["records_to_text"])["tasks"]["records_to_text"]


# Documents


def test_documents_are_what_the_script_makes_byte_for_byte():
    script = load_module(ROOT / "scripts" / "make" / "records_docs.py")
    for split, docs in script.make_documents().items():
        assert script.as_jsonl(docs) == (TASK_DIR / f"{split}.jsonl").read_bytes()


def test_check_names_the_file_that_differs(tmp_path, monkeypatch, capsys):
    script = load_module(ROOT / "scripts" / "make" / "records_docs.py")
    for split in ("test", "fewshot"):
        shutil.copy(TASK_DIR / f"{split}.jsonl", tmp_path)
    monkeypatch.setattr(sys, "argv", ["records_docs.py", "--check", "--output", str(tmp_path)])
    assert script.main() == 0
    with (tmp_path / "fewshot.jsonl").open("a") as file:
        file.write("{}\n")
    assert script.main() == 1
    assert "fewshot.jsonl" in capsys.readouterr().err


def test_documents_are_distinct_and_of_every_length():
    test, fewshot = read_docs("test"), read_docs("fewshot")
    assert len(test) >= 300
    assert len(fewshot) == 8
    records = Counter(json.dumps(doc["record"]) for doc in test + fewshot)
    assert max(records.values()) == 1
    assert len({doc["id"] for doc in test + fewshot}) == len(test) + len(fewshot)
    lengths = Counter(len(doc["record"]) for doc in test)
    assert set(lengths) == set(range(2, 8))
    assert min(Counter(doc["domain"] for doc in test).values()) >= 20


@pytest.mark.parametrize("split", ["test", "fewshot"])
def test_the_target_itself_gets_full_marks(split):
    for doc in read_docs(split):
        assert utils.process_results(doc, [doc["target"]]) == {"rougeL": 1.0, "slot_coverage": 1.0}


# The task in the harness


def test_task_loads_from_any_directory_and_in_any_place(tmp_path, monkeypatch):
    installed = tmp_path / "site-packages" / "tasks" / "records"
    shutil.copytree(TASK_DIR, installed, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(tmp_path)
    for directory in (TASK_DIR, installed):
        task = load_task(directory)
        assert list(task.eval_docs) == read_docs("test")
        assert task.higher_is_better() == {"rougeL": True, "slot_coverage": True}
        assert task.config.metadata["adaptive"]["metric"] == "rougeL"


def test_prompts_with_and_without_examples():
    task = load_task(TASK_DIR)
    doc = {
        "id": "x",
        "domain": "person",
        "record": [{"field": "name", "value": "Ann"}, {"field": "job", "value": "nurse"}],
        "target": "Ann is a nurse.",
    }
    description = "Write one English sentence that states all facts of the record.\n\n"
    question = "Record: name = Ann; job = nurse\nSentence:"
    assert task.fewshot_context(doc, num_fewshot=0) == description + question
    shown = read_docs("fewshot")[:2]
    examples = "".join(f"{task.doc_to_text(ex)} {ex['target']}\n\n" for ex in shown)
    assert task.fewshot_context(doc, num_fewshot=2) == description + examples + question
    assert task.config.num_fewshot is None


# Metrics


def test_rouge_l_by_hand():
    # the maple lamp costs 26 / the maple lamp is 26: 4 of 5 words in order on either side.
    assert utils.rouge_l("The Maple lamp costs $26.", "the maple LAMP is 26") == pytest.approx(0.8)
    # 2 of 6 target words, 2 of 3 said: 2 * (1/3 * 2/3) / (1/3 + 2/3) = 4/9.
    assert utils.rouge_l("Ann is a nurse in Rome.", "nurse, Rome, Ann") == pytest.approx(4 / 9)


def test_rouge_l_is_the_package_s():
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(["rougeL"])
    docs = read_docs("test")
    for doc, other in itertools.pairwise(docs[:40]):
        expected = scorer.score(doc["target"], other["target"])["rougeL"].fmeasure
        assert utils.process_results(doc, [other["target"]])["rougeL"] == expected


@pytest.mark.parametrize(
    ("values", "answer", "expected"),
    [
        (("Ann Berg", "nurse", "1966", "Rome"), "Ann Berg is a nurse.", 2 / 4),
        (("Ann Berg", "nurse"), "ANN BERG'S JOB: NURSE!", 1.0),
        (("Ann Berg", "nurse"), "Ann is a nurse called Berg.", 1 / 2),
        (("The Blue Fig", "5 stars"), "Blue Fig is a five-star place.", 1.0),
        (("1,250", "$2,220"), "1250 people paid 2220 dollars.", 1.0),
        (("1,250",), "1,2500 or 1,25 or 11,250", 0.0),
        (("1250", "$9"), "It costs 1,250.00 or $9.", 1.0),
        (("26",), "The code is 126 or 260.", 0.0),
        (("$26",), "It weighs 26 kg.", 0.0),
        (("6.3 kg",), "It is 6.30 kilograms", 1.0),
        (("6.3 kg",), "It is 63 kg or 6 kg", 0.0),
        (("-9 °C",), "It is minus 9 degrees Celsius.", 1.0),
        (("-9 °C",), "It is 9 °C.", 0.0),
        (("9 °C",), "It is -9 °C.", 0.0),
        (("44%", "30 km/h"), "44 per cent and 30 kilometres per hour", 1.0),
        (("14 May",), "It is on May 14th.", 1.0),
        (("3-1",), "It ended 1-3.", 0.0),
        (("3-1",), "A 3\N{EN DASH}1 win", 1.0),
        (("9:05",), "It opens at 09:05.", 1.0),
        (("2 years", "2"), "A 2-year warranty", 1.0),
        (("eels",), "It has an eel.", 0.0),
        (("café",), "A CAFE.", 1.0),
        (("Rome",), "", 0.0),
        (("Rome",), " \t\n", 0.0),
        (("Rome",), "?!…", 0.0),
    ],
)  # fmt: skip
def test_slot_coverage_by_hand(values, answer, expected):
    assert utils.slot_coverage(record(*values), answer) == expected


@pytest.mark.parametrize("answer", ["", "   ", "\n", "?", "💥", "\x00"])
def test_empty_and_odd_answers_score_zero(answer):
    doc = {"record": record("Ann", "nurse"), "target": "Ann is a nurse."}
    assert utils.process_results(doc, [answer]) == {"rougeL": 0.0, "slot_coverage": 0.0}


# The logs of real models


def logged(run: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    (results,) = run.glob("results_*.json")
    (samples,) = run.glob("samples_records_to_text_*.jsonl.gz")
    with gzip.open(samples, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return json.loads(results.read_text(encoding="utf-8")), rows


@needs_runs
@pytest.mark.parametrize("run", RUN_DIRS, ids=lambda run: run.name)
def test_logged_scores_follow_from_logged_answers(run):
    results, rows = logged(run)
    docs = read_docs("test")
    rows.sort(key=lambda row: row["doc_id"])
    assert [row["doc"] for row in rows] == docs
    means = {"rougeL": 0.0, "slot_coverage": 0.0}
    for row in rows:
        scores = utils.process_results(row["doc"], row["filtered_resps"])
        assert scores == {name: row[name] for name in scores}
        for name, score in scores.items():
            means[name] += score / len(rows)
    for name, mean in means.items():
        assert results["results"]["records_to_text"][f"{name},none"] == pytest.approx(mean)
    assert results["model_name"] == run.name


@needs_runs
@pytest.mark.parametrize("run", RUN_DIRS, ids=lambda run: run.name)
def test_logs_say_nothing_of_the_machine(run):
    results, _ = logged(run)
    assert "pretty_env_info" not in results
    text = json.dumps(results)
    assert results["config"]["model_args"]["base_url"].startswith("http://127.0.0.1:PORT/")
    # Any absolute path; a URL's own path follows a word character, a colon or a slash.
    assert re.findall(r"(?<![\w:/.])/\w[\w.-]*/", text) == []


@needs_runs
def test_split_names_every_run_once_and_spans_qualities():
    script = load_module(ROOT / "scripts" / "make" / "records_models.py")
    split = json.loads((RUNS / "split.json").read_text(encoding="utf-8"))
    assert split == script.split()
    assert sorted(split["calibrate"] + split["rank"]) == [run.name for run in RUN_DIRS]
    scores = {run.name: script.mean_scores(run)["rougeL"] for run in RUN_DIRS}
    assert len(split["calibrate"]) >= 7
    assert len(split["rank"]) >= 4
    held_out = sorted(scores[name] for name in split["rank"])
    assert held_out[-1] - held_out[0] > 0.5 * (max(scores.values()) - min(scores.values()))
    assert min(b - a for a, b in itertools.pairwise(held_out)) < 0.02


@needs_runs
def test_readme_s_table_is_that_of_the_logs():
    script = load_module(ROOT / "scripts" / "make" / "records_models.py")
    assert (RUNS / "README.md").read_text(encoding="utf-8").endswith(f"\n\n{script.table()}\n")


def test_cleaned_results_lose_machine_and_keep_scores():
    script = load_module(ROOT / "scripts" / "make" / "records_models.py")
    raw = {
        "results": {"records_to_text": {"rougeL,none": 0.25}},
        "pretty_env_info": "OS: Some Linux",
        "configs": {"metadata": {"config_source": f"{ROOT}/tasks/records/x.yaml"}},
        "config": {"model_args": {"base_url": "http://127.0.0.1:43211/v1/completions"}},
    }
    assert script.cleaned(raw) == {
        "results": {"records_to_text": {"rougeL,none": 0.25}},
        "configs": {"metadata": {"config_source": "tasks/records/x.yaml"}},
        "config": {"model_args": {"base_url": "http://127.0.0.1:PORT/v1/completions"}},
    }
