"""What was paid for gives a ranking, whatever fails after the last answer."""

from __future__ import annotations

import json
import multiprocessing
import os
import time

import numpy as np
import pytest

from lm_eval_adaptive.api import simple_evaluate
from lm_eval_adaptive.errors import UsageError
from lm_eval_adaptive.run.config import AdaptiveConfig
from tests.support import quiz, toy

COLD = {"bank": "none", "metric": "score", "range": (0.0, 1.0), "items_per_model": 12}


class QuizLM(toy.ToyLM):
    """Says what the quiz's server says, with an ending of the model's own."""

    def __init__(self, end="", **kwargs):
        super().__init__(**kwargs)
        self.end = end

    def answer(self, doc):
        end = self.end if doc["number"] % 2 == 0 or self.end != " broken" else ""
        return quiz.said_by(f"{self.name}-{self.share}", doc["number"]) + end


@pytest.fixture(autouse=True)
def known(monkeypatch):
    toy.register()
    from lm_eval.api.registry import model_registry

    if "quiz" not in model_registry:
        model_registry.register("quiz", target=QuizLM)


def models(*names, end=""):
    return [
        {
            "name": name,
            "model": "quiz",
            "model_args": {"share": 0.8 - 0.3 * place, "name": f"q{place}", "end": end},
        }
        for place, name in enumerate(names or ("good", "bad"))
    ]


def run(folder, output, entries=None, task=quiz.TASK, resume=None, **adaptive):
    return simple_evaluate(
        entries or models(),
        [task],
        AdaptiveConfig(**{**COLD, **adaptive}),
        resume=resume,
        **({} if resume else {"output_path": str(output)}),
        include_path=folder,
    )


def whole(found, task=quiz.TASK):
    """The ranking, after looking that its file says the same."""
    path = found["files"][task][0]
    assert path.name.startswith("ranking_")
    assert json.loads(path.read_bytes())["ranking"] == found["ranking"][task]["ranking"]
    assert [entry["items"] for entry in found["ranking"][task]["ranking"]] == [12, 12]
    assert (path.parent / "report.html").is_file()
    return found["ranking"][task]


def samples_in(output):
    found = {}
    for path in output.rglob("samples_*.jsonl"):
        found[path.parent.name] = [json.loads(line) for line in path.read_bytes().splitlines()]
    return found


def no_nan(output):
    for path in [*output.rglob("*.json"), *output.rglob("*.jsonl")]:
        for line in (
            path.read_bytes().splitlines() if path.suffix == ".jsonl" else [path.read_bytes()]
        ):
            json.loads(line, parse_constant=pytest.fail)


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    return quiz.make_task(tmp_path_factory.mktemp("quiz"))


def test_an_aggregation_over_documents_of_which_none_was_asked_costs_its_own_line(tmp_path, caplog):
    more = "  - {metric: rare, aggregation: !function util.rare, higher_is_better: true}\n"
    folder = quiz.make_task(tmp_path / "task", scoring="pairs", more=more)
    found = run(folder, tmp_path / "out")
    whole(found)
    assert caplog.text.count("documents for rare (ZeroDivisionError: division by zero)") == 2
    for name in ("good", "bad"):
        block = found["results"][quiz.TASK][name]["adaptive"][quiz.TASK]
        assert list(block["mean_over_chosen"]) == ["score,none"]
    assert {len(rows) for rows in samples_in(tmp_path / "out").values()} == {12}
    no_nan(tmp_path / "out")
    again = run(folder, None, resume=tmp_path / "out")
    assert toy.undated(again["ranking"][quiz.TASK]) == toy.undated(found["ranking"][quiz.TASK])


