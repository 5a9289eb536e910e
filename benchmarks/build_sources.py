"""Extensions of the kinds that submissions build, for `build.py`: 17 in C++, 15 in CUDA, each adding two matrices."""

from __future__ import annotations

__all__ = ["TASK", "sources"]

TASK = """
import torch


class Model(torch.nn.Module):
    def forward(self, a, b):
        return a + b


def get_inputs():
    return [torch.randn(256, 256), torch.randn(256, 256)]


def get_init_inputs():
    return []
"""

_SUBMISSION = """
import torch
from torch.utils.cpp_extension import load_inline

ext = load_inline(name={name!r}, {options})


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return {call}
"""

_ADD = """
torch::Tensor add(torch::Tensor a, torch::Tensor b) {
  TORCH_CHECK(a.sizes() == b.sizes(), "sizes differ");
  auto c = torch::empty_like(a);
  const float* p = a.data_ptr<float>();
  const float* q = b.data_ptr<float>();
  float* r = c.data_ptr<float>();
  for (int64_t i = 0; i < a.numel(); ++i) r[i] = p[i] + q[i];
  return c;
}
"""
_PARALLEL = _ADD.replace("  for (", "#pragma omp parallel for\n  for (")
_BOUND = '\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("{name}", &{name}, "sum"); }}\n'
_BOUND_ADD = _BOUND.format(name="add")
_CPP: dict[str, tuple[str, str]] = {
    "plain": (_ADD, 'functions=["add"]'),
    "O3": (_ADD, 'functions=["add"], extra_cflags=["-O3"]'),
    "native fast": (_ADD, 'functions=["add"], extra_cflags=["-O3", "-march=native", "-ffast-math"]'),
    "openmp": (_PARALLEL, 'functions=["add"], extra_cflags=["-O3", "-fopenmp"], extra_ldflags=["-fopenmp"]'),
    "O1 with symbols": (_ADD, 'functions=["add"], extra_cflags=["-O1", "-g"]'),
    "own binding": ("#include <torch/extension.h>\n#include <vector>\n" + _ADD + _BOUND_ADD, ""),
    "verbose": (_ADD, 'functions=["add"], verbose=True'),
    "dispatch": (
        """
template <typename T>
void run(const T* a, const T* b, T* c, int64_t n) { std::transform(a, a + n, b, c, std::plus<T>()); }
torch::Tensor add(torch::Tensor a, torch::Tensor b) {
  auto x = a.contiguous(), y = b.contiguous();
  auto c = torch::zeros(x.sizes(), x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "add", [&] {
    run<scalar_t>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), c.data_ptr<scalar_t>(), x.numel());
  });
  return c;
}
""",
        'functions=["add"]',
    ),
    "accessors and a vector": (
        """
#include <vector>
torch::Tensor add(torch::Tensor a, torch::Tensor b) {
  std::vector<int64_t> sizes(a.sizes().begin(), a.sizes().end());
  auto c = torch::empty(sizes, torch::TensorOptions().dtype(torch::kFloat32).device(a.device()));
  auto x = a.accessor<float, 2>(), y = b.accessor<float, 2>(), z = c.accessor<float, 2>();
  for (int64_t i = 0; i < x.size(0); ++i)
    for (int64_t j = 0; j < x.size(1); ++j) z[i][j] = x[i][j] + y[i][j];
  return c;
}
""",
        'functions={"add": "the sum of two"}',
    ),
    "threads": (
        """
#include <thread>
#include <vector>
torch::Tensor add(const torch::Tensor& a, const torch::Tensor& b) {
  auto c = torch::empty_like(a);
  const float *p = a.data_ptr<float>(), *q = b.data_ptr<float>();
  float* r = c.data_ptr<float>();
  const int64_t half = a.numel() / 2, n = a.numel();
  std::vector<std::thread> team;
  for (int t = 0; t < 2; ++t)
    team.emplace_back([=] { for (int64_t i = t * half; i < (t ? n : half); ++i) r[i] = p[i] + q[i]; });
  for (auto& one : team) one.join();
  return c;
}
""",
        'functions=["add"]',
    ),
    "std::optional and pybind11": (
        "#include <torch/extension.h>\n"
        + _ADD
        + """
torch::Tensor scaled(torch::Tensor a, torch::Tensor b, std::optional<double> scale) {
  auto c = ::add(a, b);  // at::add would do as well, and a bare name means either
  if (scale) c.mul_(*scale);
  return c;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("add", &add, py::arg("a"), py::arg("b"));
  m.def("scaled", &scaled, py::arg("a"), py::arg("b"), py::arg("scale") = py::none());
}
""",
        "",
    ),
    "parallel_for": (
        """
#include <ATen/Parallel.h>
torch::Tensor add(torch::Tensor a, torch::Tensor b) {
  auto c = torch::empty_like(a);
  const float *p = a.data_ptr<float>(), *q = b.data_ptr<float>();
  float* r = c.data_ptr<float>();
  at::parallel_for(0, a.numel(), 1024, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) r[i] = p[i] + q[i];
  });
  return c;
}
""",
        'functions=["add"]',
    ),
    "torch::nn": (
        _ADD + "torch::Tensor other(torch::Tensor x) { return torch::nn::functional::relu(x); }\n",
        'functions=["add"]',
    ),
    "ambiguous": (_ADD + "torch::Tensor twice(torch::Tensor a) { return add(a, a); }\n", 'functions=["add"]'),
    "unknown name": (_ADD.replace("a.numel()", "a.number()"), 'functions=["add"]'),
    "syntax": (_ADD.replace("return c;", "return c"), 'functions=["add"]'),
    "no such function": (_ADD, 'functions=["sum_of_two"]'),
}

