"""Writes the documents of the task ``records_to_text``, the same bytes on every machine.

Each document is a small record (2 to 7 fields) with one English sentence that states all of it.
Subjects, values and wordings come from the lists below, which were written for this project, and
are combined by a random generator with a fixed seed::

    python scripts/make/records_docs.py            # writes tasks/records/{test,fewshot}.jsonl
    python scripts/make/records_docs.py --check    # exit code 1 if the files there differ

Only the standard library is used. ``random.Random`` seeded by an integer and its ``random()``
keep their values across Python versions, so every draw is made from ``random()`` alone.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

SEED = 20_260_113
TASK_DIR = Path(__file__).resolve().parents[2] / "tasks" / "records"
# How many records of each length a domain gets: 26 in all, so 12 domains give 312 documents.
LENGTHS = (2,) * 4 + (3,) * 6 + (4,) * 6 + (5,) * 5 + (6,) * 3 + (7,) * 2
# Lengths of the few-shot records, one domain each, in the order in which they are shown.
FEWSHOT = (
    ("restaurant", 4),
    ("person", 3),
    ("book", 5),
    ("weather station", 2),
    ("flat", 4),
    ("match", 6),
    ("product", 3),
    ("train", 4),
)


class Draw:
    """Random choices that rest on ``Random.random`` alone."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def below(self, n: int) -> int:
        """An integer in ``[0, n)``."""
        return int(self._random.random() * n)

    def between(self, lo: int, hi: int, step: int = 1) -> int:
        """One of ``lo, lo + step, …``, at most ``hi``."""
        return lo + step * self.below((hi - lo) // step + 1)

    def choice(self, options: Sequence[T]) -> T:
        """One of ``options``."""
        return options[self.below(len(options))]

    def shuffled(self, options: Sequence[T]) -> list[T]:
        """All of ``options`` in random order."""
        left = list(options)
        return [left.pop(self.below(len(left))) for _ in options]


Value = Callable[[Draw], str]


@dataclass(frozen=True)
class Field:
    """One field: its name in the record, how to draw it, and how a sentence states it.

    Attributes:
        name: the field's name as the record shows it.
        value: draws a value.
        verbs: predicates that state the field; ``{v}`` is the value, ``{an}`` the value with
            its indefinite article.
        fronts: openings that may stand before the subject, without the comma.
    """

    name: str
    value: Value
    verbs: tuple[str, ...]
    fronts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Domain:
    """A kind of record: the field that names its subject, then the others."""

    name: str
    subject_field: str
    subject: Value
    subject_phrase: str
    fields: tuple[Field, ...]


def one_of(text: str) -> Value:
    """Draws one of the phrases in ``text``, which commas separate."""
    options = [option.strip() for option in text.split(",")]
    return lambda draw: draw.choice(options)


def number(lo: int, hi: int, step: int = 1, form: str = "{}") -> Value:
    """Draws a whole number and writes it with ``form``."""
    return lambda draw: form.format(draw.between(lo, hi, step))


def decimal(lo: int, hi: int, form: str = "{}") -> Value:
    """Draws tenths between ``lo / 10`` and ``hi / 10`` and writes one decimal with ``form``."""

    def value(draw: Draw) -> str:
        tenths = draw.between(lo, hi)
        return form.format(f"{tenths // 10}.{tenths % 10}")

    return value


def clock(draw: Draw) -> str:
    """A time of day, in steps of five minutes."""
    return f"{draw.between(6, 22)}:{draw.between(0, 55, 5):02d}"


MONTHS = (
    "January, February, March, April, May, June, July, August, September, October, November, "
    "December"
)


month = one_of(MONTHS)


def date(draw: Draw) -> str:
    """A day and a month."""
    return f"{draw.between(1, 28)} {month(draw)}"


def pair(first: str, second: str, form: str = "{} {}") -> Value:
    """Draws one phrase of each list and joins them with ``form``."""
    left, right = one_of(first), one_of(second)
    return lambda draw: form.format(left(draw), right(draw))


TOWNS = (
    "Alderton, Brackwell, Corvale, Dunmore Hill, Eastmere, Fallowfield, Greyport, Hartsea, "
    "Ivybridge, Kelmouth, Larkham, Millstead, Northwick, Oakhaven, Pinecross, Quarrybank, "
    "Redcliff, Saltmarsh, Thornbury, Westerley"
)
town = one_of(TOWNS)
FIRST = (
    "Anna, Boris, Clara, Dmitri, Elena, Farid, Greta, Hugo, Irene, Jonas, Karin, Leon, Mira, "
    "Nadia, Oscar, Petra, Rashid, Selma, Tomas, Vera, Wanda, Yusuf"
)
LAST = (
    "Abbott, Berger, Castell, Drummond, Ekberg, Fontaine, Garrick, Holm, Iveson, Jarvis, "
    "Kessler, Lindqvist, Marlow, Novak, Okafor, Pereira, Quist, Rossi, Sandoval, Tremblay, "
    "Underhill, Vance, Whitlock, Zeller"
)
person_name = pair(FIRST, LAST)
colour = one_of("black, white, red, blue, green, grey, yellow, silver, brown")

DOMAINS = (
    Domain(
        "person",
        "name",
        person_name,
        "{v}",
        (
            Field(
                "job",
                one_of(
                    "baker, nurse, architect, plumber, violinist, translator, dentist, "
                    "electrician, librarian, carpenter, journalist, engineer"
                ),
                ("is {an}", "works as {an}", "earns a living as {an}"),
                ("A {v} by trade",),
            ),
            Field("birth year", number(1938, 2004), ("was born in {v}",), ("Born in {v}",)),
            Field("home", town, ("lives in {v}", "has a home in {v}"), ("At home in {v}",)),
            Field(
                "hobby",
                one_of("chess, fishing, sailing, pottery, cycling, gardening, climbing, painting"),
                ("enjoys {v}", "likes {v}", "spends free time on {v}"),
            ),
            Field(
                "language",
                one_of("Spanish, Polish, Arabic, French, Dutch, Finnish, Greek, Korean"),
                ("speaks {v}", "is fluent in {v}"),
            ),
            Field(
                "pet",
                one_of("parrot, cat, dog, tortoise, rabbit, goldfish, hamster"),
                ("has {an}", "keeps {an}", "owns {an}"),
            ),
        ),
    ),
    Domain(
        "restaurant",
        "name",
        pair(
            "Golden, Blue, Hungry, Silver, Old, Green, Merry, Red",
            "Lantern, Fig, Anchor, Otter, Mill, Kettle, Orchard, Pelican",
            "The {} {}",
        ),
        "{v}",
        (
            Field(
                "food",
                one_of("Thai, Italian, Indian, Mexican, Greek, Turkish, Japanese, Ethiopian"),
                ("serves {v} food", "offers {v} dishes", "cooks {v} meals"),
            ),
            Field("town", town, ("is in {v}", "can be found in {v}"), ("Located in {v}",)),
            Field(
                "price range",
                one_of("low, moderate, high"),
                ("has {v} prices", "is in the {v} price range"),
                ("With {v} prices",),
            ),
            Field(
                "rating",
                number(2, 5, form="{} stars"),
                ("has a rating of {v}", "is rated {v}", "was given {v}"),
                ("Rated {v}",),
            ),
            Field(
                "near",
                one_of("the harbour, the station, the castle, the museum, the market"),
                ("is near {v}", "stands close to {v}"),
                ("Near {v}",),
            ),
            Field(
                "closed on",
                one_of("Monday, Tuesday, Wednesday, Sunday"),
                ("is closed on {v}", "does not open on {v}"),
            ),
        ),
    ),
    Domain(
        "train",
        "train",
        pair(
            "Coast, Valley, Night, Northern, City, Harbour", "Express, Arrow, Flyer, Star, Shuttle"
        ),
        "the {v}",
        (
            Field("to", town, ("goes to {v}", "runs to {v}", "travels to {v}")),
            Field("leaves at", clock, ("leaves at {v}", "departs at {v}"), ("At {v}",)),
            Field(
                "platform",
                number(1, 14),
                ("uses platform {v}", "starts from platform {v}"),
                ("From platform {v}",),
            ),
            Field(
                "duration", number(20, 95, 5, "{} minutes"), ("takes {v}", "needs {v} for the trip")
            ),
            Field(
                "fare", number(6, 78, form="${}"), ("costs {v}", "has a fare of {v}"), ("For {v}",)
            ),
            Field(
                "coaches",
                number(3, 12),
                ("has {v} coaches", "is made up of {v} coaches"),
                ("With {v} coaches",),
            ),
        ),
    ),
    Domain(
        "weather station",
        "station",
        town,
        "{v} weather station",
        (
            Field(
                "temperature",
                number(-9, 34, form="{} °C"),
                ("reports {v}", "shows a temperature of {v}", "measures {v}"),
            ),
            Field(
                "wind",
                number(3, 88, form="{} km/h"),
                ("records wind of {v}", "has wind speeds of {v}"),
            ),
            Field(
                "sky",
                one_of("clear, cloudy, overcast, hazy, foggy"),
                ("sees {an} sky", "has {an} sky"),
                ("Under {an} sky",),
            ),
            Field(
                "humidity",
                number(31, 98, form="{}%"),
                ("has a humidity of {v}", "measures {v} humidity"),
                ("At {v} humidity",),
            ),
            Field(
                "rain", number(1, 42, form="{} mm"), ("collected {v} of rain", "counts {v} of rain")
            ),
            Field(
                "altitude",
                number(110, 2450, 10, "{:,} m"),
                ("stands at {v}", "lies at an altitude of {v}"),
                ("At an altitude of {v}",),
            ),
        ),
    ),
    Domain(
        "product",
        "product",
        pair(
            "Nimbus, Tarka, Velo, Orbit, Fjord, Kite, Maple, Zephyr",
            "lamp, kettle, backpack, chair, radio, tent, blender, watch, heater",
        ),
        "the {v}",
        (
            Field(
                "price",
                number(12, 240, form="${}"),
                ("costs {v}", "sells for {v}", "is priced at {v}"),
                ("Priced at {v}",),
            ),
            Field("colour", colour, ("comes in {v}", "is {v}")),
            Field(
                "weight",
                decimal(3, 96, "{} kg"),
                ("weighs {v}", "has a weight of {v}"),
                ("At {v}",),
            ),
            Field(
                "material",
                one_of("steel, oak, nylon, glass, bamboo, aluminium, leather"),
                ("is made of {v}", "consists of {v}"),
                ("Made of {v}",),
            ),
            Field(
                "warranty",
                number(2, 10, form="{} years"),
                ("has a warranty of {v}", "is under warranty for {v}"),
            ),
            Field(
                "in stock", number(2, 480), ("is in stock with {v} pieces", "has {v} pieces left")
            ),
        ),
    ),
    Domain(
        "book",
        "title",
        pair(
            "Silent, Last, Broken, Hidden, Paper, Winter, Distant, Burning",
            "Harbour, Garden, Clock, Letters, Orchestra, Island, Mirror, Bridge",
            "The {} {}",
        ),
        "{v}",
        (
            Field("author", person_name, ("was written by {v}", "is by {v}"), ("Written by {v}",)),
            Field(
                "year",
                number(1891, 2023),
                ("was published in {v}", "came out in {v}"),
                ("Published in {v}",),
            ),
            Field(
                "genre",
                one_of(
                    "crime novel, memoir, love story, ghost story, satire, saga, history, fantasy"
                ),
                ("is {an}", "can be described as {an}"),
            ),
            Field(
                "pages", number(96, 812), ("has {v} pages", "runs to {v} pages"), ("At {v} pages",)
            ),
            Field(
                "language",
                one_of("Swedish, German, Portuguese, Hindi, Turkish, Welsh"),
                ("was first written in {v}", "is in {v}"),
            ),
            Field("set in", town, ("is set in {v}", "takes place in {v}"), ("Set in {v}",)),
        ),
    ),
    Domain(
        "match",
        "home team",
        pair(TOWNS, "Rovers, United, Wolves, Hawks, Athletic"),
        "{v}",
        (
            Field(
                "away team",
                pair(TOWNS, "City, Falcons, Bears, Town, Wanderers"),
                ("played {v}", "met {v}", "hosted {v}"),
            ),
            Field(
                "score",
                lambda draw: f"{draw.between(0, 6)}-{draw.between(0, 6)}",
                ("saw the match end {v}", "ended the game with {v}"),
            ),
            Field("date", date, ("played on {v}", "took the field on {v}"), ("On {v}",)),
            Field(
                "crowd",
                number(850, 48_500, 50, "{:,}"),
                ("drew a crowd of {v}", "had {v} spectators"),
                ("Before a crowd of {v}",),
            ),
            Field("best player", person_name, ("had {v} as best player", "owed most to {v}")),
            Field(
                "weather",
                one_of("rain, snow, sunshine, fog, drizzle"),
                ("saw {v} that day", "played in {v}"),
                ("In {v}",),
            ),
        ),
    ),
    Domain(
        "river",
        "river",
        one_of(
            "Aster, Bellow, Cray, Dunnet, Elmar, Farrow, Glint, Harle, Isk, Jorra, Keld, "
            "Loder, Mirren, Nesk, Orlen, Pell, Quern, Rath, Sable, Tarn, Ulver, Wend"
        ),
        "the {v}",
        (
            Field(
                "length",
                number(18, 1480, form="{:,} km"),
                ("is {v} long", "has a length of {v}", "runs for {v}"),
                ("With a length of {v}",),
            ),
            Field(
                "mouth",
                one_of("the North Sea, Lake Ammer, the Baltic Sea, Pearl Bay, the Black Sea"),
                ("flows into {v}", "ends in {v}", "empties into {v}"),
            ),
            Field(
                "source",
                pair("Mount, Cold, High, Stone", "Hadley, Spring, Fell, Pass"),
                ("rises at {v}", "begins at {v}"),
                ("Rising at {v}",),
            ),
            Field("passes", town, ("passes {v}", "flows through {v}")),
            Field("bridges", number(2, 64), ("is crossed by {v} bridges", "has {v} bridges")),
            Field(
                "fish",
                one_of("trout, salmon, pike, perch, eels, carp"),
                ("is known for {v}", "is home to {v}"),
                ("Known for {v}",),
            ),
        ),
    ),
    Domain(
        "film",
        "film",
        pair(
            "Midnight, Crimson, Lonely, Electric, Golden, Forgotten",
            "Highway, Summer, Tiger, Station, Dreams, Valley",
        ),
        "{v}",
        (
            Field(
                "director",
                person_name,
                ("was directed by {v}", "is by director {v}"),
                ("Directed by {v}",),
            ),
            Field(
                "year",
                number(1931, 2024),
                ("was released in {v}", "came out in {v}"),
                ("Released in {v}",),
            ),
            Field(
                "genre",
                one_of("comedy, western, thriller, musical, drama, war film, romance"),
                ("is {an}", "counts as {an}"),
            ),
            Field(
                "length",
                number(74, 196, form="{} minutes"),
                ("lasts {v}", "has a length of {v}", "runs for {v}"),
                ("At {v}",),
            ),
            Field(
                "star", person_name, ("stars {v}", "has {v} in the main role"), ("Starring {v}",)
            ),
            Field(
                "awards",
                number(2, 11),
                ("won {v} awards", "received {v} awards"),
                ("With {v} awards",),
            ),
        ),
    ),
    Domain(
        "flat",
        "address",
        lambda draw: (
            f"{draw.between(2, 98)} "
            + pair("Cherry, Station, Bishop, Canal, Rose, Tower", "Street, Lane, Road")(draw)
        ),
        "the flat at {v}",
        (
            Field(
                "rooms", number(2, 7), ("has {v} rooms", "offers {v} rooms"), ("With {v} rooms",)
            ),
            Field(
                "rent",
                number(420, 2350, 10, "${:,}"),
                ("costs {v} a month", "rents for {v} a month"),
                ("At {v} a month",),
            ),
            Field(
                "area",
                number(28, 164, form="{} square metres"),
                ("measures {v}", "covers {v}", "has {v}"),
            ),
            Field(
                "floor",
                one_of("ground, first, second, third, fourth, fifth, top"),
                ("is on the {v} floor",),
                ("On the {v} floor",),
            ),
            Field(
                "free from",
                date,
                ("is free from {v}", "can be rented from {v}"),
                ("Free from {v}",),
            ),
            Field(
                "heating",
                one_of("gas, oil, electric, solar, wood"),
                ("has {v} heating", "uses {v} heating"),
            ),
        ),
    ),
    Domain(
        "recipe",
        "dish",
        pair(
            "lentil, pumpkin, potato, mushroom, chicken, salmon, apple, tomato",
            "soup, pie, curry, stew, salad, casserole",
        ),
        "the {v}",
        (
            Field(
                "time",
                number(15, 120, 5, "{} minutes"),
                ("takes {v}", "is ready in {v}"),
                ("In {v}",),
            ),
            Field(
                "serves",
                number(2, 10),
                ("serves {v} people", "feeds {v} people"),
                ("For {v} people",),
            ),
            Field(
                "spice",
                one_of("cumin, paprika, ginger, saffron, nutmeg, cinnamon, thyme"),
                ("is seasoned with {v}", "gets its taste from {v}"),
                ("Seasoned with {v}",),
            ),
            Field(
                "calories",
                number(180, 940, 10),
                ("has {v} calories", "contains {v} calories"),
                ("At {v} calories",),
            ),
            Field(
                "level",
                one_of("easy, medium, hard"),
                ("is {v} to make", "has {an} level of difficulty"),
            ),
            Field(
                "side dish",
                one_of("rice, bread, noodles, couscous, beans"),
                ("goes well with {v}", "is served with {v}"),
                ("Served with {v}",),
            ),
        ),
    ),
    Domain(
        "museum",
        "museum",
        pair(
            "Maritime, Railway, Glass, Clock, Textile, Folk Art, Aviation, Toy",
            TOWNS,
            "{} Museum of {}",
        ),
        "the {v}",
        (
            Field(
                "opened",
                number(1848, 2019),
                ("opened in {v}", "was founded in {v}"),
                ("Opened in {v}",),
            ),
            Field(
                "visitors",
                number(4_000, 690_000, 500, "{:,}"),
                ("has {v} visitors a year", "welcomes {v} visitors a year"),
                ("With {v} visitors a year",),
            ),
            Field(
                "ticket",
                number(3, 24, form="${}"),
                ("charges {v} for a ticket", "sells tickets for {v}"),
            ),
            Field(
                "known for",
                one_of("a steam engine, an old map, a giant globe, a royal dress, a wooden ship"),
                ("is known for {v}", "is proud of {v}"),
                ("Known for {v}",),
            ),
            Field("director", person_name, ("is led by {v}", "is run by {v}"), ("Led by {v}",)),
            Field(
                "opens at",
                one_of("8:30, 9:00, 9:15, 9:30, 10:00, 10:30, 11:00"),
                ("opens its doors at {v}", "can be visited from {v}"),
            ),
        ),
    ),
)


def with_article(phrase: str) -> str:
    """The phrase with its indefinite article."""
    return ("an " if phrase[0].lower() in "aeiou" else "a ") + phrase


def fill(pattern: str, value: str) -> str:
    """The wording with its value put in."""
    return pattern.replace("{an}", with_article(value)).replace("{v}", value)


def joined(parts: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def sentence(draw: Draw, subject: str, facts: list[tuple[Field, str]]) -> str:
    """One sentence on ``subject`` that states every fact, in one of several shapes.

    Facts are named in the record's order in half of the sentences. A fact may open the sentence
    (where its field has such a wording), another may stand in a relative clause, and at least
    one is a predicate.
    """
    left = list(facts) if draw.below(2) else draw.shuffled(facts)
    front = ""
    opening = [fact for fact in left if fact[0].fronts]
    if len(left) > 1 and opening and draw.below(3) == 0:
        fact = draw.choice(opening)
        left.remove(fact)
        front = fill(draw.choice(fact[0].fronts), fact[1]) + ", "
    middle = ""
    if len(left) > 2 and draw.below(3) == 0:
        field, value = left.pop(0)
        middle = f", which {fill(draw.choice(field.verbs), value)},"
    verbs = [fill(draw.choice(field.verbs), value) for field, value in left]
    text = f"{front}{subject}{middle} {joined(verbs)}."
    return text[0].upper() + text[1:]


def document(draw: Draw, domain: Domain, length: int) -> dict[str, object]:
    """A record of ``domain`` with ``length`` fields, and its sentence."""
    chosen = draw.shuffled(domain.fields)[: length - 1]
    subject = domain.subject(draw)
    facts = [(field, field.value(draw)) for field in domain.fields if field in chosen]
    target = sentence(draw, fill(domain.subject_phrase, subject), facts)
    if domain.name == "person":
        target = target.replace(", which ", ", who ")
    record = [{"field": domain.subject_field, "value": subject}]
    record += [{"field": field.name, "value": value} for field, value in facts]
    return {"domain": domain.name, "record": record, "target": target}


def new_document(draw: Draw, domain: Domain, length: int, seen: set[str]) -> dict[str, object]:
    """As :func:`document`, with a record that is not in ``seen``; adds it there.

    Two fields of one record never share a value, so that naming one is not naming the other.
    """
    while True:
        doc = document(draw, domain, length)
        record = doc["record"]
        assert isinstance(record, list)
        values = [entry["value"] for entry in record]
        key = json.dumps(record)
        if key not in seen and len(set(values)) == len(values):
            seen.add(key)
            return doc


def make_documents(seed: int = SEED) -> dict[str, list[dict[str, object]]]:
    """All documents by split; ``id`` is unique over both."""
    draw = Draw(seed)
    seen: set[str] = set()
    by_name = {domain.name: domain for domain in DOMAINS}
    fewshot = [new_document(draw, by_name[name], length, seen) for name, length in FEWSHOT]
    plan = [(domain, length) for domain in DOMAINS for length in LENGTHS]
    test = [new_document(draw, domain, length, seen) for domain, length in draw.shuffled(plan)]
    return {
        split: [{"id": f"{split}-{index:03d}", **doc} for index, doc in enumerate(docs)]
        for split, docs in (("test", test), ("fewshot", fewshot))
    }


def as_jsonl(docs: list[dict[str, object]]) -> bytes:
    """The bytes of a split's file."""
    return "".join(json.dumps(doc, ensure_ascii=False) + "\n" for doc in docs).encode()


def main() -> int:
    """Writes the files, or compares them with ``--check``."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--output", type=Path, default=TASK_DIR, help="directory of the files")
    args = parser.parse_args()
    for split, docs in make_documents().items():
        path = args.output / f"{split}.jsonl"
        if not args.check:
            path.write_bytes(as_jsonl(docs))
        elif path.read_bytes() != as_jsonl(docs):
            sys.stderr.write(f"{path} differs from what this script makes; run it to rewrite\n")
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
