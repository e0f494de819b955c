"""A contest by itself: no task, no model, no file, but documents and what they are worth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lm_eval_adaptive.core.procedure import Procedure
from lm_eval_adaptive.host.settings import CandidateSpec
from lm_eval_adaptive.records.journal import AnswerRecord, AskRecord, ScoreRecord
from lm_eval_adaptive.run.config import AdaptiveConfig
from lm_eval_adaptive.run.contest import Contest, Terms, View, unanswered
from tests.core.helpers import make_bank, random_items

ITEMS = 30
NAMES = ("high", "low")
SPECS = [CandidateSpec(name) for name in NAMES]
TRUTH = {"high": 0.7, "low": 0.4}


def view(key, seed, order=None, **options):
    """A metric's view; ``order`` says which document each item of its bank is."""
    bank = make_bank(random_items("robust-2pl", ITEMS, np.random.default_rng(seed)))
    adaptive = AdaptiveConfig(metric=key, min_items=4, round_size=2, **options)
    procedure = Procedure.for_bank(
        bank, np.ones((2, ITEMS)), adaptive.procedure(bank.info.scale.width, 1, 0)
    )
    terms = Terms(key, key, "none", bank.info.scale, bank, adaptive, NAMES)
    return View(terms, procedure, np.arange(ITEMS) if order is None else order)


def score_of(model, doc_id, shift=0.0, problem=""):
    value = None if problem else float(np.clip(TRUTH[model] + shift + 0.01 * (doc_id % 7), 0, 1))
    return ScoreRecord(raw_score=value, score=value, clipped=False, problem=problem)


def answer(contest, model, doc_id, scores=None, **own):
    first, *others = [each.terms.key for each in contest.views]
    found = scores or {
        key: score_of(model, doc_id, 0.05 * k) for k, key in enumerate([first, *others])
    }
    head = found[first]
    return AnswerRecord(
        task="t", round=contest.rounds + 1, model=model, doc_id=doc_id, prompt_hash="",
        resps=("x",), filtered={}, metrics={}, raw_score=head.raw_score, score=head.score,
        clipped=False, problem=head.problem, input_tokens=1.0, output_tokens=1.0,
        tokens_counted=True, cost=1.0, scores={key: found[key] for key in others}, **own,
    )  # fmt: skip


def answered(contest, plan):
    return {
        (ask.model, doc): answer(contest, ask.model, doc) for ask in plan for doc in ask.doc_ids
    }


def play(contest, shuffle=None):
    """The contest to its end; ``shuffle`` says in which order answers come."""
    while (plan := contest.next()) is not None:
        answers = list(answered(contest, plan).items())
        if shuffle is not None:
            shuffle.shuffle(answers)
        contest.close_round(plan, dict(answers), {})
    return contest


def two(first=0, **options):
    """Two metrics whose banks hold the same documents, in orders of their own."""
    turned = np.roll(np.arange(ITEMS), 11)
    views = [view("a", first, **options), view("b", first + 1, turned, **options)]
    return Contest("t", SPECS, views)


def test_a_document_is_the_same_document_to_every_view():
    contest = play(two())
    assert contest.rounds > 1
    for each in contest.views:
        for row, name in enumerate(NAMES):
            asked = {each.item_of[one.doc_id] for one in contest.answers if one.model == name}
            assert asked == set(np.flatnonzero(np.isfinite(each.state.responses[row])))
    first, second = contest.views
    for one in contest.answers:
        row = NAMES.index(one.model)
        assert first.state.responses[row, first.item_of[one.doc_id]] == one.score
        assert second.state.responses[row, second.item_of[one.doc_id]] == one.scores["b"].score
    assert len({(one.model, one.doc_id) for one in contest.answers}) == len(contest.answers)


def test_both_metrics_choose_and_each_tells_why_it_stopped():
    contest = play(two(first=2))
    assert all(each.chosen for each in contest.views)
    assert sum(each.chosen for each in contest.views) == contest.rounds
    assert [each.stop_reason for each in contest.views] == ["decided", "decided"]
    assert contest.stop_reason == "decided"


def test_it_goes_on_while_one_metric_is_open():
    contest = Contest("t", SPECS, [view("a", 0), view("b", 1, items_per_model=20)])
    play(contest)
    assert [each.stop_reason for each in contest.views] == ["decided", "fixed_length"]
    assert contest.first.state.administered.tolist() == [20, 20]


