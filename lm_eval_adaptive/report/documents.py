"""Words of a run's report: warnings, answers nobody expected, documents, and how to repeat it.

This module owns the sections that show texts; it imports the page's building blocks, the
view of a task, and the core's expected scores. Answers are untrusted text: see ``page``
on how they stay text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lm_eval_adaptive.records.journal import AnswerRecord
from lm_eval_adaptive.redact import redact
from lm_eval_adaptive.report.page import (
    as_text,
    cut,
    esc,
    fold_away,
    num,
    pre,
    section,
    table,
)
from lm_eval_adaptive.report.view import prompt_of, valid_answers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from lm_eval_adaptive.records.ranking import TraceStep
    from lm_eval_adaptive.report.view import TaskView

DOCUMENTS_SHOWN = 15  # of those on which models differ most
SURPRISES_SHOWN = 10
SURPRISE = 3.0  # standardised residual from which an answer is listed as unexpected
PROMPT_CHARS, TARGET_CHARS, ANSWER_CHARS = 6000, 3000, 3000
ANSWERS_CHARS = 36_000  # of all models on one document: keeps the page small with many models


def _surprises(view: TaskView) -> list[tuple[object, ...]]:
    """Answers far from what the bank expects of the model: (model, doc, score, expected, z)."""
    if view.bank is None:
        return []
    from lm_eval_adaptive.core.response import expected_score, variance

    bank = view.bank
    item_of = {int(doc): item for item, doc in enumerate(bank.doc_id)}
    ability = {entry.model: entry.ability for entry in view.ranking.ranking}
    found: list[tuple[float, tuple[object, ...]]] = []
    for model, answers in valid_answers(view).items():
        known = [answer for answer in answers if answer.doc_id in item_of]
        if not known:
            continue
        items = bank.parameters.take(
            np.array([item_of[answer.doc_id] for answer in known], dtype=np.intp)
        )
        theta = np.array([ability[model]])
        mean, sd = expected_score(theta, items)[0], np.sqrt(variance(theta, items)[0])
        for answer, mu, spread in zip(known, mean, sd, strict=True):
            assert answer.score is not None  # it counts
            z = (answer.score - mu) / spread
            if abs(z) >= SURPRISE:
                raw = float(bank.info.scale.to_raw(mu))
                row = (model, answer.doc_id, num(answer.raw_score), num(raw), f"{z:+.1f}")
                found.append((-abs(z), row))
    found.sort(key=lambda each: (each[0], str(each[1])))
    return [row for _, row in found]


def warnings(view: TaskView, prefix: str) -> str:
    """What to know before trusting the numbers, models set aside, and surprising answers."""
    ranking = view.ranking
    listed = [*view.notes, *ranking.warnings]
    inside = "".join(f"<li>{esc(each)}</li>" for each in listed)
    inside = f'<ul class="warn">{inside}</ul>' if listed else "<p>No warnings.</p>"
    aside = ranking.set_aside
    if aside:
        lost = ((each.model, each.items, each.reason) for each in aside)
        inside += "<h3>Models set aside, not in the ranking</h3>"
        inside += table(("model", "items asked", "why"), lost)
    if ranking.excluded:
        rows = ((each.doc_id, each.reason) for each in ranking.excluded)
        inside += "<h3>Documents left out for all models</h3>" + table(("document", "why"), rows)
    surprises = _surprises(view)
    if surprises:
        head = ("model", "document", "score", "expected", "deviations")
        more = len(surprises) - SURPRISES_SHOWN
        inside += (
            "<h3>Answers the bank did not expect</h3><p class=words>Three standard deviations or "
            "more from what a model of this ability is expected to get on the document. A few are "
            "normal; many of one model say that the bank fits it badly (leaked documents, another "
            "prompt format, broken answers)."
            f"{f' {more} more are not shown.' if more > 0 else ''}</p>"
            f"{table(head, surprises[:SURPRISES_SHOWN])}"
        )
    words = "What to know before trusting the numbers."
    return section(prefix, "warnings", "Warnings and misfits", words, inside)


def _texts(view: TaskView, answer: AnswerRecord | TraceStep) -> list[str]:
    """The texts of an answer: the journal's, else those of the harness's log."""
    if isinstance(answer, AnswerRecord):
        return list(answer.resps)
    logged = view.samples.get(answer.model, {}).get(answer.doc_id, {})
    return _flat(logged.get("resps", ["(not logged)"]))


def _flat(responses: object) -> list[str]:
    if isinstance(responses, list):
        return [text for each in responses for text in _flat(each)]
    return [as_text(responses)]


def _answered(view: TaskView) -> dict[int, dict[str, AnswerRecord | TraceStep]]:
    """Answers by document and model; without a journal the trace has the scores at least."""
    by_doc: dict[int, dict[str, AnswerRecord | TraceStep]] = {}
    for each in view.answers or view.ranking.trace:
        by_doc.setdefault(each.doc_id, {})[each.model] = each
    return by_doc


def _spread(held: Mapping[str, AnswerRecord | TraceStep]) -> float:
    """How far apart the scores on a document are."""
    scores = [each.score for each in held.values() if each.score is not None]
    return max(scores) - min(scores) if len(scores) > 1 else 0.0


def _asked(samples: Sequence[Mapping[str, Any]]) -> str:
    """What models were asked on a document; ``samples`` are theirs, best placed first."""
    if not samples:
        return (
            "<p class=words>Prompt and target are in the samples files, which the harness "
            "writes at the end of a run.</p>"
        )
    same = len({prompt_of(sample) for sample in samples}) == 1
    title = "Prompt" if same else "Prompt (of the best placed; the models' prompts differ)"
    prompt = cut(prompt_of(samples[0]), PROMPT_CHARS, keep_end=True)
    target = cut(as_text(samples[0].get("target", "")), TARGET_CHARS)
    return f"<h4>{title}</h4>{pre(prompt)}<h4>Target</h4>{pre(target)}"


def _card(view: TaskView, answer: AnswerRecord | TraceStep, length: int) -> str:
    """A model's answer, each text to so many characters."""
    empty = '<p class="s">(empty answer)</p>'
    shown = "".join(
        pre(cut(text, length)) if text.strip() else empty for text in _texts(view, answer)
    )
    return (
        f"<article><h5>{esc(answer.model)} <b>{num(answer.raw_score, 3)}</b></h5>{shown}</article>"
    )


