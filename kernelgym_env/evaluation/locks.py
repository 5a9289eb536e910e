"""One user of a device at a time, or several that share it, across all processes of this user on the machine.

Whoever wants a device takes its gate first, and keeps it until the device is free. So a process that has just given the
device back and wants it again comes after the one that was waiting, and nobody waits for ever. The kernel takes both
locks (``flock``) from a process that dies.

- `device_lock` -- hold a device.
- `Turn` -- the same in two calls, and whether somebody else waits.
- `Shares` -- hold a part of a device.
- `machine_name` -- a device's name that all processes of the machine have in common.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import math
import os
import random
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernelgym_env import nvml, settings

__all__ = ["Shares", "Turn", "device_lock", "machine_name"]

_POLL_S, _SHARES_POLL_S = 0.002, 0.02


@contextmanager
def device_lock(device: str, *, timeout_s: float = math.inf) -> Iterator[None]:
    """Hold the exclusive lock of a device.

    Args:
        device: e.g. ``"cpu"``, or ``"cuda:0"`` as this process sees it.
        timeout_s: longest wait in seconds.

    Raises:
        TimeoutError: if somebody else held it for that long; the message says who.
    """
    turn = Turn(device)
    turn.take(timeout_s)
    try:
        yield
    finally:
        turn.give()


class Turn:
    """A device's lock. Each holder has an object of its own, also among the threads of a process.

    Args:
        device: e.g. ``"cpu"``, or ``"cuda:0"`` as this process sees it.
        what: what it is held for, told to those who wait too long.
        lock: name of the lock, where a device has several.
        shared: whether others that share it may hold it at the same time.
    """

    def __init__(self, device: str, what: str = "timing", *, lock: str = "", shared: bool = False) -> None:
        folder = settings.runtime_dir() / "locks"
        folder.mkdir(mode=0o700, exist_ok=True)
        stem = machine_name(device).replace(":", "-") + (f".{lock}" if lock else "")
        self.device = device
        self._what = what
        self._shared = shared
        self._path, self._gate_path = folder / f"{stem}.lock", folder / f"{stem}.gate"
        self._held = -1
        self._gate = -1

    def take(self, timeout_s: float = math.inf) -> None:
        """Wait for the device.

        Raises:
            TimeoutError: if somebody else held it for that long, in seconds.
        """
        deadline = time.monotonic() + timeout_s
        self._gate = _open(self._gate_path)
        _turns.add(self)
        try:
            self._wait(self._gate, deadline, timeout_s)
            self._held = _open(self._path)
            self._wait(self._held, deadline, timeout_s, shared=self._shared)
            self._sign()
        except BaseException:
            self.give()
            raise
        _release(self._gate)

    def try_take(self) -> bool:
        """Take the device if it is free and nobody waits for it; whether it was."""
        self._gate = _open(self._gate_path)
        _turns.add(self)
        if _try(self._gate):
            self._held = _open(self._path)
            if _try(self._held, shared=self._shared):
                self._sign()
                _release(self._gate)
                return True
        self.give()
        return False

    def elsewhere(self) -> bool:
        """Whether another turn has the device, shared or not; for one that does not have it itself."""
        fd = _open(self._path)
        try:
            # two that look at the same moment see each other, but not twice
            found = not _try(fd) and not _again(fd)
            if not found:
                _release(fd)
            return found
        finally:
            os.close(fd)

    def _sign(self) -> None:
        os.ftruncate(self._held, 0)
        os.pwrite(self._held, f"process {os.getpid()} ({self._what})".encode(), 0)

    def _wait(self, fd: int, deadline: float, timeout_s: float, *, shared: bool = False) -> None:
        while not _try(fd, shared=shared):
            if time.monotonic() >= deadline:
                raise TimeoutError(f"Device {self.device} was not free for {timeout_s:g} s{self._holder()}.")
            time.sleep(_POLL_S)

    def _holder(self) -> str:
        try:
            return f"; the last to take it was {self._path.read_text(encoding='utf-8')}"
        except OSError:
            return ""

    def wanted(self) -> bool:
        """Whether somebody waits for the device, while this turn has it."""
        if not _try(self._gate):
            return True
        _release(self._gate)
        return False

    def give(self) -> None:
        """Give the device back; nothing happens if this turn does not have it."""
        for fd in (self._held, self._gate):
            if fd >= 0:
                _release(fd)  # a forked child may have the same descriptor still, so closing is not enough
                os.close(fd)
        self._held = self._gate = -1
        _turns.discard(self)

    def _forget(self) -> None:
        """In a forked child: the device is the parent's."""
        for fd in (self._held, self._gate):
            if fd >= 0:
                os.close(fd)
        self._held = self._gate = -1


