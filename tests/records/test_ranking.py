"""The ranking file: written as its readers know it, read back as it was, refused where it is not."""

from __future__ import annotations

import json

import msgspec
import pytest
from msgspec.structs import replace

from lm_eval_adaptive.errors import DataError
from lm_eval_adaptive.records.ranking import (
    BankStamp,
    Entry,
    Excluded,
    MetricRanking,
    PairVerdict,
    RankingDocument,
    Recipe,
    SetAside,
    SummaryDocument,
    SummaryRow,
    TraceStep,
    read_ranking,
    write_document,
)

NUMBERS = {
    "score": 0.1 + 0.2, "score_se": 0.02, "score_ci": (0.26, 0.34), "ability": -1.5,
    "ability_se": 0.25, "items": 7, "cost": 7.0, "known": False,
}  # fmt: skip


def made(**changes):
    document = RankingDocument(
        task="täsk",
        metric="rougeL",
        higher_is_better=True,
        bank=BankStamp(
            path="x.parquet",
            sha256="00",
            items=9,
            response_model="robust-2pl",
            range=(0.0, 1.0),
            models=("old",),
        ),
        config=Recipe(
            adaptive={"confidence": 0.95, "metric": None}, models=({"name": "org/a", "cost": 1.0},)
        ),
        signature="task:täsk",
        versions={"lm_eval": "0.4.12"},
        ranking=(Entry(model="org/a", rank=1, tied_with=("b",), **NUMBERS),),
        set_aside=(SetAside(model="c", reason="out of memory", **NUMBERS),),
        pairs=(PairVerdict(a="org/a", b="b", p_a_better=0.75, verdict="undecided"),),
        stop_reason="budget",
        items_total=7,
        items_full=18,
        fraction=7 / 18,
        cost_total=7.0,
        cost_full=18.0,
        excluded=(Excluded(doc_id=3, reason="b: no number"),),
        warnings=("a warning",),
        trace=(
            TraceStep(
                step=1, round=1, model="org/a", doc_id=3, raw_score=None, score=None, ability=0.0,
                ability_se=1.0, estimate=0.5, estimate_half=0.4,
            ),
        ),
    )  # fmt: skip
    return replace(document, **changes)


def of_metric(**changes):
    """The part of a document that stands under ``rankings``."""
    document = made(**changes)
    names = MetricRanking.__struct_fields__
    return MetricRanking(**{name: getattr(document, name) for name in names})


def test_a_file_holds_its_keys_in_the_order_that_people_read(tmp_path):
    path = tmp_path / "ranking_x.json"
    write_document(path, made(date="2026"))
    text = path.read_text(encoding="utf-8")
    data = json.loads(text)
    assert list(data) == [
        "schema", "task", "metric", "filter", "higher_is_better", "bank", "config", "signature",
        "versions", "ranking", "set_aside", "pairs", "stop_reason", "items_total", "items_full",
        "fraction", "cost_total", "cost_full", "excluded", "warnings", "trace", "date",
    ]  # fmt: skip
    assert list(data["ranking"][0]) == [
        "rank", "model", "score", "score_se", "score_ci", "ability", "ability_se", "items", "cost",
        "known", "lies", "tied_with",
    ]  # fmt: skip
    assert next(iter(data["set_aside"][0])) == "model"
    assert list(data["set_aside"][0])[-1] == "reason"
    assert data["ranking"][0]["score_ci"] == [0.26, 0.34]
    assert data["schema"] == 1
    assert text.startswith('{\n  "schema": 1,\n  "task": "täsk",\n')
    assert text.endswith("}\n")
    assert list(tmp_path.iterdir()) == [path], "nothing half-written is left beside it"


def test_what_was_written_is_read_back(tmp_path):
    several = {"rougeL": of_metric(), "bleu": of_metric(metric="bleu")}
    for document in (made(), made(date="2026", rankings=several)):
        write_document(tmp_path / "ranking_x.json", document)
        assert read_ranking(tmp_path / "ranking_x.json") == document


def test_a_ranking_by_a_further_metric_keeps_what_the_file_says_once():
    further = of_metric(metric="bleu", signature="other", items_total=8)
    document = made(rankings={"rougeL": of_metric(), "bleu": further})
    (found,) = document.further
    assert (found.metric, found.signature, found.items_total) == ("bleu", "other", 8)
    assert (found.task, found.config, found.versions) == ("täsk", made().config, made().versions)
    assert "task" not in document.plain()["rankings"]["bleu"]
    assert made().further == []


def test_a_file_of_before_estimates_were_recorded_is_read(tmp_path):
    data = made().plain()
    for key in ("set_aside", "excluded", "warnings", "versions"):
        del data[key]
    del data["ranking"][0]["known"]
    del data["trace"][0]["estimate"], data["trace"][0]["estimate_half"]
    (tmp_path / "ranking_x.json").write_text(json.dumps(data))
    found = read_ranking(tmp_path / "ranking_x.json")
    assert found.trace[0].estimate is None
    assert found.ranking[0].known is False
    assert found.set_aside == found.excluded == found.warnings == ()


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda data: data["pairs"][0].update(verdict="perhaps"), r"\$.pairs\[0\].verdict"),
        (lambda data: data["ranking"][0].update(score="0.3"), r"\$.ranking\[0\].score"),
        (lambda data: data["trace"][0].pop("ability"), "`ability`"),
        (lambda data: data.update(fraction=None), r"\$.fraction"),
    ],
)
def test_a_damaged_file_is_refused_in_one_line_that_says_where(tmp_path, change, where):
    data = made().plain()
    change(data)
    path = tmp_path / "ranking_x.json"
    path.write_text(json.dumps(data))
    with pytest.raises(DataError, match=where) as caught:
        read_ranking(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    assert "--resume" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "no readable ranking file"),
        ("[]", "no ranking file"),
        ('{"ranking": [], "task": "t", "schema": 2}', "has schema 2, this version reads schema 1"),
    ],
)
def test_what_is_no_ranking_file_is_refused(tmp_path, text, said):
    path = tmp_path / "ranking_x.json"
    path.write_text(text)
    with pytest.raises(DataError, match=said):
        read_ranking(path)


def test_records_do_not_change():
    with pytest.raises(AttributeError):
        made().ranking[0].score = 1.0
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({}, Entry)


def test_a_summary_holds_its_rows(tmp_path):
    row = SummaryRow(model="a", mean_rank=1.5, mean_z=0.25, mean_z_se=0.1, tasks=2)
    path = tmp_path / "summary.json"
    write_document(path, SummaryDocument(tasks=("t", "u"), summary=(row,), date="2026"))
    assert json.loads(path.read_text()) == {
        "schema": 1, "tasks": ["t", "u"], "date": "2026",
        "summary": [{"model": "a", "mean_rank": 1.5, "mean_z": 0.25, "mean_z_se": 0.1, "tasks": 2}],
    }  # fmt: skip
    assert list(json.loads(path.read_text())) == ["schema", "tasks", "summary", "date"]
