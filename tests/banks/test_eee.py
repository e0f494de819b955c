"""Records of *Every Eval Ever* (schema 0.3) as a source of banks and of simulations."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from lm_eval_adaptive.api import simple_evaluate
from lm_eval_adaptive.banks.calibrate import calibrate_from
from lm_eval_adaptive.banks.options import CalibrateOptions
from lm_eval_adaptive.cli.main import main
from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.errors import DataError, UsageError
from lm_eval_adaptive.host.logs.eee import find_records
from lm_eval_adaptive.run.config import AdaptiveConfig
from tests.support import toy

# An interpreter that has the package, where there is one: it needs Python 3.12.
WITH_PACKAGE = os.environ.get("LMEVAL_ADAPTIVE_EEE_PYTHON", "")


def write_record(folder, model, metrics, rows, **changes):
    """A record as the schema has it.

    Args:
        folder: Where to.
        model: Its model.
        metrics: (id, lower is better, lowest, highest) of each.
        rows: (sample id, prompt, reference, scores by metric).
        changes: Fields of the aggregate that differ.
    """
    folder = Path(folder) / model
    folder.mkdir(parents=True, exist_ok=True)
    name = changes.pop("file", "3f2a")
    evaluation = changes.pop("evaluation", toy.TASK)
    samples = folder / f"{name}_samples.jsonl"
    kind = changes.pop("kind", "single_turn")
    row_changes = changes.pop("row", {})
    with samples.open("w", encoding="utf-8") as file:
        for sample_id, prompt, reference, scores in rows:
            for metric, score in scores.items():
                row = {
                    "schema_version": "0.3.0",
                    "evaluation_id": f"{evaluation}/{model}/1",
                    "model_id": model,
                    "evaluation_name": evaluation,
                    "evaluation_result_id": metric,
                    "sample_id": str(sample_id),
                    "sample_hash": hashlib.sha256(f"{prompt}{reference}".encode()).hexdigest(),
                    "interaction_type": kind,
                    "input": {"raw": prompt, "reference": [reference]},
                    "output": {"raw": ["an answer"]},
                    "answer_attribution": [],
                    "evaluation": {"score": score, "is_correct": score == 1.0},
                    **row_changes,
                }
                file.write(json.dumps(row) + "\n")
    aggregate = {
        "schema_version": "0.3.0",
        "evaluation_id": f"{evaluation}/{model}/1",
        "evaluation_timestamp": "1",
        "retrieved_timestamp": "1",
        "source_metadata": {"source_type": "evaluation_run", "source_organization_name": "us",
                            "evaluator_relationship": "other"},
        "eval_library": {"name": "lm_eval", "version": "0.4.13"},
        "model_info": {"name": model, "id": model},
        "evaluation_results": [
            {
                "evaluation_result_id": metric,
                "evaluation_name": evaluation,
                "source_data": {"dataset_name": evaluation, "source_type": "other"},
                "metric_config": {"metric_id": metric, "lower_is_better": lower,
                                  "score_type": "continuous", "min_score": low, "max_score": high},
                "score_details": {"score": 0.5},
            }
            for metric, lower, low, high in metrics
        ],
        "detailed_evaluation_results": {"format": "jsonl", "file_path": f"data/x/{samples.name}"},
        **changes,
    }  # fmt: skip
    path = folder / f"{name}.json"
    path.write_text(json.dumps(aggregate), encoding="utf-8")
    return path


def records_of_logs(toy_logs, folder):
    """The toy models' logs as records, an instruction around each prompt."""
    for file in sorted(Path(toy_logs).rglob(f"samples_{toy.TASK}_*.jsonl")):
        rows = []
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            prompt = row["arguments"]["gen_args_0"]["arg_0"]
            said = f"Be brief.\n{prompt}  "
            rows.append((row["doc_id"], said, "another way", {"rougeL": row["rougeL"]}))
        write_record(folder, file.parent.name, [("rougeL", False, 0.0, 1.0)], rows)
    return folder


@pytest.fixture(scope="module")
def recorded(toy_logs, tmp_path_factory):
    return records_of_logs(toy_logs, tmp_path_factory.mktemp("records"))


@pytest.fixture(scope="module")
def bank_file(recorded, tmp_path_factory):
    bank = calibrate_from(
        CalibrateOptions(task=toy.TASK, metric="rougeL", samples=(str(recorded),))
    )
    return bank.save(tmp_path_factory.mktemp("eee_bank") / "eee.bank.parquet")


