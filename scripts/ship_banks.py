"""Makes the banks that ship with the package, and their index, from public results.

    python scripts/ship_banks.py                    # what is missing or made from other sources
    python scripts/ship_banks.py --only gsm8k       # some of them
    python scripts/ship_banks.py --anew             # all, made again

Scores come from ``../shared/bank_sources`` and ``../shared/lm_eval_logs`` (others by ``--sources``
and ``--logs``), documents from ``../shared/datasets`` (``--documents``), read through the harness's
own tasks; of these only hashes enter a bank. Interrupted, it goes on: a bank whose sources have the
hashes that it names is not made again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lm_eval_adaptive.banks.calibrate import calibrate_from
from lm_eval_adaptive.banks.options import CalibrateOptions
from lm_eval_adaptive.banks.shipped import (
    INDEX,
    ShippedBank,
    read_index,
    shipped_folder,
    write_index,
)
from lm_eval_adaptive.banks.sources import provenance_of
from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.core.build import calibrate
from lm_eval_adaptive.core.matrix import ScoreMatrix, read_scores

if TYPE_CHECKING:
    from lm_eval_adaptive.host.task import TaskDocs

ROOT = Path(__file__).resolve().parents[1]
SUBJECTS = (
    "biology",
    "business",
    "chemistry",
    "computer_science",
    "economics",
    "engineering",
    "health",
    "history",
    "law",
    "math",
    "other",
    "philosophy",
    "physics",
    "psychology",
)


@dataclass(frozen=True)
class Recipe:
    """How a bank is made.

    Attributes:
        name: Its name, and its file's.
        tasks: Tasks that have its documents, the first being the one they are read through.
        metric: Metric.
        filters: See :class:`~lm_eval_adaptive.banks.shipped.ShippedBank`.
        scores: File of scores among the sources; "" where they come from the harness's logs.
        documents: File of documents; "" with logs, which carry them.
        source: Where the scores are from.
        licence: Their licence.
        mapping: How they were brought together with documents, how sure.
        prompt: What to say where prompts were others than the task's.
        score_range: Raw values that map to 0 and 1.
        clip: Whether values outside are clipped.
        num_fewshot: Examples in the prompts, None where not known.
        by_prompt: Whether documents may be told by their prompts alone, since how the hub's copy
            writes their references is not known.
    """

    name: str
    tasks: tuple[str, ...]
    metric: str
    filters: tuple[str, ...]
    scores: str
    documents: str
    source: str
    licence: str
    mapping: str
    prompt: str = ""
    score_range: tuple[float, float] = (0.0, 1.0)
    clip: bool = False
    num_fewshot: int | None = None
    by_prompt: bool = False


RECIPES = (
    Recipe(
        "ifeval",
        ("ifeval", "leaderboard_ifeval"),
        "prompt_level_strict_acc",
        ("none",),
        "ifeval_oll",
        "ifeval",
        "socialfoundations/benchmark-prediction @ 2e98c82 (Open LLM Leaderboard v2)",
        "MIT",
        "by the order of columns, inferred: an 8-rank interleave whose item means correlate .80 "
        "with another source's, any other interleave at most .09; hashes equal those of a real "
        "harness log in 5 of 5 documents",
        num_fewshot=0,
    ),
    Recipe(
        "gsm8k",
        ("gsm8k", "gsm8k_cot", "gsm8k_cot_llama", "gsm8k_cot_zeroshot"),
        "exact_match",
        (),
        "gsm8k_zeroeval",
        "gsm8k",
        "WildEval/ZeroEval @ 8c1485e",
        "Apache-2.0",
        "by index; 18 of 18 hashes equal a real harness log's",
        "its models answered without examples and as JSON, not this task's prompt",
    ),
    *(
        Recipe(
            f"mmlu_pro_{subject}",
            (f"mmlu_pro_{subject}",),
            "exact_match",
            ("custom-extract",),
            "mmlu_pro",
            "mmlu_pro",
            "TIGER-AI-Lab/MMLU-Pro @ f418b11",
            "Apache-2.0",
            "by question id; 48 of the 12,032 documents have variants; not compared with the hub's "
            "copy",
            "its models answered the benchmark's own prompt of five examples",
        )
        for subject in SUBJECTS
    ),
    Recipe(
        "eq_bench",
        ("eq_bench",),
        "eqbench",
        ("none",),
        "eq_bench",
        "eq_bench",
        "EQ-bench/EQ-Bench @ d28c60c",
        "MIT",
        "by order; mean, shortest and longest length of the prompts equal those published for the "
        "hub's copy, white space at both ends apart; how that writes references was not seen",
        "its answers were made and read by the benchmark's own script, first pass",
        score_range=(0.0, 100.0),
        clip=True,
        by_prompt=True,
    ),
    *(
        Recipe(
            f"truthfulqa-multi_gen_{language}_{metric}",
            (f"truthfulqa-multi_gen_{language}",),
            metric,
            ("none",),
            "",
            "",
            "hitz-zentroa/truthfulqa-multi, harness logs",
            "Apache-2.0",
            "harness logs that carry their documents",
            score_range=(0.0, 100.0) if metric == "bleu_max" else (-100.0, 100.0),
            num_fewshot=6,
        )
        for language in ("en", "es")
        for metric in ("bleu_max", "bleu_diff")
    ),
)


def local_task(recipe: Recipe, documents: Path, folder: Path) -> TaskDocs:
    """The harness's own task over local documents."""
    import lm_eval

    from lm_eval_adaptive.host.find_tasks import make_task_manager, resolve_tasks
    from lm_eval_adaptive.host.settings import HarnessSettings
    from lm_eval_adaptive.host.task import TaskDocs, load_task

    name = recipe.tasks[0]
    (own,) = (
        path
        for path in sorted((Path(lm_eval.__file__).parent / "tasks").rglob("*.yaml"))
        if f"\ntask: {name}\n" in f"\n{path.read_text(encoding='utf-8')}\n"
        or f'\ntask: "{name}"\n' in f"\n{path.read_text(encoding='utf-8')}\n"
    )
    file = str((documents / "harness_docs" / f"{recipe.documents}.jsonl.gz").resolve())
    splits = dict.fromkeys(("train", "test", "validation"), file)
    plain = {
        "include": str(own),
        "task": name,
        "dataset_path": "json",
        "dataset_name": None,
        "dataset_kwargs": {"data_files": splits},
        "num_fewshot": 0,
    }
    (folder / f"{name}.yaml").write_text(json.dumps(plain), encoding="utf-8")
    settings = HarnessSettings(tasks=(name,), include_path=str(folder))
    manager = make_task_manager(settings)
    (found,) = resolve_tasks(manager, settings.tasks)
    return TaskDocs(load_task(manager, found))


