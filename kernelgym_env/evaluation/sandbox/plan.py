"""What one process is to be confined to: plain data, made by the judge, carried out in the candidate.

- `Plan` -- the data.
- `LAYERS` -- every layer, in the order in which they are entered.
- `GUARANTEES` -- what the mode ``require`` insists on, each with the layers that give it.
- `missing` -- the guarantees that a report lacks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["GUARANTEES", "LAYERS", "Plan", "missing", "on"]

LAYERS = {
    "cgroup": "all processes of a job in a group that is killed as one",
    "memory": "host memory of the job, with all it starts",
    "pids": "process ids of its own: no other process is seen, and all of the job end at once",
    "namespaces": "a mount and a network namespace of its own",
    "view": "a file tree that holds only what is needed, read-only but for the job's folder, with its own /tmp",
    "user": "a user id that no other process has",
    "capabilities": "no capabilities",
    "limits": "processes, open files, file size, no core dumps",
    "no_new_privs": "set-user-ID programs give nothing",
    "landlock_files": "reading by allow-list, writing only in the job's folder",
    "landlock_network": "no TCP",
    "landlock_scope": "no signals and no abstract sockets to processes outside",
    "seccomp": "no sockets but local ones, no tracing, mounting, BPF, keyrings and the like",
}
"""Layers by name, with what each gives."""

GUARANTEES = {
    "file access": ("landlock_files", "view"),
    "network": ("seccomp", "namespaces"),
    "system calls": ("seccomp",),
    "signals": ("landlock_scope", "pids", "user"),
    "capabilities": ("capabilities",),
    "no new privileges": ("no_new_privs",),
    "limits": ("limits",),
    "memory": ("memory",),
}
"""What ``require`` insists on; one of the layers suffices for each."""


@dataclass(frozen=True)
class Plan:
    """How to confine one process.

    Attributes:
        kind: ``"cpu"`` or ``"cuda"``.
        folder: the job's own folder, the only one it may write to.
        mount_point: an empty folder on which a private file tree can be put together.
        require: refuse to run where a guarantee is missing.
        uid: user and group id to change to, or None to keep the present one.
        memory_bytes: bound on host memory.
        processes: bound on processes and threads.
        group: file into which a process writes itself to join the job's control group, ``""`` where there is none.
        group_memory: whether the group itself bounds memory.
        why: by layer, the reason for which the judge cannot offer it.
        waived: layers and details to leave out, as found by a trial: see `trial`.
        reads: folders that this process alone may read besides, though they are private.
    """

    kind: str
    folder: str
    mount_point: str
    require: bool = False
    uid: int | None = None
    memory_bytes: int = 0
    processes: int = 0
    group: str = ""
    group_memory: bool = False
    why: Mapping[str, str] = field(default_factory=dict)
    waived: Mapping[str, str] = field(default_factory=dict)
    reads: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Plan:
        """The inverse of `to_dict`."""
        return cls(**data)


def on(report: Mapping[str, str], layer: str) -> bool:
    """Whether a layer is in force.

    >>> on({"seccomp": "on", "view": "off: not permitted"}, "seccomp")
    True
    """
    return report.get(layer, "").partition(":")[0] == "on"


def missing(report: Mapping[str, str]) -> list[str]:
    """The guarantees that no layer in force gives, each with the reasons.

    >>> missing({name: "on" for name in LAYERS})
    []
    >>> missing({**{name: "on" for name in LAYERS}, "seccomp": "off: no filter for riscv64"})
    ['system calls (seccomp off: no filter for riscv64)']
    """
    lacking = []
    for guarantee, layers in GUARANTEES.items():
        if not any(on(report, layer) for layer in layers):
            reasons = "; ".join(f"{layer} {report.get(layer, 'off: not tried')}" for layer in layers)
            lacking.append(f"{guarantee} ({reasons})")
    return lacking
