"""Timing calls on a GPU by its own events, through the driver alone.

Runs beside a submission's code, which may have replaced whatever it can reach of torch: events, synchronisation,
streams, the filling of memory. So the driver is called directly, by functions that were taken before that code was
imported. What a submission can still reach is bounded by the judge's own clock.

- `wait_cycles` -- has the device wait.
- `DeviceClock` -- times calls, and what launching takes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

__all__ = ["DeviceClock", "wait_cycles"]

wait_cycles: Any = getattr(torch._C, "_cuda_sleep", None)
"""Has the current stream wait for so many cycles: what `torch.cuda._sleep` calls. None where torch has no CUDA."""
_address = torch.Tensor.data_ptr
_LEAD_CYCLES, _FIRST_LEAD_CYCLES = 200_000, 1_000_000
"""What the device waits before each call, and before the first: 0.1 and 0.5 ms at 2 GHz."""

_LAUNCHES = 160


class _Copy2D(ctypes.Structure):
    """The driver's ``CUDA_MEMCPY2D``."""

    _fields_ = [
        ("source_x", ctypes.c_size_t),
        ("source_y", ctypes.c_size_t),
        ("source_kind", ctypes.c_uint),
        ("source_host", ctypes.c_void_p),
        ("source", ctypes.c_uint64),
        ("source_array", ctypes.c_void_p),
        ("source_pitch", ctypes.c_size_t),
        ("target_x", ctypes.c_size_t),
        ("target_y", ctypes.c_size_t),
        ("target_kind", ctypes.c_uint),
        ("target_host", ctypes.c_void_p),
        ("target", ctypes.c_uint64),
        ("target_array", ctypes.c_void_p),
        ("target_pitch", ctypes.c_size_t),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
    ]


_ON_DEVICE = 2  # CU_MEMORYTYPE_DEVICE


