"""Where tasks are found: this package's own, the user's folders and files, the harness's.

This module owns the way from ``--tasks`` and ``--include_path`` to the harness's task manager; what
a task then serves is ``host.task``'s business.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import TaskError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lm_eval_adaptive.host.settings import HarnessSettings


def tasks_folder() -> Path:
    """Where this package's own tasks are: inside the wheel, or beside a source checkout."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "tasks"
    return installed if installed.is_dir() else package.parent / "tasks"


def include_paths(include_path: Any) -> list[str]:
    """Folders to look for tasks in: this package's, then the user's, which take precedence."""
    if not include_path:
        return [str(tasks_folder())]
    given = include_path if isinstance(include_path, list | tuple) else [include_path]
    return [str(tasks_folder()), *(str(each) for each in given)]


def make_task_manager(settings: HarnessSettings) -> Any:
    """A task manager that knows the named tasks.

    Reading the harness's own thousands of task files takes seconds, so they are read only when a
    name is not found in this package's and the user's folders.
    """
    from lm_eval.tasks import TaskManager

    paths = include_paths(settings.include_path)
    for path in paths:
        if not Path(path).exists():
            raise UsageError(f"--include_path {path}: no such folder")
    names = [task for task in settings.tasks if isinstance(task, str)]
    manager = TaskManager(
        include_path=paths, include_defaults=False, metadata=dict(settings.metadata)
    )
    if all(name in manager.all_tasks or name.endswith((".yaml", ".yml")) for name in names):
        return manager
    return TaskManager(include_path=paths, metadata=dict(settings.metadata))


def _task_file(path: Path) -> dict[str, Any]:
    """The configuration that a task's YAML file holds.

    Raises:
        TaskError: It cannot be read, or the Python that it names cannot be imported.
    """
    from lm_eval.tasks._yaml_loader import load_yaml

    try:
        config: dict[str, Any] = load_yaml(str(path), resolve_func=True)
    except Exception as error:  # a task's own code may raise anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise TaskError(
            f"task file {path} cannot be read ({type(error).__name__}: {reason[:300]}); mend it, "
            "or the Python file beside it"
        ) from error
    if not isinstance(config.get("task"), str | list):
        raise TaskError(f"task file {path} names no task: expected a line `task: NAME`")
    return config


def resolve_tasks(manager: Any, tasks: Sequence[Any]) -> list[Any]:
    """Task names, files and patterns as a list of single tasks, in the user's order.

    Raises:
        UsageError: A name is unknown; the message names near ones.
    """
    import difflib
    from glob import glob

    found: list[Any] = []
    for task in tasks:
        if not isinstance(task, str):
            found.append(task)
            continue
        if task.endswith((".yaml", ".yml")):
            files = sorted(glob(task))  # noqa: PTH207  a pattern may be absolute
            if not files:
                raise UsageError(f"no task file {task}")
            for file in files:
                config = _task_file(Path(file).resolve())
                metadata = dict(config.get("metadata") or {})
                config["metadata"] = {**metadata, "config_source": str(Path(file).resolve())}
                found.append(config)
            continue
        matches = manager.match_tasks([task])
        if not matches:
            near = difflib.get_close_matches(task, manager.all_tasks, n=3)
            hint = f"did you mean {', '.join(near)}?" if near else "`ls tasks` lists them"
            raise UsageError(f"no task {task!r}; {hint}")
        found.extend(match for match in matches if match not in found)
    if not found:
        raise UsageError("name a task with --tasks")
    return found
