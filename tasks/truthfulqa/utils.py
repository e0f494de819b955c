"""Metrics of the task ``truthfulqa_gen_adaptive``; models and rubric are in its YAML."""

from __future__ import annotations

from pathlib import Path

from lm_eval_adaptive.metrics import document_metrics

process_results = document_metrics(
    "bertscore_diff",
    "judge",
    reference="correct_answers",
    incorrect="incorrect_answers",
    settings=Path(__file__).with_name("truthfulqa_gen_adaptive.yaml"),
)
