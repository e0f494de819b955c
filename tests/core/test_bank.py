"""The bank file: round trip, other tools, bad files."""

from __future__ import annotations

import json
import pickle
import sys
from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lm_eval_adaptive.core.bank import METADATA_KEY, ItemBank
from lm_eval_adaptive.core.bank_info import SCHEMA, BankInfo, Provenance, Source, Update
from lm_eval_adaptive.core.build import calibrate
from lm_eval_adaptive.core.correction import Correction, HeldOutErrors
from lm_eval_adaptive.core.matrix import ScoreMatrix
from lm_eval_adaptive.core.response import ItemParameters
from lm_eval_adaptive.core.scale import ScoreScale
from lm_eval_adaptive.errors import BankError
from tests.core.helpers import ALL_MODELS, draw_scores, make_bank, random_items


def full_bank(model="robust-2pl"):
    """A bank with something to lose in every field."""
    rng = np.random.default_rng(1)
    n = 8
    items = random_items(model, n, rng)
    root = rng.normal(size=(n, 2, 2)) / 10
    cov = root @ np.transpose(root, (0, 2, 1)) + 1e-3 * np.eye(2)
    items = ItemParameters(items.model, items.difficulty, items.discrimination, items.noise, cov)
    scores = draw_scores(items, [-1.0, 0.0, 1.0], rng).astype(np.float32).astype(float)
    scores[1, 2] = np.nan
    correlation = rng.uniform(size=n)
    correlation[4] = np.nan
    return make_bank(
        items,
        task="Übersetzung_en-cs",
        metric="chrf",
        filter="get-answer",
        scale=ScoreScale(-3.0, 100.0, higher_is_better=False),
        range_source="observed",
        task_version="2.0",
        dataset_path="org/data",
        dataset_name="en-cs",
        split="test",
        num_fewshot=3,
        correction=Correction(
            log_scale=0.1,
            misfit=1.2,
            misfit_sd=0.3,
            models=9,
            order_gain=-0.01,
            slopes_again=(0.2, 1.3),
            lengths={
                length: HeldOutErrors(0.1, 0.2, 0.9, 0.95, 24) for length in (10, 20, 40, 80, 160)
            },
            slopes=(0.2, 1.0),
        ),
        provenance=Provenance(
            date="2026-01-02",
            lm_eval="0.4.13",
            sources=(Source("a.jsonl", "ff"),),
            updates=(Update("ee", "2026-01-03", ("c02",)),),
        ),
        clipped=0.25,
        licence="CC BY 4.0",
        notices=("one", "two"),
        kept=np.arange(n) != 4,
        reason=("",) * 4 + ("constant",) + ("",) * 3,
        doc_id=np.arange(n)[::-1] * 1000,
        doc_hash=tuple(f"d{i}" for i in range(n)),
        prompt_hash=tuple("" if i == 2 else f"p{i}" for i in range(n)),
        n_scores=np.isfinite(scores).sum(axis=0),
        mean_score=np.nanmean(scores, axis=0),
        item_rest_correlation=correlation,
        input_tokens=np.where(np.arange(n) == 1, np.nan, 100.5),
        output_tokens=rng.uniform(1, 50, n),
        scores=scores,
    )


def assert_same(one, other):
    assert one.info == other.info
    for each in fields(ItemBank):
        if each.name in ("info", "sha256", "path"):
            continue
        mine, theirs = getattr(one, each.name), getattr(other, each.name)
        if each.name == "parameters":
            assert mine.model == theirs.model
            for name in ("difficulty", "discrimination", "noise"):
                np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name))
            # Kept as standard errors in the file: equal to the last digit but one.
            np.testing.assert_allclose(mine.covariance, theirs.covariance, rtol=1e-14)
        elif isinstance(mine, tuple):
            assert mine == theirs, each.name
        else:
            np.testing.assert_array_equal(mine, theirs, err_msg=each.name)
            assert mine.dtype == theirs.dtype, each.name


# --- what is saved comes back


@pytest.mark.parametrize("model", ALL_MODELS)
def test_every_field_comes_back(tmp_path, model):
    bank = full_bank(model)
    path = bank.save(tmp_path / "made" / "toy.bank.parquet")
    again = ItemBank.load(path)
    assert_same(again, bank)
    assert again.path == str(path)


