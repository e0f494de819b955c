"""What a file is, told from its beginning: the harness's samples, or another program's output.

The module owns the names of formats that people take for the harness's logs, so that a refusal can
say what a file is instead of what it lacks. It reads a file's first bytes and nothing more.
"""

from __future__ import annotations

import gzip
import re
import zipfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_HEAD = 1 << 16

# A kind, and the keys that all have to stand in a file's beginning (the outermost object, or the
# first of a list or of the lines). The first that fits is taken.
_KINDS: tuple[tuple[str, Sequence[str]], ...] = (
    ("an inspect_ai log", ("eval", "plan", "status")),
    ("an inspect_ai log", ("eval", "status", "version")),
    ("HELM's scenario state (scenario_state.json)", ("adapter_spec", "request_states")),
    ("HELM's per-instance statistics", ("instance_id", "stats")),
    ("HELM's run specification", ("scenario_spec", "adapter_spec")),
    ("HELM's statistics of a run (stats.json)", ("name", "count", "sum", "sum_squared")),
    ("OpenCompass predictions", ("origin_prompt", "prediction")),
    ("an lm_eval results file, which holds no documents; give the samples_… beside it",
     ("results", "configs", "versions")),
    ("an lm_eval results file of its first generation (0.3), which holds no documents",
     ("results", "versions", "config")),
    ("a log of OpenAI Evals", ("run_id", "sample_id", "type", "data")),
    ("a log of OpenAI Evals", ("spec", "base_eval")),
    ("a log of OpenAI Evals", ("spec", "completion_fns")),
    ("AlpacaEval annotations", ("instruction", "output_1", "output_2")),
    ("AlpacaEval outputs", ("instruction", "output", "generator")),
    ("FastChat (MT-bench) judgments", ("question_id", "judge", "score")),
    ("FastChat (MT-bench) answers", ("question_id", "model_id", "choices")),
    ("HumanEval-like completions", ("task_id", "completion")),
    ("EvalPlus solutions", ("task_id", "solution")),
    ("OpenAI batch output", ("custom_id", "response")),
    ("a promptfoo result", ("evalId", "results")),
    ("ZeroEval output", ("session_id", "chat_history", "output")),
    ("an EvalScope prediction", ("index", "model_output", "sample_score")),
    ("a lighteval results file", ("config_general", "results")),
    ("an Every Eval Ever aggregate", ("schema_version", "evaluation_results")),
    ("Every Eval Ever records", ("schema_version", "sample_hash")),
    ("an adaptive run's journal; give the folder of the run", ("type", "record")),
    ("an adaptive run's ranking; give the folder of the run", ("ranking", "pairs")),
)  # fmt: skip


def kind_of(path: Path) -> str | None:
    """What another program's file is, None where it is not known (or is the harness's samples).

    >>> import json, pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "log.json"
    >>> _ = file.write_text(json.dumps({"version": 2, "status": "success", "eval": {}}))
    >>> kind_of(file)
    'an inspect_ai log'
    """
    if path.name.endswith(".parquet"):
        return _kind_of_parquet(path)
    if path.name.endswith(".eval"):
        return "an inspect_ai log" if zipfile.is_zipfile(path) else None
    head = _head(path)
    if head is None:
        return None
    if head[:1] not in (b"{", b"["):
        return _kind_of_text(head)
    if re.match(rb'\[\s*\[\s*"', head):
        return "generations of the bigcode evaluation harness"
    keys = _outer_keys(head)
    if "doc_id" in keys or not keys:
        return None
    if "type" in keys and re.search(rb'"(?:bank_hash|lm_eval_adaptive)"', head):
        return "an adaptive run's journal; give the folder of the run"
    for kind, wanted in _KINDS:
        if keys.issuperset(wanted):
            return kind
    if "0" in keys and re.search(rb'"origin_prompt"|"prediction"', head):
        return "OpenCompass predictions"
    if re.search(rb'"instance_id"\s*:', head) and re.search(rb'"train_trial_index"', head):
        return "HELM's per-instance statistics"
    return None


def starts_samples(path: Path) -> bool:
    """Whether a file begins as the harness's samples do: with a list, or a row's doc_id."""
    head = _head(path)
    return head is not None and re.match(rb'\[|\{\s*"doc_id"', head) is not None


def is_samples_parquet(path: Path) -> bool:
    """Whether a Parquet file has the columns of the harness's samples."""
    names = _parquet_names(path)
    return "doc_id" in names and bool(names & {"resps", "filtered_resps", "arguments"})


def table_kind(columns: Sequence[str]) -> str | None:
    """What a table with these columns is, where it holds no score per document.

    >>> table_kind(["dataset", "version", "metric", "mode", "llama"])
    'an OpenCompass summary, which holds one score a data set and none of documents'
    """
    names = {str(name).strip().lower() for name in columns}
    if {"dataset", "version", "metric", "mode"} <= names:
        return "an OpenCompass summary, which holds one score a data set and none of documents"
    if {"eval_name", "precision", "fullname"} <= names or "average ⬆️" in names:
        return "the Open LLM Leaderboard's table, which holds one score a task, none of documents"
    if {"tasks", "version", "filter", "n-shot", "metric"} <= names:
        return "the harness's table of results, which holds one score a task and none of documents"
    return None


def _kind_of_text(head: bytes) -> str | None:
    first = head.split(b"\n", 1)[0].decode("utf-8", "replace")
    if kind := table_kind(re.split(r"[,\t;]", first)):
        return kind
    if head.startswith(b"PK\x03\x04"):
        return "a ZIP archive; unpack it first"
    if re.search(rb"tabulate format\s*\n\^", head):
        return "an OpenCompass summary, which holds one score a data set and none of documents"
    return None


def _kind_of_parquet(path: Path) -> str | None:
    names = _parquet_names(path)
    if {"full_prompt", "example", "predictions"} <= names:
        return "the details of the first Open LLM Leaderboard (lighteval's format)"
    if {"doc", "metric", "model_response"} <= names or {"__metrics", "__doc__"} <= names:
        return "lighteval's details"
    return None


def _parquet_names(path: Path) -> set[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return set(pq.read_schema(path).names)
    except (OSError, pa.ArrowException):
        return set()


def _head(path: Path) -> bytes | None:
    """A file's first bytes, unpacked, without white space before them; None if unreadable."""
    try:
        if path.name.endswith(".gz"):
            with gzip.open(path) as packed:
                head = packed.read(_HEAD)
        elif path.name.endswith(".zst"):
            import pyarrow as pa

            with pa.input_stream(str(path), compression="zstd") as stream:
                head = bytes(stream.read(_HEAD))
        else:
            with path.open("rb") as file:
                head = file.read(_HEAD)
    except (OSError, EOFError):
        return None
    return head.removeprefix(b"\xef\xbb\xbf").lstrip()


def _outer_keys(head: bytes) -> set[str]:
    """Keys of the first object of a JSON text that may be cut off anywhere."""
    keys: set[str] = set()
    depth = 0
    # Strings are taken whole, so that braces within them do not count.
    tokens: Any = re.finditer(rb'"((?:[^"\\]|\\.)*)"\s*(:?)|[{}\[\]]', head)
    for token in tokens:
        text = token[0]
        if text == b"{" or (text == b"[" and depth > 0):
            depth += 1
        elif text in (b"}", b"]"):
            depth -= 1
            if depth <= 0:
                break
        elif token[2] and depth == 1:
            keys.add(token[1].decode("utf-8", "replace"))
    return keys