def test_a_bank_of_records_is_that_of_the_same_answers_logs(bank_file, toy_bank):
    own, logged = ItemBank.load(bank_file), ItemBank.load(toy_bank)
    assert [m.name for m in own.info.models] == [m.name for m in logged.info.models]
    assert (own.info.scale, own.info.range_source) == (logged.info.scale, "declared")
    np.testing.assert_allclose(own.scores, logged.scores)
    np.testing.assert_allclose(own.parameters.difficulty, logged.parameters.difficulty)
    assert any("records of Every Eval Ever (lm_eval 0.4.13)" in line for line in own.info.notices)


def test_a_run_finds_the_documents_by_their_prompts(bank_file, tmp_path):
    toy.register()
    found = simple_evaluate(
        toy.models(),
        [toy.TASK],
        AdaptiveConfig(bank=bank_file, items_per_model=12),
        output_path=str(tmp_path),
    )
    ranking = found["ranking"][toy.TASK]
    assert [entry["model"] for entry in ranking["ranking"]] == ["strong", "middle", "weak"]
    told = [line for line in ranking["warnings"] if "told by their prompts alone" in line]
    assert len(told) == 1
    assert "references were not compared" in told[0]


def test_simulations_read_them_too(recorded, capsys, tmp_path):
    words = ["simulate", "--samples", str(recorded), "--metric", "rougeL", "--partitions", "2"]
    words += ["--items_per_model", "10", "--jobs", "1", "--json", str(tmp_path / "out.json")]
    assert main([*words, "--holdout", "3", "--methods", "random-shared"]) == 0
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert {row["matrix"] for row in rows} == {toy.TASK}
    capsys.readouterr()


def rows(count=12, seed=0, low=0.0, high=1.0, metrics=("m",)):
    rng = np.random.default_rng(seed)
    return [
        (i, f"What is {i * 7} times {i + 3}?", str(i),
         {name: float(rng.uniform(low, high)) for name in metrics})
        for i in range(count)
    ]  # fmt: skip


def calibrated(folder, metric="m", task=toy.TASK, **options):
    return calibrate_from(
        CalibrateOptions(task=task, metric=metric, samples=(str(folder),), **options)
    )


def test_direction_and_range_come_from_the_record(tmp_path):
    for seed, model in enumerate("abcd"):
        write_record(
            tmp_path, model, [("wer", True, 0.0, 3.0), ("acc", False, 0, 100)],
            [(*row[:3], {"wer": 3 * row[3]["m"], "acc": 100 * row[3]["m"]}) for row in rows(seed=seed)],
        )  # fmt: skip
    by_error, by_percent = calibrated(tmp_path, "wer"), calibrated(tmp_path, "acc")
    assert by_error.info.scale == type(by_error.info.scale)(0.0, 3.0, higher_is_better=False)
    assert by_percent.info.scale == type(by_error.info.scale)(0.0, 100.0)
    np.testing.assert_allclose(by_error.scores, 1.0 - by_percent.scores, atol=1e-6)


def test_an_error_is_a_missing_score_and_the_newest_record_counts(tmp_path):
    for seed, model in enumerate("abcd"):
        write_record(tmp_path, model, [("m", False, 0, 1)], rows(seed=seed))
    write_record(
        tmp_path, "a", [("m", False, 0, 1)], rows(seed=9), file="new",
        evaluation_timestamp="2",
    )  # fmt: skip
    path = tmp_path / "b" / "3f2a_samples.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[0]["error"] = "timeout"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    bank = calibrated(tmp_path)
    assert any("a has several records; new.json is the newest" in n for n in bank.info.notices)
    np.testing.assert_allclose(bank.scores[0], [row[3]["m"] for row in rows(seed=9)], atol=1e-6)
    assert np.isnan(bank.scores[1, 0])
    assert np.isfinite(bank.scores[1, 1:]).all()


def damaged(folder, what):
    for seed, model in enumerate("abc"):
        write_record(folder, model, [("m", False, 0, 1)], rows(seed=seed))
    if what == "newer schema":
        write_record(folder, "d", [("m", False, 0, 1)], rows(), schema_version="0.9.0")
    elif what == "multi turn":
        write_record(folder, "d", [("m", False, 0, 1)], rows(), kind="multi_turn")
    elif what == "no samples":
        write_record(folder, "d", [("m", False, 0, 1)], rows())
        (folder / "d" / "3f2a_samples.jsonl").unlink()
    elif what == "another's samples":
        write_record(folder, "d", [("m", False, 0, 1)], rows(), row={"evaluation_id": "other"})
    elif what == "unequal twice":
        write_record(folder, "d", [("m", False, 0, 1)], [*rows(), (0, "What", "0", {"m": 0.123})])
    elif what == "no metric config":
        write_record(folder, "d", [("m", False, 0, 1)], rows(), evaluation_results=[{"a": 1}])
    elif what == "half a row":
        write_record(folder, "d", [("m", False, 0, 1)], rows())
        file = folder / "d" / "3f2a_samples.jsonl"
        file.write_text(file.read_text()[:-40] + "\n")
    elif what == "both ways":
        write_record(folder, "d", [("m", True, 0, 1)], rows())


