"""The core lives without the harness, and the package is imported in no time."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import lm_eval_adaptive
import lm_eval_adaptive.core
from lm_eval_adaptive.core.response import RESPONSE_MODELS

CORE = Path(lm_eval_adaptive.core.__file__).parent
MODULES = sorted(CORE.rglob("*.py"))
HARNESS = {"lm_eval", "torch", "datasets", "transformers", "evaluate", "rich", "plotly", "yaml"}
FILES = {"pandas", "pyarrow"}
ABOVE = tuple(f"lm_eval_adaptive.{room}" for room in ("cli", "run", "report", "banks", "host"))

# Makes imports of some packages fail as if they were not installed.
BLOCK = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked}:
            raise ModuleNotFoundError(f"No module named {{name!r}} (blocked)", name=name)
sys.meta_path.insert(0, Block())
"""

WITHOUT_HARNESS = """
import importlib, pkgutil
import numpy as np
import lm_eval_adaptive.core as core
names = [each.name for each in pkgutil.walk_packages(core.__path__, core.__name__ + ".")]
for name in names:
    importlib.import_module(name)

from lm_eval_adaptive.core.build import calibrate
from lm_eval_adaptive.core.matrix import ScoreMatrix
from lm_eval_adaptive.core.procedure import Procedure
from lm_eval_adaptive.core.rules import ProcedureConfig
rng = np.random.default_rng(0)
b, theta = rng.normal(size=60), np.linspace(-2, 2, 9)
scores = 1 / (1 + np.exp(b - theta[:, None])) + rng.normal(0, 0.05, (9, 60))
matrix = ScoreMatrix(tuple("abcdefghi"), tuple(map(str, range(60))), scores)
reasons = []
for model in ("robust-2pl", "paper-1pl"):
    bank = calibrate(matrix, task="t", metric="m", response_model=model)
    procedure = Procedure.for_bank(bank, [1.0, 1.0], ProcedureConfig())
    state, stop = procedure.run(lambda m, items: [bank.scores[[0, 8][m], i] for i in items])
    reasons.append((stop.reason, procedure.pairs(state)[0].a))
import json, sys
print(json.dumps({{"names": names, "reasons": reasons,
                  "loaded": sorted({{m.partition(".")[0] for m in sys.modules}} & {blocked})}}))
"""

IMPORT_TIME = """
import sys, time
before = set(sys.modules)
start = time.perf_counter()
import lm_eval_adaptive
took = time.perf_counter() - start
import json
print(json.dumps({"took": took, "loaded": sorted(set(sys.modules) - before)}))
"""


def python(code):
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


def test_the_core_calibrates_and_ranks_without_the_harness_and_without_file_readers():
    blocked = repr(HARNESS | FILES)
    said = python(BLOCK.format(blocked=blocked) + WITHOUT_HARNESS.format(blocked=blocked))
    expected = {
        ".".join(("lm_eval_adaptive.core", *path.relative_to(CORE).with_suffix("").parts))
        for path in MODULES
        if path.name != "__init__.py"
    }
    assert expected <= set(said["names"])
    assert said["reasons"] == [["decided", 1], ["decided", 1]]
    assert said["loaded"] == []


def test_the_block_works():
    """The negative control of the test above."""
    code = (
        BLOCK.format(blocked={"pandas"}) + "\ntry:\n    import pandas\nexcept ModuleNotFoundError"
    )
    assert python(code + ":\n    print('true')") is True


def test_importing_the_package_is_quick_and_loads_nothing_heavy():
    said = [python(IMPORT_TIME) for _ in range(3)]
    heavy = {"numpy", "scipy", "pandas", "pyarrow", *HARNESS}
    assert not heavy & {name.partition(".")[0] for name in said[0]["loaded"]}
    assert min(each["took"] for each in said) < 0.3


def test_public_names_of_the_core_load_without_the_harness():
    code = BLOCK.format(blocked=repr(HARNESS)) + (
        "import lm_eval_adaptive as p\n"
        "print('[' + ','.join(f'\"{getattr(p, n).__name__}\"' for n in "
        "('ItemBank', 'ScoreMatrix', 'calibrate', 'read_scores', 'AdaptiveError')) + ']')"
    )
    assert python(code) == ["ItemBank", "ScoreMatrix", "calibrate", "read_scores", "AdaptiveError"]


def imports(tree):
    """Absolute modules a tree imports, and whether each import runs when the module is loaded."""
    lazy = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for node in ast.walk(function)
    } | {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If)
        and isinstance(branch.test, ast.Name)
        and branch.test.id == "TYPE_CHECKING"
        for node in ast.walk(branch)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) in lazy
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the layer"
            for alias in node.names:
                yield f"{node.module}.{alias.name}", id(node) in lazy


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_no_file_of_the_core_names_the_harness(path):
    for module, lazy in imports(ast.parse(path.read_text(encoding="utf-8"))):
        top = module.partition(".")[0]
        assert top not in HARNESS, f"{path.name} imports {module}"
        assert not module.startswith(ABOVE), f"{path.name} imports {module}"
        if top in FILES:
            assert lazy, f"{path.name} imports {module} before a file is read or written"


def first_circle(graph):
    """A circle among modules that import each other, [] where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_no_module_of_the_core_imports_itself_through_others():
    """Imports for types count: a module that needs another's names cannot be read without it."""
    graph = {
        path.stem: {
            module.split(".")[2]
            for module, _ in imports(ast.parse(path.read_text(encoding="utf-8")))
            if module.startswith("lm_eval_adaptive.core.")
        }
        for path in MODULES
    }
    assert graph["procedure"] > {"ranker", "sampler"}
    assert first_circle(graph) == []
    assert first_circle({**graph, "ranker": {*graph["ranker"], "procedure"}})  # control


def asks_what_runs(tree):
    """Lines that ask which response model or inference it is: by its name, or by its class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
            if any(isinstance(p, ast.Constant) and p.value in RESPONSE_MODELS for p in parts):
                yield node.lineno
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) == "isinstance"
            and "Posterior" in ast.unparse(node.args[1])
        ):
            yield node.lineno


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_nobody_asks_which_inference_runs(path):
    assert list(asks_what_runs(ast.parse(path.read_text(encoding="utf-8")))) == []


def test_asking_which_inference_runs_is_noticed():
    for line in ("a.model == 'paper-1pl'", "isinstance(a, RobustPosterior)"):
        assert list(asks_what_runs(ast.parse(line))) == [1]


def test_there_is_a_core_to_look_at():
    assert {"bank.py", "inference.py", "procedure.py"} <= {path.name for path in MODULES}
