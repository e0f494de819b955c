r"""How a bank does on models of another source: the table of docs/banks.md.

::

    python scripts/bench_banks.py --bank ifeval \
        --scores ../shared/bank_sources/ifeval_other_models.parquet --seed 12100 --draws 100
    python scripts/bench_banks.py --bank ifeval --scores … --seed 12100 --draws 100 --control

The bank is used as it is (a name of `bank list`, or a file). In each draw ``--models`` models of
the scores are ranked, at 10, 20 and 40 items and where the test stops by itself, beside the plain
means of random items that all models share. The control calibrates a bank on the same scores with
the items' names shuffled, which knows nothing of any item: it should gain nothing.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lm_eval_adaptive.banks.find import load_bank
from lm_eval_adaptive.cli.simulate_tables import show
from lm_eval_adaptive.core.build import calibrate
from lm_eval_adaptive.core.exam import Exam
from lm_eval_adaptive.core.matrix import ScoreMatrix, read_scores
from lm_eval_adaptive.core.plan import Plan
from lm_eval_adaptive.core.simulate import complete_part
from lm_eval_adaptive.core.summary import summarise

if TYPE_CHECKING:
    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.core.exam import Row


def shuffled(bank: ItemBank, seed: int) -> ItemBank:
    """A bank of the same scores whose items were mixed up."""
    order = np.random.default_rng(seed).permutation(len(bank))
    names = tuple(model.name for model in bank.info.models)
    scores = bank.info.scale.to_raw(bank.scores[:, order])
    info = bank.info
    made = calibrate(
        ScoreMatrix(names, bank.content_hash, scores),
        task=info.task,
        metric=info.metric,
        score_range=(info.scale.lo, info.scale.hi),
        higher_is_better=info.scale.higher_is_better,
        response_model=info.response_model,
        clip=True,
    )
    return replace(made, doc_id=bank.doc_id)


def rows_of(bank: ItemBank, matrix: ScoreMatrix, plan: Plan, name: str) -> list[Row]:
    """All draws of models."""
    place = {item: column for column, item in enumerate(matrix.items)}
    missing = [item for item in bank.content_hash if item not in place]
    if missing:
        raise SystemExit(f"{len(missing)} of the bank's {len(bank)} items have no complete scores")
    matrix = matrix.select_items([place[item] for item in bank.content_hash])
    raw, found = matrix.scores, []
    if not bank.info.scale.higher_is_better:
        raise SystemExit("metrics of which less is better are not drawn here")
    for draw in range(plan.partitions):
        rng = np.random.default_rng(plan.seed + draw)
        ranked = np.sort(rng.permutation(len(matrix.models))[: plan.holdout])
        scores = bank.info.scale.to_score(raw[ranked])
        exam = Exam(bank, scores, raw[ranked].mean(axis=1), np.ones(plan.holdout), plan, draw)
        for method, called in (
            ("default", exam.adaptive(plan.lengths)),
            ("random-shared", exam.baseline("random-shared", plan.lengths)),
        ):
            for length, each in called:
                row = exam.row(name, bank.info.metric, method, length, each)
                found.append(replace(row, regime="source"))
    return found


def main() -> int:
    """Draw, rank, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bank", required=True)
    parser.add_argument("--scores", type=Path, required=True)
    parser.add_argument("--metric", default=None, help="Default: the bank's")
    parser.add_argument("--models", type=int, default=4)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--seed", type=int, default=12100)
    parser.add_argument("--control", action="store_true")
    parser.add_argument("--json", type=Path, default=None)
    args = parser.parse_args()
    bank = load_bank(args.bank)
    if args.control:
        bank = shuffled(bank, args.seed)
    matrix = complete_part(read_scores(args.scores, args.metric or bank.info.metric))
    plan = Plan(
        seed=args.seed,
        partitions=args.draws,
        holdout=args.models,
        methods=("default", "random-shared"),
    )
    rows = rows_of(bank, matrix, plan, args.bank)
    means = summarise(rows)
    show(means, plan)
    if args.json is not None:
        document = {"rows": [asdict(row) for row in rows], "means": [asdict(row) for row in means]}
        args.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
