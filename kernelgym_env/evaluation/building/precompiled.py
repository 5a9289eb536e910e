"""Precompiled headers for the C++ side of extensions: made once on a machine, and only ever read by compilers.

There are two kinds: of slim headers, and of torch's own, for what does not compile with those and for the messages of
sources that do not compile at all. One is made by a compiling process of the judge's, from headers alone, and put in
place by the judge. It serves units with the same flags whose first line includes ``torch/extension.h``, as
`load_inline` writes them.

- `Precompiled` -- find one, or have it made.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from kernelgym_env.evaluation.building import flags as known_flags
from kernelgym_env.evaluation.building import headers, installed
from kernelgym_env.evaluation.sandbox.plan import on
from kernelgym_env.evaluation.sandbox.warden import SandboxError
from kernelgym_env.evaluation.workers import WorkerEnded, Zygote, ZygoteError
from kernelgym_env.keeping import digest, replacing

__all__ = ["Precompiled"]

_log = logging.getLogger(__name__)
_HEADER = "torch/extension.h"
_LEVELS = {"-O2", "-O3"}  # those of the full headers are twice as large, and used when something fails
_MAKE_S = 300.0
_MOST = 16
_ROOM_BYTES = 4 << 30
_OUT = "header.gch"


class Precompiled:
    """Precompiled headers below a folder.

    Args:
        zygote: forks the compiling processes.
        folder: made when it is needed.

    Attributes:
        spent_s: wall seconds that went into making some.
    """

    def __init__(self, zygote: Zygote, folder: Path) -> None:
        self.zygote = zygote
        self.folder = folder
        self.spent_s = 0.0
        self._known: dict[str, Path | None] = {}
        self._lock = threading.Lock()

    def find(self, flags: Sequence[str], kind: str, compiler: str) -> Path | None:
        """The folder to put before torch's, None where there is no precompiled header for such flags.

        Args:
            flags: of the unit.
            kind: ``"slim"`` or ``"full"``.
            compiler: the C++ compiler, which must be GCC's.
        """
        wanted = known_flags.profile(flags)
        folders = known_flags.folders_in(flags)
        if wanted is None or folders not in installed.orders() or not installed.is_gcc(compiler):
            return None
        if kind == "full" and not set(wanted[1:]) <= _LEVELS:
            return None
        macros = sorted(set(flags) & installed.macros())
        memo = " ".join([kind, compiler, *macros, *wanted, *folders])
        with self._lock:
            if memo not in self._known:
                start = time.perf_counter()
                try:
                    self._known[memo] = self._made(kind, [*macros, *wanted], folders, compiler)
                except (OSError, WorkerEnded, ZygoteError, SandboxError) as error:
                    _log.warning("no precompiled header for %s: %s", wanted, error)
                    self._known[memo] = None
                self.spent_s += time.perf_counter() - start
            return self._known[memo]

    def _made(self, kind: str, wanted: list[str], folders: list[str], compiler: str) -> Path:
        if kind == "slim":
            texts = headers.slim_headers(installed.include(), None)
        else:
            texts = {_HEADER: (installed.include() / _HEADER).read_text(encoding="utf-8")}
        flags = [*(part for folder in folders for part in ("-isystem", folder)), "-fPIC", *wanted]
        key = digest(
            {
                "headers": texts,
                "flags": flags,
                "compiler": installed.identity(compiler),
                "torch": installed.torch_identity(),
                "cpu": installed.cpu() if "-march=native" in wanted else "",
            }
        )
        folder = self.folder / key
        done = folder / f"{_HEADER}.gch"
        if done.exists():
            os.utime(folder)  # what is used is the last to go
            return folder
        self.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        with open(self.folder / f"{key}.lock", "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another judge may be making it
            if done.exists():
                return folder
            self._make_room()
            if shutil.disk_usage(self.folder).free < _ROOM_BYTES:
                raise OSError("there is no room for it")
            for name, text in texts.items():
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            for path in [folder, *folder.rglob("*")]:
                path.chmod(0o755 if path.is_dir() else 0o644)
            self._make(folder, done, [*compiler.split(), "-I", str(folder), *flags])
        return folder

    def _make_room(self) -> None:
        """Remove those that were not used for the longest, such as an earlier torch's, so that one more fits.

        A compiler that reads one just now goes on; one that begins does without.
        """
        made = sorted((path for path in self.folder.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
        for old in made[: max(0, len(made) + 1 - _MOST)]:
            shutil.rmtree(old, ignore_errors=True)
            old.with_suffix(".lock").unlink(missing_ok=True)

    def _make(self, folder: Path, done: Path, command: list[str]) -> None:
        header = str(folder / _HEADER)
        choice = {"name": "make", "command": [*command, "-x", "c++-header", header, "-o", _OUT], "needs": [header]}
        worker = self.zygote.fork({}, role="compile", reads=[str(folder)])
        try:
            answer = worker.ask({"files": {}, "choices": [choice]}, _MAKE_S)
            if not any(on(worker.isolation, layer) for layer in ("view", "landlock_files")):
                raise OSError("it is not made where files are not guarded")
            if not answer["name"]:
                raise OSError("a compiler's process cannot read the folder")
            if answer["code"] != 0:
                raise OSError(answer["output"][-2000:])
            source = os.open(worker.folder / _OUT, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            with open(source, "rb") as made, replacing(done) as new, open(new, "wb") as copy:
                shutil.copyfileobj(made, copy, 1 << 22)
                new.chmod(0o644)
        finally:
            worker.close()
