"""Banks that grow by runs: what joins them, and what must not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lm_eval_adaptive.banks.answers import Answers, Measured, read_answers
from lm_eval_adaptive.banks.grow import grow_from
from lm_eval_adaptive.banks.store import Store
from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.core.bank_info import PromptFacts
from lm_eval_adaptive.core.build import calibrate
from lm_eval_adaptive.core.growing import without_models
from lm_eval_adaptive.core.matrix import ScoreMatrix
from lm_eval_adaptive.errors import DataError, UsageError
from lm_eval_adaptive.run.config import AdaptiveConfig
from tests.support import stored, toy
from tests.support.bad_input import attempt

TWO, THREE = {"a": 0.3, "b": 0.7}, {"a": 0.3, "b": 0.7, "c": 0.5}


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("LM_EVAL_ADAPTIVE_HOME", str(tmp_path / "home"))
    return Store()


@pytest.fixture
def tasks(tmp_path):
    toy.register()
    return stored.make_task(tmp_path / "tasks")


@pytest.fixture
def mine(store, toy_bank, tmp_path):
    """A calibrated bank of eight models in the store, under the task's usual name."""
    store.add(ItemBank.load(stored.bank_for(tmp_path / "b.parquet", toy_bank)), stored.NAME)
    return ItemBank.load(store.file_of(stored.NAME))


def bank_now(store, name=stored.NAME):
    return ItemBank.load(store.file_of(name))


def journal_scores(folder, model):
    lines = [each for each in toy.journal(folder) if each["type"] == "answer"]
    return {each["doc_id"]: each["score"] for each in lines if each["model"] == model}


def row_of(bank, model):
    """A model's scores by document."""
    row = bank.scores[[each.name for each in bank.info.models].index(model)]
    return {int(doc): score for doc, score in zip(bank.doc_id, row, strict=True) if score == score}


# --- off until asked for


def test_nothing_grows_unless_asked(store, tasks, mine, tmp_path):
    found = stored.rank(tasks, tmp_path / "out", TWO)
    assert found["grown"] == []
    assert bank_now(store).sha256 == mine.sha256


def test_asked_for_once_it_is_on_for_the_store(store, tasks, mine, tmp_path):
    assert attempt(["bank", "grow", "on"]).code == 0
    stored.rank(tasks, tmp_path / "one", TWO)
    assert stored.models_of()[8:] == ["a", "b"]
    stored.rank(tasks, tmp_path / "two", {"d": 0.5, "e": 0.6}, grow=False)
    assert len(stored.models_of()) == 10
    assert attempt(["bank", "grow", "off"]).code == 0
    stored.rank(tasks, tmp_path / "three", {"d": 0.5, "e": 0.6})
    assert len(stored.models_of()) == 10


def test_the_command_line_grows_and_says_so(store, tasks, mine, tmp_path):
    words = ["run", "--adaptive", "--tasks", stored.TASK, "--include_path", tasks, "--grow"]
    words += [*toy.candidate_words(TWO), "--items_per_model", "20"]
    found = attempt([*words, "--output_path", tmp_path / "out"])
    assert found.code == 0, found
    assert f"bank {stored.NAME} of the store took in a, b; it has 10 models" in found.out
    again = attempt(["run", "--adaptive", "--grow", "--no_grow", "--tasks", stored.TASK])
    assert again.code == 2


def chosen_for_each(rng):
    """A benchmark, and what is seen of it where each model is asked what fits its ability."""
    ability, hard = rng.normal(0.0, 1.5, 14), rng.normal(0.0, 1.5, 100)
    slope = rng.uniform(0.6, 1.6, 100)
    mean = 1.0 / (1.0 + np.exp(-slope * (ability[:, None] - hard)))
    scores = np.clip(mean + rng.normal(0.0, 0.1, mean.shape), 0.0, 1.0)
    seen = np.full(scores.shape, np.nan)
    for row in range(14):
        near = np.argsort(np.abs(hard - ability[row]) + rng.uniform(0.0, 0.5, 100))[:25]
        seen[row, near] = scores[row, near]
    return scores, hard, seen


