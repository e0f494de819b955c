"""The journal's lines: bytes as they always were, types at the door, one line for what is wrong."""

from __future__ import annotations

import json

import pytest

from lm_eval_adaptive.errors import DataError, UsageError
from lm_eval_adaptive.records.journal import (
    NAME,
    AnswerRecord,
    AskRecord,
    EndRecord,
    FailedRecord,
    Header,
    ResumedRecord,
    RoundRecord,
    RunHead,
    ScoreRecord,
    TaskHead,
    read_journal,
    written,
)
from lm_eval_adaptive.run.journal import Journal, begin, go_on

HEAD = RunHead(
    tasks={"t": TaskHead(signature="task:t", bank_sha256="ab", documents=3)},
    models={"m": {"name": "m"}},
    adaptive={"confidence": 0.95},
    settings={},
    versions={},
)


def answer(**changes):
    fields = {
        "task": "t", "round": 1, "model": "m", "doc_id": 2, "prompt_hash": "p", "resps": ("ä ☃",),
        "filtered": {"none": "ä ☃"}, "metrics": {"none": {"rougeL": 0.1 + 0.2}}, "raw_score": 0.3,
        "score": 1e-07, "clipped": False, "problem": "", "input_tokens": 10.0,
        "output_tokens": 2.5, "tokens_counted": True, "cost": 1.0,
    }  # fmt: skip
    return AnswerRecord(**{**fields, **changes})


RECORDS = (
    RoundRecord(task="t", round=1, asks=(AskRecord(model="m", doc_ids=(2, 0)),)),
    answer(),
    answer(raw_score=None, score=None, problem="rougeL is nan"),
    answer(scores={"bleu": ScoreRecord(raw_score=1.5, score=0.015, clipped=True, problem="")}),
    FailedRecord(task="t", model="m", reason="out of memory"),
    ResumedRecord(answers=1),
    EndRecord(task="t", stop_reason="decided"),
)


def test_lines_are_what_json_makes_of_their_fields_in_order():
    assert written(RECORDS[0]) == (
        '{"type": "round", "task": "t", "round": 1, "asks": [{"model": "m", "doc_ids": [2, 0]}]}'
    )
    assert written(answer()) == (
        '{"type": "answer", "task": "t", "round": 1, "model": "m", "doc_id": 2, '
        '"prompt_hash": "p", "resps": ["ä ☃"], "filtered": {"none": "ä ☃"}, '
        '"metrics": {"none": {"rougeL": 0.30000000000000004}}, "raw_score": 0.3, '
        '"score": 1e-07, "clipped": false, "problem": "", "input_tokens": 10.0, '
        '"output_tokens": 2.5, "tokens_counted": true, "cost": 1.0}'
    )
    assert written(Header(config=HEAD, command=("run", "--adaptive"))) == (
        '{"type": "run", "schema": 1, "config": {"tasks": {"t": {"signature": "task:t", '
        '"bank_sha256": "ab", "documents": 3}}, "models": {"m": {"name": "m"}}, '
        '"adaptive": {"confidence": 0.95}, "settings": {}, "versions": {}}, '
        '"command": ["run", "--adaptive"]}'
    )


def test_what_was_written_is_read_back(tmp_path):
    journal, held = begin(tmp_path, HEAD, ["run"])
    assert held.records == ()
    with journal:
        for record in RECORDS:
            journal.write(record)
    found = read_journal(tmp_path / NAME)
    assert found.header == Header(config=HEAD, command=("run",))
    assert found.records == RECORDS
    assert [each.score for each in found.answers("t")] == [1e-07, None, 1e-07]
    assert found.answers("other") == []
    assert [each.model for each in found.failures("t")] == ["m"]
    assert found.stop_reasons() == {"t": "decided"}


