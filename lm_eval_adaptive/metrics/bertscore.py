"""BERTScore F1 by the package bert-score, and its difference between right and wrong answers.

This module owns the model's settings and what makes a value depend on its own document alone: the
package gives a pair another score in a batch than by itself (see :class:`PairScorer`), crashes on
empty texts, and takes a directory's word for how long a text the model reads. It imports torch on
first use.
"""

from __future__ import annotations

import collections
import functools
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import UsageError
from lm_eval_adaptive.metrics.base import NO_REFERENCE, Missing, filled, note, require, version_of
from lm_eval_adaptive.metrics.words import mostly_latin

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lm_eval_adaptive.metrics.base import Case

# bert-score's own choice for English.
DEFAULT_MODEL = "roberta-large"
# Models of bert-score's table that read English alone; each letter of another script is two or
# three tokens of bytes to them, or one unknown.
_ENGLISH = re.compile(
    r"(?:distil)?roberta-.*|(?:distil)?bert-(?:base|large)-(?:un)?cased.*"
    r"|(?:deberta|albert|xlnet|electra|bart|scibert)[-_].*"
)
# The order of additions in a batch moves the seventh decimal: a document alone and the same one in
# a batch are to have one value.
DECIMALS = 5
_ONE_SIDE = Missing("the document lists no right or no wrong answers")


@dataclass(frozen=True)
class BertSettings:
    """Model of BERTScore.

    Attributes:
        model: Name on the hub, or a directory.
        num_layers: Layer to compare; needed for a directory, bert-score knows it for names.
        device: ``cpu``, ``cuda:0`` …; None lets bert-score choose.
        batch_size: Pairs at once.
    """

    model: str = DEFAULT_MODEL
    num_layers: int | None = None
    device: str | None = None
    batch_size: int = 64


def bert_settings(settings: Mapping[str, Any]) -> BertSettings:
    """Settings from ``metadata.metrics.bertscore``, over which the environment has the last word.

    ``LMEVAL_ADAPTIVE_BERTSCORE`` is ``MODEL_OR_DIR[,num_layers=N][,batch_size=N]``, with
    ``model_type=`` before the model as bert-score says it, or without;
    ``LMEVAL_ADAPTIVE_DEVICE`` names the device.

    Raises:
        UsageError: A setting is unknown or no number.
    """
    values = {str(key): value for key, value in settings.items()}
    given = os.environ.get("LMEVAL_ADAPTIVE_BERTSCORE", "").strip()
    if given:
        values.pop("num_layers", None)  # of the other model
        first, *rest = given.split(",")
        values["model"] = first.removeprefix("model_type=").removeprefix("model=")
        for part in rest:
            key, _, value = part.partition("=")
            values[key.strip()] = value.strip()
    if "model_type" in values:
        values["model"] = values.pop("model_type")
    device = os.environ.get("LMEVAL_ADAPTIVE_DEVICE", "").strip()
    if device:
        values["device"] = device
    known = set(BertSettings.__dataclass_fields__)
    for key in values:
        if key not in known:
            raise UsageError(f"BERTScore does not know the setting {key!r}; it has {sorted(known)}")
    for key in ("num_layers", "batch_size"):
        if values.get(key) is not None:
            try:
                values[key] = int(values[key])
            except ValueError as error:
                raise UsageError(
                    f"BERTScore: {key} must be a whole number, got {values[key]!r}"
                ) from error
    return BertSettings(**values)


