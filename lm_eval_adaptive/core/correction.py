"""What a bank learned by testing its own calibration models as if they were new.

This module owns the shape of a bank's correction, and its form in the bank's file; it imports the
readers of JSON. ``crossvalidation`` learns it, ``robust`` lives by it, and ``bank`` keeps it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lm_eval_adaptive.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lm_eval_adaptive.core.fields import Fields, Json

# Misfit of held-out models, mean and standard deviation, where a bank could hold none out: the
# middle of those of 12 real score matrices.
MISFIT_MEAN, MISFIT_SD = 1.1, 0.6


@dataclass(frozen=True)
class HeldOutErrors:
    """How well held-out models were estimated from tests of one length; errors in [0, 1] units.

    Attributes:
        mae: Mean absolute error of full scores.
        rmse: Root mean squared error.
        correlation: Correlation of estimated and true full scores; 0 where they do not vary.
        covered: Share of the 95 % intervals that held the full score.
        tests: Tests.
    """

    mae: float
    rmse: float
    correlation: float
    covered: float
    tests: int


@dataclass(frozen=True)
class Correction:
    """A bank's own correction.

    Attributes:
        log_scale: Logarithm of the factor of errors' variances.
        misfit: Mean misfit of held-out models.
        misfit_sd: Its standard deviation.
        models: Calibration models it was learned from.
        order_gain: How much better informative items order held-out models than random shared ones,
            a difference of rank correlations.
        slopes_again: Share of the slopes' differences that held-out models show again, by view.
        lengths: How well held-out models were estimated, by items asked.
        slopes: What is kept of the slopes' differences, by view, where random items are to be
            asked; None where informative ones are.
        far_again: Share of the slopes' differences that the best and the worst third show again,
            held out, by view.
        overdispersion: How much larger the test of agreement's F statistic is for held-out models
            than is usual.
        kinds: How many models of different kinds these count for; 0 where it was not learned.
    """

    log_scale: float
    misfit: float = MISFIT_MEAN
    misfit_sd: float = MISFIT_SD
    models: int = 0
    order_gain: float = 0.0
    slopes_again: tuple[float, float] = (1.0, 1.0)
    lengths: Mapping[int, HeldOutErrors] = field(default_factory=dict)
    slopes: tuple[float, float] | None = None
    far_again: tuple[float, float] = (1.0, 1.0)
    overdispersion: float = 1.0
    kinds: float = 0.0


def correction_to_json(correction: Correction | None) -> dict[str, Json]:
    """A correction as it stands in a bank's file; none is an empty object."""
    if correction is None:
        return {}
    found: dict[str, Json] = {
        "lengths": {
            str(length): {
                "correlation": each.correlation,
                "covered": each.covered,
                "mae": each.mae,
                "rmse": each.rmse,
                "tests": each.tests,
            }
            for length, each in sorted(correction.lengths.items(), key=lambda each: str(each[0]))
        },
        "log_scale": correction.log_scale,
        "misfit": correction.misfit,
        "misfit_sd": correction.misfit_sd,
        "models": correction.models,
        "order_gain": correction.order_gain,
        "slopes_again": list(correction.slopes_again),
        "far_again": list(correction.far_again),
        "overdispersion": correction.overdispersion,
        "kinds": correction.kinds,
    }
    if correction.slopes is not None:
        found["slopes"] = list(correction.slopes)
    return dict(sorted(found.items()))


def correction_from_fields(fields: Fields) -> Correction | None:
    """Read what :func:`correction_to_json` wrote; banks of the first versions hold less.

    Raises:
        DataError: A field is missing or of another type; its name and value are told.
    """
    if not len(fields):
        return None
    usual = Correction(fields.number("log_scale"))
    return Correction(
        log_scale=usual.log_scale,
        misfit=fields.number("misfit", usual.misfit),
        misfit_sd=fields.number("misfit_sd", usual.misfit_sd),
        models=fields.integer("models", usual.models),
        order_gain=fields.number("order_gain", usual.order_gain),
        slopes_again=(
            fields.two_numbers("slopes_again") if "slopes_again" in fields else usual.slopes_again
        ),
        lengths={
            _length(name): HeldOutErrors(
                mae=each.number("mae"),
                rmse=each.number("rmse"),
                correlation=each.number("correlation"),
                covered=each.number("covered"),
                tests=each.integer("tests"),
            )
            for name, each in fields.object("lengths").named_objects()
        },
        slopes=fields.two_numbers("slopes") if "slopes" in fields else None,
        far_again=(fields.two_numbers("far_again") if "far_again" in fields else usual.far_again),
        overdispersion=fields.number("overdispersion", usual.overdispersion),
        kinds=fields.number("kinds", usual.kinds),
    )


def _length(name: str) -> int:
    if not name.isdecimal():
        raise DataError(f"correction.lengths names the length {name!r}, expected a whole number")
    return int(name)