def test_levels_keep_items_right_where_documents_were_chosen_for_models():
    """The control: without levels, hard items are taken for easy ones, as strong models had them."""
    found = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        scores, hard, seen = chosen_for_each(rng)
        asked = np.isfinite(seen).any(axis=0)
        names, items = tuple(f"m{row}" for row in range(14)), tuple(f"doc{n}" for n in range(100))
        matrix = ScoreMatrix(names, items, seen, {"doc_id": np.arange(100)}).select_items(asked)
        estimated = np.clip(scores.mean(axis=1) + rng.normal(0.0, 0.03, 14), 0.0, 1.0)
        row = []
        for levels in (estimated, np.full(14, np.nan)):
            bank = Answers(Measured("t", "m", "none", 0.0, 1.0), matrix, levels).bank()
            row.append(np.sqrt(np.mean((bank.mean_score - scores[:, asked].mean(axis=0)) ** 2)))
            row.append(np.corrcoef(bank.parameters.difficulty, hard[asked])[0, 1])
        found.append(row)
    error, order, error_without, order_without = np.mean(found, axis=0)
    assert error < 0.12
    assert order > 0.88
    assert error_without > 2.0 * error
    assert order_without < order - 0.05


def test_a_file_says_it_with_a_truth_value(tmp_path):
    with pytest.raises(UsageError, match="grow must be true or false, got 'sometimes'"):
        AdaptiveConfig(grow="sometimes")


# --- from a bank


def test_a_run_s_models_join_the_bank_it_used_with_its_estimates(store, tasks, mine, tmp_path):
    """Their levels are not the means of the documents chosen for them."""
    found = stored.rank(tasks, tmp_path / "out", TWO, grow=True)
    grown = bank_now(store)
    assert grown.content_hash == mine.content_hash
    np.testing.assert_array_equal(grown.scores[:8], mine.scores)
    for name in TWO:
        assert row_of(grown, name) == pytest.approx(journal_scores(tmp_path / "out", name))
    estimates = {each["model"]: each for each in found["ranking"][stored.TASK]["ranking"]}
    for model in grown.info.models[8:]:
        own = estimates[model.name]
        assert abs(model.mean_raw - own["score"]) < own["score_se"]
    (update,) = grown.info.provenance.updates
    assert (update.bank_sha256, update.models) == (mine.sha256, ("a", "b"))


def test_a_bank_without_a_model_is_that_of_the_others():
    """Known answer: the bank that is calibrated on the others alone; the whole one is another."""
    rng = np.random.default_rng(5)
    ability, hard = rng.normal(0.0, 1.0, 10), rng.normal(0.0, 1.0, 60)
    mean = 1.0 / (1.0 + np.exp(-(ability[:, None] - hard)))
    scores = np.clip(mean + rng.normal(0.0, 0.1, mean.shape), 0.0, 1.0)
    names, items = tuple(f"m{row}" for row in range(10)), tuple(f"doc{n}" for n in range(60))
    whole, rest = (
        calibrate(
            ScoreMatrix(names[:count], items, scores[:count]),
            task="t", metric="m", score_range=(0, 1), response_model="robust-2pl",
        )
        for count in (10, 8)
    )  # fmt: skip
    reduced = without_models(whole, ["m8", "m9", "nobody"])
    assert reduced.info.models == rest.info.models
    np.testing.assert_allclose(reduced.parameters.difficulty, rest.parameters.difficulty)
    np.testing.assert_allclose(reduced.parameters.discrimination, rest.parameters.discrimination)
    assert not np.allclose(whole.parameters.difficulty, rest.parameters.difficulty)
    assert without_models(whole, ["nobody"]) is whole
    with pytest.raises(DataError, match="at least 3 models, got 2"):
        without_models(whole, names[2:])


