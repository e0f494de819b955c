"""When a bank begins to pay: items until a pair is decided, with no bank and with small ones.

Four models of a real score matrix are asked the same number of items each, up to 200 or half of the
matrix, and every 10 items all their pairs are judged at the 95 % level. The table tells after how
many items of each model a pair is first decided::

    python scripts/bench_no_bank.py --partitions 4

Looking every 10 items is harmless without a bank, where the error is valid at any time; under a
bank a pair's level is that of one look, and the share of right decisions shows what looking costs.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from bench_pairs import PAIRS, ROOT, read_pair

from lm_eval_adaptive.core.build import calibrate
from lm_eval_adaptive.core.paired import spread_order
from lm_eval_adaptive.core.plan import Plan
from lm_eval_adaptive.core.procedure import Procedure
from lm_eval_adaptive.core.rules import ProcedureConfig
from lm_eval_adaptive.core.simulate import complete_part, split
from lm_eval_adaptive.core.state import Stop

if TYPE_CHECKING:
    from lm_eval_adaptive.core.matrix import ScoreMatrix

MODELS = (0, 4, 8, 17)
STEP, MOST = 10, 200


def first_decisions(matrix: ScoreMatrix, models: int, seed: int) -> list[tuple[float, bool | None]]:
    """For each pair: items of each model until it is decided (or infinity), and whether rightly.

    Args:
        matrix: Complete raw scores.
        models: Calibration models; 0 ranks without a bank.
        seed: Permutes the models as in ``simulate``, and the documents where there is no bank.
    """
    calibrating, ranked = split(matrix, Plan(calibration=models or 17), seed)
    # Without a bank, too, the range is that of the other models' scores.
    bank = calibrate(calibrating, task="bench", metric="score")
    scores = bank.info.scale.to_score(ranked.scores)
    m, n = scores.shape
    truth = scores.mean(axis=1)
    most = min(MOST, n // 2) // STEP * STEP
    config = ProcedureConfig(items_per_model=most, round_size=STEP)
    if models:
        procedure = Procedure.for_bank(bank, np.ones(m), config)
    else:
        order = spread_order(None, n, np.random.default_rng(seed))
        procedure = Procedure.for_order(order, np.ones(m), config)
    state = procedure.start()
    found: dict[tuple[int, int], tuple[float, bool | None]] = {
        (a, b): (np.inf, None) for a in range(m) for b in range(a + 1, m)
    }
    while not isinstance(step := procedure.next(state), Stop):
        for ask in step.asks:
            for item in ask.items:
                state.record(ask.model, item, float(scores[ask.model, item]))
        for pair in procedure.pairs(state):
            at = min(pair.a, pair.b), max(pair.a, pair.b)
            if pair.verdict in ("a", "b") and np.isinf(found[at][0]):
                better, other = (pair.a, pair.b) if pair.verdict == "a" else (pair.b, pair.a)
                asked = float(state.administered.min())
                found[at] = asked, bool(truth[better] > truth[other])
    return list(found.values())


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scores", type=Path, default=ROOT.parent / "shared" / "scores")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1000)
    options = parser.parse_args()
    found: dict[int, list[tuple[float, bool | None]]] = {models: [] for models in MODELS}
    for name, metric in PAIRS:
        matrix = complete_part(read_pair(options.scores, name, metric))
        for seed in range(options.seed, options.seed + options.partitions):
            for models in MODELS:
                found[models] += first_decisions(matrix, models, seed)
        print(f"{name} {metric} done", flush=True)
    print("| bank from | median items | decided by 20 / 50 / 100 / 200 | decided rightly |")
    print("|---|---|---|---|")
    for models, pairs in found.items():
        items = np.array([each[0] for each in pairs])
        right = [each[1] for each in pairs if each[1] is not None]
        shares = " / ".join(f"{(items <= length).mean():.2f}" for length in (20, 50, 100, 200))
        label = f"{models} models" if models else "no bank"
        print(f"| {label} | {np.median(items):.0f} | {shares} | {np.mean(right):.3f} |")


if __name__ == "__main__":
    main()
