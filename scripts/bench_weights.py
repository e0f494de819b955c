r"""Whether fewer documents would do without a bank, were the telling ones known: docs/banks.md.

::

    python scripts/bench_weights.py --partitions 12 --seed 12900

Bets on paired differences (``core/paired.py``) keep their promise where documents are drawn with
unequal probabilities that the past decides, if each difference is weighted by how much more often
than the average it was drawn. Here the probabilities are better than anything that could be
learned: half even and half in proportion to the true difference itself (*oracle*), or to how far
two further models lie apart on the document (*learned*). Documents until a pair is decided at 95 %.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from bench_pairs import PAIRS, ROOT, read_pair

from lm_eval_adaptive.core.paired import BETS, STAKES
from lm_eval_adaptive.core.simulate import complete_part

if TYPE_CHECKING:
    from numpy.typing import NDArray

DECIDED = float(np.log(40.0))
MOST = 800
RANKED = 4


def needed(values: NDArray[np.float64], low: float) -> float:
    """Documents until the wealth of bets refutes that the mean is 0 or less."""
    wealth = np.cumsum(np.log1p(BETS[:, None] * values / -low), axis=1)
    top = wealth.max(axis=0)
    found = np.flatnonzero(top + np.log(STAKES @ np.exp(wealth - top)) >= DECIDED)
    return float(found[0] + 1) if len(found) else float("inf")


def weighted(
    difference: NDArray[np.float64], telling: NDArray[np.float64], rng: np.random.Generator
) -> float:
    """The same with documents drawn half evenly, half in proportion to what they tell."""
    n = len(difference)
    chance = 0.5 / n + 0.5 * telling / telling.sum()
    weight = 1.0 / (n * chance)
    drawn = rng.choice(n, MOST, p=chance)
    return needed(weight[drawn] * difference[drawn], -float(weight.max()))


def main() -> int:
    """Draw, bet, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scores", type=Path, default=ROOT.parent / "shared" / "scores")
    parser.add_argument("--partitions", type=int, default=12)
    parser.add_argument("--seed", type=int, default=12900)
    args = parser.parse_args()
    found: dict[str, list[float]] = {"even": [], "learned": [], "oracle": []}
    for name, metric in PAIRS:
        raw: Any = complete_part(read_pair(args.scores, name, metric)).scores
        scores = (raw - raw.min()) / (raw.max() - raw.min())
        for partition in range(args.partitions):
            rng = np.random.default_rng([args.seed, partition])
            rows = rng.permutation(len(scores))[: RANKED + 2]
            apart = scores[rows[RANKED:]].std(axis=0) + 0.02
            for a, b in zip(*np.triu_indices(RANKED, 1), strict=True):
                difference = scores[rows[a]] - scores[rows[b]]
                difference = difference * np.sign(difference.mean())
                found["even"].append(needed(difference[rng.permutation(len(apart))[:MOST]], -1.0))
                found["learned"].append(weighted(difference, apart, rng))
                found["oracle"].append(weighted(difference, np.abs(difference) + 1e-9, rng))
    print("| documents are drawn | median to decide a pair | decided by 20 / 50 / 100 / 200 |")
    print("|---|---|---|")
    for how, counts in found.items():
        shares = " / ".join(
            f"{np.mean(np.array(counts) <= count):.2f}" for count in (20, 50, 100, 200)
        )
        print(f"| {how} | {np.median(counts):.0f} | {shares} |")
    print(f"{len(found['even'])} pairs")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
