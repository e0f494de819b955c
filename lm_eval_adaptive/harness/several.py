"""Several metrics at once: one set of answers, a ranking by each of them.

This module owns which metric chooses a round's items, and what an answer is worth under the others.
It imports the task's sessions and runs. The first metric's run leads: it is the one that progress,
page and summary show; those of the others follow it, round by round, with the same documents.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.core.state import Ask, Round, Stop
from lm_eval_adaptive.errors import BankError
from lm_eval_adaptive.harness.outputs import ranking_document, run_warnings
from lm_eval_adaptive.harness.session import Session

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lm_eval_adaptive.harness.candidate import Answer, Candidate
    from lm_eval_adaptive.harness.config import AdaptiveConfig, CandidateSpec
    from lm_eval_adaptive.harness.session import TaskRun
    from lm_eval_adaptive.harness.task import TaskDocs

# What the rankings of one file have in common, and say once.
_SHARED = ("schema", "task", "config", "versions")


def make_session(
    docs: TaskDocs,
    adaptive: AdaptiveConfig,
    candidates: Sequence[CandidateSpec],
    batch: int,
    seed: int,
) -> Session:
    """The session of a task: that of the first metric, with those of the others behind it.

    Documents that are not in every metric's bank are asked for none. Arguments and errors are those
    of :class:`~lm_eval_adaptive.harness.session.Session`.
    """
    if len(adaptive.metrics) < 2:
        return Session(docs, adaptive, candidates, batch, seed)
    found = [
        Session(docs, replace(adaptive, metric=metric), candidates, batch, seed)
        for metric in adaptive.metrics
    ]
    shared = set.intersection(*(set(session.item_of) for session in found))
    if not shared:
        raise BankError(
            f"the banks of {', '.join(adaptive.metrics)} have no document of task {docs.name} in "
            "common; calibrate them from the same logs"
        )
    for session in found:
        session.keep(shared)
    first, *others = found
    first.followers = others
    return first


def recipes(session: Session) -> dict[str, Any]:
    """What must be equal, for each further metric, for a run to be resumed."""
    return {
        each.key: {"signature": each.recipe, "bank_sha256": each.bank.sha256}
        for each in session.followers
    }


def further_scores(session: Session, answer: Answer) -> dict[str, Any]:
    """An answer's number under each further metric, for the journal."""
    return {each.key: asdict(each.score(answer)) for each in session.followers}


def next_step(run: TaskRun) -> Round | Stop:
    """The next round, in items of the first metric's bank, or why the run is over.

    The metric whose undecided pair is farthest from decided chooses; where two are equally far,
    the one that chose less often. The run is over when every metric's own rules say so.
    """
    if not run.followers:
        return run.session.procedure.next(run.state)
    runs = [run, *run.followers]
    steps = [each.session.procedure.next(each.state) for each in runs]
    going = [
        (each, step) for each, step in zip(runs, steps, strict=True) if isinstance(step, Round)
    ]
    if not going:
        for each, step in zip(runs, steps, strict=True):
            assert isinstance(step, Stop)
            if each is not run:  # the caller ends the first one
                each.stop_reason = step.reason
        return steps[0]
    chooser, step = min(going, key=lambda each: (-_doubt(each[0]), each[0].chosen))
    chooser.chosen += 1
    return _translated(step, chooser.session, run.session)


def close_round(
    run: TaskRun,
    plan: Round,
    answers: Mapping[tuple[str, int], Mapping[str, Any]],
    failures: Mapping[str, str],
) -> None:
    """Take a round in under every metric; arguments as for ``TaskRun.close_round``."""
    run.close_round(plan, answers, failures)
    asked = [
        (run.session.names[ask.model], doc_id)
        for ask in plan.asks
        for doc_id in run.session.doc_ids_of(ask.items)
    ]
    for each in run.followers:
        own = {
            at: {**answers[at], **answers[at]["scores"][each.session.key]}
            for at in asked
            if at in answers
        }
        each.close_round(_translated(plan, run.session, each.session), own, failures)


def rankings(run: TaskRun, candidates: Sequence[Candidate]) -> dict[str, dict[str, Any]]:
    """A ranking per metric, without what the file says once."""
    found = {}
    for each in (run, *run.followers):
        session = each.session
        document = ranking_document(session, each, candidates, run_warnings(session, each))
        found[session.key] = {key: document[key] for key in document if key not in _SHARED}
    return found


def _translated(plan: Round, session: Session, other: Session) -> Round:
    """The same documents as items of another metric's bank."""
    if session is other:
        return plan
    return Round(
        tuple(
            Ask(ask.model, tuple(other.item_of[doc] for doc in session.doc_ids_of(ask.items)))
            for ask in plan.asks
        )
    )


def _doubt(run: TaskRun) -> float:
    """How far the farthest pair of a metric is from decided: the chance that its order is wrong."""
    procedure, state = run.session.procedure, run.state
    estimates = procedure.estimate(state)
    chances = [
        min(pair.p_a_better, 1.0 - pair.p_a_better)
        for pair in procedure.pairs(state, estimates)
        if pair.required
        and pair.verdict == "undecided"
        and procedure.chance(state, estimates, pair) >= procedure.futility
    ]
    return max(chances, default=0.0)
