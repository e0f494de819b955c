"""``--grow``: after a run its models enter the store's bank of the task.

This module owns what may grow from a run and into which bank; it imports the store, the reading of
logs and, for how a bank grows, the core. It reads a run's folder, so that growing can be repeated.

A bank holds answers to one prompt. Runs of another prompt, and answers until there are models
enough to calibrate with, are kept as scores of their own in the store's ``waiting/``.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from lm_eval_adaptive.banks.find import load_bank
from lm_eval_adaptive.banks.log_scores import score_matrix
from lm_eval_adaptive.banks.options import CalibrateOptions
from lm_eval_adaptive.banks.prompts import shared_prompts
from lm_eval_adaptive.banks.shipped import shipped_banks
from lm_eval_adaptive.banks.sources import provenance_of
from lm_eval_adaptive.banks.store import Store
from lm_eval_adaptive.banks.update import new_runs
from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.core.bank_info import PromptFacts, Provenance, Update
from lm_eval_adaptive.core.build import calibrate
from lm_eval_adaptive.core.calibration import MIN_MODELS
from lm_eval_adaptive.core.growing import extend
from lm_eval_adaptive.core.matrix import ScoreMatrix
from lm_eval_adaptive.errors import AdaptiveError, DataError, UsageError
from lm_eval_adaptive.host.logs import exclude_runs, find_runs
from lm_eval_adaptive.host.scoring import document_score
from lm_eval_adaptive.records.files import file_part
from lm_eval_adaptive.records.ranking import RankingDocument, read_ranking

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from lm_eval_adaptive.host.logs import LoggedRun

ALARM = "alarm"


@dataclass(frozen=True)
class Prompt:
    """The prompt that answers belong to.

    Attributes:
        facts: What prompts have in common.
        num_fewshot: Examples in them.
    """

    facts: PromptFacts
    num_fewshot: int | None

    @classmethod
    def of_runs(cls, runs: Sequence[LoggedRun]) -> Prompt:
        """That of logged runs; models' own chat templates do not make prompts differ."""
        counts = {run.n_shot for run in runs}
        facts = replace(shared_prompts(runs), chat_template=None)
        return cls(facts, counts.pop() if len(counts) == 1 else None)

    def is_that_of(self, bank: ItemBank) -> bool:
        """Whether nothing is known in which the two differ."""
        then = bank.info.prompts
        known = [
            (self.facts.system_instruction, then.system_instruction),
            (self.facts.description, then.description),
            (self.facts.doc_to_text, then.doc_to_text),
            (self.num_fewshot, bank.info.num_fewshot),
        ]
        return all(None in pair or pair[0] == pair[1] for pair in known)

    @property
    def mark(self) -> str:
        """A short name of it."""
        data = msgspec.json.encode([self.facts, self.num_fewshot])
        return hashlib.sha256(data).hexdigest()[:8]


def grow_from(folder: Path, store: Store | None = None) -> list[str]:
    """Let the models of a run enter the store's banks.

    Args:
        folder: The run's folder.
        store: Where to; None takes the user's.

    Returns:
        A line for each task and metric: what grew, or why nothing did.

    Raises:
        UsageError: The folder holds no ranking.
    """
    store = store or Store()
    newest: dict[str, RankingDocument] = {}
    for path in sorted(folder.glob("ranking_*.json"), key=lambda each: each.stat().st_mtime_ns):
        found = read_ranking(path)
        newest[found.task] = found
    if not newest:
        raise UsageError(
            f"no ranking in {folder}; `bank grow` takes on, off, or the --output_path of a run"
        )
    told = []
    for document in newest.values():
        for ranking in (document, *document.further):
            try:
                told.append(_grow(folder, ranking, store))
            except (AdaptiveError, OSError) as error:
                told.append(
                    f"nothing grew from {ranking.task} by {ranking.metric}: {error}; repeat it "
                    f"with `lm-eval-adaptive bank grow {folder}`"
                )
    return told


