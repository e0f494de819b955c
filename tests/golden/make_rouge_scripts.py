"""Writes ``rouge_scripts.json``: ROUGE F1 in twelve scripts, from words cut by hand.

Each text stands here with its words cut by a person, by the rules of ``docs/metrics.md``: a bar
between two words, nothing else. The values follow by counting, in whole numbers and fractions; the
longest common subsequence is found by trying all, not by a table. Nothing of this package, of
rouge-score or of numpy is imported.

    python tests/golden/make_rouge_scripts.py
"""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from itertools import combinations
from pathlib import Path

# (script, reference, its words, answer, its words)
CASES = [
    ("Latin", "In 1961 the Ibis flew north.", "in|1961|the|ibis|flew|north",
     "The Ibis flew south", "the|ibis|flew|south"),
    ("Latin, Turkish", "İzmir'de 12 ışık söndü", "izmir|de|12|ışık|söndü",
     "izmir'de ışık yandı", "izmir|de|ışık|yandı"),
    ("Cyrillic, Russian", "Мост открыли в 1961 году у реки", "мост|открыли|в|1961|году|у|реки",
     "Мост открыли у реки", "мост|открыли|у|реки"),
    ("Cyrillic, Ukrainian", "Її сім'я їде до Львова", "її|сім|я|їде|до|львова",
     "Сім'я їде додому", "сім|я|їде|додому"),
    ("Greek", "Ο δρόμος άνοιξε το 1961", "ο|δρόμος|άνοιξε|το|1961",
     "Ο ΔΡΟΜΟΣ άνοιξε", "ο|δρομος|άνοιξε"),
    ("Arabic", "افتتح الجسر عام ١٩٦١ قرب النهر", "افتتح|الجسر|عام|1961|قرب|النهر",
     "الجسر قرب النهر 1961", "الجسر|قرب|النهر|1961"),
    ("Arabic, Persian", "او می‌رود به خانه", "او|میرود|به|خانه",
     "او به خانه می‌آید", "او|به|خانه|میآید"),
    ("Hebrew", "הגשר נפתח בשנת 1961", "הגשר|נפתח|בשנת|1961",
     "הגשר נסגר בשנת 1961", "הגשר|נסגר|בשנת|1961"),
    ("Devanagari, Hindi", "पुल १९६१ में खुला था।", "पुल|1961|में|खुला|था",
     "पुल में पानी था", "पुल|में|पानी|था"),
    ("Tamil", "பாலம் 1961 இல் திறந்தது", "பாலம்|1961|இல்|திறந்தது",
     "பாலம் இல் மூடியது", "பாலம்|இல்|மூடியது"),
    ("Hangul", "다리는 1961년에 열렸다", "다리는|1961년에|열렸다",
     "다리는 오늘 열렸다", "다리는|오늘|열렸다"),
    ("Han, Chinese", "大桥于1961年通车。", "大|桥|于|1961|年|通|车",
     "桥已通车", "桥|已|通|车"),
    ("Kana and Han, Japanese", "ラーメンを3杯食べた", "ラ|ー|メ|ン|を|3|杯|食|べ|た",
     "ラーメンを食べる", "ラ|ー|メ|ン|を|食|べ|る"),
    ("Thai", "น้ำขึ้นปี ๒๕๐๔", "น้ำ|ขึ้|น|ปี|2504",
     "น้ำลงปี 2504", "น้ำ|ล|ง|ปี|2504"),
    ("Khmer", "ខ្មែរ ១៩៦១", "ខ្មែ|រ|1961",
     "ខ្មែ 1961", "ខ្មែ|1961"),
    ("Han with a Latin name", "北京的 NASA 展", "北|京|的|nasa|展",
     "NASA", "nasa"),
]  # fmt: skip


def f1(common: int, expected: int, given: int) -> Fraction:
    """2 × common / (expected + given), which is F1 of precision and recall; 0 for none."""
    return Fraction(2 * common, expected + given) if expected + given else Fraction(0)


def overlap(expected: list[str], given: list[str], size: int) -> Fraction:
    """F1 of the n-grams in common, each as often as both have it."""
    counts = [
        Counter(tuple(words[k : k + size]) for k in range(len(words) - size + 1))
        for words in (expected, given)
    ]
    return f1((counts[0] & counts[1]).total(), counts[0].total(), counts[1].total())


def in_order(part: tuple[str, ...], words: list[str]) -> bool:
    """Whether the words of ``part`` stand in ``words`` in their order."""
    rest = iter(words)
    return all(word in rest for word in part)


def longest(expected: list[str], given: list[str]) -> Fraction:
    """F1 of the longest common subsequence, by trying every part of the answer."""
    size = next(
        size
        for size in range(len(given), -1, -1)
        if any(in_order(part, expected) for part in combinations(given, size))
    )
    return f1(size, len(expected), len(given))


def main() -> None:
    rows = []
    for script, reference, expected, answer, given in CASES:
        first, second = expected.split("|"), given.split("|")
        rows.append({
            "script": script,
            "reference": reference,
            "reference_words": first,
            "answer": answer,
            "answer_words": second,
            "rouge1": str(overlap(first, second, 1)),
            "rouge2": str(overlap(first, second, 2)),
            "rougeL": str(longest(first, second)),
        })  # fmt: skip
    path = Path(__file__).with_name("rouge_scripts.json")
    path.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"wrote {path.name}: {len(rows)} pairs")


if __name__ == "__main__":
    main()
