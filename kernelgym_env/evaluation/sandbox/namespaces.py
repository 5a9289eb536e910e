"""A mount and a network namespace of a process's own.

- `enter` -- enter them: directly where this process is privileged, else inside a user namespace.
"""

from __future__ import annotations

import ctypes
import os

from kernelgym_env.evaluation.sandbox.kernel import libc

__all__ = ["enter"]

_NEWNS, _NEWUSER, _NEWNET = 0x00020000, 0x10000000, 0x40000000


def _unshare(flags: int) -> str:
    """Why the kernel refuses, ``""`` where it does not."""
    assert libc is not None
    return "" if libc.unshare(ctypes.c_int(flags)) == 0 else os.strerror(ctypes.get_errno())


def enter() -> str:
    """Enter both; this process must have one thread.

    In a user namespace the process keeps its user id, and has every capability over what the namespace owns.

    Returns:
        ``"on"`` or why not.
    """
    if os.geteuid() == 0:
        reason = _unshare(_NEWNS | _NEWNET)
        return f"off: {reason}" if reason else "on"
    user, group = os.geteuid(), os.getegid()
    if reason := _unshare(_NEWUSER):
        return f"off: no user namespace: {reason}"
    try:
        _write("setgroups", "deny")
        _write("uid_map", f"{user} {user} 1")
        _write("gid_map", f"{group} {group} 1")
    except OSError as error:
        return f"off: no ids in the user namespace: {error.strerror}"
    reason = _unshare(_NEWNS | _NEWNET)
    return f"off: inside a user namespace: {reason}" if reason else "on"


def _write(name: str, text: str) -> None:
    with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
        file.write(text)
