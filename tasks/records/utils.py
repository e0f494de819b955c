"""Helper of the task ``records_to_text``: its documents and its two metrics.

The harness loads this file by path, so it may import nothing that stands beside it.
"""

from __future__ import annotations

import functools
import json
import re
import unicodedata
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datasets import DatasetDict
    from rouge_score.rouge_scorer import RougeScorer

SPLITS = ("test", "fewshot")

# Said in words or by a sign, it is the same: each wording is replaced by the sign's token.
_UNITS = (
    (r"(?:°|\bdegrees?)\s*(?:c\b|celsius\b)", " °c "),
    (r"%|\bper\s?cent\b", " % "),
    (r"\bkm\s*/\s*h\b|\bkph\b|\b(?:km|kilomet(?:re|er)s?)\s+(?:per|an)\s+hour\b", " km/h "),
    (r"\bkilomet(?:re|er)s?\b", " km "),
    (r"\bmillimet(?:re|er)s?\b", " mm "),
    (r"\bmet(?:re|er)s?\b", " m "),
    (r"\bkilograms?\b|\bkilos?\b|\bkgs\b", " kg "),
    (r"\bmins?\b|\bminutes?\b", " minutes "),
    (r"\bstars?\b", " stars "),
    (r"\byears?\b", " years "),
    (r"\$\s*([\d.,]*\d)", r" \1 $ "),
    (r"\bdollars?\b", " $ "),
)  # fmt: skip
# "one" is left out: as a pronoun it would count as the number 1.
_NUMBER_WORDS = {
    "two": "2",
    "three": "3",
    "four": "4",
    "five": "5",
    "six": "6",
    "seven": "7",
    "eight": "8",
    "nine": "9",
    "ten": "10",
    "eleven": "11",
    "twelve": "12",
}
_ARTICLES = {"a", "an", "the"}
_TOKEN = re.compile(r"-?\d+(?:\.\d+)?|°c|km/h|[%$]|[^\W\d_]+")


def load_dataset(**_: Any) -> DatasetDict:
    """The splits ``test`` and ``fewshot``, from the files beside this one.

    The harness resolves ``data_files`` against the working directory; reading them here makes
    the task work from any. It also passes the task's metadata, which is of no use here.
    """
    import datasets

    here = Path(__file__).resolve().parent
    splits = {}
    for split in SPLITS:
        with (here / f"{split}.jsonl").open(encoding="utf-8") as file:
            splits[split] = datasets.Dataset.from_list([json.loads(line) for line in file])
    return datasets.DatasetDict(splits)


def tokens(text: str) -> list[str]:
    """Cuts text into the words and numbers that :func:`slot_coverage` compares.

    Case, accents, punctuation and articles are dropped. Numbers lose thousands separators,
    leading zeros and trailing decimal zeros (``1,250`` = ``1250``, ``07`` = ``7``, ``2.50`` =
    ``2.5``), ordinal endings after digits go (``14th`` = ``14``), and ``two`` to ``twelve``
    become digits. A hyphen that follows no digit or letter is a minus sign, as is ``minus``
    before digits. Units may be written out (``21 degrees Celsius`` = ``21 °C``,
    ``12 dollars`` = ``$12``).
    """
    text = unicodedata.normalize("NFKD", text).casefold()
    text = "".join(char for char in text if not unicodedata.combining(char))
    text = re.sub("[\N{MINUS SIGN}\N{EN DASH}\N{NON-BREAKING HYPHEN}\N{HYPHEN}]", "-", text)
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)
    text = re.sub(r"(?<=\d)(?:st|nd|rd|th)\b", "", text)
    text = re.sub(r"(?<=\d)(?=[^\W\d_])", " ", text)
    for wording, token in _UNITS:
        text = re.sub(wording, token, text)
    text = re.sub(r"\bminus\s+(?=\d)", " -", text)
    text = re.sub(r"(?<=\w)-", " ", text)
    found = (_canonical(token) for token in _TOKEN.findall(text))
    return [token for token in found if token not in _ARTICLES]


def _canonical(token: str) -> str:
    digits = token.removeprefix("-")
    if not digits[0].isdigit():
        return _NUMBER_WORDS.get(token, token)
    whole, _, decimals = digits.partition(".")
    decimals = decimals.rstrip("0")
    number = (whole.lstrip("0") or "0") + (f".{decimals}" if decimals else "")
    return f"-{number}" if token.startswith("-") else number


def mentions(answer: list[str], value: list[str]) -> bool:
    """Whether ``value``'s tokens stand side by side in ``answer``.

    In any order, so that ``May 14`` states ``14 May``; but numbers alone keep theirs, so that
    ``1-0`` does not state ``0-1``. A value without tokens is not mentioned.
    """
    size = len(value)
    runs = (answer[start : start + size] for start in range(len(answer) - size + 1))
    if all(token.lstrip("-")[:1].isdigit() for token in value):
        return size > 0 and value in runs
    wanted = Counter(value)
    return any(Counter(run) == wanted for run in runs)


def slot_coverage(record: list[dict[str, str]], answer: str) -> float:
    """The share of the record's values, in [0, 1], that the answer mentions.

    Every field counts the same, the subject's name included. Nothing is taken off for what the
    answer says besides.
    """
    said = tokens(answer)
    return sum(mentions(said, tokens(entry["value"])) for entry in record) / len(record)


@functools.cache
def _scorer() -> RougeScorer:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(["rougeL"], use_stemmer=False)


def rouge_l(target: str, answer: str) -> float:
    """ROUGE-L F1 of the answer against the target, in [0, 1], by the package ``rouge_score``."""
    return float(_scorer().score(target, answer)["rougeL"].fmeasure)


def process_results(doc: dict[str, Any], results: list[str]) -> dict[str, float]:
    """Both metrics of one document; ``results`` holds the one answer, which may be empty."""
    answer = results[0].strip()
    return {
        "rougeL": rouge_l(doc["target"], answer),
        "slot_coverage": slot_coverage(doc["record"], answer),
    }
