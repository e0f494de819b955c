"""Metric of the task ``govreport``."""

from __future__ import annotations

from lm_eval_adaptive.metrics import document_metrics

process_results = document_metrics("rougeL", reference="summary")
