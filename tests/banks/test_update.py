"""`calibrate --update`: a bank grows by finished runs, adaptive ones included."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, logit

from lm_eval_adaptive.api import simple_evaluate
from lm_eval_adaptive.banks.calibrate import calibrate_from
from lm_eval_adaptive.banks.options import CalibrateOptions
from lm_eval_adaptive.cli.main import main
from lm_eval_adaptive.core import growing
from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.core.build import calibrate
from lm_eval_adaptive.core.growing import extend
from lm_eval_adaptive.core.matrix import ScoreMatrix
from lm_eval_adaptive.core.procedure import Procedure
from lm_eval_adaptive.core.rules import ProcedureConfig
from lm_eval_adaptive.errors import BankError, DataError, UsageError
from lm_eval_adaptive.run.config import AdaptiveConfig
from tests.support import toy

# --- from runs of the harness


@pytest.fixture(scope="module")
def ranked(toy_bank, tmp_path_factory):
    """The folder of an adaptive run of three models, 25 documents each."""
    toy.register()
    folder = tmp_path_factory.mktemp("ranked")
    found = simple_evaluate(
        toy.models(),
        [toy.TASK],
        AdaptiveConfig(bank=toy_bank, items_per_model=25),
        output_path=str(folder),
    )
    return folder, found["ranking"][toy.TASK]


@pytest.fixture(scope="module")
def grown(toy_bank, ranked, tmp_path_factory):
    options = CalibrateOptions(update=str(toy_bank), samples=(str(ranked[0]),))
    path = tmp_path_factory.mktemp("grown") / "grown.parquet"
    return ItemBank.load(calibrate_from(options).save(path))


def test_the_answers_of_an_adaptive_run_join_the_bank(grown, toy_bank, ranked):
    before = ItemBank.load(toy_bank)
    _, ranking = ranked
    assert grown.content_hash == before.content_hash
    assert (grown.info.scale, grown.info.metric) == (before.info.scale, before.info.metric)
    names = [model.name for model in grown.info.models]
    assert names == [*(model.name for model in before.info.models), *sorted(toy.RANKED)]
    np.testing.assert_array_equal(grown.scores[:8], before.scores)
    item_of = {int(doc): item for item, doc in enumerate(grown.doc_id)}
    for row, name in enumerate(names[8:], start=8):
        expected = {
            item_of[step["doc_id"]]: step["score"]
            for step in ranking["trace"]
            if step["model"] == name
        }
        there = np.flatnonzero(np.isfinite(grown.scores[row]))
        assert set(there) == set(expected)
        assert len(there) == 25 == grown.info.models[row].n_scores
        np.testing.assert_allclose(
            grown.scores[row, there], [expected[item] for item in there], atol=1e-6
        )
    np.testing.assert_array_equal(grown.n_scores, np.isfinite(grown.scores).sum(axis=0))


def test_abilities_of_added_models_are_the_run_s_estimates_not_means_of_chosen_items(grown, ranked):
    _, ranking = ranked
    estimate = {entry["model"]: entry for entry in ranking["ranking"]}
    for model in grown.info.models[8:]:
        entry = estimate[model.name]
        assert abs(model.mean_raw - entry["score"]) < entry["score_se"]
    told = [notice for notice in grown.info.notices if notice.startswith("added 3 model(s)")]
    assert len(told) == 1
    assert str(ranked[0]) not in " ".join(grown.info.notices)


def test_provenance_tells_what_was_added_to_which_bank(grown, toy_bank):
    (update,) = grown.info.provenance.updates
    assert update.bank_sha256 == ItemBank.load(toy_bank).sha256
    assert list(update.models) == sorted(toy.RANKED)
    assert len(grown.info.provenance.sources) == 8 + 3


def test_a_grown_bank_ranks_and_grows_again(grown, tmp_path):
    found = simple_evaluate(
        toy.models({"a": 0.35, "b": 0.75}),
        [toy.TASK],
        AdaptiveConfig(bank=grown.path, against="strong", items_per_model=20),
        output_path=str(tmp_path / "run"),
    )["ranking"][toy.TASK]
    names = [entry["model"] for entry in found["ranking"]]
    assert (names[0], names[-1]) == ("b", "a")
    (known,) = [entry for entry in found["ranking"] if entry["known"]]
    assert known["score_se"] > 0.0, "25 documents are no full evaluation"
    options = CalibrateOptions(update=grown.path, samples=(str(tmp_path / "run"),))
    again = calibrate_from(options)
    assert len(again.info.models) == 13
    assert len(again.info.provenance.updates) == 2


def test_the_command_line_adds_and_shows(toy_bank, ranked, tmp_path, capsys):
    output = tmp_path / "new.parquet"
    words = ["calibrate", "--update", str(toy_bank), "--samples", str(ranked[0])]
    words += ["--exclude_model", "weak", "--output", str(output)]
    assert main(words) == 0
    assert "middle" in capsys.readouterr().out
    assert [model.name for model in ItemBank.load(output).info.models][8:] == ["middle", "strong"]


def test_a_run_that_went_on_counts_once(toy_bank, ranked, tmp_path):
    """A resumed run writes its samples again, with more answers and a later date."""
    import shutil

    folder = tmp_path / "run"
    shutil.copytree(ranked[0], folder)
    (samples,) = (folder / "weak").glob("samples_*.jsonl")
    (results,) = (folder / "weak").glob("results_*.json")
    date = results.stem.removeprefix("results_")
    earlier = "2001" + date[4:]
    lines = samples.read_text().splitlines(keepends=True)
    (folder / "weak" / samples.name.replace(date, earlier)).write_text("".join(lines[:11]))
    (folder / "weak" / f"results_{earlier}.json").write_text(
        results.read_text().replace('"effective": 25', '"effective": 11')
    )
    bank = calibrate_from(CalibrateOptions(update=str(toy_bank), samples=(str(folder),)))
    assert [(m.name, m.n_scores) for m in bank.info.models[8:]] == [
        ("middle", 25),
        ("strong", 25),
        ("weak", 25),
    ]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"task": "other"}, UsageError, "the bank's task is records_to_text, got other"),
        ({"metric": "slot_coverage"}, UsageError, "the bank's metric is rougeL"),
        ({"metric": "rougeL,strict"}, UsageError, "the bank's metric's filter is none, got strict"),
        ({"score_range": (0.0, 2.0)}, UsageError, "--range does not go with --update"),
        ({"response_model": "paper-1pl"}, UsageError, "--response_model does not go with --update"),
        ({"update": "nowhere.parquet"}, BankError, "no bank at nowhere.parquet"),
    ],
)
def test_what_does_not_fit_the_bank_is_refused(toy_bank, ranked, options, error, message):
    with pytest.raises(error, match=message):
        calibrate_from(
            CalibrateOptions(**{"update": str(toy_bank), "samples": (str(ranked[0]),), **options})
        )


def test_runs_of_another_version_or_other_few_shot_examples_are_refused(toy_bank, ranked, tmp_path):
    import shutil

    for name, part, value in (
        ("version of the task", "versions", 7.0),
        ("number of few-shot", "n-shot", 3),
    ):
        folder = tmp_path / part
        shutil.copytree(ranked[0], folder)
        for path in folder.glob("*/results_*.json"):
            results = json.loads(path.read_text())
            results[part][toy.TASK] = value
            path.write_text(json.dumps(results))
        with pytest.raises(DataError, match=f"{name}.* is {value}, that of bank"):
            calibrate_from(CalibrateOptions(update=str(toy_bank), samples=(str(folder),)))


def test_models_that_are_in_the_bank_already_are_named(toy_bank, toy_logs):
    with pytest.raises(UsageError, match=r"cal-0.20 is in bank .* already; .*--exclude_model"):
        calibrate_from(CalibrateOptions(update=str(toy_bank), samples=(str(toy_logs),)))


def test_without_update_task_and_metric_are_needed(toy_logs):
    with pytest.raises(UsageError, match="needs --task and --metric"):
        calibrate_from(CalibrateOptions(samples=(str(toy_logs),)))


# --- the fit: items asked are missing by design


ITEMS = 120
ADDED = 24


def world(rng):
    """Items of known difficulty, 14 models scored on all, 24 stronger ones scored on all as well."""
    easy, slope = rng.normal(0.0, 1.5, ITEMS), np.exp(rng.normal(0.0, 0.2, ITEMS))

    def scores(theta):
        mean = expit(slope * (theta[:, None] + easy))
        return np.clip(mean + rng.normal(0.0, 0.12, mean.shape), 0.0, 1.0)

    return scores(rng.normal(0.0, 1.0, 14)), scores(rng.normal(1.0, 0.7, ADDED))


def matrix(prefix, scores):
    names = tuple(f"{prefix}{row}" for row in range(len(scores)))
    return ScoreMatrix(names, tuple(map(str, range(ITEMS))), scores)


def adaptively(bank, scores, items, sampler="auto"):
    """What an adaptive test of groups of four models leaves of their scores."""
    part = np.full(scores.shape, np.nan)
    for first in range(0, len(scores), 4):
        rows = slice(first, first + 4)
        config = ProcedureConfig(items_per_model=items, round_size=None, sampler=sampler)
        procedure = Procedure.for_bank(bank, [1.0] * 4, config)
        state, _ = procedure.run(
            lambda row, chosen, own=scores[rows]: [float(own[row, item]) for item in chosen]
        )
        part[rows] = state.responses
    return part


def expected_scores(bank):
    """What each item is expected to give a model of full score 0.6."""
    theta = (logit(0.6) - bank.info.parameters["theta_centre"]) / bank.info.parameters[
        "theta_spread"
    ]
    items = bank.parameters
    return expit(items.discrimination * (theta - items.difficulty))


@pytest.mark.parametrize("sampler", ["fisher", "draw"])
def test_difficulties_stay_unbiased_where_items_were_chosen_and_plain_means_bias_them(
    sampler, monkeypatch
):
    """Known answer: the bank that all scores of all models would give."""
    off = {"model-based": [], "additive": [], "plain": [], "before": []}
    level_error = {"model-based": [], "plain": []}
    for seed in range(6):
        old, new = world(np.random.default_rng(seed))
        bank = calibrate(matrix("c", old), task="t", metric="m", score_range=(0.0, 1.0))
        # By information, whatever the bank would choose: random items bias nothing.
        bank = replace(bank, info=replace(bank.info, correction=None))
        part = adaptively(bank, new, 15, sampler)
        asked = np.isfinite(part).sum(axis=0) >= 5
        whole = expected_scores(extend(bank, matrix("n", new)))
        ways = {
            "model-based": growing._estimated,
            "additive": lambda _, added: np.full(len(added), np.nan),
            "plain": lambda _, added: np.nanmean(added, axis=1),
        }
        off["before"].append((expected_scores(bank) - whole)[asked])
        for name, way in ways.items():
            monkeypatch.setattr(growing, "_estimated", way)
            found = extend(bank, matrix("n", part))
            off[name].append((expected_scores(found) - whole)[asked])
            if name in level_error:
                levels = np.array([model.mean_score for model in found.info.models[14:]])
                level_error[name].append(levels - new.mean(axis=1))
        monkeypatch.setattr(growing, "_estimated", ways["model-based"])
    bias = {name: float(np.concatenate(each).mean()) for name, each in off.items()}
    size = {name: float(np.sqrt((np.concatenate(each) ** 2).mean())) for name, each in off.items()}
    assert abs(bias["model-based"]) < 0.005
    assert size["model-based"] < 0.5 * size["before"], "added models make difficulties better"
    # Controls: means of the chosen items, and an additive correction of them.
    assert size["plain"] > 3.0 * size["model-based"]
    # Drawn items, some of them plainly, bias the additive correction less.
    least, times = {"fisher": (0.02, 2.0), "draw": (0.015, 1.4)}[sampler]
    assert abs(bias["additive"]) > least
    assert size["additive"] > times * size["model-based"]
    errors = {name: np.sqrt((np.concatenate(e) ** 2).mean()) for name, e in level_error.items()}
    # Means of drawn items err less than those of the most informative ones, .061 against .090.
    most = {"fisher": 0.35, "draw": 0.40}[sampler]
    assert errors["model-based"] < most * errors["plain"]


@pytest.mark.parametrize("model", ["paper-1pl", "robust-2pl"])
def test_a_grown_bank_keeps_its_abilities_when_saved_and_refitted(model, tmp_path):
    old, new = world(np.random.default_rng(3))
    bank = calibrate(
        matrix("c", old), task="t", metric="m", score_range=(0.0, 1.0), response_model=model
    )
    found = extend(bank, matrix("n", adaptively(bank, new[:8], 15)))
    levels = [m.mean_score for m in found.info.models[14:]]
    assert np.abs(np.array(levels) - new[:8].mean(axis=1)).mean() < 0.05
    loaded = ItemBank.load(found.save(tmp_path / "b.parquet"))
    np.testing.assert_allclose(loaded.levels[14:], levels)
    assert np.isnan(loaded.levels[:14]).all()
    other = "robust-2pl" if model == "paper-1pl" else "paper-1pl"
    from lm_eval_adaptive.core.build import refit

    again = refit(loaded, other)
    assert [m.mean_score for m in again.info.models] == [m.mean_score for m in loaded.info.models]


def test_whole_runs_are_added_as_calibration_would_have_taken_them():
    old, new = world(np.random.default_rng(4))
    bank = calibrate(matrix("c", old), task="t", metric="m", score_range=(0.0, 1.0))
    found = extend(bank, matrix("n", new))
    both = ScoreMatrix(
        (*matrix("c", old).models, *matrix("n", new).models),
        tuple(map(str, range(ITEMS))),
        np.concatenate([old, new]),
    )
    at_once = calibrate(both, task="t", metric="m", score_range=(0.0, 1.0))
    np.testing.assert_allclose(found.parameters.difficulty, at_once.parameters.difficulty)
    np.testing.assert_allclose(found.mean_score, at_once.mean_score)
    assert found.levels is None


def test_scores_outside_the_range_and_unknown_documents_are_refused():
    old, new = world(np.random.default_rng(5))
    bank = calibrate(matrix("c", old), task="t", metric="m", score_range=(0.0, 1.0))
    high = new[:2].copy()
    high[0, 3] = 1.7
    with pytest.raises(DataError, match=r"1 score\(s\) lie outside .* first is 1.7 of n0 on doc 3"):
        extend(bank, matrix("n", high))
    assert any(
        "clipped 1 of 240" in n for n in extend(bank, matrix("n", high), clip=True).info.notices
    )
    moved = ScoreMatrix(("x",), tuple(f"{k}x" if k < 9 else str(k) for k in range(ITEMS)), new[:1])
    with pytest.raises(DataError, match="9 of the 120 documents of the new runs are not in bank"):
        extend(bank, moved)
    few = ScoreMatrix(("x",), tuple(f"{k}x" if k < 3 else str(k) for k in range(ITEMS)), new[:1])
    assert any("left out 3 document(s)" in notice for notice in extend(bank, few).info.notices)
    empty = ScoreMatrix(("x",), tuple(map(str, range(ITEMS))), np.full((1, ITEMS), np.nan))
    with pytest.raises(DataError, match="x has no score on any item"):
        extend(bank, empty)
