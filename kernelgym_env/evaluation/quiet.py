"""Judges on one device check side by side, and time one at a time.

A device that another judge checks a submission on is no place to take times. So each judge holds a lock that they
share while it uses the device for anything but timing; who wants to time waits until nobody does.

Were each judge to check to its end first, all would wait for the slowest, and then for each other. So those who want
to time ask, whoever checks gives way, with its processes held still wherever they are, and one after the other they
time. Who has a lease of the device (see `lease`) is asked for it then: a trainer is paused for as long as timing takes.

- `Quiet` -- one judge's part in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kernelgym_env.evaluation.locks import Turn

__all__ = ["Quiet"]

_LONGEST_WAIT_S = 900.0
_LOCK, _ASKED = "quiet", "quiet-asked"
_POLL_S, _TURN_S = 0.004, 2.0
_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 0.5


class Quiet:
    """One judge's part.

    Args:
        device: as this process sees it.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._together = Turn(device, "checking", lock=_LOCK, shared=True)
        self._alone = Turn(device, "timing", lock=_LOCK)
        self._asks = Turn(device, "wanting to time", lock=_ASKED, shared=True)
        self._unleased = Turn(device)
        self._here = False

    def enter(self) -> None:
        """Begin to use the device; others may do so at the same time, but for timing.

        Raises:
            TimeoutError: if others timed for a quarter of an hour.
        """
        if self._here:
            return
        deadline = time.monotonic() + _LONGEST_WAIT_S
        # those who time come first: each of them has to check again before it comes back, so nobody waits for ever
        while self._asks.elsewhere() and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        self._together.take(max(0.0, deadline - time.monotonic()))
        self._here = True

    def leave(self) -> None:
        """Use it no more; nothing happens if it is not used."""
        if self._here:
            self._together.give()
            self._here = False

    @property
    def here(self) -> bool:
        """Whether this judge uses the device, so that nobody times."""
        return self._here

    @property
    def asked(self) -> bool:
        """Whether somebody wants to time and waits for this judge, among others."""
        return self._here and self._asks.elsewhere()

    def give_way(self) -> None:
        """Let those who asked have the device, and wait until they are done.

        Raises:
            TimeoutError: as `enter`.
        """
        if self._here:
            self.leave()
            self.enter()

    @contextmanager
    def alone(self, idle: Callable[[], bool] = lambda: True, busy: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Within the block nobody else checks or times on the device, and no lease holds it.

        Args:
            idle: whether the device does nothing; what a process has started goes on while that is held still.
            busy: called where it does something, when all is given back.

        Raises:
            TimeoutError: if the others took a quarter of an hour.
        """
        here = self._here
        self.leave()  # two that wait for each other to leave would wait for ever
        began, asking, pause_s = time.monotonic(), False, _PAUSE_S
        try:
            while True:
                if self._alone.try_take():
                    self._unleased.take(_LONGEST_WAIT_S)  # before a look at it: who has a lease works until it is asked
                    if idle():
                        break
                    self._give_all()
                    busy()
                    time.sleep(pause_s)
                    pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)  # to give a lease back and ask again takes its time
                waited = time.monotonic() - began
                if waited > _LONGEST_WAIT_S:
                    raise TimeoutError(f"Device {self._device} was not quiet for {_LONGEST_WAIT_S:g} s.")
                asks = _in_turn(waited)
                if asks and not asking:
                    self._asks.take(_LONGEST_WAIT_S)
                elif asking and not asks:
                    self._asks.give()
                asking = asks
                time.sleep(_POLL_S)
            if not asking:
                self._asks.take(_LONGEST_WAIT_S)
            yield
        finally:
            self._give_all()
            self._asks.give()
        if here:
            self.enter()

    def _give_all(self) -> None:
        self._unleased.give()
        self._alone.give()


def _in_turn(waited_s: float) -> bool:
    """Whether one who has waited so long may ask now: all may at first, then all together every other few seconds.

    Where somebody cannot be interrupted, or a kernel does not end, nobody can time before that. Others check on
    meanwhile.
    """
    return waited_s < _TURN_S or time.monotonic() // _TURN_S % 2 == 0
