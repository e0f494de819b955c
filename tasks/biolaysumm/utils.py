"""Metrics of the task ``biolaysumm_plos``; its YAML names the models they use."""

from __future__ import annotations

from pathlib import Path

from lm_eval_adaptive.metrics import document_metrics

process_results = document_metrics(
    "rougeL",
    "bertscore_f1",
    "fkgl",
    reference="summary",
    settings=Path(__file__).with_name("biolaysumm_plos.yaml"),
)
