"""Five adaptive runs, a killed one among them, whose outputs must not change when code is moved.

Everything goes through ``python -m lm_eval_adaptive`` and nothing of the package is imported, so
that the same file tells of any version of it. What hangs on the clock, on the versions installed
and on which thread was first is replaced; the rest stays, byte for byte.

    python tests/golden/runs.py make DIR           # before a change, and after it elsewhere
    python tests/golden/runs.py compare DIR_A DIR_B  # byte-equal, on one machine
    python tests/golden/runs.py store              # the short form in tests/golden/stored/

``test_golden.py`` compares with the short form, where numbers may differ by what another processor
makes of them.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
STORED = HERE / "stored"
LOGGED = ROOT / "scripts" / "make" / "records_runs"
TASK = "records_to_text"
SECOND_BANK = HERE / "slot_coverage.bank.parquet"

RELATIVE, ABSOLUTE = 1e-6, 1e-9  # of numbers, between one processor and another
KILL_ATTEMPTS = 5
KILL_ROUND = 3  # killed while this round's slow model is waited for
# The slow model's answers come this many seconds after the others': the time to be killed in.
LATENCY = 0.4


# The runs


@dataclass(frozen=True)
class Run:
    """One run of the command line.

    Attributes:
        models: Logged models whose answers are replayed.
        options: Further options.
        slow: The model that answers late, in a run that is killed while it is waited for.
    """

    models: tuple[str, ...]
    options: tuple[str, ...] = ()
    slow: str = ""


DEMO = ("smollm2-3shot-t0", "smollm2-chat-t07", "smollm2-chat-pirate", "smollm2-chat-20tok", "gemma3-3shot-t0")  # fmt: skip
RUNS = {
    # What scripts/demo.sh does.
    "demo": Run(DEMO),
    "several_metrics": Run(
        (DEMO[0], DEMO[1], DEMO[2]),
        ("--metric", "rougeL", "--metric", "slot_coverage", "--bank", f"{TASK}:slot_coverage=slot_coverage.bank.parquet", "--max_items", "30", "--sampler", "fisher"),
    ),
    "no_bank": Run(DEMO, ("--bank", "none", "--stratify", "domain", "--max_items", "40")),
    "against": Run(
        (DEMO[0], DEMO[4]), ("--against", "all", "--max_items", "24", "--round_size", "2")
    ),
    "resumed": Run(
        (DEMO[4], DEMO[3], DEMO[1]),
        ("--pairs", "all", "--correction", "holm", "--equivalence", "0.02", "--round_size", "3", "--max_items", "30"),
        slow=DEMO[1],
    ),
}  # fmt: skip


def make(folder: Path, names: Iterable[str] = tuple(RUNS)) -> None:
    """Do the runs and write their canonical outputs, a folder for each run.

    Raises:
        SystemExit: A run failed, or the folder is not empty.
    """
    if folder.exists() and any(folder.iterdir()):
        raise SystemExit(f"{folder} is not empty; name a new folder")
    for name in names:
        with tempfile.TemporaryDirectory() as scratch:
            work = Path(scratch).resolve()
            (work / "runs").symlink_to(LOGGED)
            shutil.copy(SECOND_BANK, work)
            told = perform(RUNS[name], work)
            canonical(work, told, folder / name)


def perform(run: Run, work: Path) -> list[subprocess.CompletedProcess[str]]:
    """Run in a folder, to its ``out``.

    Returns:
        The commands that came to their end.
    """
    if run.slow:
        kill_in_the_middle(run, work)
        return [finished(["run", "--adaptive", "--resume", "out"], work)]
    return [finished(command(run), work)]


def command(run: Run) -> list[str]:
    """Arguments of ``lm-eval-adaptive``."""
    words = ["run", "--adaptive", "--tasks", TASK]
    for model in run.models:
        late = f",latency={LATENCY}" if model == run.slow else ""
        words += ["--model", "replay", "--model_args", f"samples=runs/{model}{late}"]
        words += ["--model_name", model]
    return [*words, *run.options, "--output_path", "out"]


def environment() -> dict[str, str]:
    """No network, this checkout, one thread, plain lines of one width."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("LMEVAL", "LM_EVAL", "COL"))}
    return {
        **kept,
        "PYTHONPATH": str(ROOT),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "COLUMNS": "100",
        "PYTHONUTF8": "1",
        "NO_COLOR": "1",
    }


def start(words: list[str], work: Path) -> subprocess.Popen[str]:
    """Start ``python -m lm_eval_adaptive``."""
    return subprocess.Popen(
        [sys.executable, "-m", "lm_eval_adaptive", *words],
        cwd=work,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )


