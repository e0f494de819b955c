"""Score tables as people have them: documents by number, names that are numbers, percent."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pandas as pd
import pytest
import yaml

from lm_eval_adaptive.banks.calibrate import calibrate_from
from lm_eval_adaptive.banks.options import CalibrateOptions
from lm_eval_adaptive.cli.main import main
from lm_eval_adaptive.core.matrix import read_scores
from lm_eval_adaptive.errors import DataError
from lm_eval_adaptive.host.columns import seen_hash

if TYPE_CHECKING:
    from pathlib import Path

N, MODELS = 40, 6
READ = frozenset({"question", "answer"})


def doc(n: int) -> dict:
    return {"question": f"What is {n}?", "answer": str(n), "source": f"page {n}"}


@pytest.fixture
def folder(tmp_path) -> Path:
    data = tmp_path / "docs.jsonl"
    data.write_text("".join(json.dumps(doc(n)) + "\n" for n in range(N)))
    config = {
        "task": "numbered",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{question}}",
        "doc_to_target": "{{answer}}",
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    }
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    (tasks / "numbered.yaml").write_text(yaml.safe_dump(config))
    return tmp_path


def score(model: int, n: int) -> float:
    return float((n * 7 + model * 3) % 11 < 3 + model)


def rows(scale: float = 1.0) -> list[dict]:
    return [
        {"model": 7 * m, "doc_id": n, "score": scale * score(m, n)}
        for n in reversed(range(N))
        for m in range(MODELS)
    ]


def calibrated(folder: Path, path: Path, **changes):
    options = {
        "task": "numbered", "metric": "exact_match", "scores": str(path),
        "include_path": str(folder / "tasks"),
    }  # fmt: skip
    return calibrate_from(CalibrateOptions(**(options | changes)))


@pytest.mark.parametrize("form", ["long.csv", "long.parquet", "wide.csv", "wide.parquet"])
def test_documents_named_by_number_are_joined_to_the_task_by_content(folder, form):
    frame = pd.DataFrame(rows())
    if form.startswith("wide"):
        frame = frame.pivot_table(index="doc_id", columns="model", values="score").reset_index()
        frame.columns = [str(name) for name in frame.columns]
    path = folder / form
    frame.to_csv(path, index=False) if form.endswith("csv") else frame.to_parquet(path)
    bank = calibrated(folder, path)
    assert {model.name for model in bank.info.models} == {str(7 * m) for m in range(MODELS)}
    for name, doc_id, mean in zip(bank.content_hash, bank.doc_id, bank.mean_score, strict=True):
        assert name == seen_hash(doc(int(doc_id)), READ)
        assert mean == pytest.approx(sum(score(m, int(doc_id)) for m in range(MODELS)) / MODELS)
    assert any("joined to those of task numbered" in notice for notice in bank.info.notices)


@pytest.mark.parametrize(
    ("doc_id", "message"),
    [(N, "doc_id 40 is not among the 40 documents"), ("q1", "doc_id is 'q1'"), (-1, "'-1'")],
)
def test_numbers_of_no_document_are_refused(folder, doc_id, message):
    path = folder / "scores.csv"
    pd.DataFrame([*rows(), {"model": 0, "doc_id": doc_id, "score": 1}]).to_csv(path, index=False)
    with pytest.raises(DataError, match=message):
        calibrated(folder, path)


def test_without_the_task_there_is_no_content(folder):
    path = folder / "scores.csv"
    pd.DataFrame(rows()).to_csv(path, index=False)
    with pytest.raises(DataError, match="names documents by doc_id alone, and task elsewhere_9 is"):
        calibrated(folder, path, task="elsewhere_9")


@pytest.mark.parametrize("kind", [int, float, str])
def test_names_are_the_same_text_from_any_file(tmp_path, kind):
    frame = pd.DataFrame({"model": [1, 2, 1], "item": [10, 10, 2], "score": [0.5, 1.0, 0.0]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    typed = frame.assign(model=frame["model"].map(kind), item=frame["item"].map(kind))
    typed.to_parquet(tmp_path / "t.parquet")
    for name in ("t.csv", "t.parquet"):
        matrix = read_scores(tmp_path / name)
        assert (matrix.models, matrix.items) == (("1", "2"), ("10", "2"))


@pytest.mark.parametrize(
    ("text", "models", "told"),
    [
        ("item,b,a\n0,1,0\n1,0,0\n", ("a", "b"), "2 items as rows and 2 models as columns"),
        ("model,0,1,2\na,1,0,1\nb,0,0,1\n", ("a", "b"), "2 models as rows and 3 items as col"),
        ("name,0,1,2\na,1,0,1\nb,0,0,1\n", ("a", "b"), "2 models as rows and 3 items as col"),
        ("n,a,b\n0,1,0\n1,0,0\n2,1,1\n", ("a", "b"), "3 items as rows and 2 models as columns"),
        ("doc_id,8,9\n0,1,0\n1,0,0\n", ("8", "9"), "2 items as rows and 2 models as columns"),
    ],
)
def test_a_wide_table_says_which_way_it_was_read(tmp_path, text, models, told):
    path = tmp_path / "wide.csv"
    path.write_text(text)
    matrix = read_scores(path)
    assert matrix.models == models
    assert told in matrix.notices[0]


def test_equal_repeats_count_once_and_unequal_ones_are_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("model,item,score\na,q,1\na,q,1\na,r,\na,r,\n")
    matrix = read_scores(path)
    assert matrix.scores[0, 0] == 1.0
    assert matrix.notices == ("2 rows repeat the score of another row and count once",)
    path.write_text("model,item,score\na,q,1\na,q,1\na,q,0\n")
    with pytest.raises(DataError, match="'a' has a second score for item 'q' in row 3"):
        read_scores(path)
    path.write_text("item,a,b\nq,1,2\nq,1,2\n")
    assert read_scores(path).items == ("q",)


def test_percent_beside_fractions_asks_for_the_range(folder, capsys):
    mixed = [row | {"score": row["score"] * (100 if row["model"] >= 21 else 1)} for row in rows()]
    path = folder / "mixed.csv"
    pd.DataFrame(mixed).to_csv(path, index=False)
    with pytest.raises(
        DataError, match=r"exact_match of 0 lies in 0..1 and that of 21 reaches 100"
    ):
        calibrated(folder, path)
    simulation = ["simulate", "--scores", str(path), "--metric", "exact_match", "--jobs", "1"]
    assert main(simulation) == 2
    assert "with --clip, as in --clip 0,100" in capsys.readouterr().err
    pd.DataFrame(rows(100.0)).to_csv(path, index=False)
    with pytest.raises(DataError, match=r"exact_match reaches 100, and lies in 0\.\.1 usually"):
        calibrated(folder, path)
    assert calibrated(folder, path, score_range=(0.0, 100.0)).info.scale.hi == 100.0
    pd.DataFrame(rows()).to_csv(path, index=False)
    with pytest.raises(DataError, match="bleu is given in percent usually"):
        calibrated(folder, path, metric="bleu")
    assert len(calibrated(folder, path, metric="mine")) == N


def test_tables_of_totals_are_named(folder):
    path = folder / "summary.csv"
    path.write_text("dataset,version,metric,mode,llama\ngsm8k,1d7fe4,accuracy,gen,70.1\n")
    with pytest.raises(DataError, match="this is an OpenCompass summary"):
        calibrated(folder, path)
