"""Whether a task's data may bring code of their own.

This module owns the check that stands before a data set is opened; it reaches into the one method
of the harness that opens them, so that groups, tags and included files are seen as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import TaskError

if TYPE_CHECKING:
    from collections.abc import Iterator


# Version of ``datasets`` from which data bring no code that runs.
NO_CODE_FROM = 4


def data_run_code() -> bool:
    """Whether the installed ``datasets`` would run a data set's own code."""
    import datasets

    return int(datasets.__version__.partition(".")[0]) < NO_CODE_FROM


@contextmanager
def remote_code_checked(*, trusted: bool) -> Iterator[None]:
    """Have tasks refuse, before their data are opened, to run code that comes with the data.

    From version 4 on ``datasets`` runs no such code, and the harness drops the wish: there is
    nothing to allow, and a task that names it loads as in a plain run.

    Args:
        trusted: Whether the user lets data sets run their code.

    Raises:
        TaskError: A task asks for ``trust_remote_code`` and nobody allowed it.
    """
    from lm_eval.api.task import ConfigurableTask

    if trusted or not data_run_code():
        yield
        return
    plain = ConfigurableTask.download

    def checked(task: Any, dataset_kwargs: Any = None, **more: Any) -> Any:
        for given in (dataset_kwargs, task.config.dataset_kwargs):
            if isinstance(given, Mapping) and given.get("trust_remote_code"):
                raise TaskError(
                    f"task {task.config.task} asks for trust_remote_code in its dataset_kwargs: "
                    "its data may bring code that runs here; add --trust_remote_code "
                    "(trust_remote_code=True) to allow it, or take the line out of the task"
                )
        return plain(task, dataset_kwargs, **more)

    ConfigurableTask.download = checked
    try:
        yield
    finally:
        ConfigurableTask.download = plain