def test_results_that_cannot_be_made_at_all_are_a_line_and_resume_makes_up_for_them(
    task, tmp_path, monkeypatch, caplog
):
    import lm_eval

    plain = lm_eval.simple_evaluate

    def broken(*args, **kwargs):
        raise RuntimeError("the harness fell over")

    monkeypatch.setattr(lm_eval, "simple_evaluate", broken)
    found = run(task, tmp_path)
    whole(found)
    assert "results and samples of good on quiz were not written (RuntimeError: the" in caplog.text
    assert not samples_in(tmp_path)
    monkeypatch.setattr(lm_eval, "simple_evaluate", plain)
    asked = len(toy.ToyLM.calls)
    again = run(task, None, resume=tmp_path)
    assert len(toy.ToyLM.calls) == asked, "nothing is asked again"
    assert toy.undated(again["ranking"][quiz.TASK]) == toy.undated(found["ranking"][quiz.TASK])
    assert set(samples_in(tmp_path)) == {"good", "bad"}


def test_a_disk_that_fills_while_results_are_written_leaves_the_ranking(
    task, tmp_path, monkeypatch, caplog
):
    from pathlib import Path

    write = Path.write_text

    def full(self, text, *args, **kwargs):
        if self.name.startswith("results_") and self.parent.name == "good":
            write(self, text[:10], *args, **kwargs)
            raise OSError(28, "No space left on device", str(self))
        return write(self, text, *args, **kwargs)

    monkeypatch.setattr(Path, "write_text", full)
    whole(run(task, tmp_path))
    assert "No space left on device" in caplog.text
    assert "results_" in caplog.text
    assert not list((tmp_path / "good").glob("results_*")), "half a file is none"
    assert list((tmp_path / "bad").glob("results_*"))
    assert len(samples_in(tmp_path)["good"]) == 12, "samples are written all the same"


@pytest.mark.parametrize("end", [" \ud83d", " \ud83d\ude00 \x00\x1b\u2028\x85", "x" * 300_000])
def test_any_answer_is_written_and_read_back(task, tmp_path, end):
    found = run(task, tmp_path, models(end=end), items_per_model=10, round_size=5)
    journal = [r for r in toy_journal(tmp_path) if r["type"] == "answer"]
    assert len(journal) == 20
    assert all(record["resps"][0].endswith(end) for record in journal)
    rows = samples_in(tmp_path)
    assert all(len(each) == 10 for each in rows.values())
    if end == " \ud83d":
        assert all(row["resps"][0][0].endswith(end) for each in rows.values() for row in each)
    again = run(task, None, models(end=end), resume=tmp_path, items_per_model=10, round_size=5)
    assert toy.undated(again["ranking"][quiz.TASK]) == toy.undated(found["ranking"][quiz.TASK])
    assert (tmp_path / "report.html").is_file()


def toy_journal(folder):
    return [json.loads(line) for line in (folder / "journal.jsonl").read_bytes().split(b"\n")[:-1]]


def test_a_task_name_with_a_slash(tmp_path):
    folder = quiz.make_task(tmp_path / "task", name="a/b")
    whole(run(folder, tmp_path / "out", task="a/b"), "a/b")
    assert {len(rows) for rows in samples_in(tmp_path / "out").values()} == {12}
    (path,) = (tmp_path / "out").glob("ranking_*.json")
    assert path.name.startswith("ranking_a__b-")


@pytest.mark.parametrize(
    "names", [("m" * 300, "bad"), ("Model", "model"), ("a/b", "a__b"), ("é" * 200, "..")]
)
def test_names_that_no_folder_can_have_or_only_one(task, tmp_path, names, caplog):
    found = run(task, tmp_path / "out", models(*names))
    whole(found)
    assert "not written" not in caplog.text
    folders = {path.parent.name for path in (tmp_path / "out").rglob("samples_*.jsonl")}
    assert len({each.casefold() for each in folders}) == 2
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert page.count("Question 0?") or page.count("Question"), "the page finds the samples"


def test_an_output_path_that_is_a_file_is_refused_before_anything_is_asked(task, tmp_path):
    (tmp_path / "file").write_text("mine")
    asked = len(toy.ToyLM.calls)
    with pytest.raises(UsageError, match=r"--output_path .*file is a file; expected a folder"):
        run(task, tmp_path / "file")
    assert len(toy.ToyLM.calls) == asked
    assert (tmp_path / "file").read_text() == "mine"


