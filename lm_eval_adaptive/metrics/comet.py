"""COMET by the package unbabel-comet: translation quality as a trained network sees it.

This module owns the model's settings; it imports the package, and through it torch, on first use.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import UsageError
from lm_eval_adaptive.metrics.base import Missing, filled, require, version_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lm_eval_adaptive.metrics.base import Case

DEFAULT_MODEL = "Unbabel/wmt22-comet-da"
_NO_PAIR = Missing("the document has no source or no reference")
DECIMALS = 5  # beyond these, the mix of a batch shows


def comet_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings from ``metadata.metrics.comet``, over which the environment has the last word.

    ``LMEVAL_ADAPTIVE_COMET`` is a model's name on the hub, a checkpoint file, or a directory that
    holds ``checkpoints/model.ckpt``; ``LMEVAL_ADAPTIVE_DEVICE`` is ``cpu`` or ``cuda``.

    Raises:
        UsageError: A setting is unknown.
    """
    values = {"model": DEFAULT_MODEL, "device": None, "batch_size": 32}
    for key, value in settings.items():
        if key not in values:
            raise UsageError(f"COMET does not know the setting {key!r}; it has {sorted(values)}")
        values[key] = value
    values["model"] = os.environ.get("LMEVAL_ADAPTIVE_COMET", "").strip() or values["model"]
    values["device"] = os.environ.get("LMEVAL_ADAPTIVE_DEVICE", "").strip() or values["device"]
    return values


def checkpoint(model: str) -> str | None:
    """The checkpoint file of a local model; None where the name is not a path.

    Raises:
        UsageError: The directory holds no checkpoint.
    """
    path = Path(model).expanduser()
    if path.is_file():
        return str(path)
    if not path.is_dir():
        return None
    place = path / "checkpoints" / "model.ckpt"
    if place.is_file():
        return str(place)
    raise UsageError(
        f"COMET: {path} holds no checkpoints/model.ckpt; name the folder as the hub has it, with "
        "hparams.yaml beside checkpoints"
    )


@functools.lru_cache(maxsize=1)
def load_model(model: str) -> Any:
    """The network of that name or path, loaded once.

    Raises:
        UsageError: unbabel-comet is missing, or the model cannot be had.
    """
    package = require("comet", "comet", "comet")
    local = checkpoint(model)
    try:
        return package.load_from_checkpoint(local or package.download_model(model))
    except Exception as error:  # the package raises bare Exception
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(
            f"COMET: model {model} does not load ({first}); offline, name a folder or checkpoint "
            "with LMEVAL_ADAPTIVE_COMET, its hparams.yaml one folder above the checkpoint"
        ) from error


def _gpus(device: str | None) -> int:
    if device is not None:
        return int(device.startswith(("cuda", "gpu")))
    return int(require("torch", "comet", "comet").cuda.is_available())


def comet(cases: Sequence[Case], settings: Mapping[str, Any]) -> list[float]:
    """COMET, about 0 to 1, the best over the references; a blank answer has 0.

    Missing where a document has no source or no reference.
    """
    own = comet_settings(settings)
    texts = [filled(case.references) if case.source.strip() else [] for case in cases]
    triples = list(
        dict.fromkeys(
            (case.source, case.answer, text)
            for case, mine in zip(cases, texts, strict=True)
            if case.answer.strip()
            for text in mine
        )
    )
    scores: dict[tuple[str, str, str], float] = {}
    if triples:
        model = load_model(str(own["model"]))
        predicted = model.predict(
            [{"src": source, "mt": answer, "ref": text} for source, answer, text in triples],
            batch_size=int(own["batch_size"]),
            gpus=_gpus(own["device"]),
            progress_bar=False,
        )
        values = [round(float(value), DECIMALS) for value in predicted.scores]
        scores = dict(zip(triples, values, strict=True))
    found: list[float] = []
    for case, mine in zip(cases, texts, strict=True):
        if not mine:
            found.append(_NO_PAIR)
        elif not case.answer.strip():
            found.append(0.0)
        else:
            found.append(max(scores[case.source, case.answer, text] for text in mine))
    return found


def signature(name: str, settings: Mapping[str, Any]) -> str:
    """Model and version."""
    return f"{name}|{comet_settings(settings)['model']}|comet {version_of('unbabel-comet')}"
