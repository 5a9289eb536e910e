"""Red-team cases on disk: a folder with ``case.toml``, ``task.py`` and ``submission.py``, at times ``honest.py``.

- `RedTeamCase` -- one case, read in full, so that what a submission does to its files changes nothing.
- `read_case`, `find_cases` -- from one folder, and all below a folder.
- `EXPECTS` -- what a case may demand of a judge.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from kernelgym_env.errors import InvalidOptionError, MissingDataError, unknown_name
from kernelgym_env.tasks import Task

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]

__all__ = ["EXPECTS", "RedTeamCase", "find_cases", "read_case"]

EXPECTS = ("accept", "reject", "policy", "contain")
"""``accept`` an honest kernel; ``reject`` no credit; ``policy`` right values, but not by an own kernel; ``contain`` the
kernel may be right, the trick must gain nothing and touch nothing."""

_DEVICES = ("any", "cpu", "cuda")
_LANGUAGES = ("torch", "triton", "cpp", "cuda", "cupy")
_TEXTS = ("id", "title", "device", "language", "expect", "class", "why")
_SCALE = "SCALE"


@dataclass(frozen=True)
class RedTeamCase:
    """One case.

    Attributes:
        folder: where it lies.
        id: the hack catalogue's id, with a letter behind it where several cases share one; ``H…`` for an honest kernel.
        title: a few words.
        device: ``any`` (on the CPU Triton runs in its interpreter), ``cpu`` or ``cuda``.
        language: of the submission: ``torch``, ``triton``, ``cpp``, ``cuda`` or ``cupy``.
        expect: one of `EXPECTS`.
        kind: class of the hack, e.g. ``timer``; ``honest`` for an honest kernel.
        why: how it works, or what is falsely said against it.
        max_speedup: speedup that the kernel of a ``contain`` case deserves; None where it is to be measured.
        task_source: the reference, in KernelBench's form.
        source: the submission.
        honest: the same kernel without the trick, ``""`` where the case has none.
    """

    folder: Path
    id: str
    title: str
    device: str
    language: str
    expect: str
    kind: str
    why: str
    max_speedup: float | None = None
    task_source: str = field(default="", repr=False)
    source: str = field(default="", repr=False)
    honest: str = field(default="", repr=False)

    @property
    def name(self) -> str:
        """The folder's name, unique in a set of cases."""
        return self.folder.name

    def task(self, scale: int = 1) -> Task:
        """The task, with its constant ``SCALE`` rewritten where it has one."""
        task = Task("RedTeam/" + re.sub(r"[^\w.-]", "_", self.name), self.task_source, origin=self.title)
        return task.with_sizes({_SCALE: scale}) if scale != 1 and _SCALE in task.constants() else task

    def why_not(self, kind: str) -> str:
        """Why this machine cannot run the case on a ``cpu`` or ``cuda`` device, or ``""``."""
        if self.device not in ("any", kind):
            return f"needs a {self.device} device"
        if self.language == "cpp" and not shutil.which("g++"):
            return "needs g++"
        if self.language in ("triton", "cupy") and importlib.util.find_spec(self.language) is None:
            return f"needs {self.language}"
        return ""


def read_case(folder: str | Path) -> RedTeamCase:
    """Read one case.

    Raises:
        MissingDataError: if the folder lacks a file.
        InvalidOptionError: if ``case.toml`` is not TOML, lacks a key or has one that does not fit.
        UnknownNameError: if ``expect``, ``device`` or ``language`` is none of the allowed names.
    """
    folder = Path(folder)
    texts = {name: _read(folder / name) for name in ("case.toml", "task.py", "submission.py")}
    try:
        data: Mapping[str, Any] = tomllib.loads(texts["case.toml"])
    except tomllib.TOMLDecodeError as error:
        raise InvalidOptionError(f"{folder / 'case.toml'} is not TOML: {error}.") from error
    absent = [name for name in _TEXTS if not isinstance(data.get(name), str)]
    if absent:
        raise InvalidOptionError(
            f"{folder / 'case.toml'} lacks {', '.join(absent)}. A case has the texts {', '.join(_TEXTS)}."
        )
    for name, allowed in (("expect", EXPECTS), ("device", _DEVICES), ("language", _LANGUAGES)):
        if data[name] not in allowed:
            raise unknown_name(f"{name} of case {folder.name!r}", data[name], allowed)
    bound = data.get("max_speedup")
    if bound is not None and (isinstance(bound, bool) or not isinstance(bound, (int, float)) or bound <= 0):
        raise InvalidOptionError(f"max_speedup of case {folder.name!r} must be a number above 0, got {bound!r}.")
    honest = folder / "honest.py"
    return RedTeamCase(
        folder=folder,
        **{name: data[name] for name in _TEXTS if name != "class"},
        kind=data["class"],
        max_speedup=bound,
        task_source=texts["task.py"],
        source=texts["submission.py"],
        honest=_read(honest) if honest.exists() else "",
    )


def find_cases(folder: str | Path, only: Iterable[str] = ()) -> list[RedTeamCase]:
    """Read a case, or all cases that lie in a folder, sorted by name.

    Args:
        folder: a case's own folder, or the one above.
        only: patterns such as ``C*``; a case is kept if one matches its id or its folder's name. None keep all.

    Raises:
        MissingDataError: if there is no case.
        InvalidOptionError: if no case matches.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise MissingDataError(f"There is no folder {str(folder)!r}. Give one that holds red-team cases.")
    found = [folder] if (folder / "case.toml").exists() else sorted(path.parent for path in folder.glob("*/case.toml"))
    if not found:
        raise MissingDataError(
            f"The folder {str(folder)!r} holds no red-team case: a case is a folder with case.toml, task.py and "
            f"submission.py."
        )
    cases = [read_case(path.resolve()) for path in found]
    patterns = list(only)
    kept = [
        case
        for case in cases
        if not patterns or any(fnmatch(name, pattern) for name in (case.id, case.name) for pattern in patterns)
    ]
    if not kept:
        raise InvalidOptionError(
            f"No case of {str(folder)!r} matches {' or '.join(map(repr, patterns))}. Ids: "
            f"{', '.join(case.id for case in cases)}."
        )
    return kept


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise MissingDataError(
            f"The red-team case {path.parent.name!r} lacks {path.name}. A case has case.toml, task.py and "
            f"submission.py."
        ) from error
