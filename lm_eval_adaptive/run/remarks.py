"""What the reader of a ranking has to know, told from the answers themselves.

This module owns the warnings of a ranking; it imports the contest, and the words
for where a model lies.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from lm_eval_adaptive.core.widening import pair_widening, place
from lm_eval_adaptive.records.ranking import ALARM

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lm_eval_adaptive.run.contest import Contest, View

# Share of a model's answers that may be missing before the verdicts on its pairs say so.
NOTED_SHARE = 0.05


def remarks(contest: Contest, view: View) -> list[str]:
    """The warnings of a ranking by one metric."""
    found = [*view.notices, *_random_choice(view), *_odd_answers(contest, view)]
    unscored = sum(each.raw_score is None for each in view.scores)
    if unscored:
        found.append(f"{unscored} of {len(view.scores)} answers have no {view.terms.metric}")
    if view.excluded:
        found.append(
            f"{len(view.excluded)} document(s) were left out for all models, see `excluded`"
        )
    found += _lost_answers(contest, view)
    found += contest.said
    found += _guessed_costs(contest)
    found += _doubt(view)
    found += _outside(view)
    found += _misfits(view)
    found += _given_up(view)
    return found + _prompt_mismatch(contest, view)


def lost_shares(contest: Contest, view: View) -> dict[str, float]:
    """Share of each model's answers that are missing: without a score, where others have one."""
    asked: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    for answer, score in zip(contest.answers, view.scores, strict=True):
        if answer.doc_id not in view.excluded:
            asked[answer.model] += 1
            lost[answer.model] += score.score is None
    return {model: lost[model] / asked[model] for model in asked if lost[model]}


def pair_note(lost: Mapping[str, float], a: str, b: str) -> str:
    """What a pair's verdict has to say of missing answers: who fails where it is hard would gain.

    >>> pair_note({"m": 0.25, "n": 0.01}, "m", "n")
    'm lost 25 % of its answers, and may stand too high for it'
    """
    found = [
        f"{model} lost {lost[model]:.0%}".replace("%", " %") + " of its answers"
        for model in (a, b)
        if lost.get(model, 0.0) > NOTED_SHARE
    ]
    return f"{' and '.join(found)}, and may stand too high for it" if found else ""


def _lost_answers(contest: Contest, view: View) -> list[str]:
    """What each model lost, and the reason it lost most for."""
    reasons: dict[str, Counter[str]] = {}
    asked: Counter[str] = Counter()
    for answer, score in zip(contest.answers, view.scores, strict=True):
        if answer.doc_id in view.excluded:
            continue
        asked[answer.model] += 1
        if score.problem:
            reasons.setdefault(answer.model, Counter())[score.problem] += 1
    worth = view.terms.options.failure_score
    found = []
    for model in sorted(reasons):
        count = reasons[model].total()
        [(reason, times)] = reasons[model].most_common(1)
        share = f"{count} of {asked[model]} answers ({count / asked[model]:.0%})".replace("%", " %")
        counted = "are missing" if worth is None else f"failed and count as {worth:g}"
        why = reason if times == count else f"{times} of them: {reason}"
        advice = "; --on_error says what they count as" if worth is None else ""
        found.append(f"{model}: {share} {counted} ({why}){advice}")
    return found


def _random_choice(view: View) -> list[str]:
    bank = view.terms.bank
    chosen = view.procedure.config.sampler == "auto"
    if not chosen or bank is None or bank.info.selector != "random":
        return []
    said = (
        "documents were drawn at random, the same for all models: what told the bank's calibration "
        "models apart did not carry over to held-out ones; calibrating with more models, or with "
        "more different ones, may change that"
    )
    return [said]


def _odd_answers(contest: Contest, view: View) -> list[str]:
    """Empty answers, and scores outside the range."""
    scale = view.terms.scale
    counts: Counter[str] = Counter()
    empty: Counter[str] = Counter()
    clipped: Counter[str] = Counter()
    for answer, score in zip(contest.answers, view.scores, strict=True):
        counts[answer.model] += 1
        empty[answer.model] += answer.answered and all(not each.strip() for each in answer.resps)
        clipped[answer.model] += score.clipped
    found = []
    for model in sorted(counts):
        if empty[model]:
            found.append(f"{model}: {empty[model]} of {counts[model]} answers are empty")
        if clipped[model]:
            found.append(
                f"{model}: {clipped[model]} of {counts[model]} scores lie outside the bank's range "
                f"[{scale.lo:g}, {scale.hi:g}] and were clipped"
            )
    return found