class Shares:
    """A device that is divided among its users into equal shares. Each holder has an object of its own.

    Args:
        device: as for `Turn`.
        what: what it is held for, told to those who wait too long.
        lock: name of what is divided.
        number: how many shares there are.
    """

    def __init__(self, device: str, what: str, *, lock: str, number: int) -> None:
        self.number = number
        self._next = Turn(device, what, lock=lock)
        self._shares = [Turn(device, what, lock=f"{lock}-{index}") for index in range(number)]

    @contextmanager
    def hold(self, count: int, timeout_s: float = math.inf) -> Iterator[None]:
        """Hold so many shares, once as many are free. Who asks for many is not overtaken by those who ask for few.

        Raises:
            TimeoutError: if that takes longer.
        """
        deadline = time.monotonic() + timeout_s
        held: list[Turn] = []
        try:
            self._next.take(timeout_s)
            try:
                while True:
                    for share in self._shares:
                        if len(held) < count and share not in held and share.try_take():
                            held.append(share)
                    if len(held) == count:
                        break
                    if time.monotonic() >= deadline:
                        raise TimeoutError(f"{count} of {self.number} shares of {self._next.device} were not free.")
                    time.sleep(_SHARES_POLL_S)
            finally:
                self._next.give()
            yield
        finally:
            for share in held:
                share.give()


_turns: weakref.WeakSet[Turn] = weakref.WeakSet()


def _forget_all() -> None:
    for turn in list(_turns):
        turn._forget()
    _turns.clear()


os.register_at_fork(after_in_child=_forget_all)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _try(fd: int, *, shared: bool = False) -> bool:
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN):
            raise
        return False
    return True


def _again(fd: int) -> bool:
    time.sleep(random.uniform(0.1, 1.0) * _POLL_S / 4)
    return _try(fd)


def _release(fd: int) -> None:
    fcntl.flock(fd, fcntl.LOCK_UN)


def machine_name(device: str) -> str:
    """A device's name that all processes of the machine have in common.

    ``cuda:0`` is another device for a process with another ``CUDA_VISIBLE_DEVICES``; its UUID is not. Where the UUID
    cannot be found out it is the number that ``CUDA_VISIBLE_DEVICES`` has in that place.

    Args:
        device: as this process sees it. What is no ``cuda:<index>`` it can see is returned as it is.

    >>> machine_name("cpu")
    'cpu'
    """
    kind, _, index = device.partition(":")
    if kind != "cuda" or not index.isdigit():
        return device
    visible = settings.visible_devices()
    if visible is None:
        entry = index
    elif int(index) < len(visible):
        entry = visible[int(index)]
    else:
        return device
    if not entry.isdigit():
        full = [uuid for uuid in _uuids() if uuid.startswith(entry)]
        return full[0] if len(full) == 1 else entry
    return _uuids()[int(entry)] if int(entry) < len(_uuids()) else f"cuda:{entry}"


@functools.lru_cache(maxsize=1)
def _uuids() -> tuple[str, ...]:
    """UUIDs of this machine's GPUs by index; empty without a driver."""
    try:
        return tuple(gpu.uuid for gpu in nvml.query()[1])
    except OSError:
        return ()
