"""Metric tests see no setting of the machine they run on."""

from __future__ import annotations

import pytest

from lm_eval_adaptive.metrics import base, judge
from lm_eval_adaptive.metrics.judging import server


@pytest.fixture(autouse=True)
def clean_settings(monkeypatch, tmp_path):
    for name in (
        "BERTSCORE",
        "COMET",
        "DEVICE",
        "METRICS",
        "JUDGE_MODEL",
        "JUDGE_URL",
        "JUDGE_AGREEMENT",
        "JUDGE_REASONING_EFFORT",
    ):
        monkeypatch.delenv(f"LMEVAL_ADAPTIVE_{name}", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("LMEVAL_ADAPTIVE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(judge, "TALLY", judge.Tally())
    server.dialect.cache_clear()
    base.take_notices()
