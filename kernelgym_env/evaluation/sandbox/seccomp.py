"""A seccomp filter: system calls that no kernel needs are refused, with their arguments looked at where that decides.

- `why_not` -- why there can be no filter here.
- `install` -- put it in force for this process and all it will start; ``no_new_privs`` must be set.
- `program` -- the filter as instructions.

It is a list of what is refused, since compilers and CUDA between them make nearly every other call. A call that was
never listed is decided by the kernel's cache of filter results and costs nothing.
"""

from __future__ import annotations

import ctypes
import errno
import struct
from collections.abc import Sequence

from kernelgym_env.evaluation.sandbox.kernel import machine, syscall

__all__ = ["install", "program", "why_not"]

# number of each call on (x86_64, aarch64); None where the architecture has no such call
_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "_sysctl": (156, None),
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "clone": (56, 220),
    "clone3": (435, 435),
    "connect": (42, 203),
    "create_module": (174, None),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "ioprio_set": (251, 30),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "migrate_pages": (256, 238),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "mq_open": (240, 180),
    "msgget": (68, 186),
    "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "prlimit64": (302, 261),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "semget": (64, 190),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "setpriority": (141, 140),
    "settimeofday": (164, 170),
    "shmget": (29, 194),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
# decided by their arguments, see `_filtered`; every other listed call is refused
_BY_ARGUMENT = (
    "clone",
    "clone3",
    "connect",
    "ioprio_set",
    "prlimit64",
    "sched_setaffinity",
    "sched_setattr",
    "sched_setparam",
    "sched_setscheduler",
    "setpriority",
    "socket",
    "socketpair",
)

_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_MODE_FILTER, _GET_ACTION = 1, 2
# filters once switched a costly protection against Spectre on, which would show in the times
_SPEC_ALLOW = 1 << 2

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCH = 0, 4
_X32 = 0x40000000

_AF_UNIX = 1
_SOCK_TYPE, _SOCK_STREAM, _SOCK_SEQPACKET = 0xF, 1, 5
# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_NEW_NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000

_Instruction = tuple[int, int, int, int]


def _refuse(code: int) -> _Instruction:
    return (_RETURN, 0, 0, _ERRNO | code)


_PASS: _Instruction = (_RETURN, 0, 0, _ALLOW)


def _argument(index: int) -> _Instruction:
    """Load the low half of an argument."""
    return (_LOAD, 0, 0, 16 + 8 * index)


def _filtered(*, alone: bool, hidden: bool, pinned: bool) -> dict[str, list[_Instruction]]:
    """Instructions for the calls whose arguments decide.

    Args:
        alone: no other process has this user id, so none can be meant by a call that asks the user id.
        hidden: no socket of another process can be reached by a name.
        pinned: the set of cores is not to be widened.
    """
    own_only = [_argument(0), (_EQUAL, 0, 1, 0), _PASS, _refuse(errno.EPERM)]
    own_only_second = [_argument(1), (_EQUAL, 0, 1, 0), _PASS, _refuse(errno.EPERM)]
    rules = {
        "clone": [_argument(0), (_ANY_BIT, 0, 1, _NEW_NAMESPACES), _refuse(errno.EPERM), _PASS],
        # its flags lie in memory, where a filter cannot look; libc then uses `clone`
        "clone3": [_refuse(errno.ENOSYS)],
        "socket": [
            _argument(0),
            (_EQUAL, 1, 0, _AF_UNIX),
            _refuse(errno.EACCES),
            *([_PASS] if hidden else _connected_kinds()),
        ],
        "socketpair": [_PASS] if hidden else _connected_kinds(),
        # one's own limits only: a process of the same user may otherwise take away another one's
        "prlimit64": own_only,
    }
    if not hidden:
        rules["connect"] = [_refuse(errno.EACCES)]
    if not alone:
        for name in ("sched_setattr", "sched_setparam", "sched_setscheduler"):
            rules[name] = own_only
        for name in ("setpriority", "ioprio_set"):
            rules[name] = own_only_second
    if pinned:
        rules["sched_setaffinity"] = [_refuse(0)]
    elif not alone:
        # a thread of one's own is named by its number too: the call is made to succeed without effect, since OpenMP
        # gives up where it fails
        rules["sched_setaffinity"] = [_argument(0), (_EQUAL, 0, 1, 0), _PASS, _refuse(0)]
    return rules


def _connected_kinds() -> list[_Instruction]:
    """Sockets that reach nobody without `connect`: a datagram could be sent to any name."""
    return [
        _argument(1),
        (_AND, 0, 0, _SOCK_TYPE),
        (_EQUAL, 2, 0, _SOCK_STREAM),
        (_EQUAL, 1, 0, _SOCK_SEQPACKET),
        _refuse(errno.EACCES),
        _PASS,
    ]


def program(architecture: str, *, alone: bool, hidden: bool, pinned: bool) -> list[_Instruction]:
    """The filter; see `_filtered` for the arguments.

    Raises:
        KeyError: for an architecture whose system calls are not known here.
    """
    column, arch = _MACHINES[architecture]
    code: list[_Instruction] = [(_LOAD, 0, 0, _ARCH), (_EQUAL, 1, 0, arch), (_RETURN, 0, 0, _KILL)]
    code.append((_LOAD, 0, 0, _NUMBER))
    if architecture == "x86_64":
        code += [(_AT_LEAST, 0, 1, _X32), _refuse(errno.ENOSYS)]
    rules = _filtered(alone=alone, hidden=hidden, pinned=pinned)
    for name, numbers in _NUMBERS.items():
        number = numbers[column]
        if number is None or (name in _BY_ARGUMENT and name not in rules):
            continue
        body = rules.get(name, [_refuse(errno.EPERM)])
        code += [(_EQUAL, 0, len(body), number), *body]
    return [*code, _PASS]


def why_not() -> str:
    """Why no filter can be installed, ``""`` where one can."""
    if machine() not in _MACHINES:
        return f"no filter for {machine()}, only for {' and '.join(_MACHINES)}"
    try:
        syscall(_SECCOMP[machine()], _GET_ACTION, 0, ctypes.byref(ctypes.c_uint32(_ERRNO)))
    except OSError as error:
        return f"the kernel offers none: {error.strerror}"
    return ""


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]


def _encode(code: Sequence[_Instruction]) -> bytes:
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def install(*, alone: bool, hidden: bool, pinned: bool) -> str:
    """Put the filter in force; see `_filtered` for the arguments.

    Returns:
        ``"on"`` or why not.
    """
    if reason := why_not():
        return f"off: {reason}"
    code = program(machine(), alone=alone, hidden=hidden, pinned=pinned)
    data = _Program(len(code), _encode(code))
    for flags in (_SPEC_ALLOW, 0):
        try:
            syscall(_SECCOMP[machine()], _SET_MODE_FILTER, flags, ctypes.byref(data))
            break
        except OSError as error:
            if error.errno != errno.EINVAL or not flags:
                raise
    return "on"
