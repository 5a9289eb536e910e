"""From what a user names to tasks.

- `load_tasks` -- every task of a suite, a file, a folder or a text.
- `load_task` -- exactly one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelgym_env.errors import InvalidOptionError, MissingDataError, unknown_name
from kernelgym_env.tasks import files, registry
from kernelgym_env.tasks.kernelbench import ids, loader, rows
from kernelgym_env.tasks.model import ENV_VERSION, Task
from kernelgym_env.tasks.source import normalise, summary

__all__ = ["load_task", "load_tasks"]

_FIELDS = tuple(field.name for field in dataclasses.fields(Task))
_LATER_FIELDS = {"input_laws", "shapes"}
"""Fields that rows written by an earlier version lack."""
_LEVEL_DIGITS = 9


def load_tasks(spec: str | Path | Task) -> list[Task]:
    """Return all tasks that `spec` stands for, in order.

    Args:
        spec: one of the following, the first that fits.

            - a `Task`: itself.
            - the source of a reference: a text of several lines.
            - a suite or a part of one: ``core``, ``kernelbench``, ``KernelBench/L1``.
            - a suite's task id, with or without ``-v0``.
            - a path to a ``.py`` file with one reference; a ``.jsonl``, ``.jsonl.gz`` or ``.parquet`` file with one a
              row (under ``code``, ``source`` or ``ref_code``); or a folder, whose ``.py`` files that hold a reference
              are taken at any depth, the others left out.
            - a path, ``#`` and the id of one task in that file or folder.

            A file named like a suite is meant by a path with a slash, ``./core``.

    Returns:
        At least one task, ids unique. Problems of KernelBench get their ids in it wherever they are read from; other
        files ``File/<name>``, a text ``Text/<start of its hash>``.

    Raises:
        UnknownNameError: for a name that is nothing of all this, with what may have been meant.
        InvalidOptionError: for content that does not fit the task contract.
        MissingDataError: for data that is not on this machine.
    """
    if isinstance(spec, Task):
        return [spec]
    if isinstance(spec, Path):
        return _from_path(spec)
    if not isinstance(spec, str):
        raise InvalidOptionError(f"A task is given as an id, a path, a text or a Task, got {type(spec).__name__}.")
    if "\n" in spec or "\r" in spec:
        return [_from_text(spec)]
    if registry.is_suite(spec):
        return [registry.find_task(task_id) for task_id in registry.task_ids(spec)]
    if registry.is_task_id(spec):
        return [registry.find_task(spec)]
    path = Path(spec).expanduser()
    if spec.strip() and _exists(path):
        return _from_path(path)
    holder, mark, task_id = spec.rpartition("#")
    if mark and holder:
        return [_selected(Path(holder).expanduser(), task_id)]
    if _looks_like_path(spec):
        raise MissingDataError(f"There is no file or folder {spec!r} to read tasks from.")
    return [registry.find_task(spec)]


def load_task(spec: str | Path | Task) -> Task:
    """Return the one task that `spec` stands for, see `load_tasks`.

    Raises:
        InvalidOptionError: if it stands for several; the error says how to name one.
        UnknownNameError: see `load_tasks`.
        MissingDataError: see `load_tasks`.

    >>> load_task("KernelGym/RowSoftmax-v0").id
    'KernelGym/RowSoftmax'
    """
    if isinstance(spec, str) and registry.is_suite(spec):
        listed, one = registry.task_ids(spec), "its id"
    else:
        tasks = load_tasks(spec)
        if len(tasks) == 1:
            return tasks[0]
        listed, one = [task.id for task in tasks], f"{str(spec) + '#' + tasks[0].id!r}"
    raise InvalidOptionError(
        f"{str(spec)!r} stands for {len(listed)} tasks ({', '.join(listed[:3])}, …), and one is needed. Name one by "
        f"{one}, or take all with load_tasks."
    )


def _from_text(source: str) -> Task:
    source = normalise(source)
    digest = hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return _described(f"Text/{digest}", "", source, "a source text")


def _from_path(path: Path) -> list[Task]:
    """The tasks of a file or folder."""
    if not _exists(path):
        raise MissingDataError(f"There is no file or folder {str(path)!r} to read tasks from.")
    if path.is_dir():
        return _from_folder(path)
    if files.is_table(path):
        return _from_rows(path)
    if path.suffix == ".py":
        return [_from_file(path, path.name)]
    raise InvalidOptionError(f"{path} is not a kind of task file: needs .py, {', '.join(files.TABLES)} or a folder.")


def _from_file(path: Path, name: str) -> Task:
    """The task of a Python file; `name` is its path as far as its id should tell it."""
    source = files.read_source(path)
    problem = ids.from_path(path.absolute())
    if problem:
        return loader.build(*problem, source, str(path))
    return _described(f"File/{_word(name.removesuffix('.py'))}", path.stem.replace("_", " "), source, str(path))


def _from_folder(folder: Path) -> list[Task]:
    if (folder / "KernelBench" / "level1").is_dir():
        folder = folder / "KernelBench"  # a checkout; its prompts and tests hold references too
    found: list[Task] = []
    unfit: list[str] = []
    for path in files.python_files(folder):
        try:
            found.append(_from_file(path, path.relative_to(folder).as_posix()))
        except InvalidOptionError as error:
            unfit.append(str(error))
    if not found:
        why = (
            f" {len(unfit)} Python files were looked at; the first: {unfit[0]}" if unfit else " It has no Python files."
        )
        raise InvalidOptionError(f"No file below {folder} holds a task.{why}")
    return _unique(found, folder)


def _from_rows(path: Path) -> list[Task]:
    found = files.read_rows(path)
    if not found:
        raise InvalidOptionError(f"{path} has no rows.")
    stem = path.name.lower().removesuffix(".gz").removesuffix(".jsonl").removesuffix(".parquet")
    return _unique([_from_row(row, path, f"{stem}-{index:03d}") for index, row in enumerate(found, start=1)], path)


def _from_row(row: Mapping[str, Any], path: Path, fallback: str) -> Task:
    """The task of a row; `fallback` names one that has neither id nor name."""
    if row.keys() >= set(_FIELDS) - _LATER_FIELDS:
        return Task.from_dict({name: row[name] for name in _FIELDS if name in row})  # as `Task.to_dict` writes it
    source = rows.row_source(row, f"{path}, {fallback}")
    stated = row.get("id")
    problem = rows.row_problem(row)
    name = str(row.get("name") or "")
    if problem and stated is None:
        return loader.build(*problem, name, source, str(path))
    if stated is None and isinstance(row.get("task_id"), str):
        stated = row["task_id"]
    task_id = str(stated if stated is not None else name or fallback)
    if "/" not in task_id:
        task_id = f"File/{_word(task_id)}"
    level = problem[0] if problem else _level(row.get("level"), f"{path}, {task_id}")
    task = _described(task_id, ids.title(name), source, str(path), level)
    if not isinstance(row.get("source"), str) or (row.get("id") is None and not row.keys() & {"sizes", "shapes"}):
        return task
    # in the words of `Task`, so whatever else it says in these is meant: a size that is lost makes another task
    given = {name: row[name] for name in _FIELDS if row.get(name) is not None}
    return dataclasses.replace(task, **{**given, "id": task_id, "source": source, "level": level})


def _level(value: object, where: str) -> int:
    """The level that a row states: a number, or digits with or without ``level`` before them; 0 if it states none."""
    if value is None or value == "":
        return 0
    digits = value.strip().removeprefix("level") if isinstance(value, str) else ""
    if digits.isdecimal() and len(digits) <= _LEVEL_DIGITS:
        return int(digits)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidOptionError(
            f"{where}: the level must be an integer of at least 0, such as 2, got {value!r:.200}. "
            "Leave it out for none."
        )
    return value


def _described(task_id: str, title: str, source: str, origin: str, level: int = 0) -> Task:
    """A task whose description is the first line of its docstring."""
    source = normalise(source)
    try:
        description = summary(source)
    except SyntaxError:
        description = ""  # Task says what is wrong with it
    return Task(id=task_id, source=source, title=title, description=description, level=level, origin=origin)


def _selected(path: Path, task_id: str) -> Task:
    """One task of a file or folder by its id."""
    tasks = {task.id: task for task in _from_path(path)}
    bare = task_id.removesuffix(ENV_VERSION)
    if bare not in tasks:
        see = f"`kernelgym tasks --suite {shlex.quote(str(path))}` lists the ids."
        raise unknown_name(f"task id in {path}:", task_id, tasks, see=see)
    return tasks[bare]


def _unique(tasks: list[Task], where: Path) -> list[Task]:
    seen: dict[str, Task] = {}
    for task in tasks:
        if seen.setdefault(task.id, task) is not task:
            raise InvalidOptionError(f"{where} has more than one task with the id {task.id!r}.")
    return tasks


def _word(text: str) -> str:
    """`text` in the characters of an id: folders joined by dots, other characters by hyphens, no version at the end."""
    word = re.sub(r"[^\w.-]+", "-", text.replace("/", ".")).strip("-.") or "task"
    return re.sub(r"-v(\d+)$", r"_v\1", word)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # too long for a name, or with a null byte
        return False


def _looks_like_path(spec: str) -> bool:
    return spec.startswith((".", "/", "~")) or spec.endswith((".py", ".gz", *files.TABLES)) or spec.count("/") > 1