def documents(view: TaskView, prefix: str) -> str:
    """The documents on which models differ most, answers side by side."""
    placed = [*view.ranking.ranking, *view.ranking.set_aside]
    order = [entry.model for entry in placed] or view.ranking.config.names
    by_doc = _answered(view)
    spreads = {doc: _spread(held) for doc, held in by_doc.items()}
    docs = sorted((doc for doc in by_doc if spreads[doc] > 0), key=lambda doc: (-spreads[doc], doc))
    blocks = []
    for place, doc in enumerate(docs[:DOCUMENTS_SHOWN]):
        held = by_doc[doc]
        values = [each.raw_score for each in held.values() if each.raw_score is not None]
        summary = f"doc {doc}: {len(held)} models, {num(min(values), 3)} to {num(max(values), 3)}"
        length = min(ANSWER_CHARS, ANSWERS_CHARS // len(held))
        cards = "".join(_card(view, held[model], length) for model in order if model in held)
        logged = [view.samples[model] for model in order if model in view.samples]
        blocks.append(
            f'<details class="doc"{"" if place else " open"}><summary>{esc(summary)}</summary>'
            f"{_asked([samples[doc] for samples in logged if doc in samples])}"
            f'<h4>Answers</h4><div class="answers">{cards}</div></details>'
        )
    inside = "".join(blocks) or "<p>No document was answered differently by two models.</p>"
    words = (
        f"The {len(blocks)} documents whose scores lie furthest apart, of {len(by_doc)} that were "
        f"asked. Numbers are the {view.ranking.metric} of each answer; texts are shown as the "
        "models wrote them."
        if blocks
        else "Documents that two models or more were asked are compared here."
    )
    return section(prefix, "documents", "Where the models differ most", words, inside)


def repeat(view: TaskView, prefix: str) -> str:
    """The command, versions and hashes that make the run again."""
    ranking = view.ranking
    bank = ranking.bank
    versions = ", ".join(f"{name} {each}" for name, each in ranking.versions.items())
    about = f"{bank.path} sha256 {bank.sha256}" if bank.path else bank.sha256
    parts = [
        ("Command", view.command or "The run was started from Python, or its journal is gone."),
        ("Signature", ranking.signature),
        ("Versions", versions or "not recorded"),
        ("Bank", about),
        ("Bank calibrated on", ", ".join(bank.models) or "not known here"),
    ]
    inside = "".join(f"<h3>{esc(name)}</h3>{pre(value)}" for name, value in parts)
    inside += fold_away("All options", pre(as_text(redact(ranking.config.plain()))))
    words = (
        "The same bank, models' answers, options and seed give the same ranking; the signature "
        "names what has to be equal."
    )
    return section(prefix, "repeat", "To repeat it", words, inside)
