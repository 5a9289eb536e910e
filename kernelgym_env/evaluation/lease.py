"""A device that is shared with a trainer or an inference server: they hold it, and hand it over for timing.

- `device_lease` -- hold a device, and give way to evaluations.
- `DeviceLease` -- what the block gets.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.evaluation.locks import Turn

__all__ = ["DeviceLease", "device_lease"]

_LOOK_S = 0.02
_DEVICE = re.compile(r"cpu|cuda:\d+")
_LOG = logging.getLogger(__name__)


class DeviceLease:
    """A device that is held.

    Attributes:
        device: which one.
        lent_s: seconds for which others had it since the lease began.
        lent: how often it was handed over.
    """

    def __init__(
        self, device: str, pause: Callable[[], object] | None = None, resume: Callable[[], object] | None = None
    ) -> None:
        self.device = device
        self.lent_s = 0.0
        self.lent = 0
        self._turn = Turn(device, "lease")
        self._pause, self._resume = pause, resume
        self._ends = threading.Event()
        self._error: BaseException | None = None
        self._watcher: threading.Thread | None = None

    @property
    def wanted(self) -> bool:
        """Whether an evaluation, or another lease, waits for the device."""
        return self._turn.wanted()

    def give_way(self) -> float:
        """Hand the device over if somebody waits for it, and wait until it is back.

        Call it where the device is idle: after ``torch.cuda.synchronize()``.

        Returns:
            Seconds for which others had it, 0 if nobody waited.

        Raises:
            RuntimeError: if the lease has hooks, which do the same in the background.
        """
        if self._watcher is not None:
            raise RuntimeError("This lease gives way by its hooks; give_way() is for leases without pause and resume.")
        return self._hand_over() if self.wanted else 0.0

    def _hand_over(self) -> float:
        start = time.perf_counter()
        self._turn.give()
        self._turn.take()
        seconds = time.perf_counter() - start
        self.lent += 1
        self.lent_s += seconds
        return seconds

    def _begin(self) -> None:
        self._turn.take()
        if self._pause is not None:
            self._watcher = threading.Thread(target=self._watch, name=f"kernelgym-lease-{self.device}", daemon=True)
            self._watcher.start()

    def _end(self) -> None:
        self._ends.set()
        if self._watcher is not None:
            self._watcher.join()
        self._turn.give()

    def _watch(self) -> None:
        assert self._pause is not None and self._resume is not None
        try:
            while not self._ends.wait(_LOOK_S):
                if self.wanted:
                    self._pause()
                    self._hand_over()
                    self._resume()
        except BaseException as error:
            _LOG.exception("A hook of the lease of %s failed; the device is not handed over any more.", self.device)
            self._error = error


@contextmanager
def device_lease(
    device: str, *, pause: Callable[[], object] | None = None, resume: Callable[[], object] | None = None
) -> Iterator[DeviceLease]:
    """Hold a device for training or inference, and hand it over whenever an evaluation wants to time on it.

    Timings need the device alone. All processes of a user on the machine take turns: whoever waits gets the device
    before the one who gave it back. There are three ways to give way; whatever holds a lease must use one, else
    evaluations wait until the block ends.

    - Short blocks, one around each step: ``with device_lease("cuda:0"): step()``.
    - `DeviceLease.give_way` between two steps of a long block.
    - Hooks, for a server that works in threads of its own. When somebody waits, `pause` is called in another thread;
      the device is handed over when it returns, so it must return only when the device is idle. When the device is back
      `resume` is called. Each pause is followed by a resume, before the block ends.

    A thread that waits for an evaluation on the same device, e.g. in ``env.step``, must not hold a lease without hooks:
    both would wait for each other. Memory stays allocated while the device is handed over; it must suffice for both.

    Args:
        device: ``"cpu"``, or ``"cuda:<index>"`` as this process sees it.
        pause: makes the device idle.
        resume: goes on.

    Yields:
        The lease.

    Raises:
        InvalidOptionError: for a device that names none in particular, or one hook without the other.
        Exception: at the end of the block, what a hook raised meanwhile; the device was not handed over then.

    >>> with device_lease("cpu") as lease:
    ...     seconds = lease.give_way()  # nobody waits
    >>> seconds, lease.lent
    (0.0, 0)
    """
    if not isinstance(device, str) or not _DEVICE.fullmatch(device):
        raise InvalidOptionError(f"device_lease needs one device, 'cpu' or 'cuda:<index>', got {device!r}.")
    if (pause is None) != (resume is None):
        raise InvalidOptionError("device_lease needs both hooks, pause and resume, or neither.")
    lease = DeviceLease(device, pause, resume)
    lease._begin()
    try:
        yield lease
    finally:
        lease._end()
    if lease._error is not None:
        raise lease._error
