"""Who a process is: a user id of its own where it is root, no capabilities, no way to get either back.

- `drop_user` -- change to another user.
- `drop_capabilities` -- give up every capability.
- `take_back` -- undo what was prepared for the change.
- `claim_uid` -- a user id that nothing runs under, and that no other judge takes meanwhile.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
from collections.abc import Iterable

from kernelgym_env.evaluation.sandbox.kernel import libc, prctl
from kernelgym_env.evaluation.sandbox.plan import Plan
from kernelgym_env.evaluation.sandbox.readable import Readable

__all__ = ["claim_uid", "drop_capabilities", "drop_user", "take_back"]

_PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_CAP_AMBIENT, _CLEAR_ALL = 4, 24, 47, 4
_CAPABILITY_VERSION = 0x20080522
_LAST_CAPABILITY = 63

# a range that distributions leave for users made on the fly; they fit into 16 bits, so containers map them too
_FIRST_UID, _UIDS = 61_184, 4_096


def claim_uid(start: int) -> tuple[int, socket.socket]:
    """A user id from a range set aside for this, under which no process runs.

    The claim is an abstract socket, which the kernel lets only one process of the machine bind. It is needed because a
    job is seen to run under its id only some time after the id was chosen, and what runs under an id is killed at once.

    Args:
        start: where to begin to look; callers that count up get different ones.

    Returns:
        The id, and the claim, which holds until it is closed.

    Raises:
        OSError: if none is free.
    """
    taken = _uids_in_use()
    free = [uid for step in range(_UIDS) if (uid := _FIRST_UID + (start + step) % _UIDS) not in taken]
    if not free:
        raise OSError(f"all {_UIDS} user ids from {_FIRST_UID} on are in use")
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    for uid in free:
        with contextlib.suppress(OSError):
            claim.bind(f"\0kernelgym-uid-{uid}")
            return uid, claim
    return free[0], claim  # somebody has bound every name: better one without a claim than none


def _uids_in_use() -> set[int]:
    """Every user id that a process has; the owner of its folder in ``/proc`` may be root instead."""
    taken: set[int] = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, ValueError), open(f"/proc/{entry}/status", "rb") as file:
                taken.update(map(int, file.read().partition(b"\nUid:")[2].split(b"\n", 1)[0].split()))
    return taken


def drop_user(plan: Plan, readable: Readable) -> str:
    """Change to the plan's user id, if it has one and can work under it.

    Returns:
        ``"on"`` or why not.
    """
    if plan.uid is None:
        return f"off: {plan.why.get('user', 'not asked for')}"
    try:
        os.setgroups(_gpu_groups(plan))
        os.setresgid(plan.uid, plan.uid, plan.uid)
        os.setresuid(-1, plan.uid, -1)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.setresgid(0, 0, 0)
        return f"off: {error.strerror}"
    if lost := _out_of_reach([plan.folder, *readable.essential]):
        os.setresuid(-1, 0, -1)
        os.setresgid(0, 0, 0)
        return f"off: {lost} cannot be read by another user"
    os.setresuid(-1, 0, -1)
    # the capability to change ids goes with the real id, so it is the last to go
    os.setresuid(plan.uid, plan.uid, plan.uid)
    # the change made the process one whose own entries in /proc belong to root
    prctl(_PR_SET_DUMPABLE, 1)
    return "on"


def take_back(folder: str) -> None:
    """Make a job's folder, prepared for another user, this process's own after all."""
    with os.scandir(folder) as entries:
        for path in (folder, *(entry.path for entry in entries)):
            os.chown(path, os.geteuid(), os.getegid(), follow_symlinks=False)


def _gpu_groups(plan: Plan) -> list[int]:
    """Groups that may use the GPU's device nodes where not everybody may."""
    from kernelgym_env.evaluation.sandbox.view import gpu_nodes

    if plan.kind != "cuda":
        return []
    nodes = [os.stat(node) for node in gpu_nodes()]
    return sorted({node.st_gid for node in nodes if not node.st_mode & 0o006 and node.st_mode & 0o060})


def _out_of_reach(paths: Iterable[str]) -> str:
    """The first of the files and folders that this process cannot read, ``""`` if it can read all."""
    for path in paths:
        try:
            if os.path.isdir(path):
                os.scandir(path).close()
            else:
                os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            return path
    return ""


class _Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _Data(ctypes.Structure):
    _fields_ = [("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32)]


def drop_capabilities() -> str:
    """Give up all capabilities, also those that a program of root would get.

    Returns:
        ``"on"`` or why not.
    """
    assert libc is not None
    for number in range(_LAST_CAPABILITY + 1):
        with contextlib.suppress(OSError):  # there are fewer, and one that has none needs no bound
            prctl(_PR_CAPBSET_DROP, number)
    with contextlib.suppress(OSError):
        prctl(_PR_CAP_AMBIENT, _CLEAR_ALL)
    header, data = _Header(_CAPABILITY_VERSION, 0), (_Data * 2)()
    if libc.capset(ctypes.byref(header), ctypes.byref(data)) != 0:
        return f"off: {os.strerror(ctypes.get_errno())}"
    # entering a user namespace made the process one whose own entries in /proc belong to root
    prctl(_PR_SET_DUMPABLE, 1)
    return "on"
