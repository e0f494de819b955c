"""Replies of judges on disk, so that none is paid for twice.

This module owns the cache's file and its keys. Neither holds a key of a server, nor an address.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import UsageError
from lm_eval_adaptive.metrics.base import encodable
from lm_eval_adaptive.metrics.judging.reply import Reply
from lm_eval_adaptive.redact import hide

if TYPE_CHECKING:
    from lm_eval_adaptive.metrics.judging.config import JudgeSettings


def cache_folder() -> Path:
    """Where verdicts are kept: ``LMEVAL_ADAPTIVE_CACHE``, else the user's cache folder."""
    given = os.environ.get("LMEVAL_ADAPTIVE_CACHE", "").strip()
    if given:
        return Path(given).expanduser()
    base = os.environ.get("XDG_CACHE_HOME", "").strip()
    return (Path(base) if base else Path.home() / ".cache") / "lm_eval_adaptive"


class VerdictCache:
    """Replies in one SQLite file that several runs may share.

    Replies are kept rather than numbers, so that what a reply means can be read anew.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "judge.sqlite"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = threading.Lock()
            self._file = sqlite3.connect(self._path, timeout=60, check_same_thread=False)
            with self._lock, self._file:
                self._file.execute(
                    "CREATE TABLE IF NOT EXISTS replies "
                    "(key TEXT PRIMARY KEY, judge TEXT, reply TEXT)"
                )
                for column in ("finish TEXT DEFAULT ''", '"limit" INTEGER DEFAULT 0'):
                    with suppress(sqlite3.OperationalError):  # it has the column
                        self._file.execute(f"ALTER TABLE replies ADD COLUMN {column}")
        except (OSError, sqlite3.Error) as error:
            raise self._refusal(error) from error

    def _refusal(self, error: Exception) -> UsageError:
        return UsageError(
            f"the judge's cache {self._path} cannot be used ({error}); name another folder with "
            "LMEVAL_ADAPTIVE_CACHE"
        )

    def get(self, key: str) -> Reply | None:
        """The reply under a key."""
        try:
            with self._lock:
                row = self._file.execute(
                    'SELECT reply, finish, "limit" FROM replies WHERE key = ?', (key,)
                ).fetchone()
        except (sqlite3.Error, OverflowError) as error:
            raise self._refusal(error) from error
        return None if row is None else Reply(str(row[0]), str(row[1] or ""), int(row[2] or 0))

    def put(self, key: str, judge: str, reply: Reply) -> None:
        """Keep a reply, on disk when this returns."""
        row = key, encodable(judge), encodable(reply.text), encodable(reply.finish), reply.limit
        try:
            with self._lock, self._file:
                self._file.execute(
                    'INSERT OR REPLACE INTO replies (key, judge, reply, finish, "limit") '
                    "VALUES (?, ?, ?, ?, ?)",
                    row,
                )
        except sqlite3.Error as error:
            raise self._refusal(error) from error


def verdict_key(messages: list[dict[str, str]], answer: str, settings: JudgeSettings) -> str:
    """Hash of what a verdict depends on: rubric, judge, prompt, answer."""
    parts: dict[str, Any] = {
        "rubric": settings.rubric,
        "scale": settings.scale,
        "judge": [settings.harness, hide(settings.model_args), settings.model],
        "max_tokens": settings.max_tokens,
        "messages": messages,
        "answer": answer,
    }
    if settings.reasoning_effort:
        parts["reasoning_effort"] = settings.reasoning_effort
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
