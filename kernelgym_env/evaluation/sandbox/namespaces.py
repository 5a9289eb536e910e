"""Namespaces: process ids, mounts and network of a job's own.

- `enter_pids` -- give this process's next children process ids of their own.
- `enter` -- enter a mount and a network namespace.

Both act directly where this process may, else inside a user namespace. In one the process keeps its user id, and has
every capability over what the namespace owns, and over nothing else.
"""

from __future__ import annotations

import ctypes
import os

from kernelgym_env.evaluation.sandbox.kernel import libc

__all__ = ["enter", "enter_pids"]

_NEWNS, _NEWUSER, _NEWPID, _NEWNET = 0x00020000, 0x10000000, 0x20000000, 0x40000000


def _unshare(flags: int) -> str:
    """Why the kernel refuses, ``""`` where it does not."""
    assert libc is not None
    return "" if libc.unshare(ctypes.c_int(flags)) == 0 else os.strerror(ctypes.get_errno())


def enter_pids() -> str:
    """Let the next child be the first process of a new PID namespace, which ends with it as a whole.

    Returns:
        ``"on"`` or why not.
    """
    return _enter(_NEWPID)


def enter() -> str:
    """Enter a mount and a network namespace; this process must have one thread.

    Returns:
        ``"on"`` or why not.
    """
    return _enter(_NEWNS | _NEWNET)


def _enter(flags: int) -> str:
    reason = _unshare(flags)
    if not reason:
        return "on"
    if os.geteuid() == 0:
        return f"off: {reason}"
    user, group = os.geteuid(), os.getegid()
    if reason := _unshare(_NEWUSER):
        return f"off: no user namespace: {reason}"
    try:
        _write("setgroups", "deny")
        _write("uid_map", f"{user} {user} 1")
        _write("gid_map", f"{group} {group} 1")
    except OSError as error:
        return f"off: no ids in the user namespace: {error.strerror}"
    reason = _unshare(flags)
    return f"off: inside a user namespace: {reason}" if reason else "on"


def _write(name: str, text: str) -> None:
    with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
        file.write(text)
