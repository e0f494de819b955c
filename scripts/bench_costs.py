"""What it saves to know what items and models cost.

Outputs differ in length from item to item and models in price. On matrices with output lengths the
same tests are run twice, once with the expected cost of every item (its mean output length over the
calibration models, times the model's price) and once blind to it, and the ranking and the true cost
(each model's own lengths) are printed::

    python scripts/bench_costs.py [--partitions 10] [--seed 1000]
"""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd
from bench_pairs import ROOT, read_pair
from scipy.stats import kendalltau

from lm_eval_adaptive.core.build import calibrate
from lm_eval_adaptive.core.plan import Plan
from lm_eval_adaptive.core.procedure import Procedure
from lm_eval_adaptive.core.ranker import DecisionRule
from lm_eval_adaptive.core.rules import ProcedureConfig
from lm_eval_adaptive.core.simulate import complete_part, split

MATRICES = (("wmt24_en-cs", "bleu"), ("wmt24_en-es", "chrf"), ("wmt24_ja-zh", "chrf"))


def lengths(name: str, models: list[str], items: list[str]) -> np.ndarray:
    """Output characters, shape (models, items); a model's mean where one is missing."""
    table = pd.read_parquet(ROOT.parent / "shared" / "scores" / f"{name}.outchars.parquet")
    column = next(each for each in table.columns if each not in ("model", "item", "metric"))
    table["item"] = table["item"].astype(str)
    wide = table.pivot_table(index="model", columns="item", values=column)
    found = wide.reindex(index=models, columns=items).to_numpy(dtype=float)
    fill = np.nanmean(found, axis=1, keepdims=True)
    return np.maximum(np.where(np.isfinite(found), found, fill), 1.0)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--partitions", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1000)
    args = parser.parse_args()
    print("matrix        metric  test            tau blind  tau knowing  cost saved")
    for name, metric in MATRICES:
        matrix = complete_part(read_pair(ROOT.parent / "shared" / "scores", name, metric))
        found: dict[str, list[tuple[float, float, float, float]]] = {}
        for partition in range(args.partitions):
            plan = Plan(seed=args.seed, partitions=args.partitions)
            calibrating, ranked = split(matrix, plan, partition)
            ranked = ranked.select_models(sorted(ranked.models))
            bank = calibrate(calibrating, task=name, metric=metric)
            items = [str(item) for item in matrix.items]
            expected = lengths(name, list(calibrating.models), items).mean(axis=0)
            rng = np.random.default_rng(args.seed + partition)
            price = np.exp(rng.uniform(np.log(0.1), np.log(10.0), len(ranked.models)))
            true_cost = lengths(name, list(ranked.models), items) * price[:, None]
            scores = bank.info.scale.to_score(ranked.scores)
            truth = ranked.scores.mean(axis=1)
            twenty = ProcedureConfig(items_per_model=20)
            # All that 20 blind items cost, spent with the costs known.
            spend = ProcedureConfig(
                rule=DecisionRule(confidence=1.0 - 1e-12),
                budget=float(20 * (expected.mean() * price).sum()),
                max_items=len(items),
                futility=0.0,
            )
            natural = ProcedureConfig(max_items=100)
            knowing_costs = expected[None, :] * price[:, None]
            for test, blind_config, knowing_config in (
                ("20 items", twenty, twenty),
                ("same cost", twenty, spend),
                ("stops itself", natural, natural),
            ):
                row = []
                for costs, config in (
                    (np.ones(len(truth)), blind_config),
                    (knowing_costs, knowing_config),
                ):
                    procedure = Procedure.for_bank(bank, costs, config)
                    state, _ = procedure.run(
                        lambda model, asked, scores=scores: [
                            float(each) for each in scores[model, list(asked)]
                        ]
                    )
                    tau = kendalltau(procedure.estimate(state).level, truth).statistic
                    row += [float(tau), float(true_cost[np.isfinite(state.responses)].sum())]
                found.setdefault(test, []).append(tuple(row))
        for test, rows in found.items():
            blind, paid, knowing, paid_knowing = np.array(rows).T
            saved = 1.0 - paid_knowing.sum() / paid.sum()
            print(
                f"{name:13s} {metric:7s} {test:14s} {blind.mean():9.3f} {knowing.mean():12.3f}"
                f" {100 * saved:10.0f} %",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
