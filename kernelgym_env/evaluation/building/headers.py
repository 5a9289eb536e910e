"""Slim headers: what kernels use of ``torch/extension.h`` and ``torch/types.h``, made from the installed headers.

Almost all of a stock build is spent on headers that a kernel's source does not need: torch's modules, its JIT, and what
the declarations of operators include on the way. A folder with a few headers of the same names goes before torch's.
They declare a part of what the originals declare: each includes originals, or is the installed text with fewer
includes. So a source that compiles with them means what it means with the originals, and one that needs more does not
compile; it is then compiled as stock does.

- `slim_headers` -- their texts by path, for one source or for a precompiled header.
- `needs_full` -- whether a source names something that they are known to lack.
- `operators_in` -- the operators that have a header of their own.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

__all__ = ["needs_full", "operators_in", "slim_headers"]

_OTHERS = ("from_blob",)  # functions that are no operators
_ONCE = "#pragma once\n"
_FACTORIES = "torch/csrc/autograd/generated/variable_factories.h"
_TYPES = "torch/csrc/api/include/torch/types.h"
_INCLUDE = re.compile(r"^#(?:include[^\n]*|pragma once)\n", re.MULTILINE)
_WORD = re.compile(r"[A-Za-z_]\w*")
_PYTHON_WORD = re.compile(r"\b(?:PYBIND11_\w+|pybind11|py|Py[A-Z_]\w*|THP\w+|wrap_pybind_function\w*)\b")
_NEW_TENSOR = re.compile(r"^inline at::Tensor (\w+)\(.*?^\}\n", re.MULTILINE | re.DOTALL)
_FULL = re.compile(
    r"torch/(?:torch|all|nn|autograd|jit|optim|data|library|script|serialize|fft|special|linalg|utils)\b"
    r"|torch/csrc/(?!utils/pybind|Exceptions)"
    r"|ATen/(?:ATen|Parallel|native|TensorIterator|record_function)\b|ATen/core/(?:dispatch|ivalue|List)"
    r"|\b(?:torch|at)\s*::\s*(?:nn|autograd|jit|optim|data|fft|special|linalg|serialize|tensor|NoGradGuard|InferenceMode"
    r"|Library|class_|CppFunction|parallel_for|parallel_reduce|native|globalContext|manual_seed|get_num_threads"
    r"|set_num_threads|indexing|save|load)\b"
    r"|\bTORCH_LIBRARY\w*|\bTORCH_MODULE\b|\bIValue\b|\bat\s*::\s*DeviceGuard\b|\bdevice_of\b"
)

# what the originals bring along of the standard library, and sources therefore use without asking for it
_STANDARD = tuple(
    [
        "algorithm",
        "array",
        "atomic",
        "bitset",
        "cassert",
        "cctype",
        "cerrno",
        "cfloat",
        "chrono",
        "climits",
        "cmath",
        "complex",
        "condition_variable",
        "cstddef",
        "cstdint",
        "cstdio",
        "cstdlib",
        "cstring",
        "deque",
        "exception",
        "fstream",
        "functional",
        "initializer_list",
        "iomanip",
        "iostream",
        "iterator",
        "limits",
        "list",
        "map",
        "memory",
        "mutex",
        "numeric",
        "optional",
        "ostream",
        "queue",
        "random",
        "ratio",
        "set",
        "sstream",
        "stdexcept",
        "string",
        "string_view",
        "thread",
        "tuple",
        "type_traits",
        "typeinfo",
        "unordered_map",
        "unordered_set",
        "utility",
        "variant",
        "vector",
    ]
)
_ALWAYS = frozenset(
    [
        "algorithm",
        "cassert",
        "cmath",
        "cstdint",
        "cstring",
        "limits",
        "numeric",
        "optional",
        "stdexcept",
        "string",
        "tuple",
    ]
)
_BY_WORD = {
    "climits": {"INT_MAX", "INT_MIN", "LONG_MAX", "LLONG_MAX", "UINT_MAX"},
    "cfloat": {"FLT_MAX", "FLT_MIN", "FLT_EPSILON", "DBL_MAX", "DBL_EPSILON"},
    "cstdio": {"printf", "fprintf", "snprintf"},
    "cstdlib": {"malloc", "free", "aligned_alloc", "getenv", "abs", "exit"},
    "iostream": {"cout", "cerr", "endl"},
    "iomanip": {"setw", "setprecision"},
    "memory": {"unique_ptr", "shared_ptr", "make_unique", "make_shared"},
    "mutex": {"lock_guard", "unique_lock", "once_flag", "call_once"},
    "random": {"mt19937", "uniform_real_distribution", "normal_distribution", "random_device"},
    "sstream": {"stringstream", "ostringstream", "istringstream"},
    "thread": {"this_thread"},
    "functional": {"function", "bind", "plus", "greater", "less"},
}

_CONTEXT = """
#include <ATen/core/Generator.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
"""
_GUARD = """
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
"""
# A new tensor needs nothing but the mark; torch's own function also takes tensors that are shared. What is declared
# last keeps `torch::tensor`, which is left out, from meaning `at::tensor`.
_FRESH = """
#include <ATen/Context.h>
#include <ATen/TracerMode.h>
#include <functional>
namespace torch::autograd {
inline at::Tensor kernelgym_fresh(at::Tensor fresh, bool requires_grad) {
  if (requires_grad) fresh.unsafeGetTensorImpl()->set_requires_grad(true);
  return fresh;
}
}  // namespace torch::autograd
namespace torch {
using Deleter = std::function<void(void*)>;
using at::MemoryFormat;
struct KernelgymLacks;
void tensor(KernelgymLacks);
"""
_PYTHON = """
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
"""


def needs_full(source: str) -> bool:
    """Whether a source names something that slim headers are known to lack.

