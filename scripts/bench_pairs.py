r"""The method's figures on real score matrices: the table in the README.

Runs ``simulate`` over (matrix, metric) pairs in ``../shared/scores`` (or ``--scores DIR``), prints
a table per pair and the means::

    python scripts/bench_pairs.py --seed 5000                 # the 13 pairs, all methods
    python scripts/bench_pairs.py --others --partitions 20    # all other pairs of 15 models or more
    python scripts/bench_pairs.py --few                       # tau against calibration models
    python scripts/bench_pairs.py --only wmt24_en-cs:esa alpaca_text:fkgl --seed 2000
    python scripts/bench_pairs.py --regime stronger --partitions 20 --seed 12000 \
        --methods default random-shared paper-1pl --json stronger.json      # docs/regimes.md

``--regime source`` (part of ``all``) calibrates on ``ifeval_oll`` and ranks ``ifeval_other_models``
of ``../shared/bank_sources`` (or ``--sources DIR``), ``--source_partitions`` times; families are
prefixes of the names, for shaberi_judge the ablations of one group. The last lines list the
(matrix, regime) cells in which fewer than 93 % of over 100 called pairs are right.

Seeds 12000 to 12019 (source: to 12049) made the tables of docs/regimes.md and the README and tuned
nothing, nor did 11200 to 11209, which made those before; 10000 to 10012 tuned the errors and the
stop, 11000 to 11004 were looked at, 9000 to 9005 before.
Seeds 7000 to 7509 tuned the drawing of items, the estimate and its errors, or were looked at
meanwhile; so were 100 to 149, 0 to 19, 1000 to 1019, 2000 to 2029, 3000 to 3019, 4000 to 4019 and,
in all regimes, 8000 to 8049. Seeds 5000 to 5059 tuned nothing.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq

from lm_eval_adaptive.cli.simulate import report_skipped
from lm_eval_adaptive.cli.simulate_tables import show
from lm_eval_adaptive.core.families import PREFIX, read_families
from lm_eval_adaptive.core.matrix import ScoreMatrix, read_scores
from lm_eval_adaptive.core.plan import METHODS, Plan
from lm_eval_adaptive.core.regimes import Pool, chosen_regimes, plan_draws
from lm_eval_adaptive.core.simulate import complete_part, run_draws, simulate
from lm_eval_adaptive.core.summary import summarise

if TYPE_CHECKING:
    from lm_eval_adaptive.core.exam import Row
    from lm_eval_adaptive.core.summary import Summary

ROOT = Path(__file__).resolve().parents[1]
PAIRS = (
    ("wmt24_en-cs", "bleu"),
    ("wmt24_en-es", "chrf"),
    ("wmt24_cs-uk", "chrf"),
    ("wmt24_ja-zh", "chrf"),
    ("wmt25_cs-de_DE", "xcomet_xl"),
    ("wmt25_en-ja_JP", "gemba_esa_gpt41"),
    ("wmt25_en-tr_TR", "cometkiwi_xl"),
    ("wmt25_en-tr_TR", "metricx24_hybrid_xl"),
    ("alpaca_text", "rougeL"),
    ("alpaca_judge", "judge_pref"),
    ("eqbench_v2", "eqbench"),
    ("shaberi_judge", "judge_gpt41"),
    ("zeroeval_gsm", "acc"),
)
# Made to please a judge, or the reference that others are held against.
ADVERSARIAL = ("NullModel", "gpt4_gamed", "gpt4_1106_preview")
CLIPPED = {"eqbench": (0.0, 100.0)}
LOWER_IS_BETTER = ("fkgl",)
NO_METRIC = ("out_chars",)
# A column of the table of models beside the scores; elsewhere the names' prefixes.
FAMILIES = {"shaberi_judge": "ablation"}
SOURCES = (("ifeval_oll", "ifeval_other_models", "prompt_level_strict_acc"),)
# A cell is listed where it has called more pairs than these and fewer of them right.
CALLED, RIGHT = 100, 0.93
METHODS_SHOWN = tuple(name for name in METHODS if name not in ("robust-2pl", "bernoulli-2pl"))


def read_pair(folder: Path, name: str, metric: str) -> ScoreMatrix:
    """One pair as the protocol takes it."""
    matrix = read_scores(folder / f"{name}.parquet", metric)
    kept = [model for model in matrix.models if model not in ADVERSARIAL]
    matrix = matrix.select_models(kept)
    if metric in CLIPPED:
        scores = np.clip(matrix.scores, *CLIPPED[metric])
        matrix = ScoreMatrix(matrix.models, matrix.items, scores)
    if metric in LOWER_IS_BETTER:  # so that one plan serves all pairs
        matrix = ScoreMatrix(matrix.models, matrix.items, -matrix.scores)
    return matrix


def other_pairs(folder: Path) -> list[tuple[str, str]]:
    """All other pairs with 15 complete models and 100 complete items, scores that vary."""
    found = []
    for file in sorted(folder.glob("*.parquet")):
        if file.stem.endswith((".items", ".outchars")):
            continue
        metrics = sorted(set(pq.read_table(file, columns=["metric"])["metric"].to_pylist()))
        for metric in metrics:
            if metric in NO_METRIC or (file.stem, metric) in PAIRS:
                continue
            part = complete_part(read_pair(folder, file.stem, metric))
            varied = part.scores.size and np.ptp(part.scores.mean(axis=1)) > 0
            if len(part.models) >= 15 and len(part.items) >= 100 and varied:
                found.append((file.stem, metric))
    return found


def print_worse(rows: list[Row]) -> None:
    """Where the default orders models worse than random shared items by over a standard error.

    Differences of tau are paired over partitions: at each length, then with the lengths together.
    Of equal methods about 16 % would be named.
    """
    by_length: dict[tuple[str, str, int], list[float]] = {}
    by_pair: dict[tuple[str, str], dict[int, list[float]]] = {}
    for row in sorted(rows, key=lambda row: row.partition):
        if row.method != "default" or row.items_per_model is None:  # no length both were given
            continue
        assert row.shared is not None
        difference = row.tau - row.shared.tau
        by_length.setdefault((row.matrix, row.metric, row.items_per_model), []).append(difference)
        pair = by_pair.setdefault((row.matrix, row.metric), {})
        pair.setdefault(row.partition, []).append(difference)
    over_lengths = {
        (*pair, "all lengths"): [float(np.mean(each)) for each in found.values()]
        for pair, found in by_pair.items()
    }
    for cells in (by_length, over_lengths):
        worse = 0
        for (matrix, metric, items), differences in sorted(cells.items()):
            if len(differences) < 2:  # of one partition nothing is known
                continue
            mean = float(np.mean(differences))
            error = float(np.std(differences, ddof=1)) / np.sqrt(len(differences))
            if mean < -error - 1e-9:  # not where both are equal but for rounding
                worse += 1
                print(f"worse: {matrix} {metric} at {items}: {mean:.3f} ± {error:.3f}")
        print(f"default worse than random-shared by over a standard error: {worse} of {len(cells)}")


def print_low(means: list[Summary]) -> None:
    """Cells of a matrix and a regime whose called pairs are too often wrong."""
    cells = [row for row in means if row.matrix != "mean" and row.decided_pairs > CALLED]
    low = [row for row in cells if row.accuracy < RIGHT]
    for row in sorted(low, key=lambda row: row.accuracy):
        items = row.items_per_model or f"{row.items:.0f} *"
        print(
            f"low: {row.regime} {row.matrix} {row.metric}, {row.method} at {items}: "
            f"{row.correct}/{row.decided_pairs} = {row.accuracy:.3f} "
            f"({row.accuracy_low:.3f}–{row.accuracy_high:.3f})"
        )
    print(f"cells of over {CALLED} called pairs under {RIGHT}: {len(low)} of {len(cells)}")


def pools_of(matrices: list[tuple[str, str, ScoreMatrix]], folder: Path) -> list[Pool]:
    """Matrices with the families of their models."""
    return [
        Pool(
            name,
            metric,
            matrix,
            read_families(FAMILIES.get(name, PREFIX), matrix.models, folder / f"{name}.parquet"),
        )
        for name, metric, matrix in matrices
    ]


def sources_of(folder: Path) -> list[Pool]:
    """Models of one source to rank, with those of another to calibrate."""
    return [
        Pool(
            f"{bank} → {ranked}",
            metric,
            read_scores(folder / f"{ranked}.parquet", metric),
            source=read_scores(folder / f"{bank}.parquet", metric),
        )
        for bank, ranked, metric in SOURCES
    ]


def main() -> int:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scores", type=Path, default=ROOT.parent / "shared" / "scores")
    parser.add_argument("--seed", type=int, default=5000)
    parser.add_argument("--partitions", type=int, default=20)
    parser.add_argument("--calibration", type=int, default=17, help="Most calibration models")
    parser.add_argument("--methods", nargs="+", default=list(METHODS_SHOWN), choices=METHODS)
    parser.add_argument("--regime", nargs="+", default=["random"], metavar="REGIME")
    parser.add_argument("--sources", type=Path, default=ROOT.parent / "shared" / "bank_sources")
    parser.add_argument("--source_partitions", type=int, default=50)
    parser.add_argument("--others", action="store_true", help="The pairs that are not the 13")
    parser.add_argument("--only", nargs="+", metavar="MATRIX:METRIC", help="These pairs alone")
    parser.add_argument(
        "--few", action="store_true", help="4, 8, 12, 17 and all calibration models"
    )
    parser.add_argument("--jobs", type=int, default=None)
    parser.add_argument("--json", type=Path, default=None)
    args = parser.parse_args()
    pairs = other_pairs(args.scores) if args.others else list(PAIRS)
    if args.only:
        named = (pair.partition(":") for pair in args.only)
        pairs = [(name, metric) for name, _, metric in named]
    matrices = [(name, metric, read_pair(args.scores, name, metric)) for name, metric in pairs]
    plan = Plan(
        seed=args.seed,
        partitions=args.partitions,
        methods=tuple(args.methods),
        calibration=args.calibration,
    )
    if args.few:
        plan = replace(plan, methods=("default", "random-shared"), lengths=(20,), natural=False)
        for count in (4, 8, 12, 17, 10_000):
            print(f"calibration models: {count if count < 10_000 else 'all'}")
            means = summarise(simulate(matrices, replace(plan, calibration=count), jobs=args.jobs))
            show([row for row in means if row.matrix == "mean"], plan)
        return 0
    regimes = chosen_regimes(args.regime, source="source" in args.regime or "all" in args.regime)
    drawn = [regime for regime in regimes if regime != "source"]
    draws, skipped = plan_draws(pools_of(matrices, args.scores), plan, drawn) if drawn else ([], [])
    if "source" in regimes:
        more, left_out = plan_draws(
            sources_of(args.sources), replace(plan, partitions=args.source_partitions), ["source"]
        )
        draws, skipped = draws + more, skipped + left_out
    rows = run_draws(draws, plan, jobs=args.jobs)
    means = summarise(rows)
    show(means, plan)
    report_skipped(skipped, len(matrices) * len(drawn) + ("source" in regimes) * len(SOURCES))
    if "default" in args.methods:
        for regime in regimes:
            print(f"regime {regime}:")
            print_worse([row for row in rows if row.regime == regime])
    print_low(means)
    if args.json is not None:
        document = {
            "rows": [asdict(row) for row in rows],
            "means": [asdict(each) for each in means],
            "skipped": [asdict(each) for each in skipped],
        }
        args.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
