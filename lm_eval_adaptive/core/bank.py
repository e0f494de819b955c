"""The item bank: calibrated items, and their file.

This module owns the bank's shape, its Parquet file and the checks on loading; it imports numpy, the
bank's information, the response parameters and, inside functions, pyarrow. A bank is frozen: what a
run asks is kept in the run's state. Loading reads columns and JSON and never executes anything.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from lm_eval_adaptive.core.bank_checks import check_bank
from lm_eval_adaptive.core.bank_info import SCHEMA, info_from_json, info_to_json
from lm_eval_adaptive.core.response import ItemParameters
from lm_eval_adaptive.errors import BankError, DataError

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from lm_eval_adaptive.core.bank_info import BankInfo

    FloatArray = NDArray[np.float64]

# A model that was scored on less than this share of the items counts as scored in part; an adaptive
# test asks half of them at most unless told otherwise.
WHOLE_SHARE = 0.6
MOST_ITEMS = 10_000_000  # more are not read: a small file can unpack to any size
METADATA_KEY = b"lm_eval_adaptive"

_NUMBERS = (
    "difficulty",
    "discrimination",
    "noise",
    "difficulty_se",
    "discrimination_se",
    "difficulty_discrimination_cov",
)
_TEXTS = ("content_hash", "doc_hash", "prompt_hash", "reason")
_OTHERS = (
    "doc_id",
    "n_scores",
    "mean_score",
    "item_rest_correlation",
    "kept",
    "input_tokens",
    "output_tokens",
    "scores",
)
COLUMNS = (*_TEXTS, *_NUMBERS, *_OTHERS)
# Columns in which an empty cell has no meaning.
_FILLED = ("content_hash", "doc_id", "kept", "n_scores", "scores", *_NUMBERS)


@dataclass(frozen=True)
class ItemBank:
    """n calibrated items.

    Attributes:
        info: What the bank is for.
        parameters: Item parameters.
        content_hash: Identity of each document, unique, length n.
        doc_id: Row of each document in the task's split, shape (n,).
        doc_hash: The harness's hash of each document; it changes with column order.
        prompt_hash: The harness's hash of each prompt, "" where calibration runs differ.
        kept: Shape (n,), False for items that are not to be asked.
        reason: Why an item is not kept, "" for kept ones.
        n_scores: Calibration scores per item, shape (n,).
        mean_score: Mean calibration score, shape (n,), in [0, 1].
        item_rest_correlation: Shape (n,), NaN for constant items.
        input_tokens: Expected prompt tokens, shape (n,), NaN when not known.
        output_tokens: Expected answer tokens, shape (n,), NaN when not known.
        scores: Calibration scores, shape (C, n), in [0, 1], NaN where not asked.
        part_hash: Hash of the document's own part of each prompt where calibration prompts differ
            around it, "" elsewhere and where it is not known; empty in banks without any.
        sight_hash: Hash of what models see of each document and of its target, where nobody can
            tell which columns the task reads; empty elsewhere.
        sha256: Hash of the file the bank was read from, "" before it is saved.
        path: The file it was read from, "" before it is saved.
    """

    info: BankInfo
    parameters: ItemParameters
    content_hash: tuple[str, ...]
    doc_id: NDArray[np.int_]
    doc_hash: tuple[str, ...]
    prompt_hash: tuple[str, ...]
    kept: NDArray[np.bool_]
    reason: tuple[str, ...]
    n_scores: NDArray[np.int_]
    mean_score: FloatArray
    item_rest_correlation: FloatArray
    input_tokens: FloatArray
    output_tokens: FloatArray
    scores: FloatArray
    part_hash: tuple[str, ...] = ()
    sight_hash: tuple[str, ...] = ()
    sha256: str = ""
    path: str = ""

    def __len__(self) -> int:
        return len(self.content_hash)

    @property
    def levels(self) -> FloatArray | None:
        """Mean scores of models scored on a small part of the items, shape (C,), NaN for others.

        Their items were chosen for them, so their abilities follow from what the bank knew of the
        items and not from the means of what is there. None where there are no such models.
        """
        share = np.isfinite(self.scores).mean(axis=1)
        known = [model.mean_score for model in self.info.models]
        found = np.where(share < WHOLE_SHARE, np.array(known, dtype=np.float64), np.nan)
        return found if np.isfinite(found).any() else None

    def save(self, path: str | Path) -> Path:
        """Write the bank as one Parquet file, aside first and then renamed.

        Args:
            path: The file; its folder is made when missing.

        Returns:
            The path written.

        Raises:
            BankError: In its place is a folder or a device.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        target = Path(path)
        if target.exists() and not target.is_file():  # a rename would replace a device
            raise BankError(f"{target} is no regular file; name a file to save the bank in")
        cov = self.parameters.covariance
        columns = {
            "doc_id": self.doc_id,
            "content_hash": list(self.content_hash),
            "doc_hash": list(self.doc_hash),
            "prompt_hash": list(self.prompt_hash),
            "difficulty": self.parameters.difficulty,
            "discrimination": self.parameters.discrimination,
            "noise": self.parameters.noise,
            "difficulty_se": np.sqrt(cov[:, 0, 0]),
            "discrimination_se": np.sqrt(cov[:, 1, 1]),
            "difficulty_discrimination_cov": cov[:, 0, 1],
            "n_scores": self.n_scores,
            "mean_score": self.mean_score,
            "item_rest_correlation": self.item_rest_correlation,
            "kept": self.kept,
            "reason": list(self.reason),
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
        }
        if any(self.part_hash):
            columns["part_hash"] = list(self.part_hash)
        if any(self.sight_hash):
            columns["sight_hash"] = list(self.sight_hash)
        table = pa.table(columns)
        scores = pa.array(
            list(self.scores.T.astype(np.float32)), type=pa.list_(pa.float32(), len(self.scores))
        )
        table = table.append_column("scores", scores)
        info = {**info_to_json(self.info), "schema": SCHEMA}
        table = table.replace_schema_metadata({METADATA_KEY: json.dumps(info, sort_keys=True)})
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = target.with_name(f".{target.name}.part")
        pq.write_table(table, aside, compression="zstd", write_page_checksum=True)
        aside.replace(target)
        return target

    @classmethod
    def load(cls, path: str | Path) -> ItemBank:
        """Read and check a bank.

        Raises:
            BankError: The file is missing, no bank, truncated, of a newer schema, lacks columns,
                or holds parameters that are not finite.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        source = Path(path)
        if not source.is_file():
            raise BankError(
                f"no bank at {source}; make one with `lm-eval-adaptive calibrate`, or pass another "
                "with --bank"
            )
        try:
            rows = pq.read_metadata(source).num_rows
            if rows > MOST_ITEMS:  # a file of some bytes can say so
                raise BankError(
                    f"bank {source} says that it has {rows} items, {MOST_ITEMS} are taken at most; "
                    "is it a bank? make one with `lm-eval-adaptive calibrate`"
                )
            table = pq.read_table(source, page_checksum_verification=True)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OSError) as error:
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise BankError(
                f"{source} is not a readable Parquet file ({first}); it may be truncated or "
                "damaged: copy it again or recalibrate"
            ) from error
        raw = (table.schema.metadata or {}).get(METADATA_KEY)
        if raw is None:
            raise BankError(
                f"{source} is Parquet but no item bank: its metadata has no key "
                f"{METADATA_KEY.decode()!r}; make a bank with `lm-eval-adaptive calibrate`"
            )
        info = _info(raw, source)
        missing = [name for name in COLUMNS if name not in table.column_names]
        if missing:
            raise BankError(
                f"bank {source} lacks the column(s) {', '.join(missing)}; recalibrate it"
            )
        for name in _FILLED:
            if table[name].null_count:
                raise BankError(
                    f"bank {source} has {table[name].null_count} empty cell(s) in the column "
                    f"{name}; recalibrate it"
                )
        if not table.num_rows:
            raise BankError(f"bank {source} has no items; recalibrate it")
        try:
            bank = _from_table(table, info, source)
        except (pa.ArrowException, ValueError, TypeError, AttributeError) as error:
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise BankError(
                f"bank {source} has a column of another type than expected ({first}); recalibrate "
                "it"
            ) from error
        check_bank(bank, str(source))
        return bank


def _info(raw: bytes, source: Path) -> BankInfo:
    try:
        data = json.loads(raw)
    except ValueError as error:
        raise BankError(f"bank {source} has damaged metadata ({error}); recalibrate it") from error
    if not isinstance(data, dict):
        raise BankError(
            f"bank {source} has damaged metadata (a JSON {type(data).__name__}, expected an "
            "object); recalibrate it"
        )
    if data.get("schema") != SCHEMA:
        raise BankError(
            f"bank {source} has schema {data.get('schema')}, this version reads schema {SCHEMA}; "
            "upgrade lm-eval-adaptive or recalibrate"
        )
    try:
        return info_from_json(data)
    except DataError as error:
        raise BankError(
            f"bank {source} has incomplete or damaged metadata ({error}); recalibrate it, or "
            "upgrade lm-eval-adaptive if a newer version made it"
        ) from error


def _from_table(table: pa.Table, info: BankInfo, source: Path) -> ItemBank:
    def numbers(name: str) -> FloatArray:
        try:
            values = table[name].to_numpy(zero_copy_only=False).astype(np.float64)
        except (ValueError, TypeError) as error:
            raise BankError(
                f"bank {source}: the column {name} holds no numbers ({error}); recalibrate it"
            ) from error
        return cast("FloatArray", values)

    def whole(name: str) -> NDArray[np.int_]:
        values = numbers(name)
        bad = np.flatnonzero(~np.isfinite(values) | (values != np.round(values)))
        if len(bad):
            raise BankError(
                f"bank {source}: {name} of item {bad[0]} is {values[bad[0]]}, expected a whole "
                "number; recalibrate it"
            )
        return values.astype(np.int_)

    def texts(name: str) -> tuple[str, ...]:
        return tuple(value or "" for value in table[name].to_pylist())

    n = table.num_rows
    cov = np.zeros((n, 2, 2))
    cov[:, 0, 0] = numbers("difficulty_se") ** 2
    cov[:, 1, 1] = numbers("discrimination_se") ** 2
    cov[:, 0, 1] = cov[:, 1, 0] = numbers("difficulty_discrimination_cov")
    scores = _score_cells(table["scores"], len(info.models), source)
    return ItemBank(
        info=info,
        parameters=ItemParameters(
            info.response_model,
            numbers("difficulty"),
            numbers("discrimination"),
            numbers("noise"),
            cov,
        ),
        content_hash=texts("content_hash"),
        doc_id=whole("doc_id"),
        doc_hash=texts("doc_hash"),
        prompt_hash=texts("prompt_hash"),
        kept=table["kept"].to_numpy(zero_copy_only=False).astype(bool),
        reason=texts("reason"),
        n_scores=whole("n_scores"),
        mean_score=numbers("mean_score"),
        item_rest_correlation=numbers("item_rest_correlation"),
        input_tokens=numbers("input_tokens"),
        output_tokens=numbers("output_tokens"),
        scores=scores.reshape(n, -1).T.copy(),
        part_hash=texts("part_hash") if "part_hash" in table.column_names else (),
        sight_hash=texts("sight_hash") if "sight_hash" in table.column_names else (),
        sha256=hashlib.sha256(source.read_bytes()).hexdigest(),
        path=str(source),
    )


def _score_cells(column: pa.ChunkedArray, models: int, source: Path) -> FloatArray:
    """The cells of the column of scores, item by item, each of one score per calibration model.

    Raises:
        BankError: An item has another number of scores.
    """
    lengths = np.asarray(column.combine_chunks().value_lengths().to_pylist(), dtype=np.int_)
    ragged = np.flatnonzero(lengths != lengths[0])
    if len(ragged):
        raise BankError(
            f"bank {source}: item {ragged[0]} has scores of {lengths[ragged[0]]} models and item 0 "
            f"of {lengths[0]}; recalibrate it"
        )
    if lengths[0] != models:
        raise BankError(
            f"bank {source} names {models} calibration models but holds scores of {lengths[0]}; "
            "recalibrate it"
        )
    cells = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return np.asarray(cells, dtype=np.float64)
