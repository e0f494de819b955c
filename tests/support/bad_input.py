"""Bad input, made and tried: the files a user might hand over by mistake, and the command's answer.

The table of bad input (``tests/cli/test_bad_input.py``), its fuzz tests and ``scripts/attack.py``
share this: which files there are, where each command reads one, and what counts as a right answer.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import logging
import os
import re
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

RIGHT_CODES = (0, 1, 2, 130, 143)
DOCS = [{"question": f"what is {n}?", "answer": f"number {n}"} for n in range(8)]
MODELS = ("m1", "m2", "m3", "m4", "m5", "m6")


@dataclass
class Answer:
    """What a command line came to."""

    words: list[str]
    code: int | None
    out: str
    err: str
    trace: str = ""

    @property
    def said(self) -> list[str]:
        """The program's own lines on standard error."""
        return [line for line in self.err.splitlines() if line.startswith("lm-eval-adaptive:")]

    def faults(self) -> list[str]:
        """What is wrong with it whatever was asked; empty where nothing is."""
        found = []
        if self.trace:
            found.append(f"traceback: {self.trace.strip().splitlines()[-1]}")
        if "Traceback (most recent call last)" in self.err + self.out:
            found.append("a traceback was printed")
        if "a fault of ours" in "".join(self.said):
            found.append(f"a fault of ours: {self.said}")
        if not self.trace and self.code not in RIGHT_CODES:
            found.append(f"exit code {self.code}")
        if self.code == 2 and len(self.said) != 1:
            found.append(f"{len(self.said)} lines for a refusal: {self.err[-300:]!r}")
        return found


def attempt(words) -> Answer:
    """Run a command line in this process."""
    from lm_eval_adaptive.cli.main import main

    words = [str(word) for word in words]
    out, err = io.StringIO(), io.StringIO()
    code, trace = None, ""
    level = logging.root.level
    # A log handler of an earlier test may hold a stream that is closed, of which logging would
    # print a traceback.
    loud, logging.raiseExceptions = logging.raiseExceptions, False
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        except BaseException:  # noqa: BLE001  that is what is looked for
            trace = traceback.format_exc()
    logging.root.setLevel(level)
    logging.raiseExceptions = loud
    return Answer(words, code, out.getvalue(), err.getvalue(), trace)


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its bytes."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and os.access(path, os.R_OK)
    }


# --- good files


def long_csv(separator=",", decimal="."):
    lines = [separator.join(("model", "item", "score"))]
    for row, model in enumerate(MODELS):
        for item in range(12):
            score = f"{((item * 7 + row * 5) % 11) / 10:.1f}".replace(".", decimal)
            lines.append(separator.join((model, f"i{item}", score)))
    return "\n".join(lines) + "\n"


def wide_csv():
    lines = ["item," + ",".join(MODELS)]
    for item in range(12):
        cells = (f"{((item * 7 + row * 5) % 11) / 10:.1f}" for row in range(len(MODELS)))
        lines.append(f"i{item}," + ",".join(cells))
    return "\n".join(lines) + "\n"


def jsonl(rows=DOCS):
    return "".join(json.dumps(row) + "\n" for row in rows)


def docs_csv():
    return "question,answer\n" + "".join(f"{d['question']},{d['answer']}\n" for d in DOCS)


def small_bank(path: Path, **changes) -> Path:
    """A sound bank of 12 items for a task ``mine``."""
    from dataclasses import replace

    from lm_eval_adaptive.core.build import calibrate
    from lm_eval_adaptive.core.matrix import read_scores

    source = path.with_suffix(".scores.csv")
    source.write_text(long_csv())
    bank = calibrate(
        read_scores(source), task="mine", metric="rougeL", score_range=(0.0, 1.0),
        response_model="robust-2pl",
    )  # fmt: skip
    source.unlink()
    return replace(bank, **changes).save(path)


