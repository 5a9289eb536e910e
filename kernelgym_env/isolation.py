"""What this machine's kernel offers to isolate a process with. Only looked at here; the sandbox puts it in force.

- `Offer` -- one mechanism and whether this process can use it.
- `offers` -- all of them.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import subprocess
import sys
from dataclasses import dataclass

from kernelgym_env.evaluation.sandbox import cgroup, landlock

__all__ = ["Offer", "offers"]

_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_PROBE_S = 10

# In a process of its own: what it enters, it cannot leave.
_NAMESPACES = """
import ctypes, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def enter(flag):
    return "" if libc.unshare(flag) == 0 else os.strerror(ctypes.get_errno())
user = enter(0x10000000) if sys.argv[1] == "user" else None
print(json.dumps([user, enter(0x40000000)]))
"""


@dataclass(frozen=True)
class Offer:
    """One mechanism.

    Attributes:
        name: e.g. ``Landlock``.
        usable: whether this process can use it.
        detail: its version, or why it cannot be used; ``""`` where there is nothing to say.
    """

    name: str
    usable: bool
    detail: str


def offers() -> list[Offer]:
    """Landlock, namespaces, seccomp and cgroups, as this process finds them; empty where the system is not Linux."""
    if sys.platform != "linux":
        return []
    return [_landlock(), *_namespaces(), _seccomp(), _cgroup()]


def _landlock() -> Offer:
    version = landlock.abi()
    return Offer("Landlock", True, f"ABI {version}") if version else Offer("Landlock", False, landlock.why_not())


def _namespaces() -> list[Offer]:
    """User namespaces, and network namespaces: inside a user namespace, or directly where this process is root."""
    answers = {}
    for way in ("user", "direct"):
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-S", "-c", _NAMESPACES, way], capture_output=True, timeout=_PROBE_S, check=True
            )
            answers[way] = json.loads(done.stdout)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            answers[way] = [f"the probe failed: {error}"] * 2
    user, inside = answers["user"]
    direct = answers["direct"][1]
    if not direct:
        network = Offer("network namespaces", True, "also without a user namespace")
    else:
        usable = not user and not inside
        network = Offer("network namespaces", usable, "inside a user namespace" if usable else str(inside or direct))
    return [Offer("user namespaces", not user, user), network]


def _seccomp() -> Offer:
    libc = ctypes.CDLL(None, use_errno=True)
    # without a filter the call changes nothing and says whether it could
    libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, None, 0, 0)
    code = ctypes.get_errno()
    return Offer("seccomp filters", code == errno.EFAULT, "" if code == errno.EFAULT else os.strerror(code))


def _cgroup() -> Offer:
    folder, why = cgroup.delegated()
    # the root group has no file `cgroup.kill`, the groups below it do from Linux 5.14 on
    return Offer("cgroup v2, delegated", folder is not None, why)
