"""A language model as judge: a rubric, a scale, one verdict per answer.

This module owns rubric, request, verdict and their cache. The judge is any server of the OpenAI
chat protocol (through the standard library) or a model of the harness. A reply without a verdict
is no score: it is counted, and the document is left out.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import re
import sqlite3
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import ModelError, UsageError
from lm_eval_adaptive.metrics.base import NAN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lm_eval_adaptive.metrics.base import Case

    Messages = list[dict[str, str]]

log = logging.getLogger(__name__)

_NUMBER = r"(-?\d+(?:\.\d+)?)"
# "Score: 7", "**Rating:** [[7]]", '"score": 7', "Score: 7/10"; the last one counts, after the
# reasons. A bare number is a verdict only where it is the whole reply.
_NAMED = re.compile(
    rf"(?:score|rating|verdict|grade)\b[\s\"'*_`:=]*(?:is\s+|[-–]\s+)?[\[\s*_(]*{_NUMBER}"
    r"(?![\w.]*\d)(?!\s*[-–]\s*\d)",
    re.IGNORECASE,
)
_BARE = re.compile(rf"[\s\"'*_`\[(]*{_NUMBER}\s*(?:/\s*\d+)?[\s\"'*_`\])]*\.?\s*")
_RETRIED = {408, 409, 425, 429, 500, 502, 503, 504, 529}


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
        concurrency: Requests at once.
        retries: Further attempts where the server is busy or away.
        backoff: Seconds before the first of them; doubled each time.
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
    concurrency: int = 8
    retries: int = 5
    backoff: float = 1.0
    timeout: float = 120.0

    @property
    def name(self) -> str:
        """The judge in words."""
        return f"{self.harness}({self.model_args})" if self.harness else self.model


def judge_settings(settings: Mapping[str, Any]) -> JudgeSettings:
    """Settings from the task's YAML, over which the environment has the last word.

    ``LMEVAL_ADAPTIVE_JUDGE_MODEL`` and ``LMEVAL_ADAPTIVE_JUDGE_URL`` name judge and server; the
    key is taken from ``OPENAI_API_KEY``, as the harness does.

    Raises:
        UsageError: Something is missing, unknown or of the wrong kind.
    """
    values = dict(settings)
    for key, variable in (
        ("model", "LMEVAL_ADAPTIVE_JUDGE_MODEL"),
        ("base_url", "LMEVAL_ADAPTIVE_JUDGE_URL"),
    ):
        given = os.environ.get(variable, "").strip()
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
        numbers = {
            key: kind(values[key])
            for key, kind in (
                ("max_tokens", int),
                ("concurrency", int),
                ("retries", int),
                ("backoff", float),
                ("timeout", float),
            )
            if key in values
        }
    except (TypeError, ValueError) as error:
        raise UsageError(f"metadata.metrics.judge: {error}; numbers were expected") from error
    if not lo < hi:
        raise UsageError(f"metadata.metrics.judge.scale must be [low, high], got [{lo}, {hi}]")
    if numbers.get("concurrency", 1) < 1 or numbers.get("retries", 0) < 0:
        raise UsageError("metadata.metrics.judge: concurrency must be 1 or more, retries 0 or more")
    return JudgeSettings(**{**values, **numbers, "scale": (lo, hi)})


def read_verdict(reply: str, scale: tuple[float, float]) -> float | None:
    r"""The number a judge gave, None where there is none on the scale.

    >>> read_verdict("Mostly right, one date is wrong.\nScore: 7/10", (1, 10))
    7.0
    >>> read_verdict("I would say it is fine.", (1, 10)) is None
    True
    """
    named = _NAMED.findall(reply)
    bare = _BARE.fullmatch(reply)
    text = named[-1] if named else bare.group(1) if bare else None
    if text is None:
        return None
    value = float(text)
    return value if scale[0] <= value <= scale[1] else None


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
    """
    from jinja2 import UndefinedError

    try:
        text = _template(settings.rubric).render(**{**case.doc, "answer": case.answer})
    except UndefinedError as error:
        raise UsageError(
            f"metadata.metrics.judge.rubric: {error}; the document has "
            f"{', '.join(case.doc) or 'no columns'}"
        ) from error
    system = [{"role": "system", "content": settings.system}] if settings.system else []
    return [*system, {"role": "user", "content": text}]


