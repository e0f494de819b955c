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


@contextmanager
def remote_code_checked(*, trusted: bool) -> Iterator[None]:
    """Have tasks refuse, before their data are opened, to run code that comes with the data.

    A current ``datasets`` drops the wish and runs nothing, older ones run the code; what a task
    asks for decides, not what is installed.

    Args:
        trusted: Whether the user lets data sets run their code.

    Raises:
        TaskError: A task asks for ``trust_remote_code`` and nobody allowed it.
    """
    from lm_eval.api.task import ConfigurableTask

    if trusted:
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
