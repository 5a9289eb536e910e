"""A file tree of a process's own: what it may read, its folder, and nothing else.

- `build` -- put it together and make it the root.

Everything in it is a bind mount of the same path outside, so programs find what they look for where they expect it.
All of it is read-only but for the job's folder, ``/tmp`` (a folder of the job), ``/dev/shm`` (a file system of its own)
and ``/proc``. What is not in it cannot be opened, listed, connected to, or have its mode changed.
"""

from __future__ import annotations

import ctypes
import os

from kernelgym_env.evaluation.sandbox.kernel import libc, machine, syscall
from kernelgym_env.evaluation.sandbox.plan import Plan
from kernelgym_env.evaluation.sandbox.readable import DEVICES, Readable

__all__ = ["build", "gpu_nodes"]

_BIND, _REC, _PRIVATE = 0x1000, 0x4000, 0x40000
_NOSUID, _NODEV, _NOEXEC = 2, 4, 8
_DETACH = 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_UMOUNT = {"x86_64": 166, "aarch64": 39}
_MOUNT_SETATTR = 442
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV, _ATTR_NOEXEC = 1, 2, 4, 8
# files of /proc that act on the machine as a whole
_PROC_SHUT = ("acpi", "bus", "fs", "irq", "scsi", "sys", "sysrq-trigger")
_TEMPORARY = ("/tmp", "/var/tmp")


class _Attributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "namespace")]


def _mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    assert libc is not None
    encode = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    data = None if options is None else options.encode()
    if libc.mount(*encode, ctypes.c_ulong(flags), data) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), target)


def _set(path: str, attributes: int, recursive: int = _AT_RECURSIVE) -> None:
    wanted = _Attributes(attributes, 0, 0, 0)
    size = ctypes.sizeof(wanted)
    syscall(_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(path), recursive, ctypes.byref(wanted), size)


def gpu_nodes() -> list[str]:
    """Device nodes and folders of them that CUDA opens."""
    return [f"/dev/{name}" for name in sorted(os.listdir("/dev")) if name.startswith("nvidia")]