# --- asking


def _endpoint(base_url: str) -> str:
    base = base_url.rstrip("/")
    return base if base.endswith("/chat/completions") else f"{base}/chat/completions"


def ask_server(
    messages: Messages, settings: JudgeSettings, sleep: Callable[[float], None] = time.sleep
) -> str:
    """One reply from a server of the OpenAI chat protocol, at temperature 0.

    Raises:
        UsageError: The server refuses the request itself (key, model, address).
        ModelError: It stays busy or away after all attempts.
    """
    url = _endpoint(settings.base_url)
    body = json.dumps(
        {
            "model": settings.model,
            "messages": messages,
            "temperature": 0,
            "max_tokens": settings.max_tokens,
        }
    ).encode()
    headers = {"Content-Type": "application/json"}
    key = os.environ.get("OPENAI_API_KEY")
    if key:
        headers["Authorization"] = f"Bearer {key}"
    problem = ""
    for attempt in range(settings.retries + 1):
        wait = settings.backoff * 2**attempt
        try:
            request = urllib.request.Request(url, body, headers)  # noqa: S310  http as configured
            with urllib.request.urlopen(request, timeout=settings.timeout) as response:  # noqa: S310
                reply = json.load(response)
            content = reply["choices"][0]["message"]["content"]
            return content if isinstance(content, str) else ""
        except urllib.error.HTTPError as error:
            detail = " ".join(error.read(300).decode("utf-8", "replace").split())
            problem = f"HTTP {error.code} {detail[:200]}".rstrip()
            if error.code not in _RETRIED:
                raise UsageError(
                    f"judge {settings.model} at {url} refused the request: {problem}; check "
                    "OPENAI_API_KEY, the model's name and LMEVAL_ADAPTIVE_JUDGE_URL"
                ) from error
            asked = error.headers.get("Retry-After", "")
            wait = max(wait, float(asked)) if asked.isdecimal() else wait
        except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
            # Away, timed out, or a reply that is not of the protocol.
            problem = f"{type(error).__name__}: {error}"
        if attempt < settings.retries:
            sleep(wait)
    raise ModelError(
        f"judge {settings.model} at {url} gave no reply in {settings.retries + 1} attempts "
        f"({problem}); verdicts so far are cached"
    )


@functools.lru_cache(maxsize=1)
def _harness_model(name: str, model_args: str) -> Any:
    import lm_eval.models
    from lm_eval.api.registry import get_model

    assert lm_eval.models
    return get_model(name).create_from_arg_string(model_args)


def ask_harness_model(asked: Sequence[Messages], settings: JudgeSettings) -> list[str]:
    """Replies of a harness model, in one call; its chat template is used where it has one."""
    from lm_eval.api.instance import Instance

    model = _harness_model(settings.harness, settings.model_args)
    options = {
        "until": [],
        "do_sample": False,
        "temperature": 0.0,
        "max_gen_toks": settings.max_tokens,
    }
    requests = []
    for place, messages in enumerate(asked):
        try:
            prompt = model.apply_chat_template(messages)
        except (NotImplementedError, AttributeError, ValueError):
            prompt = "\n\n".join(each["content"] for each in messages)
        requests.append(
            Instance(
                request_type="generate_until",
                doc={},
                arguments=(prompt, dict(options)),
                idx=0,
                metadata=("judge", place, 1),
            )
        )
    return [str(reply or "") for reply in model.generate_until(requests, disable_tqdm=True)]


# --- cache


