"""A fixture for rooms above the core: no network, toy models registered, no calls counted yet."""

from __future__ import annotations

import pytest

from tests.support import toy


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    toy.register()
    toy.ToyLM.calls.clear()