class PairScorer:
    """BERTScore of pairs of texts, whatever else is in the batch.

    The package pads the texts of a batch and sets similarities with padding to 0. A token whose
    best similarity is negative, as sentence models have them, so counts 0 or less, as the other
    texts are longer or not. Here negative similarities always count 0, which is what the package
    gives to all but the longest texts of a batch; values are then in [0, 1].

    Args:
        found: The package's scorer; its model, tokenizer and device are used.
    """

    def __init__(self, found: Any) -> None:
        self._model, self._tokenizer, self._device = found._model, found._tokenizer, found.device  # noqa: SLF001  no public way to them
        self._weights: dict[int | None, float] = collections.defaultdict(lambda: 1.0)
        for special in (self._tokenizer.sep_token_id, self._tokenizer.cls_token_id):
            self._weights[special] = 0

    def score(
        self, answers: Sequence[str], references: Sequence[str], batch_size: int
    ) -> tuple[list[float], list[float], list[float]]:
        """Precision, recall and F1 of each pair."""
        known = self._encode([*answers, *references], batch_size)
        found = [
            self._pair(known[answer], known[reference])
            for answer, reference in zip(answers, references, strict=True)
        ]
        return [p for p, _, _ in found], [r for _, r, _ in found], [f for _, _, f in found]

    def _encode(self, texts: Sequence[str], batch_size: int) -> dict[str, tuple[Any, Any]]:
        """Unit vectors of each text's tokens, and the tokens' weights."""
        utils = require("bert_score.utils", "bertscore", "bertscore")
        longest = int(self._tokenizer.model_max_length)
        # By length, so that little is padded; one order, whatever the order of the pairs.
        ordered = sorted(set(texts), key=lambda text: (len(text), text))
        found = {}
        cut = 0
        for start in range(0, len(ordered), batch_size):
            batch = ordered[start : start + batch_size]
            vectors, mask, weights = utils.get_bert_embedding(
                batch, self._model, self._tokenizer, self._weights, device=self._device
            )
            for row, text in enumerate(batch):
                size = int(mask[row].sum())
                cut += size >= longest
                own = vectors[row, :size].float()
                found[text] = own / own.norm(dim=-1, keepdim=True), weights[row, :size].float()
        note(
            f"BERTScore: {{some}} of {{of}} texts are longer than the {longest} tokens that the "
            "model reads; their beginnings alone were compared",
            cut,
            len(ordered),
        )
        return found

    @staticmethod
    def _pair(answer: tuple[Any, Any], reference: tuple[Any, Any]) -> tuple[float, float, float]:
        (given, given_weight), (expected, expected_weight) = answer, reference
        alike = (given @ expected.T).clamp(min=0.0)
        shares = []
        for best, weight in (
            (alike.max(dim=1).values, given_weight),
            (alike.max(dim=0).values, expected_weight),
        ):
            total = float(weight.sum())  # 0 for a text of which the tokenizer leaves nothing
            shares.append(min(1.0, float((best * weight).sum()) / total) if total else 0.0)
        precision, recall = shares
        both = precision + recall
        return precision, recall, 2.0 * precision * recall / both if both else 0.0


@functools.lru_cache(maxsize=2)
def scorer(settings: BertSettings) -> PairScorer:
    """The scorer of some settings, loaded once.

    Raises:
        UsageError: bert-score is missing, or does not know the model's layers.
    """
    package = require("bert_score", "bertscore", "bertscore")
    if settings.num_layers is None:
        known = getattr(require("bert_score.utils", "bertscore", "bertscore"), "model2layers", {})
        if settings.model not in known:
            raise UsageError(
                f"BERTScore: bert-score does not know which layer of {settings.model} to compare; "
                f"say it, as in LMEVAL_ADAPTIVE_BERTSCORE={settings.model},num_layers=6"
            )
    try:
        found = package.BERTScorer(
            model_type=settings.model,
            num_layers=settings.num_layers,
            device=settings.device,
            batch_size=settings.batch_size,
        )
    except OSError as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(
            f"BERTScore: model {settings.model} does not load ({first}); "
            "offline, name a directory with LMEVAL_ADAPTIVE_BERTSCORE=DIR,num_layers=N"
        ) from error
    _bound_length(found)
    return PairScorer(found)


