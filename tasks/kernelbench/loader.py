"""KernelBench's problems as tasks, read from wherever the user keeps them.

``KERNELBENCH_DIR`` says where that is; without it, what `kernelgym tasks fetch kernelbench` brought is read.

- `build` -- a task from one problem's level, number, name and source.
- `load` -- a task by id.
- `tags_of` -- a problem's tags, known without its data.
- `problem_names` -- the problems' names as published.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from kernelgym_env.errors import MissingDataError
from kernelgym_env.settings import kernelbench_dir
from kernelgym_env.tasks import files
from kernelgym_env.tasks.kernelbench import categories, fetched, flaws, ids, rows
from kernelgym_env.tasks.model import Task
from kernelgym_env.tasks.source import normalise, summary

__all__ = ["build", "load", "problem_names", "tags_of"]

_HOW = (
    "Set KERNELBENCH_DIR to a checkout of KernelBench (github.com/ScalingIntelligence/KernelBench), to its KernelBench "
    "folder, or to a JSONL or Parquet file with one problem a row (level, problem_id, name, code); "
    "or run `kernelgym tasks fetch kernelbench`, which fetches levels 1 to 3 from the Hugging Face Hub."
)
_LEVEL_4 = "Level 4 is not in the data set on the Hugging Face Hub: it needs a checkout."


def build(level: int, number: int, name: str, source: str, origin: str) -> Task:
    """Return the task of one problem.

    Args:
        level: 1 to 4.
        number: the problem's number in its level, from 1.
        name: its name as published, e.g. ``19_ReLU``.
        source: its text.
        origin: where the text came from.

    Raises:
        InvalidOptionError: if the source does not fit the contract.
    """
    source = normalise(source)
    try:
        description = summary(source)
    except SyntaxError:
        description = ""  # Task says what is wrong with it
    task = Task(
        id=ids.make_id(level, number),
        source=source,
        title=ids.title(name),
        description=description,
        level=level,
        origin=origin,
        licence="MIT",
    )
    return dataclasses.replace(task, tags=tags_of(level, number, task.hash))


def tags_of(level: int, number: int, digest: str | None = None) -> tuple[str, ...]:
    """Return a problem's tags: the suite, its level, its category, its known flaws.

    Args:
        level: 1 to 4.
        number: the problem's number in its level.
        digest: `Task.hash` of its source, on which flaws depend; None for KernelBench's v0.2.

    >>> tags_of(1, 19)
    ('kernelbench', 'level1', 'activation', 'flaw-identity')
    """
    category = categories.category(level, number)
    return ("kernelbench", f"level{level}", *([category] if category else []), *flaws.flaw_tags(level, number, digest))


def load(task_id: str) -> Task:
    """Return the task with that id from the data at ``KERNELBENCH_DIR``, else from what was fetched.

    Raises:
        MissingDataError: if there is no data, or it lacks the problem; says how to get it.
        InvalidOptionError: if the data is malformed.
    """
    root, where = _data()
    if not root.is_dir():
        task = _in_tables((root,), task_id)
    elif tables := _tables(root):
        task = _in_tables(tables, task_id)
    else:
        task = _in_folder(root, task_id)
    if task is None:
        level, _ = ids.parse_id(task_id) or (0, 0)
        raise MissingDataError(f"{task_id} is not among the problems at {where}. {_LEVEL_4 if level == 4 else _HOW}")
    return task


def problem_names() -> dict[str, str]:
    """Return the problems' names as published, such as ``19_ReLU``, by task id, as far as the data has them.

    Raises:
        MissingDataError: if there is no data.
        InvalidOptionError: if the data is malformed.
    """
    root, _ = _data()
    if root.is_dir() and not (tables := _tables(root)):
        paths = [path for folder in (root / "KernelBench", root) for path in sorted(folder.glob("level*/*.py"))]
        found = [(path, problem) for path in paths if (problem := ids.from_path(path))]
        return {ids.make_id(level, number): name for _, (level, number, name) in found}
    index = _index(tables if root.is_dir() else (root,))
    return {task_id: str(row["name"]) for task_id, (row, _) in index.items() if row.get("name")}


def _data() -> tuple[Path, str]:
    """The file or folder with the data, and how to speak of it.

    Raises:
        MissingDataError: if there is none.
    """
    root = kernelbench_dir()
    if root is None:
        found = fetched.find()
        if found is None:
            raise MissingDataError(f"KernelBench's problems are not part of this package. {_HOW}")
        path, manifest = found
        return path, f"{path}, fetched from {manifest.dataset}"
    if not root.is_dir() and not (files.is_table(root) and root.is_file()):
        state = f"is neither a folder nor a {', '.join(files.TABLES)} file" if root.exists() else "does not exist"
        raise MissingDataError(
            f"KernelBench's problems were looked for at KERNELBENCH_DIR={root}, which {state}. {_HOW}"
        )
    return root, f"KERNELBENCH_DIR={root}"


def _tables(root: Path) -> tuple[Path, ...]:
    """The files with rows of a folder: one a level, in it or in ``data``, as the Hub has them."""
    found = [path for folder in (root, root / "data") for path in sorted(folder.glob("level_*"))]
    return tuple(path for path in found if files.is_table(path) and path.is_file())


def _in_folder(root: Path, task_id: str) -> Task | None:
    """Find a problem in a checkout or its ``KernelBench`` folder."""
    level, number = ids.parse_id(task_id) or (0, 0)
    for folder in (root / "KernelBench" / f"level{level}", root / f"level{level}"):
        for path in sorted(folder.glob(f"{number}_*.py")):
            return build(level, number, path.stem, files.read_source(path), str(path))
    return None


def _in_tables(paths: tuple[Path, ...], task_id: str) -> Task | None:
    row, path = _index(paths).get(task_id, ({}, None))
    if path is None:
        return None
    level, number = ids.parse_id(task_id) or (0, 0)
    return build(level, number, str(row.get("name") or ""), rows.row_source(row, f"{path}, {task_id}"), str(path))


def _index(paths: tuple[Path, ...]) -> dict[str, tuple[Mapping[str, Any], Path]]:
    """The rows of some files by task id, each with its file."""
    states = [path.stat() for path in paths]
    return _kept_index(
        tuple((path, state.st_mtime_ns, state.st_size) for path, state in zip(paths, states, strict=True))
    )


@lru_cache(maxsize=4)
def _kept_index(paths: tuple[tuple[Path, int, int], ...]) -> dict[str, tuple[Mapping[str, Any], Path]]:
    read = [(row, path) for path, _, _ in paths for row in files.read_rows(path)]
    where = " and ".join(str(path) for path, _, _ in paths)
    origin = {id(row): path for row, path in read}
    return {task_id: (row, origin[id(row)]) for task_id, row in rows.index((row for row, _ in read), where).items()}