def test_a_model_that_comes_again_replaces_itself(store, tasks, mine, tmp_path):
    stored.rank(tasks, tmp_path / "one", TWO, grow=True)
    found = stored.rank(
        tasks, tmp_path / "two", {"a": 0.6, "d": 0.5}, items_per_model=30, grow=True
    )
    assert "of which a replaced itself" in found["grown"][0]
    assert stored.models_of()[8:] == ["b", "a", "d"]
    grown = bank_now(store)
    assert row_of(grown, "a") == pytest.approx(journal_scores(tmp_path / "two", "a"))
    (own,) = [each for each in grown.info.models if each.name == "a"]
    assert own.n_scores == 30
    assert own.mean_raw > 0.5, "the level of the new answers, not of the old ones"


def test_a_run_joins_once_however_often_it_is_told_to(store, tasks, mine, tmp_path):
    stored.rank(tasks, tmp_path / "out", TWO, grow=True)
    before = bank_now(store).sha256
    found = attempt(["bank", "grow", "--from", tmp_path / "out"])
    assert found.code == 0
    assert "has these answers already" in found.out
    assert bank_now(store).sha256 == before


def test_a_bank_that_was_named_makes_one_in_the_store(store, tasks, toy_bank, tmp_path):
    path = stored.bank_for(tmp_path / "b.parquet", toy_bank)
    before = path.read_bytes()
    stored.rank(tasks, tmp_path / "out", TWO, bank=str(path), grow=True)
    assert stored.models_of()[8:] == ["a", "b"]
    assert path.read_bytes() == before, "a file of one's own is nobody's to change"


def test_a_shipped_bank_grows_in_the_store(store, tasks, toy_bank, tmp_path, monkeypatch):
    from lm_eval_adaptive.banks import at_hand, grow, of_run
    from lm_eval_adaptive.banks.shipped import ShippedBank

    path = stored.bank_for(tmp_path / "package" / "b.parquet", toy_bank, task="of_the_package")
    ships = [
        ShippedBank(
            "shipped", (stored.TASK,), "rougeL", ("none",), str(path), ItemBank.load(path).sha256,
            8, 312, "", "MIT", "by hand", "2026-01-01", "",
        )
    ]  # fmt: skip
    for module in (at_hand, grow, of_run):
        monkeypatch.setattr(module, "shipped_banks", lambda: ships)
    stored.rank(tasks, tmp_path / "out", TWO, grow=True)
    grown = bank_now(store)
    assert grown.info.task == stored.TASK
    assert [each.name for each in grown.info.models][8:] == ["a", "b"]
    # With another prompt than the task's, its models are no company for the run's.
    store.remove(stored.NAME)
    ships[0] = replace(ships[0], prompt="its models answered as JSON")
    found = stored.rank(tasks, tmp_path / "json", THREE, grow=True)
    assert stored.models_of() == ["a", "b", "c"]
    kept = read_answers(store.answers_of(stored.NAME))
    told = {each["model"]: each["score"] for each in found["ranking"][stored.TASK]["ranking"]}
    levels = np.array([told[name] for name in kept.matrix.models])
    assert np.diff(kept.levels) == pytest.approx(np.diff(levels)), "as far apart as the run said"
    assert kept.levels.mean() == pytest.approx(kept.matrix.scores.mean()), "on these documents"


# --- from nothing


