"""Stand-ins for what cannot be had in a test: models, and the networks behind metrics."""

from __future__ import annotations

import hashlib
import json
import re
from types import SimpleNamespace

import numpy as np
from lm_eval.api.model import LM

from lm_eval_adaptive.metrics.judging.reply import Reply
from lm_eval_adaptive.metrics.spans import read_gold


def target_of(doc):
    """What the best of models would answer."""
    for column in ("summary", "best_answer", "sentence_eng_Latn", "answer"):
        if column in doc:
            return doc[column]
    if "translation" in doc:
        return doc["translation"]["fr"]
    return "\n".join(f"{text} | {label}" for text, label in read_gold(doc["spans"]))


class TaskToy(LM):
    """Gets each word (each line, for spans) of the target right with probability ``share``."""

    def __init__(self, share=0.5, name="toy", batch_size=None, device=None, max_batch_size=None):
        super().__init__()
        self.share, self.name = float(share), name

    def answer(self, doc):
        seed = hashlib.sha256(f"{self.name}{json.dumps(doc, sort_keys=True)}".encode()).digest()
        rng = np.random.default_rng(list(seed))
        words = re.split(r"(\s+)", target_of(doc))
        if "spans" in doc:
            words = re.split(r"(\n)", target_of(doc))
        wrong = "nobody | country" if "spans" in doc else "incomprehensibilities"
        return "".join(
            word if not word.strip() or rng.random() < self.share else wrong for word in words
        )

    def generate_until(self, requests, disable_tqdm=False):
        return [self.answer(request.doc) for request in requests]

    def loglikelihood(self, requests, disable_tqdm=False):
        raise NotImplementedError

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        raise NotImplementedError

    @property
    def tokenizer_name(self):
        return "toy"

    def chat_template(self, chat_template=False):
        return "toy-template"

    def apply_chat_template(self, chat_history, add_generation_prompt=True):
        return json.dumps(chat_history, ensure_ascii=False)


def register():
    import lm_eval.models  # noqa: F401  the harness's own models have to be registered first
    from lm_eval.api.registry import model_registry

    if "task_toy" not in model_registry:
        model_registry.register("task_toy", target=TaskToy)


def overlap(first, second):
    """Share of words in common, by counts: 2 × common / all."""
    a, b = first.lower().split(), second.lower().split()
    common = sum(min(a.count(word), b.count(word)) for word in set(a))
    return 2 * common / max(1, len(a) + len(b))


class FakeBert:
    """Has the interface of ``bert_score.BERTScorer`` and word overlap for F1."""

    def __init__(self):
        self.calls = []

    def score(self, cands, refs, batch_size=64):
        assert all(text.strip() for text in cands), "an empty candidate crashes bert-score"
        self.calls.append(len(cands))
        values = [overlap(cand, ref) for cand, ref in zip(cands, refs, strict=True)]
        return values, values, values


class FakeComet:
    """Has the interface of a COMET model and word overlap for score."""

    def __init__(self):
        self.calls = []

    def predict(self, samples, batch_size, gpus, progress_bar):
        self.calls.append(len(samples))
        assert all(set(each) == {"src", "mt", "ref"} for each in samples)
        return SimpleNamespace(scores=[overlap(each["mt"], each["ref"]) for each in samples])


def fake_verdict(messages, settings, sleep=None):
    """A judge who reads the answer and the first verified answer out of the rubric's text."""
    text = messages[-1]["content"]
    answer = text.split("<answer>\n")[1].split("\n</answer>")[0]
    verified = text.split("Verified answers:\n- ")[1].split("\n")[0]
    return Reply(
        f"Compared with the verified answer.\nScore: {1 + round(9 * overlap(answer, verified))}"
    )


def install(monkeypatch, tmp_path):
    """Put the stand-ins in place; gives those whose calls can be counted."""
    from lm_eval_adaptive.metrics import bertscore, comet, judge

    bert, network = FakeBert(), FakeComet()
    monkeypatch.setattr(bertscore, "scorer", lambda settings: bert)
    monkeypatch.setattr(comet, "load_model", lambda model: network)
    monkeypatch.setattr(judge, "ask_server", fake_verdict)
    monkeypatch.setenv("LMEVAL_ADAPTIVE_JUDGE_MODEL", "fake-judge")
    monkeypatch.setenv("LMEVAL_ADAPTIVE_DEVICE", "cpu")
    monkeypatch.setenv("LMEVAL_ADAPTIVE_CACHE", str(tmp_path / "cache"))
    return bert, network
