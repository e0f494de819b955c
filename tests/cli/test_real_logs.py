"""Calibrate on real harness logs of 11 LLMs and rank the other 4 by replay: en and es.

Needs the logs and documents in ../shared; nothing in the project depends on them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lm_eval_adaptive.cli.main import main
from tests.support import toy

if TYPE_CHECKING:
    from pathlib import Path

SHARED = toy.ROOT.parent / "shared"
LOGS = SHARED / "lm_eval_logs"

pytestmark = pytest.mark.skipif(
    not (LOGS.is_dir() and (SHARED / "datasets").is_dir()),
    reason="the real logs are not in ../shared",
)

HELD_OUT = (
    "google__gemma-2-9b-it",
    "meta-llama__Llama-3.1-8B",
    "meta-llama__Meta-Llama-3-70B-Instruct",
    "mistralai__Mistral-7B-v0.3",
)


def logged(folder: Path) -> dict[int, dict]:
    (file,) = folder.glob("samples_*.jsonl")
    return {row["doc_id"]: row for row in map(json.loads, file.read_text().splitlines())}


@pytest.fixture(scope="module", params=["en", "es"])
def finished(request, tmp_path_factory):
    language = request.param
    folder = tmp_path_factory.mktemp(language)
    task = f"truthfulqa-multi_gen_{language}"
    logs = LOGS / task
    script = toy.ROOT / "scripts" / "make" / "truthfulqa_task.py"
    subprocess.run([sys.executable, str(script), str(folder / "tasks")], check=True)
    bank = folder / "bank.parquet"
    names = [name.replace("__", "/", 1) for name in HELD_OUT]
    calibrate = [
        "calibrate", "--task", task, "--metric", "bleu_max", "--samples", logs,
        "--exclude_model", *names, "--output", bank,
    ]  # fmt: skip
    assert main([str(word) for word in calibrate]) == 0
    run = [
        "run", "--adaptive", "--tasks", task, "--include_path", folder / "tasks", "--bank", bank,
        "--output_path", folder / "out", "--max_items", 40,
    ]  # fmt: skip
    for name in HELD_OUT:
        run += ["--model", "replay", "--model_args", f"samples={logs / name}"]
    assert main([str(word) for word in run]) == 0
    return task, logs, folder / "out"


def test_all_files_of_the_contract_are_there(finished):
    task, _, out = finished
    ranking = toy.ranking_of(out, task)
    assert {entry["model"] for entry in ranking["ranking"]} == set(HELD_OUT)
    assert (out / "journal.jsonl").is_file()
    assert (out / "report.html").is_file()
    for name in HELD_OUT:
        assert len(list((out / name).glob("results_*.json"))) == 1
        assert len(list((out / name).glob(f"samples_{task}_*.jsonl"))) == 1


def test_every_asked_document_has_the_logs_id_and_value(finished):
    task, logs, out = finished
    asked = 0
    for name in HELD_OUT:
        full = logged(logs / name)
        for doc_id, row in logged(out / name).items():
            then = full[doc_id]
            assert {k: row["doc"][k] for k in sorted(row["doc"])} == then["doc"]
            assert row["filtered_resps"] == then["filtered_resps"]
            for metric in ("bleu_max", "bleu_acc", "bleu_diff"):
                assert row[metric] == pytest.approx(then[metric], rel=1e-12, abs=1e-9)
            asked += 1
    records = toy.journal(out)
    assert asked == sum(record["type"] == "answer" for record in records) > 40
    raw = {(r["model"], r["doc_id"]): r["raw_score"] for r in records if r["type"] == "answer"}
    for (name, doc_id), value in raw.items():
        assert value == pytest.approx(logged(logs / name)[doc_id]["bleu_max"], rel=1e-12, abs=1e-9)
    assert task


def test_base_model_prompts_are_those_of_the_logs(finished):
    """A model without chat template gets, on this host, the very prompts of the logged run."""
    _, logs, out = finished
    name = "meta-llama__Llama-3.1-8B"
    full = logged(logs / name)
    rows = logged(out / name)
    assert rows
    for doc_id, row in rows.items():
        assert row["prompt_hash"] == full[doc_id]["prompt_hash"]


def test_ranking_is_near_the_full_one(finished):
    task, logs, out = finished
    ranking = toy.ranking_of(out, task)
    truth = {
        name: sum(row["bleu_max"] for row in logged(logs / name).values()) / 817
        for name in HELD_OUT
    }
    for pair in ranking["pairs"]:
        if pair["verdict"] in ("a", "b"):
            winner, loser = (
                (pair["a"], pair["b"]) if pair["verdict"] == "a" else (pair["b"], pair["a"])
            )
            assert truth[winner] > truth[loser], pair
    for entry in ranking["ranking"]:
        # Bonferroni over 8 models: 4 standard errors is far beyond.
        assert abs(entry["score"] - truth[entry["model"]]) < 4 * entry["score_se"]
    assert ranking["fraction"] <= 40 / 817
