"""`run --adaptive` end to end on toy models of known order: files, order, durability."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from lm_eval_adaptive.api import simple_evaluate
from lm_eval_adaptive.errors import DataError, ModelError, TaskError, UsageError
from lm_eval_adaptive.run.config import AdaptiveConfig
from tests.support import toy


def run(bank, output, models=None, **adaptive):
    return simple_evaluate(
        models or toy.models(),
        [toy.TASK],
        AdaptiveConfig(bank=bank, **adaptive),
        output_path=str(output),
    )


# A short warm-up and a high level, so that the adaptive part has something to do: under Student's t_8
# 0.999 asks for 2.2 times the errors that 0.95 asks for.
RULES = {"min_items": 6, "confidence": 0.999, "round_size": 2}
RULE_WORDS = ["--min_items", "6", "--confidence", "0.999", "--round_size", "2"]


@pytest.fixture(scope="module")
def finished(toy_bank, tmp_path_factory):
    toy.register()
    folder = tmp_path_factory.mktemp("finished")
    return run(toy_bank, folder, **RULES), folder


@pytest.mark.contract
def test_ranks_models_of_known_order_with_a_part_of_the_documents(finished):
    found, _ = finished
    ranking = found["ranking"][toy.TASK]
    assert [entry["model"] for entry in ranking["ranking"]] == ["strong", "middle", "weak"]
    assert ranking["stop_reason"] == "decided"
    assert ranking["fraction"] < 0.2
    required = [pair for pair in ranking["pairs"] if pair["required"]]
    assert [pair["verdict"] for pair in required] == ["a", "a"]


@pytest.mark.contract
def test_estimates_hold_the_full_scores_that_lm_eval_finds(finished):
    from lm_eval import simple_evaluate as stock
    from lm_eval.tasks import TaskManager

    from lm_eval_adaptive.host.find_tasks import tasks_folder

    found, _ = finished
    manager = TaskManager(include_path=str(tasks_folder()), include_defaults=False)
    for entry in found["ranking"][toy.TASK]["ranking"]:
        name = entry["model"]
        full = stock(
            model="toy",
            model_args={"share": toy.RANKED[name], "name": name},
            tasks=[toy.TASK],
            task_manager=manager,
            bootstrap_iters=0,
        )["results"][toy.TASK]["rougeL,none"]
        assert abs(entry["score"] - full) < 4.0 * entry["score_se"], name
        assert entry["score_ci"][0] < entry["score"] < entry["score_ci"][1]


@pytest.mark.contract
def test_no_document_is_asked_twice_of_a_model(finished):
    found, folder = finished
    records = toy.journal(folder)
    asked = [(r["model"], r["doc_id"]) for r in records if r["type"] == "answer"]
    assert len(asked) == len(set(asked)) == found["ranking"][toy.TASK]["items_total"]


def test_every_question_is_in_the_journal_before_its_answer(finished):
    _, folder = finished
    records = toy.journal(folder)
    planned = set()
    for record in records:
        if record["type"] == "round":
            planned |= {(a["model"], d) for a in record["asks"] for d in a["doc_ids"]}
        elif record["type"] == "answer":
            assert (record["model"], record["doc_id"]) in planned


def test_result_files_are_the_harness_s_with_true_ids_and_the_estimate(finished):
    found, folder = finished
    by_model = {entry["model"]: entry for entry in found["ranking"][toy.TASK]["ranking"]}
    for name, entry in by_model.items():
        (results_file,) = (folder / name).glob("results_*.json")
        (samples_file,) = (folder / name).glob(f"samples_{toy.TASK}_*.jsonl")
        assert results_file.stem.split("_", 1)[1] == samples_file.stem.rsplit("_", 1)[1]
        results = json.loads(results_file.read_text())
        table = results["results"][toy.TASK]
        assert table["rougeL,adaptive"] == entry["score"]
        assert table["rougeL_stderr,adaptive"] == entry["score_se"]
        assert not [key for key in table if key.endswith(",none")], "a biased mean is no score"
        assert results["n-samples"][toy.TASK]["original"] == 312
        assert results["n-samples"][toy.TASK]["effective"] == entry["items"]
        assert results["config"]["model"] == "toy"
        assert results["model_name"] == name
        rows = [json.loads(line) for line in samples_file.read_text().splitlines()]
        trace = [t for t in found["ranking"][toy.TASK]["trace"] if t["model"] == name]
        assert sorted(row["doc_id"] for row in rows) == sorted(t["doc_id"] for t in trace)
        raw = {t["doc_id"]: t["raw_score"] for t in trace}
        assert all(row["rougeL"] == raw[row["doc_id"]] for row in rows)


def test_sample_rows_equal_those_of_a_full_run(finished, tmp_path):
    """Prompt, hashes, answer and metrics of an asked document are what a full run would log."""
    _, folder = finished
    toy.command(
        "run", "--model", "toy", "--model_args", "share=0.66,name=strong", "--tasks", toy.TASK,
        "--log_samples", "--output_path", tmp_path,
    )  # fmt: skip
    (full_file,) = tmp_path.rglob("samples_*.jsonl")
    full = {row["doc_id"]: row for row in map(json.loads, full_file.read_text().splitlines())}
    (file,) = (folder / "strong").glob("samples_*.jsonl")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert rows
    for row in rows:
        assert row == full[row["doc_id"]]


def test_same_run_in_another_order_and_hash_seed_gives_the_same_ranking(toy_bank, tmp_path):
    words = ["run", "--adaptive", "--tasks", toy.TASK, "--bank", toy_bank, *RULE_WORDS]
    forward = toy.candidate_words()
    backward = toy.candidate_words(dict(reversed(toy.RANKED.items())))
    toy.command(*words, *forward, "--output_path", tmp_path / "a", hash_seed="1")
    toy.command(*words, *backward, "--output_path", tmp_path / "b", hash_seed="77")
    one, two = toy.ranking_of(tmp_path / "a"), toy.ranking_of(tmp_path / "b")
    assert toy.undated(one) == toy.undated(two)
    assert len({entry["items"] for entry in one["ranking"]}) > 1, "the adaptive part ran"


def killed_run(bank, folder, lines):
    """A run in a process of its own that dies by SIGKILL after some journal lines."""

    def child():
        from lm_eval_adaptive.run.journal import Journal

        write, written = Journal.write, [0]

        def counted(self, record):
            write(self, record)
            written[0] += 1
            if written[0] >= lines:
                os.kill(os.getpid(), signal.SIGKILL)

        Journal.write = counted
        run(bank, folder, **RULES)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL


def test_killed_at_20_random_points_and_resumed_equals_the_unbroken_run(
    toy_bank, tmp_path, finished
):
    expected = toy.undated(finished[0]["ranking"][toy.TASK])
    whole = toy.journal(finished[1])
    rng = np.random.default_rng(5)
    points = rng.choice(np.arange(1, len(whole)), size=20, replace=len(whole) < 21)
    for number, lines in enumerate(points):
        folder = tmp_path / str(number)
        killed_run(toy_bank, folder, int(lines))
        with (folder / "journal.jsonl").open("a") as file:
            file.write('{"type": "answer", "task": "records_to')  # the line the kill cut off
        found = simple_evaluate(
            toy.models(), [toy.TASK], AdaptiveConfig(bank=toy_bank, **RULES), resume=folder
        )
        assert toy.undated(found["ranking"][toy.TASK]) == expected, lines
        records = toy.journal(folder)
        asked = [(r["model"], r["doc_id"]) for r in records if r["type"] == "answer"]
        assert len(asked) == len(set(asked)) == expected["items_total"]


def test_resume_from_the_command_line_needs_the_folder_alone(toy_bank, tmp_path):
    folder = tmp_path / "out"
    words = ["run", "--adaptive", "--tasks", toy.TASK, "--bank", toy_bank, *RULE_WORDS]
    toy.command(*words, *toy.candidate_words(), "--output_path", folder)
    unbroken = toy.undated(toy.ranking_of(folder))
    (ranking,) = folder.glob("ranking_*.json")
    ranking.unlink()
    journal = folder / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[: journal.stat().st_size // 2])
    done = toy.command("run", "--adaptive", "--resume", folder)
    assert "half-written" in done.stderr
    assert toy.undated(toy.ranking_of(folder)) == unbroken


def test_resume_under_another_option_names_the_difference(toy_bank, finished):
    _, folder = finished
    with pytest.raises(DataError, match=r"adaptive\.confidence was 0\.999 .* is 0\.9 now"):
        simple_evaluate(
            toy.models(),
            [toy.TASK],
            AdaptiveConfig(bank=toy_bank, **{**RULES, "confidence": 0.9}),
            resume=folder,
        )


def test_finished_journal_is_kept_and_unfinished_is_not_written_over(toy_bank, tmp_path):
    first = run(toy_bank, tmp_path, items_per_model=3, min_items=3)
    second = run(toy_bank, tmp_path, items_per_model=4, min_items=3)
    assert (tmp_path / "journal_1.jsonl").exists()
    assert first["ranking"][toy.TASK]["items_total"] == 9
    assert second["ranking"][toy.TASK]["items_total"] == 12
    journal = tmp_path / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(lines[:-1]))  # without its `end`
    before = journal.read_text()
    with pytest.raises(UsageError, match="unfinished run; go on with --resume"):
        run(toy_bank, tmp_path, items_per_model=4, min_items=3)
    assert journal.read_text() == before


def test_a_model_that_fails_is_set_aside_and_the_others_go_on(toy_bank, tmp_path):
    models = toy.models()
    models[1]["model_args"]["fail_after"] = 4
    ranking = run(toy_bank, tmp_path, models, **RULES)["ranking"][toy.TASK]
    assert [entry["model"] for entry in ranking["ranking"]] == ["strong", "weak"]
    (lost,) = ranking["set_aside"]
    assert (lost["model"], lost["items"]) == ("middle", 4)
    assert "the card fell out of the bus" in lost["reason"]
    assert ranking["stop_reason"] == "decided"
    records = toy.journal(tmp_path)
    assert sum(r["type"] == "answer" and r["model"] == "middle" for r in records) == 4
    assert list((tmp_path / "middle").glob("samples_*.jsonl")), "its answers are kept"


def test_a_failed_model_that_is_mended_gives_the_unbroken_ranking(toy_bank, tmp_path):
    flag = tmp_path / "broken"
    models = toy.models()
    models[1]["model_args"]["fail_file"] = str(flag)
    unbroken = run(toy_bank, tmp_path / "a", models, **RULES)["ranking"][toy.TASK]
    flag.touch()
    failed = run(toy_bank, tmp_path / "b", models, **RULES)["ranking"][toy.TASK]
    assert [each["model"] for each in failed["set_aside"]] == ["middle"]
    flag.unlink()
    adaptive = AdaptiveConfig(bank=toy_bank, **RULES)
    mended = simple_evaluate(models, [toy.TASK], adaptive, resume=tmp_path / "b")
    assert toy.undated(mended["ranking"][toy.TASK]) == toy.undated(unbroken)
    records = toy.journal(tmp_path / "b")
    asked = [(r["model"], r["doc_id"]) for r in records if r["type"] == "answer"]
    assert len(asked) == len(set(asked)), "no document is asked twice of a model"


def test_when_all_models_fail_there_is_no_ranking(toy_bank, tmp_path):
    models = toy.models()
    for model in models:
        model["model_args"]["fail_after"] = 1
    with pytest.raises(ModelError, match=r"fell out of the bus.*--resume") as error:
        run(toy_bank, tmp_path, models)
    assert error.value.exit_code == 1
    assert not list(tmp_path.glob("ranking_*"))


def test_a_model_that_answers_none_is_asked_again_and_set_aside(toy_bank, tmp_path, monkeypatch):
    from lm_eval_adaptive.host.stop import Stop

    pauses = []
    monkeypatch.setattr(Stop, "sleep", lambda self, seconds: pauses.append(seconds))
    models = toy.models()
    models[0]["model_args"]["none"] = True
    ranking = run(toy_bank, tmp_path, models)["ranking"][toy.TASK]
    assert [pause for pause in pauses if pause] == [1.0, 2.0]
    assert "gave None instead of text" in ranking["set_aside"][0]["reason"]
    assert [entry["model"] for entry in ranking["ranking"]] == ["strong", "middle"]


def test_models_that_work_elsewhere_are_asked_side_by_side(toy_bank, tmp_path, monkeypatch):
    rules = {"items_per_model": 6, "min_items": 6, "round_size": 2}
    plain, lock, at_work, most = toy.ToyLM.generate_until, threading.Lock(), [0], [0]

    def counted(self, requests, **_):
        with lock:
            at_work[0] += 1
            most[0] = max(most[0], at_work[0])
        time.sleep(0.3)  # long enough for the others to begin
        try:
            return plain(self, requests)
        finally:
            with lock:
                at_work[0] -= 1

    monkeypatch.setattr(toy.ToyLM, "generate_until", counted)
    one = run(toy_bank, tmp_path / "turns", **rules)["ranking"][toy.TASK]
    assert most == [1]
    monkeypatch.setattr(toy.ToyLM, "side_by_side", True, raising=False)
    two = run(toy_bank, tmp_path / "side", **rules)["ranking"][toy.TASK]
    assert most == [3]
    assert toy.undated(one) == toy.undated(two)


def test_the_ranking_does_not_depend_on_who_answers_first(toy_bank, tmp_path, monkeypatch):
    monkeypatch.setattr(toy.ToyLM, "side_by_side", True, raising=False)
    found = []
    for number, waits in enumerate([(0.0, 0.01, 0.03), (0.03, 0.01, 0.0)]):
        plain = toy.ToyLM.generate_until

        def slow(self, requests, waits=waits, plain=plain, **_):
            time.sleep(waits[sorted(toy.RANKED).index(self.name)])
            return plain(self, requests)

        monkeypatch.setattr(toy.ToyLM, "generate_until", slow)
        found.append(run(toy_bank, tmp_path / str(number), **RULES)["ranking"][toy.TASK])
        monkeypatch.setattr(toy.ToyLM, "generate_until", plain)
    assert toy.undated(found[0]) == toy.undated(found[1])


def test_resident_bounds_the_models_in_memory(toy_bank, tmp_path, monkeypatch):
    from lm_eval_adaptive.host.candidate import Candidate

    held: set[str] = set()
    most = [0]
    load, unload = Candidate._load, Candidate.unload

    def counted_load(self):
        held.add(self.name)
        most[0] = max(most[0], len(held))
        return load(self)

    def counted_unload(self):
        held.discard(self.name)
        unload(self)

    monkeypatch.setattr(Candidate, "_load", counted_load)
    monkeypatch.setattr(Candidate, "unload", counted_unload)
    free = run(toy_bank, tmp_path / "free", **RULES)["ranking"][toy.TASK]
    assert most[0] == 3
    held.clear()
    most[0] = 0
    rules = {**RULES, "round_size": "auto"}
    bound = run(toy_bank, tmp_path / "bound", resident=1, **rules)["ranking"][toy.TASK]
    assert most[0] == 1
    assert "round:auto8" in bound["signature"], "rounds grow, so that a load serves more"
    assert [each["model"] for each in free["ranking"]] == [
        each["model"] for each in bound["ranking"]
    ]


def test_a_model_that_does_not_fit_waits_for_another_to_leave(toy_bank, tmp_path, monkeypatch):
    from lm_eval_adaptive.host.candidate import Candidate

    held: list[str] = []
    load, unload = Candidate._load, Candidate.unload

    def tight(self):
        if len(held) == 2:
            raise ModelError("does not load") from RuntimeError("CUDA out of memory")
        held.append(self.name)
        return load(self)

    def leave(self):
        held.remove(self.name)
        unload(self)

    monkeypatch.setattr(Candidate, "_load", tight)
    monkeypatch.setattr(Candidate, "unload", leave)
    ranking = run(toy_bank, tmp_path, **RULES)["ranking"][toy.TASK]
    assert not ranking["set_aside"]
    assert [entry["model"] for entry in ranking["ranking"]] == ["strong", "middle", "weak"]


def test_a_full_disk_is_a_clear_end(toy_bank, tmp_path, monkeypatch):
    from lm_eval_adaptive.run.journal import Journal

    write, written = Journal.write, [0]

    def full(self, record):
        written[0] += 1
        if written[0] == 10:
            raise OSError(28, "No space left on device", str(self.path))
        write(self, record)

    monkeypatch.setattr(Journal, "write", full)
    with pytest.raises(ModelError, match=r"No space left on device.*--resume"):
        run(toy_bank, tmp_path, **RULES)
    monkeypatch.setattr(Journal, "write", write)
    found = simple_evaluate(
        toy.models(), [toy.TASK], AdaptiveConfig(bank=toy_bank, **RULES), resume=tmp_path
    )
    assert found["ranking"][toy.TASK]["stop_reason"] == "decided"


def test_empty_answers_count_and_are_reported(toy_bank, tmp_path):
    models = toy.models()
    models[0]["model_args"]["empty"] = True
    ranking = run(toy_bank, tmp_path, models)["ranking"][toy.TASK]
    assert ranking["ranking"][-1]["model"] == "weak"
    asked = ranking["ranking"][-1]["items"]
    assert f"weak: {asked} of {asked} answers are empty" in ranking["warnings"]


def test_a_document_whose_metric_raises_is_left_out_for_all_models(toy_bank, tmp_path, monkeypatch):
    from lm_eval_adaptive.run import marking

    plain = marking.mark
    broken: set[int] = set()

    def mark(task, terms, answer):
        found = plain(task, terms, answer)
        if answer.doc_id % 3 == 0:
            broken.add(answer.doc_id)
            return type(found)(raw_score=None, score=None, clipped=False, problem="rougeL is nan")
        return found

    monkeypatch.setattr(marking, "mark", mark)
    ranking = run(toy_bank, tmp_path)["ranking"][toy.TASK]
    assert broken
    assert {entry["doc_id"] for entry in ranking["excluded"]} == broken
    assert "rougeL is nan" in ranking["excluded"][0]["reason"]
    assert all(np.isfinite(entry["score"]) for entry in ranking["ranking"])
    assert [entry["model"] for entry in ranking["ranking"]] == ["strong", "middle", "weak"]
    for name in toy.RANKED:
        (samples,) = (tmp_path / name).glob("samples_*.jsonl")
        ids = {json.loads(line)["doc_id"] for line in samples.read_text().splitlines()}
        assert not ids & broken


def test_metric_that_the_task_does_not_give_is_named(toy_bank, tmp_path, monkeypatch):
    from dataclasses import replace

    from lm_eval_adaptive.core.bank import ItemBank

    bank = ItemBank.load(toy_bank)
    other = replace(bank, info=replace(bank.info, metric="rouge2")).save(tmp_path / "b.parquet")
    with pytest.raises(TaskError, match="gives no metric 'rouge2'; it has rougeL, slot_coverage"):
        run(other, tmp_path / "out")


def test_rounds_ask_several_documents_in_one_call(toy_bank, tmp_path):
    run(toy_bank, tmp_path, round_size=5, items_per_model=10)
    records = toy.journal(tmp_path)
    rounds = [record for record in records if record["type"] == "round"]
    assert len(rounds) == 2
    assert all(len(ask["doc_ids"]) == 5 for record in rounds for ask in record["asks"])


def test_budget_is_never_overrun(toy_bank, tmp_path):
    models = toy.models({"one": 0.5, "two": 0.52})
    models[0]["cost"] = 0.25
    found = run(toy_bank, tmp_path, models, budget=20.0, confidence=1 - 1e-9, futility=0.0)
    ranking = found["ranking"][toy.TASK]
    assert ranking["stop_reason"] == "budget"
    assert 12.5 < ranking["cost_total"] <= 20.0
    by_model = {entry["model"]: entry for entry in ranking["ranking"]}
    assert by_model["one"]["items"] > by_model["two"]["items"]


def test_one_model_stops_at_its_precision(toy_bank, tmp_path):
    ranking = run(toy_bank, tmp_path, toy.models({"alone": 0.6}), precision=0.04)
    ranking = ranking["ranking"][toy.TASK]
    assert ranking["stop_reason"] == "precision"
    assert ranking["ranking"][0]["score_se"] <= 0.04
    assert ranking["pairs"] == []


def test_few_shot_prompts_equal_those_of_a_full_run(toy_bank, tmp_path):
    """Few-shot draws run through the documents, so a chosen document needs the full run's draw."""
    from lm_eval_adaptive.host.find_tasks import make_task_manager
    from lm_eval_adaptive.host.settings import HarnessSettings
    from lm_eval_adaptive.host.task import PromptSettings, TaskDocs, build_instances, load_task

    settings = HarnessSettings(tasks=(toy.TASK,))
    for sampler, split in (("default", "fewshot"), ("default", "test"), ("first_n", "fewshot")):
        manager = make_task_manager(settings)
        task = load_task(manager, toy.TASK)
        task.fewshot_cfg.split = split
        from lm_eval.api.samplers import get_sampler

        task.sampler = get_sampler(sampler)(list(task.dataset[split]), rnd=None)
        docs = TaskDocs(task)
        prompt = PromptSettings(num_fewshot=3)
        served = docs.serve(prompt)
        chosen = [200, 3, 7, 311]
        mine = build_instances(served, chosen, prompt, None)
        task.set_config("num_fewshot", 3)
        task.set_fewshot_seed(1234)
        task.build_all_requests(rank=0, world_size=1)
        full = {each.doc_id: each.arguments for each in task.instances}
        assert [each.doc_id for each in mine] == chosen
        for each in mine:
            assert each.arguments == full[each.doc_id]
        if (sampler, split) == ("default", "fewshot"):
            # The control: drawing only for the chosen documents gives other prompts.
            task.set_fewshot_seed(1234)
            naive = [task.fewshot_context(docs.docs[i], num_fewshot=3) for i in chosen]
            assert naive != [full[i][0] for i in chosen]


