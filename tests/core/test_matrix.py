"""The score matrix and the files it is read from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_adaptive.core.matrix import ScoreMatrix, read_scores
from lm_eval_adaptive.errors import DataError, UsageError

LONG = "model,item,score\nb,q2,0.5\na,q2,1\na,q1,0\nb,q1,\n"
SHARED_SCORES = Path(__file__).parents[3] / "shared" / "scores"


def write(folder: Path, text: str, name: str = "scores.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_long_form_sorts_models_and_keeps_the_order_of_items(tmp_path):
    matrix = read_scores(write(tmp_path, LONG))
    assert matrix.models == ("a", "b")
    assert matrix.items == ("q2", "q1")
    np.testing.assert_array_equal(matrix.scores, [[1.0, 0.0], [0.5, np.nan]])


@pytest.mark.parametrize(
    "text",
    [
        "item,b,a\nq2,0.5,1\nq1,NA,0\n",
        "model,q2,q1\nb,0.5,nan\na,1,0\n",
        "Model,Item,Score,note\nb,q2,0.5,x\na,q2,1,\na,q1,0,y\nb,q1,null,\n",
    ],
    ids=["items x models", "models x items", "long with other columns"],
)
def test_all_layouts_give_the_same_matrix(tmp_path, text):
    matrix, long = read_scores(write(tmp_path, text)), read_scores(write(tmp_path, LONG, "l.csv"))
    assert (matrix.models, matrix.items) == (long.models, long.items)
    np.testing.assert_array_equal(matrix.scores, long.scores)


def test_csv_ids_stay_text(tmp_path):
    matrix = read_scores(write(tmp_path, "model,item,score\n007,01,1\n007,1,2\n"))
    assert matrix.models == ("007",)
    assert matrix.items == ("01", "1")


@given(
    st.lists(
        st.lists(st.none() | st.floats(-1e6, 1e6), min_size=3, max_size=3), min_size=2, max_size=5
    )
)
def test_parquet_long_and_wide_hold_the_same_numbers(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("round")
    scores = np.array(rows, dtype=float)
    names = [f"m{i}" for i in range(len(rows))]
    wide = pd.DataFrame(scores.T, columns=names, index=pd.Index(["x", "y", "z"], name="item"))
    wide.to_parquet(folder / "wide.parquet")
    long = wide.reset_index().melt("item", var_name="model", value_name="score")
    long.to_parquet(folder / "long.parquet")
    for name in ("wide.parquet", "long.parquet"):
        matrix = read_scores(folder / name)
        assert (matrix.models, matrix.items) == (tuple(names), ("x", "y", "z"))
        np.testing.assert_array_equal(matrix.scores, scores)


def test_runs_of_one_model_are_rows_of_one_group(tmp_path):
    text = "model,item,run,score\na,q,0.7,1\na,q,0,2\nb,q,0,3\n"
    matrix = read_scores(write(tmp_path, text))
    assert matrix.models == ("a#0", "a#0.7", "b")
    assert matrix.groups == ("a", "a", "b")
    assert matrix.scores[:, 0].tolist() == [2, 1, 3]


def test_metric_is_picked_by_column_or_by_name(tmp_path):
    by_column = "model,item,metric,score\na,q,bleu,1\na,q,chrf,2\n"
    assert read_scores(write(tmp_path, by_column), "chrf").scores[0, 0] == 2
    by_name = "model,item,bleu,chrf\na,q,1,2\n"
    assert read_scores(write(tmp_path, by_name), "bleu").scores[0, 0] == 1


@pytest.mark.parametrize(
    ("text", "metric", "message"),
    [
        ("model,item,score\na,q,1\na,r,1\na,q,2\n", None, "'a' has a second.*'q' in row 3"),
        ("model,item,score\na,q,1\na,r,good\n", None, "'good' in column score, row 2"),
        ("item,a,b\nq,1,2\nr,3,x\n", None, "'x' in column b, row 2"),
        ("item,a,b\nq,1,2\nq,3,4\n", None, "'q' stands a second time.*row 2"),
        ("model,item,metric,score\na,q,bleu,1\na,q,chrf,2\n", None, "name one of: bleu, chrf"),
        ("model,item,metric,score\na,q,bleu,1\n", "ter", "no metric 'ter'; it holds: bleu"),
        ("model,item,bleu\na,q,1\n", "ter", "no column score or ter among model, item, bleu"),
        ("model,item,score\na,q,inf\n", None, "infinite in row 1"),
        ("model,item,score\n,q,1\n", None, "model is empty in row 1"),
        ("model,item,score\n", None, "holds no scores"),
        ("", None, "cannot be read"),
    ],
)
def test_bad_files_are_refused_with_the_place(tmp_path, text, metric, message):
    path = write(tmp_path, text)
    with pytest.raises(DataError, match=message) as caught:
        read_scores(path, metric)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_wide_file_without_ids_is_refused(tmp_path):
    path = tmp_path / "bare.parquet"
    pd.DataFrame(np.eye(3) / 2, columns=["a", "b", "c"]).to_parquet(path)
    with pytest.raises(DataError, match="not ids"):
        read_scores(path)


def test_missing_damaged_and_foreign_files(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_scores(tmp_path / "none.csv")
    with pytest.raises(DataError, match=r"expected a file ending in \.parquet"):
        read_scores(write(tmp_path, "{}", "scores.json"))
    whole = tmp_path / "whole.parquet"
    pd.DataFrame({"model": ["a"], "item": ["q"], "score": [1.0]}).to_parquet(whole)
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(whole.read_bytes()[:-20])
    with pytest.raises(DataError, match="cannot be read"):
        read_scores(cut)


def test_selection_keeps_rows_columns_and_attributes_together():
    matrix = ScoreMatrix(
        ("a", "b"), ("x", "y", "z"), np.arange(6.0).reshape(2, 3), {"n": np.array([7, 8, 9])}
    )
    part = matrix.select_models(["b"]).select_items(np.array([True, False, True]))
    assert (part.models, part.groups, part.items) == (("b",), ("b",), ("x", "z"))
    assert part.scores.tolist() == [[3, 5]]
    assert part.item_attributes["n"].tolist() == [7, 9]
    with pytest.raises(UsageError, match="'c' is not among the scores; they hold: a, b"):
        matrix.select_models(["c"])


def test_the_matrix_cannot_be_changed_by_its_source_or_its_user():
    source = np.zeros((1, 1))
    matrix = ScoreMatrix(("a",), ("x",), source)
    source[0, 0] = 1
    assert matrix.scores[0, 0] == 0
    with pytest.raises(ValueError, match="read-only"):
        matrix.scores[0, 0] = 1


@pytest.mark.parametrize(
    ("models", "items", "scores", "message"),
    [
        (("a",), ("x", "y"), [[1.0]], "shape"),
        (("a", "a"), ("x",), [[1.0], [2.0]], "model 'a' stands twice"),
        (("a",), ("x", "x"), [[1.0, 2.0]], "item 'x' stands twice"),
        (("a",), ("x",), [[np.inf]], "'a' on item 'x' is inf"),
    ],
)
def test_inconsistent_matrices_are_refused(models, items, scores, message):
    with pytest.raises(DataError, match=message):
        ScoreMatrix(models, items, np.array(scores))


@pytest.mark.skipif(not SHARED_SCORES.is_dir(), reason="the shared score matrices are not here")
def test_a_real_matrix():
    matrix = read_scores(SHARED_SCORES / "truthfulqa_gen_en.parquet", "bleu_max")
    assert matrix.scores.shape == (15, 817)
    assert np.isfinite(matrix.scores).all()


def test_a_large_file_is_read_by_chunks_in_bounded_memory(tmp_path):
    """Long texts in other columns, and names that repeat, do not stay in memory."""
    import tracemalloc

    path = tmp_path / "large.csv"
    answer = "word " * 60
    with path.open("w") as file:
        file.write("model,item,score,answer\n")
        for model in range(20):
            file.writelines(
                f"model-with-a-long-name-{model},item-with-a-long-name-{item},0.{item % 10},{answer}\n"
                for item in range(3000)
            )
    size = path.stat().st_size
    assert size > 20e6
    tracemalloc.start()
    matrix = read_scores(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert matrix.scores.shape == (20, 3000)
    assert np.isfinite(matrix.scores).all()
    # A third of the file at most; before, more than its size.
    assert peak < size / 2, (peak, size)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model;item;score\nm;i;0,5\n", "separated by ';'"),
        ("model\titem\tscore\nm\ti\t0.5\n", "separated by a tab"),
        ("model,item,score\nm,i,0,5\n", "decimal comma"),
        ('model,item,score\nm,i,"0,5"\n', "has a decimal comma"),
        ("model,item,score\nm,i,0.5\nm,j,0.5,extra\n", "Expected 3 fields"),
    ],
)
def test_a_csv_file_written_otherwise_is_told(tmp_path, text, said):
    path = tmp_path / "s.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=said):
        read_scores(path)
