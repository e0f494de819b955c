"""The banks of the package: what the index says is so, and the harness's own tasks take them."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path

import numpy as np
import pytest

from lm_eval_adaptive.banks import at_hand
from lm_eval_adaptive.banks.check import match_documents
from lm_eval_adaptive.banks.shipped import read_index, shipped_banks, shipped_folder
from lm_eval_adaptive.cli.main import main
from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.errors import BankError
from lm_eval_adaptive.host.find_tasks import make_task_manager, resolve_tasks
from lm_eval_adaptive.host.settings import HarnessSettings
from lm_eval_adaptive.host.task import TaskDocs, load_task

SHARED = Path(__file__).resolve().parents[3] / "shared"
DOCUMENTS = SHARED / "datasets" / "harness_docs"
needs_documents = pytest.mark.skipif(
    not DOCUMENTS.is_dir(), reason="the documents of ../shared are not here"
)
# Task, its file in the harness, documents, how many, metric and filter of the bank.
TASKS = [
    ("gsm8k", "gsm8k/gsm8k.yaml", "gsm8k", 1319, "exact_match", "strict-match"),
    ("gsm8k_cot", "gsm8k/gsm8k-cot.yaml", "gsm8k", 1319, "exact_match", "strict-match"),
    ("gsm8k_cot_zeroshot", "gsm8k/gsm8k-cot-zeroshot.yaml", "gsm8k", 1319, "exact_match",
     "strict-match"),
    ("gsm8k_cot_llama", "gsm8k/gsm8k-cot-llama.yaml", "gsm8k", 1319, "exact_match",
     "strict-match"),
    ("ifeval", "ifeval/ifeval.yaml", "ifeval", 541, "prompt_level_strict_acc", "none"),
    ("leaderboard_ifeval", "leaderboard/ifeval/ifeval.yaml", "ifeval", 541,
     "prompt_level_strict_acc", "none"),
    ("mmlu_pro_law", "mmlu_pro/mmlu_pro_law.yaml", "mmlu_pro", 1101, "exact_match",
     "custom-extract"),
    ("mmlu_pro_computer_science", "mmlu_pro/mmlu_pro_computer_science.yaml", "mmlu_pro", 410,
     "exact_match", "custom-extract"),
    ("eq_bench", "eq_bench/default.yaml", "eq_bench", 171, "eqbench", "none"),
]  # fmt: skip


def local_task(folder, task, file, documents):
    """A task of the harness over a local copy of its documents."""
    import lm_eval

    plain = {
        "include": str(Path(lm_eval.__file__).parent / "tasks" / file),
        "task": task,
        "dataset_path": "json",
        "dataset_name": None,
        "dataset_kwargs": {
            "data_files": dict.fromkeys(("train", "test", "validation"), str(documents))
        },
        "num_fewshot": 0,
    }
    (folder / f"{task}.yaml").write_text(json.dumps(plain))
    return folder


def documents_of(folder, task):
    settings = HarnessSettings(tasks=(task,), include_path=str(folder))
    manager = make_task_manager(settings)
    (name,) = resolve_tasks(manager, settings.tasks)
    return TaskDocs(load_task(manager, name))


def test_the_index_tells_the_truth_of_every_file():
    banks = shipped_banks()
    assert {each.file for each in banks} == {
        path.name for path in shipped_folder().glob("*.parquet")
    }
    for each in banks:
        assert hashlib.sha256(each.path.read_bytes()).hexdigest() == each.sha256
        bank = ItemBank.load(each.path)
        assert (len(bank), len(bank.info.models), bank.info.metric) == (
            each.n_docs, each.n_models, each.metric,
        )  # fmt: skip
        assert bank.info.correction is not None
        assert bank.info.correction.models > 0
        assert each.licence in bank.info.licence
        assert each.source in bank.info.licence
        assert all((each.mapping, each.date, each.tasks))
        assert bank.info.provenance is not None
        assert bank.info.provenance.sources
        assert np.isfinite(bank.scores).mean() > 0.99


def test_they_are_small_and_quick_to_read():
    files = list(shipped_folder().iterdir())
    assert sum(path.stat().st_size for path in files) < 7_000_000
    start = time.process_time()
    for each in shipped_banks():
        ItemBank.load(each.path)
    assert time.process_time() - start < 20.0  # 21 banks; generous on any machine


def test_the_metrics_and_sizes_are_those_that_the_project_promises():
    found = {each.name: (each.n_models, each.n_docs) for each in shipped_banks()}
    assert found["ifeval"] == (429, 541)
    assert found["gsm8k"] == (43, 1319)
    assert found["eq_bench"] == (86, 171)
    mmlu = {name: each for name, each in found.items() if name.startswith("mmlu_pro_")}
    assert len(mmlu) == 14
    assert sum(docs for _, docs in mmlu.values()) == 12_032
    assert {models for models, _ in mmlu.values()} == {28}
    assert found["truthfulqa-multi_gen_es_bleu_diff"] == (15, 817)


@needs_documents
@pytest.mark.parametrize(
    ("task", "file", "documents", "count", "metric", "filter_name"),
    TASKS,
    ids=[t[0] for t in TASKS],
)
def test_the_harness_s_task_takes_its_bank(
    tmp_path, task, file, documents, count, metric, filter_name
):
    folder = local_task(tmp_path, task, file, DOCUMENTS / f"{documents}.jsonl.gz")
    docs = documents_of(folder, task)
    taken, told = at_hand.bank_at_hand(docs, None)
    assert taken is not None
    info = taken.bank.info
    assert (info.task, info.metric, info.filter) == (task, metric, filter_name)
    assert f"{count} of its {count} items are among the {count} documents" in told[0]
    where, _ = match_documents(taken.bank, docs.keys)
    assert None not in where
    # The bank says so where its models answered another prompt.
    entry = next(each for each in shipped_banks() if task in each.tasks)
    assert any(entry.prompt in line for line in told) if entry.prompt else len(told) == 1


@needs_documents
def test_any_filter_of_the_task_is_served_and_no_other_metric(tmp_path):
    folder = local_task(tmp_path, "gsm8k", TASKS[0][1], DOCUMENTS / "gsm8k.jsonl.gz")
    docs = documents_of(folder, "gsm8k")
    taken, _ = at_hand.bank_at_hand(docs, "exact_match,flexible-extract")
    assert taken is not None
    assert taken.bank.info.filter == "flexible-extract"
    assert at_hand.bank_at_hand(docs, "exact_match,other")[0] is None
    assert at_hand.bank_at_hand(docs, "bleu")[0] is None


@needs_documents
def test_a_run_on_a_fresh_machine_takes_the_shipped_bank_and_says_so(tmp_path, capsys):
    folder = local_task(tmp_path, "gsm8k", TASKS[0][1], DOCUMENTS / "gsm8k.jsonl.gz")
    words = ["run", "--adaptive", "--tasks", "gsm8k", "--include_path", str(folder)]
    words += ["--model", "dummy", "--model_name", "a", "--model", "dummy", "--model_name", "b"]
    out = tmp_path / "out"
    assert main([*words, "--max_items", "12", "--output_path", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "no bank was named: took gsm8k of the package (exact_match, 43 models" in shown
    assert "as JSON, not this task's prompt; the run tests whether it holds here" in shown
    # Resumed, it goes on with that bank.
    assert main(["run", "--adaptive", "--resume", str(out)]) == 0


@needs_documents
def test_a_bank_of_which_a_tenth_is_there_is_not_taken(tmp_path):
    import gzip

    with gzip.open(DOCUMENTS / "gsm8k.jsonl.gz", "rt", encoding="utf-8") as packed:
        lines = packed.readlines()
    few = tmp_path / "few.jsonl"
    few.write_text("".join(lines[:130]), encoding="utf-8")
    docs = documents_of(local_task(tmp_path, "gsm8k", TASKS[0][1], few), "gsm8k")
    taken, told = at_hand.bank_at_hand(docs, None)
    assert taken is None
    assert "is not taken: 1189 of the 1319 items" in told[0]


def test_a_broken_index_is_told(tmp_path):
    for text in ("", "{}", '{"schema": 99, "banks": []}', '{"schema": 1, "banks": [{"name": 1}]}'):
        file = tmp_path / "index.json"
        file.write_text(text)
        with pytest.raises(BankError, match="index of shipped banks"):
            read_index(file)
