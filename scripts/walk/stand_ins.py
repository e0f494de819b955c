"""What a walk over the harness's tasks has in place of the hub: data sets, metrics, a model.

This module owns the stand-ins and where they are put; which documents a data set holds is
``columns``' business. Nothing here fetches anything.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lm_eval.api.model import LM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MODEL = "walker"
# Names under which tasks write their splits; others are made when they are asked for.
ANSWERS = (
    "The answer is 12.",
    "#### 12",
    "B",
    "(A)",
    "yes",
    "$\\boxed{12}$",
    "[BEGIN]\nreturn 12\n[DONE]",
    '{"answer": "B"}',
)

# Metrics of the hub that give a number and no dict, and those that give one number by their name.
_BARE = ("wer", "cer")
_NAMED = ("f1", "accuracy", "exact_match", "precision", "recall")
# A name of numpy 1 that some tasks still say.
_OLD_NAN = "NAN"


class AnySplits(dict[Any, Any]):
    """A data set that has every split, each of some documents of its own."""

    def __init__(self, rows: Callable[[str], Any]) -> None:
        super().__init__()
        self._rows = rows

    def __missing__(self, split: Any) -> Any:
        self[split] = self._rows(str(split))
        return self[split]

    def __contains__(self, split: object) -> bool:
        return True


class FakeMetric:
    """A metric of the hub: the share of common words, under whatever name it is asked by."""

    def __init__(self, name: str) -> None:
        self.name = name

    def compute(
        self, predictions: Sequence[Any] = (), references: Sequence[Any] = (), **_: Any
    ) -> Any:
        """One number for all, under every name that a task may look it up by."""
        values = [_overlap(a, b) for a, b in zip(predictions, references, strict=False)]
        mean = sum(values) / max(1, len(values))
        if self.name in _BARE:
            return mean
        if self.name in _NAMED:
            return {self.name: mean}
        if self.name == "code_eval":
            return {f"pass@{k}": mean for k in (1, 2, 3, 4, 5, 8, 10, 16, 32, 64, 100)}, {}
        named = dict.fromkeys(
            ("rouge1", "rouge2", "rougeL", "rougeLsum", "score", "accuracy"), mean
        )
        several = dict.fromkeys(("precision", "recall", "f1", "scores"), values)
        return {**named, **several, self.name: mean}


def _overlap(prediction: Any, reference: Any) -> float:
    one, two = set(str(prediction).split()), set(str(reference).split())
    return len(one & two) / max(1, len(one | two))


class Walker(LM):  # type: ignore[misc]  # the harness is untyped
    """Answers with a column of the document or with a fixed text, by the prompt's hash."""

    MULTIMODAL = True

    def __init__(
        self, style: str = "a", batch_size: Any = None, device: Any = None, **_: Any
    ) -> None:
        del batch_size, device
        super().__init__()
        self.style = style
        self.tokenizer = None

    def _answer(self, request: Any) -> str:
        prompt = str(request.args[0])
        digest = hashlib.sha256(f"{self.style}{prompt}{request.idx}".encode()).digest()
        doc = request.doc if isinstance(request.doc, dict) else {}
        own = [value for value in doc.values() if isinstance(value, str) and value]
        if own and digest[0] % 2:
            return str(own[digest[1] % len(own)])
        return ANSWERS[digest[1] % len(ANSWERS)]

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        """An answer each."""
        del disable_tqdm
        return [self._answer(request) for request in requests]

    def loglikelihood(self, requests: list[Any], disable_tqdm: bool = False) -> list[Any]:
        """Not asked of a generation task."""
        raise NotImplementedError

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[Any]:
        """Not asked of a generation task."""
        raise NotImplementedError


def register() -> None:
    """Make the model known to the harness."""
    import lm_eval.models  # noqa: F401  the harness's own models have to be registered first
    from lm_eval.api.registry import model_registry

    if MODEL not in model_registry:
        model_registry.register(MODEL, target=Walker)


# Tasks' modules keep the function that they imported, whichever documents it gave then.
_loaders: list[Callable[..., Any]] = []


def _load(*args: Any, **kwargs: Any) -> Any:
    if not _loaders:
        from datasets.load import load_dataset

        return load_dataset(*args, **kwargs)
    return _loaders[-1](*args, **kwargs)


@contextmanager
def no_hub(load: Callable[..., Any]) -> Iterator[None]:
    """Have data sets made by ``load`` and metrics of the hub made up, for a while."""
    import datasets
    import evaluate
    import numpy as np

    old_names = not hasattr(np, _OLD_NAN)
    if old_names:
        setattr(np, _OLD_NAN, np.nan)
    kept = datasets.load_dataset, evaluate.load
    _loaders.append(load)
    datasets.load_dataset = _load
    evaluate.load = lambda name, *args, **kwargs: FakeMetric(str(name).rsplit("/", 1)[-1])
    try:
        yield
    finally:
        datasets.load_dataset, evaluate.load = kept
        _loaders.pop()
        if old_names:
            delattr(np, _OLD_NAN)