def test_a_calibrated_bank_comes_back(tmp_path):
    rng = np.random.default_rng(2)
    scores = draw_scores(random_items("robust-2pl", 12, rng), np.linspace(-1, 1, 5), rng)
    scores[3, 3] = np.nan
    matrix = ScoreMatrix(tuple("edcba"), tuple(f"{i:064d}" for i in range(12)), scores)
    bank = calibrate(matrix, task="t", metric="m", score_range=(0.0, 1.0), split="test")
    again = ItemBank.load(bank.save(tmp_path / "b.parquet"))
    # Scores are kept in single precision; all that is computed from them is in double.
    np.testing.assert_allclose(again.scores, bank.scores, rtol=1e-7)
    assert_same(replace(again, scores=bank.scores), bank)
    assert_same(ItemBank.load(again.save(tmp_path / "c.parquet")), again)


def test_the_hash_is_that_of_the_file_and_saving_again_changes_nothing(tmp_path):
    bank = full_bank()
    one = ItemBank.load(bank.save(tmp_path / "one.parquet"))
    same = ItemBank.load(bank.save(tmp_path / "two.parquet"))
    assert len(one.sha256) == 64
    assert one.sha256 == same.sha256
    changed = replace(bank, info=replace(bank.info, licence="MIT"))
    assert ItemBank.load(changed.save(tmp_path / "two.parquet")).sha256 != one.sha256


