"""The models that ``simulate`` draws from: families and another source beside the scores.

This module owns the options ``--regime``, ``--family`` and ``--calibrate_on``; it imports the
core's regimes inside functions.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from lm_eval_adaptive.core.matrix import ScoreMatrix
    from lm_eval_adaptive.core.regimes import Pool


def add_regime_options(add: Callable[..., Any]) -> None:
    """Add the options by a parser's ``add_argument``."""
    add(
        "--regime",
        nargs="+",
        action="extend",
        default=[],
        metavar="REGIME",
        help=(
            "How unlike the bank's models those ranked are: random, stronger, weaker, top, family, "
            "source (with --calibrate_on) or all; several at once or repeated (default: random)"
        ),
    )
    add(
        "--family",
        action="append",
        default=[],
        metavar="FILE|COLUMN|prefix",
        help=(
            "For regime family: a CSV file with the columns model and family, a column of "
            "<scores>.models.csv beside the scores, or prefix: the names up to their first "
            "separator or digit (the default); one for all --scores, or one for each"
        ),
    )
    add(
        "--calibrate_on",
        action="append",
        default=[],
        metavar="FILE",
        help=(
            "Calibrate on these scores of other models over the same items, for regime source; one "
            "for all --scores, or one for each"
        ),
    )


def read_pools(
    namespace: argparse.Namespace,
    matrices: Sequence[tuple[str, str, ScoreMatrix]],
    prepare: Callable[[ScoreMatrix], ScoreMatrix],
) -> tuple[list[Pool], tuple[str, ...]]:
    """Matrices with their families and sources, and the regimes to draw.

    Args:
        namespace: The options.
        matrices: (name, metric, raw scores), in the order of ``--scores`` where they are files.
        prepare: What is done to every matrix that is read: models left out, scores clipped.

    Raises:
        UsageError: An option's value is unknown, or options do not go together.
        DataError: A file cannot be used.
    """
    from lm_eval_adaptive.core.families import PREFIX, read_families
    from lm_eval_adaptive.core.matrix import read_scores
    from lm_eval_adaptive.core.regimes import Pool, chosen_regimes

    regimes = chosen_regimes(namespace.regime, source=bool(namespace.calibrate_on))
    if namespace.family and "family" not in regimes:
        raise UsageError("--family serves --regime family (or all); add it, or leave --family out")
    count = len(matrices)
    words = _one_each("--family", namespace.family or [PREFIX], count)
    sources = _one_each("--calibrate_on", namespace.calibrate_on or [""], count)
    files: list[Path | None] = [Path(path) for path in namespace.scores] or [None] * count
    pools = []
    for (name, metric, matrix), word, source, file in zip(
        matrices, words, sources, files, strict=True
    ):
        families = read_families(word, matrix.models, file) if "family" in regimes else {}
        other = prepare(read_scores(source, metric)) if source else None
        pools.append(Pool(name, metric, matrix, families, other))
    return pools, regimes


def _one_each(option: str, given: Sequence[str], count: int) -> list[str]:
    if len(given) not in {1, count}:
        raise UsageError(
            f"{count} matrices and {len(given)} {option}: give one for all, or one for each"
        )
    return list(given) * (count if len(given) == 1 else 1)
