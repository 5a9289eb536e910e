"""Judges on one device check side by side, and time one at a time.

A device that another judge checks a submission on is no place to take times. So each judge holds a lock that they
share while it uses the device for anything but timing; who wants to time waits until nobody does. A lease of the device
(see `lease`) keeps times away too, but not checks: a trainer is paused for as long as timing takes.

- `Quiet` -- one judge's part in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kernelgym_env.evaluation.locks import Turn, device_lock

__all__ = ["Quiet"]

_LONGEST_WAIT_S = 900.0
_LOCK = "quiet"


class Quiet:
    """One judge's part.

    Args:
        device: as this process sees it.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._together = Turn(device, "checking", lock=_LOCK, shared=True)
        self._alone = Turn(device, "timing", lock=_LOCK)
        self._here = False

    def enter(self) -> None:
        """Begin to use the device; others may do so at the same time, but for timing.

        Raises:
            TimeoutError: if somebody timed for a quarter of an hour.
        """
        if not self._here:
            self._together.take(_LONGEST_WAIT_S)
            self._here = True

    def leave(self) -> None:
        """Use it no more; nothing happens if it is not used."""
        if self._here:
            self._together.give()
            self._here = False

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Within the block nobody else checks or times on the device, and no lease holds it.

        Raises:
            TimeoutError: if the others took a quarter of an hour.
        """
        here = self._here
        self.leave()  # two that wait for each other to leave would wait for ever
        self._alone.take(_LONGEST_WAIT_S)
        try:
            with device_lock(self._device, timeout_s=_LONGEST_WAIT_S):
                yield
        finally:
            self._alone.give()
        if here:
            self.enter()