def cache_folder() -> Path:
    """Where verdicts are kept: ``LMEVAL_ADAPTIVE_CACHE``, else the user's cache folder."""
    given = os.environ.get("LMEVAL_ADAPTIVE_CACHE", "").strip()
    if given:
        return Path(given).expanduser()
    base = os.environ.get("XDG_CACHE_HOME", "").strip()
    return (Path(base) if base else Path.home() / ".cache") / "lm_eval_adaptive"


class VerdictCache:
    """Replies on disk, in one SQLite file that several runs may share.

    Replies are kept rather than numbers, so that what a reply means can be read anew.
    """

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = threading.Lock()
            self._file = sqlite3.connect(
                folder / "judge.sqlite", timeout=60, check_same_thread=False
            )
            with self._lock, self._file:
                self._file.execute(
                    "CREATE TABLE IF NOT EXISTS replies "
                    "(key TEXT PRIMARY KEY, judge TEXT, reply TEXT)"
                )
        except (OSError, sqlite3.Error) as error:
            raise UsageError(
                f"the judge's cache {folder / 'judge.sqlite'} cannot be used ({error}); name "
                "another folder with LMEVAL_ADAPTIVE_CACHE"
            ) from error

    def get(self, key: str) -> str | None:
        """The reply under a key."""
        with self._lock:
            row = self._file.execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def put(self, key: str, judge: str, reply: str) -> None:
        """Keep a reply, on disk when this returns."""
        with self._lock, self._file:
            self._file.execute(
                "INSERT OR REPLACE INTO replies VALUES (?, ?, ?)", (key, judge, reply)
            )


@functools.lru_cache(maxsize=4)
def _cache(folder: Path) -> VerdictCache:
    return VerdictCache(folder)


