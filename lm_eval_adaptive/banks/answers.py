"""The answers that a bank is made of which runs make from nothing, and their file in the store.

A bank needs three models, and a run may have two; a later run may ask documents that no earlier one
did. So what such a bank is made of is kept beside it: raw scores by document, and for models whose
documents were chosen for them the level that the run's bank gave them. This module owns that
record, with one writer and one reader, how answers join it, and the bank that it makes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from lm_eval_adaptive.core.bank_info import PromptFacts, Provenance
from lm_eval_adaptive.core.build import calibrate
from lm_eval_adaptive.core.matrix import ScoreMatrix
from lm_eval_adaptive.core.scale import ScoreScale
from lm_eval_adaptive.errors import BankError, DataError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from lm_eval_adaptive.core.bank import ItemBank

SCHEMA = 1
_TEXTS = ("doc_hash", "prompt_hash", "part_hash", "sight_hash")
_NUMBERS = ("input_tokens", "output_tokens")


@dataclass(frozen=True)
class Measured:
    """What some answers are of, and by what they were scored.

    Attributes:
        task: The harness's task.
        metric: Metric.
        filter: Filter.
        lo: Raw value at the low end of the metric's range.
        hi: Raw value at its high end.
        higher_is_better: The metric's direction.
        task_version: Version of the task, "" where it has none.
        dataset_path: The task's dataset.
        dataset_name: Its configuration.
        split: The split the documents come from.
        num_fewshot: Few-shot examples in the prompts, None where not known.
        prompts: What else the prompts have in common.
    """

    task: str
    metric: str
    filter: str
    lo: float
    hi: float
    higher_is_better: bool = True
    task_version: str = ""
    dataset_path: str = ""
    dataset_name: str = ""
    split: str = ""
    num_fewshot: int | None = None
    prompts: PromptFacts = field(default_factory=PromptFacts)

    @property
    def scale(self) -> ScoreScale:
        """The metric's range and direction."""
        return ScoreScale(self.lo, self.hi, self.higher_is_better)


@dataclass(frozen=True)
class Answers:
    """Raw scores of some models on some documents.

    Attributes:
        of: What they are of.
        matrix: The scores, with the attributes of documents that a bank holds.
        levels: Mean scores in [0, 1] over these documents of models whose documents were chosen
            for them, as estimated, shape (m,); NaN for models whose documents were not.
        provenance: Where they come from.
    """

    of: Measured
    matrix: ScoreMatrix
    levels: NDArray[np.float64]
    provenance: Provenance = field(default_factory=Provenance)

    def holds(self, other: Answers) -> bool:
        """Whether all of the other's scores are in here already."""
        rows = {name: row for row, name in enumerate(self.matrix.models)}
        columns = {name: column for column, name in enumerate(self.matrix.items)}
        if not (rows.keys() >= set(other.matrix.models)):
            return False
        mine = np.full(other.matrix.scores.shape, np.nan)
        at = [columns.get(name, -1) for name in other.matrix.items]
        there = np.array([column >= 0 for column in at])
        for row, name in enumerate(other.matrix.models):
            own = self.matrix.scores[rows[name]]
            if np.isfinite(own).sum() != np.isfinite(other.matrix.scores[row]).sum():
                return False
            mine[row, there] = own[[column for column in at if column >= 0]]
        return bool(np.array_equal(mine, other.matrix.scores, equal_nan=True))

    def joined(self, other: Answers) -> Answers:
        """These answers and others of the same kind; a model that is in both is the other's.

        Of a document that was edited since, known by its number, the other's is kept.
        """
        known, numbers = set(self.matrix.items), (other.matrix.item_attributes or {})["doc_id"]
        taken = {
            int(numbers[column])
            for column, name in enumerate(other.matrix.items)
            if name not in known
        }
        edited = [int(each) in taken for each in (self.matrix.item_attributes or {})["doc_id"]]
        if any(edited):
            return replace(self, matrix=self.matrix.select_items(~np.array(edited))).joined(other)
        models = [name for name in self.matrix.models if name not in other.matrix.models]
        rows = [self.matrix.models.index(name) for name in models]
        old, new = self.matrix, other.matrix
        fresh = [column for column, name in enumerate(new.items) if name not in known]
        items = (*old.items, *(new.items[column] for column in fresh))
        place = {name: column for column, name in enumerate(items)}
        scores = np.full((len(models) + len(new.models), len(items)), np.nan)
        scores[: len(models), : len(old.items)] = old.scores[rows]
        scores[len(models) :, [place[name] for name in new.items]] = new.scores
        before, after = old.item_attributes or {}, new.item_attributes or {}
        attributes = {
            name: np.concatenate([before[name], after[name][fresh]])
            for name in before
            if name in after
        }
        seen = np.isfinite(scores).any(axis=0)
        return Answers(
            self.of,
            ScoreMatrix((*models, *new.models), items, scores, attributes).select_items(seen),
            np.concatenate([self.levels[rows], other.levels]),
            replace(
                other.provenance,
                sources=tuple(dict.fromkeys((*self.provenance.sources, *other.provenance.sources))),
            ),
        )

    def bank(self) -> ItemBank:
        """The bank that they make.

        Raises:
            DataError: They are too few for one, or do not differ.
        """
        of = self.of
        return calibrate(
            self.matrix,
            task=of.task,
            metric=of.metric,
            filter=of.filter,
            score_range=(of.lo, of.hi),
            clip=True,
            higher_is_better=of.higher_is_better,
            notices=("made of the answers of runs, document by document (--grow)",),
            task_version=of.task_version,
            dataset_path=of.dataset_path,
            dataset_name=of.dataset_name,
            split=of.split,
            num_fewshot=of.num_fewshot,
            prompts=of.prompts,
            provenance=self.provenance,
            levels=self.levels,
        )