_HEAD = "#include <torch/extension.h>\n#include <cuda_runtime.h>\n"
_KERNEL = """
__global__ void add_kernel(const float* a, const float* b, float* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}
torch::Tensor add(torch::Tensor a, torch::Tensor b) {
  auto c = torch::empty_like(a);
  int n = a.numel();
  add_kernel<<<(n + 255) / 256, 256STREAM>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), n);
  return c;
}
"""
_PLAIN = _HEAD + _KERNEL.replace("STREAM", "")
_TYPED = """
template <typename T>
__global__ void add_kernel(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c, size_t n) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
    c[i] = a[i] + b[i];
}
torch::Tensor add(torch::Tensor a, torch::Tensor b) {
  TORCH_CHECK(a.is_cuda() && a.is_contiguous(), "a must be on the GPU");
  auto c = torch::zeros_like(a);
  AT_DISPATCH_FLOATING_TYPES(a.scalar_type(), "add", ([&] {
    add_kernel<scalar_t><<<256, 256>>>(a.data_ptr<scalar_t>(), b.data_ptr<scalar_t>(),
        c.data_ptr<scalar_t>(), a.numel());
  }));
  return c;
}
"""
_DECLARED = "torch::Tensor add(torch::Tensor a, torch::Tensor b);"
_FUNCTIONS = 'functions=["add"]'
_CUDA: dict[str, tuple[str, str]] = {
    "plain": (_PLAIN, _FUNCTIONS),
    "fast math": (_PLAIN, _FUNCTIONS + ', extra_cuda_cflags=["-O3", "--use_fast_math"]'),
    "ptxas": (_PLAIN, _FUNCTIONS + ', extra_cuda_cflags=["-O3", "-Xptxas=-v", "-lineinfo"], verbose=True'),
    "with_cuda": (_PLAIN, _FUNCTIONS + ', with_cuda=True, extra_cflags=["-O3"]'),
    "dispatch": (_HEAD + _TYPED, _FUNCTIONS),
    "dispatch with half": (
        _HEAD + _TYPED.replace("AT_DISPATCH_FLOATING_TYPES(", "AT_DISPATCH_FLOATING_TYPES_AND_HALF("),
        _FUNCTIONS,
    ),
    "implicit headers": (_KERNEL.replace("STREAM", ""), _FUNCTIONS),
    "c10 stream": (
        _HEAD
        + "#include <c10/cuda/CUDAStream.h>\n"
        + _KERNEL.replace("STREAM", ", 0, c10::cuda::getCurrentCUDAStream()"),
        _FUNCTIONS,
    ),
    "ATen stream": (
        _HEAD
        + "#include <ATen/cuda/CUDAContext.h>\n"
        + _KERNEL.replace("STREAM", ", 0, at::cuda::getCurrentCUDAStream()"),
        _FUNCTIONS,
    ),
    "guard": (
        _HEAD
        + "#include <c10/cuda/CUDAGuard.h>\n"
        + _KERNEL.replace("STREAM", "").replace(
            "  auto c", "  const at::cuda::OptionalCUDAGuard guard(a.device());\n  auto c"
        ),
        _FUNCTIONS,
    ),
    "vectors of four": (
        _HEAD
        + """
__global__ void add_kernel(const float4* a, const float4* b, float4* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { float4 x = a[i], y = b[i]; c[i] = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w); }
}
torch::Tensor add(torch::Tensor a, torch::Tensor b) {
  auto c = torch::empty({a.size(0), a.size(1)}, a.options());
  int n = a.numel() / 4;
  add_kernel<<<(n + 127) / 128, 128>>>(reinterpret_cast<const float4*>(a.data_ptr<float>()),
      reinterpret_cast<const float4*>(b.data_ptr<float>()), reinterpret_cast<float4*>(c.data_ptr<float>()), n);
  return c;
}
""",
        _FUNCTIONS,
    ),
    "packed accessors": (
        _HEAD
        + """
__global__ void add_kernel(torch::PackedTensorAccessor32<float, 2, torch::RestrictPtrTraits> a,
    torch::PackedTensorAccessor32<float, 2, torch::RestrictPtrTraits> b,
    torch::PackedTensorAccessor32<float, 2, torch::RestrictPtrTraits> c) {
  int i = blockIdx.x, j = threadIdx.x;
  if (i < a.size(0) && j < a.size(1)) c[i][j] = a[i][j] + b[i][j];
}
torch::Tensor add(torch::Tensor a, torch::Tensor b) {
  auto c = torch::empty_like(a);
  add_kernel<<<a.size(0), a.size(1)>>>(a.packed_accessor32<float, 2, torch::RestrictPtrTraits>(),
      b.packed_accessor32<float, 2, torch::RestrictPtrTraits>(),
      c.packed_accessor32<float, 2, torch::RestrictPtrTraits>());
  return c;
}
""",
        _FUNCTIONS,
    ),
    "operators of torch": (
        _PLAIN + "torch::Tensor other(torch::Tensor x) { return torch::clamp(torch::exp(x).sum(1), 0, 1); }\n",
        _FUNCTIONS,
    ),
    "torch::nn": (
        _PLAIN + "torch::Tensor other(torch::Tensor x) { return torch::nn::functional::relu(x); }\n",
        _FUNCTIONS,
    ),
    "unknown name": (_PLAIN.replace("a.numel()", "a.number()"), _FUNCTIONS),
}


def sources(kind: str) -> dict[str, str]:
    """Submissions by name.

    Args:
        kind: ``"cpu"`` or ``"cuda"``.
    """
    found = {}
    for number, (name, (code, options)) in enumerate((_CPP if kind == "cpu" else _CUDA).items()):
        call = "ext.sum_of_two(a, b)" if "sum_of_two" in options else "ext.add(a, b)"
        given = f"cpp_sources={code!r}" if kind == "cpu" else f"cpp_sources={_DECLARED!r}, cuda_sources={code!r}"
        made = _SUBMISSION.format(name=f"measured_{number}", options=f"{given}, {options}".rstrip(", "), call=call)
        found[f"{'C++' if kind == 'cpu' else 'CUDA'}: {name}"] = made
    return found