class DeviceClock:
    """Events of one device.

    Args:
        index: the device's index in this process.
    """

    def __init__(self, index: int) -> None:
        driver = ctypes.CDLL("libcuda.so.1")
        self._index = index
        self._stream = torch._C._cuda_getCurrentRawStream
        self._create, self._destroy = driver.cuEventCreate, driver.cuEventDestroy_v2
        self._record, self._elapsed = driver.cuEventRecord, driver.cuEventElapsedTime
        self._idle = driver.cuCtxSynchronize
        self._fill, self._copy = driver.cuMemsetD32Async, driver.cuMemcpyDtoDAsync_v2
        self._copy_lines = driver.cuMemcpy2DAsync_v2
        self._unpin = driver.cuCtxResetPersistingL2Cache

    def time(
        self,
        call: Callable[[], Any],
        swaps: list[Any],
        flush: torch.Tensor,
        sets: list[int],
        keep: Callable[[Any], None],
    ) -> list[float]:
        """Time calls with a cold cache.

        Before each call the device waits, parts of the arguments are exchanged, all of the level 2 cache is given back
        that an earlier call may have reserved, and `flush` is overwritten. The wait lets the host get ahead: a call is
        launched while the device is not there yet, and what is timed is the device's work, however busy the host is.
        After a pause the host is slower, so the first wait is longer.

        Args:
            call: what is timed, on the current stream.
            swaps: for each call, ``(offset, width, height, pitch)`` of the parts; see `contents.Walk`.
            flush: memory larger than the device's last-level cache; a whole number of 4-byte words.
            sets: the two addresses between which parts are exchanged.
            keep: gets what each call returned, behind the second event.

        Returns:
            Microseconds of each call.

        Raises:
            RuntimeError: if the driver reports an error, the submission's own kernels' included.
        """
        lead = _FIRST_LEAD_CYCLES
        with self._events(2 * len(swaps)) as events:
            self._check(self._idle())
            for start, end, parts in zip(events[::2], events[1::2], swaps, strict=True):
                self._check(self._unpin())
                stream = self._current()
                wait_cycles(lead)
                lead = _LEAD_CYCLES
                for part in parts:
                    self._exchange(part, sets, flush, stream)
                self._overwrite(flush, stream)
                self._check(self._record(start, stream))
                result = call()
                self._check(self._record(end, self._current()))
                keep(result)
                del result  # what the next call gives may lie where this one lay
            self._check(self._idle())
            return [self._between(start, end) for start, end in zip(events[::2], events[1::2], strict=True)]

    def launch_us(self, flush: torch.Tensor) -> float:
        """Microseconds of a kernel that does nothing, with a cold cache: what launching and the events add to a call.

        It is steady in a process and differs between processes, on an H200 by up to 0.2 of 3.5 us. To be asked before a
        submission's code can have a say in it.

        Args:
            flush: as in `time`.

        Returns:
            The mean of the middle half of many, so that what else runs on the device does not count.

        Raises:
            RuntimeError: if the driver reports an error.
        """
        with self._events(2 * _LAUNCHES) as events:
            stream = self._current()
            for start, end in zip(events[::2], events[1::2], strict=True):
                wait_cycles(_LEAD_CYCLES)
                self._overwrite(flush, stream)
                self._check(self._record(start, stream))
                wait_cycles(1)
                self._check(self._record(end, stream))
            self._check(self._idle())
            found = sorted(self._between(start, end) for start, end in zip(events[::2], events[1::2], strict=True))
        half = found[len(found) // 4 : -len(found) // 4]
        return sum(half) / len(half)

    def span(self, run: Callable[[], None]) -> float:
        """Microseconds of the device between the first and the last of what `run` launches on the current stream.

        Args:
            run: launches work, and waits for it or not.

        Raises:
            RuntimeError: if the driver reports an error, the submission's own kernels' included.
        """
        with self._events(2) as (start, end):
            self._check(self._record(start, self._current()))
            run()
            self._check(self._record(end, self._current()))
            self._check(self._idle())
            return self._between(start, end)

    @contextmanager
    def _events(self, number: int) -> Iterator[list[ctypes.c_void_p]]:
        events = [ctypes.c_void_p() for _ in range(number)]
        try:
            for event in events:
                self._check(self._create(ctypes.byref(event), ctypes.c_uint(0)))
            yield events
        finally:
            for event in events:
                if event.value:
                    self._destroy(event)

    def _current(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._stream(self._index))

    def _overwrite(self, flush: torch.Tensor, stream: ctypes.c_void_p) -> None:
        words = ctypes.c_size_t(flush.numel() // 4)
        self._check(self._fill(ctypes.c_uint64(_address(flush)), ctypes.c_uint(0), words, stream))

    def _exchange(self, part: list[int], sets: list[int], flush: torch.Tensor, stream: ctypes.c_void_p) -> None:
        """Exchange lines of memory between two places, by way of a third."""
        offset, width, height, pitch = part
        room = flush.numel()
        if height > 1 and width <= room:
            most = room // width
            blocks = [
                (offset + done * pitch, width, min(most, height - done), pitch) for done in range(0, height, most)
            ]
        else:
            blocks = [
                (offset + line * pitch + done, min(room, width - done), 1, room)
                for line in range(height)
                for done in range(0, width, room)
            ]
        for start, wide, high, step in blocks:
            one, two = ((base + start, step) for base in sets)
            spare = (_address(flush), wide)
            for target, source in ((spare, one), (one, two), (two, spare)):
                copy = _Copy2D(
                    source_kind=_ON_DEVICE,
                    source=source[0],
                    source_pitch=source[1],
                    target_kind=_ON_DEVICE,
                    target=target[0],
                    target_pitch=target[1],
                    width=wide,
                    height=high,
                )
                self._check(self._copy_lines(ctypes.byref(copy), stream))

    def copy(self, target: int, source: int, size: int) -> None:
        """Copy memory of the device from one address to another, on the current stream.

        Raises:
            RuntimeError: if the driver reports an error.
        """
        length = ctypes.c_size_t(size)
        self._check(self._copy(ctypes.c_uint64(target), ctypes.c_uint64(source), length, self._current()))

    def _between(self, start: ctypes.c_void_p, end: ctypes.c_void_p) -> float:
        milliseconds = ctypes.c_float()
        self._check(self._elapsed(ctypes.byref(milliseconds), start, end))
        return milliseconds.value * 1e3

    def _check(self, code: int) -> None:
        if code:
            raise RuntimeError(f"CUDA error {code} while calls were timed")