    >>> needs_full("torch::nn::Linear f(1, 2);"), needs_full("torch::Tensor f(torch::Tensor x) { return x.sum(); }")
    (True, False)
    """
    return bool(_FULL.search(source))


def slim_headers(include: Path, source: str | None) -> dict[str, str]:
    """The headers' texts by path in the folder that goes before torch's.

    Args:
        include: torch's folder of headers.
        source: a translation unit; its words say which operators' and which of the standard library's headers are
            included. None for all of them, as pays in a precompiled header.

    Raises:
        OSError: if the installed headers are not there, or not in the form this was written for.
    """
    words = None if source is None else frozenset(_WORD.findall(source))
    text = (include / _FACTORIES).read_text(encoding="utf-8")
    factories = [(match[1], match[0]) for match in _NEW_TENSOR.finditer(text) if match[1] != "tensor"]
    if "empty_like" not in dict(factories):
        raise OSError(f"{include / _FACTORIES} is not in the known form")
    if words is None:
        operators = "#include <ATen/Functions.h>\n"
    else:
        factories = [(name, function) for name, function in factories if name in words]
        operators = "".join(f"#include <ATen/ops/{name}.h>\n" for name in sorted(operators_in(include) & words))
    functions = "".join(function for _, function in factories)
    standard = "".join(f"#include <{name}>\n" for name in _STANDARD if words is None or _uses(words, name))
    python = source is None or _PYTHON_WORD.search(source)
    return {
        "ATen/Context.h": _ONCE + _CONTEXT,
        "ATen/TensorUtils.h": _ONCE + _CONTEXT,
        "ATen/DeviceGuard.h": _ONCE + _GUARD,
        _FACTORIES: f"{_ONCE}{_FRESH}{functions.replace('autograd::make_variable(', 'autograd::kernelgym_fresh(')}}}\n",
        "torch/types.h": (
            f"{_ONCE}#include <ATen/core/Tensor.h>\n#include <ATen/Dispatch.h>\n{standard}{operators}"
            f"#include <{_FACTORIES}>\n{_names_of_types(include)}"
        ),
        "torch/extension.h": f"{_ONCE}#include <torch/types.h>\n{_PYTHON if python else ''}",
    }


def _uses(words: frozenset[str], standard: str) -> bool:
    return standard in _ALWAYS or standard in words or bool(_BY_WORD.get(standard, frozenset()) & words)


@lru_cache(maxsize=4)
def operators_in(include: Path) -> frozenset[str]:
    """Names of the operators for which torch has a header of their own."""
    names = (path.stem for path in (include / "ATen" / "ops").glob("*.h"))
    return frozenset(name for name in names if (include / "ATen" / "ops" / f"{name}_ops.h").exists() or name in _OTHERS)


def _names_of_types(include: Path) -> str:
    """The text of ``torch/types.h`` without its includes."""
    return _INCLUDE.sub("", (include / _TYPES).read_text(encoding="utf-8"))
