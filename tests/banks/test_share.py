"""Banks handed on: the card tells what the file holds, and nothing of others is written over."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace

import numpy as np
import pytest

from lm_eval_adaptive.banks import card, share
from lm_eval_adaptive.banks.hub import fetch_bank
from lm_eval_adaptive.banks.store import Store
from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.core.bank_info import Provenance, Source
from lm_eval_adaptive.core.build import calibrate
from lm_eval_adaptive.core.matrix import ScoreMatrix
from tests.support.bad_input import attempt

COMMIT = "c0ffee" * 6 + "c0de"


def good_bank(models=12, **info):
    rng = np.random.default_rng(1)
    ability, hard = np.linspace(-1.5, 1.5, models), rng.normal(0.0, 1.0, 120)
    mean = 1.0 / (1.0 + np.exp(-(ability[:, None] - hard)))
    scores = np.clip(mean + rng.normal(0.0, 0.1, mean.shape), 0.0, 1.0)
    bank = calibrate(
        ScoreMatrix(
            tuple(f"model-{row}" for row in range(models)),
            tuple(f"doc{n:03d}" for n in range(120)),
            scores,
        ),
        task="quiz", metric="score", score_range=(0.0, 1.0), response_model="robust-2pl",
        licence="CC BY 4.0", num_fewshot=3, task_version="1.0", dataset_path="org/quiz",
        split="test",
        provenance=Provenance("2026-05-06", "0.4.13", "0.1.0", (Source("scores.csv", "ab" * 32),)),
    )  # fmt: skip
    return replace(bank, info=replace(bank.info, **info))


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("LM_EVAL_ADAPTIVE_HOME", str(tmp_path / "home"))
    found = Store()
    found.add(good_bank(), "quiz_score")
    return found


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A dataset on a hub that is a mapping; what was committed stands in ``commits``."""
    import huggingface_hub

    class Api:
        def file_exists(self, repo, path, *, repo_type):
            assert (repo, repo_type) == ("org/banks", "dataset")
            return path in files

        def create_commit(self, repo, operations, *, commit_message, repo_type):
            assert (repo, repo_type) == ("org/banks", "dataset")
            for each in operations:
                files[each.path_in_repo] = each.path_or_fileobj
            commits.append((commit_message, [each.path_in_repo for each in operations]))
            return type("Commit", (), {"oid": COMMIT})()

    def download(repo, path, *, repo_type, revision=None):
        assert revision in (None, COMMIT)
        file = tmp_path / "cache" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(files[path])
        return str(file)

    files, commits = {}, []
    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    Api.files, Api.commits = files, commits
    return Api


def digest(content):
    return hashlib.sha256(content).hexdigest()


# --- a folder


def test_a_folder_gets_the_bank_and_a_card_that_tells_it(store, tmp_path):
    found = attempt(["bank", "export", "quiz_score", tmp_path / "out"])
    assert (found.code, found.faults()) == (0, []), found
    file, readme = tmp_path / "out" / "quiz_score.bank.parquet", tmp_path / "out" / "README.md"
    assert file.read_bytes() == store.file_of("quiz_score").read_bytes()
    text = readme.read_text(encoding="utf-8")
    assert f"| sha256 of quiz_score.bank.parquet | `{digest(file.read_bytes())}` |" in text
    bank = ItemBank.load(file)
    for part in (
        "license: cc-by-4.0", "| task | quiz, version 1.0 |", "| dataset | org/quiz test |",
        "| licence of the scores | CC BY 4.0 |", "| made | 2026-05-06 |", "| few-shot examples | 3 |",
        f"| scores.csv | `{'ab' * 32}` |", "| items | 120",
    ):  # fmt: skip
        assert part in text, part
    for model in bank.info.models:
        assert f"| {model.name} | {model.mean_raw:.4g} | 120 |" in text
    lengths = bank.info.correction.lengths
    assert lengths, "the bank was cross-validated"
    for length, each in lengths.items():
        assert f"| {length} | {each.tests} | {100 * each.mae:.2f} | {100 * each.rmse:.2f} |" in text
    assert str(tmp_path) not in text, "folders of this machine are nobody's business"


