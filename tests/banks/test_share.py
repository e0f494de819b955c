"""A bank's card, and its export to a folder and to a hub that is made up."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from lm_eval_adaptive.banks.hub import fetch_bank
from lm_eval_adaptive.banks.share import card, export_bank
from lm_eval_adaptive.cli.main import main
from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.core.bank_info import Provenance, Source
from lm_eval_adaptive.errors import BankError, UsageError
from tests.core.helpers import FactorBenchmark


class Hub:
    """A hub in memory."""

    def __init__(self, fault=None):
        self.files, self.fault = {}, fault

    def create_repo(self, repo_id, *, repo_type, exist_ok):
        assert (repo_type, exist_ok) == ("dataset", True)
        if self.fault:
            raise self.fault

    def file_exists(self, repo_id, filename, *, repo_type):
        return (repo_id, filename) in self.files

    def upload_file(self, *, path_or_fileobj, path_in_repo, repo_id, repo_type):
        self.files[repo_id, path_in_repo] = path_or_fileobj
        return SimpleNamespace(oid="abc123")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    rng = np.random.default_rng(3)
    bank = FactorBenchmark(rng, n=60).bank(rng, models=12)
    made = Provenance(date="2026-11-30", sources=(Source("scores.csv", "f" * 64),))
    bank = replace(bank, info=replace(bank.info, provenance=made, licence="MIT"))
    return bank.save(tmp_path_factory.mktemp("share") / "own.bank.parquet")


def test_a_card_says_what_others_need_to_trust_a_bank(file):
    bank = ItemBank.load(file)
    text = card(bank, "own")
    for part in ("2026-11-30", "MIT", "scores.csv", bank.sha256, "12: m0", "[0, 1]", "toy"):
        assert part in text
    assert bank.info.correction is not None
    for length, held in bank.info.correction.lengths.items():
        assert f"held out, {length} items | MAE {held.mae:.3g}" in text


def test_a_folder_gets_the_same_bytes_and_the_card_and_nothing_is_overwritten(file, tmp_path):
    written = export_bank(file, "own", str(tmp_path / "shared"))
    copy, beside = tmp_path / "shared/own.bank.parquet", tmp_path / "shared/own.md"
    assert written == [str(copy), str(beside)]
    assert copy.read_bytes() == file.read_bytes()
    with pytest.raises(UsageError, match="exists already"):
        export_bank(file, "own", str(tmp_path / "shared"))


def test_the_hub_s_address_brings_the_same_bank_back(file, tmp_path):
    hub = Hub()
    (address,) = export_bank(file, "own", "hf://org/banks/zoo", hub)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert address == f"hf://org/banks/zoo/own.bank.parquet@abc123#{digest}"
    assert {path for _, path in hub.files} == {
        "README.md", "zoo/own.md", "zoo/own.bank.parquet"
    }  # fmt: skip

    def download(repo, path, revision):
        assert revision == "abc123"
        target = tmp_path / "cached"
        target.write_bytes(hub.files[repo, path])
        return str(target)

    assert ItemBank.load(fetch_bank(address, download)).sha256 == digest
    hub.files["org/banks", "README.md"] = b"mine"
    export_bank(file, "own", "hf://org/banks/other.parquet", hub)
    assert hub.files["org/banks", "README.md"] == b"mine"


@pytest.mark.parametrize(
    ("place", "fault", "kind", "part"),
    [
        ("hf://org/banks", None, UsageError, "expected hf://org/dataset/path"),
        ("hf://org/banks/x@main", None, UsageError, "without revision"),
        ("hf://org/banks/../x", None, UsageError, "expected hf://"),
        ("hf://org/banks/x", OSError("401 unauthorised"), BankError, "check HF_TOKEN"),
    ],
)
def test_what_the_hub_does_not_take_is_told(file, place, fault, kind, part):
    with pytest.raises(kind, match=part):
        export_bank(file, "own", place, Hub(fault))


def test_export_takes_names_and_files(file, tmp_path, capsys):
    assert main(["bank", "export", str(file), "--to", str(tmp_path / "a")]) == 0
    assert main(["bank", "export", "eq_bench", "--to", str(tmp_path / "b")]) == 0
    assert (tmp_path / "b/eq_bench.bank.parquet").is_file()
    capsys.readouterr()
    assert main(["bank", "export", "no_such", "--to", str(tmp_path / "c")]) == 2
    assert "no bank at no_such" in capsys.readouterr().err
