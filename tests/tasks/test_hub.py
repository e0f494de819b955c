"""Banks on the hub: pinned by revision, taken by hash."""

from __future__ import annotations

import hashlib

import pytest

from lm_eval_adaptive.errors import BankError
from lm_eval_adaptive.harness import hub
from lm_eval_adaptive.harness.hub import fetch_bank, is_hub_address, parse_address

BYTES = b"PAR1 a bank PAR1"
HASH = hashlib.sha256(BYTES).hexdigest()


@pytest.fixture
def download(tmp_path):
    def fake(repo, path, revision):
        asked.append((repo, path, revision))
        file = tmp_path / "cached"
        file.write_bytes(BYTES)
        return str(file)

    asked = []
    fake.asked = asked
    return fake


def test_a_bank_is_fetched(download):
    path = fetch_bank(f"hf://org/banks/sub/zoo.bank.parquet@v1.2#{HASH}", download)
    assert path.read_bytes() == BYTES
    assert download.asked == [("org/banks", "sub/zoo.bank.parquet", "v1.2")]


def test_another_file_is_refused(download):
    with pytest.raises(BankError, match=f"has sha256 {HASH}; it is not the bank"):
        fetch_bank(f"hf://org/banks/zoo.bank.parquet@main#{'0' * 64}", download)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("hf://org/banks/x.parquet", "no revision"),
        ("hf://org/banks/x.parquet@main", "no sha256"),
        (f"hf://org/x@main#{HASH}", "not in that order"),
        (f"hf://org/banks/x#{HASH}@main", "not in that order"),
        ("hf://org/banks/x.parquet@main#abc", "64 lower-case hexadecimal"),
        (f"hf://org/banks/x.parquet@main#{HASH.upper()}", "64 lower-case hexadecimal"),
        (f"hf://org/banks/../../x@main#{HASH}", "may not lead out"),
    ],
)
def test_wrong_addresses_are_one_line_and_fetch_nothing(address, message, download):
    with pytest.raises(BankError, match=message) as caught:
        fetch_bank(address, download)
    assert "\n" not in str(caught.value)
    assert download.asked == []


def test_what_the_hub_refuses_is_one_line():
    def refuse(repo, path, revision):
        raise OSError("401 Client Error\nlong advice")

    with pytest.raises(BankError, match=r"OSError: 401 Client Error\); check") as caught:
        fetch_bank(f"hf://org/banks/x.parquet@main#{HASH}", refuse)
    assert "\n" not in str(caught.value)


def test_the_real_client_is_asked_for_a_dataset(monkeypatch, tmp_path):
    import huggingface_hub

    file = tmp_path / "file"
    file.write_bytes(BYTES)
    seen = {}

    def hf_hub_download(repo_id, filename, *, repo_type, revision):
        seen.update(repo=repo_id, file=filename, kind=repo_type, revision=revision)
        return str(file)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", hf_hub_download)
    assert fetch_bank(f"hf://org/banks/x.parquet@c0ffee#{HASH}") == file
    assert seen == {
        "repo": "org/banks",
        "file": "x.parquet",
        "kind": "dataset",
        "revision": "c0ffee",
    }


def test_offline_is_one_line(monkeypatch):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(BankError, match="HF_HUB_OFFLINE") as caught:
        fetch_bank(f"hf://org/banks/x.parquet@main#{HASH}")
    assert "\n" not in str(caught.value)


def test_paths_are_no_addresses():
    assert is_hub_address(f"hf://a/b/c@d#{HASH}")
    assert not is_hub_address("banks/x.bank.parquet")
    assert not is_hub_address(None)
    assert parse_address(f"hf://a/b/c@d#{HASH}") == hub.HubBank("a/b", "c", "d", HASH)
