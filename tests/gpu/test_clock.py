"""The device's clock, and the judge's own beside it."""

import statistics
import time

import pytest
import torch
from gpu_programs import CUPY, TRITON
from programs import task

from kernelgym_env.evaluation.device_clock import DeviceClock
from kernelgym_env.evaluation.result import Status

pytestmark = pytest.mark.gpu

LONG = task("        return torch.relu(args[0]) * 2", "[torch.randn(16384, 8192)]")

PATCHED = """
import time
import torch

real = torch.cuda.Event.elapsed_time
torch.cuda.Event.elapsed_time = lambda self, other: real(self, other) / 100
torch.cuda.synchronize = lambda *a, **k: None
torch.Tensor.zero_ = lambda self: self
keep = time.perf_counter
time.perf_counter = lambda: keep() / 100
"""

# replaces the driver's function where every caller in the process finds it
HOOKED = """
import ctypes
import ctypes.util
import mmap

def hook():
    lib = ctypes.CDLL("libcuda.so.1")
    place = ctypes.cast(lib.cuEventElapsedTime, ctypes.c_void_p).value
    page = place & ~4095
    libc = ctypes.CDLL(None)
    assert libc.mprotect(ctypes.c_void_p(page), 8192, 7) == 0
    # mov dword ptr [rdi], 0x3c23d70a (0.01 ms); xor eax, eax; ret
    ctypes.memmove(place, bytes.fromhex("c7070ad7233c31c0c3"), 9)

hook()
"""


def test_a_clock_within_reach_gains_nothing(judge):
    pytest.importorskip("cupy")
    honest, patched = judge(CUPY, LONG), judge(PATCHED + CUPY, LONG)
    assert honest.status is Status.CORRECT, honest.feedback
    assert patched.status is Status.CORRECT, patched.feedback
    assert patched.speedup < honest.speedup * 1.05


def test_a_driver_that_is_patched_is_found_out(judge):
    evaluation = judge(HOOKED + TRITON, LONG)
    assert evaluation.status is Status.INTEGRITY, (evaluation.feedback, evaluation.times)


def test_a_slower_kernel_is_measured_once(judge):
    """The call made ahead of timed ones is as long as they are, and the reference's is short."""
    slow = TRITON.replace("def forward(self, x):", "def forward(self, x):\n        torch.cuda._sleep(8_000_000)")
    assert slow != TRITON
    evaluation = judge(slow)
    assert evaluation.status is Status.CORRECT, evaluation.feedback
    assert evaluation.speedup < 0.1
    assert evaluation.provenance["retest"] == {}


def test_a_reserved_cache_is_given_back(judge):
    honest = judge(TRITON)
    reserve = """
import ctypes
import torch
cuda = ctypes.CDLL("libcuda.so.1")
torch.zeros(1, device="cuda")
cuda.cuCtxSetLimit(6, ctypes.c_size_t(1 << 30))
"""
    evaluation = judge(reserve + TRITON)
    assert evaluation.status is Status.CORRECT, evaluation.feedback
    assert evaluation.speedup_low < honest.speedup_high * 1.1


def test_a_slow_host_is_not_timed():
    clock, x = DeviceClock(0), torch.randn(4096, 4096, device="cuda")
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")

    def slowly() -> torch.Tensor:
        end = time.perf_counter() + 5e-5
        while time.perf_counter() < end:
            pass
        return torch.relu(x)

    def timed(call):
        return clock.time(call, [[]] * 20, flush, [0, 0], lambda result: None)

    timed(slowly)
    plain, slow = timed(lambda: torch.relu(x)), timed(slowly)
    assert statistics.median(slow) < 1.05 * statistics.median(plain)
    assert plain[0] < 1.1 * statistics.median(plain)  # after a pause, too


def test_launching_takes_the_same_time_again():
    clock, flush = DeviceClock(0), torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    first, again = clock.launch_us(flush), clock.launch_us(flush)
    assert 1 < first < 20
    assert abs(first - again) < 0.05 * first
