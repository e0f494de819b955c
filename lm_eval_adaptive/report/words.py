"""A ranking in words: who beats whom, who is tied, and the sentence to quote.

This module owns what may be said of the verdicts, for the terminal and the page alike. It reads the
ranking document alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lm_eval_adaptive.report.texts import score_text
from lm_eval_adaptive.report.texts import share as percent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lm_eval_adaptive.records.ranking import PairVerdict, RankingDocument

TOLD_IN_FULL = 4  # models, up to which the sentence tells every pair


def groups_of(ranking: RankingDocument) -> list[list[str]]:
    """Models in ranking order, in groups: every model beats all of the groups below its own.

    Within a group some pairs may be decided as well: ties are not transitive, A and B and likewise
    B and C may be undecided while A beats C.
    """
    names = ranking.names
    tied = {entry.model: set(entry.tied_with) for entry in ranking.ranking}
    groups: list[list[str]] = []
    reach = -1  # the last place that a tie of the group so far leads to
    for place, name in enumerate(names):
        if place > reach:
            groups.append([])
        groups[-1].append(name)
        reach = max([reach, place, *(at for at, each in enumerate(names) if each in tied[name])])
    return groups


def possible_ranks(ranking: RankingDocument) -> dict[str, tuple[int, int]]:
    """Best and worst rank that the verdicts leave to each model."""
    names = ranking.names
    better = dict.fromkeys(names, 0)  # models that certainly stand above
    worse = dict.fromkeys(names, 0)
    for winner, loser in _decided(ranking):
        better[loser] += 1
        worse[winner] += 1
    return {name: (better[name] + 1, len(names) - worse[name]) for name in names}


def expected_wrong(ranking: RankingDocument) -> str:
    """How many of the decided pairs are expected to be wrong: the sum of 1 - P; "" without any."""
    chances = [
        1.0 - pair.p_a_better if pair.verdict == "a" else pair.p_a_better
        for pair in _pairs(ranking)
        if pair.decided
    ]
    if not chances:
        return ""
    total = sum(chances)
    count = f"{total:.2f}" if total >= 0.005 else "fewer than 0.01"
    pairs = "pair" if len(chances) == 1 else "pairs"
    told = f"{len(chances)} decided {pairs}, of which {count} are expected to be wrong"
    if not ranking.bank.exists:  # then nothing is assumed of them
        return told
    return f"{told}, where the models are like those the bank was calibrated on"


def sentence(ranking: RankingDocument, labels: Mapping[str, str] | None = None) -> str:
    """What a person would quote of a ranking.

    Up to four models every pair is told; of more, where the first one stands and how many pairs are
    decided.

    Args:
        ranking: A ranking document.
        labels: What to call models, where it is not by their names.
    """
    entries = ranking.ranking
    labels = labels or {entry.model: entry.model for entry in entries}
    parts = []
    if len(entries) == 1:
        entry = entries[0]
        low, high = (f"{each:.4g}" for each in entry.score_ci)
        score = score_text(entry.score, entry.score_se)
        parts.append(f"{labels[entry.model]} scores {score} (95 % interval {low} to {high})")
    elif 1 < len(entries) <= TOLD_IN_FULL:
        parts += _every_pair(ranking, labels)
    elif entries:
        parts += _the_first(ranking, labels)
    noted = [pair for pair in _pairs(ranking) if pair.note]
    if len(noted) == 1:
        parts.append(noted[0].note)
    elif noted:
        parts.append(f"{len(noted)} verdicts rest on models that lost answers, see the warnings")
    asked = f"{ranking.items_total} items asked"
    needed = f"{asked}, {percent(ranking.fraction)} of the answers a full run needs"
    if ranking.cost_total != ranking.items_total:
        needed += f", cost {ranking.cost_total:.3g} of {ranking.cost_full:.3g}"
    return f"{'; '.join([*parts, needed])} (stopped: {ranking.stop_reason})."


def _every_pair(ranking: RankingDocument, labels: Mapping[str, str]) -> list[str]:
    beaten: dict[str, list[str]] = {}
    for winner, loser in _decided(ranking):
        beaten.setdefault(labels[winner], []).append(labels[loser])
    told = [f"{winner} beats {_listed(losers)}" for winner, losers in beaten.items()]
    parts = []
    if told:
        parts.append(f"{'; '.join(told)} with {_level(ranking)}")
    for verdict in ("equivalent", "undecided"):
        alike = [(pair.a, pair.b) for pair in _pairs(ranking) if pair.verdict == verdict]
        if alike:
            sets = _cliques(alike, ranking.names)
            groups = [_listed([labels[name] for name in each]) for each in sets]
            parts.append(f"{', '.join(groups)} are {verdict}")
    parts[-1] += f" after {_items(ranking)}"
    return parts


def _the_first(ranking: RankingDocument, labels: Mapping[str, str]) -> list[str]:
    first, *others = ranking.ranking
    name, tied = labels[first.model], [labels[each] for each in first.tied_with]
    behind = len(others) - len(tied)
    if not tied:
        stands = f"{name} beats all {len(others)} others"
    elif len(tied) <= 3:
        stands = f"{name} is not told apart from {_listed(tied)}"
    else:
        stands = f"{name} stands first but is not told apart from {len(tied)} others"
    if tied and behind:
        stands += f" and beats the other {behind}" if behind > 1 else " and beats the other one"
    pairs = _pairs(ranking)
    counts = {
        verdict: sum(pair.verdict in verdicts for pair in pairs)
        for verdict, verdicts in (
            ("decided", ("a", "b")),
            ("equivalent", ("equivalent",)),
            ("undecided", ("undecided",)),
        )
    }
    told = f"{counts['decided']} of {len(pairs)} pairs are decided with {_level(ranking)}"
    rest = [f"{counts[word]} {word}" for word in ("equivalent", "undecided") if counts[word]]
    return [stands, ", ".join([told, *rest]) + f" after {_items(ranking)}"]


def _level(ranking: RankingDocument) -> str:
    """The level of a verdict, in words."""
    level = f"{100.0 * ranking.config.confidence:.4g} % confidence"
    if ranking.config.correction == "holm":
        return f"{level} for all required pairs together"
    several = sum(pair.decided for pair in _pairs(ranking)) > 1
    return f"{level} each" if several else level


def _items(ranking: RankingDocument) -> str:
    """How many items the models were asked."""
    counts = [entry.items for entry in ranking.ranking if not entry.known] or [0]
    if min(counts) == max(counts):
        return f"{counts[0]} items a model"
    return f"{min(counts)} to {max(counts)} items a model"


def _pairs(ranking: RankingDocument) -> list[PairVerdict]:
    """Pairs of models that are in the ranking."""
    names = set(ranking.names)
    return [pair for pair in ranking.pairs if pair.a in names and pair.b in names]


def _decided(ranking: RankingDocument) -> list[tuple[str, str]]:
    """Decided pairs as (winner, loser)."""
    return [pair.winner_and_loser for pair in _pairs(ranking) if pair.decided]


def _cliques(pairs: Sequence[tuple[str, str]], order: Sequence[str]) -> list[list[str]]:
    """Sets of models of which every two are among the pairs, in ranking order.

    >>> _cliques([("a", "b"), ("a", "c"), ("b", "c"), ("c", "d")], ["a", "b", "c", "d"])
    [['a', 'b', 'c'], ['c', 'd']]
    """
    alike = {frozenset(pair) for pair in pairs}
    found: list[list[str]] = []
    for start, name in enumerate(order):
        group = [name]
        for other in order[start + 1 :]:
            if all(frozenset((other, each)) in alike for each in group):
                group.append(other)
        if len(group) > 1 and not any(set(group) <= set(each) for each in found):
            found.append(group)
    covered = {frozenset((a, b)) for group in found for a in group for b in group if a != b}
    return found + [[a, b] for a, b in pairs if frozenset((a, b)) not in covered]


def _listed(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]}"
