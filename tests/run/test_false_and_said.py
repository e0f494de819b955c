"""Nothing false is said: banks of a part, ranges, budgets, options without effect, sure verdicts."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from lm_eval_adaptive.api import simple_evaluate
from lm_eval_adaptive.cli.main import main
from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.core.money import add_up
from lm_eval_adaptive.core.paired import PairedPosterior, spread_order
from lm_eval_adaptive.errors import BankError, UsageError
from lm_eval_adaptive.run.config import AdaptiveConfig
from lm_eval_adaptive.run.idle import banks_by_task
from tests.support import toy


def some_items(path, target, count, **changes):
    """A bank of the first items of another."""
    bank = ItemBank.load(path)
    at = np.arange(len(bank)) < count
    columns = {
        name: getattr(bank, name)[at]
        for name in (
            "doc_id", "kept", "n_scores", "mean_score", "item_rest_correlation", "input_tokens",
            "output_tokens",
        )
    }  # fmt: skip
    texts = {
        name: getattr(bank, name)[:count]
        for name in ("content_hash", "doc_hash", "prompt_hash", "reason")
    }
    part = replace(
        bank, parameters=bank.parameters.take(at), scores=bank.scores[:, at], **columns, **texts
    )
    return replace(part, **changes).save(target)


def strict(path):
    """A file's JSON, in which NaN is no number."""
    return json.loads(path.read_text(), parse_constant=lambda word: pytest.fail(f"{path}: {word}"))


def words(bank, *more):
    return [
        str(each)
        for each in (
            "run", "--adaptive", "--tasks", toy.TASK, "--bank", bank, *toy.candidate_words(), *more
        )
    ]  # fmt: skip


def test_a_bank_of_a_part_says_what_its_scores_are_of(toy_bank, tmp_path, capsys):
    part = some_items(toy_bank, tmp_path / "part.bank.parquet", 40)
    out = tmp_path / "out"
    assert main(words(part, "--items_per_model", 12, "--output_path", out)) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "of the 40 documents in the bank" in printed
    ranking = toy.ranking_of(out)
    assert ranking["score_of"] == "the 40 documents in the bank"
    assert "not of all 312 of the task" in ranking["warnings"][0]
    page = (out / "report.html").read_text()
    assert "scores are of the 40 documents in the bank alone" in page
    assert "on the whole benchmark (" not in page


def test_a_bank_of_the_whole_task_needs_no_such_word(toy_bank, tmp_path):
    out = tmp_path / "out"
    assert main(words(toy_bank, "--items_per_model", 3, "--output_path", out)) == 0
    assert "score_of" not in toy.ranking_of(out)


