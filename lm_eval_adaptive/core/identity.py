"""Which document is which: the hash that names an item, whatever the order of its columns.

The harness's own ``doc_hash`` follows the order of a document's columns, so one document carries
several of them. Items are therefore named by :func:`content_hash`, and :func:`item_keys` tells
documents apart that repeat word for word.

The rule. A document is first brought into the form in which the harness writes it to a log, so
that a live document and a logged one have the same hash: numpy numbers and booleans become
Python's, tuples become lists, keys become strings, and objects that JSON does not know (dates,
bytes) become their ``str``. Beyond what the harness does, arrays become lists, sets become sorted
lists, and an image becomes the SHA-256 of its PNG file (which is what the harness logs for
multimodal models). An object that prints its memory address is refused, because its text would
differ from run to run. The result is dumped as JSON with sorted keys, compact separators and
unescaped characters; the hash is the SHA-256 of its UTF-8 bytes, in hexadecimal.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from lm_eval_adaptive.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def content_hash(doc: Mapping[str, Any]) -> str:
    """Hash of a live document: the same for any order of its columns.

    Args:
        doc: A document as a task yields it; values may hold numpy numbers, dates, bytes, images.

    Returns:
        64 hexadecimal digits.

    Raises:
        DataError: The document holds an object whose text contains a memory address.

    >>> content_hash({"a": 1, "b": "ü"}) == content_hash({"b": "ü", "a": 1})
    True
    >>> content_hash({"a": 1}) == content_hash({"a": 2})
    False
    """
    # Writing and reading once gives every key and value the type a log would hold; only then is
    # the sort by key the same for a live document with integer keys and for its logged twin.
    return content_hash_of_json(json.loads(json.dumps(dict(doc), default=_as_logged)))


def content_hash_of_json(doc: Mapping[str, Any]) -> str:
    """Hash of a document that was read from JSON, equal to :func:`content_hash` and quicker.

    Args:
        doc: A document made of the types that ``json.loads`` returns, nothing else.

    Returns:
        64 hexadecimal digits.
    """
    text = json.dumps(doc, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def item_keys(
    hashes: Sequence[str], doc_ids: Sequence[int], repeated: frozenset[str] | None = None
) -> tuple[str, ...]:
    """Names of items: the content hash, with the ``doc_id`` where documents repeat exactly.

    Args:
        hashes: Content hashes of all documents of a task, one each.
        doc_ids: Their ids in the task, same length.
        repeated: Hashes that are known to repeat; counted among ``hashes`` when left out. Pass it
            where ``hashes`` holds only a part of the documents.

    Returns:
        One key per document: ``hash``, or ``hash#doc_id`` for each of the repeating ones.

    >>> item_keys(["aa", "bb", "aa"], [0, 1, 2])
    ('aa#0', 'bb', 'aa#2')
    """
    if repeated is None:
        repeated = frozenset(h for h, count in Counter(hashes).items() if count > 1)
    return tuple(
        f"{digest}#{doc_id}" if digest in repeated else digest
        for digest, doc_id in zip(hashes, doc_ids, strict=True)
    )


def _as_logged(value: Any) -> Any:
    """What stands in for an object that JSON does not know; see the rule of this module."""
    if isinstance(value, np.generic):
        return value.item() if isinstance(value, np.bool_ | np.number) else str(value)
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, set | frozenset):
        return sorted(value, key=lambda v: json.dumps(v, sort_keys=True, default=_as_logged))
    if type(value).__module__.startswith("PIL.") and hasattr(value, "save"):
        png = io.BytesIO()
        value.save(png, format="PNG")
        return hashlib.sha256(png.getvalue()).hexdigest()
    text = str(value)
    if _ADDRESS.search(text):
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise DataError(
            f"a document holds a {kind}, whose text contains a memory address ({text[:60]!r}), so "
            "the document cannot be recognised again; turn the value into text or numbers in the "
            "task's process_docs"
        )
    return text
