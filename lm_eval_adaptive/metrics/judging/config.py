"""What a judge is, as a task's YAML and the environment say it."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import UsageError
from lm_eval_adaptive.redact import hide

if TYPE_CHECKING:
    from collections.abc import Mapping

_FROM_ENVIRONMENT = {
    "model": "MODEL",
    "base_url": "URL",
    "reasoning_effort": "REASONING_EFFORT",
    "agreement": "AGREEMENT",
}
_NUMBERS = {
    "max_tokens": int,
    "max_tokens_again": int,
    "agreement": int,
    "concurrency": int,
    "retries": int,
    "backoff": float,
    "patience": float,
    "timeout": float,
}
_TEXTS = ("rubric", "model", "base_url", "system", "harness", "model_args", "reasoning_effort")


@dataclass(frozen=True)
class JudgeSettings:
    """A judge, as ``metadata.metrics.judge`` of a task's YAML describes it.

    Attributes:
        rubric: Jinja2 template of the request; sees the document's columns and ``answer``.
        scale: Lowest and highest verdict.
        model: The judge's name at the server.
        base_url: Server, as ``http://127.0.0.1:8000/v1``.
        system: System message, "" for none.
        harness: A model of the harness to ask instead of a server, as ``hf``.
        model_args: Its arguments.
        max_tokens: Longest reply.
        max_tokens_again: Longest reply of the second attempt, which a reply cut at ``max_tokens``
            gets; a number not above ``max_tokens`` makes none.
        reasoning_effort: What a reasoning model is told of it (``low``, ``high``, …), "" for
            nothing.
        agreement: On how many documents the judge is asked twice, to tell how far it agrees with
            itself.
        concurrency: Requests at once.
        retries: Further attempts where the server is busy or away.
        backoff: Seconds before the first of them; doubled each time, up to a minute.
        patience: Seconds of waiting between attempts, all in all, after which none is made.
        timeout: Seconds to wait for a reply.
    """

    rubric: str
    scale: tuple[float, float] = (1.0, 10.0)
    model: str = ""
    base_url: str = "https://api.openai.com/v1"
    system: str = ""
    harness: str = ""
    model_args: str = ""
    max_tokens: int = 256
    max_tokens_again: int = 4096
    reasoning_effort: str = ""
    agreement: int = 0
    concurrency: int = 8
    retries: int = 14
    backoff: float = 1.0
    patience: float = 600.0
    timeout: float = 120.0

    @property
    def name(self) -> str:
        """The judge in words, without what is secret among its arguments."""
        return f"{self.harness}({hide(self.model_args)})" if self.harness else self.model


def judge_settings(settings: Mapping[str, Any]) -> JudgeSettings:
    """Settings from the task's YAML, over which the environment has the last word.

    ``LMEVAL_ADAPTIVE_JUDGE_MODEL`` and ``…_JUDGE_URL`` name judge and server,
    ``…_JUDGE_REASONING_EFFORT`` its effort, ``…_JUDGE_AGREEMENT`` the number of documents judged
    twice; the key is taken from ``OPENAI_API_KEY``, as the harness does.

    Raises:
        UsageError: Something is missing, unknown or of the wrong kind.
    """
    values = dict(settings)
    for key, variable in _FROM_ENVIRONMENT.items():
        given = os.environ.get(f"LMEVAL_ADAPTIVE_JUDGE_{variable}", "").strip()
        if given:
            values[key] = given
    unknown = sorted(set(values) - set(JudgeSettings.__dataclass_fields__))
    if unknown:
        raise UsageError(
            f"metadata.metrics.judge does not know {unknown[0]!r}; it has "
            f"{', '.join(JudgeSettings.__dataclass_fields__)}"
        )
    if not str(values.get("rubric") or "").strip():
        raise UsageError("metric judge has no rubric; write one at metadata.metrics.judge.rubric")
    if not (values.get("model") or values.get("harness")):
        raise UsageError(
            "metric judge has no model; name one with LMEVAL_ADAPTIVE_JUDGE_MODEL (and its server "
            "with LMEVAL_ADAPTIVE_JUDGE_URL), or at metadata.metrics.judge.model"
        )
    try:
        lo, hi = (float(each) for each in values.get("scale", (1, 10)))
        numbers = {key: kind(values[key]) for key, kind in _NUMBERS.items() if key in values}
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"metadata.metrics.judge: {error}; numbers were expected") from error
    if not (math.isfinite(lo) and math.isfinite(hi) and lo < hi):
        raise UsageError(f"metadata.metrics.judge.scale must be [low, high], got [{lo}, {hi}]")
    for key, value in numbers.items():
        least = 1 if key in ("max_tokens", "concurrency") else 0
        if not least <= value < math.inf:
            raise UsageError(f"metadata.metrics.judge.{key} must be {least} or more, got {value}")
    texts = {key: str(values.get(key) or "") for key in _TEXTS if key in values}
    return JudgeSettings(**{**values, **texts, **numbers, "scale": (lo, hi)})
