"""Timing calls on a GPU by its own events, through the driver alone.

Runs beside a submission's code, which may have replaced whatever it can reach of torch: events, synchronisation,
streams, the filling of memory. So the driver is called directly, by functions that were taken before that code was
imported. What a submission can still reach is bounded by the judge's own clock.

- `DeviceClock` -- times calls.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["DeviceClock"]

_address = torch.Tensor.data_ptr


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

        Before each call, parts of the arguments are exchanged, all of the level 2 cache is given back that an earlier
        call may have reserved, and `flush` is overwritten, which also hides the time that the host takes to launch.

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
        events = [ctypes.c_void_p() for _ in range(2 * len(swaps))]
        place, words = ctypes.c_uint64(_address(flush)), ctypes.c_size_t(flush.numel() // 4)
        try:
            for event in events:
                self._check(self._create(ctypes.byref(event), ctypes.c_uint(0)))
            self._check(self._idle())
            for start, end, parts in zip(events[::2], events[1::2], swaps, strict=True):
                self._check(self._unpin())
                stream = ctypes.c_void_p(self._stream(self._index))
                for part in parts:
                    self._exchange(part, sets, flush, stream)
                self._check(self._fill(place, ctypes.c_uint(0), words, stream))
                self._check(self._record(start, stream))
                result = call()
                self._check(self._record(end, ctypes.c_void_p(self._stream(self._index))))
                keep(result)
                del result  # what the next call gives may lie where this one lay
            self._check(self._idle())
            return [self._between(start, end) for start, end in zip(events[::2], events[1::2], strict=True)]
        finally:
            for event in events:
                if event.value:
                    self._destroy(event)

    def span(self, run: Callable[[], None]) -> float:
        """Microseconds of the device between the first and the last of what `run` launches on the current stream.

        Args:
            run: launches work, and waits for it or not.

        Raises:
            RuntimeError: if the driver reports an error, the submission's own kernels' included.
        """
        events = [ctypes.c_void_p() for _ in range(2)]
        try:
            for event in events:
                self._check(self._create(ctypes.byref(event), ctypes.c_uint(0)))
            start, end = events
            self._check(self._record(start, ctypes.c_void_p(self._stream(self._index))))
            run()
            self._check(self._record(end, ctypes.c_void_p(self._stream(self._index))))
            self._check(self._idle())
            return self._between(start, end)
        finally:
            for event in events:
                if event.value:
                    self._destroy(event)

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
        stream = ctypes.c_void_p(self._stream(self._index))
        self._check(self._copy(ctypes.c_uint64(target), ctypes.c_uint64(source), ctypes.c_size_t(size), stream))

    def _between(self, start: ctypes.c_void_p, end: ctypes.c_void_p) -> float:
        milliseconds = ctypes.c_float()
        self._check(self._elapsed(ctypes.byref(milliseconds), start, end))
        return milliseconds.value * 1e3

    def _check(self, code: int) -> None:
        if code:
            raise RuntimeError(f"CUDA error {code} while calls were timed")
