"""ROUGE, BLEU, chrF and readability against their packages, and on texts nobody planned for."""

from __future__ import annotations

import json
import math
import time
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_adaptive.errors import UsageError
from lm_eval_adaptive.metrics import METRICS, Case, base, rouge, words

TEXT_METRICS = ["rouge1", "rouge2", "rougeL", "sentence_bleu", "sentence_chrf"]
SENTENCE = "the quick brown fox jumps over the lazy dog"


def value(name, answer, *references, **more):
    (found,) = METRICS[name].compute([Case(answer, references, **more)], {})
    return found


@pytest.mark.parametrize("name", TEXT_METRICS)
class TestAnyAnswer:
    def test_perfect_is_the_top_of_the_range(self, name):
        assert value(name, SENTENCE, SENTENCE) == pytest.approx(METRICS[name].hi)

    @pytest.mark.parametrize("answer", ["", "   ", "\n\t", "\u00a0\u2003"])
    def test_blank_answers_get_the_bottom(self, name, answer):
        assert value(name, answer, SENTENCE) == 0.0

    @pytest.mark.parametrize("answer", ["\u200b", "!!! ...", "🙂🙂", "\x00", "\ud800"])
    def test_answers_without_words_are_scored(self, name, answer):
        assert value(name, answer, SENTENCE) == pytest.approx(0.0, abs=1e-9)

    def test_no_reference_leaves_the_document_out(self, name):
        assert math.isnan(value(name, "anything"))
        assert math.isnan(value(name, "", "", "  "))

    def test_the_best_of_several_references_counts(self, name):
        unlike = "entirely different words stand here instead"
        assert value(name, SENTENCE, unlike, "", SENTENCE) == pytest.approx(METRICS[name].hi)
        assert value(name, SENTENCE, unlike) < METRICS[name].hi / 2

    @pytest.mark.parametrize(
        "text",
        [
            "我们昨天在北京看了一场电影",
            "Мы вчера смотрели фильм",
            "לא ראינו את הסרט אתמול",
            "เราดูหนังเมื่อวานนี้",
        ],
    )
    def test_other_scripts_are_read(self, name, text):
        assert value(name, text, text) == pytest.approx(METRICS[name].hi)
        assert 0 < value(name, text[: len(text) * 2 // 3], text) < METRICS[name].hi
        assert value(name, SENTENCE, text) < METRICS[name].hi / 10

    def test_a_hundred_thousand_characters(self, name):
        long = (SENTENCE + " ") * 2300
        assert len(long) > 100_000
        start = time.process_time()
        assert 0 < value(name, long, SENTENCE * 3) < METRICS[name].hi / 2
        assert 0 < value(name, long, long[:30_000]) < METRICS[name].hi
        assert time.process_time() - start < 20


class TestAgainstThePackages:
    def test_rouge(self):
        from rouge_score.rouge_scorer import RougeScorer

        answer, reference = "Foxes jump over the dog, quickly.", "The fox jumps over a dog"
        expected = RougeScorer(["rouge1", "rouge2", "rougeL"]).score(reference, answer)
        for name in ("rouge1", "rouge2", "rougeL"):
            assert value(name, answer, reference) == expected[name].fmeasure

    def test_the_fast_subsequence_gives_the_table_s_f1(self, monkeypatch):
        from rouge_score.rouge_scorer import RougeScorer

        monkeypatch.setattr(rouge, "_LARGE", 0)
        reference = "a man who sees a dog that sees a man who sees no dog"
        answer = "the dog who sees that man sees a dog a man no who"
        expected = RougeScorer(["rougeL"]).score(reference, answer)["rougeL"].fmeasure
        assert value("rougeL", answer, reference) == pytest.approx(expected, abs=1e-12)

    @given(
        st.lists(st.sampled_from("abcd"), max_size=40),
        st.lists(st.sampled_from("abcd"), max_size=40),
    )
    def test_common_subsequence_equals_the_table(self, first, second):
        table = [[0] * (len(second) + 1)]
        for a in first:
            row = [0]
            for place, b in enumerate(second):
                row.append(table[-1][place] + 1 if a == b else max(row[-1], table[-1][place + 1]))
            table.append(row)
        assert rouge.common_subsequence(first, second) == table[-1][-1]

    def test_bleu_of_a_short_perfect_translation_is_not_zero(self):
        assert value("sentence_bleu", "The cat sat", "The cat sat") == pytest.approx(100)

    def test_chrf(self):
        from sacrebleu.metrics import CHRF

        expected = CHRF().sentence_score("the cat sits", ["the cat sat"]).score
        assert value("sentence_chrf", "the cat sits", "the cat sat") == expected


class TestReadability:
    @pytest.fixture(autouse=True)
    def needs_textstat(self):
        pytest.importorskip("textstat", reason="the extra readability is not installed")

    @pytest.mark.parametrize("answer", ["", "  ", "...", "你好。", "123 456"])
    def test_nothing_to_read_is_the_worst(self, answer):
        assert value("fkgl", answer) == METRICS["fkgl"].hi == 20.0

    def test_plainer_is_lower(self):
        plain = value("fkgl", "The cat sat. It ate. We saw it.")
        learned = value("fkgl", "Considerable uncertainty characterises contemporary epidemiology.")
        assert plain < learned
        assert not METRICS["fkgl"].higher_is_better

    def test_long_answers_and_accents_are_scored(self):
        assert value("fkgl", SENTENCE * 2500) > 20
        assert math.isfinite(value("fkgl", "Merhaba dünya, nasılsın?"))

    def test_a_missing_dictionary_is_one_line(self, monkeypatch):
        import textstat

        def grade(text):
            raise LookupError("cmudict not found\nsee nltk")

        monkeypatch.setattr(textstat, "flesch_kincaid_grade", grade)
        with pytest.raises(UsageError, match=r"lm-eval-adaptive\[readability\]"):
            value("fkgl", "some words")


class TestCatalogue:
    def test_an_unknown_metric_names_near_ones(self):
        with pytest.raises(UsageError, match="did you mean rougeL"):
            base.metric("rouge-L")

    def test_a_missing_package_names_its_extra(self, monkeypatch):
        import sys

        monkeypatch.setitem(sys.modules, "bert_score", None)
        with pytest.raises(
            UsageError, match=r'pip install "lm-eval-adaptive\[bertscore\]"'
        ) as caught:
            METRICS["bertscore_f1"].compute([Case("a", ("b",))], {})
        assert "\n" not in str(caught.value)

    def test_the_package_imports_nothing_heavy(self):
        import subprocess
        import sys

        code = (
            "import sys, lm_eval_adaptive.metrics as m;"
            "m.document_metrics('rougeL', 'bertscore_f1', 'judge', reference='x');"
            "print([n for n in ('lm_eval','torch','bert_score','comet','datasets','rouge_score',"
            "'sacrebleu','textstat') if n in sys.modules])"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == "[]"


GOLDEN = json.loads(
    (Path(__file__).parents[1] / "golden" / "rouge_scripts.json").read_text(encoding="utf-8")
)


class TestRougeInEveryScript:
    """Words cut by hand, values by counting: tests/golden/make_rouge_scripts.py."""

    @pytest.mark.parametrize("row", GOLDEN, ids=[row["script"] for row in GOLDEN])
    def test_golden(self, row):
        assert words.tokens(row["reference"]) == row["reference_words"]
        assert words.tokens(row["answer"]) == row["answer_words"]
        for name in ("rouge1", "rouge2", "rougeL"):
            found = value(name, row["answer"], row["reference"])
            assert found == pytest.approx(float(Fraction(row[name])), abs=1e-12), name

    @pytest.mark.parametrize(
        ("reference", "good", "year"),
        [
            ("Завод выпустил трактор в 1974 году для колхоза", "завод выпустил трактор", "1974"),
            ("У 1974 році завод випустив трактор для села", "завод випустив трактор", "1974"),
            ("工場は1974年にトラクターを作った", "工場はトラクターを作った", "1974"),
            ("कारखाने ने 1974 में ट्रैक्टर बनाया", "कारखाने ने ट्रैक्टर बनाया", "1974"),
            ("أنتج المصنع جرارا في 1974 للقرية", "أنتج المصنع جرارا", "1974"),
            ("Завод NASA выпустил трактор", "завод выпустил трактор", "NASA"),
        ],
    )
    @pytest.mark.parametrize("name", ["rouge1", "rougeL"])
    def test_the_one_ascii_word_is_one_word_of_many(self, name, reference, good, year):
        assert value(name, year, reference) < 0.5 < value(name, good, reference) < 1

    @given(
        st.text(st.characters(max_codepoint=127), max_size=60),
        st.text(st.characters(max_codepoint=127), max_size=60),
    )
    def test_ascii_is_that_of_rouge_score_to_the_last_bit(self, answer, reference):
        from rouge_score.rouge_scorer import RougeScorer
        from rouge_score.tokenize import tokenize

        assert words.tokens(answer) == tokenize(answer, None)
        if answer.strip() and reference.strip():
            expected = RougeScorer(["rouge1", "rouge2", "rougeL"]).score(reference, answer)
            for name in ("rouge1", "rouge2", "rougeL"):
                assert value(name, answer, reference) == expected[name].fmeasure

    @given(st.text(max_size=40), st.text(max_size=40))
    def test_any_two_texts(self, answer, reference):
        for name in ("rouge1", "rouge2", "rougeL"):
            found = value(name, answer, reference)
            assert math.isnan(found) if not reference.strip() else 0 <= found <= 1
        found = words.tokens(answer)
        assert all(found)
        assert [each for word in found for each in words.tokens(word)] == found

    def test_composed_and_decomposed_letters_are_one(self):
        import unicodedata

        text = "Ça créé là-bas चुनौती"
        for form in ("NFC", "NFD"):
            assert value("rougeL", unicodedata.normalize(form, text), text) == 1.0

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("1\ufe0f\u20e3 \u2764\ufe0f", ["1"]),
            ("co\u00adoperate \u2066Дом\u2069", ["cooperate", "дом"]),
            ("ខ្មែរ\u200bភាសា", ["ខ្មែ", "រ", "ភា", "សា"]),
            ("\u0301\u0e34", []),
            ("Дом\ud83dмой \x00", ["дом", "мой"]),
        ],
    )
    def test_signs_that_are_no_word(self, text, expected):
        assert words.tokens(text) == expected


class TestScriptsElsewhere:
    def test_bleu_cuts_by_characters_where_most_are_without_spaces(self):
        short, full = "私は東京タワーを見た (Tokyo)", "私は東京タワーを見ました (Tokyo)"
        assert value("sentence_bleu", short, full) > 60
        assert not words.mostly_unspaced("We saw Tokyo (東京) and liked it")

    def test_one_latin_name_does_not_make_another_script_plain(self):
        pytest.importorskip("textstat", reason="the extra readability is not installed")
        assert value("fkgl", "ДНК (DNA) хранит наследственную информацию организма") == 20.0
        assert value("fkgl", "It is in our DNA (ДНК).") < 10

    def test_another_language_in_latin_letters_is_told(self):
        pytest.importorskip("textstat", reason="the extra readability is not installed")
        turkish = "Dün sabah erkenden kalkıp göl kıyısında uzun bir yürüyüşe çıktık sonra " * 3
        english = "The cat sat by the door and it was not in the mood to go out at all. " * 3
        base.take_notices()
        METRICS["fkgl"].compute([Case(turkish), Case(english), Case("Ja.")], {})
        (found,) = base.take_notices()
        assert "1 of 3 answers are not in English" in found
        METRICS["fkgl"].compute([Case(english)], {})
        assert base.take_notices() == []

    def test_the_quick_way_gives_the_words_of_the_long_one(self):
        simple = [chr(c) for c in range(0x3000) if words._SIMPLE.fullmatch(chr(c))]
        assert len(simple) > 4000
        text = "".join(f"{a} {a}1 x{a}y" for a in simple)
        assert words._SIMPLE_WORD.findall(text) == words._by_classes(text)


@pytest.mark.parametrize(
    ("name", "size"),
    [("rougeL", 3), ("span_score", 10), ("rouge2", 1), ("sentence_bleu", 1), ("sentence_chrf", 1)],
)
def test_megabytes_with_nul_and_a_lone_surrogate(name, size):
    answer = "ab \x00 \ud83d я" + "word я " * (size * 125_000)
    assert len(answer.encode("utf-8", "replace")) >= size * 1_000_000
    doc = {"spans": [{"text": "word", "label": "x"}]}
    (found,) = METRICS[name].compute([Case(answer, (SENTENCE,), doc=doc)], {})
    assert 0 <= found < 1
