"""What larger rounds cost in items and save in time.

Prints (1) items a model until the ranking is decided against the round size, on real
matrices where ``../shared/scores`` is there, and (2) wall-clock seconds of a run on the shipped
task, its models replayed with a fixed latency per call and per document, by round size, for
``auto`` and for asking everything::

    python scripts/bench_rounds.py [--partitions 8] [--latency 0.3:0.02]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import replace

from bench_pairs import PAIRS, ROOT, read_pair

from lm_eval_adaptive import AdaptiveConfig, simple_evaluate
from lm_eval_adaptive.core.plan import Plan
from lm_eval_adaptive.core.simulate import simulate
from lm_eval_adaptive.core.summary import summarise

SIZES = (1, 4, 8, 16, 32)
MATRICES = (("wmt24_en-es", "chrf"), ("alpaca_text", "rougeL"), ("eqbench_v2", "eqbench"))


def items_by_round_size(partitions: int, jobs: int | None) -> None:
    """Table 1."""
    folder = ROOT.parent / "shared" / "scores"
    if not folder.is_dir():
        print("no ../shared/scores: the simulated table is left out")
        return
    assert set(MATRICES) <= set(PAIRS)
    matrices = [(name, metric, read_pair(folder, name, metric)) for name, metric in MATRICES]
    plan = Plan(seed=1000, partitions=partitions, lengths=(), methods=("default",))
    print("round size   items a model   decided   accuracy")
    for size in (*SIZES, None):
        rows = simulate(matrices, replace(plan, round_size=size), jobs=jobs)
        mean = summarise(rows)[-1]
        print(
            f"{size or 'auto':>10}   {mean.items:6.1f} ± {mean.items_se:<4.1f}   "
            f"{mean.decided:7.3f}   {mean.accuracy:8.3f}"
        )


def seconds_by_round_size(latency: str) -> None:
    """Table 2."""
    runs = ROOT / "scripts" / "make" / "records_runs"
    names = json.loads((runs / "split.json").read_text(encoding="utf-8"))["rank"]
    models = [
        {
            "name": name,
            "model": "replay",
            "model_args": {"samples": str(runs / name), "latency": latency},
            "batch_size": 4,
        }
        for name in names
    ]
    per_call, _, per_document = latency.partition(":")
    print(f"\n{len(names)} models, {per_call} s per call, {per_document} s per document, batch 4")
    print("round size   seconds   items   decided")
    for size in (*SIZES, "auto", "everything"):
        options = (
            AdaptiveConfig(items_per_model=312, min_items=10, round_size=312)
            if size == "everything"
            else AdaptiveConfig(round_size=size)
        )
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            found = simple_evaluate(models, ["records_to_text"], options, output_path=folder)
            seconds = time.perf_counter() - started
        ranking = found["ranking"]["records_to_text"]
        decided = sum(pair["verdict"] != "undecided" for pair in ranking["pairs"])
        print(
            f"{size:>10}   {seconds:7.1f}   {ranking['items_total']:5d}   {decided:7d}", flush=True
        )


def main() -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--latency", default="0.3:0.02")
    parser.add_argument("--jobs", type=int, default=None)
    args = parser.parse_args()
    items_by_round_size(args.partitions, args.jobs)
    seconds_by_round_size(args.latency)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