def test_chat_template_and_system_instruction_reach_the_prompt(toy_bank, tmp_path):
    models = toy.models()
    found = simple_evaluate(
        models,
        [toy.TASK],
        AdaptiveConfig(bank=toy_bank, items_per_model=2, min_items=2),
        output_path=str(tmp_path),
        apply_chat_template=True,
        system_instruction="Be brief.",
        num_fewshot=1,
    )
    (samples,) = (tmp_path / "weak").glob("samples_*.jsonl")
    prompt = json.loads(samples.read_text().splitlines()[0])["arguments"]["gen_args_0"]["arg_0"]
    assert prompt.startswith("<system>Be brief.")
    assert prompt.count("<assistant>") == 2
    assert any("prompts differ" in w for w in found["ranking"][toy.TASK]["warnings"])


def test_repeats_are_asked_and_paid(toy_bank, tmp_path, monkeypatch):
    from lm_eval_adaptive.host import task as module

    load = module.load_tasks

    def thrice(manager, names, **options):
        (task,), others = load(manager, names, **options)
        task.set_config("repeats", 3)
        return [task], others

    monkeypatch.setattr(module, "load_tasks", thrice)
    found = run(toy_bank, tmp_path, items_per_model=2, min_items=2)
    assert found["ranking"][toy.TASK]["cost_total"] == 3 * 2 * 3
    records = toy.journal(tmp_path)
    assert all(len(r["resps"]) == 3 for r in records if r["type"] == "answer")


