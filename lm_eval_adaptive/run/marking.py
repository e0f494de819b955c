"""What an answer is worth, and the line that the journal keeps of it.

This module owns the way from an answer of the host to a record: its score by each metric of the
contest, its cost, and its values in a shape that JSON has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from lm_eval_adaptive.errors import TaskError
from lm_eval_adaptive.host.scoring import document_score
from lm_eval_adaptive.host.settings import cost_of_tokens
from lm_eval_adaptive.records.journal import AnswerRecord, ScoreRecord

if TYPE_CHECKING:
    from lm_eval_adaptive.host.candidate import Answer, Refusal
    from lm_eval_adaptive.run.contest import Contest, Terms


def mark(task: str, terms: Terms, answer: Answer) -> ScoreRecord:
    """The number of an answer under a metric and its range.

    Raises:
        TaskError: The task's metrics do not hold the metric at all.
        DataError: The metric's values are no numbers.
    """
    result = answer.result
    if result.error and terms.filter not in result.metrics:
        return failed(terms, f"metric failed: {result.error}")
    metrics = result.metrics[terms.filter]
    if terms.metric not in metrics and terms.averaging.is_listed:
        return _not_an_item(f"the task gives no {terms.metric} for this document")
    if terms.metric not in metrics:
        raise TaskError(
            f"task {task} gives no metric {terms.metric!r}; it has {', '.join(metrics) or 'none'}: "
            "calibrate a bank for one of them"
        )
    value = metrics[terms.metric]
    if value is None:
        return _not_an_item(f"{terms.metric} is missing")
    if terms.averaging.leaves_out(value):
        return _not_an_item(
            f"{terms.metric} does not count this document: the task's aggregation leaves "
            f"{value} out"
        )
    raw = document_score(terms.metric, value)
    if not np.isfinite(raw):
        reason = getattr(value, "reason", "")
        return failed(
            terms, f"{terms.metric} is missing: {reason}" if reason else f"{terms.metric} is {raw}"
        )
    return ScoreRecord(
        raw_score=raw,
        score=float(terms.scale.to_score(raw)),
        clipped=bool(terms.scale.outside(raw)),
        problem="",
    )


def failed(terms: Terms, problem: str) -> ScoreRecord:
    """What an answer that cannot be scored is worth: nothing, or what the user said."""
    raw = terms.options.failure_score
    score = None if raw is None else float(terms.scale.to_score(raw))
    return ScoreRecord(raw_score=raw, score=score, clipped=False, problem=problem)


def _not_an_item(problem: str) -> ScoreRecord:
    """A document that is none for this metric, whatever the model answered."""
    return ScoreRecord(raw_score=None, score=None, clipped=False, problem=problem)


def answer_record(contest: Contest, model: str, answer: Answer) -> AnswerRecord:
    """What the journal keeps of an answer to the contest's present round.

    Raises:
        AdaptiveError: It cannot be scored, see :func:`mark`.
    """
    first, *others = (view.terms for view in contest.views)
    found = mark(contest.task, first, answer)
    cost = cost_of_tokens(
        contest.prices[model],
        answer.input_tokens,
        min(answer.output_tokens, answer.most_output),
        len(answer.resps),
    )
    values = {name: dict(each) for name, each in answer.result.metrics.items()}
    return AnswerRecord(
        task=contest.task,
        round=contest.rounds + 1,
        model=model,
        doc_id=answer.doc_id,
        prompt_hash=answer.prompt_hash,
        resps=tuple(map(str, answer.resps)),
        filtered=plain_value(answer.result.filtered),
        metrics=plain_value(values),
        raw_score=found.raw_score,
        score=found.score,
        clipped=found.clipped,
        problem=found.problem,
        input_tokens=answer.input_tokens,
        output_tokens=answer.output_tokens,
        tokens_counted=answer.counted,
        cost=float(cost),
        scores={terms.key: mark(contest.task, terms, answer) for terms in others},
    )


def refusal_record(contest: Contest, model: str, refusal: Refusal) -> AnswerRecord:
    """What the journal keeps of a document that a model gave no answer to; it costs nothing."""
    first, *others = (view.terms for view in contest.views)
    found = failed(first, refusal.reason)
    return AnswerRecord(
        task=contest.task,
        round=contest.rounds + 1,
        model=model,
        doc_id=refusal.doc_id,
        prompt_hash=refusal.prompt_hash,
        resps=(),
        filtered={},
        metrics={},
        raw_score=found.raw_score,
        score=found.score,
        clipped=found.clipped,
        problem=found.problem,
        input_tokens=0.0,
        output_tokens=0.0,
        tokens_counted=True,
        cost=0.0,
        scores={terms.key: failed(terms, refusal.reason) for terms in others},
    )


# What stands for a number that JSON has not, {"not finite": "nan"}, in a journal.
_NO_NUMBER = "not finite"


def python_value(value: Any) -> Any:
    """A value as :func:`plain_value` made it, with NaN and infinity again.

    >>> python_value(plain_value({"a": [float("-inf")]}))
    {'a': [-inf]}
    """
    if isinstance(value, Mapping):
        if set(value) == {_NO_NUMBER}:
            return float(value[_NO_NUMBER])
        return {key: python_value(each) for key, each in value.items()}
    return [python_value(each) for each in value] if isinstance(value, list) else value


def plain_value(value: Any) -> Any:
    """A metric value or filtered response as JSON can hold it: numpy numbers become Python's."""
    if isinstance(value, Mapping):
        return {str(key): plain_value(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain_value(each) for each in value]
    if value is None or isinstance(value, bool):
        return value
    for kind in (str, int):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, float):  # numpy's float64 as well
        found = float(value)
        return found if math.isfinite(found) else {_NO_NUMBER: str(found)}
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "size", None) == 1:
        return plain_value(item())
    if callable(getattr(value, "tolist", None)):
        return plain_value(value.tolist())
    return str(value)
