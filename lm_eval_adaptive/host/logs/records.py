"""What a logged run is, as typed records: its answers, the requests in them, and their settings."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lm_eval_adaptive.host.logs.answers import AnswerTable


@dataclass(frozen=True)
class LoggedRequest:
    """One question put to the model: its prompt, its settings and the answers in order."""

    prompt: str
    generation_kwargs: Mapping[str, object]
    resps: tuple[str, ...]


@dataclass(frozen=True)
class LoggedAnswer:
    """What one model said to one document under one filter, as logged.

    Attributes:
        doc_id: Position of the document in the task.
        doc: The document, empty where the log has none.
        content_hash: Hash of the document, whatever the order of its columns; "" without one.
        doc_hash: The harness's own hash, empty where the log has none.
        prompt_hash: SHA-256 of the first prompt; computed where the log has none, "" without one.
        target: The reference as text.
        requests: The requests, in order; one in nearly every generation task.
        filtered: The answers after the filter, as logged.
        filter: Name of the filter, or None where nothing tells it.
        metrics: Raw values as logged: numbers, or pairs such as ``[gold, prediction]``.
    """

    doc_id: int
    doc: Mapping[str, object]
    content_hash: str
    doc_hash: str
    prompt_hash: str
    target: str
    requests: tuple[LoggedRequest, ...]
    filtered: object
    filter: str | None
    metrics: Mapping[str, object]

    @property
    def prompt(self) -> str:
        """The first request's prompt."""
        return self.requests[0].prompt if self.requests else ""

    @property
    def resps(self) -> list[str]:
        """The first request's answers, one per repeat."""
        return list(self.requests[0].resps) if self.requests else []


@dataclass(frozen=True)
class TaskFacts:
    """What a logged task's configuration declares.

    Attributes:
        dataset_path: The dataset, "" where unknown.
        dataset_name: Its configuration, likewise.
        split: The split of the documents, likewise.
        adaptive: The task's ``metadata.adaptive`` block.
        columns: The columns of a document that the task reads, None where that is not known.
        aggregations: By metric, the name of its aggregation or the text of its function.
        description: The text before all examples, None where unknown.
        doc_to_text: What makes the document's own part of a prompt, None where unknown.
    """

    dataset_path: str = ""
    dataset_name: str = ""
    split: str = ""
    adaptive: Mapping[str, object] = field(default_factory=dict)
    columns: frozenset[str] | None = None
    aggregations: Mapping[str, str] = field(default_factory=dict)
    description: str | None = None
    doc_to_text: str | None = None


@dataclass(frozen=True)
class LoggedRun:
    """One run of one model on one task.

    Attributes:
        model: Name of the run, different for each run that was found together.
        base_model: The model's own name; equal for several runs of one model.
        task: Task name in the log.
        date: The harness's date id, empty in formats before 0.4.3.
        task_version: Version in the task's metadata, None where unknown.
        n_shot: Number of few-shot examples, None where unknown.
        few_shot: What else decides the examples: the sampler's settings and, where it draws at
            random, its seed. Examples written into the task count by their hash.
        chat_template: Whether a chat template was applied, None where unknown.
        chat_template_sha: The template's hash, None where unknown or not applied.
        system_instruction: The system prompt, or None.
        generation_kwargs: Settings of the first request.
        higher_is_better: Direction per metric, where known.
        limit: The run's ``--limit``, or None.
        n_original: Documents in the task, None where unknown.
        n_effective: Documents the run was to answer, None where unknown.
        answers: Sorted by ``doc_id``, then in the order of the filters; texts are read when asked
            for.
        path: The samples file.
        results_path: The results file beside it, or None.
        sha256: Hash of the samples file's bytes.
        model_args: As logged.
        facts: What the task's configuration declares.
        totals: The harness's own score of all answers by ``metric,filter``.
        partial: Why the run is incomplete, or None.
        notices: What was left out or could not be checked while reading, a line each.
    """

    model: str
    base_model: str
    task: str
    date: str
    task_version: str | None
    n_shot: int | None
    few_shot: Mapping[str, object]
    chat_template: bool | None
    chat_template_sha: str | None
    system_instruction: str | None
    generation_kwargs: Mapping[str, object]
    higher_is_better: Mapping[str, bool]
    limit: float | None
    n_original: int | None
    n_effective: int | None
    answers: AnswerTable
    path: Path
    results_path: Path | None
    sha256: str
    model_args: str | Mapping[str, object]
    facts: TaskFacts
    totals: Mapping[str, float]
    partial: str | None
    notices: list[str] = field(default_factory=list)

    @property
    def filters(self) -> tuple[str | None, ...]:
        """The filters of the answers, in the order in which they were applied."""
        return self.answers.filters


def is_named(run: LoggedRun, name: str) -> bool:
    """Whether the name means this run: its own, its model's, or either as a directory's name."""
    return name in {
        form
        for known in (run.model, run.base_model)
        for form in (known, re.sub(r"[\"<>:/|\\?*\[\]]+", "__", known))
    }