def _guessed_costs(contest: Contest) -> list[str]:
    prices = contest.prices
    guessed = sorted(
        {
            answer.model
            for answer in contest.answers
            if isinstance(prices[answer.model], dict) and not answer.tokens_counted
        }
    )
    if not guessed:
        return []
    return [f"{', '.join(guessed)}: no tokenizer to count with, costs are by characters / 4"]


def doubts(view: View) -> tuple[str, ...]:
    """What speaks against the bank: its alarm, and settings in which prompts differ."""
    told = view.procedure.estimate(view.state).agreement
    return (*([ALARM] if told is not None and told.alarm else []), *view.unlike)


def _doubt(view: View) -> list[str]:
    """The alarm of a bank that the models' own answers do not bear out, in one line."""
    told = view.procedure.estimate(view.state).agreement
    if told is None or not told.alarm:
        return []
    said = (
        f"the bank does not fit these models: on the {told.items} documents that all were asked, "
        "informative and random ones do not tell the same differences (p = "
        f"{told.p_value:.1g}); the ranking relies on the bank's slopes to {told.share:.0%} only, "
        "and asks more; check prompts and token limits against the bank's, or use --bank none"
    )
    return [said]


def _outside(view: View) -> list[str]:
    """Models beyond all that calibrated: the bank says less of them, and their errors are wider."""
    estimates, bank = view.procedure.estimate(view.state), view.terms.bank
    if estimates.outside is None or bank is None:
        return []
    found = []
    for row in range(len(view.terms.names)):
        distance = float(estimates.outside[row])
        if distance == 0.0 or not view.state.administered[row] or view.procedure.known[row]:
            continue
        found.append(
            f"{view.terms.names[row]} lies {place(distance, len(bank.info.models))}, by "
            f"{abs(distance):.1f} standard deviations of their scores: errors of its differences "
            f"are {pair_widening(distance) ** 0.5:.2f} times as wide for that"
        )
    return found


def _misfits(view: View) -> list[str]:
    """Models whose answers are unlike what the bank expects of any model."""
    procedure, state = view.procedure, view.state
    estimates = procedure.estimate(state)
    found = []
    for row in procedure.misfitting(state, estimates):
        assert estimates.misfit is not None
        asked = int(state.administered[row])
        found.append(
            f"{view.terms.names[row]}: its {asked} answers do not fit the bank (squared residuals "
            f"are {estimates.misfit[row]:.1f} times what is expected; its error was widened for "
            "that, and may still be too small): look at its answers and prompts; ask more of it "
            "with --min_items, or recalibrate the bank with models like it"
        )
    return found


def _given_up(view: View) -> list[str]:
    """Pairs that were left undecided before ``max_items``, for want of a chance."""
    if view.stop_reason != "max_items":
        return []
    procedure, state, names = view.procedure, view.state, view.terms.names
    estimates = procedure.estimate(state)
    found = []
    for pair in procedure.pairs(state, estimates):
        rows = [row for row in (pair.a, pair.b) if not procedure.known[row]]
        # A pair of two known models waits for nothing.
        least = int(state.administered[rows].min(initial=procedure.max_items))
        if not (pair.required and pair.verdict == "undecided" and least < procedure.max_items):
            continue
        chance = procedure.chance(state, estimates, pair)
        if chance < procedure.config.futility:
            found.append(
                f"{names[pair.a]} and {names[pair.b]} were given up after {least} items: "
                f"{procedure.max_items} each would tell them apart with a chance of {chance:.1%} "
                "only; --equivalence D says how small a difference counts as none"
            )
    return found


def _prompt_mismatch(contest: Contest, view: View) -> list[str]:
    """Whether prompts differ from those the bank was calibrated with."""
    bank = view.terms.bank
    if bank is None:
        return []
    known = [
        (bank.prompt_hash[view.item_of[answer.doc_id]], answer.prompt_hash)
        for answer in contest.answers
    ]
    compared = [(then, now) for then, now in known if then]
    other = sum(then != now for then, now in compared)
    if not other:
        return []
    settings = " and ".join(view.unlike) or "examples, template or instruction"
    said = (
        f"{other} of {len(compared)} prompts differ from the bank's calibration prompts (another "
        f"{settings}): difficulties may have shifted"
    )
    return [said]
