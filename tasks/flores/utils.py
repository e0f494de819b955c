"""Documents and metrics of the task ``flores_tr_en``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import DataError
from lm_eval_adaptive.metrics import document_metrics

if TYPE_CHECKING:
    from datasets import DatasetDict

DATASET = "openlanguagedata/flores_plus"
LANGUAGES = ("tur_Latn", "eng_Latn")
SPLIT = "devtest"

process_results = document_metrics(
    "sentence_bleu",
    "comet",
    reference="sentence_eng_Latn",
    source="sentence_tur_Latn",
    settings=Path(__file__).with_name("flores_tr_en.yaml"),
)


def _from_release(folder: Path) -> dict[str, dict[int, str]]:
    """Sentences of the FLORES-200 release as Meta packed it: a text file per language."""
    found = {}
    for language in LANGUAGES:
        path = folder / SPLIT / f"{language}.{SPLIT}"
        if not path.is_file():
            raise DataError(
                f"LMEVAL_ADAPTIVE_FLORES_DIR={folder}: no {SPLIT}/{path.name} in it; name the "
                "unpacked folder flores200_dataset"
            )
        lines = path.read_text(encoding="utf-8").splitlines()
        found[language] = dict(enumerate(lines, start=1))
    return found


def _from_hub() -> dict[str, dict[int, str]]:
    import datasets

    found = {}
    for language in LANGUAGES:
        rows = datasets.load_dataset(DATASET, language, split=SPLIT)
        found[language] = {int(row["id"]): row["text"] for row in rows}
    return found


def join(sentences: dict[str, dict[int, str]]) -> list[dict[str, Any]]:
    """Documents with the column names of FLORES-200, in the order of the ids."""
    source, target = (sentences[language] for language in LANGUAGES)
    if source.keys() != target.keys():
        raise DataError(
            f"FLORES {SPLIT}: {len(source.keys() ^ target.keys())} sentence ids are in one of "
            f"{' and '.join(LANGUAGES)} only; use one release for both"
        )
    return [
        {
            "id": number,
            "sentence_tur_Latn": source[number],
            "sentence_eng_Latn": target[number],
        }
        for number in sorted(source)
    ]


def load(**_: Any) -> DatasetDict:
    """The split ``devtest``: from ``LMEVAL_ADAPTIVE_FLORES_DIR`` if set, else from the hub.

    The harness passes the task's metadata, which is of no use here.
    """
    import datasets

    folder = os.environ.get("LMEVAL_ADAPTIVE_FLORES_DIR", "").strip()
    sentences = _from_release(Path(folder).expanduser()) if folder else _from_hub()
    return datasets.DatasetDict({SPLIT: datasets.Dataset.from_list(join(sentences))})