def test_interrupt_saves_and_says_how_to_resume(toy_bank, tmp_path):
    folder = tmp_path / "out"
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[1]); from tests.support import toy;"
        "toy.register(); plain = toy.ToyLM.generate_until;"
        "toy.ToyLM.generate_until = lambda self, r, **k: (time.sleep(0.3), plain(self, r))[1];"
        "from lm_eval_adaptive.cli.main import main; sys.exit(main(sys.argv[2:]))"
    )
    words = ["run", "--adaptive", "--tasks", toy.TASK, "--bank", str(toy_bank)]
    words += [*toy.candidate_words(), "--output_path", str(folder)]
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(toy.ROOT), *words],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    journal = folder / "journal.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if journal.exists() and journal.read_text().count('"answer"') >= 2:
            break
        time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    _, stderr = child.communicate(timeout=30)
    assert child.returncode == 130
    assert f"--resume {folder}" in stderr.splitlines()[-1]
    assert "Traceback" not in stderr
    toy.command("run", "--adaptive", "--resume", folder)
    assert toy.ranking_of(folder)["stop_reason"] == "decided"


def test_output_path_is_made_up_when_none_is_given(toy_bank, tmp_path):
    toy.command(
        "run", "--adaptive", "--tasks", toy.TASK, "--bank", toy_bank, *toy.candidate_words(),
        "--items_per_model", "2", "--min_items", "2", cwd=tmp_path,
    )  # fmt: skip
    assert list(Path(tmp_path).glob("adaptive_results/*/journal.jsonl"))