@pytest.mark.parametrize(
    ("given", "tasks", "metrics", "found"),
    [
        (["lr=0.1/my.parquet"], ["mine"], (), "lr=0.1/my.parquet"),
        (["mine=lr=0.1/my.parquet"], ["mine"], (), {"mine": "lr=0.1/my.parquet"}),
        (["a:b=x", "c=y"], ["a:b", "c"], (), {"a:b": "x", "c": "y"}),
        (["mine:f1=x"], ["mine"], ("f1,none",), {"mine:f1": "x"}),
    ],
)
def test_only_a_task_of_the_run_stands_before_the_sign(
    given, tasks, metrics, found, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lr=0.1").mkdir()
    (tmp_path / "lr=0.1" / "my.parquet").touch()
    assert banks_by_task(given, tasks, metrics) == found


def test_a_bank_that_nothing_uses_is_refused():
    with pytest.raises(UsageError, match="'other' is no task of this run"):
        banks_by_task({"other": "x.parquet"}, ["mine"], ())


def test_resuming_with_other_options_names_them_all(toy_bank, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(words(toy_bank, "--items_per_model", 3, "--output_path", out)) == 0
    before = (out / "journal.jsonl").read_bytes()
    capsys.readouterr()
    resume = ["run", "--adaptive", "--resume", str(out)]
    assert main([*resume, "--items_per_model", "4", "--confidence", "0.9"]) == 2
    said = capsys.readouterr().err
    assert "--items_per_model (3 when it began, 4 now)" in said
    assert "--confidence (not given when it began, 0.9 now)" in said
    assert (out / "journal.jsonl").read_bytes() == before
    assert main([*resume, "--items_per_model", "3"]) == 0


def test_a_price_by_tokens_never_passes_the_budget(toy_bank, tmp_path):
    """Answers are far longer than the bank's: the worst case is held back until they are known."""
    bank = ItemBank.load(toy_bank)
    n = len(bank)
    short = replace(bank, input_tokens=np.full(n, 10.0), output_tokens=np.full(n, 1.0))
    path = short.save(tmp_path / "short.bank.parquet")
    models = [{**each, "cost": {"input": 1.0, "output": 1000.0}} for each in toy.models()]
    rules = AdaptiveConfig(bank=path, budget=0.9, confidence=1 - 1e-9, futility=0.0)
    found = simple_evaluate(models, [toy.TASK], rules, output_path=str(tmp_path / "out"))
    ranking = found["ranking"][toy.TASK]
    assert ranking["stop_reason"] == "budget"
    assert 0.4 < ranking["cost_total"] <= 0.9
    spent = [line["cost"] for line in toy.journal(tmp_path / "out") if line["type"] == "answer"]
    assert math.isclose(sum(spent), ranking["cost_total"], rel_tol=1e-12)


def two_tasks(toy_bank, tmp_path):
    records = toy.ROOT / "tasks" / "records" / "records_to_text.yaml"
    path = tmp_path / "twin.yaml"
    path.write_text(
        f"include: {records}\ntask: twin\nmetadata: {{version: 1.0}}\n", encoding="utf-8"
    )
    bank = ItemBank.load(toy_bank)
    twin = replace(bank, info=replace(bank.info, task="twin")).save(tmp_path / "twin.parquet")
    return [toy.TASK, str(path)], {toy.TASK: toy_bank, "twin": twin}


def test_a_budget_is_for_all_tasks_together(toy_bank, tmp_path):
    tasks, banks = two_tasks(toy_bank, tmp_path)
    models = toy.models({"one": 0.5, "two": 0.52})
    rules = {"bank": banks, "confidence": 1 - 1e-9, "futility": 0.0}
    out = tmp_path / "out"
    found = simple_evaluate(
        models, tasks, AdaptiveConfig(budget=81.0, **rules), output_path=str(out)
    )
    spent = [each["cost_total"] for each in found["ranking"].values()]
    assert [each["stop_reason"] for each in found["ranking"].values()] == ["budget"] * 2
    assert 78.0 < sum(spent) <= 81.0
    assert min(spent) > 35.0, "the first task leaves the second its share"
    again = simple_evaluate(models, tasks, AdaptiveConfig(budget=81.0, **rules), resume=out)
    assert [each["cost_total"] for each in again["ranking"].values()] == spent
    with pytest.raises(UsageError, match="--budget 30 is for all 2 tasks together"):
        simple_evaluate(
            models, tasks, AdaptiveConfig(budget=30.0, **rules), output_path=str(tmp_path / "few")
        )


def test_cents_add_up_as_on_paper():
    assert add_up([0.1] * 3) == 0.3
    assert add_up([0.07] * 100) == 7.0
    assert sum([0.1] * 3) != 0.3


def test_a_bank_of_impossible_difficulties_is_refused_by_check_and_run(toy_bank, tmp_path, capsys):
    bank = ItemBank.load(toy_bank)
    far = replace(bank, parameters=replace(bank.parameters, difficulty=np.full(len(bank), 1e6)))
    path = far.save(tmp_path / "far.bank.parquet")
    assert main(["bank", "check", str(path), "--tasks", toy.TASK]) == 2
    assert "difficulty of item 0" in capsys.readouterr().err
    assert main(words(path, "--output_path", tmp_path / "out")) == 2
    assert "difficulty of item 0" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kept": False}, "none of its 40 items may be asked"),
        ({"doc_id": 7}, "doc_id 7 twice"),
        ({"n_scores": 1}, "it was edited"),
        ({"mean_score": 0.123}, "it was edited"),
        ({"scores": np.inf}, "expected one from 0 to 1"),
        ({"scores": 1.5}, "expected one from 0 to 1"),
        ({"input_tokens": -1.0}, "a count of tokens"),
    ],
)
def test_a_bank_is_refused_by_what_is_wrong_with_it(toy_bank, tmp_path, changes, said):
    (name, value), = changes.items()  # fmt: skip
    bank = ItemBank.load(some_items(toy_bank, tmp_path / "part.bank.parquet", 40))
    wrong = replace(bank, **{name: np.full_like(getattr(bank, name), value)})
    path = wrong.save(tmp_path / "wrong.bank.parquet")
    with pytest.raises(BankError, match=said):
        ItemBank.load(path)


