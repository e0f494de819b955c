"""``init-task``: from a dataset and a metric to a task of the harness that can be ranked on.

This module owns the text of the files it writes, and the guesses it makes about columns. It knows
the metrics by name only; what it writes is plain harness YAML that its user goes on editing.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import re
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import DataError, UsageError
from lm_eval_adaptive.records.files import check_folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

log = logging.getLogger(__name__)

# Metrics of the harness itself for generated text: range, direction.
_CORE: dict[str, tuple[float, float, bool]] = {
    "exact_match": (0.0, 1.0, True),
    "bleu": (0.0, 100.0, True),
    "chrf": (0.0, 100.0, True),
    "ter": (0.0, 100.0, False),
}
_INPUTS = ("question", "prompt", "input", "instruction", "text", "article", "document", "source")
_TARGETS = (
    "answer",
    "target",
    "reference",
    "summary",
    "output",
    "label",
    "translation",
    "response",
)
_READERS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet"}


@dataclass(frozen=True)
class TaskWish:
    """What ``init-task`` was asked for; see its ``--help``."""

    name: str
    dataset: str
    metric: str
    input_column: str | None = None
    target_column: str | None = None
    prompt: str | None = None
    split: str | None = None
    dataset_name: str | None = None
    revision: str | None = None
    output: str | None = None
    max_gen_toks: int = 256
    overwrite: bool = False


@dataclass(frozen=True)
class WrittenTask:
    """What was written.

    Attributes:
        yaml: The task's file.
        files: All files, the YAML first.
        notices: What the user should know, a line each.
    """

    yaml: Path
    files: tuple[Path, ...]
    notices: tuple[str, ...] = field(default=())


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a local dataset.

    Raises:
        DataError: The file cannot be read, is of another kind, or holds nothing.
    """
    if path.suffix.lower() not in _READERS:
        raise DataError(
            f"{path}: expected a file ending in {', '.join(_READERS)}, got {path.suffix or 'none'}"
        )
    try:
        rows = _parse(path)
    except (OSError, ValueError, RecursionError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{path}: is no intact {path.suffix[1:]} file ({first})") from error
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise DataError(f"{path}: expected a row per document with named columns; it has none")
    return rows


def _parse(path: Path) -> Any:
    import pandas as pd

    kind = path.suffix.lower()
    if kind == ".parquet":
        return pd.read_parquet(path).to_dict("records")
    if kind in (".csv", ".tsv"):
        # As the helper reads it: a cell of "NA" or "None" is a text, an empty one is missing.
        table = pd.read_csv(
            path, sep="\t" if kind == ".tsv" else ",", keep_default_na=False, na_values=[""]
        )
        return table.to_dict("records")
    text = path.read_text(encoding="utf-8")
    if kind == ".json" and text.lstrip().startswith("["):
        return json.loads(text)
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def _column(
    given: str | None, columns: Sequence[str], likely: Sequence[str], option: str, where: str
) -> str:
    if given is not None:
        if columns and given not in columns:
            raise UsageError(
                f"{option} {given}: {where} has no such column; it has {', '.join(columns)}"
            )
        return given
    fits = [name for name in likely if name in columns]
    if not fits:
        there = f"it has {', '.join(columns)}" if columns else "its columns are not looked up"
        raise UsageError(f"name the column with {option} COLUMN of {where}; {there}")
    return fits[0]


def _prompt_columns(prompt: str) -> set[str]:
    from jinja2 import Environment, TemplateSyntaxError, meta

    try:
        return set(meta.find_undeclared_variables(Environment().parse(prompt)))  # noqa: S701  plain text
    except TemplateSyntaxError as error:
        raise UsageError(f"--prompt is no Jinja2 template: {error}") from error


def _template(column: str) -> str:
    """What stands for a column in ``doc_to_text`` and ``doc_to_target``.

    A name that is no variable of Jinja2 stands for itself: the harness takes a text that is a
    column's name as that column.

    >>> _template("class"), _template("right answer"), _template("none")
    ('{{class}}', 'right answer', 'none')
    """
    from jinja2 import Environment, TemplateSyntaxError, meta

    text = f"{{{{{column}}}}}"
    try:
        found = meta.find_undeclared_variables(Environment().parse(text))  # noqa: S701  plain text
    except TemplateSyntaxError:
        return column
    return text if found == {column} else column


def _is_blank(value: Any) -> bool:
    """Whether a document has no right answer here; 0 is one."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return True
    if isinstance(value, str):
        return not value.strip()
    if hasattr(value, "tolist"):
        value = value.tolist()
    return isinstance(value, list | tuple) and all(_is_blank(each) for each in value)


def _refuse_awkward(
    wish: TaskWish, columns: Sequence[str], named: Sequence[str], where: str
) -> None:
    """Refuse columns that no template can be written over.

    Raises:
        UsageError: There is one; the message names it.
    """
    if "self" in columns:
        raise UsageError(
            f"{where}: a column named 'self' cannot be given to Jinja2 templates; rename it"
        )
    odd = [column for column in named if _template(column) == column]
    if odd and wish.metric == "judge":
        raise UsageError(
            f"--metric judge: its rubric cannot name the column {odd[0]!r} of {where}; rename it "
            "to letters, digits and '_'"
        )


def _helper_name(name: str) -> str:
    """The helper's module: the harness takes a dot in it for a folder."""
    return name.replace(".", "_") + "_helper"


def _metric_facts(name: str) -> tuple[float, float, bool, bool]:
    """Range, direction, and whether the metric is this package's own."""
    import difflib

    from lm_eval_adaptive.metrics import METRICS

    if name in _CORE:
        return (*_CORE[name], False)
    if name in METRICS and name not in ("span_score", "bertscore_diff"):
        own = METRICS[name]
        return own.lo, own.hi, own.higher_is_better, True
    known = [*_CORE, *(each for each in METRICS if each not in ("span_score", "bertscore_diff"))]
    near = difflib.get_close_matches(name, known, n=3)
    hint = f"did you mean {', '.join(near)}?" if near else f"choose from {', '.join(known)}"
    raise UsageError(f"--metric {name}: init-task does not know it; {hint}")


def init_task(wish: TaskWish) -> WrittenTask:
    """Write a task's files.

    Args:
        wish: What is wanted. A ``dataset`` that is a file is read here and by the task; any other
            is a name on the hub, whose columns are not looked up.

    Returns:
        What was written.

    Raises:
        UsageError: A name, column or metric is wrong, or a file is there already.
        DataError: The dataset cannot be read.
    """
    if not re.fullmatch(r"[A-Za-z0-9][\w.\-]{0,99}", wish.name):
        shown = wish.name if len(wish.name) <= 100 else f"{wish.name[:20]}…"
        raise UsageError(
            f"task name {shown!r}: use at most 100 letters, digits, '_', '-' and '.', as in my_task"
        )
    if wish.max_gen_toks < 1:
        raise UsageError(f"--max_gen_toks must be at least 1, got {wish.max_gen_toks}")
    lo, hi, higher, own_metric = _metric_facts(wish.metric)
    path = Path(wish.dataset).expanduser()
    local = path.is_file() or path.suffix.lower() in _READERS
    if local and not path.is_file():
        raise UsageError(f"--dataset {path}: no such file")
    if not local and not re.fullmatch(r"[\w.\-]+(/[\w.\-]+)?", wish.dataset):
        raise UsageError(
            f"--dataset {wish.dataset}: neither a file nor a name on the hub such as org/dataset"
        )
    for name in ("split", "dataset_name", "revision") if local else ():
        if getattr(wish, name) is not None:
            raise UsageError(
                f"--{name} is of a dataset on the hub, and --dataset {path} is a file; leave "
                f"--{name} out"
            )
    rows = read_rows(path) if local else []
    columns = list(dict.fromkeys(column for row in rows for column in row))
    where = str(path) if local else f"dataset {wish.dataset}"
    target = _column(wish.target_column, columns, _TARGETS, "--target", where)
    source = _column(wish.input_column, columns, _INPUTS, "--input", where)
    _refuse_awkward(wish, columns, (source, target), where)
    prompt = _template(source) if wish.prompt is None else wish.prompt
    named = set() if wish.prompt is None else _prompt_columns(prompt)
    strange = sorted(named - set(columns)) if columns else []
    if strange:
        raise UsageError(
            f"--prompt names {strange[0]!r}, which is no column of {where}; it has "
            f"{', '.join(columns)}"
        )
    lists = [row for row in rows if not isinstance(row.get(target), str | int | float | None)]
    if lists and not own_metric:
        instead = {"bleu": "sentence_bleu", "chrf": "sentence_chrf"}.get(wish.metric, "rougeL")
        raise UsageError(
            f"--metric {wish.metric}: column {target} holds several references, and the harness "
            f"makes any metric of its own 0 or 1 on those; take {instead}, which scores the best"
        )
    blank = sum(_is_blank(row.get(target)) for row in rows)
    if rows and blank == len(rows):
        raise UsageError(
            f"{where}: no document has a right answer in column {target}; name another with "
            "--target"
        )
    folder = Path(wish.output or wish.name).expanduser()
    check_folder(folder, "--output")
    files = {folder / f"{wish.name}.yaml": ""}
    helper = folder / f"{_helper_name(wish.name)}.py"
    if local or own_metric:
        data = _data_text(wish.name, path, folder, target if blank else None) if local else []
        files[helper] = _helper_text(wish, data, target, source)
    files[folder / f"{wish.name}.yaml"] = _yaml_text(
        wish, local=local, own=own_metric, scale=(lo, hi), higher=higher, target=target,
        source=source, prompt=prompt,
    )  # fmt: skip
    _refuse_surrogates({folder / "--prompt": wish.prompt or "", **files})  # YAML would escape it
    there = [str(file) for file in files if file.exists()]
    if there and not wish.overwrite:
        raise UsageError(f"{there[0]} exists already; choose another --output or add --overwrite")
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        file.write_text(text, encoding="utf-8")
    return WrittenTask(next(iter(files)), tuple(files), tuple(_notices(wish, rows, target, blank)))


def _refuse_surrogates(files: Mapping[Path, str]) -> None:
    """Refuse texts that UTF-8 cannot hold, before a file is begun.

    Raises:
        UsageError: A lone surrogate; where it stands is quoted, as an escape.
    """
    for file, text in files.items():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            at = ascii(text[max(error.start - 20, 0) : error.end])
            raise UsageError(
                f"{file.name} cannot be written: {at} ends in a lone surrogate (bytes that are no "
                "UTF-8), in an option or a column's name; write it in UTF-8"
            ) from error


def _notices(wish: TaskWish, rows: Sequence[dict[str, Any]], target: str, blank: int) -> list[str]:
    from lm_eval_adaptive.metrics import METRICS

    found = []
    if rows:
        found.append(f"{len(rows)} documents")
    if blank:
        found.append(f"{blank} documents have no {target}: they cannot be scored and are left out")
    if rows and len(rows) < 50:
        found.append("fewer than 50 documents leave little to choose from")
    extra = METRICS[wish.metric].extra if wish.metric in METRICS else ""
    if extra:
        found.append(f'{wish.metric} needs pip install "lm-eval-adaptive[{extra}]"')
    if wish.metric == "judge":
        found.append(
            "name the judge with LMEVAL_ADAPTIVE_JUDGE_MODEL and LMEVAL_ADAPTIVE_JUDGE_URL"
        )
    return found


def _places(data: Path, folder: Path) -> list[str]:
    """Where a helper looks for its documents, as Python: the whole folder may be moved."""
    resolved = data.resolve()
    found = []
    try:
        found.append(Path(os.path.relpath(resolved, folder.resolve())).as_posix())
    except ValueError:  # another drive
        log.debug("%s: not to be reached from %s", resolved, folder)
    inside = bool(found) and not found[0].startswith("..")
    places = [f"HERE / {each!a}" for each in (*found, resolved.name)]
    if not inside:
        places.insert(len(found), f"Path({str(resolved)!a})")
    return list(dict.fromkeys(places))


def _data_text(name: str, data: Path, folder: Path, answered: str | None) -> list[str]:
    """The lines of a helper that load its documents.

    Args:
        name: The task's.
        data: The file.
        folder: Where the helper will be.
        answered: Column without which a document is left out, None to keep all.
    """
    kind = _READERS[data.suffix.lower()]
    more = ', keep_default_na=False, na_values=[""]' if kind == "csv" else ""
    more += ', delimiter="\\t"' if data.suffix.lower() == ".tsv" else ""
    lines = [
        "HERE = Path(__file__).resolve().parent",
        "# Where the documents may be; the first that is there is taken.",
        "PLACES = [",
        *(f"    {place}," for place in _places(data, folder)),
        "]",
        "",
        "",
        "def load_dataset(**_):",
        '    """The documents, as the split ``test``."""',
        "    import datasets",
        "",
        "    there = [place for place in PLACES if place.is_file()]",
        "    if not there:",
        '        wanted = " or ".join(map(str, PLACES))',
        "        raise FileNotFoundError(",
        f'            f"the documents of {name} are not there: expected a file {{wanted}}; "',
        '            f"put it there, or change PLACES in {__file__}"',
        "        )",
        '    files = {"test": str(there[0])}',
        f'    found = datasets.load_dataset("{kind}", data_files=files{more})',
    ]
    if answered is None:
        return [*lines, "    return found", ""]
    return [
        *lines,
        "    # A document without a right answer cannot be scored.",
        f"    return found.filter(lambda doc: has_answer(doc[{answered!a}]))",
        "",
        "",
        "def has_answer(value):",
        '    """Whether a right answer, or one of several, is there."""',
        "    if isinstance(value, list):",
        "        return any(map(has_answer, value))",
        '    return value is not None and str(value).strip() not in ("", "nan")',
        "",
    ]


def _helper_text(wish: TaskWish, data: Sequence[str], target: str, source: str) -> str:
    from lm_eval_adaptive.metrics import METRICS

    own = wish.metric in METRICS
    parts = [
        f'"""Helper of the task ``{wish.name}``."""',
        "",
        "from __future__ import annotations",
        "",
        "from pathlib import Path",
        "",
    ]
    if own:
        parts += ["from lm_eval_adaptive.metrics import document_metrics", ""]
    parts += data
    if own:
        extra = f"    source={source!a},\n" if wish.metric == "comet" else ""
        parts += [
            "",
            "process_results = document_metrics(",
            f"    {wish.metric!a},",
            f"    reference={target!a},  # a text, or a list of them: the best counts",
            f'{extra}    settings=Path(__file__).with_name("{wish.name}.yaml"),',
            ")",
            "",
        ]
    return "\n".join(parts)


def _quoted(text: str) -> str:
    """A text as YAML: as JSON, but with what PyYAML does not read escaped one by one."""
    quoted = json.dumps(text, ensure_ascii=False)
    return re.sub(
        r"[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]",
        lambda found: f"\\u{ord(found[0]):04x}",
        quoted,
    )


def _yaml_text(
    wish: TaskWish,
    *,
    local: bool,
    own: bool,
    scale: tuple[float, float],
    higher: bool,
    target: str,
    source: str,
    prompt: str,
) -> str:
    quote = _quoted
    split = "test" if local else wish.split or "test"
    lines = [
        "# A task of lm-evaluation-harness, written by `lm-eval-adaptive init-task`; edit at will.",
        f"task: {quote(wish.name)}",
    ]
    if local:
        lines += [
            "# A name only: the documents come from the helper beside this file.",
            f"dataset_path: {quote(wish.name)}",
            f"custom_dataset: !function {_helper_name(wish.name)}.load_dataset",
        ]
    else:
        lines.append(f"dataset_path: {quote(wish.dataset)}")
        if wish.dataset_name:
            lines.append(f"dataset_name: {quote(wish.dataset_name)}")
        if wish.revision:
            lines.append(f"dataset_kwargs: {{revision: {quote(wish.revision)}}}")
        else:
            lines += [
                "# Pin the data, so that a bank keeps fitting its documents:",
                "# dataset_kwargs: {revision: <commit>}",
            ]
    lines += [
        "output_type: generate_until",
        f"test_split: {quote(split)}",
        "# Jinja2 over a document's columns. A system message would go into description:.",
        f"doc_to_text: {quote(prompt)}",
        f"doc_to_target: {quote(_template(target))}",
        "num_fewshot: 0",
        "generation_kwargs:",
        '  until: []  # a chat model ends by itself; for base models ["\\n"] or the like',
        f"  max_gen_toks: {wish.max_gen_toks}",
        "  do_sample: false",
        "  temperature: 0.0",
    ]
    if own:
        lines.append(f"process_results: !function {_helper_name(wish.name)}.process_results")
    lines += [
        "metric_list:",
        f"  - metric: {wish.metric}",
        f"    aggregation: {'mean' if own or wish.metric == 'exact_match' else wish.metric}",
        f"    higher_is_better: {str(higher).lower()}",
        "metadata:",
        "  version: 1.0  # raise it when prompt or documents change: a bank fits one version",
        "  adaptive:",
        f"    metric: {wish.metric}",
        "    # Raw values that map to 0 and 1; they never come from the models that are ranked.",
        f"    range: [{scale[0]:g}, {scale[1]:g}]",
        "    # Made by `lm-eval-adaptive calibrate`; looked for beside this file.",
        f"    bank: {quote(wish.name + '.bank.parquet')}",
    ]
    family = {"bertscore_f1": _BERTSCORE, "comet": _COMET, "judge": _judge(source, target)}
    if wish.metric in family:
        lines += ["  metrics:", textwrap.indent(family[wish.metric], "    ").rstrip()]
    return "\n".join(lines) + "\n"


_BERTSCORE = """\
# A name on the hub, or a directory with num_layers; LMEVAL_ADAPTIVE_BERTSCORE overrides it.
bertscore: {model: roberta-large}
"""
_COMET = """\
# A name on the hub, or a checkpoint file; LMEVAL_ADAPTIVE_COMET overrides it.
comet: {model: Unbabel/wmt22-comet-da}
"""


def _judge(source: str, target: str) -> str:
    return f"""\
# LMEVAL_ADAPTIVE_JUDGE_MODEL and LMEVAL_ADAPTIVE_JUDGE_URL name the judge.
judge:
  scale: [1, 10]
  rubric: |
    Grade an answer on a scale of 1 to 10.

    Task: {{{{ {source} }}}}

    A right answer: {{{{ {target} }}}}

    Answer to grade:
    <answer>
    {{{{ answer }}}}
    </answer>

    10: as good as the right answer. 5: half of it is right. 1: wrong, or no answer.
    Give one sentence of reason, then a last line of the form
    Score: <number from 1 to 10>
"""


def add_parser(subparsers: Any) -> None:
    """Add the command ``init-task`` to a parser's subcommands."""
    parser = subparsers.add_parser(
        "init-task",
        help="Write a task of your own from a dataset and a metric",
        description="Write a commented task YAML (and a helper where one is needed) from a local "
        "JSONL, CSV, TSV or Parquet file, or from a dataset on the Hugging Face hub.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=textwrap.dedent("""
            examples:
              $ lm-eval-adaptive init-task my_task --dataset questions.jsonl --metric rougeL

              $ lm-eval-adaptive init-task news --dataset org/news --split validation \\
                  --input article --target summary --metric bertscore_f1 \\
                  --prompt $'Summarize:\\n\\n{{article}}'
        """),
    )
    parser.add_argument("name", help="Name of the task")
    parser.add_argument("--dataset", required=True, metavar="FILE|ORG/NAME", help="Documents")
    parser.add_argument("--metric", required=True, help="rougeL, bertscore_f1, judge, bleu, …")
    parser.add_argument("--input", metavar="COLUMN", help="Column that is asked about")
    parser.add_argument("--target", metavar="COLUMN", help="Column of right answers")
    parser.add_argument("--prompt", metavar="TEMPLATE", help="Default: the input column alone")
    parser.add_argument("--split", help="Split of a hub dataset (default: test)")
    parser.add_argument("--dataset_name", metavar="CONFIG", help="Configuration of a hub dataset")
    parser.add_argument("--revision", help="Commit of a hub dataset")
    parser.add_argument("--output", metavar="DIR", help="Folder to write (default: the name)")
    parser.add_argument("--max_gen_toks", type=int, default=256, metavar="N")
    parser.add_argument("--overwrite", action="store_true", help="Replace existing files")
    parser.set_defaults(func=run)


def run(namespace: argparse.Namespace) -> int:
    """The command: write, and say what comes next."""
    written = init_task(
        TaskWish(
            name=namespace.name,
            dataset=namespace.dataset,
            metric=namespace.metric,
            input_column=namespace.input,
            target_column=namespace.target,
            prompt=namespace.prompt,
            split=namespace.split,
            dataset_name=namespace.dataset_name,
            revision=namespace.revision,
            output=namespace.output,
            max_gen_toks=namespace.max_gen_toks,
            overwrite=namespace.overwrite,
        )
    )
    for file in written.files:
        print(f"wrote {file}")
    for notice in written.notices:
        print(notice)
    folder = written.yaml.parent
    print(
        "next: answers of some models over all documents, then a bank\n"
        f"  lm-eval-adaptive run --model … --tasks {namespace.name} --include_path {folder} "
        "--log_samples --output_path logs\n"
        f"  lm-eval-adaptive calibrate --task {namespace.name} --metric {namespace.metric} "
        f"--samples logs --output {folder / (namespace.name + '.bank.parquet')}"
    )
    return 0
