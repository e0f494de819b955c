"""A language model as judge: a rubric, a scale, one verdict per answer.

This module owns rubric, verdicts and what is told of them; ``judging`` holds what they are made
of. The judge is any server of the OpenAI chat protocol or a model of the harness. An answer
without a verdict has no score: it is counted, its reason is kept, and the document is left out.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import UsageError
from lm_eval_adaptive.metrics.base import Missing, note
from lm_eval_adaptive.metrics.judging.cache import VerdictCache, cache_folder, verdict_key
from lm_eval_adaptive.metrics.judging.config import JudgeSettings, judge_settings
from lm_eval_adaptive.metrics.judging.family import family_warnings
from lm_eval_adaptive.metrics.judging.local import ask_harness_model
from lm_eval_adaptive.metrics.judging.reply import (
    Reply,
    UnansweredError,
    read_verdict,
    why_no_verdict,
)
from lm_eval_adaptive.metrics.judging.server import ask_server

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from lm_eval_adaptive.metrics.base import Case
    from lm_eval_adaptive.metrics.judging.server import Messages

log = logging.getLogger(__name__)

# Added to the key of a document's second verdict.
_SECOND = "#2"


@functools.lru_cache(maxsize=32)
def _template(rubric: str) -> Any:
    from jinja2 import Environment, StrictUndefined, TemplateSyntaxError

    try:
        return Environment(undefined=StrictUndefined, autoescape=False).from_string(rubric)  # noqa: S701  plain text
    except TemplateSyntaxError as error:
        raise UsageError(f"metadata.metrics.judge.rubric is no template: {error}") from error


def messages_for(case: Case, settings: JudgeSettings) -> Messages:
    """What the judge is asked about an answer.

    Raises:
        UsageError: The rubric names a column that the document lacks.
        UnansweredError: The rubric cannot be filled in from this document's values.
    """
    from jinja2 import UndefinedError

    template = _template(settings.rubric)
    try:
        text = template.render(**{**case.doc, "answer": case.answer})
    except UndefinedError as error:
        raise UsageError(
            f"metadata.metrics.judge.rubric: {error}; the document has "
            f"{', '.join(case.doc) or 'no columns'}"
        ) from error
    except Exception as error:  # what filters make of a None, say
        raise UnansweredError(f"the rubric cannot be filled in: {error}") from error
    system = [{"role": "system", "content": settings.system}] if settings.system else []
    return [*system, {"role": "user", "content": text}]


@functools.lru_cache(maxsize=4)
def _cache(folder: Path) -> VerdictCache:
    return VerdictCache(folder)


@dataclass
class Tally:
    """How the judges did in this process.

    Attributes:
        asked: Replies that were paid for, as far as they count; second attempts are not told apart.
        cached: Verdicts that were in the cache.
        unread: Answers without a verdict, by judge.
        missing: The same, by judge and reason.
        twice: Both verdicts on documents that were judged twice, by judge; None for no verdict.
    """

    asked: int = 0
    cached: int = 0
    unread: dict[str, int] = field(default_factory=dict)
    missing: dict[str, Counter[str]] = field(default_factory=dict)
    twice: dict[str, dict[str, tuple[float | None, float | None]]] = field(default_factory=dict)


TALLY = Tally()


def judge(cases: Sequence[Case], settings: Mapping[str, Any]) -> list[float]:
    """The judge's verdict on each answer, on the rubric's scale.

    A blank answer gets the scale's lowest value without a request. Missing, with the reason, where
    the reply was cut, holds no verdict, or there was none for this document: it is then left out,
    and :data:`TALLY` counts it.

    Raises:
        UsageError: The settings, or the server's answer to them, are wrong.
        ModelError: The judge cannot be reached; what it said so far is cached.
    """
    own = judge_settings(settings)
    asked: dict[str, Messages] = {}
    found: list[float | str] = []  # a verdict, or the key of one
    for case in cases:
        if not case.answer.strip():
            found.append(own.scale[0])
            continue
        try:
            messages = messages_for(case, own)
        except UnansweredError as error:
            found.append(Missing(str(error)))
            continue
        key = verdict_key(messages, case.answer, own)
        asked[key] = messages
        found.append(key)
    replies = _replies(asked, own)
    values = [_verdict(replies[each], own) if isinstance(each, str) else each for each in found]
    _tell(values, own)
    _judge_again(asked, replies, own)
    return values


def _verdict(reply: Reply | str, settings: JudgeSettings) -> float:
    """A reply's verdict, or what stands for the reason why there is none."""
    if isinstance(reply, str):
        return Missing(reply)
    reason = why_no_verdict(reply, settings.scale)
    verdict = None if reason else read_verdict(reply.text, settings.scale)
    return Missing(reason) if verdict is None else verdict