def narrow(toy_bank, tmp_path):
    """A bank that says scores go up to a tenth of what they do."""
    bank = ItemBank.load(toy_bank)
    scale = replace(bank.info.scale, hi=bank.info.scale.hi / 10)
    return replace(bank, info=replace(bank.info, scale=scale)).save(tmp_path / "narrow.parquet")


def test_scores_outside_the_range_stop_the_run_and_clip_goes_on(toy_bank, tmp_path, capsys):
    out = tmp_path / "out"
    path = narrow(toy_bank, tmp_path)
    assert main(words(path, "--output_path", out)) == 2
    (said,) = [x for x in capsys.readouterr().err.splitlines() if x.startswith("lm-eval-adaptive:")]
    assert "scores of rougeL lie outside its range [0, 0.1]" in said
    assert f"--resume {out} --clip" in said
    assert not list(out.glob("ranking_*"))
    answers = [line for line in toy.journal(out) if line["type"] == "answer"]
    assert len(answers) < 3 * 312 / 2
    assert main(["run", "--adaptive", "--resume", str(out)]) == 2
    assert main(["run", "--adaptive", "--resume", str(out), "--clip"]) == 0
    assert any("were clipped" in each for each in toy.ranking_of(out)["warnings"])


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("n", [1, 2, 8, 40])
def test_scores_that_are_all_the_same_have_an_error_and_decide_nothing(value, n):
    inference = PairedPosterior(spread_order(None, n, np.random.default_rng(0)))
    for count in {1, max(n // 2, 1), n}:
        responses = np.full((2, n), np.nan)
        responses[:, inference.order.items[:count]] = value
        found = inference.estimate(responses)
        assert (found.score_se > 0.0).all()
        assert (found.score_half_interval > 0.0).all()
        assert (found.level[0] - found.level[1]) == 0.0


def test_one_document_decides_nothing():
    inference = PairedPosterior(spread_order(None, 1, np.random.default_rng(0)))
    found = inference.estimate(np.array([[1.0], [0.0]]))
    assert found.pair_var is not None
    gap = found.level[0] - found.level[1]
    assert gap / np.sqrt(found.pair_var[0, 1]) < 1.0


def test_no_file_of_a_run_holds_nan(toy_bank, tmp_path):
    out = tmp_path / "out"
    more = ("--items_per_model", 3, "--output_path", out)
    assert main(words(toy_bank, *more)) == 0
    files = [*out.rglob("*.json"), *out.rglob("*.jsonl")]
    assert len(files) >= 5
    for path in files:
        if path.suffix == ".json":
            strict(path)
        for line in path.read_text().splitlines() if path.suffix == ".jsonl" else ():
            json.loads(line, parse_constant=pytest.fail)
