"""Landlock: files by allow-list, no TCP, no signals to the outside. Needs no privilege.

- `abi` -- the version that the kernel offers, 0 for none.
- `restrict` -- confine this process and all it will start.

What each version adds: 1 files, 2 renaming between folders, 3 truncation, 4 TCP, 5 device control, 6 signals and
abstract sockets, 7 a switch for the kernel's log.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field

from kernelgym_env.evaluation.sandbox.kernel import syscall

__all__ = ["Rules", "abi", "restrict", "why_not"]

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_VERSION = 1
_PATH_BENEATH = 1
_LOG_OFF = 1 << 0 | 1 << 2

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = (1 << bit for bit in range(4))
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_FIRST = (1 << 13) - 1
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_TCP = 3
_SCOPES = 3


class _Ruleset(ctypes.Structure):
    _fields_ = [("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("fd", ctypes.c_int32)]


@dataclass
class Rules:
    """What is allowed on files.

    Attributes:
        read: read and run, with all below.
        names: list the entries of this folder and of those below.
        write: everything but making device nodes, with all below.
        devices: read, write and control.
    """

    read: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    write: list[str] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)


def abi() -> int:
    """The version offered, 0 where there is none."""
    try:
        return syscall(_CREATE, None, 0, _VERSION)
    except OSError:
        return 0


def why_not() -> str:
    """Why there is none, ``""`` where there is."""
    try:
        syscall(_CREATE, None, 0, _VERSION)
    except OSError as error:
        if error.errno == errno.ENOSYS:
            return "the kernel was built without it, or is older than 5.13"
        if error.errno == errno.EOPNOTSUPP:
            return "switched off at boot"
        return f"refused: {error.strerror}"
    return ""


def restrict(rules: Rules | None) -> dict[str, str]:
    """Confine this process; ``no_new_privs`` must be set.

    Args:
        rules: what is allowed on files, or None to leave files alone.

    Returns:
        By layer, ``"on"`` or why not.
    """
    version = abi()
    reason = f"off: {why_not()}" if not version else "off: waived" if rules is None and version < 4 else ""
    if reason:
        return {"landlock_files": reason, "landlock_network": reason, "landlock_scope": reason}
    known = _FIRST | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    known |= _IOCTL_DEV if version >= 5 else 0
    attributes = _Ruleset(known if rules else 0, _TCP if version >= 4 else 0, _SCOPES if version >= 6 else 0)
    # the structure grew with the versions; an old kernel takes a longer one if the rest is zero
    handle = syscall(_CREATE, ctypes.byref(attributes), ctypes.sizeof(attributes), 0)
    try:
        if rules:
            _add(handle, rules.read, _READ & known)
            _add(handle, rules.names, _READ_DIR & known)
            _add(handle, rules.write, known & ~(_MAKE_CHAR | _MAKE_BLOCK))
            _add(handle, rules.devices, _ON_FILES & known)
        syscall(_RESTRICT, handle, _LOG_OFF if version >= 7 else 0)
    finally:
        os.close(handle)
    short = f"off: this kernel's Landlock is version {version},"
    return {
        # before version 3 a file can be cut to nothing by its name
        "landlock_files": "off: waived" if rules is None else "on" if version >= 3 else f"{short} 3 is needed",
        "landlock_network": "on" if version >= 4 else f"{short} 4 is needed",
        "landlock_scope": "on" if version >= 6 else f"{short} 6 is needed",
    }


def _add(ruleset: int, paths: Iterable[str], allowed: int) -> None:
    for path in paths:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue  # not there, or out of this user's reach anyway
        try:
            mask = allowed if stat.S_ISDIR(os.fstat(fd).st_mode) else allowed & _ON_FILES
            syscall(_ADD, ruleset, _PATH_BENEATH, ctypes.byref(_Beneath(mask, fd)), 0)
        finally:
            os.close(fd)