@pytest.mark.parametrize(
    ("what", "part"),
    [
        ("newer schema", "of schema 0.9.0, this version reads up to 0.3"),
        ("multi turn", "line 1 is a multi_turn sample; only single turns"),
        ("no samples", "without its samples: no 3f2a_samples.jsonl beside it"),
        ("another's samples", "line 1 is of evaluation other"),
        ("unequal twice", "sample 0 has 2 unequal scores of m"),
        ("no metric config", "is a damaged record of Every Eval Ever"),
        ("half a row", "line 12 is no sample of Every Eval Ever"),
        ("both ways", "they are not one metric"),
    ],
)
def test_what_is_wrong_with_a_record_is_told(tmp_path, what, part):
    damaged(tmp_path, what)
    with pytest.raises(DataError, match=part):
        calibrated(tmp_path)


def test_metrics_and_evaluations_that_are_not_there_are_told(tmp_path):
    for seed, model in enumerate("abcd"):
        write_record(tmp_path, model, [("m", False, 0, 1)], rows(seed=seed))
        write_record(
            tmp_path, model, [("m", False, 0, 1)], rows(seed=seed), file="other",
            evaluation="other_task",
        )  # fmt: skip
    assert len(find_records(str(tmp_path))) == 8
    with pytest.raises(DataError, match=r"--metric bleu is not in the records.*they hold m"):
        calibrated(tmp_path, "bleu")
    with pytest.raises(DataError, match="hold no evaluation third; they hold other_task, records"):
        calibrated(tmp_path, task="third")
    with pytest.raises(UsageError, match="no such model in the records; they hold a, b, c, d"):
        calibrated(tmp_path, exclude_model=("z",))
    bank = calibrated(tmp_path, exclude_model=("a",))
    assert [m.name for m in bank.info.models] == ["b", "c", "d"]
    assert any("4 record(s) of other evaluations" in n or "3 record(s)" in n
               for n in bank.info.notices)  # fmt: skip


def test_logs_and_records_in_one_place_are_refused(toy_logs, recorded, tmp_path):
    with pytest.raises(DataError, match="holds records of Every Eval Ever and logs of lm_eval"):
        calibrate_from(
            CalibrateOptions(task=toy.TASK, metric="rougeL", samples=(str(recorded), str(toy_logs)))
        )


def test_other_json_is_no_record(tmp_path):
    (tmp_path / "a.json").write_text('{"schema_version": 1}')
    (tmp_path / "b.json").write_text("[1, 2")
    (tmp_path / "c.json").write_text('{"evaluation_id": "x"')
    assert find_records([str(tmp_path), str(tmp_path / "nowhere"), str(tmp_path / "*.jsonl")]) == []


@pytest.mark.skipif(
    not WITH_PACKAGE,
    reason="LMEVAL_ADAPTIVE_EEE_PYTHON names no interpreter with every-eval-ever (Python 3.12)",
)
def test_our_records_and_the_package_s_converter_agree(toy_logs, toy_bank, tmp_path):
    """The package takes our records as valid, and what it makes of the logs gives the same bank."""
    path = write_record(tmp_path / "ours", "m/x", [("m", False, 0.0, 1.0)], rows())
    code = (
        "import json, sys; from every_eval_ever.instance_level_types import "
        "InstanceLevelEvaluationLog as Row\n"
        "for line in open(sys.argv[1]): Row.model_validate_json(line)"
    )
    subprocess.run(
        [WITH_PACKAGE, "-c", code, path.with_name("3f2a_samples.jsonl")], check=True, timeout=120
    )
    for folder in sorted(each for each in Path(toy_logs).iterdir() if each.is_dir()):
        subprocess.run(
            [WITH_PACKAGE, "-m", "every_eval_ever", "convert", "lm_eval", "--log_path", folder,
             "--output_dir", tmp_path / "theirs", "--source_organization_name", "us",
             "--evaluator_relationship", "other", "--include_samples"],
            check=True, timeout=120,
        )  # fmt: skip
    bank = calibrated(tmp_path / "theirs", "rougeL")
    logged = ItemBank.load(toy_bank)
    assert len(bank) == len(logged)
    np.testing.assert_allclose(
        np.sort(bank.scores.mean(axis=1)), np.sort(logged.scores.mean(axis=1)), atol=1e-6
    )
