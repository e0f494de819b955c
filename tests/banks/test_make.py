"""`bank make`: a bank at a stated price, and how good it will be."""

from __future__ import annotations

import json

import numpy as np
import pytest
import yaml

from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.core.making import promise
from tests.core.helpers import FactorBenchmark
from tests.support import toy

MODELS = {f"m{share:.2f}": share for share in np.linspace(0.2, 0.9, 9)}


@pytest.fixture
def models(tmp_path):
    path = tmp_path / "models.yaml"
    path.write_text(yaml.safe_dump(toy.models({n: float(s) for n, s in MODELS.items()})))
    return path


def make(tmp_path, models, *more, check=True):
    return toy.command(
        "bank", "make", "--tasks", toy.TASK, "--models", models, "--metric", "rougeL",
        "--output", tmp_path / "made.bank.parquet", *more, check=check,
    )  # fmt: skip


def asked(folder):
    return [(r["model"], r["doc_id"]) for r in toy.journal(folder) if r["type"] == "answer"]


def test_all_models_answer_the_same_share_and_the_bank_holds_it(tmp_path, models):
    done = make(tmp_path, models, "--share", ".4")
    bank = ItemBank.load(tmp_path / "made.bank.parquet")
    answers = asked(tmp_path / "made.bank.parquet.run")
    documents = {doc for _, doc in answers}
    assert len(answers) == len(set(answers)) == len(MODELS) * len(documents)
    assert set(bank.doc_id.tolist()) == documents
    assert np.isfinite(bank.scores).all()
    assert [m.name for m in bank.info.models] == sorted(MODELS)
    for record in toy.journal(tmp_path / "made.bank.parquet.run"):
        if record["type"] == "answer":
            row = sorted(MODELS).index(record["model"])
            column = bank.doc_id.tolist().index(record["doc_id"])
            assert bank.scores[row, column] == pytest.approx(record["score"], abs=1e-6)
    # Its price and what it is worth are said, at every step.
    assert f"{len(answers)} answers" in done.stdout
    assert "tests of 20 items would err by" in done.stdout
    # The bank ranks new models.
    words = ["run", "--adaptive", "--tasks", toy.TASK, "--bank", tmp_path / "made.bank.parquet"]
    ranked = toy.command(*words, *toy.candidate_words(), "--output_path", tmp_path / "ranked")
    assert "strong" in ranked.stdout
    (ranking,) = (tmp_path / "ranked").glob("ranking_*.json")
    order = [each["model"] for each in json.loads(ranking.read_text())["ranking"]]
    assert order == ["strong", "middle", "weak"]


def test_what_was_cut_off_goes_on_and_asks_nothing_twice(tmp_path, models):
    listed = yaml.safe_load(models.read_text())
    stone = tmp_path / "stone"
    stone.touch()
    for each in listed:
        each["model_args"]["fail_file"] = str(stone)
    models.write_text(yaml.safe_dump(listed))
    done = make(tmp_path, models, "--share", ".3", check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    stone.unlink()
    make(tmp_path, models, "--share", ".3")
    answers = asked(tmp_path / "made.bank.parquet.run")
    assert len(answers) == len(set(answers))
    whole = make(tmp_path, models, "--share", ".3", check=False)
    assert whole.returncode == 2
    assert "exists already" in whole.stderr


def test_a_model_that_fails_leaves_the_others_their_bank(tmp_path, models):
    listed = yaml.safe_load(models.read_text())
    listed[0]["model_args"]["fail_after"] = 5
    models.write_text(yaml.safe_dump(listed))
    done = make(tmp_path, models, "--share", ".3", check=False)
    assert done.returncode == 0, done.stderr
    bank = ItemBank.load(tmp_path / "made.bank.parquet")
    assert listed[0]["name"] not in [m.name for m in bank.info.models]
    assert f"{listed[0]['name']} is not in the bank" in done.stdout


@pytest.mark.parametrize(
    ("words", "count", "part"),
    [
        (["--share", "0"], 9, "--share must be above 0"),
        (["--share", "1.5"], 9, "--share must be above 0"),
        ([], 2, "has 2 model(s); a bank needs 3"),
        (["--metric", "nothing"], 9, "nothing"),
        (["--tasks", f"{toy.TASK},biolaysumm_plos"], 9, "biolaysumm_plos"),
    ],
)
def test_what_cannot_be_made_is_refused_in_one_line(tmp_path, models, words, count, part):
    models.write_text(yaml.safe_dump(yaml.safe_load(models.read_text())[:count]))
    done = make(tmp_path, models, *words, check=False)
    assert done.returncode == 2
    assert part in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "made.bank.parquet").exists()


def test_the_forecast_holds_for_worlds_it_has_not_seen():
    """Errors of tests of 20 items against the whole are as foretold; more documents help less."""
    foretold, found, halved = [], [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        benchmark = FactorBenchmark(rng, n=400)
        scores = benchmark.draw(rng.normal(size=16), rng)
        part = rng.permutation(400)[:80]
        told = promise(scores[:, part], 400, 160)
        assert told is not None
        foretold.append(told.beyond)
        centred = scores - scores.mean(axis=0)
        found.append(np.sqrt(np.mean(centred[:, part].mean(axis=1) - centred.mean(axis=1)) ** 2))
        off = centred[:, part].mean(axis=1) - centred.mean(axis=1)
        found[-1] = float(np.sqrt((off**2).mean()))
        more = promise(scores[:, rng.permutation(400)[:160]], 400, 320)
        assert more is not None
        halved.append(more.beyond / told.beyond)
    assert np.mean(found) == pytest.approx(np.mean(foretold), rel=0.25)
    # Twice the documents of a fifth: sqrt(1/2 * .6/.8).
    assert np.mean(halved) == pytest.approx(np.sqrt(0.5 * 0.6 / 0.8), rel=0.1)


def test_where_nothing_can_be_told_nothing_is():
    rng = np.random.default_rng(0)
    assert promise(rng.uniform(size=(5, 100)), 400, 200) is None
    assert promise(rng.uniform(size=(12, 15)), 400, 30) is None
    assert promise(np.full((12, 100), 0.5), 400, 200) is None
