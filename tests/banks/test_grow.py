"""`--grow`: after a run its models enter the store's bank, and nothing enters that should not."""

from __future__ import annotations

import json
import multiprocessing
import shutil
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from lm_eval_adaptive.api import simple_evaluate
from lm_eval_adaptive.banks.grow import grow_from, joined
from lm_eval_adaptive.banks.store import HOME, Store
from lm_eval_adaptive.cli.main import main
from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.core.growing import extend
from lm_eval_adaptive.core.matrix import ScoreMatrix
from lm_eval_adaptive.errors import UsageError
from lm_eval_adaptive.records.ranking import read_ranking, write_document
from lm_eval_adaptive.run.config import AdaptiveConfig
from tests.core.helpers import FactorBenchmark, matrix_of
from tests.support import toy


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv(HOME, str(tmp_path / "home"))
    return Store()


@pytest.fixture(scope="module", autouse=True)
def toys():
    toy.register()


def rank(names, output, bank, **options):
    return simple_evaluate(
        toy.models(names),
        [toy.TASK],
        AdaptiveConfig(bank=bank, items_per_model=12, **options),
        output_path=str(output),
    )


def held(store):
    entries, _ = store.entries()
    return {each.name: ItemBank.load(store.path(each)) for each in entries}


def test_a_bank_begins_from_nothing_and_grows(store, tmp_path):
    cold = {"bank": "none", "metric": "rougeL", "grow": True}
    first = rank({"a": 0.3, "b": 0.6}, tmp_path / "1", **cold)
    assert (
        "2 model(s) of records_to_text by rougeL wait in the store for 1 more" in first["grown"][0]
    )
    assert held(store) == {}
    second = rank({"c": 0.5, "d": 0.8}, tmp_path / "2", **cold)
    assert "was made of 4 models' answers" in second["grown"][0]
    ((name, bank),) = held(store).items()
    assert name == "records_to_text_rougeL"
    assert sorted(model.name for model in bank.info.models) == ["a", "b", "c", "d"]
    # What the bank holds is what the models were scored, document by document.
    for folder in ("1", "2"):
        ranking = read_ranking(next((tmp_path / folder).glob("ranking_*.json")))
        for step in ranking.trace:
            row = [model.name for model in bank.info.models].index(step.model)
            column = bank.doc_id.tolist().index(step.doc_id)
            assert bank.scores[row, column] == pytest.approx(step.score, abs=1e-6)
    # A model that comes again takes the place of what there was of it; others come in.
    third = rank({"a": 0.3, "e": 0.9}, tmp_path / "3", **cold)
    assert "grew by 2 model(s)" in third["grown"][0]
    bank = held(store)[name]
    assert sorted(model.name for model in bank.info.models) == ["a", "b", "c", "d", "e"]
    assert any("1 model(s) came again" in line for line in bank.info.notices)
    assert len(store.entries()[0]) == 1
    # The same run once more changes no score.
    before = bank.scores
    grow_from(tmp_path / "3")
    after = held(store)[name]
    assert sorted(map(tuple, np.nan_to_num(after.scores, nan=-1.0))) == sorted(
        map(tuple, np.nan_to_num(before, nan=-1.0))
    )


def test_off_until_asked_for_then_on_for_the_store(store, toy_bank, tmp_path, capsys):
    assert rank({"a": 0.3, "b": 0.6}, tmp_path / "1", toy_bank)["grown"] == []
    assert not store.folder.exists()
    assert main(["bank", "grow", "on"]) == 0
    store.add(ItemBank.load(toy_bank), "mine")
    grown = rank({"a": 0.3, "b": 0.6}, tmp_path / "2", "mine")["grown"]
    assert "bank mine of the store grew by 2 model(s)" in grown[0]
    assert rank({"z": 0.4, "y": 0.6}, tmp_path / "3", "mine", grow=False)["grown"] == []
    capsys.readouterr()


def test_nothing_grows_where_the_alarm_rang_or_a_model_failed(store, toy_bank, tmp_path):
    store.add(ItemBank.load(toy_bank), "mine")
    models = toy.models({"a": 0.3, "b": 0.6, "broken": 0.5})
    models[2]["model_args"]["fail_after"] = 3
    rank_of = simple_evaluate(
        models,
        [toy.TASK],
        AdaptiveConfig(bank="mine", items_per_model=12),
        output_path=str(tmp_path / "run"),
    )
    assert rank_of["ranking"][toy.TASK]["set_aside"]
    path = next((tmp_path / "run").glob("ranking_*.json"))
    document = read_ranking(path)
    write_document(path, msgspec.structs.replace(document, doubts=("alarm",)))
    (line,) = grow_from(tmp_path / "run")
    assert "nothing grew" in line
    assert "alarm rang" in line
    assert len(held(store)["mine"].info.models) == 8
    write_document(path, document)
    (line,) = grow_from(tmp_path / "run")
    assert "grew by 2 model(s)" in line
    assert [m.name for m in held(store)["mine"].info.models][8:] == ["a", "b"]


def test_another_prompt_is_kept_as_a_bank_of_its_own(store, toy_bank, tmp_path):
    bank = ItemBank.load(toy_bank)
    store.add(replace(bank, info=replace(bank.info, num_fewshot=1)), "mine")
    other = simple_evaluate(
        toy.models({"a": 0.3, "b": 0.6, "c": 0.8}),
        [toy.TASK],
        AdaptiveConfig(bank="mine", items_per_model=12, grow=True),
        output_path=str(tmp_path / "run"),
        system_instruction="Answer in verse.",
    )
    assert "was made of 3 models' answers" in other["grown"][0]
    banks = held(store)
    assert len(banks["mine"].info.models) == 8
    (name,) = set(banks) - {"mine"}
    assert [model.name for model in banks[name].info.models] == ["a", "b", "c"]


