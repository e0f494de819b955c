"""Several metrics at once: one set of answers, a ranking by each."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from lm_eval_adaptive import AdaptiveConfig, simple_evaluate
from lm_eval_adaptive.banks.calibrate import calibrate_from
from lm_eval_adaptive.banks.options import CalibrateOptions
from lm_eval_adaptive.cli.main import main
from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.errors import BankError, UsageError
from tests.support import toy

METRICS = ["rougeL", "slot_coverage"]


@pytest.fixture(scope="module")
def banks(toy_logs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("banks")
    found = {}
    for metric in METRICS:
        bank = calibrate_from(
            CalibrateOptions(
                task=toy.TASK, metric=metric, samples=(str(toy_logs),), score_range=(0, 1)
            )
        )
        path = bank.save(folder / f"{metric}.bank.parquet")
        found[f"{toy.TASK}:{metric}"] = str(path)
    return found


def twin(folder, adaptive):
    """The shipped task under another name, with metadata.adaptive of its own."""
    records = toy.ROOT / "tasks" / "records" / "records_to_text.yaml"
    config = {"include": str(records), "task": "twin"}
    config["metadata"] = {"version": 1.0, "adaptive": adaptive}
    path = folder / "twin.yaml"
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


def run(banks, folder, resume=None, **more):
    rules = {"bank": banks, "metric": METRICS, "max_items": 40, **more}
    return simple_evaluate(
        toy.models(),
        [toy.TASK],
        AdaptiveConfig(**rules),
        output_path=str(folder),
        resume=resume,
    )


def test_one_set_of_answers_gives_a_ranking_per_metric(banks, tmp_path):
    found = run(banks, tmp_path)
    ranking = found["ranking"][toy.TASK]
    assert list(ranking["rankings"]) == METRICS
    asked = Counter(toy.ToyLM.calls)
    assert max(asked.values()) == 1, "no document is asked twice of a model"
    for metric in METRICS:
        mine = ranking["rankings"][metric]
        assert mine["metric"] == metric
        assert mine["bank"]["path"] == f"{metric}.bank.parquet"
        assert [entry["model"] for entry in mine["ranking"]] == ["strong", "middle", "weak"]
        assert {(step["model"], step["doc_id"]) for step in mine["trace"]} == set(asked)
        assert mine["items_total"] == len(asked)
    for key, value in ranking["rankings"]["rougeL"].items():
        assert ranking[key] == value, "the first metric's stands on top as well"
    # Each trace holds its own metric's values.
    for name in toy.RANKED:
        (path,) = (tmp_path / name).glob("samples_*.jsonl")
        rows = {row["doc_id"]: row for row in map(json.loads, path.read_text().splitlines())}
        for metric in METRICS:
            for step in ranking["rankings"][metric]["trace"]:
                if step["model"] == name:
                    assert step["raw_score"] == rows[step["doc_id"]][metric]
        table = found["results"][toy.TASK][name]["results"][toy.TASK]
        for metric in METRICS:
            (entry,) = (
                each
                for each in ranking["rankings"][metric]["ranking"]
                if each["model"] == name
            )  # fmt: skip
            assert table[f"{metric},adaptive"] == entry["score"]
            assert table[f"{metric}_stderr,adaptive"] == entry["score_se"]


def test_the_metric_farthest_from_decided_chooses(banks, tmp_path, monkeypatch):
    from lm_eval_adaptive.run.contest import Contest

    plain = Contest.close_round
    before = [0, 0]
    chose = Counter()

    def watched(contest, *rest):
        doubts = [view.doubt() for view in contest.views]
        (chooser,) = (k for k in range(2) if contest.views[k].chosen > before[k])
        before[chooser] += 1
        chose[METRICS[chooser]] += 1
        assert doubts[chooser] == max(doubts)
        return plain(contest, *rest)

    monkeypatch.setattr(Contest, "close_round", watched)
    ranking = run(banks, tmp_path, round_size=2)["ranking"][toy.TASK]
    assert set(chose) == set(METRICS)
    assert sum(chose.values()) == max(step["round"] for step in ranking["trace"])


def test_it_ends_when_every_metric_is_settled(banks, tmp_path):
    names = {"low": 0.35, "high": 0.75}
    rules = AdaptiveConfig(bank=banks, metric=METRICS)
    found = simple_evaluate(toy.models(names), [toy.TASK], rules, output_path=str(tmp_path / "two"))
    ranking = found["ranking"][toy.TASK]
    assert [each["stop_reason"] for each in ranking["rankings"].values()] == ["decided"] * 2
    for each in ranking["rankings"].values():
        assert [pair["verdict"] for pair in each["pairs"]] in (["a"], ["b"])
    own = f"{toy.TASK}:slot_coverage"
    one = run({own: banks[own]}, tmp_path / "one", metric="slot_coverage", items_per_model=10)
    assert one["ranking"][toy.TASK]["metric"] == "slot_coverage"
    assert "rankings" not in one["ranking"][toy.TASK]


def test_resumed_at_any_round_it_is_the_same_run(banks, tmp_path):
    whole = run(banks, tmp_path / "whole")["ranking"][toy.TASK]
    lines = (tmp_path / "whole" / "journal.jsonl").read_text().splitlines(keepends=True)
    answers = [
        k for k, line in enumerate(lines) if '"type": "answer"' in line or '"answer"' in line
    ]
    for place in (answers[1], answers[len(answers) // 2], answers[-1]):
        folder = tmp_path / f"cut{place}"
        folder.mkdir()
        (folder / "journal.jsonl").write_text("".join(lines[:place]))
        again = run(banks, folder, resume=folder)["ranking"][toy.TASK]
        assert toy.undated(again) == toy.undated(whole)
        records = toy.journal(folder)
        told = Counter((r["model"], r["doc_id"]) for r in records if r["type"] == "answer")
        assert max(told.values()) == 1


def test_documents_outside_one_bank_are_asked_for_none(banks, tmp_path):
    import pyarrow.parquet as pq

    path = banks[f"{toy.TASK}:slot_coverage"]
    table = pq.read_table(path)
    hashes = table["content_hash"].to_pylist()
    changed = [f"x{each}" if row < 10 else each for row, each in enumerate(hashes)]
    place = table.schema.get_field_index("content_hash")
    pq.write_table(table.set_column(place, "content_hash", [changed]), tmp_path / "less.parquet")
    lacking = {int(each) for each in table["doc_id"].to_pylist()[:10]}
    named = {**banks, f"{toy.TASK}:slot_coverage": str(tmp_path / "less.parquet")}
    ranking = run(named, tmp_path / "out", items_per_model=12)["ranking"][toy.TASK]
    assert not lacking & {step["doc_id"] for step in ranking["trace"]}
    assert any("10 of the bank's 312 items are left out" in each for each in ranking["warnings"])


def test_from_the_command_line_and_the_task_s_own_banks(banks, tmp_path, capsys):
    folder = tmp_path / "tasks"
    folder.mkdir()
    own = {}
    for metric in METRICS:
        bank = ItemBank.load(banks[f"{toy.TASK}:{metric}"])
        path = folder / f"{metric}.parquet"
        own[metric] = replace(bank, info=replace(bank.info, task="twin")).save(path).name
    twin(folder, {"metric": "rougeL", "banks": own})
    words = ["run", "--adaptive", "--tasks", "twin", "--include_path", folder]
    words += ["--metric", "rougeL", "--metric", "slot_coverage", *toy.candidate_words()]
    words += ["--items_per_model", "10", "--output_path", tmp_path / "out"]
    assert main([str(word) for word in words]) == 0
    ranking = toy.ranking_of(tmp_path / "out", "twin")
    assert list(ranking["rankings"]) == METRICS
    shown = capsys.readouterr().out
    assert "twin: rougeL" in shown
    assert "twin: slot_coverage" in shown


def test_without_a_bank(tmp_path):
    """Both metrics go through the documents in the same order."""
    task = twin(tmp_path, {"metric": "rougeL", "ranges": {metric: [0, 1] for metric in METRICS}})
    found = simple_evaluate(
        toy.models({"low": 0.3, "high": 0.8}),
        ["twin"],
        AdaptiveConfig(bank="none", metric=METRICS),
        include_path=str(task.parent),
        output_path=str(tmp_path / "out"),
    )
    ranking = found["ranking"]["twin"]
    asked = [[step["doc_id"] for step in each["trace"]] for each in ranking["rankings"].values()]
    assert asked[0] == asked[1]
    assert len(asked[0]) < 2 * 312
    for each in ranking["rankings"].values():
        assert [entry["model"] for entry in each["ranking"]] == ["high", "low"]
        assert each["stop_reason"] == "decided"


def test_mistakes_are_one_line(banks, tmp_path):
    with pytest.raises(UsageError, match="--metric names one metric twice"):
        run(banks, tmp_path, metric=["rougeL", "rougeL"])
    with pytest.raises(UsageError, match="--equivalence is in the units of one metric"):
        run(banks, tmp_path, equivalence=0.1)
    with pytest.raises(UsageError, match="--range is in the units of one metric"):
        run(banks, tmp_path, range=(0, 1))
    only = {toy.TASK: banks[f"{toy.TASK}:rougeL"]}
    with pytest.raises(BankError, match=r"--bank records_to_text:slot_coverage=PATH"):
        run(only, tmp_path)