def finished(words: list[str], work: Path) -> subprocess.CompletedProcess[str]:
    """Run to the end.

    Raises:
        SystemExit: It failed.
    """
    process = start(words, work)
    stdout, stderr = process.communicate()
    if process.returncode:
        raise SystemExit(f"{' '.join(words)}\nended with {process.returncode}:\n{stderr}")
    return subprocess.CompletedProcess(words, 0, stdout, stderr)


def kill_in_the_middle(run: Run, work: Path) -> None:
    """Start a run and end it with SIGKILL while a round has some of its answers and not all.

    Raises:
        SystemExit: The moment was missed again and again, as on a machine that is far too busy.
    """
    for _ in range(KILL_ATTEMPTS):
        process = start(command(run), work)
        while process.poll() is None and not half_a_round(work / "out" / "journal.jsonl", run.slow):
            time.sleep(0.005)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        _, stderr = process.communicate()
        if process.returncode != -signal.SIGKILL and not (work / "out").is_dir():
            raise SystemExit(f"the run that was to be killed ended by itself:\n{stderr}")
        if half_a_round(work / "out" / "journal.jsonl", run.slow):
            return
        shutil.rmtree(work / "out")
    raise SystemExit(f"could not kill a run in round {KILL_ROUND} in {KILL_ATTEMPTS} attempts")


def half_a_round(journal: Path, slow: str) -> bool:
    """Whether the round to be killed in has begun and every model but the slow one answered."""
    if not journal.is_file():
        return False
    records = [json.loads(line) for line in journal.read_text("utf-8").split("\n")[:-1]]
    rounds = [record for record in records if record["type"] == "round"]
    if len(rounds) != KILL_ROUND:
        return False
    asked = {(ask["model"], doc_id) for ask in rounds[-1]["asks"] for doc_id in ask["doc_ids"]}
    answered = {
        (record["model"], record["doc_id"])
        for record in records
        if record["type"] == "answer" and record["round"] == rounds[-1]["round"]
    }
    return asked - answered == {(model, doc_id) for model, doc_id in asked if model == slow}


# What a run left, without the clock, the versions and the order of threads

VARIES = {
    "date",
    "git_hash",
    "lm_eval_version",
    "pretty_env_info",
    "total_evaluation_time_seconds",
    "transformers_version",
    "upper_git_hash",
}
SAYS_VERSIONS = {"lm_eval", "lm_eval_adaptive"}
PATTERNS = [
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d[-:]\d\d[-:]\d\d(\.\d+)?"), "DATE"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d[-:]\d\d"), "DATE"),
    (re.compile(r"(\blea:)[\w.+-]+"), r"\1VERSION"),
    (re.compile(r"(\blm_eval(?:_adaptive)? )\d[\w.+-]+"), r"\1VERSION"),
    (re.compile(r"(items left, )[^;|\n]+?(?= \||;)"), r"\1TIME"),
    # What git says to the harness, which asks for the commit of the folder it runs in.
    (re.compile(r"^fatal: .*\n", re.MULTILINE), ""),
]


def canonical(work: Path, told: list[subprocess.CompletedProcess[str]], folder: Path) -> None:
    """Write what a run left in ``work/out`` and told, in the form that does not vary."""
    folder.mkdir(parents=True)

    def text_of(text: str) -> str:
        return plain(text, work)

    for path in sorted((work / "out").rglob("*")):
        if path.is_dir() or path.name == "harness.log":  # libraries say what their versions do
            continue
        place = folder / text_of(str(path.relative_to(work / "out")))
        place.parent.mkdir(exist_ok=True)
        text = path.read_text(encoding="utf-8")
        if path.name == "journal.jsonl":
            records = journal_in_order(json.loads(line) for line in text.splitlines())
            text = as_lines(steady(record, text_of) for record in records)
        elif path.suffix == ".jsonl":
            text = as_lines(steady(json.loads(line), text_of) for line in text.splitlines())
        elif path.suffix == ".json":
            text = json.dumps(steady(json.loads(text), text_of), indent=1, ensure_ascii=False)
        else:
            text = text_of(answers_in_order(text))
        place.write_text(text, encoding="utf-8")
    for name, texts in (
        ("stdout.txt", [each.stdout for each in told]),
        ("stderr.txt", [progress_in_order(each.stderr) for each in told]),
    ):
        (folder / name).write_text(text_of("".join(texts)), encoding="utf-8")


ANSWERS = re.compile(r"^[\w-]+ [\d.]+(, [\w-]+ [\d.]+)+$", re.MULTILINE)


