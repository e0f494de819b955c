"""``init-task``: what it writes loads in the harness, and its mistakes are one line."""

from __future__ import annotations

import argparse
import json

import pandas as pd
import pytest

from lm_eval_adaptive.cli.init_task import TaskWish, add_parser, init_task
from lm_eval_adaptive.errors import DataError, UsageError
from lm_eval_adaptive.metrics import METRICS
from lm_eval_adaptive.metrics.judging.reply import Reply
from tests.tasks import fakes

ROWS = [
    {"id": k, "question": f"What is {k} + 1?", "answer": f"It is {k + 1}, of course"}
    for k in range(60)
]


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "datasets"))
    (tmp_path / "sums.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8"
    )
    return tmp_path


def load(folder, name):
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(folder), include_defaults=False)
    return manager.load([name])["tasks"][name]


def wish(**more):
    return TaskWish(**{"name": "sums", "dataset": "sums.jsonl", "metric": "rougeL", **more})


def test_columns_are_guessed_and_the_task_runs_from_anywhere(place, monkeypatch):
    written = init_task(wish())
    assert [file.name for file in written.files] == ["sums.yaml", "sums_helper.py"]
    assert "60 documents" in written.notices
    (place / "elsewhere").mkdir()
    monkeypatch.chdir(place / "elsewhere")
    task = load(place / "sums", "sums")
    assert list(task.eval_docs) == ROWS
    assert task.doc_to_text(ROWS[0]) == "What is 0 + 1?"
    assert task.process_results(ROWS[0], ["It is 1, of course"]) == {"rougeL": 1.0}
    assert task.higher_is_better() == {"rougeL": True}
    assert task.config.metadata["adaptive"] == {
        "metric": "rougeL",
        "range": [0, 1],
        "bank": "sums.bank.parquet",
    }


@pytest.mark.parametrize("suffix", ["json", "csv", "tsv", "parquet"])
def test_every_kind_of_file(place, suffix):
    table = pd.DataFrame(ROWS)
    path = place / f"data.{suffix}"
    if suffix == "json":
        path.write_text(json.dumps(ROWS), encoding="utf-8")
    elif suffix == "parquet":
        table.to_parquet(path)
    else:
        table.to_csv(path, index=False, sep="\t" if suffix == "tsv" else ",")
    init_task(wish(dataset=str(path)))
    assert list(load(place / "sums", "sums").eval_docs) == ROWS


def test_data_beside_the_task_moves_with_it(place):
    (place / "sums").mkdir()
    (place / "sums.jsonl").rename(place / "sums" / "sums.jsonl")
    init_task(wish(dataset="sums/sums.jsonl"))
    (place / "sums").rename(place / "moved")
    assert len(load(place / "moved", "sums").eval_docs) == 60


@pytest.mark.parametrize("metric", ["exact_match", "bleu", "chrf", "ter"])
def test_the_harness_s_own_metrics_need_no_helper_for_scores(place, metric):
    init_task(wish(metric=metric))
    task = load(place / "sums", "sums")
    assert task.config.process_results is None
    assert metric in task.process_results(ROWS[0], ["It is 1, of course"])
    assert task.higher_is_better()[metric] == (metric != "ter")


@pytest.mark.parametrize("metric", ["bertscore_f1", "comet", "judge", "fkgl", "sentence_bleu"])
def test_metrics_of_this_package(place, metric, monkeypatch):
    if metric == "fkgl":
        pytest.importorskip("textstat", reason="the extra readability is not installed")
    fakes.install(monkeypatch, place)
    seen = []

    def ask(messages, settings, sleep=None):
        seen.append(messages[-1]["content"])
        return Reply("Score: 6")

    monkeypatch.setattr("lm_eval_adaptive.metrics.judge.ask_server", ask)
    init_task(wish(metric=metric))
    task = load(place / "sums", "sums")
    (value,) = task.process_results(ROWS[0], [ROWS[0]["answer"]]).values()
    lo, hi = task.config.metadata["adaptive"]["range"]
    assert (lo, hi) == (METRICS[metric].lo, METRICS[metric].hi)
    assert lo - 4 <= value <= hi + 1e-9
    if metric == "judge":
        assert value == 6.0
        assert "Task: What is 0 + 1?" in seen[0]


