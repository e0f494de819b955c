"""Scores that name documents by their number in the task, joined to the documents themselves.

A leaderboard's table, and logs without their documents, know a document by its ``doc_id`` alone. A
bank names its items by content, so that an edited document is noticed; the task tells the content.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lm_eval_adaptive.core.matrix import ScoreMatrix
from lm_eval_adaptive.errors import AdaptiveError, DataError
from lm_eval_adaptive.host.find_tasks import make_task_manager, resolve_tasks
from lm_eval_adaptive.host.settings import DEFAULT_SEEDS, HarnessSettings
from lm_eval_adaptive.host.task import PromptSettings, open_documents

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lm_eval_adaptive.banks.options import CalibrateOptions


def by_documents(matrix: ScoreMatrix, options: CalibrateOptions, where: str) -> ScoreMatrix:
    """The matrix with its items named by the content of the task's documents.

    Args:
        matrix: Scores, with the attribute ``doc_id``.
        options: Which task, and where to look for it.
        where: The file, for messages.

    Raises:
        DataError: The task does not load, or has no such documents.
    """
    keys = _keys_of(options, where)
    attributes = matrix.item_attributes or {}
    doc_ids = [int(each) for each in attributes["doc_id"]]
    beyond = [each for each in doc_ids if each >= len(keys)]
    if beyond:
        raise DataError(
            f"{where}: doc_id {beyond[0]} is not among the {len(keys)} documents of task "
            f"{options.task} (0 to {len(keys) - 1}); the scores are of another version or split"
        )
    items = [keys[each] for each in doc_ids]
    hashes = np.array([key.partition("#")[0] for key in items], dtype=object)
    told = (
        f"documents were named by doc_id and joined to those of task {options.task} as it is now; "
        "whether they were edited since cannot be seen"
    )
    if len(items) < len(keys):
        told += f"; {len(keys) - len(items)} of {len(keys)} documents have no score"
    return ScoreMatrix(
        matrix.models,
        tuple(items),
        matrix.scores,
        {**attributes, "content_hash": hashes},
        matrix.groups,
        (*matrix.notices, told),
    )


def _keys_of(options: CalibrateOptions, where: str) -> Sequence[str]:
    """The names of the task's documents, by doc_id."""
    settings = HarnessSettings(tasks=(options.task,), include_path=options.include_path or None)
    try:
        manager = make_task_manager(settings)
        names = resolve_tasks(manager, [options.task])
        found = open_documents(manager, names, DEFAULT_SEEDS, PromptSettings())
    except AdaptiveError as error:
        raise DataError(
            f"{where}: names documents by doc_id alone, and task {options.task} is needed for "
            f"their content: {error}"
        ) from error
    if len(found) != 1:
        parts = ", ".join(each.name for each in found)
        raise DataError(
            f"{where}: --task {options.task} is a group ({parts}), and a doc_id is of one task; "
            "name it"
        )
    keys: Sequence[str] = found[0].seen_keys
    return keys