def _grow(folder: Path, ranking: RankingDocument, store: Store) -> str:
    what = f"{ranking.task} by {ranking.metric}"
    if ALARM in ranking.doubts:
        return (
            f"nothing grew from {what}: its models do not bear the bank out (its alarm rang), so "
            "what their answers say of its items is in doubt"
        )
    failed = [each.model for each in ranking.set_aside]
    runs = find_runs([str(folder)], ranking.task)
    runs = exclude_runs(runs, [name for name in failed if any(r.model == name for r in runs)])
    if not runs:
        return f"nothing grew from {what}: no model answered"
    prompt = Prompt.of_runs(runs)
    options = CalibrateOptions(
        task=ranking.task,
        metric=f"{ranking.metric},{ranking.filter}",
        samples=(str(folder),),
        exclude_model=tuple({*failed} & {run.model for run in runs}),
    )
    with store.writing():
        name, bank = _bank_to_grow(store, ranking, prompt)
        if bank is not None:
            grown = _extended(bank, options)
            entry = store.put(grown, name)
            return (
                f"bank {name} of the store grew by {len(runs)} model(s) of {what}: "
                f"{entry.n_models} models, {entry.n_docs} items"
            )
        return _from_nothing(store, name, ranking, runs, prompt)


def _bank_to_grow(
    store: Store, ranking: RankingDocument, prompt: Prompt
) -> tuple[str, ItemBank | None]:
    """The store's bank of this task and prompt; else the run's own, where its prompt is the same.

    Returns:
        The name in the store, and what grows; None where it begins from nothing.
    """
    usual = file_part(f"{ranking.task}_{ranking.metric}").lstrip("._-") or "bank"
    if len({ranking.filter, "none"}) > 1:
        usual = f"{usual}_{file_part(ranking.filter)}"
    stored, _ = store.entries()
    key = (ranking.task, ranking.metric, ranking.filter)
    mine = [each for each in stored if (each.task, each.metric, each.filter) == key]
    # The one that the run was made with goes first.
    mine.sort(key=lambda each: each.sha256 != ranking.bank.sha256)
    for each in mine:
        bank = ItemBank.load(store.path(each))
        if prompt.is_that_of(bank):
            return each.name, bank
    taken = {each.name for each in stored}
    name = usual if usual not in taken else f"{usual}_{prompt.mark}"
    if ranking.bank.exists and not ranking.doubts:
        own = _bank_of(ranking, store)
        if own is not None and prompt.is_that_of(own):
            return name, own
    return name, None


def _bank_of(ranking: RankingDocument, store: Store) -> ItemBank | None:
    """The bank that a run was made with, where it answers to the task's own prompt."""
    for each in shipped_banks():
        if each.sha256 == ranking.bank.sha256:
            if each.prompt:
                return None
            bank = load_bank(each.path)
            return replace(bank, info=replace(bank.info, task=ranking.task, filter=ranking.filter))
    path = store.of_hash(ranking.bank.sha256)
    return None if path is None else ItemBank.load(path)


def _extended(bank: ItemBank, options: CalibrateOptions) -> ItemBank:
    matrix, sources, notices = new_runs(options, bank)
    now, before = provenance_of(sources), bank.info.provenance or Provenance()
    update = Update(bank.sha256, now.date, matrix.models)
    provenance = replace(
        now, sources=(*before.sources, *now.sources), updates=(*before.updates, update)
    )
    return extend(
        bank, matrix, clip=True, again=True, widen=True, notices=notices, provenance=provenance
    )