def test_one_model_s_broken_answers_are_its_own(tmp_path):
    """With one of three models failing on half of its answers, the others lose nothing by it."""
    folder = quiz.make_task(tmp_path / "task", scoring="strict")
    entries = [*models("one", "two"), *models("odd", end=" broken")]
    entries[2]["model_args"]["name"] = "q9"
    rules = {"items_per_model": quiz.DOCUMENTS, "round_size": quiz.DOCUMENTS}
    missing = run(folder, tmp_path / "a", entries, **rules)["ranking"][quiz.TASK]
    assert [each["doc_id"] for each in missing["excluded"]] == [3], "bad for every model asked"
    assert {each["model"]: each["items"] for each in missing["ranking"]} == dict.fromkeys(
        ("one", "two", "odd"), quiz.DOCUMENTS - 1
    )
    (said,) = [each for each in missing["warnings"] if each.startswith("odd: ")]
    assert "20 of 39 answers (51 %) are missing" in said
    notes = {frozenset((pair["a"], pair["b"])): pair.get("note", "") for pair in missing["pairs"]}
    assert notes[frozenset(("one", "two"))] == ""
    assert "odd lost 51 % of its answers" in notes[frozenset(("one", "odd"))]
    counted = run(folder, tmp_path / "b", entries, on_error="score:0", **rules)
    counted = counted["ranking"][quiz.TASK]
    by_model = {each["model"]: each for each in counted["ranking"]}
    own = [quiz.score_of("q9-0.8", n) if n % 2 and n != 3 else 0.0 for n in range(quiz.DOCUMENTS)]
    assert by_model["odd"]["score"] == pytest.approx(np.mean(own)), "as a full run would score it"
    assert not counted["excluded"]
    assert "on_error:score:0" in counted["signature"]
    no_nan(tmp_path)


@pytest.mark.parametrize("value", ["zero", "score:", "score:nan", "score:1e999", "drop"])
def test_an_error_s_worth_is_a_number(value):
    with pytest.raises(UsageError, match=r"--on_error takes missing or score:V"):
        AdaptiveConfig(on_error=value)


def test_an_error_s_worth_lies_in_the_range(task, tmp_path):
    with pytest.raises(UsageError, match=r"--on_error score:2: score lies in \[0, 1\]"):
        run(task, tmp_path, on_error="score:2")
    assert not list(tmp_path.iterdir())


def hold(folder, ready):
    from lm_eval_adaptive.run.journal import take_hold

    held = take_hold(folder)
    ready.set()
    time.sleep(60)
    held.release()


def test_a_second_process_is_refused_and_a_dead_one_holds_nothing(task, tmp_path):
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    other = context.Process(target=hold, args=(tmp_path, ready))
    other.start()
    assert ready.wait(30)
    with pytest.raises(UsageError, match="another process is running in"):
        run(task, tmp_path)
    os.kill(other.pid, 9)
    other.join()
    whole(run(task, tmp_path))
    assert not list(tmp_path.glob(".journal.lock")), "nothing is left of it"


def test_what_metrics_have_to_say_at_the_end_stands_in_the_ranking_and_is_kept(
    task, tmp_path, monkeypatch
):
    from lm_eval_adaptive.run import loop as module

    load, said = module.open_documents, [["two replies were cut"], []]

    def with_notices(*args, **kwargs):
        found = load(*args, **kwargs)
        plain = found[0].task.config.process_results

        def process_results(doc, results):
            return plain(doc, results)

        process_results.notices = lambda: said.pop(0)
        found[0].task.set_config("process_results", process_results)
        return found

    monkeypatch.setattr(module, "open_documents", with_notices)
    first = run(task, tmp_path)["ranking"][quiz.TASK]
    assert "two replies were cut" in first["warnings"]
    again = run(task, None, resume=tmp_path)["ranking"][quiz.TASK]
    assert said == []
    assert toy.undated(again) == toy.undated(first), "what was said once is said again"
