"""Words of any script: what ROUGE counts and what BLEU is told to cut by characters.

This module owns the rules, and the list of scripts that are written without spaces between words.
Classes of characters are those of the package regex, which sacrebleu brings.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from typing import Any

from lm_eval_adaptive.metrics.base import require

# What rouge-score does with ASCII texts, to the letter.
_ASCII = re.compile("[a-z0-9]+")
# Texts without marks, format characters, digits beyond ASCII or scripts without spaces: Latin,
# Greek, Cyrillic, Armenian, Hebrew, Arabic, Georgian, Hangul, punctuation, symbols. Python's own
# classes give the same words of them, ten times as fast.
_SIMPLE = re.compile(
    "[\x00-\xac\xae-\u02ff\u0370-\u0482\u048a-\u0556\u0561-\u0586\u05d0-\u05ea\u0620-\u063f\u0641-\u064a"
    "\u0671-\u06d3\u10a0-\u10ff\u1e00-\u1fff\u2010-\u2027\u2030-\u205e\u20a0-\u20bf\u2190-\u2bff"
    "\uac00-\ud7a3]*"
)
_SIMPLE_WORD = re.compile(r"[^\W_]+")
_DIGIT = re.compile(r"(?![0-9])\d")
_LATIN = re.compile(r"[A-Za-z\u00c0-\u024f\u1e00-\u1eff]")

# Scripts written without spaces between words. Korean and Vietnamese are written with them, and
# Tibetan marks syllables alone.
UNSPACED = (
    *("Han", "Hiragana", "Katakana", "Bopomofo", "Yi"),
    *("Thai", "Lao", "Khmer", "Myanmar", "Tibetan"),
    *("Tai_Tham", "Tai_Le", "New_Tai_Lue", "Tai_Viet", "Javanese", "Balinese"),
)
# The long-vowel and repetition marks of Japanese are of no script by Unicode's book.
_JAPANESE_MARKS = "\u30fc\uff70\u3031-\u3035\u303b"
# Vowels of Thai and Lao that Unicode calls letters, yet which never stand alone (UAX 29, GB9a).
_SPACING_VOWELS = "\u0e33\u0eb3"
# Signs after which the next letter is written below the last: Khmer, Myanmar, Tai Tham.
_STACKERS = "\u17d2\u1039\u1a60"
# No sign of any word: variation selectors and the frame of a keycap emoji.
_NO_WORD = "\ufe00-\ufe0f\u180b-\u180d\U000e0100-\U000e01ef\u20e3"


@functools.cache
def _patterns() -> tuple[Any, Any, Any]:
    """What is dropped, what is a token, what is a letter of a script without spaces."""
    regex = require("regex", "rougeL", "")
    scripts = "".join(rf"\p{{Script={name}}}" for name in UNSPACED)
    single = rf"[[{scripts}{_JAPANESE_MARKS}]&&[\p{{L}}\p{{N}}]]"
    cluster = rf"{single}(?:[\p{{M}}{_SPACING_VOWELS}]|(?<=[{_STACKERS}]){single})*+"
    word = rf"[[\p{{L}}\p{{N}}]--{single}][[\p{{L}}\p{{N}}\p{{M}}]--{single}]*+"
    return (
        regex.compile(rf"(?V1)[[\p{{Cf}}{_NO_WORD}]--[\u200b]]+"),
        regex.compile(rf"(?V1){cluster}|{word}"),
        regex.compile(rf"(?V1){single}"),
    )


def tokens(text: str) -> list[str]:
    r"""Cut a text into the words that ROUGE compares.

    ASCII texts as rouge-score cuts them: lower case, runs of letters and digits. Other texts
    likewise over all of Unicode: a word is a run of letters, digits and the marks on them; a
    character of a script without spaces (:data:`UNSPACED`), with the marks on it, is a word of its
    own. Before that: NFC, digits of any script as 0 to 9, format characters out (the joiners of
    Persian and Hindi, soft hyphens, marks of direction), but for the zero-width space, which
    separates.

    >>> tokens("Ça va, 東京 2024!")
    ['ça', 'va', '東', '京', '2024']
    >>> tokens("हिन्दी में ५ शब्द।")
    ['हिन्दी', 'में', '5', 'शब्द']
    """
    if text.isascii():
        return _ASCII.findall(text.lower())
    # A capital I with a dot would keep the dot as a mark, and be no "i".
    text = unicodedata.normalize("NFC", text).replace("\u0130", "i").lower()
    text = unicodedata.normalize("NFC", text)
    return _SIMPLE_WORD.findall(text) if _SIMPLE.fullmatch(text) else _by_classes(text)


def _by_classes(text: str) -> list[str]:
    dropped, token, _ = _patterns()
    found: list[str] = token.findall(_DIGIT.sub(_plain_digit, dropped.sub("", text)))
    return found


def _plain_digit(found: re.Match[str]) -> str:
    return str(unicodedata.decimal(found[0]))


def mostly_unspaced(text: str) -> bool:
    """Whether more than half of a text's letters are of scripts without spaces between words.

    >>> mostly_unspaced("東京 Tower"), mostly_unspaced("私は東京タワーを見た (Tokyo)")
    (False, True)
    """
    letters = sum(map(str.isalpha, text))
    return not text.isascii() and 2 * len(_patterns()[2].findall(text)) > letters


def mostly_latin(text: str) -> bool:
    """Whether at least half of a text's letters are Latin; a text without letters is.

    >>> mostly_latin("Größe 3"), mostly_latin("ДНК (DNA) хранит"), mostly_latin("42")
    (True, False, True)
    """
    return text.isascii() or 2 * len(_LATIN.findall(text)) >= sum(map(str.isalpha, text))