class _File(msgspec.Struct, frozen=True, kw_only=True):
    """The record's form: null stands where nothing was asked or nothing is known."""

    schema: int
    of: Measured
    provenance: Provenance
    models: tuple[str, ...]
    levels: tuple[float | None, ...]
    items: tuple[str, ...]
    doc_id: tuple[int, ...]
    texts: dict[str, tuple[str, ...]]
    numbers: dict[str, tuple[float | None, ...]]
    scores: tuple[tuple[float | None, ...], ...]


def write_answers(answers: Answers) -> bytes:
    """The content of a file of answers."""
    matrix, columns = answers.matrix, answers.matrix.item_attributes or {}
    return msgspec.json.encode(
        _File(
            schema=SCHEMA,
            of=answers.of,
            provenance=answers.provenance,
            models=matrix.models,
            levels=_nulls(answers.levels),
            items=matrix.items,
            doc_id=tuple(int(each) for each in columns["doc_id"]),
            texts={name: tuple(map(str, columns[name])) for name in _TEXTS if name in columns},
            numbers={name: _nulls(columns[name]) for name in _NUMBERS if name in columns},
            scores=tuple(_nulls(row) for row in matrix.scores),
        )
    )


def read_answers(path: Path) -> Answers:
    """Read what :func:`write_answers` wrote.

    Raises:
        BankError: It cannot be read, or is of a newer version.
    """
    try:
        data = path.read_bytes()
        schema = msgspec.json.decode(data).get("schema")
        if isinstance(schema, int) and schema > SCHEMA:
            raise BankError(
                f"{path} has schema {schema}, this version reads {SCHEMA}; update lm-eval-adaptive"
            )
        held = msgspec.json.decode(data, type=_File)
        attributes: dict[str, NDArray[Any]] = {"doc_id": np.array(held.doc_id, dtype=np.int_)}
        attributes |= {name: np.array(held.texts[name], dtype=object) for name in held.texts}
        attributes |= {name: _numbers(held.numbers[name]) for name in held.numbers}
        scores = np.array([_numbers(row) for row in held.scores]).reshape(len(held.models), -1)
        return Answers(
            held.of,
            ScoreMatrix(held.models, held.items, scores, attributes),
            _numbers(held.levels),
            held.provenance,
        )
    except (OSError, ValueError, AttributeError, DataError) as error:  # msgspec's are of values
        why = " ".join(str(error).split())[:200]
        raise BankError(
            f"{path} cannot be read ({why}); take the bank out with `bank rm {path.stem}`, and let "
            "runs make it again with `bank grow --from RUN`"
        ) from error


def _nulls(values: NDArray[Any]) -> tuple[float | None, ...]:
    return tuple(float(each) if math.isfinite(each) else None for each in values)


def _numbers(values: tuple[float | None, ...]) -> NDArray[np.float64]:
    return np.array([math.nan if each is None else each for each in values], dtype=np.float64)
