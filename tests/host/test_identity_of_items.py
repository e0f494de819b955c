"""An item is what the model sees and is held against, whatever else its document holds."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lm_eval_adaptive.banks.calibrate import calibrate_from
from lm_eval_adaptive.banks.check import match_documents
from lm_eval_adaptive.banks.log_scores import score_matrix
from lm_eval_adaptive.banks.options import CalibrateOptions
from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.core.build import calibrate
from lm_eval_adaptive.errors import DataError
from lm_eval_adaptive.host.columns import columns_read
from lm_eval_adaptive.host.logs import find_runs
from lm_eval_adaptive.host.sight import sights
from lm_eval_adaptive.host.task import TaskDocs, load_task

from .small import config_of, documents, run_adaptively, write_task
from .test_aggregations import log_plainly

READING = """
process_results: !function UTIL.right_words
metric_list:
  - {metric: score, aggregation: mean, higher_is_better: true}
"""
CODE = """
def right_words(doc, results):
    want, got = doc["right"].split(), str(results[0]).split()
    return {"score": sum(a == b for a, b in zip(want, got)) / len(want)}
"""
HANDING_ON = (
    CODE.replace('doc["right"]', "_right(doc)") + "\ndef _right(doc):\n    return doc['right']\n"
)


def with_source(year):
    return [
        {**doc, "source": f"https://example.org/{year}/{n}"} for n, doc in enumerate(documents())
    ]


def docs_of(path):
    from lm_eval.tasks import TaskManager

    return TaskDocs(load_task(TaskManager(include_defaults=False), config_of(path)))


@pytest.fixture
def logged(tmp_path):
    """Runs on documents whose source is of 2024."""
    path = write_task(tmp_path / "old", READING, CODE, docs=with_source(2024))
    return log_plainly(tmp_path / "logs", path, (2, 3, 4, 5, 6, 7))


def bank_of(logs, folder):
    bank = calibrate_from(CalibrateOptions(task="small", metric="score", samples=(str(logs),)))
    return bank.save(folder / "small.bank.parquet")


def test_a_column_that_is_not_read_may_change(logged, tmp_path):
    bank = bank_of(logged, tmp_path)
    path = write_task(tmp_path / "new", READING, CODE, docs=with_source(2026))
    found = run_adaptively(
        tmp_path / "run", path, adaptive={"bank": str(bank), "items_per_model": 12}
    )
    ranking = found["ranking"]["small"]
    assert ranking["ranking"][0]["model"] == "miss-0"
    assert not any("left out" in line for line in ranking["warnings"])


def test_a_column_that_is_read_may_not(logged, tmp_path):
    bank = bank_of(logged, tmp_path)
    edited = [{**doc, "right": doc["right"] + " today"} for doc in with_source(2024)]
    path = write_task(tmp_path / "new", READING, CODE, docs=edited)
    with pytest.raises(DataError, match=r"24 of the 24 items .* not among the 24 documents"):
        run_adaptively(tmp_path / "run", path, adaptive={"bank": str(bank)})


@pytest.fixture
def handed_on(tmp_path):
    """Runs of a task whose code hands its documents on, and the bank they make."""
    path = write_task(tmp_path / "old", READING, HANDING_ON, docs=with_source(2024))
    logs = log_plainly(tmp_path / "logs", path, (2, 3, 4, 5, 6, 7))
    return logs, bank_of(logs, tmp_path)


def test_where_a_function_hands_the_document_on_prompts_and_targets_decide(handed_on, tmp_path):
    _, bank = handed_on
    same = run_adaptively(
        tmp_path / "same", tmp_path / "old" / "small.yaml", adaptive={"bank": str(bank)}
    )
    assert not any("prompts and targets" in line for line in same["ranking"]["small"]["warnings"])
    path = write_task(tmp_path / "new", READING, HANDING_ON, docs=with_source(2026))
    found = run_adaptively(tmp_path / "run", path, adaptive={"bank": str(bank)})
    ranking = found["ranking"]["small"]
    assert ranking["ranking"][0]["model"] == "miss-0"
    assert any(
        line.startswith("24 documents are told by their prompts and targets")
        for line in ranking["warnings"]
    )


def test_what_the_model_sees_or_is_held_against_may_not_change_there_either(handed_on, tmp_path):
    _, bank = handed_on
    for column in ("right", "question"):
        edited = [{**doc, column: f"{doc[column]} today {n}"} for n, doc in enumerate(documents())]
        path = write_task(tmp_path / column, READING, HANDING_ON, docs=edited)
        with pytest.raises(DataError, match="not among"):
            run_adaptively(tmp_path / f"run-{column}", path, adaptive={"bank": str(bank)})


def test_runs_and_updates_go_by_prompts_and_targets_there(handed_on, tmp_path):
    logs, bank = handed_on
    path = write_task(tmp_path / "new", READING, HANDING_ON, docs=with_source(2026))
    more = log_plainly(tmp_path / "more", path, (9, 11))
    grown = calibrate_from(CalibrateOptions(update=str(bank), samples=(str(more),)))
    assert len(grown.info.models) == 8
    assert not np.isnan(grown.scores).any()
    log_plainly(logs, path, (9, 11))
    scored = score_matrix(find_runs(logs, "small"), "score")
    assert scored.matrix.scores.shape == (8, 24)
    assert any("24 documents differ between runs in columns" in line for line in scored.notices)


def test_edited_moved_and_repeated_documents_are_counted(logged, tmp_path):
    bank = ItemBank.load(bank_of(logged, tmp_path))
    edited = with_source(2024)
    edited[5] = {**edited[5], "right": "something else"}
    docs = docs_of(write_task(tmp_path / "edited", READING, CODE, docs=edited))
    found, notices = match_documents(bank, docs.keys, docs.seen_keys)
    assert found == [*range(5), None, *range(6, 24)]
    (told,) = notices
    assert told == (
        "1 of the bank's 24 items are left out: their documents are not (or no longer) in the task "
        "(1 of them edited: another document has their doc_id)"
    )
    docs = docs_of(write_task(tmp_path / "turned", READING, CODE, docs=with_source(2024)[::-1]))
    found, (told,) = match_documents(bank, docs.keys, docs.seen_keys)
    assert found == list(range(24))[::-1]
    assert told.startswith("24 documents have another doc_id")
    twice = [*with_source(2024), with_source(2024)[3]]
    path = write_task(tmp_path / "twice", READING, CODE, docs=twice)
    bank = ItemBank.load(
        bank_of(log_plainly(tmp_path / "logs2", path, (2, 3, 4, 5)), tmp_path / "twice")
    )
    docs = docs_of(path)
    found, (told,) = match_documents(bank, docs.keys, docs.seen_keys)
    assert found == list(range(25))
    assert told.startswith("2 items of the bank are documents that repeat word for word")


def test_sights_leave_out_what_stands_around_a_document():
    own = ("Q: one?\nA:", "Q: two?\nA:", "Q: three?\nA:")

    def of(prompts, targets):
        return sights(lambda: zip(prompts, targets, strict=True))

    plain = of(own, (1, 2, 3))
    around = [f"Be brief.\n\nQ: zero?\nA: 0\n\n{part}" for part in own]
    chats = [json.dumps([{"role": "user", "content": f"Hi!\n{part}"}]) for part in own]
    assert of(around, ("1", "2", "3")) == of(chats, (1, 2, 3)) == plain
    assert len(set(plain)) == 3
    assert of(own, (1, 2, 4))[:2] == plain[:2]
    assert of(own, (1, 2, 4))[2] != plain[2]
    assert of(["the same", "the same"], (1, 2)) == ("", "")
    assert len(set(of(["aa", "aaa", "aaaa"], (1, 1, 1)))) == 3  # what is shared overlaps
    assert of([], []) == ()


def test_banks_named_by_all_columns_stay_readable(logged, tmp_path):
    old = score_matrix(find_runs(logged, "small"), "score", whole_documents=True)
    bank = calibrate(old.matrix, task="small", metric="score", filter="none", score_range=(0, 1))
    docs = docs_of(tmp_path / "old" / "small.yaml")
    found, notices = match_documents(bank, docs.keys, docs.seen_keys)
    assert (found, notices) == (list(range(24)), [])
    saved = bank.save(tmp_path / "old.bank.parquet")
    path = write_task(tmp_path / "again", READING, CODE, docs=with_source(2024))
    more = log_plainly(tmp_path / "more", path, (8, 9))
    grown = calibrate_from(CalibrateOptions(update=str(saved), samples=(str(more),)))
    assert len(grown) == 24
    assert len(grown.info.models) == 8


def test_logs_and_the_live_task_name_items_alike(logged, tmp_path):
    scored = score_matrix(find_runs(logged, "small"), "score")
    assert scored.matrix.items == docs_of(tmp_path / "old" / "small.yaml").seen_keys


def test_runs_whose_sources_differ_are_one_matrix(logged, tmp_path):
    path = write_task(tmp_path / "new", READING, CODE, docs=with_source(2026))
    log_plainly(logged, path, (9, 11))
    scored = score_matrix(find_runs(logged, "small"), "score")
    assert scored.matrix.scores.shape == (8, 24)
    assert not any("differ between runs" in notice for notice in scored.notices)


def test_columns_of_functions():
    def read(text):
        return columns_read({"doc_to_text": text, "doc_to_target": "answer"})

    assert read("def f(doc):\n    return doc['a'] + doc.get('b', '')\n") == {"a", "b", "answer"}
    assert read("{{a}} {% for x in b %}{{x}}{% endfor %}") == {"a", "b", "answer"}
    assert read("question") == {"question", "answer"}
    for unknown in (
        "def f(doc):\n    return g(doc)\n",
        "def f(doc):\n    return doc[name]\n",
        "def f(doc):\n    doc['a'] = 1\n    return doc['a']\n",
        "@cached\ndef f(doc):\n    return doc['a']\n",
        "functools.partial(<function f at 0x7f>)",
        "{% broken",
    ):
        assert read(unknown) is None, unknown
    assert columns_read({"doc_to_text": None}) is None


def test_a_value_without_stable_content_is_refused_by_its_column(tmp_path):
    path = write_task(tmp_path / "task", "")
    docs = docs_of(path)

    class Opaque:
        pass

    odd = [{**doc} for doc in docs.docs]
    odd[3]["right"] = Opaque()
    with pytest.raises(DataError, match=r"small: doc 3 cannot be told.*column 'right'.*Opaque"):
        docs._keys(odd, None)
    odd[3]["right"] = {(1, 2): "a pair as a key"}
    with pytest.raises(DataError, match=r"small: doc 3 .*column 'right'"):
        docs._keys(odd, None)
    odd[3]["right"] = float("nan")
    assert docs._keys(odd, None) == docs._keys(json.loads(json.dumps(odd)), None)
