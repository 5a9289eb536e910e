"""The device's clock, and the judge's own beside it."""

import pytest
from gpu_programs import CUPY, TRITON
from programs import task

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
