"""Whose kernels did the work, as CUPTI and the host's threads show it."""

import pytest
from gpu_programs import CUPY, PROTOCOL, TASK, TRITON
from programs import task

from kernelgym_env.evaluation.result import Status

pytestmark = pytest.mark.gpu

OWN_ONLY = PROTOCOL.replace(library_ops="forbid")
PRODUCT = task("        return args[0] @ args[1]", "[torch.randn(1024, 1024), torch.randn(1024, 1024)]")

GENERATED = """
import cupy
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            {body}
        return y
"""

ELEMENTWISE = """
import cupy
import torch
from torch import nn

relu2 = cupy.ElementwiseKernel("float32 x", "float32 y", "y = fmaxf(x, 0.0f) * 2.0f", "relu2")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            relu2(cupy.from_dlpack(x), cupy.from_dlpack(y))
        return y
"""

THREAD = """
import threading
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        got = []

        def work():
            with torch.no_grad():
                got.append(torch.relu(x) * 2)
                torch.cuda.synchronize()

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return got[0]
"""

HOST = """
import numpy
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.from_numpy(numpy.maximum(x.cpu().numpy(), 0) * 2).to(x.device)
"""

CUBLAS = """
import ctypes
import glob
import os
import torch
from torch import nn

torch.ones(8, 8, device="cuda") @ torch.ones(8, 8, device="cuda")
with open("/proc/self/maps") as file:
    path = next(line.split()[-1] for line in file if "libcublas.so" in line)
blas = ctypes.CDLL(path)
handle = ctypes.c_void_p()
assert blas.cublasCreate_v2(ctypes.byref(handle)) == 0


class ModelNew(nn.Module):
    def forward(self, a, b):
        y = torch.empty(1024, 1024, device=a.device)
        one, zero = ctypes.c_float(1), ctypes.c_float(0)
        blas.cublasSetStream_v2(handle, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        n = ctypes.c_int(1024)
        code = blas.cublasSgemm_v2(
            handle, 0, 0, n, n, n, ctypes.byref(one), ctypes.c_void_p(b.data_ptr()), n,
            ctypes.c_void_p(a.data_ptr()), n, ctypes.byref(zero), ctypes.c_void_p(y.data_ptr()), n,
        )
        assert code == 0
        return y
"""

GRAPHED = TRITON.replace(
    "class ModelNew(nn.Module):",
    """class ModelNew(nn.Module):
    graph = None

    def forward(self, x):
        if self.graph is None:
            self.inner(x)
            torch.cuda.synchronize()
            self.x = x.clone()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.y = self.inner(self.x)
        self.x.copy_(x)
        self.graph.replay()
        return self.y.clone()

    def inner""",
).replace("def inner\n    def forward(self, x):", "def inner(self, x):")


@pytest.mark.parametrize(
    ("source", "launches"), [(TRITON, 1), (CUPY, 1), (ELEMENTWISE, 1), (GRAPHED, 1)],
    ids=["triton", "raw", "elementwise", "graphed"],
)  # fmt: skip
def test_own_kernels_are_told_as_own(judge, source, launches):
    if "cupy" in source:
        pytest.importorskip("cupy")
    evaluation = judge(source, protocol=OWN_ONLY)
    assert evaluation.status is Status.CORRECT, evaluation.feedback
    assert evaluation.own_launches == launches, evaluation.provenance["evidence"]
    assert evaluation.coverage > (0.3 if source is GRAPHED else 0.99), evaluation.provenance["evidence"]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (GENERATED.format(body="y.copy_(torch.from_dlpack(cupy.maximum(cupy.from_dlpack(x), 0) * 2))"), "cupy"),
        (THREAD, "libtorch"),
        (HOST, "numpy"),
    ],
    ids=["generators", "thread", "host"],
)
def test_others_that_do_the_work_are_named(judge, source, said):
    if "cupy" in source:
        pytest.importorskip("cupy")
    evaluation = judge(source, protocol=OWN_ONLY)
    assert evaluation.status is Status.POLICY, (evaluation.feedback, evaluation.provenance["evidence"])
    assert said in evaluation.feedback


def test_a_blas_called_by_pointer_is_named_and_may_be_permitted(judge):
    evaluation = judge(CUBLAS, PRODUCT, protocol=OWN_ONLY)
    assert evaluation.status is Status.POLICY, (evaluation.feedback, evaluation.provenance["evidence"])
    assert "blas" in evaluation.feedback
    permitted = judge(CUBLAS, PRODUCT, protocol=PROTOCOL.replace(library_ops="gemm"))
    assert permitted.status is Status.CORRECT, (permitted.feedback, permitted.provenance["evidence"])


def test_coverage_is_the_share_of_device_time(judge):
    mixed = TRITON.replace("        return y", "        return torch.relu(y) + 0")
    evaluation = judge(mixed, TASK)
    assert evaluation.status is Status.CORRECT, evaluation.feedback
    assert 0.1 < evaluation.coverage < 0.6, evaluation.provenance["evidence"]
