"""The judge's side of a build: checks what is asked for, finds objects, has compilers run, and keeps what they made.

- `Builder` -- one per judge.
- `Build` -- what one evaluation had built: the figures of its provenance.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelgym_env import settings
from kernelgym_env._version import __version__
from kernelgym_env.evaluation.building import flags, headers, installed
from kernelgym_env.evaluation.building.cache import Kept, ObjectCache
from kernelgym_env.evaluation.building.precompiled import Precompiled
from kernelgym_env.evaluation.sandbox.plan import on
from kernelgym_env.evaluation.workers import Zygote
from kernelgym_env.keeping import digest

__all__ = ["Build", "Builder"]

_log = logging.getLogger(__name__)
_SCHEMA = 1
_KINDS = ("cxx", "nvcc")
_MOST_UNITS = 16  # as many descriptors go with one message
_MOST_TEXT = 1 << 20
_RECENT = 32
_SLIM, _OUT, _HEADER = "slim", "object.o", "torch/extension.h"
_NAME = re.compile(r"[A-Za-z0-9_][\w.+-]{0,120}")
# what the same text gives differently at another time, or takes from files that are not in the key
_UNSTEADY = re.compile(r"__DATE__|__TIME(STAMP)?__")
_READS = re.compile(r"\.incbin|__has_include|__has_embed|#\s*embed")
_FIRST = re.compile(r"(?:\s|//[^\n]*\n|/\*.*?\*/)*#\s*include\s*<torch/extension\.h>", re.DOTALL)


class _Declined(Exception):
    """The request is out of the ordinary, and is built by torch itself."""


@dataclass
class Build:
    """What was built for one evaluation.

    Attributes:
        units: per translation unit ``name``, ``how`` (``cached``, ``slim``, ``slim precompiled``, ``full``, ``full
            precompiled``), ``seconds`` and ``ok``.
        fallbacks: how often slim headers did not suffice.
        declined: why builds were left to torch.
        prepared_s: seconds that went into headers precompiled for all to come.
    """

    units: list[dict[str, Any]] = field(default_factory=list)
    fallbacks: int = 0
    declined: list[str] = field(default_factory=list)
    prepared_s: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "units": self.units[:_MOST_UNITS],
            "fallbacks": self.fallbacks,
            "declined": self.declined[:8],
            "prepared_s": round(self.prepared_s, 3),
        }


@dataclass(frozen=True)
class _Unit:
    kind: str
    name: str
    text: str
    flags: tuple[str, ...]


class Builder:
    """Has extensions compiled.

    Args:
        zygote: forks the compiling processes.
        folder: for objects and precompiled headers; `settings.cache_dir` says where by default.
    """

    def __init__(self, zygote: Zygote, folder: Path | None = None) -> None:
        self.zygote = zygote
        folder = folder or settings.cache_dir() / "builds"
        self.cache = ObjectCache(folder / "objects")
        self.precompiled = Precompiled(zygote, folder / "headers")
        self._recent: OrderedDict[str, Kept] = OrderedDict()
        self._lock = threading.Lock()

    def build(self, request: object, seconds: float, build: Build) -> tuple[dict[str, Any], list[int], float]:
        """Objects for what a submission's process asks.

        Args:
            request: nothing in it is believed.
            seconds: until when.
            build: takes what was done.

        Returns:
            The answer; file descriptors, one for each unit that compiled, which the caller closes; seconds that do not
            count as the submission's.

        Raises:
            WorkerEnded: if a compiler took too long or too much.
        """
        try:
            units = [self._checked(unit) for unit in _listed(request)]
        except _Declined as declined:
            build.declined.append(str(declined))
            return {"declined": str(declined)}, [], 0.0
        before = self.precompiled.spent_s
        with ThreadPoolExecutor(max_workers=max(1, min(len(units), len(os.sched_getaffinity(0))))) as pool:
            done = list(pool.map(lambda unit: self._unit(unit, seconds), units))
        answers, fds = [], []
        for unit, (kept, code, how, took, fell_back) in zip(units, done, strict=True):
            build.units.append({"name": unit.name, "how": how, "seconds": round(took, 3), "ok": code == 0})
            build.fallbacks += fell_back
            answers.append({"code": code, "output": kept.output})
            if code == 0:
                fds.append(_sealed(kept.data))
        prepared = self.precompiled.spent_s - before
        build.prepared_s += prepared
        return {"units": answers}, fds, prepared

    # what is asked for

    def _checked(self, unit: object) -> _Unit:
        if not isinstance(unit, Mapping):
            raise _Declined("a unit in no known form")
        kind, name, text = (unit.get(key) for key in ("kind", "name", "text"))
        told, compiler = unit.get("flags"), unit.get("compiler")
        if kind not in _KINDS or not isinstance(name, str) or not _NAME.fullmatch(name):
            raise _Declined("a source of another kind or name")
        if not isinstance(text, str) or len(text) > _MOST_TEXT or "\0" in text:
            raise _Declined("a source that is no text, or too long a one")
        if not isinstance(told, list) or len(told) > 256 or not all(isinstance(flag, str) for flag in told):
            raise _Declined("flags in no known form")
        made = _Unit(str(kind), name, text, tuple(told))
        if not compiler or compiler != self._compiler(made):
            raise _Declined("another compiler")
        ccbin = os.environ.get("CC", "")
        if not flags.known(told, installed.folders(), ccbin=ccbin, nvcc=kind == "nvcc"):
            raise _Declined("flags that are not on the list")
        if _READS.search(text):
            raise _Declined("a source that looks at files")
        return made

    @staticmethod
    def _compiler(unit: _Unit) -> str:
        return installed.compilers()[unit.kind]

    @staticmethod
    def _slim(unit: _Unit) -> dict[str, str] | None:
        """Slim headers for a unit, None where it needs the full ones."""
        if headers.needs_full(unit.text):
            return None
        try:
            return headers.slim_headers(installed.include(), unit.text)
        except OSError as error:
            _log.warning("no slim headers: %s", error)
            return None

    # objects

    def _key(self, unit: _Unit) -> str:
        told = list(unit.flags)
        if "TORCH_EXTENSION_NAME" not in unit.text:  # torch's headers do not ask for it
            told = [flag for flag in told if not flag.startswith("-DTORCH_EXTENSION_NAME=")]
        return digest(
            {
                "schema": _SCHEMA,
                "package": __version__,
                "kind": unit.kind,
                "name": unit.name,
                "text": unit.text,
                "flags": told,
                "compiler": installed.identity(self._compiler(unit)),
                "host": installed.identity(installed.compilers()["cxx"]) if unit.kind == "nvcc" else [],
                "torch": installed.torch_identity(),
                "headers": headers.slim_headers(installed.include(), unit.text) if self._slim(unit) else {},
                "cpu": installed.cpu() if "native" in " ".join(told) else "",
            }
        )

    def _unit(self, unit: _Unit, seconds: float) -> tuple[Kept, int, str, float, bool]:
        start = time.perf_counter()
        key = self._key(unit)
        with self._lock:
            kept = self._recent.get(key)
        kept = kept or self.cache.find(key)
        if kept is not None:
            return kept, 0, "cached", time.perf_counter() - start, False
        kept, code, fell_back, lasting = self._compile(unit, seconds)
        if code == 0:
            with self._lock:
                self._recent[key] = kept
                while len(self._recent) > _RECENT:
                    self._recent.popitem(last=False)
            if lasting:
                self.cache.keep(key, kept)
        return kept, code, kept.how, time.perf_counter() - start, fell_back

    def _compile(self, unit: _Unit, seconds: float) -> tuple[Kept, int, bool, bool]:
        """The object and what the compiler said, its exit code, whether slim headers failed, whether to keep it."""
        slim = self._slim(unit)
        if slim is not None:
            files = {f"{_SLIM}/{path}": text for path, text in slim.items()}
            kept, code, lasting = self._run(unit, "slim", files, seconds)
            if code == 0:
                return kept, code, False, lasting
        kept, code, lasting = self._run(unit, "full", {}, seconds)
        return kept, code, slim is not None and code == 0, lasting

    def _run(self, unit: _Unit, kind: str, files: dict[str, str], seconds: float) -> tuple[Kept, int, bool]:
        choices, reads = [], []
        if unit.kind == "cxx" and _FIRST.match(unit.text):  # nothing may come before a precompiled header
            folder = self.precompiled.find(unit.flags, kind, self._compiler(unit))
            if folder is not None:
                choices.append(self._choice(unit, f"{kind} precompiled", str(folder), needs=[str(folder / _HEADER)]))
                reads.append(str(folder))
        choices.append(self._choice(unit, kind, _SLIM if files else ""))
        worker = self.zygote.fork({}, role="compile", reads=reads)
        try:
            told = worker.ask({"files": {unit.name: unit.text, **files}, "choices": choices}, seconds)
            code = int(told["code"])
            kept = Kept(_read(worker.folder / _OUT) if code == 0 else b"", str(told["output"]), str(told["name"]))
            confined = any(on(worker.isolation, layer) for layer in ("view", "landlock_files"))
            return kept, code, confined and not _UNSTEADY.search(unit.text)
        finally:
            worker.close()

    def _choice(self, unit: _Unit, name: str, folder: str = "", *, needs: list[str] | None = None) -> dict[str, Any]:
        first = ["-I", folder] if folder else []
        if folder and unit.kind == "cxx" and name.startswith("slim"):
            first.append("-Wfatal-errors")  # what is said then is not told
        command = [*self._compiler(unit).split(), *first, *unit.flags, "-c", unit.name, "-o", _OUT]
        return {"name": name, "command": command, "needs": needs or []}


def _listed(request: object) -> list[object]:
    units = request.get("units") if isinstance(request, Mapping) else None
    if not isinstance(units, list) or not 1 <= len(units) <= _MOST_UNITS:
        raise _Declined("a request in no known form")
    return units


def _read(path: Path) -> bytes:
    """A file that a compiler wrote, and nothing that a link leads to."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        return file.read()


def _sealed(data: bytes) -> int:
    """A descriptor with a copy of the bytes that nobody can change."""
    import fcntl

    fd = os.memfd_create("object", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    return fd