def _from_nothing(
    store: Store,
    name: str,
    ranking: RankingDocument,
    runs: Sequence[LoggedRun],
    prompt: Prompt,
) -> str:
    """A bank from this run's answers and those that wait; they wait on where models are few."""
    found = score_matrix(
        runs,
        ranking.metric,
        ranking.filter,
        to_number=document_score,
        allow=("partial", "prompts"),
    )
    waiting = store.folder / "waiting" / f"{name}_{prompt.mark}.parquet"
    matrix = joined(_read_waiting(waiting), found.matrix)
    what = f"{ranking.task} by {ranking.metric}"
    if len(matrix.models) < MIN_MODELS:
        _write_waiting(waiting, matrix)
        return (
            f"{len(found.matrix.models)} model(s) of {what} wait in the store for "
            f"{MIN_MODELS - len(matrix.models)} more: a bank takes {MIN_MODELS} at least"
        )
    try:
        bank = calibrate(
            matrix,
            task=ranking.task,
            metric=ranking.metric,
            filter=ranking.filter,
            score_range=ranking.bank.range,
            clip=True,
            higher_is_better=ranking.higher_is_better is not False,
            task_version=str(runs[0].task_version or ""),
            dataset_path=runs[0].facts.dataset_path,
            dataset_name=runs[0].facts.dataset_name,
            split=runs[0].facts.split,
            num_fewshot=prompt.num_fewshot,
            prompts=prompt.facts,
            notices=[f"grown from runs, beginning with {', '.join(matrix.models)}"],
            provenance=provenance_of([(run.path.name, run.sha256) for run in runs]),
        )
    except DataError as error:
        _write_waiting(waiting, matrix)
        return f"{len(matrix.models)} models of {what} wait in the store: {error}"
    entry = store.put(bank, name)
    waiting.unlink(missing_ok=True)
    return (
        f"bank {name} of the store was made of {entry.n_models} models' answers to {what}: "
        f"{entry.n_docs} items"
    )


def joined(old: ScoreMatrix | None, new: ScoreMatrix) -> ScoreMatrix:
    """Two matrices as one, a model that is in both as the new one has it."""
    if old is None:
        return new
    old = old.select_models([name for name in old.models if name not in new.models])
    place = {item: column for column, item in enumerate(new.items)}
    more = [column for column, item in enumerate(old.items) if item not in place]
    items = (*new.items, *(old.items[column] for column in more))
    scores = np.full((len(old.models) + len(new.models), len(items)), np.nan)
    column_of = {item: column for column, item in enumerate(items)}
    scores[: len(old.models), [column_of[item] for item in old.items]] = old.scores
    scores[len(old.models) :, : len(new.items)] = new.scores
    then, now = old.item_attributes or {}, new.item_attributes or {}
    attributes = {
        key: np.concatenate([now[key], then[key][more]]) for key in now.keys() & then.keys()
    }
    return ScoreMatrix((*old.models, *new.models), items, scores, attributes)


def _read_waiting(path: Path) -> ScoreMatrix | None:
    """What waits, None where nothing does.

    Raises:
        DataError: The file is damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        return None
    try:
        table = pq.read_table(path)
        models = table.schema.metadata[b"models"]
    except (pa.ArrowException, OSError, KeyError, TypeError) as error:
        raise DataError(
            f"the scores that wait in {path} cannot be read ({error}); move that file away"
        ) from error
    names: list[str] = msgspec.json.decode(models)
    scores = np.array([table[f"score {row}"].to_numpy() for row in range(len(names))])
    attributes = {
        name: table[name].to_numpy(zero_copy_only=False)
        for name in table.column_names
        if name != "item" and not name.startswith("score ")
    }
    return ScoreMatrix(tuple(names), tuple(table["item"].to_pylist()), scores, attributes)


def _write_waiting(path: Path, matrix: ScoreMatrix) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, Iterable[Any]] = {"item": matrix.items, **(matrix.item_attributes or {})}
    columns |= {f"score {row}": each for row, each in enumerate(matrix.scores)}
    table = pa.table({name: pa.array(list(values)) for name, values in columns.items()})
    table = table.replace_schema_metadata({"models": msgspec.json.encode(list(matrix.models))})
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.part")
    pq.write_table(table, aside)
    aside.replace(path)
