"""What a user may ask of the sandbox.

- `MODES` -- what to do where a part of it is not to be had.
- `SandboxOptions` -- the mode and the limits.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from kernelgym_env.errors import InvalidOptionError, unknown_name

__all__ = ["MODES", "SandboxOptions", "check_mode"]

MODES = ("best_effort", "require")
"""``best_effort`` uses what the machine offers; ``require`` runs no submission where a guarantee is missing."""

_LEAST_GIB = 1.0


def check_mode(mode: str) -> str:
    """Return `mode`, or raise `UnknownNameError`."""
    if mode not in MODES:
        raise unknown_name("sandbox", mode, MODES)
    return mode


@dataclass(frozen=True)
class SandboxOptions:
    """How submissions are confined.

    Attributes:
        mode: one of `MODES`.
        memory_gib: host memory that a submission and all it starts may use, in GiB; None for three quarters of what
            this machine or container has.
        cores: CPU cores that the processes of an evaluation share; None for all that this process may use.

    Raises:
        UnknownNameError: for an unknown mode.
        InvalidOptionError: for less than 1 GiB, and for a number of cores that this process does not have.
    """

    mode: str = "best_effort"
    memory_gib: float | None = None
    cores: int | None = None

    def __post_init__(self) -> None:
        check_mode(self.mode)
        memory, cores = self.memory_gib, self.cores
        if memory is not None and (
            isinstance(memory, bool) or not isinstance(memory, (int, float)) or not _LEAST_GIB <= memory < 1e9
        ):
            raise InvalidOptionError(
                f"memory_gib must be a number of GiB, at least {_LEAST_GIB:g}, or None for three quarters of what "
                f"there is; got {memory!r}."
            )
        if cores is not None:
            usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
            if isinstance(cores, bool) or not isinstance(cores, int) or not 1 <= cores <= usable:
                raise InvalidOptionError(
                    f"cores must be a whole number from 1 to the {usable} that this process may use, or None for all "
                    f"of them; got {cores!r}."
                )
