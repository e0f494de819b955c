"""The README's walk-through: its commands, as they stand, in an empty folder."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEADING = "## A task of your own, in five minutes"


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
        "from lm_eval_adaptive.cli.main import main\n"
        "sys.exit(main())\n"
    )
    (binaries / "run.py").write_text(code, encoding="utf-8")
    script = binaries / "lm-eval-adaptive"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{binaries}/run.py" "$@"\n')
    script.chmod(0o755)
    (binaries / "python").symlink_to(sys.executable)
    return binaries


@pytest.mark.slow
def test_every_command_of_the_walkthrough_runs(tmp_path):
    home = tmp_path / "home"
    work = tmp_path / "work"
    home.mkdir()
    work.mkdir()
    env = {
        **os.environ,
        "PATH": f"{program(home)}:{os.environ['PATH']}",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_DATASETS_CACHE": str(home / "datasets"),
        "COLUMNS": "100",
    }
    told = ""
    assert len(commands()) == 4
    for block in commands():
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block],
            cwd=work,
            env=env,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        told += done.stdout
    assert "fits zoo: 60 of 60 items" in told
    (path,) = (work / "out").glob("ranking_zoo_*.json")
    ranking = json.loads(path.read_text(encoding="utf-8"))
    assert [entry["model"] for entry in ranking["ranking"]] == ["new-b", "new-a"]
    assert ranking["stop_reason"] == "decided"
    assert ranking["items_total"] < ranking["items_full"] == 120
    assert (work / "zoo" / "zoo.bank.parquet").is_file()
