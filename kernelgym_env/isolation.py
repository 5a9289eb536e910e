"""What this machine's kernel offers to isolate a process with. Only looked at here; nothing is put in force.

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
from pathlib import Path

__all__ = ["Offer", "offers"]

_SYS_LANDLOCK_CREATE_RULESET = 444
_LANDLOCK_VERSION = 1
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
    libc = ctypes.CDLL(None, use_errno=True)
    abi = libc.syscall(_SYS_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_LANDLOCK_VERSION))
    if abi >= 1:
        return Offer("Landlock", True, f"ABI {abi}")
    code = ctypes.get_errno()
    why = {
        errno.ENOSYS: "the kernel was built without it, or is older than 5.13",
        errno.EOPNOTSUPP: "switched off at boot",
    }
    return Offer("Landlock", False, why.get(code, os.strerror(code)))


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
    name = "cgroup v2, delegated"
    try:
        mounts = [line.split(" ") for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
        groups = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError as error:
        return Offer(name, False, str(error))
    root = next((mount[1] for mount in mounts if mount[2] == "cgroup2"), None)
    own = next((line.removeprefix("0::") for line in groups if line.startswith("0::")), None)
    if root is None or own is None:
        return Offer(name, False, "cgroup v2 is not mounted")
    folder = Path(root) / own.lstrip("/")
    if not os.access(folder, os.W_OK) or not os.access(folder / "cgroup.procs", os.W_OK):
        return Offer(name, False, "this process may not make groups below its own")
    # the root group has no file `cgroup.kill`, the groups below it do from Linux 5.14 on
    return Offer(name, True, "")
