"""Where a bank's scores came from: the files and their hashes, and scores from a table."""

from __future__ import annotations

import hashlib
import re
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lm_eval_adaptive import __version__
from lm_eval_adaptive.banks.documents import by_documents
from lm_eval_adaptive.core.bank_info import Provenance, Source
from lm_eval_adaptive.core.matrix import ScoreMatrix, read_scores
from lm_eval_adaptive.errors import DataError, UsageError
from lm_eval_adaptive.host.logs.foreign import table_kind
from lm_eval_adaptive.host.scoring import KNOWN_RANGES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lm_eval_adaptive.banks.options import CalibrateOptions

_PERCENT_FROM = 20.0  # what an item's score in percent reaches in any table of some length
_ENOUGH = 20  # items of which one would be above 1, were they percent


def scores_of_file(
    options: CalibrateOptions, metric: str
) -> tuple[ScoreMatrix, list[tuple[str, str]]]:
    """The scores of a table, without the models left out, and the file's name and hash.

    Raises:
        UsageError: A model to be left out is not there.
        DataError: The file cannot be used.
    """
    path = Path(str(options.scores))
    _refuse_tables_of_totals(path)
    matrix = _without_models(read_scores(path, metric), options, path)
    if options.score_range is None and options.update is None:
        check_one_scale(matrix, metric, str(path))
    if "doc_id" in (matrix.item_attributes or {}):
        matrix = by_documents(matrix, options, str(path))
    return matrix, [(path.name, hashlib.sha256(path.read_bytes()).hexdigest())]


def _refuse_tables_of_totals(path: Path) -> None:
    """Refuse a table that holds one score for a data set, by what it is."""
    if not path.is_file() or path.suffix.lower() not in (".csv", ".tsv"):
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        head = file.readline()
    if kind := table_kind(re.split(r"[,\t;]", head.lstrip("\ufeff").strip())):
        raise DataError(f"{path}: expected a score for each model and document, and this is {kind}")


def refuse_two_scales(matrix: ScoreMatrix, metric: str, where: str, ask: str) -> float | None:
    """Refuse scores of which some are percent and some fractions.

    Args:
        matrix: Raw scores.
        metric: Name of the metric.
        where: The file, for the message.
        ask: The option that names the range, with one as an example.

    Returns:
        The highest score; None where there is none, or where one is below 0.

    Raises:
        DataError: The range has to be named.
    """
    tops = {
        name: float(np.nanmax(row))
        for name, row in zip(matrix.models, matrix.scores, strict=True)
        if np.isfinite(row).any()
    }
    if not tops or np.nanmin(matrix.scores) < 0.0:
        return None
    other = max(tops, key=lambda name: tops[name])
    fractions = [name for name, own in tops.items() if 0.0 < own <= 1.0]
    if fractions and _PERCENT_FROM <= tops[other] <= 100.0:
        raise DataError(
            f"{where}: {metric} of {fractions[0]} lies in 0..1 and that of {other} reaches "
            f"{tops[other]:g}: fractions and percent in one table? put all on one scale, or name "
            f"the range with {ask.split(maxsplit=1)[0]}, as in {ask}"
        )
    return tops[other]


def check_one_scale(matrix: ScoreMatrix, metric: str, where: str) -> None:
    """Refuse scores of which some are percent and some fractions, or all in the unit not usual.

    Args:
        matrix: Raw scores.
        metric: Name of the metric, whose usual range may be known.
        where: The file, for the message.

    Raises:
        DataError: The range has to be named.
    """
    top = refuse_two_scales(matrix, metric, where, "--range 0,100")
    if top is None:
        return
    usual = KNOWN_RANGES.get(metric)
    if usual == (0.0, 100.0) and top <= 1.0 and len(matrix.items) >= _ENOUGH:
        raise DataError(
            f"{where}: no {metric} is above {top:g}, and {metric} is given in percent usually: "
            "fractions? name the range with --range, as in --range 0,1"
        )
    if usual == (0.0, 1.0) and _PERCENT_FROM <= top <= 100.0:
        raise DataError(
            f"{where}: {metric} reaches {top:g}, and lies in 0..1 usually: percent? name the range "
            "with --range, as in --range 0,100"
        )


def _without_models(matrix: ScoreMatrix, options: CalibrateOptions, path: Path) -> ScoreMatrix:
    """The matrix without the models named with ``--exclude_model``."""
    unknown = sorted(set(options.exclude_model) - set(matrix.models) - set(matrix.groups))
    if unknown:
        raise UsageError(
            f"--exclude_model {unknown[0]}: no such model in {path}; it holds "
            f"{', '.join(matrix.models)}"
        )
    left = [
        name
        for name, group in zip(matrix.models, matrix.groups, strict=True)
        if name not in options.exclude_model and group not in options.exclude_model
    ]
    return matrix.select_models(left)


def provenance_of(sources: Sequence[tuple[str, str]]) -> Provenance:
    """A bank's provenance: versions, date, and the files with their hashes."""
    return Provenance(
        date=datetime.now(tz=timezone.utc).strftime("%Y-%m-%d"),
        lm_eval=version("lm_eval"),
        lm_eval_adaptive=__version__,
        sources=tuple(Source(name, digest) for name, digest in sources),
    )
