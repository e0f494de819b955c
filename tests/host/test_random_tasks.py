"""Tasks that draw at random: documents and prompts are those of a plain run with the same seed."""

from __future__ import annotations

import json
import random
import sys

import numpy as np
import pytest

from lm_eval_adaptive.host.draws import RandomState, may_draw, seed_everything

from .small import documents, run_adaptively, run_plainly, write_task

SHUFFLED = (
    """
process_docs: !function UTIL.shuffled
doc_to_text: "{{question}} {{c[0]}} / {{c[1]}} / {{c[2]}} / {{c[3]}}"
""",
    """
import random
def shuffled(dataset):
    def one(doc):
        c = [*doc["wrong"], doc["right"]]
        random.shuffle(c)
        return {"c": c}
    return dataset.map(one)
""",
)
DRAWN_TEXT = (
    "doc_to_text: !function UTIL.text\n",
    """
import random
def text(doc):
    return random.choice(["Please tell: ", "Say: ", "Q: ", "Hm, "]) + doc["question"]
""",
)
KINDS = {
    "choices shuffled at load": SHUFFLED,
    "prompts drawn at rendering": DRAWN_TEXT,
    "both, by numpy": (
        "process_docs: !function UTIL.marked\ndoc_to_text: !function UTIL.text\n",
        """
import numpy as np
def marked(dataset):
    return dataset.map(lambda doc: {"mark": int(np.random.randint(1000))})
def text(doc):
    return f"{doc['mark']} {np.random.rand():.6f} {doc['question']}"
""",
    ),
    "a template's filter": (
        "doc_to_text: \"{{ ['Say', 'Tell', 'Q'] | random }}: {{question}}\"\n",
        "",
    ),
    "few-shot examples drawn and worded": (
        "num_fewshot: 2\nfewshot_split: test\n" + DRAWN_TEXT[0],
        DRAWN_TEXT[1],
    ),
    "by a generator of its own": (
        "doc_to_text: !function UTIL.text\n",
        """
import random
rng = random.Random(8)
def text(doc):
    return rng.choice(["Say: ", "Tell: ", "Q: "]) + random.choice("ab") + doc["question"]
""",
    ),
    "a task in Python": (
        "class: !function UTIL.Own\n",
        """
import random
from lm_eval.api.task import ConfigurableTask
class Own(ConfigurableTask):
    def __init__(self, config):
        config.pop("class")
        super().__init__(config=config)
    def fewshot_context(self, doc, *args, **kwargs):
        return random.choice(["Say: ", "Tell: "]) + super().fewshot_context(doc, *args, **kwargs)
""",
    ),
    "behind a helper": (
        "doc_to_text: !function UTIL.text\n",
        """
from functools import partial
from random import choice as pick
def _helper(words):
    return pick(words)
def _text(doc, words):
    return _helper(words) + doc["question"]
text = partial(_text, words=["Say: ", "Tell: ", "Q: "])
""",
    ),
}


def prompts_of(results, task="small"):
    return {row["doc_id"]: (row["prompt_hash"], row["target"]) for row in results["samples"][task]}


