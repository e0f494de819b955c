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
    if all(name in manager.all_tasks or _is_file_or_folder(name) for name in names):
        return manager
    return TaskManager(include_path=paths, metadata=dict(settings.metadata))


def _is_file_or_folder(name: str) -> bool:
    return name.endswith((".yaml", ".yml")) or Path(name).is_dir()


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
    """Task names, files, folders and patterns, in any mix, in the user's order and each once.

    As in the harness a name goes before a folder of that name, and a folder stands for the YAML
    files in it; those that are no task of their own (templates, groups) are passed over.

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
            _add(found, [_config_of(Path(file)) for file in files])
            continue
        matches = manager.match_tasks([task])
        if not matches and Path(task).is_dir():
            _add(found, _tasks_in(Path(task)))
            continue
        if not matches:
            near = difflib.get_close_matches(task, manager.all_tasks, n=3)
            hint = f"did you mean {', '.join(near)}?" if near else "`ls tasks` lists them"
            raise UsageError(f"no task {task!r}; {hint}")
        found.extend(match for match in matches if match not in found)
    if not found:
        raise UsageError("name a task with --tasks")
    return found


def _add(found: list[Any], configs: Sequence[dict[str, Any]]) -> None:
    """Add tasks of files that are not there yet: a folder and a pattern may name one twice."""
    there = {_source(each) for each in found if isinstance(each, dict)}
    found.extend(config for config in configs if _source(config) not in there)


def _source(config: dict[str, Any]) -> str:
    return str((config.get("metadata") or {}).get("config_source"))


def _config_of(file: Path) -> dict[str, Any]:
    """A task's configuration that says where it is from."""
    path = file.resolve()
    config = _task_file(path)
    metadata = dict(config.get("metadata") or {})
    config["metadata"] = {**metadata, "config_source": str(path)}
    return config


def _tasks_in(folder: Path) -> list[dict[str, Any]]:
    """The tasks whose YAML files lie in a folder.

    Raises:
        UsageError: There are none, or one cannot be read.
    """
    from lm_eval.tasks._yaml_loader import load_yaml

    found = []
    for file in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
        try:
            is_task = isinstance(load_yaml(str(file), resolve_func=False).get("task"), str)
        except Exception:  # noqa: BLE001  read as a task below, where the reason is told
            is_task = True
        if is_task:
            found.append(_config_of(file))
    if not found:
        raise UsageError(f"--tasks {folder}: the folder holds no YAML file of a task")
    return found