def verdict_key(case: Case, messages: Messages, settings: JudgeSettings) -> str:
    """Hash of what a verdict depends on: rubric, judge, prompt, answer."""
    parts = {
        "rubric": settings.rubric,
        "scale": settings.scale,
        "judge": [settings.harness, settings.model_args, settings.model],
        "max_tokens": settings.max_tokens,
        "messages": messages,
        "answer": case.answer,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


# --- the metric


@dataclass
class Tally:
    """How the judge did in this process.

    Attributes:
        asked: Replies that were paid for.
        cached: Verdicts that were in the cache.
        unread: Replies without a verdict on the scale, by judge.
    """

    asked: int = 0
    cached: int = 0
    unread: dict[str, int] = field(default_factory=dict)


TALLY = Tally()


def judge(cases: Sequence[Case], settings: Mapping[str, Any]) -> list[float]:
    """The judge's verdict on each answer, on the rubric's scale.

    A blank answer gets the scale's lowest value without a request. NaN where the reply holds no
    verdict: the document is then left out, and :data:`TALLY` counts it.

    Raises:
        UsageError: The settings, or the server's answer to them, are wrong.
        ModelError: The judge cannot be reached; what it said so far is cached.
    """
    own = judge_settings(settings)
    cache = _cache(cache_folder())
    asked: dict[str, Messages] = {}
    keys: list[str | None] = []
    replies: dict[str, str] = {}
    for case in cases:
        if not case.answer.strip():
            keys.append(None)
            continue
        messages = messages_for(case, own)
        key = verdict_key(case, messages, own)
        keys.append(key)
        if key in replies or key in asked:
            continue
        known = cache.get(key)
        if known is None:
            asked[key] = messages
        else:
            replies[key] = known
            TALLY.cached += 1
    replies.update(_ask(asked, own, cache))
    found = []
    unread = 0
    for place in keys:
        verdict = own.scale[0] if place is None else read_verdict(replies[place], own.scale)
        unread += verdict is None
        found.append(NAN if verdict is None else verdict)
    if unread:
        TALLY.unread[own.name] = TALLY.unread.get(own.name, 0) + unread
        log.warning(
            "judge %s: %d of %d replies hold no verdict on %g to %g; their documents are left out",
            own.name, unread, len(cases), *own.scale,
        )  # fmt: skip
    return found


def _ask(
    asked: Mapping[str, Messages], settings: JudgeSettings, cache: VerdictCache
) -> dict[str, str]:
    if not asked:
        return {}
    keys = list(asked)
    if settings.harness:
        replies = ask_harness_model(list(asked.values()), settings)
        for key, reply in zip(keys, replies, strict=True):
            cache.put(key, settings.name, reply)
        TALLY.asked += len(keys)
        return dict(zip(keys, replies, strict=True))

    def one(key: str) -> str:
        reply = ask_server(asked[key], settings)
        cache.put(key, settings.name, reply)  # at once: what is paid for is kept
        return reply

    with ThreadPoolExecutor(min(settings.concurrency, len(keys))) as pool:
        futures = {key: pool.submit(one, key) for key in keys}
        try:
            found = {key: future.result() for key, future in futures.items()}
        except BaseException:
            for future in futures.values():
                future.cancel()
            raise
    TALLY.asked += len(keys)
    return found


# --- who judges whom

_FAMILIES = {
    "openai": ("gpt", "chatgpt", "o1", "o3", "o4", "davinci", "openai"),
    "anthropic": ("claude", "anthropic"),
    "google": ("gemini", "gemma", "palm", "t5gemma"),
    "llama": ("llama", "vicuna", "tulu"),
    "qwen": ("qwen", "qwq", "qvq"),
    "mistral": ("mistral", "mixtral", "ministral", "codestral", "magistral", "zephyr"),
    "deepseek": ("deepseek",),
    "phi": ("phi",),
    "cohere": ("command", "aya", "c4ai"),
    "smollm": ("smollm",),
    "olmo": ("olmo",),
    "falcon": ("falcon",),
    "granite": ("granite",),
    "nemotron": ("nemotron",),
    "glm": ("glm", "chatglm"),
    "yi": ("yi",),
    "grok": ("grok",),
    "kimi": ("kimi", "moonshot"),
    "pythia": ("pythia", "neox"),
}


def family(name: str) -> str | None:
    """Family of a model by its name, None where it is not known.

    >>> family("meta-llama/Llama-3.1-8B-Instruct"), family("gpt-4o"), family("my-model")
    ('llama', 'openai', None)
    """
    # "DeepSeek-R1-Distill-Qwen-7B" is a Qwen in DeepSeek's words: the first part decides.
    for part in re.split(r"[\W_]+", name.rpartition("/")[2].lower()):
        for known, words in _FAMILIES.items():
            if any(re.fullmatch(rf"{word}[\d.]*[a-z]?", part) for word in words):
                return known
    return None


def family_warnings(judge_name: str, candidates: Mapping[str, str]) -> list[str]:
    """A warning per candidate of the judge's own family.

    Args:
        judge_name: The judge's name at its server.
        candidates: What each candidate is made of (model and arguments as text), by its name.
    """
    own = family(judge_name)
    found = []
    for name, text in candidates.items():
        words = [text, *re.split(r"[,=\s]+", text), name]
        if own is not None and own in {family(word) for word in words if word}:
            found.append(
                f"judge {judge_name} and candidate {name} are of one family ({own}): judges favour "
                "their own; compare with another judge"
            )
    return found


def warnings(settings: Mapping[str, Any], candidates: Mapping[str, str]) -> list[str]:
    """What a reader of judged results has to know before the first verdict: family ties."""
    return family_warnings(judge_settings(settings).name, candidates)


def signature(name: str, settings: Mapping[str, Any]) -> str:
    """Judge, and a hash of rubric and scale."""
    own = judge_settings(settings)
    parts = {key: asdict(own)[key] for key in ("rubric", "system", "scale", "max_tokens")}
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]
    return f"{name}|{own.name}|rubric:{digest}"