def journalled(folder, task="small"):
    lines = (folder / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    return [
        row for row in map(json.loads, lines) if row["type"] == "answer" and row["task"] == task
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_are_those_of_a_plain_run_with_the_same_seeds(kind, tmp_path):
    yaml, code = KINDS[kind]
    plain = run_plainly(write_task(tmp_path / "plain", yaml, code), seeds=(3, 5))
    other = run_plainly(write_task(tmp_path / "other", yaml, code), seeds=(4, 6))
    assert prompts_of(plain) != prompts_of(other), "the task does not draw: nothing is tested"
    # The documents of another seed lie in the cache already.
    ours = write_task(tmp_path / "ours", yaml, code)
    run_plainly(ours, seeds=(4, 6))
    del sys.modules[str(ours.parent / "small_util")]  # another process
    found = run_adaptively(tmp_path / "run", ours, seeds=(3, 5))
    want = prompts_of(plain)
    for model in ("miss-0", "miss-2"):
        assert prompts_of(found["results"]["small"][model]) == want
    answers = journalled(tmp_path / "run")
    assert len(answers) == 48
    assert all(row["prompt_hash"] == want[row["doc_id"]][0] for row in answers)


def test_documents_are_those_of_a_plain_run_whatever_the_cache_holds(tmp_path):
    plain = run_plainly(write_task(tmp_path / "plain", *SHUFFLED), seeds=(3, 5))
    ours = write_task(tmp_path / "ours", *SHUFFLED)
    run_plainly(ours, seeds=(4, 6))
    found = run_adaptively(tmp_path / "run", ours, seeds=(3, 5), adaptive={"items_per_model": 9})
    docs = {row["doc_id"]: row["doc"] for row in plain["samples"]["small"]}
    rows = found["results"]["small"]["miss-0"]["samples"]["small"]
    assert len(rows) == 9
    assert all(row["doc"] == docs[row["doc_id"]] for row in rows)


def test_a_task_after_a_random_one_draws_where_the_first_left_off(tmp_path):
    def both(folder):
        first = write_task(folder / "a", *DRAWN_TEXT, name="first")
        return first, write_task(folder / "b", *SHUFFLED, name="second")

    plain = run_plainly(*both(tmp_path / "plain"))
    found = run_adaptively(tmp_path / "run", *both(tmp_path / "ours"))
    for task in ("first", "second"):
        ours = prompts_of(found["results"][task]["miss-2"], task)
        assert ours == prompts_of(plain, task)


def test_a_resumed_run_asks_the_prompts_of_the_unbroken_one(tmp_path):
    task = write_task(tmp_path / "task", *DRAWN_TEXT)
    unbroken = run_adaptively(tmp_path / "run", task, seeds=(3, 5))
    path = tmp_path / "run" / "journal.jsonl"
    kept = [
        line
        for line in path.read_text(encoding="utf-8").splitlines()
        if json.loads(line)["type"] != "end"
    ][:17]
    path.write_text("\n".join(kept) + "\n", encoding="utf-8")
    random.seed(99)  # the process that goes on stands elsewhere
    resumed = run_adaptively(tmp_path, task, seeds=(3, 5), resume=tmp_path / "run")
    for model in ("miss-0", "miss-2"):
        assert prompts_of(resumed["results"]["small"][model]) == prompts_of(
            unbroken["results"]["small"][model]
        )


def test_a_task_that_draws_nothing_is_rendered_for_chosen_documents_alone(tmp_path, monkeypatch):
    from lm_eval.api.task import ConfigurableTask

    rendered = []
    plain = ConfigurableTask.doc_to_text

    def counted(self, doc, *args):
        rendered.append(doc["question"])
        return plain(self, doc, *args)

    monkeypatch.setattr(ConfigurableTask, "doc_to_text", counted)
    task = write_task(tmp_path / "task", "")
    run_adaptively(
        tmp_path / "run", task, adaptive={"items_per_model": 2, "min_items": 2, "stratify": "right"}
    )
    assert len(set(rendered)) < len(documents()) / 2


def test_documents_made_anew_each_time_are_told(tmp_path):
    """The harness renders one shuffle and holds the answers against another one."""
    code = """
import random
import datasets
def mixed(dataset):
    docs = list(dataset)
    random.shuffle(docs)
    return datasets.Dataset.from_list(docs)
"""
    yaml = "process_docs: !function UTIL.mixed\n"
    plain = run_plainly(write_task(tmp_path / "plain", yaml, code))
    scores = [row["score"] for row in plain["samples"]["small"]]
    assert min(scores) < 1.0, "the harness scores each answer against its own document"
    found = run_adaptively(tmp_path / "run", write_task(tmp_path / "ours", yaml, code))
    ours = found["results"]["small"]["miss-0"]["samples"]["small"]
    hashes = {row["doc_id"]: row["prompt_hash"] for row in plain["samples"]["small"]}
    assert all(row["prompt_hash"] == hashes[row["doc_id"]] for row in ours)
    assert all(row["score"] == 1.0 for row in ours)
    told = " ".join(found["ranking"]["small"]["warnings"])
    assert "makes its documents anew each time" in told


@pytest.mark.parametrize("loaded", [False, True], ids=["without torch", "with torch"])
def test_a_state_can_be_gone_back_to(loaded):
    if loaded:
        pytest.importorskip("torch")
    seed_everything((1, 2, 3))
    state = RandomState.now()

    def drawn():
        return (random.random(), np.random.rand(), random.gauss(0, 1), np.random.randn())  # noqa: NPY002

    first = drawn()
    assert RandomState.now() != state
    state.restore()
    assert RandomState.now() == state
    assert drawn() == first


def test_functions_that_cannot_draw_are_known():
    def steady(doc):
        return json.dumps(doc["question"]).strip()

    def drawing(doc):
        import secrets

        return secrets.token_hex(4) + doc["question"]

    assert not may_draw(steady)
    assert may_draw(drawing)
    assert may_draw(np.random.default_rng(0).normal)
    assert may_draw(np.random.rand)
    assert may_draw(random.choice)
    assert not may_draw(str.strip)