def test_several_references(place):
    rows = [{"q": "x", "a": ["one", "two"]}]
    (place / "several.jsonl").write_text(json.dumps(rows[0]) + "\n", encoding="utf-8")
    more = {"dataset": "several.jsonl", "input_column": "q", "target_column": "a"}
    init_task(wish(**more))
    task = load(place / "sums", "sums")
    assert task.process_results(rows[0], ["two"]) == {"rougeL": 1.0}
    with pytest.raises(UsageError, match="take sentence_bleu"):
        init_task(wish(metric="bleu", output="other", **more))


def test_a_prompt_of_one_s_own(place):
    init_task(wish(prompt='Say "now":\n\n{{question}} ({{ id }})'))
    assert load(place / "sums", "sums").doc_to_text(ROWS[3]) == 'Say "now":\n\nWhat is 3 + 1? (3)'


def test_a_hub_dataset_is_described_without_a_network(place):
    written = init_task(
        wish(
            dataset="org/news",
            input_column="article",
            target_column="summary",
            split="validation",
            dataset_name="full",
            revision="abc",
            metric="chrf",
        )
    )
    assert len(written.files) == 1
    from lm_eval.tasks._yaml_loader import load_yaml

    config = load_yaml(written.yaml)
    assert config["dataset_path"] == "org/news"
    assert config["dataset_name"] == "full"
    assert config["dataset_kwargs"] == {"revision": "abc"}
    assert config["test_split"] == "validation"
    assert config["doc_to_target"] == "{{summary}}"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"name": "my task"}, "letters, digits"),
        ({"metric": "rouge"}, "did you mean rouge"),
        ({"metric": "span_score"}, "does not know it"),
        ({"dataset": "nowhere.jsonl"}, "no such file"),
        ({"dataset": "what is this"}, "neither a file nor a name"),
        ({"input_column": "frage"}, "--input frage: .* it has id, question, answer"),
        ({"prompt": "{{ frage }}"}, "'frage', which is no column"),
        ({"prompt": "{{ question"}, "no Jinja2 template"),
        ({"dataset": "org/news"}, "name the column with --target"),
    ],
)
def test_mistakes_are_one_line(more, message):
    with pytest.raises(UsageError, match=message) as caught:
        init_task(wish(**more))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{broken", "[1, 2]", '"x"\n'])
def test_broken_data_is_one_line(place, text):
    (place / "bad.jsonl").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"bad\.jsonl") as caught:
        init_task(wish(dataset="bad.jsonl"))
    assert "\n" not in str(caught.value)


def test_nothing_is_written_over(place):
    init_task(wish())
    (place / "sums" / "sums.yaml").write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match="exists already"):
        init_task(wish())
    assert (place / "sums" / "sums.yaml").read_text(encoding="utf-8") == "mine"
    init_task(wish(overwrite=True))
    assert (place / "sums" / "sums.yaml").read_text(encoding="utf-8") != "mine"


def test_blank_references_and_small_sets_are_told(place):
    (place / "few.jsonl").write_text(
        '{"question": "a", "answer": ""}\n{"question": "b", "answer": "0"}\n', encoding="utf-8"
    )
    notices = " ".join(init_task(wish(dataset="few.jsonl")).notices)
    assert "1 documents have no answer" in notices
    assert "fewer than 50" in notices


def test_the_command_says_what_comes_next(place, capsys):
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    parsed = parser.parse_args(
        ["init-task", "sums", "--dataset", "sums.jsonl", "--metric", "rougeL"]
    )
    assert parsed.func(parsed) == 0
    told = capsys.readouterr().out
    assert "wrote sums/sums.yaml" in told
    assert "lm-eval-adaptive calibrate --task sums --metric rougeL" in told


# --- where the data are, what columns are called, answers that are missing


@pytest.mark.parametrize("moved", ["task alone", "task and data", "data beside the task"])
def test_data_elsewhere_are_found_after_a_move(place, moved):
    init_task(wish(dataset=str(place / "sums.jsonl")))
    (place / "new").mkdir()
    (place / "sums").rename(place / "new" / "sums")
    if moved == "task and data":
        (place / "sums.jsonl").rename(place / "new" / "sums.jsonl")
    if moved == "data beside the task":
        (place / "sums.jsonl").rename(place / "new" / "sums" / "sums.jsonl")
    assert len(load(place / "new" / "sums", "sums").eval_docs) == 60