def test_a_card_is_valid_for_the_hub(store, tmp_path):
    import yaml

    attempt(["bank", "export", "quiz_score", tmp_path / "out"])
    text = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    front = yaml.safe_load(text.split("---")[1])
    assert front == {"license": "cc-by-4.0", "tags": ["lm-eval-adaptive", "item-bank"]}


@pytest.mark.parametrize(
    ("licence", "front"),
    [("", "unknown"), ("MIT", "mit"), ("Apache-2.0", "apache-2.0"), ("ask the authors", "other")],
)
def test_licences_are_the_hub_s_names(licence, front, tmp_path):
    bank = ItemBank.load(good_bank(licence=licence).save(tmp_path / "b.parquet"))
    assert f"\nlicense: {front}\n" in card.card_of_bank(bank, "b.parquet", "b.parquet")


def test_what_a_bank_says_cannot_break_its_card(tmp_path):
    odd = replace(good_bank().info.models[0], name="a | b\n# <script>")
    bank = good_bank()
    bank = replace(bank, info=replace(bank.info, models=(odd, *bank.info.models[1:])))
    bank = ItemBank.load(bank.save(tmp_path / "b.parquet"))
    text = card.card_of_bank(bank, "b.parquet", "b.parquet")
    assert "| a \\| b # &lt;script> |" in text


def test_another_bank_s_readme_and_other_files_stay(store, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "README.md").write_text("# My project\n")
    assert attempt(["bank", "export", "quiz_score", out]).code == 0
    assert (out / "README.md").read_text() == "# My project\n"
    assert "| task | quiz" in (out / "quiz_score.md").read_text()
    (out / "README.md").unlink()
    store.add(good_bank(10), "other")
    attempt(["bank", "export", "quiz_score", out])
    assert attempt(["bank", "export", "other", out]).code == 0
    assert "quiz_score.bank.parquet" in (out / "README.md").read_text()
    assert "other.bank.parquet" in (out / "other.md").read_text()


def test_another_bank_of_that_name_is_replaced_when_asked(store, tmp_path):
    out = tmp_path / "out"
    assert attempt(["bank", "export", "quiz_score", out]).code == 0
    assert attempt(["bank", "export", "quiz_score", "--to", out]).code == 0  # the same again
    first = (out / "quiz_score.bank.parquet").read_bytes()
    store.add(good_bank(10), "quiz_score", overwrite=True)
    found = attempt(["bank", "export", "quiz_score", out])
    assert (found.code, found.faults()) == (2, [])
    assert "--overwrite" in found.said[0]
    assert (out / "quiz_score.bank.parquet").read_bytes() == first
    assert attempt(["bank", "export", "quiz_score", out, "--overwrite"]).code == 0
    now = (out / "quiz_score.bank.parquet").read_bytes()
    assert now != first
    assert digest(now) in (out / "README.md").read_text()


def test_a_file_of_one_s_own_can_be_handed_on(tmp_path):
    path = good_bank().save(tmp_path / "mine.parquet")
    assert attempt(["bank", "export", path, tmp_path / "out"]).code == 0
    assert (tmp_path / "out" / "mine.bank.parquet").read_bytes() == path.read_bytes()


# --- the hub


def test_the_hub_gets_both_in_one_commit_and_the_address_works(store, hub):
    found = attempt(["bank", "export", "quiz_score", "--to", "hf://org/banks/quiz/"])
    assert (found.code, found.faults()) == (0, []), found
    [(_, files)] = hub.commits
    assert files == ["quiz/quiz_score.bank.parquet", "quiz/README.md"]
    address = re.search(r"--bank '(\S+)'", found.out)[1]
    content = store.file_of("quiz_score").read_bytes()
    assert address == f"hf://org/banks/quiz/quiz_score.bank.parquet@{COMMIT}#{digest(content)}"
    assert fetch_bank(address).read_bytes() == content
    text = hub.files["quiz/README.md"].decode()
    assert f"hf://org/banks/quiz/quiz_score.bank.parquet@main#{digest(content)}" in text
    assert attempt(["bank", "show", address]).code == 0
    added = attempt(["bank", "add", address, "--name", "from_hub"])
    assert added.code == 0, added
    assert store.file_of("from_hub").is_file()


