"""The model that answers from logs, run by the harness itself."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path

import pytest
import yaml
from lm_eval import simple_evaluate
from lm_eval.api.instance import Instance
from lm_eval.api.registry import get_model
from lm_eval.tasks import TaskManager

from lm_eval_adaptive.errors import DataError, ModelError, TaskError, UsageError
from lm_eval_adaptive.host.logs import find_runs
from lm_eval_adaptive.host.replay import ReplayLM, register
from scripts.make.truthfulqa_task import DOCUMENTS, write_tasks

from ..fixtures.logs import (  # noqa: TID252  a package of the tests alone
    DATES,
    TASK,
    doc,
    sample,
    write_run,
)

pytestmark = pytest.mark.contract

SHARED = Path(__file__).parents[3] / "shared" / "lm_eval_logs"
ROWS = [sample(doc_id, resps=[f"reply {doc_id}"]) for doc_id in range(5)]


def ask(doc_id: int = 0, *, prompt: str | None = None, document=None, idx=0, task=TASK, **settings):
    document = doc(doc_id) if document is None else document
    return Instance(
        request_type="generate_until",
        doc=document,
        arguments=(f"Q: {document['question']}" if prompt is None else prompt, settings),
        idx=idx,
        metadata=(task, doc_id, 1),
    )


@pytest.fixture
def toy_task(tmp_path):
    """A generation task over five documents whose metric is 1 for the answer that was logged."""
    data = tmp_path / "docs.jsonl"
    data.write_text("".join(json.dumps(doc(doc_id)) + "\n" for doc_id in range(5)))
    config = {
        "task": TASK,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "Q: {{question}}",
        "doc_to_target": "reply {{n}}",
        "generation_kwargs": {"until": ["\n"]},
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
        "metadata": {"version": 1.0},
    }
    folder = tmp_path / "task"
    folder.mkdir()
    (folder / "toy.yaml").write_text(yaml.safe_dump(config))
    return TaskManager(include_path=str(folder), include_defaults=False)


# --- through the harness ---


@pytest.mark.parametrize("chat", [False, True])
def test_the_harness_scores_the_logged_answers(tmp_path, toy_task, chat):
    register()
    register()  # a second call is harmless
    write_run(tmp_path, "m", ROWS)
    out = simple_evaluate(
        model="replay",
        model_args=f"samples={tmp_path / 'm'}",
        tasks=[TASK],
        task_manager=toy_task,
        bootstrap_iters=0,
        apply_chat_template=chat,
    )
    assert [s["resps"] for s in out["samples"][TASK]] == [[[f"reply {i}"]] for i in range(5)]
    assert out["results"][TASK]["exact_match,none"] == 1.0
    assert out["config"]["replayed_model"] == "m"


def test_a_subset_of_the_documents_gets_its_own_answers(tmp_path, toy_task):
    write_run(tmp_path, "m", ROWS)
    out = simple_evaluate(
        model=ReplayLM(samples=str(tmp_path)),
        tasks=[TASK],
        task_manager=toy_task,
        bootstrap_iters=0,
        samples={TASK: [1, 3]},
    )
    assert [s["resps"] for s in out["samples"][TASK]] == [[["reply 1"]], [["reply 3"]]]


def test_the_harness_makes_one_from_its_arguments(tmp_path):
    register()
    write_run(tmp_path, "m", ROWS)
    made = get_model("replay").create_from_arg_string(
        f"samples={tmp_path},latency=0.001:0,task={TASK}", {"batch_size": 1, "device": "cpu"}
    )
    also = ReplayLM.create_from_arg_obj({"samples": str(tmp_path)}, {"max_batch_size": None})
    for lm in (made, also):
        assert lm.generate_until([ask(4), ask(2)]) == ["reply 4", "reply 2"]
        assert lm.tokenizer_name == "replay-m"


# --- how an answer is found ---


def test_the_prompt_comes_before_the_document(tmp_path):
    rows = [sample(0, prompt="same", resps=["by prompt"]), sample(1, resps=["by content"])]
    write_run(tmp_path, "m", rows)
    lm = ReplayLM(samples=str(tmp_path))
    assert lm.generate_until([ask(1, prompt="same")]) == ["by prompt"]
    assert lm.generate_until([ask(1, prompt="<user>other template")]) == ["by content"]


def test_the_document_is_known_in_any_order_of_its_columns(tmp_path):
    write_run(tmp_path, "m", ROWS)
    turned = dict(reversed(doc(3).items()))
    lm = ReplayLM(samples=str(tmp_path))
    assert lm.generate_until([ask(9, prompt="new", document=turned)]) == ["reply 3"]


def test_what_is_not_logged_is_an_error_that_names_the_keys(tmp_path):
    path = write_run(tmp_path, "m", ROWS)
    edited = ask(2, document=doc(2, question="edited"))
    with pytest.raises(ModelError) as caught:
        ReplayLM(samples=str(tmp_path)).generate_until([edited])
    for part in (str(path), "doc_id 2", "prompt hash", "content hash", "add by=doc_id"):
        assert part in str(caught.value)
    assert ReplayLM(samples=str(tmp_path), by="doc_id").generate_until([edited]) == ["reply 2"]
    with pytest.raises(ModelError, match=r"doc_id 7 .*nor by doc_id \(tried\)"):
        ReplayLM(samples=str(tmp_path), by="doc_id").generate_until([ask(7)])


def test_repeats_are_served_in_order_and_never_twice(tmp_path):
    write_run(tmp_path, "m", [sample(0, resps=["first", "second"]), sample(1, resps=["one"])])
    lm = ReplayLM(samples=str(tmp_path))
    request = ask(0)
    assert lm.generate_until([request, ask(1), request]) == ["first", "one", "second"]
    assert lm.generate_until([request]) == ["first"]  # each call starts anew
    with pytest.raises(ModelError, match="holds 2 answers of m to doc_id 0, and repeat 3"):
        lm.generate_until([request] * 3)


def test_equal_documents_are_told_apart_by_their_id(tmp_path):
    rows = [sample(i, document=doc(0), resps=[f"reply {i}"]) for i in range(2)]
    write_run(tmp_path, "m", rows)
    lm = ReplayLM(samples=str(tmp_path))
    asked = [ask(i, document=doc(0)) for i in (1, 0)]
    assert lm.generate_until(asked) == ["reply 1", "reply 0"]
    with pytest.raises(ModelError, match=r"doc_id 5 fits several logged documents \(0, 1\)"):
        lm.generate_until([ask(5, document=doc(0))])


def test_a_document_with_several_requests(tmp_path):
    row = sample(0)
    row["arguments"]["gen_args_1"] = {"arg_0": "second prompt", "arg_1": {}}
    row["resps"] = [["to the first"], ["to the second"]]
    write_run(tmp_path, "m", [row])
    lm = ReplayLM(samples=str(tmp_path))
    by_prompt = [ask(0, prompt="second prompt", idx=1), ask(0)]
    assert lm.generate_until(by_prompt) == ["to the second", "to the first"]
    by_content = [ask(0, prompt="x", idx=1), ask(0, prompt="y", idx=0)]
    assert lm.generate_until(by_content) == ["to the second", "to the first"]


def test_several_filters_of_a_log_hold_one_answer(tmp_path):
    strict = [sample(i, filter="strict", resps=[f"reply {i}"]) for i in range(5)]
    write_run(tmp_path, "m", [*ROWS, *strict])
    assert ReplayLM(samples=str(tmp_path)).generate_until([ask(1)]) == ["reply 1"]


def test_the_task_of_the_request_picks_its_log(tmp_path):
    write_run(tmp_path, "m", ROWS)
    write_run(tmp_path, "m", [sample(0, resps=["other"])], task="other", date=DATES.format(1))
    lm = ReplayLM(samples=str(tmp_path))
    assert lm.generate_until([ask(0), ask(0, task="other")]) == ["reply 0", "other"]
    with pytest.raises(ModelError, match=r"answers of m to other, toy_gen, not to third"):
        lm.generate_until([ask(0, task="third")])
    renamed = ReplayLM(samples=str(tmp_path), task="other")
    assert renamed.generate_until([ask(0, task="third")]) == ["other"]


def test_incomplete_logs_answer_what_they_hold(tmp_path):
    write_run(tmp_path, "m", ROWS[:2], config={"limit": 2.0, "model_args": ""})
    assert ReplayLM(samples=str(tmp_path)).generate_until([ask(1)]) == ["reply 1"]


# --- arguments ---


def test_one_of_several_runs_has_to_be_chosen(tmp_path):
    for model in ("org/a", "org/b"):
        write_run(tmp_path, model, [sample(0, resps=[f"says {model}"])])
    with pytest.raises(UsageError, match=r"several runs \(org/a, org/b\); choose one with model="):
        ReplayLM(samples=str(tmp_path))
    lm = ReplayLM(samples=str(tmp_path), model="org/b")
    assert lm.generate_until([ask(0)]) == ["says org/b"]
    with pytest.raises(UsageError, match="no samples of model 'c'; there are: org/a, org/b"):
        ReplayLM(samples=str(tmp_path), model="c")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"latency": "fast"}, "latency=fast is wrong"),
        ({"latency": "1:2:3"}, "latency=1:2:3 is wrong"),
        ({"latency": -1}, "latency=-1 is wrong"),
        ({"by": "luck"}, "by=luck is unknown"),
        ({"smaples": "x"}, "does not know the argument 'smaples'"),
    ],
)
def test_wrong_arguments_are_refused(tmp_path, arguments, message):
    write_run(tmp_path, "m", ROWS)
    with pytest.raises(UsageError, match=message):
        ReplayLM(samples=str(tmp_path), **arguments)


def test_missing_samples_are_refused_at_the_start(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        ReplayLM(samples=str(tmp_path / "none"))


def test_likelihoods_are_refused(tmp_path):
    write_run(tmp_path, "m", ROWS)
    lm = ReplayLM(samples=str(tmp_path))
    for method in (lm.loglikelihood, lm.loglikelihood_rolling):
        with pytest.raises(TaskError, match=f"generate_until only, and task {TASK}"):
            method([ask(0)])


def test_latency_counts_calls_and_documents(tmp_path, monkeypatch):
    write_run(tmp_path, "m", ROWS)
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    ReplayLM(samples=str(tmp_path), latency="0.5:0.25").generate_until([ask(0), ask(1)])
    ReplayLM(samples=str(tmp_path), latency=0.5).generate_until([ask(0)])
    ReplayLM(samples=str(tmp_path)).generate_until([ask(0)])
    assert slept == [1.0, 0.5]


def test_other_generation_settings_are_told_once(tmp_path, caplog):
    write_run(tmp_path, "m", ROWS)
    lm = ReplayLM(samples=str(tmp_path))
    with caplog.at_level(logging.WARNING):
        lm.generate_until([ask(0, until=["\n"])])
        assert caplog.records == []
        lm.generate_until([ask(0, until=["."]), ask(1, until=["."])])
    assert [record.getMessage() for record in caplog.records] == [
        "replayed answers of m were generated with until=['\\n'], the task asks for ['.']"
    ]


# --- real logs ---


@pytest.mark.skipif(
    not (SHARED.is_dir() and DOCUMENTS.is_dir()), reason="the shared logs and data are not here"
)
@pytest.mark.parametrize(
    ("language", "model", "chat"),
    [("en", "meta-llama__Meta-Llama-3-8B", False), ("es", "google__gemma-2-9b-it", True)],
)
@pytest.mark.slow
def test_a_real_run_is_reproduced_in_full(tmp_path, language, model, chat):
    register()
    write_tasks(tmp_path)
    task = f"truthfulqa-multi_gen_{language}"
    log = SHARED / task / model
    out = simple_evaluate(
        model="replay",
        model_args={"samples": str(log)},
        tasks=[task],
        task_manager=TaskManager(include_path=str(tmp_path), include_defaults=False),
        bootstrap_iters=0,
        apply_chat_template=chat,
        fewshot_as_multiturn=chat,
    )
    (run,) = find_runs(log, task)
    logged = {answer.doc_id: answer for answer in run.answers}
    samples = out["samples"][task]
    assert len(samples) == len(logged) == 817
    for got in samples:
        answer = logged[got["doc_id"]]
        assert got["resps"] == [answer.resps]
        # Equal up to the last bits, in which the logarithm of another numpy differs.
        for metric in ("bleu_max", "bleu_diff", "bleu_acc"):
            assert got[metric] == pytest.approx(answer.metrics[metric], rel=1e-12, abs=1e-12)
        if not chat:
            assert got["prompt_hash"] == answer.prompt_hash
