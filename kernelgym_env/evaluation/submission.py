"""A submission: what is to be judged, on which task, how and where."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernelgym_env.errors import InvalidOptionError, unknown_name
from kernelgym_env.evaluation.protocols import LIBRARY_OPS, Protocol, get_protocol
from kernelgym_env.tasks.model import Task

__all__ = ["BACKENDS", "Submission", "check_backend", "check_device", "check_library_ops"]

BACKENDS = ("auto", "triton", "cuda", "cupy", "cpp")
"""``auto`` reads the backend off the source."""

_DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")


def check_backend(backend: str) -> str:
    """Return `backend`, or raise `UnknownNameError`."""
    if backend not in BACKENDS:
        raise unknown_name("backend", backend, BACKENDS)
    return backend


def check_device(device: str) -> str:
    """Return `device`, or raise `UnknownNameError`."""
    if not isinstance(device, str) or not _DEVICE.fullmatch(device):
        raise unknown_name("device", device, ("auto", "cpu", "cuda", "cuda:<index>"))
    return device


def check_library_ops(library_ops: str | None) -> str | None:
    """Return `library_ops`, or raise `UnknownNameError`."""
    if library_ops is not None and library_ops not in LIBRARY_OPS:
        raise unknown_name("library_ops", library_ops, LIBRARY_OPS)
    return library_ops


@dataclass(frozen=True)
class Submission:
    """One source to be judged.

    Attributes:
        task: the task.
        source: the source of `ModelNew` (bare, not a chat reply).
        files: further files by relative name, put beside the source; none for most submissions.
        backend: one of `BACKENDS`.
        protocol: name of a protocol, or a `Protocol` with constants of its own.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:<index>``.
        library_ops: overrides the protocol's policy; ``forbid``, ``gemm`` or ``allow``.
        previous_best: best speedup so far on the task, a re-test trigger.

    Raises:
        UnknownNameError: for an unknown backend, protocol, device or policy.
        InvalidOptionError: for a source that is not text, or a file name that leaves the folder.
    """

    task: Task
    source: str = ""
    files: Mapping[str, str] | None = None
    backend: str = "auto"
    protocol: str | Protocol = "strict"
    device: str = "auto"
    library_ops: str | None = None
    previous_best: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.source, str):
            raise InvalidOptionError(f"Submission source must be text, got {type(self.source).__name__}.")
        check_backend(self.backend)
        check_device(self.device)
        check_library_ops(self.library_ops)
        get_protocol(self.protocol)
        for name in self.files or {}:
            parts = name.split("/")
            if not name or name.startswith("/") or "\\" in name or any(part in ("", ".", "..") for part in parts):
                raise InvalidOptionError(
                    f"Submission file name {name!r} must be a relative path inside the submission."
                )

    @property
    def source_hash(self) -> str:
        """SHA-256 of the source and the further files, hexadecimal."""
        digest = hashlib.sha256(self.source.encode("utf-8", "surrogatepass"))
        for name, text in sorted((self.files or {}).items()):
            digest.update(f"\0{name}\0".encode())
            digest.update(text.encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "task": self.task.to_dict(),
            "source": self.source,
            "files": dict(self.files or {}),
            "backend": self.backend,
            "protocol": self.protocol.to_dict() if isinstance(self.protocol, Protocol) else self.protocol,
            "device": self.device,
            "library_ops": self.library_ops,
            "previous_best": self.previous_best,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Submission:
        """The inverse of `to_dict`."""
        protocol = data.get("protocol", "strict")
        if isinstance(protocol, Mapping):
            protocol = Protocol.from_dict(protocol)
        return cls(**{**data, "task": Task.from_dict(data["task"]), "protocol": protocol})