TASK_YAML = """\
task: mine
dataset_path: mine
custom_dataset: !function mine_helper.load_dataset
output_type: generate_until
test_split: test
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
num_fewshot: 0
generation_kwargs: {until: [], max_gen_toks: 20, do_sample: false}
metric_list:
  - {metric: exact_match, aggregation: mean, higher_is_better: true}
metadata: {version: 1.0, adaptive: {metric: exact_match, range: [0, 1]}}
"""
HELPER = """\
def load_dataset(**_):
    import datasets

    rows = [{"question": f"what is {n}?", "answer": f"number {n}"} for n in range(8)]
    return datasets.DatasetDict({"test": datasets.Dataset.from_list(rows)})
"""


def task_folder(folder: Path) -> Path:
    """A folder with the task ``mine``: eight questions, scored by exact match."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mine.yaml").write_text(TASK_YAML)
    (folder / "mine_helper.py").write_text(HELPER)
    return folder


# --- bad files: from the bytes of a good one


def _truncated(good: bytes) -> bytes:
    return good[: max(len(good) * 2 // 3 - 1, 1)]


KINDS = {
    "missing": None,
    "folder": "folder",
    "unreadable": "unreadable",
    "empty": lambda good: b"",
    "blank lines": lambda good: b"\n \n\n",
    "binary": lambda good: bytes((7 * n * n + 13 * n) % 256 for n in range(600)),
    "zeros": lambda good: bytes(300),
    "latin-1": lambda good: "modèle;élément;ñ\n1;2;3\n".encode("latin-1"),
    "utf-16": lambda good: good.decode("utf-8", "replace").encode("utf-16"),
    "truncated": _truncated,
    "a word": lambda good: b"hello\n",
    "json null": lambda good: b"null\n",
    "json list": lambda good: b"[1, 2]\n",
    "json object": lambda good: b'{"a": {"b": [1]}}\n',
    "json string": lambda good: b'"text"\n',
    "deep json": lambda good: b"[" * 3000,
    "deep yaml": lambda good: b"{a: " * 1000,
    "html": lambda good: b"<!doctype html><html><body>404 not found</body></html>\n",
    "a png": lambda good: b"\x89PNG\r\n\x1a\n" + bytes(100),
    "gzip": lambda good: gzip.compress(good, mtime=0),
    "zip": lambda good: b"PK\x03\x04" + bytes(200),
    "parquet magic": lambda good: b"PAR1" + bytes(40) + b"PAR1",
}


def spoil(path: Path, good: bytes, kind: str) -> Path:
    """Make a bad file of a kind in place of a good one."""
    make = KINDS[kind]
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "folder":
        path.mkdir()
    elif kind == "unreadable":
        path.write_bytes(good)
        path.chmod(0)
    elif make is not None:
        path.write_bytes(make(good))
    return path


@dataclass(frozen=True)
class Place:
    """Where a command reads a file.

    Attributes:
        name: What it is called.
        file: The file's name.
        words: The command line; ``{file}`` is the bad file, ``{d}`` the folder of good ones,
            ``{o}`` where to write.
        good: Which good file it is made from.
        fine: Kinds that are no mistake there.
    """

    name: str
    file: str
    words: str
    good: str
    fine: frozenset[str] = field(default_factory=frozenset)


PLACES = (
    Place("calibrate --scores csv", "s.csv", "calibrate --task t --metric m --scores {file} --output {o}/b.parquet", "long.csv"),
    Place("calibrate --scores tsv", "s.tsv", "calibrate --task t --metric m --scores {file} --output {o}/b.parquet", "long.tsv"),
    Place("calibrate --scores gz", "s.csv.gz", "calibrate --task t --metric m --scores {file} --output {o}/b.parquet", "long.csv"),
    Place("calibrate --scores parquet", "s.parquet", "calibrate --task t --metric m --scores {file} --output {o}/b.parquet", "long.parquet"),
    Place("calibrate --samples", "samples_mine_2026-01-01T00-00-00.jsonl", "calibrate --task mine --metric exact_match --samples {file} --output {o}/b.parquet", "samples.jsonl"),
    Place("calibrate --update", "u.bank.parquet", "calibrate --update {file} --scores {d}/long.csv --output {o}/b.parquet", "mine.bank.parquet"),
    Place("bank show", "x.bank.parquet", "bank show {file}", "mine.bank.parquet"),
    Place("bank show --json", "x.bank.parquet", "bank show {file} --json", "mine.bank.parquet"),
    Place("bank check", "x.bank.parquet", "bank check {file} --tasks mine --include_path {d}/tasks", "mine.bank.parquet"),
    Place("report of a bank", "x.bank.parquet", "report {file} --output {o}/r.html", "mine.bank.parquet"),
    Place("report of a ranking", "ranking_mine_2026.json", "report {file} --output {o}/r.html", "ranking.json"),
    Place("report of a journal", "run/journal.jsonl", "report {file} --output {o}/r.html", "journal.jsonl"),
    Place("report of a folder", "run/journal.jsonl", "report {parent} --output {o}/r.html", "journal.jsonl"),
    Place("run --bank", "x.bank.parquet", "run --adaptive --tasks mine --include_path {d}/tasks --model dummy --model_name a --model dummy --model_name b --bank {file} --output_path {o}/run", "mine.bank.parquet"),
    Place("run --models", "models.yaml", "run --adaptive --tasks mine --include_path {d}/tasks --bank none --models {file} --output_path {o}/run", "models.yaml"),
    Place("run --config", "config.yaml", "run --adaptive --config {file} --output_path {o}/run", "config.yaml"),
    Place("run --resume", "run/journal.jsonl", "run --adaptive --resume {parent}", "journal.jsonl"),
    Place("run --tasks yaml", "t.yaml", "run --adaptive --tasks {file} --bank none --model dummy --model_name a --model dummy --model_name b --output_path {o}/run", "mine.yaml"),
    Place("init-task csv", "d.csv", "init-task my_task --dataset {file} --metric rougeL --output {o}/t", "docs.csv"),
    Place("init-task tsv", "d.tsv", "init-task my_task --dataset {file} --metric rougeL --output {o}/t", "docs.tsv"),
    Place("init-task jsonl", "d.jsonl", "init-task my_task --dataset {file} --metric rougeL --output {o}/t", "docs.jsonl"),
    Place("init-task json", "d.json", "init-task my_task --dataset {file} --metric rougeL --output {o}/t", "docs.json"),
    Place("init-task parquet", "d.parquet", "init-task my_task --dataset {file} --metric rougeL --output {o}/t", "docs.parquet"),
    Place("simulate --scores", "s.csv", "simulate --metric m --scores {file} --holdout 2 --partitions 1 --jobs 1", "long.csv"),
    Place("simulate --scores parquet", "s.parquet", "simulate --metric m --scores {file} --holdout 2 --partitions 1 --jobs 1", "long.parquet"),
    Place("simulate --family", "f.csv", "simulate --metric m --scores {d}/long.csv --regime family --family {file} --holdout 2 --partitions 1 --jobs 1", "family.csv"),
    Place("simulate --calibrate_on", "c.csv", "simulate --metric m --scores {d}/long.csv --calibrate_on {file} --holdout 2 --partitions 1 --jobs 1", "long.csv"),
    Place("simulate --samples", "samples_mine_2026-01-01T00-00-00.jsonl", "simulate --metric exact_match --samples {file} --holdout 2 --partitions 1 --jobs 1", "samples.jsonl"),
)  # fmt: skip


def good_files(folder: Path) -> Path:
    """The good files that bad ones are made from."""
    import pandas as pd

    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "long.csv": long_csv(),
        "long.tsv": long_csv("\t"),
        "family.csv": "model,family\n" + "".join(f"{m},f{m[-1]}\n" for m in MODELS),
        "docs.csv": docs_csv(),
        "docs.tsv": docs_csv().replace(",", "\t"),
        "docs.jsonl": jsonl(),
        "docs.json": json.dumps(DOCS),
        "models.yaml": "- {name: a, model: dummy}\n- {name: b, model: dummy}\n",
        "mine.yaml": TASK_YAML,
        "samples.jsonl": "".join(json.dumps(each) + "\n" for each in samples()),
        "journal.jsonl": json.dumps(journal_header()) + "\n",
        "mine_helper.py": HELPER,
        "ranking.json": json.dumps(ranking(), indent=1),
        "config.yaml": (
            f"tasks: [mine]\ninclude_path: {folder / 'tasks'}\nbank: none\nadaptive: true\n"
            "models:\n- {name: a, model: dummy}\n- {name: b, model: dummy}\n"
        ),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    pd.read_csv(folder / "long.csv").to_parquet(folder / "long.parquet")
    pd.DataFrame(DOCS).to_parquet(folder / "docs.parquet")
    small_bank(folder / "mine.bank.parquet")
    task_folder(folder / "tasks")
    return folder


def samples():
    """Lines of a samples log of the harness."""
    return [
        {
            "doc_id": n, "doc": doc, "target": doc["answer"], "arguments": {"gen_args_0": {"arg_0": doc["question"]}},
            "resps": [["x"]], "filtered_resps": ["x"], "filter": "none", "metrics": ["exact_match"],
            "doc_hash": f"{n}", "prompt_hash": f"{n}", "target_hash": f"{n}", "exact_match": float(n % 2),
        }
        for n, doc in enumerate(DOCS)
    ]  # fmt: skip


def journal_header(command=()):
    """The first line of a journal."""
    return {
        "type": "run", "schema": 1,
        "config": {
            "tasks": {"mine": {"signature": "task:mine|metric:exact_match|filter:none", "bank_sha256": "none", "documents": 8}},
            "models": {name: {"name": name, "model": "dummy"} for name in "ab"},
            "adaptive": {"confidence": 0.95}, "settings": {}, "versions": {},
        },
        "command": list(command),
    }  # fmt: skip


def ranking():
    """A ranking file."""
    return {
        "schema": 1, "task": "mine", "metric": "exact_match", "filter": "none", "higher_is_better": True,
        "bank": {"path": "", "sha256": "none", "items": 8, "response_model": "paired", "range": [0.0, 1.0], "models": []},
        "config": {"adaptive": {"confidence": 0.95}, "models": [{"name": "a"}, {"name": "b"}]},
        "signature": "task:mine", "versions": {},
        "ranking": [
            {"rank": 1, "model": "a", "score": 0.5, "score_se": 0.1, "score_ci": [0.3, 0.7], "ability": 0.0,
             "ability_se": 0.4, "items": 4, "cost": 4.0, "known": False, "tied_with": ["b"]},
            {"rank": 2, "model": "b", "score": 0.4, "score_se": 0.1, "score_ci": [0.2, 0.6], "ability": -0.4,
             "ability_se": 0.4, "items": 4, "cost": 4.0, "known": False, "tied_with": ["a"]},
        ],
        "set_aside": [], "pairs": [{"a": "a", "b": "b", "p_a_better": 0.7, "verdict": "undecided", "required": True}],
        "stop_reason": "max_items", "items_total": 8, "items_full": 16, "fraction": 0.5, "cost_total": 8.0,
        "cost_full": 16.0, "excluded": [], "warnings": [], "trace": [], "date": "2026-01-01",
    }  # fmt: skip


def words_of(place: Place, folder: Path, file: Path, output: Path) -> list[str]:
    """The command line of a place, with its paths."""
    filled = {"{file}": file, "{parent}": file.parent, "{d}": folder, "{o}": output}
    return [
        re.sub(r"\{\w+\}", lambda found: str(filled[found[0]]), word)
        for word in place.words.split()
    ]
