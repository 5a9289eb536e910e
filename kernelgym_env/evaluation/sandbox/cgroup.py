"""Control groups (version 2) for the processes of a job, where this process may make groups.

- `Group` -- one group: join it through `Group.file`, `kill` it, `remove` it.
- `delegated` -- the folder below which groups can be made.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from pathlib import Path

__all__ = ["Group", "delegated"]

_numbers = itertools.count()


def delegated() -> tuple[Path | None, str]:
    """This process's own group, if groups can be made in it, else why not."""
    try:
        mounts = [line.split(" ") for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
        groups = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError as error:
        return None, str(error)
    root = next((mount[1] for mount in mounts if mount[2] == "cgroup2"), None)
    own = next((line.removeprefix("0::") for line in groups if line.startswith("0::")), None)
    if root is None or own is None:
        return None, "cgroup v2 is not mounted"
    folder = Path(root) / own.lstrip("/")
    if not os.access(folder, os.W_OK) or not os.access(folder / "cgroup.procs", os.W_OK):
        return None, "this process may not make groups below its own"
    return folder, ""


class Group:
    """One control group.

    Args:
        parent: from `delegated`.
        memory_bytes: bound on memory, 0 for none.
        processes: bound on processes and threads, 0 for none.

    Attributes:
        bounds_memory: whether the group bounds memory, which takes a controller that the parent hands down.

    Raises:
        OSError: if it cannot be made, or the kernel cannot kill it as one (before Linux 5.14).
    """

    def __init__(self, parent: Path, memory_bytes: int = 0, processes: int = 0) -> None:
        self.path = parent / f"kernelgym-{os.getpid()}-{next(_numbers)}"
        self.path.mkdir()
        if not (self.path / "cgroup.kill").exists():
            self.path.rmdir()
            raise OSError("the kernel has no cgroup.kill, which came with Linux 5.14")
        self.bounds_memory = bool(memory_bytes) and self._write("memory.max", str(memory_bytes))
        if self.bounds_memory:
            self._write("memory.swap.max", "0")
            self._write("memory.oom.group", "1")
        if processes:
            self._write("pids.max", str(processes))

    @property
    def file(self) -> str:
        """The file into which a process writes ``0`` to join."""
        return str(self.path / "cgroup.procs")

    def _write(self, name: str, text: str) -> bool:
        try:
            (self.path / name).write_text(text, encoding="ascii")
        except OSError:
            return False
        return True

    def out_of_memory(self) -> bool:
        """Whether the kernel ended it for want of memory."""
        with contextlib.suppress(OSError):
            for line in (self.path / "memory.events").read_text(encoding="ascii").splitlines():
                name, _, count = line.partition(" ")
                if name == "oom_kill" and count != "0":
                    return True
        return False

    def kill(self) -> None:
        """End every process in it at once."""
        self._write("cgroup.kill", "1")

    def remove(self, seconds: float = 1.0) -> None:
        """Kill what is in it and remove it."""
        end = time.monotonic() + seconds
        while self.path.exists():
            self.kill()
            with contextlib.suppress(OSError):
                self.path.rmdir()
                return
            if time.monotonic() > end:
                return
            time.sleep(0.005)
