"""Families of models: prefixes of names, tables, what is no family, errors in one line."""

from __future__ import annotations

import pytest

from lm_eval_adaptive.core.families import prefix_family, read_families
from lm_eval_adaptive.errors import DataError, UsageError

MODELS = ("qwen-a", "qwen2-b", "llama-a", "solo")


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("Qwen2.5-72B", "qwen"),
        ("gpt4_1106", "gpt"),
        ("meta-llama/Llama-3", "meta"),
        ("ONLINE-W", "online"),
        ("01-ai__Yi-6B", "01"),  # nothing is left without the digits
        ("solo", "solo"),
    ],
)
def test_a_prefix_ends_at_the_first_separator_or_digit(name, family):
    assert prefix_family(name) == family


def test_prefixes_give_every_model_a_family():
    found = read_families("prefix", MODELS)
    assert found == {"qwen-a": "qwen", "qwen2-b": "qwen", "llama-a": "llama", "solo": "solo"}


@pytest.mark.parametrize("separator", [",", "\t"])
def test_a_table_names_families_and_those_it_leaves_blank_have_none(tmp_path, separator):
    lines = ["Model,Family,size", "qwen-a,Q,1", "qwen2-b,Q,2", "llama-a,,3", "unknown,Z,4"]
    path = tmp_path / ("families.csv" if separator == "," else "families.tsv")
    path.write_text("\n".join(lines).replace(",", separator) + "\n", encoding="utf-8")
    assert read_families(str(path), MODELS) == {"qwen-a": "Q", "qwen2-b": "Q"}


@pytest.mark.parametrize("name", ["s.parquet", "s.csv", "s.csv.gz"])
def test_a_column_of_the_table_beside_the_scores_marks_the_members_of_a_group(tmp_path, name):
    table = tmp_path / "s.models.csv"
    table.write_text("model,mark\nqwen-a,1\nqwen2-b,0\nllama-a,1\nsolo,\n", encoding="utf-8")
    found = read_families("mark", MODELS, tmp_path / name)
    assert found == {"qwen-a": "1", "llama-a": "1"}


def test_errors_say_what_was_expected_and_where(tmp_path):
    scores = tmp_path / "s.parquet"
    with pytest.raises(UsageError, match=r"--family mark: mark is no file, .* no table of models"):
        read_families("mark", MODELS, scores)
    with pytest.raises(UsageError, match="a column needs a file of scores"):
        read_families("mark", MODELS)
    with pytest.raises(DataError, match=r"absent\.csv cannot be read as a table \(No such file"):
        read_families(str(tmp_path / "absent.csv"), MODELS)
    table = tmp_path / "s.models.csv"
    table.write_text("model,size\nqwen-a,1\n", encoding="utf-8")
    with pytest.raises(UsageError, match="no column mark; its columns are model, size"):
        read_families("mark", MODELS, scores)
    with pytest.raises(UsageError, match="no column family; its columns are model, size"):
        read_families(str(table), MODELS)
    table.write_text("model,family\nother,1\n", encoding="utf-8")
    with pytest.raises(DataError, match="names none of the 4 models of the scores, such as qwen-a"):
        read_families(str(table), MODELS)
    table.write_text("model,family\nsolo,1\nsolo,2\n", encoding="utf-8")
    with pytest.raises(DataError, match="model 'solo' stands in two families, 1 and 2"):
        read_families(str(table), MODELS)
    table.write_text("", encoding="utf-8")
    with pytest.raises(UsageError, match="no column model; its columns are none"):
        read_families(str(table), MODELS)
    table.write_bytes(b"model,family\n\xff\xfe,1\n")
    with pytest.raises(DataError, match="cannot be read as a table"):
        read_families(str(table), MODELS)