class _Tree:
    """The new tree while it is put together below a mount point."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.bound: list[str] = []

    def place(self, path: str) -> str:
        return self.base + path

    def prepare(self, path: str) -> str | None:
        """Make the way to a path, links as they are outside.

        Returns:
            The real path, where something is to be bound, or None where it is there already.
        """
        done = "/"
        rest = [part for part in path.split(os.sep) if part]
        for _ in range(256):
            if not rest:
                break
            inside = any(done == other or done.startswith(other + os.sep) for other in self.bound)
            if inside:
                return None
            part = rest.pop(0)
            if part == "..":
                done = os.path.dirname(done)
                continue
            step = os.path.join(done, part)
            if os.path.islink(step):
                target = os.readlink(step)
                if not os.path.lexists(self.place(step)):
                    os.symlink(target, self.place(step))
                rest = [piece for piece in target.split(os.sep) if piece not in ("", ".")] + rest
                done = "/" if target.startswith(os.sep) else done
                continue
            if os.path.isdir(step):
                os.makedirs(self.place(step), exist_ok=True)
            elif not os.path.lexists(self.place(step)):
                os.close(os.open(self.place(step), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o444))
            done = step
        return None if done in self.bound else done

    def bind(self, path: str, attributes: int, source: str | None = None) -> None:
        """Bind a path of outside to the same path inside; what is not there is left out."""
        if not os.path.exists(source or path):
            return
        real = self.prepare(path)
        if real is None:
            return
        _mount(source or real, self.place(real), None, _BIND | _REC)
        _set(self.place(real), attributes)
        self.bound.append(real)


def build(plan: Plan, readable: Readable, *, pids: bool = False) -> str:
    """Put the tree together and make it this process's root. The mount namespace must be its own.

    Args:
        plan: the plan.
        readable: what may be read.
        pids: whether this process has a PID namespace of its own, which ``/proc`` is then to show.

    Returns:
        ``"on"``, or why not; then the former tree is still in place.
    """
    if machine() not in _PIVOT_ROOT:
        return f"off: not known how to change the root on {machine()}"
    try:
        _mount("none", "/", None, _REC | _PRIVATE)
        _fill(plan, readable, pids)
    except OSError as error:
        return f"off: {error.strerror}" + (f" at {error.filename}" if error.filename else "")
    here = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.chdir(plan.mount_point)
        syscall(_PIVOT_ROOT[machine()], b".", b".")
        syscall(_UMOUNT[machine()], b".", _DETACH)
        os.chdir("/")
    except OSError as error:
        os.fchdir(here)
        return f"off: {error.strerror} at the change of root"
    finally:
        os.close(here)
    return "on"


def _fill(plan: Plan, readable: Readable, pids: bool) -> None:
    base = plan.mount_point
    _mount("tmpfs", base, "tmpfs", _NOSUID | _NODEV, "mode=0755,size=16m")
    tree = _Tree(base)
    for name in DEVICES:
        tree.bind(f"/dev/{name}", _ATTR_NOSUID | _ATTR_NOEXEC)
    if plan.kind == "cuda":
        for node in gpu_nodes():
            tree.bind(node, _ATTR_NOSUID | _ATTR_NOEXEC)
    for name, target in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        os.symlink(f"/proc/self/{target}", f"{base}/dev/{name}")
    _shared_memory(plan, tree)
    _processes(tree, pids)
    # before the rest: an interpreter or a library may lie below a temporary folder, and is then bound into the job's
    for path in _TEMPORARY:
        tree.bind(path, _ATTR_NOSUID | _ATTR_NODEV, source=os.path.join(plan.folder, "tmp"))
    tree.bound = [path for path in tree.bound if path not in map(os.path.realpath, _TEMPORARY)]
    # links last: what they point to is then there
    for path in sorted(readable.roots, key=os.path.islink):
        tree.bind(path, _ATTR_RDONLY | _ATTR_NOSUID | _ATTR_NODEV)
    for hole in readable.holes:
        _cover(tree.place(hole))
    for folder in plan.reads:
        _bind_folder(tree, folder, _ATTR_RDONLY | _ATTR_NOSUID | _ATTR_NODEV)
    _bind_folder(tree, plan.folder, _ATTR_NOSUID | _ATTR_NODEV)
    _set(base, _ATTR_RDONLY | _ATTR_NOSUID | _ATTR_NODEV, 0)


def _processes(tree: _Tree, pids: bool) -> None:
    place = tree.place("/proc")
    os.makedirs(place, exist_ok=True)
    try:
        if not pids:
            raise OSError("there is nothing of its own to show")
        _mount("proc", place, "proc", _NOSUID | _NODEV | _NOEXEC)
    except OSError:  # also where a container hides parts of its own /proc: what is shown then has other numbers
        tree.bind("/proc", _ATTR_NOSUID | _ATTR_NODEV | _ATTR_NOEXEC)
    for name in _PROC_SHUT:
        _close(f"{place}/{name}")


def _shared_memory(plan: Plan, tree: _Tree) -> None:
    if "shm" in plan.waived:
        tree.bind("/dev/shm", _ATTR_NOSUID | _ATTR_NODEV)
        return
    os.makedirs(tree.place("/dev/shm"), exist_ok=True)
    limit = f",size={plan.memory_bytes}" if plan.memory_bytes else ""
    _mount("tmpfs", tree.place("/dev/shm"), "tmpfs", _NOSUID | _NODEV | _NOEXEC, f"mode=1777{limit}")


def _bind_folder(tree: _Tree, folder: str, attributes: int) -> None:
    """The job's own folders come last: they may lie below a temporary folder, which is another one in here."""
    real = os.path.realpath(folder)
    os.makedirs(tree.place(real), exist_ok=True)
    _mount(folder, tree.place(real), None, _BIND | _REC)
    _set(tree.place(real), attributes)
    if real != folder:
        tree.prepare(folder)


def _close(path: str) -> None:
    """Make a part of ``/proc`` read-only."""
    if os.path.exists(path):
        _mount(path, path, None, _BIND | _REC)
        _set(path, _ATTR_RDONLY)


def _cover(path: str) -> None:
    """Hide what lies at a path behind something empty."""
    if os.path.isdir(path):
        _mount("tmpfs", path, "tmpfs", _NOSUID | _NODEV, "mode=0555,size=4k")
    elif os.path.exists(path):
        _mount("/dev/null", path, None, _BIND)