def test_data_that_are_gone_are_asked_for_by_their_path(place):
    from lm_eval.tasks import TaskManager

    from lm_eval_adaptive.errors import TaskError
    from lm_eval_adaptive.host.task import load_tasks

    init_task(wish())
    (place / "sums.jsonl").unlink()
    manager = TaskManager(include_path=str(place / "sums"), include_defaults=False)
    with pytest.raises(TaskError, match="documents of sums are not there") as caught:
        load_tasks(manager, ["sums"])
    assert "\n" not in str(caught.value)
    assert str(place / "sums.jsonl") in str(caught.value)


@pytest.mark.parametrize(
    ("ask", "want"),
    [
        ("class", "lambda"),
        ("if", "not"),
        ("none", "True"),
        ("the question", "right-answer"),
        ("{{ x }}", "{% raw %}"),
        ("1st", 'a"b\\c'),
        ("frage \U0001f600", "antwort \x85"),
    ],
)
@pytest.mark.parametrize("metric", ["exact_match", "rougeL"])
def test_columns_of_any_name(place, ask, want, metric):
    rows = [{ask: f"what {k}", want: f"that {k}"} for k in range(3)]
    pd.DataFrame(rows).to_parquet(place / "odd.parquet")
    more = {"dataset": "odd.parquet", "input_column": ask, "target_column": want}
    init_task(wish(metric=metric, **more))
    task = load(place / "sums", "sums")
    doc = task.eval_docs[1]
    assert (task.doc_to_text(doc), task.doc_to_target(doc)) == ("what 1", "that 1")
    assert task.process_results(doc, ["that 1"]) == {metric: 1.0}
    assert task.process_results(doc, ["no"])[metric] == 0.0


def test_columns_that_no_template_can_hold_are_refused(place):
    pd.DataFrame({"self": [1], "question": ["a"], "answer": ["b"]}).to_json(
        place / "own.jsonl", orient="records", lines=True
    )
    with pytest.raises(UsageError, match="column named 'self'"):
        init_task(wish(dataset="own.jsonl"))
    pd.DataFrame({"a question": ["a"], "answer": ["b"]}).to_parquet(place / "odd.parquet")
    with pytest.raises(UsageError, match="rubric cannot name the column 'a question'"):
        init_task(wish(dataset="odd.parquet", input_column="a question", metric="judge"))


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize("metric", ["exact_match", "rougeL"])
def test_documents_without_an_answer_are_left_out(place, suffix, metric):
    table = pd.DataFrame(
        {"question": list("abcde"), "answer": ["NA", None, "0", "None", "  "]}, dtype=object
    )
    path = place / f"gaps.{suffix}"
    if suffix == "jsonl":
        table.to_json(path, orient="records", lines=True)
    else:
        table.to_parquet(path) if suffix == "parquet" else table.to_csv(path, index=False)
    written = init_task(wish(dataset=str(path), metric=metric))
    assert "2 documents have no answer" in " ".join(written.notices)
    docs = load(place / "sums", "sums").eval_docs
    assert [doc["question"] for doc in docs] == ["a", "c", "d"]
    assert [doc["answer"] for doc in docs] == ["NA", "0", "None"]


def test_an_answer_of_0_is_one_and_none_at_all_is_refused(place):
    (place / "zero.csv").write_text("question,answer\na,0\nb,1\n", encoding="utf-8")
    assert "no answer" not in " ".join(init_task(wish(dataset="zero.csv")).notices)
    (place / "none.csv").write_text("question,answer\na,\nb,\n", encoding="utf-8")
    with pytest.raises(UsageError, match="no document has a right answer in column answer"):
        init_task(wish(dataset="none.csv", output="other"))


@pytest.mark.parametrize("name", ["my.task", "my-task", "3d"])
def test_names_with_dots_and_dashes_load(place, name):
    init_task(wish(name=name))
    assert len(load(place / name, name).eval_docs) == 60