def lines_of(tmp_path, *lines):
    path = tmp_path / NAME
    head = written(Header(config=HEAD, command=()))
    path.write_text("".join(f"{line}\n" for line in (head, *lines)), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"score": "0.5"}, r"line 2 is damaged \(Expected `float \| null`, got `str`"),
        ({"doc_id": 2.5}, r"line 2 is damaged \(Expected `int`, got `float`.*doc_id"),
        ({"type": "answr"}, r"line 2 is damaged \(Invalid value 'answr'"),
        ({"resps": None}, r"line 2 is damaged \(Expected `array`, got `null`"),
    ],
)
def test_a_line_of_another_shape_is_refused_with_its_number(tmp_path, change, says):
    line = {**json.loads(written(answer())), **change}
    with pytest.raises(DataError, match=says) as caught:
        read_journal(lines_of(tmp_path, json.dumps(line)))
    assert "\n" not in str(caught.value)


def test_a_line_that_lacks_a_field_is_refused(tmp_path):
    line = json.loads(written(answer()))
    del line["cost"]
    with pytest.raises(DataError, match=r"line 2 is damaged \(Object missing .*`cost`"):
        read_journal(lines_of(tmp_path, json.dumps(line)))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "does not start with a run's configuration"),
        ("[1]\n", "does not start with a run's configuration"),
        ('{"type": "answer"}\n', "does not start with a run's configuration"),
        ('{"type": "run", "schema": 2}\n', "has schema 2, this version reads schema 1"),
        ('{"type": "run", "schema": 1}\n', "line 1 is damaged"),
        ("{\n", "line 1 is damaged"),
    ],
)
def test_what_is_no_journal_is_refused(tmp_path, text, says):
    (tmp_path / NAME).write_text(text)
    with pytest.raises(DataError, match=says):
        read_journal(tmp_path / NAME)


def test_reading_leaves_a_half_written_line_alone_and_going_on_cuts_it_off(tmp_path):
    path = lines_of(tmp_path, written(answer()))
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"type": "answer", "task"')
    found = read_journal(path)
    assert len(found.records) == 1
    assert "half-written last line" in found.notices[0]
    assert path.read_bytes() != whole, "a run that is going on may be writing it"
    journal, held = go_on(tmp_path, HEAD)
    journal.close()
    assert held.records == found.records
    assert path.read_bytes() == whole + f"{written(ResumedRecord(answers=1))}\n".encode()


def test_another_head_is_named_and_nothing_is_written(tmp_path):
    path = lines_of(tmp_path)
    before = path.read_bytes()
    other = RunHead(
        tasks={"t": TaskHead(signature="task:t", bank_sha256="cd", documents=3)},
        models=HEAD.models, adaptive=HEAD.adaptive, settings={}, versions={},
    )  # fmt: skip
    with pytest.raises(DataError, match=r"tasks\.t\.bank_sha256 was 'ab' .* and is 'cd' now"):
        go_on(tmp_path, other)
    assert path.read_bytes() == before


def test_a_finished_journal_is_put_away_and_an_unfinished_one_refused(tmp_path):
    path = lines_of(tmp_path)
    with pytest.raises(UsageError, match="holds an unfinished run; go on with --resume"):
        begin(tmp_path, HEAD, [])
    with Journal(path) as journal:
        journal.write(EndRecord(task="t", stop_reason="decided"))
    kept = path.read_bytes()
    begin(tmp_path, HEAD, [])[0].close()
    assert (tmp_path / "journal_1.jsonl").read_bytes() == kept
    assert read_journal(path).records == ()


def test_lines_that_only_pythons_reader_takes_are_read(tmp_path):
    """Half a character in an answer, as some models give, and a number that JSON does not have."""
    odd = answer(resps=("\ud83d",), filtered={"none": "\ud83d"})
    with Journal(tmp_path / NAME) as journal:
        journal.write(Header(config=HEAD, command=()))
        journal.write(odd)
        journal.write(answer())
    path = tmp_path / NAME
    path.write_bytes(path.read_bytes().replace(b'"rougeL": 0.30000000000000004', b'"rougeL": NaN'))
    first, second = read_journal(path).records
    assert first.resps == ("\ud83d",)
    assert str(second.metrics["none"]["rougeL"]) == "nan"


def test_an_answer_of_10_mb_is_read_back_equal(tmp_path):
    said = "wört \x00\ud83d " * 1_250_000
    with Journal(tmp_path / NAME) as journal:
        journal.write(Header(config=HEAD, command=()))
        journal.write(answer(resps=(said,)))
    (record,) = read_journal(tmp_path / NAME).records
    assert record.resps == (said,)