def test_who_answers_first_changes_nothing():
    one, other = play(two()), play(two(), np.random.default_rng(0))
    assert one.answers == other.answers
    for mine, yours in zip(one.views, other.views, strict=True):
        assert mine.trace == yours.trace
        assert np.array_equal(mine.state.responses, yours.state.responses, equal_nan=True)


def test_what_one_metric_cannot_score_is_left_out_for_it_alone():
    contest = two()
    plan = contest.next()
    answers = answered(contest, plan)
    lost = plan[0].doc_ids[0]
    answers["high", lost] = answer(
        contest,
        "high",
        lost,
        {"a": score_of("high", lost), "b": score_of("high", lost, problem="b is nan")},
    )
    contest.close_round(plan, answers, {})
    first, second = contest.views
    assert (first.excluded, second.excluded) == ({}, {}), "an answer failed, not the document"
    row, item = NAMES.index("high"), second.item_of[lost]
    assert second.state.missing[row, item]
    assert not second.state.free[row, item], "it is not asked again"
    assert not first.state.missing.any()
    assert np.isfinite(first.state.responses[:, first.item_of[lost]]).any()
    assert second.state.available[item], "the other model has a score of it"


def test_what_fails_for_every_model_asked_is_left_out_for_all():
    contest = two()
    plan = contest.next()
    answers = answered(contest, plan)
    bad = plan[0].doc_ids[0]
    for model in NAMES:
        scores = {"a": score_of(model, bad), "b": score_of(model, bad, problem="b is nan")}
        answers[model, bad] = answer(contest, model, bad, scores)
    contest.close_round(plan, answers, {})
    first, second = contest.views
    assert (first.excluded, second.excluded) == ({}, {bad: "high: b is nan"})
    item = second.item_of[bad]
    assert not second.state.available[item]
    assert not second.state.missing[:, item].any(), "it counts for nobody, as asked neither"


def test_a_model_set_aside_is_asked_nothing_more():
    contest = two()
    plan = contest.next()
    answers = answered(contest, plan)
    contest.close_round(plan, answers, {"low": "out of memory"})
    assert contest.failed == {"low": "out of memory"}
    while (plan := contest.next()) is not None:
        assert {ask.model for ask in plan} == {"high"}
        contest.close_round(plan, answered(contest, plan), {})


def test_a_model_that_fails_midway_keeps_what_it_answered():
    contest = two()
    plan = contest.next()
    answers = answered(contest, plan)
    gone = plan[-1]
    del answers[gone.model, gone.doc_ids[-1]]
    contest.close_round(plan, answers, {gone.model: "out of memory"})
    kept = [one for one in contest.answers if one.model == gone.model]
    assert [one.doc_id for one in kept] == list(gone.doc_ids[:-1])


def test_replaying_a_journal_gives_the_contest_again():
    played, again = play(two()), two()
    again.replay(played.answers, "decided")
    assert again.answers == played.answers
    assert again.rounds == played.rounds
    for mine, yours in zip(again.views, played.views, strict=True):
        assert mine.trace == yours.trace


def test_a_half_answered_round_is_replayed_as_far_as_it_is():
    played, again = play(two()), two()
    again.replay(played.answers[:-1], "")
    assert again.answers == played.answers[:-1]
    assert again.stop_reason == ""


def test_only_shared_documents_are_asked():
    contest = two()
    shared = set(range(5, ITEMS))
    for each in contest.views:
        each.keep(shared)
    play(contest)
    assert {one.doc_id for one in contest.answers} <= shared
    for each in contest.views:
        assert each.notices == [
            "5 of the bank's 30 items are left out: the other metrics' banks do not have them"
        ]


def test_what_is_answered_is_not_asked_again():
    plan = (AskRecord(model="high", doc_ids=(1, 2)), AskRecord(model="low", doc_ids=(2,)))
    held = {("high", 1): None, ("low", 2): None}
    assert unanswered(plan, held) == (AskRecord(model="high", doc_ids=(2,)),)
    assert unanswered(plan, {}) == plan


def test_without_a_bank_files_say_none():
    with_bank = view("a", 0).terms
    assert with_bank.bank_sha256 == with_bank.bank.sha256
    without = replace(with_bank, bank=None)
    assert (without.bank_sha256, without.response_model) == ("none", "paired")
    assert without.calibrated == ()