def test_a_bank_is_made_from_nothing_when_there_are_three_models(store, tasks, tmp_path):
    one = stored.rank(tasks, tmp_path / "one", TWO, bank="none", grow=True)
    assert "are kept for bank records_stored_rougeL, which they do not make yet" in one["grown"][0]
    assert store.entries()[0] == ()
    assert "answers of 2 model(s) to 20 documents" in attempt(["bank", "list"]).out
    assert "has too few answers yet" in attempt(["bank", "show", stored.NAME]).said[0]
    stored.rank(tasks, tmp_path / "two", {"c": 0.5}, bank="none", grow=True, precision=0.01, items_per_model=None, max_items=25)  # fmt: skip
    assert stored.models_of() == ["a", "b", "c"]
    bank = bank_now(store)
    for name, folder in (("a", "one"), ("b", "one"), ("c", "two")):
        assert row_of(bank, name) == pytest.approx(journal_scores(tmp_path / folder, name))
    assert (bank.info.scale.lo, bank.info.scale.hi, bank.info.task_version) == (0.0, 1.0, "1.0")
    found = stored.rank(tasks, tmp_path / "three", {"d": 0.2, "e": 0.8}, items_per_model=10, grow=True)  # fmt: skip
    assert found["ranking"][stored.TASK]["bank"]["sha256"] == bank.sha256
    assert stored.models_of() == ["a", "b", "c", "d", "e"]
    levels = {each.name: each.mean_raw for each in bank_now(store).info.models}
    assert levels["d"] < levels["c"] < levels["e"]


def test_what_is_kept_for_a_bank_can_be_taken_out(store, tasks, tmp_path):
    stored.rank(tasks, tmp_path / "one", TWO, bank="none", grow=True)
    assert store.unfinished() == [stored.NAME]
    assert attempt(["bank", "rm", stored.NAME]).code == 0
    assert store.unfinished() == []


def test_further_documents_join_a_bank_that_runs_made(store, tasks, tmp_path):
    stored.rank(tasks, tmp_path / "one", THREE, bank="none", grow=True)
    assert len(bank_now(store)) == 20
    stored.rank(tasks, tmp_path / "two", {"d": 0.4, "e": 0.6}, bank="none", items_per_model=50, grow=True)  # fmt: skip
    bank = bank_now(store)
    assert (len(bank), len(bank.info.models)) == (50, 5)
    assert [each.n_scores for each in bank.info.models] == [20, 20, 20, 50, 50]
    # and a model that comes again is there once
    stored.rank(tasks, tmp_path / "three", {"a": 0.35, "f": 0.5}, bank="none", items_per_model=30, grow=True)  # fmt: skip
    assert stored.models_of() == ["b", "c", "d", "e", "a", "f"]
    assert row_of(bank_now(store), "a") == pytest.approx(journal_scores(tmp_path / "three", "a"))


def test_several_metrics_grow_a_bank_each(store, tasks, tmp_path):
    stored.rank(tasks, tmp_path / "out", THREE, bank="none", metric=("rougeL", "slot_coverage"), grow=True)  # fmt: skip
    names = [each.name for each in store.entries()[0]]
    assert names == [stored.NAME, f"{stored.TASK}_slot_coverage"]
    lines = [each for each in toy.journal(tmp_path / "out") if each["type"] == "answer"]
    own = {e["doc_id"]: e["scores"]["slot_coverage"]["score"] for e in lines if e["model"] == "a"}
    assert row_of(bank_now(store, names[1]), "a") == pytest.approx(own)


# --- what must not join


