"""The judge's part of the sandbox: a plan for each job, and what must be undone after it.

- `Warden` -- makes plans, one a job.
- `Cell` -- what was set aside for one job.
- `SandboxError` -- a job that was refused because the sandbox is incomplete.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelgym_env.evaluation.sandbox import cgroup, limits
from kernelgym_env.evaluation.sandbox.identity import claim_uid
from kernelgym_env.evaluation.sandbox.options import SandboxOptions
from kernelgym_env.evaluation.sandbox.plan import Plan

__all__ = ["Cell", "SandboxError", "Warden"]

_MOUNT_POINT = "root"


class SandboxError(Exception):
    """A job was refused: the message says what is missing. Another try on this machine would end alike."""


@dataclass
class Cell:
    """What was set aside for one job.

    Attributes:
        plan: how its process is confined.
        group: its control group, or None.
        claim: what keeps its user id from other judges, or None.
    """

    plan: Plan
    group: cgroup.Group | None = None
    claim: socket.socket | None = None

    def kill(self) -> None:
        """End all of its processes at once, where there is a group."""
        if self.group:
            self.group.kill()

    def out_of_memory(self) -> bool:
        """Whether the kernel ended it for what it took beyond its bound."""
        return self.group is not None and self.group.bounds_memory and self.group.out_of_memory()

    def excess(self, what: str) -> str:
        """Say what a job took too much of: ``"memory"`` or ``"processes"``."""
        if what == "memory":
            return f"it used more than the {self.plan.memory_bytes / 2**30:.1f} GiB of host memory that it may have"
        return f"it ran more than the {self.plan.processes} processes and threads that it may have"

    def close(self) -> None:
        """Undo what was set aside; the job must have ended."""
        if self.group:
            self.group.remove()
            self.group = None
        if self.plan.uid is not None:
            _remove_shared_memory(self.plan.uid)
        if self.claim:
            self.claim.close()
            self.claim = None


def _remove_shared_memory(uid: int) -> None:
    """Remove what a user id left in ``/dev/shm``; it had one of its own where there is no private one."""
    with contextlib.suppress(OSError), os.scandir("/dev/shm") as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.stat(follow_symlinks=False).st_uid != uid:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    os.unlink(entry.path)


class Warden:
    """Makes the plans of one judge.

    Args:
        options: what the user asked for.
        kind: ``"cpu"`` or ``"cuda"``.
        folder: the judge's folder, below which each job gets its own.

    Attributes:
        waived: what `trial` found that CUDA cannot do with; empty on the CPU.
    """

    def __init__(self, options: SandboxOptions, kind: str, folder: Path) -> None:
        self.options = options
        self.kind = kind
        self.waived: Mapping[str, str] = {}
        self._folder = folder
        self._numbers = itertools.count(os.getpid())
        self._memory = int(options.memory_gib * 2**30) if options.memory_gib else limits.default_memory()
        self._processes = limits.processes()
        self._parent, self._no_group = cgroup.delegated()
        (folder / _MOUNT_POINT).mkdir(mode=0o755)
        if os.geteuid() == 0:
            # a job under a user id of its own must get through to its folder; names of others it cannot list
            for path in (folder, folder.parent):
                path.chmod(0o711)

    @property
    def cores(self) -> list[int]:
        """The cores to be used, lowest first; empty for all."""
        usable = sorted(os.sched_getaffinity(0))
        return usable[: self.options.cores] if self.options.cores else []

    def cell(self, folder: Path, reads: Sequence[str] = ()) -> Cell:
        """Set aside what a job in `folder` needs. A folder that an earlier job left keeps its user.

        Args:
            folder: the job's own.
            reads: private folders that it may read.
        """
        why: dict[str, str] = {}
        uid, claim = self._uid(folder, why)
        group = self._group(why)
        if group and uid is not None and not group.bounds_memory:
            # everything under a user id can be killed at once too, and joining a group takes some ten milliseconds
            why["cgroup"] = "no controllers are handed down, and a user id of its own does the rest"
            group.remove()
            group = None
        plan = Plan(
            kind=self.kind,
            folder=str(folder),
            mount_point=str(self._folder / _MOUNT_POINT),
            require=self.options.mode == "require",
            uid=uid,
            memory_bytes=self._memory,
            processes=self._processes,
            group=group.file if group else "",
            group_memory=bool(group and group.bounds_memory),
            why=why,
            waived=self.waived,
            reads=tuple(reads),
        )
        return Cell(plan, group, claim)

    def _group(self, why: dict[str, str]) -> cgroup.Group | None:
        if self._parent is None:
            why["cgroup"] = self._no_group
            return None
        try:
            return cgroup.Group(self._parent, self._memory, self._processes)
        except OSError as error:
            why["cgroup"] = error.strerror or str(error)
        return None

    def _uid(self, folder: Path, why: dict[str, str]) -> tuple[int | None, socket.socket | None]:
        if os.geteuid() != 0:
            why["user"] = "only root can change it; submissions have the user id of the judge"
        elif self.kind == "cuda":
            why["user"] = "CUDA shares memory only between processes of one user"
        elif owner := folder.stat().st_uid:
            return owner, None
        else:
            claim = None
            try:
                uid, claim = claim_uid(next(self._numbers))
                for path in (folder, *folder.iterdir()):
                    os.chown(path, uid, uid, follow_symlinks=False)
            except OSError as error:  # none is free, or a container maps none
                why["user"] = error.strerror or str(error)
                if claim:
                    claim.close()
            else:
                return uid, claim
        return None, None
