"""What an adaptive run costs besides the model and the metric, on a task of many documents.

A model that answers at once is asked on a task held in memory; printed are the seconds before the
first question, beside those of the plain harness before it has asked one document of the same task,
and the milliseconds of a round outside model and metric::

    python scripts/bench_overhead.py [--documents 20000] [--models 4] [--rounds 60]
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

YAML = """
task: many_documents
dataset_path: many_documents
custom_dataset: !function data.load
output_type: generate_until
test_split: test
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\\n"], max_gen_toks: 8}
process_results: !function data.score
metric_list:
  - {metric: overlap, aggregation: mean, higher_is_better: true}
metadata: {version: 1.0}
"""
HELPER = """
import time
import datasets

SECONDS = [0.0]

def load(**_):
    rows = [{"question": f"What is number {i}?", "answer": f"the number {i}"} for i in range(COUNT)]
    return datasets.DatasetDict({"test": datasets.Dataset.from_list(rows)})

def score(doc, results):
    return {"overlap": float(results[0])}
"""


def make_bank(count: int, folder: Path, names: list[str]) -> Path:
    """A bank of simulated items, named as the task's documents are."""
    from lm_eval_adaptive import ScoreMatrix, calibrate
    from lm_eval_adaptive.core.identity import content_hash

    rng = np.random.default_rng(0)
    theta = np.linspace(-1.5, 1.5, 12)
    difficulty = rng.normal(0.0, 1.0, count)
    scores = 1.0 / (1.0 + np.exp(-(theta[:, None] - difficulty)))
    scores = np.clip(scores + 0.1 * rng.standard_normal(scores.shape), 0.0, 1.0)
    keys = tuple(
        content_hash({"question": f"What is number {i}?", "answer": f"the number {i}"})
        for i in range(count)
    )
    matrix = ScoreMatrix(tuple(names), keys, scores)
    bank = calibrate(matrix, task="many_documents", metric="overlap", score_range=(0.0, 1.0))
    return bank.save(folder / "many.bank.parquet")


def register() -> dict[str, float]:
    """An instant model, and when it was first asked."""
    import lm_eval.models  # noqa: F401  the harness's own models have to be registered first
    from lm_eval.api.model import LM
    from lm_eval.api.registry import model_registry

    clock = {"first": 0.0, "model": 0.0}

    class Instant(LM):  # type: ignore[misc]
        def __init__(self, share: float = 0.5, **_: Any) -> None:
            super().__init__()
            self.share = float(share)

        def generate_until(self, requests: list[Any]) -> list[str]:
            started = time.perf_counter()
            clock["first"] = clock["first"] or started
            found = [
                str(min(max(self.share + 0.1 * np.sin(request.doc_id), 0.0), 1.0))
                for request in requests
            ]
            clock["model"] += time.perf_counter() - started
            return found

        def loglikelihood(self, requests: list[Any]) -> list[Any]:
            raise NotImplementedError

        def loglikelihood_rolling(self, requests: list[Any]) -> list[Any]:
            raise NotImplementedError

    model_registry.register("instant", target=Instant)
    return clock


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--documents", type=int, default=20000)
    parser.add_argument("--models", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=60)
    args = parser.parse_args()
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    clock = register()
    from lm_eval import simple_evaluate as stock
    from lm_eval.tasks import TaskManager

    from lm_eval_adaptive import AdaptiveConfig, simple_evaluate

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tasks").mkdir()
        (folder / "tasks" / "many.yaml").write_text(YAML)
        (folder / "tasks" / "data.py").write_text(f"COUNT = {args.documents}\n{HELPER}")
        bank = make_bank(args.documents, folder, [f"c{i:02d}" for i in range(12)])

        started = time.perf_counter()
        manager = TaskManager(include_path=str(folder / "tasks"))
        stock(model="instant", tasks=["many_documents"], limit=1, task_manager=manager)
        plain = clock["first"] - started
        clock.update(first=0.0, model=0.0)

        per_model = max(args.rounds, 2)
        models = [
            {"name": f"m{i}", "model": "instant", "model_args": {"share": 0.3 + 0.1 * i}}
            for i in range(args.models)
        ]
        ends: list[float] = []
        from lm_eval_adaptive.run.play import Play

        play = Play.play

        def timed(one: Play) -> None:
            play(one)
            ends.append(time.perf_counter())

        Play.play = timed  # type: ignore[method-assign]
        started = time.perf_counter()
        simple_evaluate(
            models,
            ["many_documents"],
            AdaptiveConfig(bank=bank, items_per_model=per_model, min_items=2, round_size=1),
            include_path=str(folder / "tasks"),
            output_path=str(folder / "out"),
        )
        first = clock["first"] - started
        rounds = (ends[0] - clock["first"] - clock["model"]) / per_model
    print(f"documents                           {args.documents}")
    print(f"before the first question           {first:.2f} s")
    print(f"the plain harness before it         {plain:.2f} s")
    print(f"one round of {args.models} models, without model   {1000 * rounds:.1f} ms")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
