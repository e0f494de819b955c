"""The redactor: what must not be read in a file, a message or on a page. Keys, passwords, cookies.

This module owns what counts as a secret: by its name (``api_key``, ``X-Auth``, …), by its form
(``sk-…``, ``Bearer …``, ``user:password@``, …) and by its value (what the environment holds under
such a name, and what this process was given under one). Settings pass through :func:`redact` where
they become records, messages through :func:`hide` where they become text. It imports the standard
library only, so that every room can use it.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

HIDDEN = "[hidden]"

# Shorter values are words that texts are full of: they are hidden where they stand under a secret's
# name, and left alone elsewhere.
_SHORTEST = 6

_PARTS = (
    r"key|token|secret|passw|passphrase|passwd|pwd|auth|cookie|sig|credential|jwt|bearer|hmac"
    r"|session"
)
_WORDS = frozenset({"passw", "pwd", "authentication", "sig", "jwt", "bearer", "hmac", "sessionid"})
_ENDINGS = (
    "key", "keys", "token", "tokens", "secret", "secrets", "password", "passwords", "passwd",
    "passphrase", "auth", "authorization", "cookie", "cookies", "credential", "credentials",
    "signature",
)  # fmt: skip
_STARTS = ("secret", "password", "passwd", "passphrase", "apikey", "authorization", "credential")
# Names with such a word in them that hide nothing.
_HARMLESS = re.compile(
    r"(?:max|min|num|total)\w*tokens|(?:prompt|completion|input|output|new|n|stop|skip)_tokens\w*"
    r"|tokens_per_\w+|skip_special_tokens"
    r"|[\w.-]*tokeni[sz]\w*|author(?:s|ity)?\b.*|x?authority"
    r"|(?:add|think|eos|bos|pad|unk|end|mask|sep|cls|prefix|image|special)(?:_[a-z]+)*_tokens?"
    r"|[\w.-]*tokens?_ids?|(?:num|max|min|n|sort)_[\w.-]*keys?\w*|(?:mon|tur|hoc|don|whis|joc)key"
    r"|\w*(?:Error|Exception|Warning)",
    re.IGNORECASE,
)
# Variables that say where a secret is, and are none.
_PLACES = re.compile(r"(?i)^(?:old)?pwd$|(?:path|file|dir|home|sock|url|host|endpoint|id|name)$")
_NO_VALUE = frozenset({"", "none", "null", "true", "false", "yes", "no", "empty", HIDDEN})
# Texts in which a word before a colon is prose: what stands after it is no setting.
_PROSE = frozenset(
    {"system_instruction", "chat_template", "apply_chat_template", "until", "stop", "description"}
)
# What of a task's configuration is settings.
_TASK_SETTINGS = frozenset({"generation_kwargs", "metadata", "dataset_kwargs"})

_SCHEMES = r"(?:Bearer|Basic|Token|Digest|ApiKey|Negotiate)"
# name=value, "name": "value", 'name': b'value', \"name\": \"value\", …
_NAMED = re.compile(
    rf"""(?<![\w.-])
    (?P<name>[\w.-]*?(?:{_PARTS})[\w.-]*)
    (?P<sep>\\*["']?\s*[=:]\s*(?:b(?=["']))?)
    (?:(?P<quote>\\*["'])(?P<quoted>.*?)(?P=quote)
      |(?P<bare>\[hidden(?::\w+)?\]|(?:{_SCHEMES}\s+)?[^\s"',;&|<>}})\]\\]+))""",
    re.IGNORECASE | re.VERBOSE,
)
_COOKIE = re.compile(r"""\b((?:set-)?cookie\s*:\s*)([^\n"']+)""", re.IGNORECASE)
# How many letters and digits a key has at the least after its mark: names of models and groups
# (hf-internal-testing) begin alike.
_FORMS = (
    # user:password of an address, quoted as it has to be or not
    re.compile(r"(?<=://)[^\s/?#\"'<>:]+:(?!\d+[/?#])[^\s\"'<>,]*(?=@)"),
    re.compile(r"(?<=://)[^\s/?#\"'<>]*(?=@)"),
    re.compile(
        r"(?<![\w./@-])[\w.+%~-]+:[^\s:@/\"',]+(?=@(?:[\w-]+\.[\w.-]+|localhost|[\w-]+:\d))"
    ),
    re.compile(r"(?i)(?<=\bBearer )\s*[\w.~+/=-]{4,}"),
    re.compile(r"(?<=\b[Bb]asic )(?=[\w~+/-]*[A-Z0-9=])[\w~+/=-]{6,}"),
    re.compile(r"(?<![\w-])sk-[\w*.-]{6,}"),
    re.compile(r"(?<![\w-])[psr]k_(?:live|test|prod)_[\w*.-]{6,}"),
    re.compile(r"(?<![\w-])(?:hf|api_org)_[A-Za-z0-9*]{10,}(?![\w-])"),
    re.compile(r"(?<![\w-])gsk_[\w*.-]{6,}|(?<![\w-])xai-[\w*.-]{8,}"),
    re.compile(r"(?<![\w-])gh[pousr]_\w{10,}|(?<![\w-])github_pat_\w{10,}"),
    re.compile(r"(?<![\w-])glpat-[\w-]{10,}|(?<![\w-])xox[abprs]-[\w-]{8,}"),
    re.compile(r"(?<![\w-])AIza[\w-]{20,}"),
    re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{12,}"),
    re.compile(r"\beyJ[\w-]{5,}\.[\w-]+(?:\.[\w-]*)?"),
    re.compile(
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)", re.DOTALL
    ),
)

# What this process was given under a secret's name: servers quote it under none.
_GIVEN: set[str] = set()


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether what stands under a name is a secret, in any case and spelling.

    >>> [is_secret_name(each) for each in ("OpenAI-Api-Key", "xAuth", "x_sig", "APIKEY")]
    [True, True, True, True]
    >>> [is_secret_name(each) for each in ("tokenizer", "max_tokens", "author", "design", "keep")]
    [False, False, False, False, False]
    """
    if _HARMLESS.fullmatch(name):
        return False
    parts = [each for each in re.split(r"[^a-z0-9]+", name.lower()) if each]
    humps = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    return any(
        each in _WORDS or each.endswith(_ENDINGS) or each.startswith(_STARTS)
        for each in (*parts, *(hump.lower() for hump in humps))
        if not _HARMLESS.fullmatch(each)
    )


def remember(settings: Any) -> None:
    """Take note of the secrets in settings, so that no message of this process quotes one."""
    _GIVEN.update(secrets_of(settings))


def secrets_of(settings: Any) -> set[str]:
    """The values in settings that are secrets by name or form, as text."""
    found: set[str] = set()
    _walk(settings, "", (), found.add)
    return {part for each in found for part in _parts_of(each) if _is_telling(part)}


def _parts_of(secret: str) -> set[str]:
    """A secret, and what of it may be quoted alone: without its scheme, a cookie's value."""
    bare = re.sub(rf"(?i)^{_SCHEMES}\s+", "", secret.strip())
    values = {each.partition("=")[2].strip() for each in re.split("[;&]", bare)}
    return {each for one in (secret, bare, *values) for each in (one, unquote(one))}


def redact(settings: Any, values: Iterable[str] = ()) -> Any:
    """Settings as they may be kept and shown: mappings, lists and texts in any nesting.

    Args:
        settings: Plain data.
        values: Secrets of known value, besides those of the environment.

    >>> redact({"model": "m", "header": {"X-Auth": "abc"}, "max_tokens": 5})
    {'model': 'm', 'header': {'X-Auth': '[hidden]'}, 'max_tokens': 5}
    """
    return _walk(settings, "", _known(values), lambda secret: None)


def redact_results(results: dict[str, Any]) -> dict[str, Any]:
    """The harness's results without the secrets of the settings that they repeat.

    Tasks' own texts are prose, and documents and answers are what they are.
    """
    found = dict(results)
    found["config"] = redact(found.get("config", {}))
    found["configs"] = {
        task: {
            key: redact(value) if key in _TASK_SETTINGS else _walk_prose(value)
            for key, value in config.items()
        }
        for task, config in found.get("configs", {}).items()
    }
    if isinstance(found.get("pretty_env_info"), str):
        found["pretty_env_info"] = hide(found["pretty_env_info"])
    found["samples"] = {
        task: [_sample(each) for each in samples]
        for task, samples in found.get("samples", {}).items()
    }
    return found


def _walk_prose(value: Any) -> Any:
    return _walk({"description": value}, "", _known(), lambda secret: None)["description"]


def _sample(sample: dict[str, Any]) -> dict[str, Any]:
    """A sample whose generation settings are without secrets."""
    sent = sample.get("arguments")
    if not isinstance(sent, list | tuple):
        return sample
    kept = [
        tuple(redact(part) if isinstance(part, dict) else part for part in each)
        if isinstance(each, tuple)
        else each
        for each in sent
    ]
    return {**sample, "arguments": kept}


def hide(text: str, values: Iterable[str] = ()) -> str:
    """A text without secrets: those of known value, and what has a secret's name or form.

    >>> hide("model=m,api_key=abc,base_url=http://me:pw@host/v1")
    'model=m,api_key=[hidden],base_url=http://[hidden]@host/v1'
    >>> hide("max_tokens=5: no such key s3same!", ["s3same!"])
    'max_tokens=5: no such key [hidden]'
    """
    return _hide(without(text, _known(values)), lambda secret: None)


def without(text: str, values: Iterable[str], shortest: int = 4) -> str:
    """The text without secrets of known value; shorter values are words texts are full of."""
    for value in sorted(set(values), key=len, reverse=True):
        if len(value) >= shortest:
            text = text.replace(value, HIDDEN)
    return text


def redact_words(words: Sequence[str]) -> list[str]:
    """The words of a command line as they may be kept.

    Each secret leaves the name of a variable of the environment: the one that held it, else its own
    name in capitals. From that variable it is taken again, see :func:`restore_words`.

    >>> redact_words(["--model_args", "model=m,api_key=abc", "--auth", "x"])
    ['--model_args', 'model=m,api_key=[hidden:API_KEY]', '--auth', '[hidden:AUTH]']
    """
    found = []
    before = ""
    for word in words:
        option = before.lstrip("-") if before.startswith("--") and "=" not in before else ""
        secret = bool(option) and is_secret_name(option) and not word.startswith("--")
        found.append(_mark(option, word) if secret and _is_value(word) else _marked(word))
        before = word
    return found


def variable_of(name: str) -> str:
    """The variable of the environment that a secret is taken again from, unless another held it.

    >>> variable_of("X-Auth")
    'X_AUTH'
    """
    return re.sub(r"[^A-Z0-9]+", "_", name.upper()).strip("_")


_MARK = re.compile(r"\[hidden(?::(\w+))?\]")


def restore_words(
    words: Sequence[str], environment: Mapping[str, str] | None = None
) -> tuple[list[str], list[str]]:
    """A kept command line with its secrets taken from the environment.

    Returns:
        The words, and the names of the variables that are missing; "" stands for a secret without.
    """
    held = os.environ if environment is None else environment
    missing: list[str] = []

    def given(found: re.Match[str]) -> str:
        value = held.get(found[1] or "", "")
        if not value and (found[1] or "") not in missing:
            missing.append(found[1] or "")
        return value or found[0]

    return [_MARK.sub(given, word) for word in words], missing


def same_but_for_secrets(then: Any, now: Any) -> bool:
    """Whether two settings are equal where neither of them is hidden."""
    if isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        return all(map(same_but_for_secrets, then, now))
    if isinstance(then, str) and isinstance(now, str) and then != now:
        return any(_fits(*each) for each in ((then, now), (now, then)))
    if HIDDEN in (then, now):
        return True
    return bool(then == now)


def _fits(pattern: str, text: str) -> bool:
    if not _MARK.search(pattern):
        return False
    kept = _MARK.split(pattern)[::2]  # the pieces between the marks
    return re.fullmatch(".*".join(map(re.escape, kept)), text, re.DOTALL) is not None


def _known(values: Iterable[str] = ()) -> frozenset[str]:
    """Values that are hidden wherever they stand."""
    return frozenset({*values, *_GIVEN, *_of_environment()})


def _of_environment() -> dict[str, str]:
    """Values of the environment that are secrets, with the name of their variable."""
    return {
        value.strip(): name
        for name, value in os.environ.items()
        if is_secret_name(name) and not _PLACES.search(name) and _is_telling(value.strip())
    }


def _is_telling(value: str) -> bool:
    """Whether a value can be looked for in texts without blanking words of them."""
    return (
        len(value) >= _SHORTEST
        and value.lower() not in _NO_VALUE
        and not (value.isdecimal() and len(value) < 8)
    )


def _is_value(value: Any) -> bool:
    """Whether what stands under a secret's name can be a secret."""
    if value is None or isinstance(value, bool):
        return False
    return str(value).strip().lower() not in _NO_VALUE and not _MARK.fullmatch(str(value))


def _walk(value: Any, name: str, known: Iterable[str], tell: Callable[[str], None]) -> Any:
    """Settings without secrets; ``name`` is that of the nearest mapping's key that is a secret's.

    Args:
        value: Plain data.
        name: Under which it stands.
        known: Values to be hidden wherever they stand.
        tell: Called with every value that was hidden by name or form.
    """
    if isinstance(value, dict):
        return {
            key: _walk(each, _name_under(name, key, value), known, tell)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        pair = len(value) == 2 and isinstance(value[0], str) and is_secret_name(value[0])
        if pair and not is_secret_name(name):  # ["X-Auth", "…"], as some headers are written
            return type(value)((value[0], _walk(value[1], value[0], known, tell)))
        return type(value)(_walk(each, name, known, tell) for each in value)
    if is_secret_name(name) and isinstance(value, str | bytes | int | float):
        if not _is_value(value):
            return value
        tell(str(value))
        return HIDDEN
    if not isinstance(value, str):
        return value
    if value in known:
        return HIDDEN
    text = without(value, known)
    return _by_form(text, tell) if name in _PROSE else _hide(text, tell)


def _name_under(name: str, key: Any, mapping: Mapping[Any, Any]) -> str:
    """The name that a value of a mapping goes by."""
    if is_secret_name(name):
        return name
    if key == "value":  # {"name": "X-Auth", "value": "…"}
        other = mapping.get("name", mapping.get("key"))
        if isinstance(other, str) and is_secret_name(other):
            return other
    return str(key)


def _hide(text: str, tell: Callable[[str], None]) -> str:
    text = _COOKIE.sub(lambda found: f"{found[1]}{_told(found[2], tell)}", text)
    text = _NAMED.sub(lambda found: _named(found, tell, lambda name, value: HIDDEN), text)
    return _by_form(text, tell)


def _by_form(text: str, tell: Callable[[str], None]) -> str:
    for form in _FORMS:
        text = form.sub(lambda found: _told(found[0], tell) if found[0] else "", text)
    return text


def _told(secret: str, tell: Callable[[str], None]) -> str:
    if _MARK.search(secret):
        return secret
    tell(secret)
    if ":" in secret:  # user:password
        tell(secret.partition(":")[2])
    return HIDDEN


def _named(
    found: re.Match[str], tell: Callable[[str], None], mark: Callable[[str, str], str]
) -> str:
    name, separator, quote = found["name"], found["sep"], found["quote"] or ""
    value = found["quoted"] if found["bare"] is None else found["bare"]
    if not is_secret_name(name):
        inner = _NAMED.sub(lambda each: _named(each, tell, mark), value)
        return f"{name}{separator}{quote}{inner}{quote}"
    if not _is_value(value):
        return found[0]
    tell(value)
    return f"{name}{separator}{quote}{mark(name, value)}{quote}"


def _mark(name: str, value: str) -> str:
    """What stands in a kept command line for a secret."""
    return f"[hidden:{_of_environment().get(value.strip()) or variable_of(name)}]"


def _marked(word: str) -> str:
    for value, name in sorted(_of_environment().items(), key=lambda each: -len(each[0])):
        word = word.replace(value, f"[hidden:{name}]")
    word = _NAMED.sub(lambda found: _named(found, lambda secret: None, _mark), word)
    return hide(word)