def test_several_tasks_each_with_its_bank_and_a_summary(toy_bank, tmp_path):
    """A group of two tasks: the shipped one, and the same documents under another name."""
    from dataclasses import replace

    from lm_eval_adaptive.core.bank import ItemBank

    records = toy.ROOT / "tasks" / "records"
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "twin.yaml").write_text(
        f"include: {records / 'records_to_text.yaml'}\ntask: twin\nmetadata: {{version: 1.0}}\n"
    )
    (folder / "both.yaml").write_text(f"group: both\ntask: [{toy.TASK}, twin]\n")
    bank = ItemBank.load(toy_bank)
    twin = replace(bank, info=replace(bank.info, task="twin")).save(tmp_path / "twin.parquet")
    found = simple_evaluate(
        toy.models(),
        ["both"],
        AdaptiveConfig(bank={toy.TASK: toy_bank, "twin": twin}, items_per_model=6, min_items=6),
        output_path=str(tmp_path / "out"),
        include_path=str(folder),
    )
    assert set(found["ranking"]) == {toy.TASK, "twin"}
    one, two = found["ranking"][toy.TASK], found["ranking"]["twin"]
    assert one["ranking"] == two["ranking"], "the same documents and answers"
    raw = np.array([model.mean_raw for model in bank.info.models])
    for row in found["summary"]["summary"]:
        entry = next(each for each in one["ranking"] if each["model"] == row["model"])
        assert row["mean_rank"] == entry["rank"]
        assert row["mean_z"] == pytest.approx((entry["score"] - raw.mean()) / raw.std(ddof=1))
        # Two equal errors: sqrt(2 s^2) / 2.
        expected = entry["score_se"] / raw.std(ddof=1) / np.sqrt(2)
        assert row["mean_z_se"] == pytest.approx(expected)
    assert list((tmp_path / "out").glob("summary_*.json"))
    assert (tmp_path / "out" / "weak").is_dir()


def test_prices_by_the_token_are_paid_by_the_answers_lengths(toy_bank, tmp_path):
    models = toy.models()
    models[0]["cost"] = {"input": 2.0, "output": 10.0}
    found = run(toy_bank, tmp_path, models, items_per_model=5, min_items=5)
    ranking = found["ranking"][toy.TASK]
    records = toy.journal(tmp_path)
    mine = [r for r in records if r["type"] == "answer" and r["model"] == "weak"]
    # Characters / 4, at 2 and 10 per million tokens.
    full = {row["doc_id"]: row for row in samples_of(tmp_path / "weak")}
    expected = (
        sum(
            2.0 * len(full[r["doc_id"]]["arguments"]["gen_args_0"]["arg_0"]) / 4
            + 10.0 * len(r["resps"][0]) / 4
            for r in mine
        )
        / 1e6
    )
    by_model = {entry["model"]: entry for entry in ranking["ranking"]}
    assert by_model["weak"]["cost"] == pytest.approx(expected)
    assert by_model["strong"]["cost"] == 5.0
    assert any("characters / 4" in warning for warning in ranking["warnings"])


def samples_of(folder):
    (file,) = folder.glob("samples_*.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]
