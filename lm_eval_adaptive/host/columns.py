"""Which columns of a document a task truly reads: what the model sees and is held against.

A document's source, an updated id or a picture's path may change and leave the item what it was.
This module owns the question which columns count, asked of a task's configuration, live or as a
log holds it; where a function hands the whole document on, nobody can tell, and
``host/sight.py`` tells documents apart by what is seen of them.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.core.identity import content_hash, content_hash_of_json

if TYPE_CHECKING:
    from collections.abc import Mapping

# Parts of a configuration that are given a document; the model is asked by the first.
_PARTS = (
    "doc_to_text",
    "doc_to_target",
    "doc_to_choice",
    "gen_prefix",
    "description",
    "doc_to_image",
    "doc_to_audio",
    "process_results",
)
# How the text of a function begins in a log, where templates stand in the same place.
_CODE = ("def ", "@", "class ", "lambda", "functools.partial", "<")


def columns_read(config: Mapping[str, Any]) -> frozenset[str] | None:
    r"""The columns that a task reads, None where that cannot be known.

    ``process_docs`` does not count: what it makes is the document.

    Args:
        config: The task's configuration; functions as such or as their text.

    >>> sorted(columns_read({"doc_to_text": "Q: {{question}}", "doc_to_target": "answer"}))
    ['answer', 'question']
    >>> columns_read({"doc_to_text": "def text(doc):\\n    return str(doc)"}) is None
    True
    """
    if config.get("doc_to_text") is None or config.get("use_prompt") or config.get("class"):
        return None
    found: set[str] = set()
    for part in _PARTS:
        columns = _columns_of(config.get(part))
        if columns is None:
            return None
        found |= columns
    return frozenset(found)


def is_code(part: str) -> bool:
    """Whether a part of a logged configuration is the text of a function, not a template."""
    return part.lstrip().startswith(_CODE)


def seen_hash(doc: Mapping[str, Any], columns: frozenset[str] | None) -> str:
    """Hash of what a task reads of a live document."""
    return content_hash(doc if columns is None else _only(doc, columns))


def seen_hash_of_json(doc: Mapping[str, Any], columns: frozenset[str] | None) -> str:
    """Hash of what a task reads of a logged document; as :func:`seen_hash`, and quicker."""
    return content_hash_of_json(doc if columns is None else _only(doc, columns))


def _only(doc: Mapping[str, Any], columns: frozenset[str]) -> dict[str, Any]:
    return {name: doc[name] for name in doc if name in columns}


def _columns_of(part: Any) -> set[str] | None:
    if part is None or isinstance(part, bool | int | float):
        return set()
    if isinstance(part, list | tuple):
        found: set[str] = set()
        for each in part:
            columns = _columns_of(each)
            if columns is None:
                return None
            found |= columns
        return found
    if callable(part):
        try:
            return _columns_of_code(inspect.getsource(part))
        except (OSError, TypeError):
            return None
    if not isinstance(part, str):
        return None
    if is_code(part):
        return _columns_of_code(part)
    return _columns_of_template(part)


def _columns_of_template(text: str) -> set[str] | None:
    """The variables of a template; a text without any may be a column's name."""
    from jinja2 import Environment, TemplateSyntaxError, meta

    try:
        found = meta.find_undeclared_variables(Environment(autoescape=True).parse(text))
    except TemplateSyntaxError:
        return None
    return found or {text}


def _columns_of_code(text: str) -> set[str] | None:
    """The columns that a function reads by name, None where it uses its document otherwise."""
    try:
        body = ast.parse(textwrap.dedent(text)).body
    except SyntaxError:
        return None
    if len(body) != 1 or not isinstance(body[0], ast.FunctionDef):
        return None
    function = body[0]
    parameters = [*function.args.posonlyargs, *function.args.args]
    if function.decorator_list or not parameters:
        return None
    name = parameters[0].arg
    found: set[str] = set()
    known: set[int] = set()
    for node in ast.walk(function):
        column = _column_of(node, name)
        if column is not None:
            found.add(column[0])
            known.add(id(column[1]))
    uses = [node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id == name]
    return found if all(id(node) in known for node in uses) else None


def _column_of(node: ast.AST, name: str) -> tuple[str, ast.Name] | None:
    """The column that ``doc["column"]`` or ``doc.get("column")`` reads, and the document there."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        owner, key = node.value, node.slice
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "get"
        and node.args
    ):
        owner, key = node.func.value, node.args[0]
    else:
        return None
    if not (isinstance(owner, ast.Name) and owner.id == name and isinstance(key, ast.Constant)):
        return None
    return (key.value, owner) if isinstance(key.value, str) else None