def from_scores(recipe: Recipe, args: argparse.Namespace) -> ItemBank:
    """A bank of a table of scores by content hash."""
    path = args.sources / f"{recipe.scores}.parquet"
    matrix = read_scores(path, recipe.metric)
    with tempfile.TemporaryDirectory() as folder:
        docs = local_task(recipe, args.documents, Path(folder))
        sights = docs.prompts_alone() if recipe.by_prompt else docs.sights()
    place = {key: doc_id for doc_id, key in enumerate(docs.keys)}
    columns = {name: column for column, name in enumerate(matrix.items)}
    kept = [key for key in docs.keys if key in columns]
    if len(kept) < len(docs.keys):
        raise SystemExit(f"{recipe.name}: {len(docs.keys) - len(kept)} documents have no scores")
    part = matrix.select_items([columns[key] for key in kept])
    rows = np.array([place[key] for key in kept])
    matrix = ScoreMatrix(
        part.models,
        part.items,
        part.scores,
        {"doc_id": rows, "sight_hash": np.array([sights[row] for row in rows])},
    )
    return calibrate(
        matrix,
        task=recipe.tasks[0],
        metric=recipe.metric,
        filter=recipe.filters[0] if recipe.filters else "none",
        score_range=recipe.score_range,
        clip=recipe.clip,
        # Only this model's runs test whether a bank of another prompt holds.
        response_model="robust-2pl" if recipe.prompt else "auto",
        num_fewshot=recipe.num_fewshot,
        notices=[recipe.prompt] if recipe.prompt else [],
        licence=f"{recipe.source}: {recipe.licence}",
        provenance=provenance_of([(path.name, hash_of(path))]),
    )