def test_the_top_of_a_dataset_keeps_its_readme(store, hub):
    hub.files["README.md"] = b"# All our banks\n"
    assert attempt(["bank", "export", "quiz_score", "--to", "hf://org/banks"]).code == 0
    assert hub.files["README.md"] == b"# All our banks\n"
    assert set(hub.files) == {"README.md", "quiz_score.bank.parquet", "quiz_score.md"}
    store.add(good_bank(10), "quiz_score", overwrite=True)
    found = attempt(["bank", "export", "quiz_score", "--to", "hf://org/banks"])
    assert (found.code, len(hub.commits)) == (2, 1)


class NoConnectionError(Exception):
    """As transports raise it: of no family of the standard library's."""


@pytest.mark.parametrize("what", ["file_exists", "create_commit"])
@pytest.mark.parametrize("kind", [OSError, NoConnectionError])
def test_what_the_hub_refuses_is_one_line(store, hub, monkeypatch, what, kind):
    def refuse(self, *args, **kwargs):
        raise kind("401 Client Error\nlong advice")

    monkeypatch.setattr(hub, what, refuse)
    found = attempt(["bank", "export", "quiz_score", "--to", "hf://org/banks/quiz"])
    assert (found.code, found.faults()) == (2, []), found
    assert f"{kind.__name__}: 401 Client Error); make it on the hub first" in found.said[0]


def test_offline_is_one_line(store):
    found = attempt(["bank", "export", "quiz_score", "--to", "hf://org/banks/quiz"])
    assert (found.code, found.faults()) == (2, []), found
    assert "HF_HUB_OFFLINE" in found.said[0]


# --- before a bank of others is used


def test_check_tells_what_is_inside(store, tmp_path):
    attempt(["bank", "export", "quiz_score", tmp_path / "out"])
    file = tmp_path / "out" / "quiz_score.bank.parquet"
    found = attempt(["bank", "check", file])
    assert (found.code, found.faults()) == (0, []), found
    for part in (
        f"sha256 {digest(file.read_bytes())}", "task: quiz, version 1.0", "model-0, model-1",
        "licence of the scores: CC BY 4.0", "made: 2026-05-06", "scores.csv",
        "held-out models of its own: items 20", "ran no code",
    ):  # fmt: skip
        assert part in found.out, part
    assert "licence of its scores" not in found.out


def test_check_warns_of_what_a_bank_does_not_tell(tmp_path):
    path = good_bank(4, licence="", provenance=None, num_fewshot=None).save(tmp_path / "b.parquet")
    out = attempt(["bank", "check", path]).out
    for part in ("it has 4 models", "could not be cross-validated", "the licence of its scores",
                 "the files it was made from", "does not tell its prompts"):  # fmt: skip
        assert f"note: {part}" in out or part in out, part
    good = attempt(["bank", "check", good_bank().save(tmp_path / "good.parquet")]).out
    assert "could not be cross-validated" not in good
    assert "it has 12 models" not in good


def test_check_says_that_a_bank_was_changed_after_its_card(store, tmp_path):
    attempt(["bank", "export", "quiz_score", tmp_path / "out"])
    file = tmp_path / "out" / "quiz_score.bank.parquet"
    assert "changed after its card" not in attempt(["bank", "check", file]).out
    good_bank(10).save(file)
    assert "changed after its card was written" in attempt(["bank", "check", file]).out


def test_check_prints_nothing_that_moves_the_cursor(tmp_path):
    path = good_bank(licence="MIT\x1b[2Jgone").save(tmp_path / "b.parquet")
    out = attempt(["bank", "check", path]).out
    assert "\x1b" not in out


def test_a_damaged_foreign_bank_is_one_line(tmp_path):
    path = good_bank().save(tmp_path / "b.parquet")
    path.write_bytes(path.read_bytes()[:-50])
    for command in (
        ["check", path],
        ["show", path],
        ["add", path],
        ["export", path, tmp_path / "o"],
    ):
        found = attempt(["bank", *command])
        assert (found.code, found.faults()) == (2, []), found


def test_a_bank_that_was_never_saved_is_shared(tmp_path):
    lines = share.share(good_bank(), "fresh", str(tmp_path / "out"), overwrite=False)
    assert ItemBank.load(tmp_path / "out" / "fresh.bank.parquet").info.task == "quiz"
    assert lines[0].startswith("wrote fresh.bank.parquet and its card README.md")