def test_nothing_is_left_beside_the_file(tmp_path):
    full_bank().save(tmp_path / "b.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["b.parquet"]


def test_a_save_that_fails_leaves_the_old_file_whole(tmp_path, monkeypatch):
    path = full_bank().save(tmp_path / "b.parquet")
    before = path.read_bytes()

    def half_written(table, where, **_):
        where.write_bytes(b"PAR1 half")
        raise OSError("disk full")

    monkeypatch.setattr(pq, "write_table", half_written)
    with pytest.raises(OSError, match="disk full"):
        full_bank("paper-1pl").save(path)
    assert path.read_bytes() == before


def test_a_small_file_of_very_many_rows_is_not_read(tmp_path):
    path = tmp_path / "bomb.bank.parquet"
    zeros = pa.array(np.zeros(100_000, dtype=np.int8))
    with pq.ParquetWriter(path, pa.schema([("x", pa.int8())])) as file:
        for _ in range(101):
            file.write_table(pa.table({"x": zeros}))
    assert path.stat().st_size < 100_000
    with pytest.raises(BankError, match="says that it has 10100000 items, 10000000 are taken"):
        ItemBank.load(path)


def test_any_parquet_tool_reads_it(tmp_path):
    bank = full_bank()
    path = bank.save(tmp_path / "b.parquet")
    frame = pd.read_parquet(path)
    contract = (
        *("doc_id", "content_hash", "doc_hash", "prompt_hash", "difficulty", "discrimination"),
        *("noise", "difficulty_se", "discrimination_se", "n_scores", "mean_score"),
        *("item_rest_correlation", "kept", "reason", "input_tokens", "output_tokens"),
    )
    assert set(contract) <= set(frame.columns)
    assert frame["doc_id"].tolist() == bank.doc_id.tolist()
    np.testing.assert_array_equal(frame["difficulty"], bank.parameters.difficulty)
    np.testing.assert_allclose(
        frame["difficulty_se"] ** 2, bank.parameters.covariance[:, 0, 0], rtol=1e-12
    )
    assert frame["kept"].dtype == bool
    np.testing.assert_array_equal(np.stack(frame["scores"].to_list()).T, bank.scores)
    info = json.loads(pq.read_schema(path).metadata[b"lm_eval_adaptive"])
    assert info["schema"] == 1
    assert (info["task"], info["metric"], info["filter"]) == (
        "Übersetzung_en-cs",
        "chrf",
        "get-answer",
    )
    assert info["scale"] == {"lo": -3.0, "hi": 100.0, "higher_is_better": False}
    assert [model["name"] for model in info["models"]] == ["c00", "c01", "c02"]


def test_fields_of_a_later_minor_version_are_ignored(tmp_path):
    path = rewrite(tmp_path, info={"colour": "red"})
    assert_same(ItemBank.load(path), full_bank())


def test_the_correction_of_a_first_version_is_read_with_what_it_lacks_as_usual(tmp_path):
    path = rewrite(tmp_path, info={"correction": {"log_scale": -0.2, "misfit": 0.9}})
    assert ItemBank.load(path).info.correction == Correction(log_scale=-0.2, misfit=0.9)


# --- bad files


def rewrite(folder, *, columns=None, drop=(), info=None, info_drop=(), metadata=None, rows=None):
    """A bank file with something changed in it."""
    path = full_bank().save(folder / "good.parquet")
    table = pq.read_table(path)
    data = json.loads(table.schema.metadata[METADATA_KEY])
    data.update(info or {})
    for name in info_drop:
        del data[name]
    meta = {METADATA_KEY: json.dumps(data)} if metadata is None else metadata
    for name, values in (columns or {}).items():
        table = table.set_column(table.column_names.index(name), name, pa.array(values))
    table = table.drop_columns(list(drop)).slice(0, rows).replace_schema_metadata(meta)
    target = folder / "bad.bank.parquet"
    pq.write_table(table, target)
    return target


def with_bad(value, at=2, n=8):
    values = np.linspace(0.5, 1.0, n)
    values[at] = value
    return values


FIRST_TWICE = ["a", "a", *"bcdefg"]
BAD = {
    "newer schema": ({"info": {"schema": SCHEMA + 1}}, "schema 2, this version reads schema 1"),
    "no schema": ({"info_drop": ["schema"]}, "schema None, this version reads schema 1"),
    "nan difficulty": ({"columns": {"difficulty": with_bad(np.nan)}}, "difficulty of item 2"),
    "infinite noise": ({"columns": {"noise": with_bad(np.inf)}}, "noise of item 2"),
    "zero noise": ({"columns": {"noise": with_bad(0.0)}}, "must be above 0"),
    "negative a": ({"columns": {"discrimination": with_bad(-1.0)}}, "must be above 0"),
    "nan error": ({"columns": {"difficulty_se": with_bad(np.nan)}}, "standard error"),
    "text for numbers": ({"columns": {"difficulty": ["x"] * 8}}, "difficulty holds no numbers"),
    "empty cells for kept": ({"columns": {"kept": [True, None] * 4}}, "kept"),
    "no metadata": ({"metadata": {}}, "no item bank"),
    "damaged metadata": ({"metadata": {METADATA_KEY: b'{"schema": 1'}}, "damaged metadata"),
    "binary metadata": ({"metadata": {METADATA_KEY: b"\xff\xfe"}}, "damaged metadata"),
    "metadata of another kind": ({"metadata": {METADATA_KEY: b"[1, 2]"}}, "damaged metadata"),
    "no task": ({"info_drop": ["task"]}, "task"),
    "no scale": ({"info_drop": ["scale"]}, "scale"),
    "empty range": (
        {"info": {"scale": {"lo": 1.0, "hi": 1.0, "higher_is_better": True}}},
        "low below high",
    ),
    "text for a range": (
        {"info": {"scale": {"lo": "a", "hi": "b", "higher_is_better": True}}},
        "metadata",
    ),
    "models of another shape": ({"info": {"models": [{"name": "a"}]}}, "metadata"),
    "fewer models than scores": ({"info": {"models": []}}, "names 0 calibration models"),
    "unknown response model": ({"info": {"response_model": "rasch"}}, "'rasch'"),
    "nan global parameter": (
        {"info": {"parameters": {"prior_mean": float("nan"), "prior_sd": 1.5}}},
        "global parameter",
    ),
    "text for a global parameter": (
        {"info": {"parameters": {"prior_mean": "0", "prior_sd": 1.5}}},
        "global parameter",
    ),
    "missing global parameter": ({"info": {"parameters": {"prior_mean": 0.0}}}, "prior_sd"),
    "text for the error factor": ({"info": {"correction": {"log_scale": "0"}}}, "log_scale is '0'"),
    "correction without its factor": (
        {"info": {"correction": {"misfit": 1.0}}},
        "correction.log_scale is missing",
    ),
    "one slope of two": (
        {"info": {"correction": {"log_scale": 0.1, "slopes": [0.3]}}},
        "correction.slopes is [0.3], expected two finite numbers",
    ),
    "length that is none": (
        {"info": {"correction": {"log_scale": 0.1, "lengths": {"ten": {}}}}},
        "length 'ten'",
    ),
    "source without a hash": (
        {"info": {"provenance": {"sources": [{"file": "a"}]}}},
        "provenance.sources[0].sha256 is missing",
    ),
    "text for the shots": ({"info": {"num_fewshot": "3"}}, "num_fewshot is '3'"),
    "missing column": ({"drop": ["noise", "kept"]}, "column(s) noise, kept"),
    "no rows": ({"rows": 0}, "no items"),
    "duplicate hash": ({"columns": {"content_hash": FIRST_TWICE}}, "same content_hash twice"),
    "no hash": ({"columns": {"content_hash": ["a", None, *"bcdefg"]}}, "content_hash"),
}


def refusal(path):
    with pytest.raises(BankError) as caught:
        ItemBank.load(path)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    assert any(
        advice in message for advice in ("recalibrate", "calibrate", "upgrade", "--bank", "knows")
    ), message
    assert caught.value.exit_code == 2
    return message


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_bank_is_refused_in_one_line(tmp_path, kind):
    change, says = BAD[kind]
    assert says in refusal(rewrite(tmp_path, **change))


def test_missing_truncated_empty_and_foreign_files_are_refused(tmp_path):
    assert "no bank at" in refusal(tmp_path / "nowhere.parquet")
    assert "no bank at" in refusal(tmp_path)
    good = full_bank().save(tmp_path / "good.parquet").read_bytes()
    for name, content in {
        "cut": good[: len(good) // 2],
        "cut_by_one": good[:-1],
        "empty": b"",
        "text": b"doc_id,difficulty\n1,0.5\n",
    }.items():
        path = tmp_path / f"{name}.parquet"
        path.write_bytes(content)
        assert "not a readable Parquet file" in refusal(path)


def test_a_damaged_byte_is_refused_or_changes_nothing(tmp_path):
    """Single bytes flipped all over the file: never another exception, never other numbers."""
    bank = full_bank()
    good = bytearray(bank.save(tmp_path / "good.parquet").read_bytes())
    path = tmp_path / "flipped.parquet"
    refused, metadata = 0, good.index(METADATA_KEY)  # the footer, which has no checksum
    for position in range(4, metadata, max(1, metadata // 150)):
        flipped = good.copy()
        flipped[position] ^= 0x55
        path.write_bytes(bytes(flipped))
        try:
            found = ItemBank.load(path)
        except BankError:
            refused += 1
        else:
            assert_same(found, bank)
    assert refused > 0


class Trap:
    """Unpickling one would be noticed."""

    def __reduce__(self):
        return (exec, ("import sys; sys.modules['bank_trap_was_sprung'] = sys",))


def test_loading_executes_nothing(tmp_path, monkeypatch):
    trap = pickle.dumps(Trap())
    path = tmp_path / "pickle.parquet"
    path.write_bytes(trap)
    refusal(path)

    def refuse(*args, **kwargs):
        raise AssertionError("loading a bank unpickled something")

    monkeypatch.setattr(pickle, "loads", refuse)
    monkeypatch.setattr(pickle, "load", refuse)
    hidden = rewrite(
        tmp_path, info={"licence": "__import__('os')", "provenance": {"p": repr(trap)}}
    )
    assert ItemBank.load(hidden).info.licence == "__import__('os')"
    assert "bank_trap_was_sprung" not in sys.modules


def test_a_bank_is_frozen():
    bank = full_bank()
    with pytest.raises(AttributeError):
        bank.sha256 = "other"  # type: ignore[misc]
    assert len(bank) == 8
    assert isinstance(bank.info, BankInfo)


def test_an_unknown_selector_is_refused_in_one_line(tmp_path):
    bank = make_bank(random_items("robust-2pl", 5, np.random.default_rng(0)), selector="best")
    with pytest.raises(
        BankError, match="selector 'best', expected draw or fisher or random"
    ) as caught:
        ItemBank.load(bank.save(tmp_path / "odd.parquet"))
    assert "\n" not in str(caught.value)