def _tell(values: Sequence[float], settings: JudgeSettings) -> None:
    reasons = Counter(each.reason for each in values if isinstance(each, Missing))
    name = settings.name
    note(
        f"judge {name}: {{some}} of {{of}} answers have no verdict, and their documents no score",
        sum(reasons.values()),
        len(values),
    )
    if not reasons:
        return
    TALLY.unread[name] = TALLY.unread.get(name, 0) + sum(reasons.values())
    TALLY.missing.setdefault(name, Counter()).update(reasons)
    for reason, count in reasons.items():
        note(f"judge {name}: {{some}} answers: {reason}", count, count)
    log.warning(
        "judge %s: %d of %d answers have no verdict on %g to %g, and their documents no score (%s)",
        name,
        sum(reasons.values()),
        len(values),
        *settings.scale,
        "; ".join(f"{count} x {reason}" for reason, count in reasons.most_common(3)),
    )


# --- replies: from the cache, else from the judge


def _replies(asked: Mapping[str, Messages], settings: JudgeSettings) -> dict[str, Reply | str]:
    """Reply by key; the reason where there is none."""
    cache = _cache(cache_folder())
    found: dict[str, Reply | str] = {}
    for key in asked:
        known = cache.get(key)
        # One that was cut before a second attempt could be made is asked for again.
        if known is not None and not (
            known.cut and known.limit < max(settings.max_tokens, settings.max_tokens_again)
        ):
            found[key] = known
            TALLY.cached += 1
    return {**found, **_ask({k: v for k, v in asked.items() if k not in found}, settings, cache)}


def _ask(
    asked: Mapping[str, Messages], settings: JudgeSettings, cache: VerdictCache
) -> dict[str, Reply | str]:
    if not asked:
        return {}
    keys = list(asked)
    if settings.harness:
        replies = ask_harness_model(list(asked.values()), settings)
        for key, reply in zip(keys, replies, strict=True):
            cache.put(key, settings.name, reply)
        TALLY.asked += len(keys)
        return dict(zip(keys, replies, strict=True))
    stopped = threading.Event()

    def pause(seconds: float) -> None:
        if stopped.wait(seconds):
            raise UnansweredError("the run was stopped")

    def one(key: str) -> Reply | str:
        try:
            reply = ask_server(asked[key], settings, pause)
        except UnansweredError as error:
            return str(error)  # not cached: another day it may answer
        cache.put(key, settings.name, reply)  # at once: what is paid for is kept
        return reply

    with ThreadPoolExecutor(min(settings.concurrency, len(keys))) as pool:
        futures = {key: pool.submit(one, key) for key in keys}
        try:
            found = {key: future.result() for key, future in futures.items()}
        except BaseException:
            stopped.set()
            for future in futures.values():
                future.cancel()
            raise
    TALLY.asked += sum(isinstance(reply, Reply) for reply in found.values())
    return found


# --- how far a judge agrees with itself


def _judge_again(
    asked: Mapping[str, Messages], replies: Mapping[str, Reply | str], settings: JudgeSettings
) -> None:
    """Second verdicts on the first documents of a run, as many as the settings ask for."""
    pairs = TALLY.twice.setdefault(settings.name, {}) if settings.agreement else {}
    room = settings.agreement - len(pairs)
    chosen = [key for key in asked if key not in pairs][: max(room, 0)]
    if not chosen:
        return
    seconds = _replies({f"{key}{_SECOND}": asked[key] for key in chosen}, settings)
    for key in chosen:
        first, second = (
            None if isinstance(value, Missing) else value
            for value in (
                _verdict(replies[key], settings),
                _verdict(seconds[f"{key}{_SECOND}"], settings),
            )
        )
        pairs[key] = first, second
    if len(pairs) >= settings.agreement:
        log.warning("%s", _agreement(settings.name, list(pairs.values())))


def notices() -> list[str]:
    """How far two calls of each judge agreed, where that was asked for."""
    return [_agreement(name, list(pairs.values())) for name, pairs in TALLY.twice.items() if pairs]


def _agreement(name: str, pairs: Sequence[tuple[float | None, float | None]]) -> str:
    both = [(a, b) for a, b in pairs if a is not None and b is not None]
    apart = [abs(a - b) for a, b in both]
    text = f"judge {name}, asked twice on {len(pairs)} documents: "
    if both:
        same = sum(each == 0.0 for each in apart)
        text += (
            f"the same verdict on {same} of {len(both)}, {sum(apart) / len(both):.3g} apart on "
            f"average and {max(apart):g} at most"
        )
    if lacking := len(pairs) - len(both):
        text += f"{'; ' if both else ''}one verdict or both missing on {lacking}"
    return text


# --- what a reader has to know


def warnings(settings: Mapping[str, Any], candidates: Mapping[str, str]) -> list[str]:
    """What a reader of judged results has to know before the first verdict: family ties."""
    return family_warnings(judge_settings(settings).name, candidates)


def signature(name: str, settings: Mapping[str, Any]) -> str:
    """Judge, and a hash of rubric and scale."""
    own = judge_settings(settings)
    parts = {key: asdict(own)[key] for key in ("rubric", "system", "scale", "max_tokens")}
    if own.reasoning_effort:
        parts["reasoning_effort"] = own.reasoning_effort
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]
    return f"{name}|{own.name}|rubric:{digest}"