def edit_ranking(folder, **changes):
    (path,) = Path(folder).glob("ranking_*.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_nothing_grows_where_the_alarm_rang(store, tasks, mine, tmp_path):
    stored.rank(tasks, tmp_path / "out", TWO)
    edit_ranking(tmp_path / "out", doubts=["alarm"])
    (line,) = grow_from(tmp_path / "out", store)
    assert "do not bear the bank out" in line
    assert bank_now(store).sha256 == mine.sha256


def test_the_ranking_says_that_the_alarm_rang(store, tasks, mine, tmp_path, monkeypatch):
    from lm_eval_adaptive.core.agreement import Agreement

    quiet = stored.rank(tasks, tmp_path / "quiet", TWO)["ranking"][stored.TASK]
    assert "doubts" not in quiet
    monkeypatch.setattr(Agreement, "alarm", True)
    loud = stored.rank(tasks, tmp_path / "loud", TWO, grow=True)
    assert loud["ranking"][stored.TASK]["doubts"] == ["alarm"]
    assert "do not bear the bank out" in loud["grown"][0]
    assert bank_now(store).sha256 == mine.sha256


def test_answers_that_failed_do_not_join(store, tasks, mine, tmp_path):
    """Not even where the user has them count as 0."""
    folder = tmp_path / "out"
    stored.rank(tasks, folder, TWO, on_error="score:0")
    lines = (folder / "journal.jsonl").read_text().splitlines()
    spoilt = 0
    for at, line in enumerate(lines):
        record = json.loads(line)
        if record["type"] == "answer" and record["model"] == "a" and record["doc_id"] % 2:
            record.update(raw_score=0.0, score=0.0, problem="cannot be parsed")
            lines[at] = json.dumps(record)
            spoilt += 1
    assert spoilt > 3
    (folder / "journal.jsonl").write_text("\n".join(lines) + "\n")
    grow_from(folder, store)
    grown = bank_now(store)
    assert all(doc % 2 == 0 for doc in row_of(grown, "a"))
    assert len(row_of(grown, "a")) == 20 - spoilt
    assert len(row_of(grown, "b")) == 20


def test_a_model_that_was_set_aside_does_not_join(store, tasks, mine, tmp_path):
    models = toy.models(THREE)
    models[1]["model_args"]["fail_after"] = 12
    from lm_eval_adaptive.api import AdaptiveConfig, simple_evaluate

    found = simple_evaluate(
        models, [stored.TASK], AdaptiveConfig(items_per_model=20, grow=True),
        include_path=str(tasks), output_path=str(tmp_path / "out"),
    )  # fmt: skip
    assert stored.models_of()[8:] == ["a", "c"]
    assert any("b was set aside" in line for line in found["grown"])


def test_models_with_another_prompt_get_a_bank_of_their_own(store, tasks, mine, tmp_path):
    found = stored.rank(tasks, tmp_path / "out", THREE, num_fewshot=2, grow=True)
    assert "their prompts are not those of bank records_stored_rougeL" in found["grown"][0]
    assert bank_now(store).sha256 == mine.sha256
    (own,) = [each.name for each in store.entries()[0] if each.name != stored.NAME]
    assert own.startswith(f"{stored.NAME}_")
    bank = bank_now(store, own)
    assert bank.info.num_fewshot == 2
    assert [each.name for each in bank.info.models] == ["a", "b", "c"]
    # the next run with these prompts joins it
    stored.rank(tasks, tmp_path / "again", {"d": 0.5, "e": 0.6}, num_fewshot=2, grow=True, bank="none")  # fmt: skip
    assert bank_now(store).sha256 == mine.sha256
    assert stored.models_of(own) == ["a", "b", "c", "d", "e"]


def test_prompts_that_only_their_hashes_tell_apart_are_others(store, tasks, mine, tmp_path):
    hashes = tuple("0" * 64 for _ in mine.prompt_hash)
    store.add(replace(mine, prompt_hash=hashes), stored.NAME, overwrite=True)
    before = bank_now(store).sha256
    found = stored.rank(tasks, tmp_path / "out", THREE, grow=True)
    assert "their prompts are not those" in found["grown"][0]
    assert bank_now(store).sha256 == before
    # A bank that does not tell its prompts is no ground to keep anybody out.
    silent = replace(mine.info, prompts=PromptFacts(), num_fewshot=None)
    silent = replace(mine, prompt_hash=("",) * len(mine), info=silent)
    store.add(silent, stored.NAME, overwrite=True)
    stored.rank(tasks, tmp_path / "silent", THREE, grow=True)
    assert stored.models_of()[8:] == ["a", "b", "c"]


def test_a_run_on_other_documents_does_not_join(store, tasks, mine, tmp_path):
    stored.rank(tasks, tmp_path / "out", TWO, bank="none")
    names = tuple(f"x{key[1:]}" for key in mine.content_hash)
    store.add(replace(mine, content_hash=names, sight_hash=()), stored.NAME, overwrite=True)
    (line,) = grow_from(tmp_path / "out", store)
    assert "does not grow" in line