def from_logs(recipe: Recipe, args: argparse.Namespace) -> ItemBank:
    """A bank of the harness's logs."""
    return calibrate_from(
        CalibrateOptions(
            task=recipe.tasks[0],
            metric=recipe.metric,
            samples=(str(args.logs / recipe.tasks[0]),),
            score_range=recipe.score_range,
            clip=recipe.clip,
            allow=("prompts", "few_shot"),
            licence=f"{recipe.source}: {recipe.licence}",
        )
    )


def hash_of(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def is_current(bank: ShippedBank | None, recipe: Recipe, args: argparse.Namespace) -> bool:
    """Whether a bank is there, of the recipe's words and of sources of the same hashes."""
    if bank is None or not bank.path.is_file() or hash_of(bank.path) != bank.sha256:
        return False
    if entry(recipe, bank) != bank:
        return False
    if not recipe.scores:
        return True
    provenance = ItemBank.load(bank.path).info.provenance
    now = hash_of(args.sources / f"{recipe.scores}.parquet")
    return provenance is not None and [each.sha256 for each in provenance.sources] == [now]


def entry(recipe: Recipe, bank: ShippedBank) -> ShippedBank:
    """What the index says of a bank, its words being the recipe's."""
    return replace(
        bank,
        tasks=recipe.tasks,
        metric=recipe.metric,
        filters=recipe.filters,
        source=recipe.source,
        licence=recipe.licence,
        mapping=recipe.mapping,
        prompt=recipe.prompt,
    )


def make(recipe: Recipe, args: argparse.Namespace) -> ShippedBank:
    """Make a bank, save it, and say what the index says of it."""
    bank = from_scores(recipe, args) if recipe.scores else from_logs(recipe, args)
    file = f"{recipe.name}.bank.parquet"
    path = bank.save(shipped_folder() / file)
    provenance: Any = bank.info.provenance
    found = ShippedBank(
        name=recipe.name,
        tasks=(),
        metric="",
        filters=(),
        file=file,
        sha256=hash_of(path),
        n_models=len(bank.info.models),
        n_docs=len(bank),
        source="",
        licence="",
        mapping="",
        date=provenance.date,
        prompt="",
    )
    size = path.stat().st_size / 1000
    print(f"{recipe.name}: {len(bank.info.models)} models × {len(bank)} documents, {size:.0f} kB")
    for notice in bank.info.notices:
        print(f"  {notice}")
    return entry(recipe, found)


def main() -> int:
    """Make what is missing."""
    shared = ROOT.parent / "shared"
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sources", type=Path, default=shared / "bank_sources")
    parser.add_argument("--logs", type=Path, default=shared / "lm_eval_logs")
    parser.add_argument("--documents", type=Path, default=shared / "datasets")
    parser.add_argument("--only", nargs="+", default=[], help="Names of banks")
    parser.add_argument("--anew", action="store_true", help="Make all again")
    args = parser.parse_args()
    index = shipped_folder() / INDEX
    there = {each.name: each for each in read_index(index)} if index.is_file() else {}
    for recipe in RECIPES:
        if args.only and recipe.name not in args.only:
            continue
        if not args.anew and is_current(there.get(recipe.name), recipe, args):
            continue
        there[recipe.name] = make(recipe, args)
        order = [each.name for each in RECIPES]
        write_index([there[name] for name in order if name in there], index)
    total = sum(each.path.stat().st_size for each in there.values())
    print(f"{len(there)} banks, {total / 1e6:.2f} MB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
