"""Tasks with a kernel for each, from data sets of pairs of module and kernel.

Such data sets do not come with the package; give the path of a file of theirs. Nothing is run: whether a kernel is
right is for `kernelgym_env.score` to say, in its sandbox.

- `read_pairs` -- the pairs of a file.
- `Pair`, `Pairs` -- a task with its kernel; what a file held.
- `COLUMNS` -- names of columns that are known.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgym_env.errors import InvalidOptionError, KernelGymError, MissingDataError
from kernelgym_env.tasks import files
from kernelgym_env.tasks.kernelbench import loader
from kernelgym_env.tasks.kernelbench.rows import row_problem
from kernelgym_env.tasks.model import Task
from kernelgym_env.tasks.source import normalise

__all__ = ["COLUMNS", "Pair", "Pairs", "read_pairs"]

COLUMNS = (
    ("python_code", "triton_code"),  # KernelBook
    ("pytorch_code", "final_triton_code"),
    ("ref_code", "custom_code"),  # CUDA-L1
    ("reference", "kernel"),
)
"""Columns of module and kernel that are looked for, in this order."""

_NAME_COLUMNS = ("name", "module_name", "sample_key", "uuid")
_PLAIN_INIT = """

class {name}({base}):
    pass
"""
_SPLIT_INIT = """

class {name}({base}):
    def __init__(self, positional, named):
        super().__init__(*positional, **named)
"""


@dataclass(frozen=True)
class Pair:
    """A task and a kernel for it.

    Attributes:
        task: the module, in KernelBench's contract.
        source: the kernel, with ``class ModelNew``. It is as right as the data set is.
    """

    task: Task
    source: str


@dataclass(frozen=True)
class Pairs:
    """What a file held.

    Attributes:
        pairs: in order.
        refused: numbers of the rows, from 1, that are no pair, each with the reason.
    """

    pairs: tuple[Pair, ...]
    refused: Mapping[int, str]

    def __iter__(self) -> Iterator[Pair]:
        return iter(self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)


def read_pairs(
    path: str | Path, *, reference: str = "", kernel: str = "", entry: str = "entry_point", namespace: str = "Pairs"
) -> Pairs:
    """Read a file with a module and a kernel a row.

    A module that is not called ``Model``, or a kernel that is not called ``ModelNew``, gets a subclass of that name.
    Where ``get_init_inputs`` returns a list of positional and a dict of named arguments, as in KernelBook, the subclass
    takes these two.

    Args:
        path: a ``.jsonl``, ``.jsonl.gz`` or ``.parquet`` file.
        reference: column of the module; ``""`` looks for `COLUMNS`.
        kernel: column of the kernel; both are given, or none.
        entry: column with the name of the module's class, where it is not ``Model``. The kernel's class is then called
            the same with ``New`` behind it.
        namespace: of the ids of tasks; rows with level and number of a problem of KernelBench have its id.

    Raises:
        InvalidOptionError: if no row has such columns, or the file is not what its name says.
        MissingDataError: if there is no such file.
    """
    where = Path(path).expanduser()
    if not where.is_file():
        raise MissingDataError(f"There is no file {str(where)!r} to read pairs from.")
    if not files.is_table(where):
        raise InvalidOptionError(f"{where} is no file of pairs: needs {', '.join(files.TABLES)}.")
    rows = files.read_rows(where)
    columns = _columns(rows, reference, kernel, where)
    pairs: dict[str, Pair] = {}
    refused: dict[int, str] = {}
    for number, row in enumerate(rows, start=1):
        try:
            pair = _pair(row, number, columns, entry, namespace, str(where))
        except KernelGymError as error:
            refused[number] = str(error)
            continue
        if pair.task.id in pairs:
            refused[number] = f"{pair.task.id} has come before."
        else:
            pairs[pair.task.id] = pair
    return Pairs(tuple(pairs.values()), refused)


def _columns(rows: tuple[Mapping[str, Any], ...], reference: str, kernel: str, where: Path) -> tuple[str, str]:
    if bool(reference) != bool(kernel):
        raise InvalidOptionError(
            f"reference and kernel name a column each, got reference={reference!r} and kernel={kernel!r}. Give both, "
            "or none to have known ones looked for."
        )
    wanted = ((reference, kernel),) if reference else COLUMNS
    has = {name for row in rows for name in row}
    for pair in wanted:
        if has.issuperset(pair):
            return pair
    looked = "; ".join(" and ".join(pair) for pair in wanted)
    raise InvalidOptionError(
        f"{where} has no columns {looked}. It has: {', '.join(sorted(has)) or 'no rows'}. Name the columns with "
        "reference and kernel."
    )


def _pair(
    row: Mapping[str, Any], number: int, columns: tuple[str, str], entry: str, namespace: str, where: str
) -> Pair:
    texts = []
    for column in columns:
        if not isinstance(row.get(column), str) or not row[column].strip():
            raise InvalidOptionError(f"{column} must be a source text, got {type(row.get(column)).__name__}.")
        texts.append(normalise(row[column]))
    name = row.get(entry)
    name = name if isinstance(name, str) and name.isidentifier() else ""
    module, trees = texts[0], [_parsed(text, column) for text, column in zip(texts, columns, strict=True)]
    subclass = _SPLIT_INIT if _splits(trees[0]) else _PLAIN_INIT
    module += _named(trees[0], "Model", name, subclass, columns[0])
    source = texts[1] + _named(trees[1], "ModelNew", f"{name}New" if name else "", subclass, columns[1])
    return Pair(_task(row, number, module, namespace, where), source)


def _parsed(text: str, column: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidOptionError(f"{column} is not Python: {error}.") from error


def _named(tree: ast.Module, wanted: str, known: str, subclass: str, column: str) -> str:
    """What to add to a text so that it has the class that is wanted."""
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    if wanted in classes:
        return ""
    if known not in classes:
        told = f" or {known}" if known else ""
        raise InvalidOptionError(f"{column} has no class {wanted}{told}; it has {', '.join(classes) or 'none'}.")
    return subclass.format(name=wanted, base=known)


def _splits(tree: ast.Module) -> bool:
    """Whether `get_init_inputs` returns a list with a list and a dict."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "get_init_inputs":
            returned = [item.value for item in ast.walk(node) if isinstance(item, ast.Return)]
            return any(
                isinstance(value, ast.List)
                and len(value.elts) == 2
                and isinstance(value.elts[0], ast.List)
                and isinstance(value.elts[1], ast.Dict)
                for value in returned
            )
    return False


def _task(row: Mapping[str, Any], number: int, module: str, namespace: str, where: str) -> Task:
    problem = row_problem(row)
    name = next((str(row[column]) for column in _NAME_COLUMNS if row.get(column)), "")
    if problem:
        return loader.build(*problem, name, module, where)
    word = re.sub(r"[^\w.-]+", "-", name, flags=re.ASCII).strip("-.")
    title = name.replace("_", " ")
    licences = row.get("licenses", row.get("license", ""))
    return Task(
        id=f"{namespace}/{number:05d}" + (f"-{word}" if word and not re.fullmatch(r".*v\d+", word) else ""),
        source=module,
        title=title,
        tags=("pair",),
        origin=f"{where}, row {number}",
        licence=", ".join(map(str, licences)) if isinstance(licences, list) else str(licences),
    )