def _grow(folder, home):
    grow_from(folder, Store(home))


def test_two_runs_that_grow_one_bank_at_once_lose_nothing(store, toy_bank, tmp_path):
    store.add(ItemBank.load(toy_bank), "mine")
    names = [{"a": 0.3, "b": 0.6}, {"c": 0.4, "d": 0.7}]
    for number, models in enumerate(names):
        rank(models, tmp_path / str(number), "mine")
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=_grow, args=(tmp_path / str(number), store.folder))
        for number in range(2)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0
    assert {m.name for m in held(store)["mine"].info.models} >= {"a", "b", "c", "d"}


def test_a_store_that_cannot_be_used_costs_no_run_its_ranking(toy_bank, tmp_path, monkeypatch):
    (tmp_path / "home").write_text("")
    monkeypatch.setenv(HOME, str(tmp_path / "home"))
    found = rank({"a": 0.3, "b": 0.6}, tmp_path / "run", toy_bank, grow=True)
    assert found["ranking"][toy.TASK]["ranking"]
    (line,) = found["grown"]
    assert "nothing grew" in line
    assert f"lm-eval-adaptive bank grow {tmp_path / 'run'}" in line


def test_a_resumed_run_takes_the_bank_it_began_with(store, toy_bank, tmp_path, capsys):
    task = tmp_path / "plain.yaml"
    own = toy.ROOT / "tasks" / "records" / "records_to_text.yaml"
    task.write_text(f"include: {own}\ntask: records_to_text\nmetadata: {{version: 1.0}}\n")
    entry = store.add(ItemBank.load(toy_bank), "mine")
    words = ["run", "--adaptive", "--tasks", str(task), "--items_per_model", "12"]
    words += ["--output_path", str(tmp_path / "run"), *toy.candidate_words()]
    done = toy.command(*words)
    assert "no bank was named: took mine of the store (rougeL, 8 models" in done.stdout
    journal = tmp_path / "run" / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(lines[: len(lines) // 2]))
    rank({"a": 0.3, "b": 0.6}, tmp_path / "other", "mine", grow=True)
    assert held(store)["mine"].sha256 != entry.sha256
    toy.command("run", "--adaptive", "--resume", tmp_path / "run")
    again = read_ranking(max((tmp_path / "run").glob("ranking_*.json")))
    assert again.bank.sha256 == entry.sha256
    # Nowhere any more: one line, and what to do.
    shutil.rmtree(store.former)
    journal.write_text("".join(lines[: len(lines) // 2]))
    gone = toy.command("run", "--adaptive", "--resume", tmp_path / "run", check=False)
    assert gone.returncode == 2
    assert "is not in the store any more; name its file with --bank" in gone.stderr


def test_a_folder_without_a_ranking_is_told(store, tmp_path):
    with pytest.raises(UsageError, match="no ranking in"):
        grow_from(tmp_path)


# --- how a bank takes models again, and documents it did not have


def test_items_that_join_are_as_if_they_had_always_been_there():
    rng = np.random.default_rng(0)
    benchmark = FactorBenchmark(rng, n=80)
    scores = benchmark.draw(rng.normal(size=14), rng).astype(np.float32).astype(float)
    whole = matrix_of(scores)
    from lm_eval_adaptive.core.build import calibrate

    options = {
        "task": "t",
        "metric": "m",
        "score_range": (0.0, 1.0),
        "response_model": "robust-2pl",
    }
    first = calibrate(matrix_of(scores[:8, :60]), **options)
    grown = extend(first, whole.select_models(whole.models[8:]), widen=True)
    assert grown.content_hash == whole.items
    np.testing.assert_array_equal(grown.scores[8:], scores[8:])
    assert np.isnan(grown.scores[:8, 60:]).all()
    # Difficulties of the items that joined are those of a bank of the same six models' answers.
    at_once = calibrate(
        ScoreMatrix(whole.models, whole.items, np.where(np.isnan(grown.scores), np.nan, scores)),
        **options,
    )
    joined_items = slice(60, 80)
    np.testing.assert_allclose(
        grown.parameters.difficulty[joined_items],
        at_once.parameters.difficulty[joined_items],
        atol=0.05,
    )
    truth = -benchmark.height / benchmark.slope
    rank_of = np.corrcoef(
        np.argsort(np.argsort(grown.parameters.difficulty[joined_items])),
        np.argsort(np.argsort(truth[joined_items])),
    )[0, 1]
    assert rank_of > 0.7
    with pytest.raises(Exception, match="not in bank"):
        extend(first, whole.select_models(whole.models[8:]))


def test_matrices_join_by_items_and_models():
    one = ScoreMatrix(("a", "b"), ("x", "y"), np.array([[0.1, 0.2], [0.3, 0.4]]),
                      {"doc_id": np.array([0, 1])})  # fmt: skip
    two = ScoreMatrix(("b", "c"), ("y", "z"), np.array([[0.5, 0.6], [0.7, 0.8]]),
                      {"doc_id": np.array([1, 2])})  # fmt: skip
    both = joined(one, two)
    assert both.models == ("a", "b", "c")
    assert both.items == ("y", "z", "x")
    np.testing.assert_array_equal(
        both.scores, [[0.2, np.nan, 0.1], [0.5, 0.6, np.nan], [0.7, 0.8, np.nan]]
    )
    assert both.item_attributes["doc_id"].tolist() == [1, 2, 0]
    assert json.dumps(joined(None, one).scores.tolist()) == json.dumps(one.scores.tolist())
