"""Attack the command line: thousands of wrong inputs, and a count of what went wrong.

    $ python scripts/attack.py --count 2000 --seed 0

Every kind of bad file in every place where a command reads one comes first, then command lines and
files that are drawn at random. Nothing leaves a folder of its own. Exit code 1 where an input ended
in a traceback, in an exit code of no meaning, or changed a file that it was to read.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import warnings
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support import bad_input  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

VALUES = (
    "",
    "x",
    "-1",
    "0",
    "1",
    "2",
    "0.5",
    "-0.5",
    "1e400",
    "-inf",
    "nan",
    "1,2",
    "-1,1",
    "2,1",
    "nan,1",
    "é",
    "\ud83d",
    "a=b",
    "=",
    ",",
    ":",
    "none",
    "all",
    "auto",
    "null",
    "[]",
    "{}",
    "{{x}}",
    "{% x %}",
    "../..",
    "%s",
    "'",
    '"',
    "100000000000000000000",
    "m1",
    "m1,m2",
    "top:1",
    "top:-1",
    "x" * 300,
)
OPTIONS = {
    "run": (
        "confidence",
        "equivalence",
        "min_items",
        "max_items",
        "budget",
        "budget_items",
        "items_per_model",
        "futility",
        "resident",
        "precision",
        "round_size",
        "range",
        "model_cost",
        "correction",
        "sampler",
        "pairs",
        "response_model",
        "stratify",
        "against",
        "metric",
        "seed",
        "num_fewshot",
        "batch_size",
        "gen_kwargs",
        "model_args",
        "metadata",
        "device",
        "limit",
        "model_name",
        "bank",
        "clip",
    ),
    "calibrate": (
        "range",
        "response_model",
        "allow",
        "licence",
        "exclude_model",
        "metric",
        "update",
        "task",
        "clip",
    ),
    "simulate": (
        "holdout",
        "calibration",
        "partitions",
        "items_per_model",
        "max_items",
        "confidence",
        "round_size",
        "seed",
        "clip",
        "costs",
        "methods",
        "holdout_models",
        "calibration_models",
        "regime",
        "family",
    ),
    "init-task": ("input", "target", "prompt", "max_gen_toks", "metric", "split", "revision"),
}
LINES = {
    "run": "run --adaptive --tasks mine --include_path {d}/tasks --model dummy --model_name a "
    "--model dummy --model_name b --bank none --output_path {o}/run",
    "calibrate": "calibrate --task t --metric m --scores {d}/long.csv --output {o}/b.parquet",
    "simulate": "simulate --metric m --scores {d}/long.csv --partitions 1 --jobs 1 --holdout 2",
    "init-task": "init-task t --dataset {d}/docs.jsonl --metric rougeL --output {o}/t",
}


def files(folder: Path, good: Path) -> Iterator[list[str]]:
    """Command lines about a bad file, which is made on the way."""
    kinds = [kind for kind in bad_input.KINDS if kind != "unreadable" or os.geteuid() != 0]
    for place in bad_input.PLACES:
        for kind in kinds:
            here = fresh(folder)
            file = bad_input.spoil(here / "in" / place.file, (good / place.good).read_bytes(), kind)
            yield bad_input.words_of(place, good, file, here / "o")


def draws(folder: Path, good: Path, rng: random.Random) -> Iterator[list[str]]:
    """Command lines with options, and files with bytes, drawn at random; without end."""
    while True:
        here = fresh(folder)
        if rng.random() < 0.5:
            command = rng.choice(list(LINES))
            words = LINES[command].split()
            for _ in range(rng.randint(1, 3)):
                at = rng.choice((len(words), rng.randint(1, len(words))))
                words[at:at] = [f"--{rng.choice(OPTIONS[command])}", rng.choice(VALUES)]
            if rng.random() < 0.2:
                del words[rng.randrange(1, len(words))]
            yield [word.replace("{d}", str(good)).replace("{o}", str(here / "o")) for word in words]
            continue
        place = rng.choice(bad_input.PLACES)
        file = here / "in" / place.file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(hurt((good / place.good).read_bytes(), rng))
        yield bad_input.words_of(place, good, file, here / "o")


def hurt(data: bytes, rng: random.Random) -> bytes:
    """Bytes with a few of them changed, lost, doubled, or replaced by what stands in no file."""
    found = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(found) or 1)
        piece = rng.choice(
            (
                b"\x00",
                b"\xff",
                b"NaN",
                b"1e400",
                b"-",
                b",",
                b";",
                b'"',
                b"\n",
                b"null",
                b"{",
                b"[" * 50,
                b"\xef\xbb\xbf",
                b"\xed\xa0\xbd",
                b"9" * 400,
                b"true",
            )
        )
        action = rng.choice(("put", "cut", "swap", "double"))
        if action == "put":
            found[at:at] = piece
        elif action == "cut":
            del found[at : at + rng.randint(1, 40)]
        elif action == "swap":
            found[at : at + len(piece)] = piece
        else:
            found[at:at] = found[at : at + rng.randint(1, 200)]
    return bytes(found)


def kind_of(fault: str) -> str:
    """Under what a fault is counted."""
    if "traceback" in fault or "fault of ours" in fault:
        return "tracebacks"
    return "wrong exits" if fault.startswith("exit") else "other"


def fresh(folder: Path) -> Path:
    """An empty folder with a place to write."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "o").mkdir(parents=True)
    (folder / "in").mkdir()
    (folder / "in" / "mine_helper.py").write_text(bad_input.HELPER)
    return folder


def main() -> int:
    """Attack, and print the count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    rng = random.Random(given.seed)
    tally = dict.fromkeys(("inputs", "refused", "tracebacks", "wrong exits", "other", "changed"), 0)
    with tempfile.TemporaryDirectory() as name:
        base = Path(name).resolve()
        good = bad_input.good_files(base / "good")
        os.chdir(base)
        before = bad_input.snapshot(good)
        where = base / "here"
        for lines in (files(where, good), draws(where, good, rng)):
            for words in islice(lines, given.count - tally["inputs"]):
                tally["inputs"] += 1
                read = bad_input.snapshot(where / "in")
                answer = bad_input.attempt(words)
                tally["refused"] += answer.code == 2
                faults = answer.faults()
                for fault in faults:
                    tally[kind_of(fault)] += 1
                changed = [
                    path
                    for folder, then in ((good, before), (where / "in", read))
                    for path, data in then.items()
                    if bad_input.snapshot(folder).get(path) != data and "_resume" not in path
                ]
                # A run that is resumed goes on in its own journal.
                if changed and "--resume" not in words:
                    tally["changed"] += 1
                    faults.append(f"changed {changed}")
                if faults:
                    print(f"{words!r}\n  {'; '.join(faults)[:600]}", flush=True)
        os.chdir(ROOT)
    print(", ".join(f"{count} {what}" for what, count in tally.items()))
    return int(any(tally[kind] for kind in ("tracebacks", "wrong exits", "other", "changed")))


if __name__ == "__main__":
    sys.exit(main())
