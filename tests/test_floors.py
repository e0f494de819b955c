"""The checker of arrows works: the floors hold, and a core that knows the page is refused."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"

pytest.importorskip("importlinter")


@pytest.fixture
def checkout(tmp_path):
    """The package's sources and contracts, to be spoilt."""
    ignored = shutil.ignore_patterns("__pycache__", "*.parquet")
    shutil.copytree(ROOT / "lm_eval_adaptive", tmp_path / "lm_eval_adaptive", ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def check(folder):
    ran = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(folder)!r}); {LINT}"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.returncode, ran.stdout


@pytest.mark.parametrize(
    ("lower", "upper"), [("core/scale.py", "report.page"), ("run/costs.py", "report.texts")]
)
def test_an_arrow_upwards_is_refused(checkout, lower, upper):
    path = checkout / "lm_eval_adaptive" / lower
    text = path.read_text(encoding="utf-8")
    path.write_text(text + f"\nimport lm_eval_adaptive.{upper}  # noqa\n", encoding="utf-8")
    code, said = check(checkout)
    assert code == 1, said
    assert f"lm_eval_adaptive.{lower[:-3].replace('/', '.')} -> lm_eval_adaptive.{upper}" in said


def test_the_floors_hold(checkout):
    code, said = check(checkout)
    assert code == 0, said
