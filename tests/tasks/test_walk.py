"""A part of ``scripts/walk_tasks.py``: tasks of every kind run as the plain harness runs them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.support import toy
from tests.tasks import fakes

sys.path.insert(0, str(toy.ROOT / "scripts"))

# One of each kind, with why it is here.
KINDS = {
    "gsm8k/gsm8k-cot-self-consistency.yaml": "several filters over 64 repeats",
    "drop/default.yaml": "targets that are lists, two metrics",
    "truthfulqa/truthfulqa_gen.yaml": "a dozen metrics, pairs beside numbers",
    "super_glue/boolq/seq2seq.yaml": "a choice written out",
    "mmmu/mmmu_accounting.yaml": "pictures",
    "mbpp/mbpp.yaml": "code that is run",
    "mmlu_pro/mmlu_pro_biology.yaml": "documents left out by process_docs, few-shot of its own",
    "translation/wmt14_en-fr.yaml": "corpus metrics",
    "hendrycks_math/hendrycks_math_algebra.yaml": "documents made over by process_docs",
    "bbq/bbq_generate.yaml": "documents of one shape alone",
    "wmt2016/ro_en-t5_prompt.yaml": "a column of columns, a metric that is lower-is-better",
    "longproc/countdown_0.5k.yaml": "JSON inside a column",
}


@pytest.fixture(scope="module")
def walk():
    from lm_eval.tasks import TaskManager
    from walk import check, stand_ins

    stand_ins.register()
    manager = TaskManager(include_defaults=False, metadata=dict(check.METADATA))

    def one(path, root=None):
        import lm_eval.tasks

        root = root or Path(lm_eval.tasks.__file__).parent
        return check.look_at(manager, root / path, root)

    return one


@pytest.mark.slow
@pytest.mark.parametrize("path", KINDS)
def test_a_task_of_this_kind_runs_as_the_plain_harness_runs_it(path, walk, monkeypatch):
    monkeypatch.setenv("HF_ALLOW_CODE_EVAL", "1")
    found = walk(path)
    if "ModuleNotFoundError" in found.reason:
        pytest.skip(f"{path}: {found.reason}")
    assert (found.outcome, found.reason) == ("same", "")
    assert found.metrics


def test_the_walk_sees_what_differs(walk, tmp_path, monkeypatch):
    """The control: where our run is given another answer, the walk says so."""
    from walk import check

    from tests.host.small import write_task

    path = write_task(tmp_path / "family", "")
    assert walk(path.relative_to(tmp_path), tmp_path).outcome == "same"
    ours = check.run_by_us

    def one_score_lost(*args):
        rows = ours(*args)
        rows["a"][2]["score"] = -1.0
        return rows

    monkeypatch.setattr(check, "run_by_us", one_score_lost)
    found = walk(path.relative_to(tmp_path), tmp_path)
    assert found.outcome == "differs"
    assert "doc 2 none: score" in found.reason


def test_modules_that_kept_the_loader_read_the_documents_of_their_own_turn(walk):
    """A task's module imports ``load_dataset`` once; a later task must not get its documents."""
    from walk import check, stand_ins

    with stand_ins.no_hub(check.Documents([{"a": 1}]).load):
        from datasets import load_dataset as kept
    with stand_ins.no_hub(check.Documents([{"b": 2}]).load):
        assert kept("any", split="test")[0] == {"b": 2}


def test_a_task_of_a_known_shape_gets_documents_that_differ():
    from walk.shapes import SHAPES, shaped_documents

    for name in SHAPES:
        rows = shaped_documents(f"{name}_x")
        assert len({json.dumps(row, default=str) for row in rows}) == len(rows), name
    assert shaped_documents("gsm8k") is None


def test_a_python_task_of_likelihoods_is_told_apart(walk, tmp_path):
    from tests.host.small import write_task

    path = write_task(tmp_path / "family", "")
    text = path.read_text().replace("output_type: generate_until", "output_type: loglikelihood")
    path.write_text(text.replace("generation_kwargs", "generation_kwargs"))
    assert walk(path.relative_to(tmp_path), tmp_path).outcome == "no generation"


def test_pictures_are_refused_before_a_text_model_is_asked(tmp_path, capsys):
    from lm_eval_adaptive.cli.main import main
    from tests.host.small import register, write_task

    register()
    fakes.register()
    path = write_task(tmp_path / "tasks", 'doc_to_image: ["question"]')
    words = ["run", "--adaptive", "--tasks", path, "--bank", "none", "--items_per_model", "4"]
    for name in ("one", "two"):
        words += ["--model", "word", "--model_name", name]
    assert main([str(word) for word in [*words, "--output_path", tmp_path / "out"]]) == 2
    assert "pictures or sound" in (said := capsys.readouterr().err)
    assert "one (word), two (word)" in said


def test_the_page_counts_families_and_gives_reasons(tmp_path):
    from walk.table import write_table

    rows = [
        {"task": "a", "family": "x", "yaml": "x/a.yaml", "documents": "real", "outcome": "differs",
         "reason": "early", "metrics": [], "filters": [], "seconds": 1.0},
        {"task": "a", "family": "x", "yaml": "x/a.yaml", "documents": "real", "outcome": "same",
         "reason": "", "metrics": ["acc"], "filters": [], "seconds": 1.0},
        {"task": "b", "family": "y", "yaml": "y/b.yaml", "documents": "made up",
         "outcome": "refused", "reason": "metric | of b", "metrics": [], "filters": [],
         "seconds": 1.0},
    ]  # fmt: skip
    findings = tmp_path / "walk.jsonl"
    findings.write_text("\n".join(map(json.dumps, rows)))
    write_table(findings, tmp_path / "tasks.md")
    page = (tmp_path / "tasks.md").read_text()
    assert "| 2 families |" in page
    assert "early" not in page, "the last finding of a task counts"
    assert "- `b`: metric \\| of …" in page
    assert "| x | `a` | real | acc | same |" in page
