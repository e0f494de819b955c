"""Where a bank's scores came from: the files and their hashes, and scores from a table."""

from __future__ import annotations

import hashlib
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from lm_eval_adaptive import __version__
from lm_eval_adaptive.core.bank_info import Provenance, Source
from lm_eval_adaptive.core.matrix import ScoreMatrix, read_scores
from lm_eval_adaptive.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lm_eval_adaptive.banks.options import CalibrateOptions


def scores_of_file(
    options: CalibrateOptions, metric: str
) -> tuple[ScoreMatrix, list[tuple[str, str]]]:
    """The scores of a table, without the models left out, and the file's name and hash.

    Raises:
        UsageError: A model to be left out is not there.
        DataError: The file cannot be used.
    """
    path = Path(str(options.scores))
    matrix = _without_models(read_scores(path, metric), options, path)
    return matrix, [(path.name, hashlib.sha256(path.read_bytes()).hexdigest())]


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
