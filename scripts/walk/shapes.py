"""Documents of tasks whose code wants one shape alone, which trying columns does not come upon.

This module owns the shapes, by the name of the task or by how it begins. Texts are made up, as
those of ``columns``; which keys and which fixed words a document has to hold is what the task's
code reads.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ANIMALS = ("otter", "heron", "beetle", "pike", "hare", "owl")
SIZE = 8


def _text(name: str, number: int) -> str:
    return f"{name} {number}: an {ANIMALS[number % 6]} by the river ate {number + 2} plums."


def _turns(number: int) -> dict[str, Any]:
    asked = [f"Who ate {number + k} plums?" for k in range(3)]
    told = [f"the {ANIMALS[(number + k) % 6]}" for k in range(3)]
    return {
        "story": _text("story", number),
        "questions": {"input_text": asked},
        "answers": {"input_text": told},
        "additional_answers": {"0": {"input_text": [f"an {each[4:]}" for each in told]}},
    }


def _groups(number: int) -> dict[str, Any]:
    return {
        "context": _text("context", number),
        "question": "Who was late?",
        "ans0": "the grandfather",
        "ans1": "the grandson",
        "ans2": "Not known",
        "label": number % 3,
        "category": "Age",
        "context_condition": ("ambig", "disambig")[number % 2],
        "question_polarity": ("neg", "nonneg")[number // 2 % 2],
        "answer_info": {"ans0": ["g", "old"], "ans1": ["s", "nonOld"], "ans2": ["n", "unknown"]},
        "additional_metadata": {"stereotyped_groups": ["old"]},
        "example_id": number,
    }


def _paper(number: int) -> dict[str, Any]:
    blob = {
        "unanswerable": False,
        "yes_no": None if number % 2 else bool(number % 4),
        "free_form_answer": _text("answer", number),
        "extractive_spans": ["plums"],
    }
    return {
        "title": _text("title", number),
        "abstract": _text("abstract", number),
        "qas": {"question": [_text("question", number)], "answers": [{"answer": [blob]}]},
    }


def _puzzle(number: int) -> dict[str, Any]:
    part = {
        "questionpart_n": "1.1", "question": _text("part", number),
        "answer": ANIMALS[number % 6],
    }  # fmt: skip
    return {
        "overall_question_n": number,
        "preamble": _text("preamble", number),
        "context": _text("context", number),
        "questions": json.dumps([{"prompt": _text("prompt", number), "subprompts": [part]}]),
    }


def _truths(number: int) -> dict[str, Any]:
    return {
        "question": _text("question", number),
        "best_answer": f"the {ANIMALS[number % 6]}",
        "correct_answers": [f"the {ANIMALS[number % 6]}", "an animal"],
        "incorrect_answers": ["the river", "a plum"],
        "category": "animals",
    }


def _cloze(number: int) -> dict[str, Any]:
    return {
        "Tarea": "text", "Instrucción": "Complete.", "Pista": _text("hint", number),
        "Pregunta": _text("question", number), "Respuesta": [ANIMALS[number % 6]],
        "Opciones": list(ANIMALS[:4]), "Metadata": {"Dificultad": ("B1", "B2")[number % 2]},
        "Prompt": _text("prompt", number), "Subtarea": ("text", "oracions")[number % 2],
    }  # fmt: skip


def _letters(key: str, **more: Any) -> Callable[[int], dict[str, Any]]:
    """Texts under the names in ``more`` (None), and other values as they are."""

    def made(number: int) -> dict[str, Any]:
        found = {key: _text(key, number)}
        for name, value in more.items():
            given = value(number) if callable(value) else value
            found[name] = _text(name, number) if given is None else given
        return found

    return made


def _summaries(number: int) -> dict[str, Any]:
    kinds = ("abstractive", "extractive", "extreme")
    return {
        kind: {who: _text(f"{kind} {who}", number) for who in ("a1", "a2", "a3")} for kind in kinds
    }


def _instructed(number: int) -> dict[str, Any]:
    wanted = ("punctuation:no_comma", "change_case:english_lowercase")[number % 2]
    return {
        "key": number,
        "prompt": _text("prompt", number),
        "instruction_id_list": [wanted],
        "kwargs": [{}],
    }


def _pronoun(number: int) -> dict[str, Any]:
    return {
        "text": f"The {ANIMALS[number % 6]} ate {number} plums because it was hungry .",
        "span1_text": f"The {ANIMALS[number % 6]}",
        "span1_index": 0,
        "span2_text": "it",
        "span2_index": 6,
        "label": number % 2,
    }


def _picture(number: int) -> Any:
    from PIL import Image

    return Image.new("RGB", (8, 8), (number * 5 % 255, 80, 120))


_TONGUES = ("arabic", "bengali")
_LABELS = ("zero", "minus_m", "plus_m", "amb")

# By the beginning of a task's name, the longest first.
SHAPES: dict[str, Callable[[int], dict[str, Any]]] = {
    "coqa": _turns,
    "bbq_generate": _groups,
    "qasper": _paper,
    "lingoly": _puzzle,
    "truthfulqa_va": _truths,
    "nortruthfulqa_gen": _truths,
    "cieacova": _cloze,
    "ifeval": _instructed,
    "leaderboard_ifeval": _instructed,
    "super_glue-wsc": _pronoun,
    "cabreu": _letters("content", summaries=_summaries),
    "chartqa": _letters(
        "query", label=lambda n: [str(n + 2)], image=_picture, type="human"
    ),
    "darija_summarization": _letters(
        "id", messages=lambda n: [{"content": _text("text", n)}, {"content": _text("summary", n)}]
    ),
    "longproc_countdown": _letters(
        "input_prompt",
        reference_output="# Search Procedure\n2+3=5\nNow we have found the target",
        metadata=lambda n: json.dumps({"nums": [n + 1, 2, 3], "target": n + 6}),
    ),
    "mediqa_qa2019": _letters(
        "id",
        QUESTION=lambda n: {
            "QuestionText": _text("question", n),
            "AnswerList": [{"Answer": {"AnswerText": _text("answer", n)}}],
        },
    ),
    "polemo2": _letters("sentence", target=lambda n: f"__label__meta_{_LABELS[n % 4]}"),
    "ru_": _letters(
        "true_answer",
        instruction="Read: {text}",
        context=lambda n: json.dumps({"text": _text("text", n)}),
    ),
    "super_glue-multirc": _letters(
        "question", answer=None, paragraph=None, label=lambda n: n % 2,
        idx=lambda n: {"question": n // 2, "answer": n, "paragraph": 0},
    ),
    "tydiqa_goldp": _letters(
        "context", question=None, title=None, id=lambda n: f"{_TONGUES[n % 2]}-{n}",
        answers=lambda n: {"text": [ANIMALS[n % 6]]},
    ),
    "wmt-": _letters(
        "id", translation=lambda n: {"en": _text("english", n), "ro": _text("romanian", n)}
    ),
}  # fmt: skip


def shaped_documents(task: str) -> list[dict[str, Any]] | None:
    """Documents of a task that wants its own shape, None for others."""
    fitting = [name for name in SHAPES if task.startswith(name)]
    if not fitting:
        return None
    return [SHAPES[max(fitting, key=len)](number) for number in range(SIZE)]
