"""Small datasets with the published columns of the five shipped datasets; texts of our own.

Documents differ in length and in how much of them can be guessed, so that items differ.
"""

from __future__ import annotations

SIZE = 24

_ANIMALS = ("otter", "heron", "beetle", "pike", "hare", "owl")
_PLACES = ("river", "moor", "orchard", "harbour")
_FINDINGS = (
    "sleeps less when nights are warm",
    "hides food where light falls at noon",
    "learns a route after two walks",
    "sings lower beside busy roads",
    "grows slower in clouded water",
    "feeds its young in turns",
)
_NAMES = ("Ida Moss", "Per Lind", "Ana Cole", "Kim Roe", "Leo Hart", "Eva Stone")
_TURKISH = {"otter": "su samuru", "heron": "balıkçıl", "beetle": "böcek", "pike": "turna balığı",
            "hare": "tavşan", "owl": "baykuş"}  # fmt: skip
_TURKISH_PLACES = {"river": "nehirde", "moor": "bozkırda", "orchard": "meyve bahçesinde", "harbour": "limanda"}  # fmt: skip


def _parts(number):
    animal = _ANIMALS[number % 6]
    place = _PLACES[number // 6 % 4]
    return animal, place, _FINDINGS[(number * 5 + number // 6) % 6]


def biolaysumm_plos():
    rows = []
    for number in range(SIZE):
        animal, place, finding = _parts(number)
        more = " It was counted every week for two years." * (number % 3)
        rows.append(
            {
                "article": f"We observed the {animal} of the {place}. Methods were plain. "
                f"Individuals of this population show that it {finding}.{more}",
                "summary": f"Near the {place} the {animal} {finding}. "
                f"People who live there could help it by leaving it alone.{more}",
                "section_headings": "Abstract\nMethods",
                "keywords": f"{animal}\n{place}",
                "year": "2024",
                "title": f"The {animal} of the {place}",
            }
        )
    return rows


def govreport():
    rows = []
    for number in range(SIZE):
        animal, place, finding = _parts(number)
        rows.append(
            {
                "report": f"Report {number} of the office for the {place}. The {animal} {finding}. "
                "The office spent its budget and was asked to explain itself.",
                "summary": f"The office for the {place} reports that the {animal} {finding}; "
                f"{'it asks for money again' if number % 2 else 'no action is needed'}.",
            }
        )
    return rows


def truthfulqa_gen_adaptive():
    rows = []
    for number in range(SIZE):
        animal, place, finding = _parts(number)
        best = f"The {animal} of the {place} {finding}"
        rows.append(
            {
                "type": "Adversarial",
                "category": "Animals",
                "question": f"What does the {animal} of the {place} do?",
                "best_answer": best,
                "correct_answers": [best, f"It {finding}"][: 1 + number % 2],
                "incorrect_answers": [
                    f"The {animal} turns into a stone",
                    f"Nobody has ever seen the {animal} of any {place}",
                ],
                "source": "https://example.org/animals",
            }
        )
    return rows


def flores_tr_en():
    rows = []
    for number in range(SIZE):
        animal, place, finding = _parts(number)
        rows.append(
            {
                "id": number + 1,
                "sentence_tur_Latn": f"{number + 1}. {_TURKISH_PLACES[place].capitalize()} yaşayan "
                f"{_TURKISH[animal]} üzerine bir cümle.",
                "sentence_eng_Latn": f"Sentence {number + 1} says that the {animal} living in the "
                f"{place} {finding}.",
            }
        )
    return rows


def nemotron_pii():
    rows = []
    for number in range(SIZE):
        name = _NAMES[number % 6]
        first, last = name.split()
        city = f"{_PLACES[number // 6 % 4].capitalize()}ton"
        mail = f"{first}.{last}{number}@mail.example".lower()
        text = f"{first} {last} of {city} wrote from {mail} on day {number + 1}."
        values = [(first, "first_name"), (last, "last_name"), (city, "city"), (mail, "email")]
        values = values[: 3 + number % 2]
        spans = [
            {"start": text.index(value), "end": text.index(value) + len(value), "text": value, "label": label}
            for value, label in values
        ]  # fmt: skip
        tagged = text
        for value, label in values:
            tagged = tagged.replace(value, f"<{label}>{value}</{label}>", 1)
        rows.append(
            {
                "uid": f"{number:032x}",
                "domain": "Letters",
                "document_type": "Letter",
                "document_description": "A short letter",
                "document_format": "unstructured",
                "locale": "us",
                "text": text,
                "spans": str(spans),  # Python's form, as published
                "text_tagged": tagged,
            }
        )
    return rows


TASKS = {
    "biolaysumm_plos": (biolaysumm_plos, "biolaysumm/biolaysumm_plos.yaml", "validation"),
    "govreport": (govreport, "govreport/govreport.yaml", "validation"),
    "truthfulqa_gen_adaptive": (
        truthfulqa_gen_adaptive,
        "truthfulqa/truthfulqa_gen_adaptive.yaml",
        "validation",
    ),
    "flores_tr_en": (flores_tr_en, "flores/flores_tr_en.yaml", "devtest"),
    "nemotron_pii": (nemotron_pii, "nemotron_pii/nemotron_pii.yaml", "test"),
}
PAIRS = [
    ("biolaysumm_plos", "rougeL"),
    ("biolaysumm_plos", "bertscore_f1"),
    ("biolaysumm_plos", "fkgl"),
    ("govreport", "rougeL"),
    ("truthfulqa_gen_adaptive", "bertscore_diff"),
    ("truthfulqa_gen_adaptive", "judge"),
    ("flores_tr_en", "sentence_bleu"),
    ("flores_tr_en", "comet"),
    ("nemotron_pii", "span_score"),
]
