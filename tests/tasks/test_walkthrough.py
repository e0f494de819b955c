"""The README's commands, as they stand, in a copy of the checkout, which they leave clean."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEADING = "## A task of your own, in five minutes"
HAS_GIT = shutil.which("git") is not None and (ROOT / ".git").exists()
needs_git = pytest.mark.skipif(not HAS_GIT, reason="git, or the repository, is not here")


def section():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return text.split(HEADING)[1].split("\n## ")[0]


def commands():
    return re.findall(r"```sh\n(.*?)```", section(), re.DOTALL)


def program(folder):
    """``lm-eval-adaptive`` and ``python`` of this environment, whatever is installed."""
    binaries = folder / "bin"
    binaries.mkdir()
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from lm_eval_adaptive.__main__ import main\n"
        "sys.exit(main())\n"
    )
    (binaries / "run.py").write_text(code, encoding="utf-8")
    script = binaries / "lm-eval-adaptive"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{binaries}/run.py" "$@"\n')
    script.chmod(0o755)
    (binaries / "python").symlink_to(sys.executable)
    (binaries / "activate").write_text(f'export PATH="{binaries}:$PATH"\n')
    return binaries


def git(folder, *words):
    """What git says in a folder."""
    who = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    done = subprocess.run(
        ["git", "-C", str(folder), *who, *words], capture_output=True, text=True, check=True
    )
    return done.stdout


def checkout(folder):
    """A repository of its own with this checkout's files; an empty folder where git is missing."""
    folder.mkdir()
    if HAS_GIT:
        listed = git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, folder / name)
        git(folder, "init", "--quiet")
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--message", "the checkout")
    return folder


def run(block, work, home):
    env = {
        **os.environ,
        "PATH": f"{home / 'bin'}:{os.environ['PATH']}",
        "LMEVAL_ADAPTIVE_VENV": str(home),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_DATASETS_CACHE": str(home / "datasets"),
        "COLUMNS": "100",
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block],
        cwd=work,
        env=env,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def home(tmp_path):
    """Where the programs of this environment are found, as in a virtual environment."""
    folder = tmp_path / "home"
    folder.mkdir()
    program(folder)
    return folder


@pytest.mark.slow
@pytest.mark.timeout(900)  # a minute of one processor, on a machine that may be busy
def test_every_command_of_the_walkthrough_runs(tmp_path, home):
    work = checkout(tmp_path / "work")
    assert len(commands()) == 4
    told = "".join(run(block, work, home) for block in commands())
    assert "fits zoo: 60 of 60 items" in told
    (path,) = (work / "out").glob("ranking_zoo_*.json")
    ranking = json.loads(path.read_text(encoding="utf-8"))
    assert [entry["model"] for entry in ranking["ranking"]] == ["new-b", "new-a"]
    assert ranking["stop_reason"] == "decided"
    assert ranking["items_total"] < ranking["items_full"] == 120
    assert (work / "zoo" / "zoo.bank.parquet").is_file()
    if HAS_GIT:
        assert git(work, "status", "--porcelain") == ""


@needs_git
@pytest.mark.slow
def test_the_demo_ranks_real_models_and_leaves_the_checkout_clean(tmp_path, home):
    assert "\nbash scripts/demo.sh " in (ROOT / "README.md").read_text(encoding="utf-8")
    work = checkout(tmp_path / "work")
    told = run("bash scripts/demo.sh", work, home)
    assert "gemma3-3shot-t0 beats all 4 others" in told
    assert list(work.glob("demo_output/*/report.html"))
    assert git(work, "status", "--porcelain") == ""


@needs_git
@pytest.mark.parametrize("folder", ["adaptive_results", "demo_output", "live_output", ".venv-test"])
def test_what_commands_write_by_default_is_ignored(folder):
    assert git(ROOT, "check-ignore", f"{folder}/report.html").strip() == f"{folder}/report.html"


@needs_git
def test_distributions_hold_no_trial_output(tmp_path):
    """Output of trials lies in the checkout, ignored by git and not ignored."""
    pytest.importorskip("hatchling", reason="hatchling builds the distributions")
    work = checkout(tmp_path / "work")
    for place in ("adaptive_results/2026", "demo_output/2026", "trial", "out", "."):
        (work / place).mkdir(parents=True, exist_ok=True)
        (work / place / "ranking_trial.json").write_text("{}")
        (work / place / "journal.jsonl").write_text("{}\n")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--directory", str(tmp_path / "dist")],
        cwd=work,
        check=True,
        capture_output=True,
    )
    (source,) = (tmp_path / "dist").glob("*.tar.gz")
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with tarfile.open(source) as file:
        in_source = {name.partition("/")[2] for name in file.getnames()}
    with zipfile.ZipFile(wheel) as file:
        in_wheel = set(file.namelist())
    for held in (in_source, in_wheel):
        assert not [name for name in held if re.search(r"ranking_|journal\.jsonl|results_", name)]
    assert {"README.md", "LICENSE", "pyproject.toml", "scripts/demo.sh"} <= in_source
    assert {"lm_eval_adaptive/__main__.py", "tasks/records/test.jsonl"} <= in_source
    assert {"lm_eval_adaptive/__main__.py", "lm_eval_adaptive/tasks/records/test.jsonl"} <= in_wheel