def answers_in_order(page: str) -> str:
    """A page whose hints name the answers to a document by model, whichever thread was first."""
    return ANSWERS.sub(lambda found: ", ".join(sorted(found[0].split(", "))), page)


def plain(text: str, work: Path) -> str:
    """A text without paths of this machine, dates, versions and durations."""
    text = text.replace(str(work), "WORK").replace(str(ROOT), "ROOT")
    for pattern, replacement in PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def steady(value: Any, text_of: Callable[[str], str]) -> Any:
    """A JSON value without what varies; keys keep their order."""
    if isinstance(value, dict):
        return {
            text_of(key): "…"
            if key in VARIES or (key == "versions" and set(each) == SAYS_VERSIONS)
            else steady(each, text_of)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [steady(each, text_of) for each in value]
    return text_of(value) if isinstance(value, str) else value


def as_lines(records: Iterable[Any]) -> str:
    """One JSON line each."""
    return "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in records)


def journal_in_order(records: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Answers of a round by model and document, whichever thread was first, then the rest of it."""
    pending: list[dict[str, Any]] = []

    def in_order() -> Iterator[dict[str, Any]]:
        answers = [each for each in pending if each["type"] == "answer"]
        yield from sorted(answers, key=lambda each: (each["model"], each["doc_id"]))
        yield from (each for each in pending if each["type"] != "answer")
        pending.clear()

    for record in records:
        if record["type"] in ("answer", "resumed"):
            pending.append(record)
            continue
        yield from in_order()
        yield record
    yield from in_order()


DECIDED = re.compile(r"round \d+: (\d+ of \d+ pairs decided)")


def progress_in_order(text: str) -> str:
    """Lines of progress without those that only ten seconds' silence brought, warnings sorted."""
    kept: list[str] = []
    before = ""
    for line in text.splitlines():
        found = DECIDED.match(line)
        if found and found[1] == before and "stopped: " not in line:
            continue
        before = found[1] if found else before
        kept.append(line)
    groups = itertools.groupby(kept, lambda line: line.startswith("warning: "))
    lines = [line for warns, group in groups for line in (sorted(group) if warns else group)]
    return "".join(f"{line}\n" for line in lines)


# Comparing byte for byte


def compare(before: Path, after: Path) -> list[str]:
    """Where two canonical folders differ, a few lines for each file."""
    files = [
        {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        for folder in (before, after)
    ]
    found = [f"only in {before}: {name}" for name in sorted(files[0] - files[1])]
    found += [f"only in {after}: {name}" for name in sorted(files[1] - files[0])]
    for name in sorted(files[0] & files[1]):
        ours, theirs = ((folder / name).read_bytes() for folder in (before, after))
        if ours != theirs:
            lines = difflib.unified_diff(
                ours.decode().splitlines(), theirs.decode().splitlines(), lineterm="", n=0
            )
            changes = [line[:300] for line in lines if not line.startswith(("---", "+++"))]
            found += [f"{name} differs:", *(f"    {line}" for line in changes[:8])]
    if not files[0]:
        found.append(f"{before} holds no file")
    return found


# The short form, for the repository


def shortened(folder: Path) -> dict[str, list[str]]:
    """The lines of each file of a run's canonical folder, long texts as digests."""
    short: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_dir():
            continue
        name, text = str(path.relative_to(folder)), path.read_text(encoding="utf-8")
        if path.name == "journal.jsonl":
            lines = [journal_line(json.loads(line)) for line in text.splitlines()]
        elif path.suffix == ".jsonl":
            lines = [samples_line(json.loads(line)) for line in text.splitlines()]
        elif path.name.startswith("results_"):
            results = json.loads(text)
            # The rest is the harness's own, and hangs on its version.
            results["configs"] = {k: each["metadata"] for k, each in results["configs"].items()}
            lines = [f"{key}: {as_json(each)}" for key, each in results.items()]
        elif path.suffix == ".json":
            lines = list(ranking_lines(json.loads(text)))
        elif path.suffix == ".html":
            lines = page_lines(text)
        else:
            lines = text.splitlines()
        short[name] = lines
    return short


def as_json(value: Any) -> str:
    """One line of JSON."""
    return json.dumps(value, ensure_ascii=False)


def digest(value: Any) -> str:
    """Twelve hex digits of a text or of a value's JSON."""
    text = value if isinstance(value, str) else as_json(value)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def journal_line(record: dict[str, Any]) -> str:
    """A journal's line; an answer with its texts as digests."""
    if record["type"] != "answer":
        return as_json(record)
    long = {"prompt_hash", "resps", "filtered"}
    return as_json({key: digest(each) if key in long else each for key, each in record.items()})


def samples_line(sample: dict[str, Any]) -> str:
    """Which document, and a digest of all there is about it."""
    return f"doc {sample['doc_id']}: {digest(sample)}"


def ranking_lines(ranking: dict[str, Any], path: str = "") -> Iterator[str]:
    """A ranking's values, one line each, rows of a table too."""
    for key, value in ranking.items():
        if isinstance(value, dict) and key == "rankings":
            for name, each in value.items():
                yield from ranking_lines(each, f"{path}{key}.{name}.")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            yield f"{path}{key}: {' '.join(value[0])}"
            yield from (f"{path}{key}: {as_json(list(each.values()))}" for each in value)
        else:
            yield f"{path}{key}: {as_json(value)}"


class _Page(HTMLParser):
    """The texts of a page, and its tags with their attributes as far as they hold no numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: list[str] = []
        self.numbers: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for _, value in attrs:
            self.numbers += NUMBER.findall(value or "")
        named = " ".join(f"{name}={NUMBER.sub('#', value or '')}" for name, value in attrs)
        self.tags.append(f"<{tag} {named}>")

    def handle_endtag(self, tag: str) -> None:
        self.tags.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        if self.get_starttag_text() != "<style>" and data.strip():
            self.texts.append(" ".join(data.split()))


def page_lines(text: str) -> list[str]:
    """Words of a page as a reader meets them, long ones as digests, and digests of its frame."""
    page = _Page()
    page.feed(text)
    long = 400
    words = [each if len(each) <= long else f"{each[:40]}… {digest(NUMBER.sub('#', each))}" for each in page.texts]  # fmt: skip
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    scripts = re.findall(r"<script.*?</script>", text, re.DOTALL)
    frame = [
        f"tags, numbers apart: {len(page.tags)}, {digest(page.tags)}",
        f"numbers in tags: {len(page.numbers)}, sum {sum(map(float, page.numbers)):.1f}",
        f"style: {digest(style)}",
        f"scripts: {len(scripts)}, {digest(scripts)}",
    ]
    return [*frame, *words]


NUMBER = re.compile(r"(?<![\w.])[-−+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w.]*\w)")


def differences(stored: list[str], found: list[str], *, shown: bool) -> list[str]:
    """Lines that differ, numbers apart by what another processor makes of them.

    Args:
        stored: The lines that should be there.
        found: Those that are.
        shown: Whether the numbers were rounded for a reader: then the last digit may differ.
    """
    if len(stored) == len(found):
        pairs = zip(stored, found, strict=True)
        return [f"- {a}\n+ {b}" for a, b in pairs if not alike(a, b, shown=shown)]
    return list(difflib.unified_diff(stored, found, lineterm="", n=0))[2:]


def alike(a: str, b: str, *, shown: bool) -> bool:
    """Whether two lines say the same."""
    if a == b:
        return True
    if NUMBER.sub("#", a) != NUMBER.sub("#", b):
        return False
    pairs = zip(NUMBER.findall(a), NUMBER.findall(b), strict=True)
    return all(x == y or close(x, y, shown=shown) for x, y in pairs)


def close(x: str, y: str, *, shown: bool) -> bool:
    """Whether two numbers differ by no more than arithmetic does; whole ones must be equal."""
    if not shown and "." not in x + y and "e" not in x + y:
        return False
    a, b = (float(each.replace("−", "-")) for each in (x, y))
    room = max(RELATIVE * max(abs(a), abs(b)), ABSOLUTE)
    if shown and "." in x and "." in y:
        room = max(room, 1.01 * 10.0 ** -min(len(each.partition(".")[2]) for each in (x, y)))
    return abs(a - b) <= room


def store(folder: Path = STORED) -> None:
    """Make the runs and keep their short form."""
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / "made"
        make(made)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name in RUNS:
            (folder / f"{name}.json").write_text(
                json.dumps(shortened(made / name), indent=0, ensure_ascii=False) + "\n",
                encoding="utf-8",
            )


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    todo = parser.add_subparsers(dest="todo", required=True)
    making = todo.add_parser("make")
    making.add_argument("folder", type=Path)
    comparing = todo.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    todo.add_parser("store")
    args = parser.parse_args()
    if args.todo == "make":
        make(args.folder)
    elif args.todo == "store":
        store()
    else:
        found = compare(args.before, args.after)
        print("\n".join(found) or "byte-equal")
        return int(bool(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
