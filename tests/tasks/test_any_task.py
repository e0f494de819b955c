"""Generation tasks of the harness itself, their YAML untouched: logs, calibration, ranking.

Only the documents are ours, put in their place by a YAML that includes the harness's.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import yaml

from lm_eval_adaptive.cli.main import main
from tests.tasks import documents, fakes

CALIBRATION = {f"cal-{share}": share / 100 for share in (15, 30, 45, 60, 75, 90)}
RANKED = {"weak": 0.4, "strong": 0.85}


def sums(first, last):
    """Documents with GSM8K's columns."""
    rows = []
    for number in range(first, last):
        luck = random.Random(number)
        one, two = luck.randrange(2, 60), luck.randrange(2, 60)
        rows.append(
            {
                "question": f"Ida has {one} nuts and finds {two} more. How many are there?",
                "answer": f"She has {one} + {two} = <<{one}+{two}={one + two}>>{one + two} nuts.\n"
                f"#### {one + two}",
            }
        )
    return rows


def sentences():
    """Documents with WMT's column."""
    return [
        {
            "translation": {
                "en": f"Sentence {k} is about {k + 2} owls.",
                "fr": f"La phrase {k} parle de {k + 2} chouettes qui vivent au bord de l'eau.",
            }
        }
        for k in range(60)
    ]


TASKS = {
    "gsm8k": (
        "gsm8k/gsm8k.yaml",
        {"test": sums(0, 80), "train": sums(80, 90)},
        "exact_match,flexible-extract",
        "bernoulli-2pl",
    ),
    "wmt14-en-fr": (
        "translation/wmt14_en-fr.yaml",
        dict.fromkeys(("test", "validation", "train"), sentences()),
        "chrf",
        "robust-2pl",
    ),
    "truthfulqa_gen": (
        "truthfulqa/truthfulqa_gen.yaml",
        {"validation": documents.truthfulqa_gen_adaptive()[:20]},
        "rougeL_max",
        "robust-2pl",
    ),
}


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "datasets"))
    fakes.register()


def over_our_documents(folder, name, path, splits):
    import lm_eval.tasks

    files = {}
    for split, rows in splits.items():
        files[split] = str(folder / f"{name}.{split}.jsonl")
        Path(files[split]).write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = {
        "include": str(Path(lm_eval.tasks.__file__).parent / path),
        "dataset_path": "json",
        "dataset_name": None,
        "dataset_kwargs": {"data_files": files},
    }
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")


def log_answers(name, folder, logs):
    from lm_eval import simple_evaluate
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(folder), include_defaults=False)
    # TruthfulQA's helper resamples for every document and takes 0.2 s for each.
    few = list(CALIBRATION.items())[:: 2 if name == "truthfulqa_gen" else 1]
    for model, share in few:
        tracker = EvaluationTracker(output_path=str(logs))
        results = simple_evaluate(
            model="task_toy",
            model_args={"share": share, "name": model},
            tasks=[name],
            task_manager=manager,
            log_samples=True,
            bootstrap_iters=0,
            evaluation_tracker=tracker,
        )
        tracker.general_config_tracker.model_name = model
        tracker.general_config_tracker.model_name_sanitized = model
        samples = results.pop("samples")
        tracker.save_results_aggregated(results=results, samples=samples)
        tracker.save_results_samples(task_name=name, samples=samples[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_calibrates_and_ranks(name, tmp_path, capsys):
    path, splits, metric, response_model = TASKS[name]
    folder, logs, bank = tmp_path / "tasks", tmp_path / "logs", tmp_path / "b.bank.parquet"
    folder.mkdir()
    over_our_documents(folder, name, path, splits)
    log_answers(name, folder, logs)
    words = ["calibrate", "--task", name, "--metric", metric, "--samples", logs, "--output", bank]
    if name == "truthfulqa_gen":  # nothing says that its ROUGE runs to 100
        words += ["--range", "0,100"]
    assert main([str(word) for word in words]) == 0
    words = ["run", "--adaptive", "--tasks", name, "--include_path", folder, "--bank", bank]
    for model, share in RANKED.items():
        words += ["--model", "task_toy", "--model_args", f"share={share},name={model}"]
        words += ["--model_name", model]
    words += ["--items_per_model", "10", "--output_path", tmp_path / "out"]
    assert main([str(word) for word in words]) == 0
    (file,) = (tmp_path / "out").glob(f"ranking_{name}_*.json")
    ranking = json.loads(file.read_text(encoding="utf-8"))
    assert [entry["model"] for entry in ranking["ranking"]] == ["strong", "weak"]
    assert ranking["bank"]["response_model"] == response_model
    assert ",".join([ranking["metric"], ranking["filter"]]).startswith(metric)
    assert not any("prompts differ" in each for each in ranking["warnings"])
    assert len({step["raw_score"] for step in ranking["trace"]}) >= 2