def _bound_length(found: Any) -> None:
    """Let the tokenizer cut where the model's positions end; a bare directory may not say."""
    tokenizer = getattr(found, "_tokenizer", None)
    config = getattr(getattr(found, "_model", None), "config", None)
    positions = getattr(config, "max_position_embeddings", None)
    if tokenizer is None or not isinstance(positions, int):
        return
    if getattr(config, "model_type", "") in ("roberta", "xlm-roberta", "camembert"):
        positions -= int(getattr(config, "pad_token_id", 1) or 0) + 1
    tokenizer.model_max_length = min(int(tokenizer.model_max_length), positions)


def english_only(model: str) -> bool:
    """Whether a model is known to read English alone, by its name.

    >>> english_only("roberta-large"), english_only("FacebookAI/xlm-roberta-large")
    (True, False)
    """
    return _ENGLISH.fullmatch(model.rpartition("/")[2].lower()) is not None


def _note_scripts(model: str, texts: Sequence[str]) -> None:
    if texts and english_only(model):
        note(
            f"BERTScore: {model} was trained on English, and {{some}} of {{of}} references are in "
            "another script: their scores say little; name another model with "
            "LMEVAL_ADAPTIVE_BERTSCORE, as bert-base-multilingual-cased",
            sum(not mostly_latin(text) for text in texts),
            len(texts),
        )


def pair_scores(pairs: Sequence[tuple[str, str]], settings: BertSettings) -> list[float]:
    """F1 of (answer, reference) pairs, asked in one batch; equal pairs are asked once."""
    unique = list(dict.fromkeys(pairs))
    if not unique:
        return []
    _, _, values = scorer(settings).score(
        [answer for answer, _ in unique],
        [reference for _, reference in unique],
        batch_size=settings.batch_size,
    )
    found = {
        pair: round(float(value), DECIMALS) for pair, value in zip(unique, values, strict=True)
    }
    return [found[pair] for pair in pairs]


def _best(
    cases: Sequence[Case], texts: Sequence[Sequence[str]], settings: BertSettings
) -> list[list[float]]:
    """F1 of each answer against each of its texts; a blank answer has 0 without a network."""
    pairs = [
        (case.answer, text)
        for case, mine in zip(cases, texts, strict=True)
        if case.answer.strip()
        for text in mine
    ]
    _note_scripts(settings.model, [text for mine in texts for text in mine])
    scores = iter(pair_scores(pairs, settings))
    return [
        [next(scores) if case.answer.strip() else 0.0 for _ in mine]
        for case, mine in zip(cases, texts, strict=True)
    ]


def f1(cases: Sequence[Case], settings: Mapping[str, Any]) -> list[float]:
    """BERTScore F1, not rescaled, the best over the references; a blank answer has 0."""
    found = _best(cases, [filled(case.references) for case in cases], bert_settings(settings))
    return [max(scores, default=NO_REFERENCE) for scores in found]


def differential(cases: Sequence[Case], settings: Mapping[str, Any]) -> list[float]:
    """(max F1 against right answers − max F1 against wrong ones + 1) / 2.

    0.5 says "no nearer to the truth than to a known error", which is what a blank answer gets.
    Missing where a document lists no right or no wrong answers.
    """
    right = [filled(case.references) for case in cases]
    wrong = [filled(case.incorrect) for case in cases]
    both = [[*mine, *others] for mine, others in zip(right, wrong, strict=True)]
    found = []
    for scores, mine in zip(_best(cases, both, bert_settings(settings)), right, strict=True):
        near, far = scores[: len(mine)], scores[len(mine) :]
        found.append(
            round((max(near) - max(far) + 1.0) / 2.0, DECIMALS + 1) if near and far else _ONE_SIDE
        )
    return found


def signature(name: str, settings: Mapping[str, Any]) -> str:
    """Model, layer and version."""
    own = bert_settings(settings)
    layer = "default" if own.num_layers is None else str(own.num_layers)
    return f"{name}|{own.model}|layer:{layer}|bert-score {version_of('bert-score')}"
