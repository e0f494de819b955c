"""The commands in README.md and docs/: each is executed, or listed here with the reason why not.

The README's walk-through is executed as it stands by ``tests/tasks/test_walkthrough.py``. What is
listed is still parsed by the command line's own parser, so that no option in it is made up.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

import pytest

from lm_eval_adaptive.cli.main import build_parser
from tests.support import toy

ROOT = toy.ROOT
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
WALKTHROUGH = "## A task of your own, in five minutes"
SHARED = ROOT.parent / "shared"
SCORES, SOURCES = SHARED / "scores", SHARED / "bank_sources"

NETWORK = "fetches packages or weights"
# Commands that are not executed here, by how they begin, with the reason.
LISTED = {
    "bash scripts/demo.sh": "tests/tasks/test_walkthrough.py runs it",
    "bash scripts/test.sh": "runs these tests",
    "python scripts/bench_scale.py": "takes an hour, and compares with an earlier commit",
    "python scripts/bench_peers.py": "needs packages that the project has no use for",
    "pip install": NETWORK,
    "lm-eval-adaptive run --adaptive --tasks records_to_text --model hf": NETWORK,
    "lm-eval-adaptive run --adaptive --tasks records_to_text --models": "needs a wandb account",
    "lm-eval run --model hf --model_args pretrained=…": "stands for the reader's own models",
    "lm-eval-adaptive run --adaptive --tasks my_task": "stands for the reader's own task",
    "lm-eval-adaptive calibrate --task my_task": "stands for the reader's own task",
    "lm-eval-adaptive bank show my_task": "stands for the reader's own task",
    "lm-eval-adaptive bank check my_task": "stands for the reader's own task",
}


def blocks(page):
    text = page.read_text(encoding="utf-8")
    if WALKTHROUGH in text:
        before, after = text.split(WALKTHROUGH)
        text = before + "\n## " + after.split("\n## ", 1)[1]
    return re.findall(r"```sh\n(.*?)```", text, re.DOTALL)


def commands():
    """(page, command): continued lines joined, comments and blanks left out."""
    found = []
    for page in PAGES:
        for block in blocks(page):
            for line in re.sub(r"\\\n\s*", " ", block).splitlines():
                words = shlex.split(line, comments=True)
                if words:
                    found.append((page.name, words))
    return found


def reason_of(words):
    text = " ".join(words)
    return next((start for start in LISTED if text.startswith(start)), None)


def test_there_are_commands_and_every_reason_is_still_needed():
    found = commands()
    assert len(found) > 8
    used = {reason_of(words) for _, words in found}
    assert set(LISTED) <= used, "a reason for a command that is not there any more"
    assert None in used, "some commands are executed"


@pytest.mark.parametrize(
    "words",
    [words for _, words in commands() if reason_of(words)],
    ids=lambda words: " ".join(words)[:50],
)
def test_what_is_not_executed_is_at_least_no_invention(words):
    if words[0] == "bash":
        script = ROOT / words[1]
        subprocess.run(["bash", "-n", str(script)], check=True)
    elif words[0] == "pip":
        extras = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        for extra in re.findall(r"[\[,](\w+)(?=[\],])", " ".join(words)):
            assert f"\n{extra} = [" in extras, extra
    elif words[0] == "python":
        shown = subprocess.run(
            [sys.executable, words[1], "--help"], cwd=ROOT, capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        ).stdout  # fmt: skip
        assert all(word in shown for word in words[2:] if word.startswith("--"))
    else:
        assert words[0] in ("lm-eval", "lm-eval-adaptive")
        parser, _ = build_parser()
        namespace = parser.parse_args(words[1:])
        assert namespace.command == words[1]


@pytest.mark.slow
def test_all_other_commands_run(toy_bank, toy_logs, tmp_path):
    """In a folder where ``out`` holds a finished run, as the text before them says."""
    binaries = tmp_path / "bin"
    binaries.mkdir()
    script = binaries / "lm-eval-adaptive"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m lm_eval_adaptive "$@"\n')
    script.chmod(0o755)
    env = {
        **os.environ, "PATH": f"{binaries}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT),
        "COLUMNS": "100", "LM_EVAL_ADAPTIVE_HOME": str(tmp_path / "home"),
    }  # fmt: skip
    work = tmp_path / "checkout"
    work.mkdir()
    there = SCORES.is_dir() and SOURCES.is_dir()
    if there:
        (tmp_path / "shared").symlink_to(SHARED)
    models = [
        word
        for name in ("cal-0.20", "cal-0.80")
        for word in ("--model", "replay", "--model_args", f"samples={toy_logs / name}")
    ]
    run = ["run", "--adaptive", "--tasks", toy.TASK, "--bank", str(toy_bank), *models]
    subprocess.run([str(script), *run, "--output_path", "out"], cwd=work, env=env, check=True)
    executed = 0
    for page, words in commands():
        if reason_of(words):
            continue
        if any("../shared/" in word for word in words):
            if not there:
                continue
            words = [*words, "--partitions", "1", "--items_per_model", "10", "--jobs", "1"]  # noqa: PLW2901
        done = subprocess.run(
            words, cwd=work, env=env, capture_output=True, text=True, check=False, timeout=240
        )
        assert done.returncode == 0, f"{page}: {' '.join(words)}\n{done.stderr}"
        executed += 1
    assert executed >= 3
    assert {"report.html", "report.md", "ranking.csv"} <= {
        path.name for path in (work / "out").iterdir()
    }


def test_every_option_that_the_pages_name_exists():
    _, subparsers = build_parser()
    known = {
        option
        for parser in subparsers.choices.values()
        for action in parser._actions
        for option in action.option_strings
    }
    for parser in subparsers.choices.values():
        for action in parser._actions:
            if isinstance(getattr(action, "choices", None), dict):
                for inner in action.choices.values():
                    known |= {each for one in inner._actions for each in one.option_strings}
    for page in PAGES:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for option in re.findall(r"`(--[a-z_-]+)", text):
            assert option in known, f"{page.name}: {option}"


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
    readme = PAGES[0].read_text(encoding="utf-8")
    for page in PAGES[1:]:
        assert f"docs/{page.name}" in readme, f"README does not lead to {page.name}"
