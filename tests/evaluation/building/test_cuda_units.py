"""Translation units for nvcc, as far as they can be compiled without a GPU and with a torch for the CPU."""

from __future__ import annotations

import os
import shutil

import pytest

from kernelgym_env.evaluation.building import installed
from kernelgym_env.evaluation.building.service import Build, Builder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc"),
]
KERNEL = """
#include <torch/types.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
template <typename T>
__global__ void add_kernel(const T* a, const T* b, T* c, int64_t n) {
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}
torch::Tensor add(torch::Tensor a, torch::Tensor b) {
  TORCH_CHECK(a.is_cuda(), "a must be on the GPU");
  auto c = torch::empty_like(a);
  AT_DISPATCH_FLOATING_TYPES(a.scalar_type(), "add", ([&] {
    add_kernel<scalar_t><<<(a.numel() + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        a.data_ptr<scalar_t>(), b.data_ptr<scalar_t>(), c.data_ptr<scalar_t>(), a.numel());
  }));
  return c;
}
"""


@pytest.fixture
def cuda_flags(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """As torch's own for CUDA; a torch for the CPU lacks one header, which a macro leaves out."""
    if not installed.compilers()["nvcc"]:  # a torch for the CPU does not look for it
        found = {**installed.compilers(), "nvcc": shutil.which("nvcc") or ""}
        monkeypatch.setattr(installed, "compilers", lambda: found)
    flags = [part for folder in installed.orders()[-1] for part in ("-isystem", folder)]
    flags += ["-D__CUDA_NO_HALF_OPERATORS__", "--expt-relaxed-constexpr", "-gencode=arch=compute_90,code=sm_90"]
    if not (installed.include() / "c10/cuda/impl/cuda_cmake_macros.h").exists():
        flags.append("-DC10_USING_CUSTOM_GENERATED_MACROS")
    return [*flags, "--compiler-options", "-fPIC", "-std=c++20"]


def test_a_kernel_compiles_with_slim_headers(builder: Builder, cuda_flags: list[str]) -> None:
    unit = {"kind": "nvcc", "name": "cuda.cu", "text": KERNEL, "flags": cuda_flags}
    build = Build()
    answer, fds, _ = builder.build({"units": [{**unit, "compiler": installed.compilers()["nvcc"]}]}, 280.0, build)
    assert answer["units"][0]["code"] == 0, answer["units"][0]["output"][-3000:]
    assert build.units[0]["how"] in ("slim", "cached")
    data = os.pread(fds[0], 1 << 26, 0)
    os.close(fds[0])
    for name in (b"_Z10add_kernelIfEvPKT_S2_PS0_l", b"_Z10add_kernelIdEvPKT_S2_PS0_l"):
        assert name in data  # registered by the host's side
