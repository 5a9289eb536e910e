"""Compilers, headers and processor of this machine, and what tells them from others.

- `compilers`, `include`, `folders`, `orders`, `macros` -- what torch uses.
- `identity`, `torch_identity`, `cpu` -- what goes into the keys of objects.
- `is_gcc` -- whether a compiler is GCC's, and so has its precompiled headers.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sysconfig
import warnings
from functools import lru_cache
from pathlib import Path

__all__ = ["compilers", "cpu", "folders", "identity", "include", "is_gcc", "macros", "orders", "torch_identity"]


@lru_cache(maxsize=1)
def compilers() -> dict[str, str]:
    """The C++ compiler, ``cxx``, and ``nvcc``, ``""`` where there is none: as torch calls them."""
    from torch.utils import cpp_extension

    nvcc = os.path.join(cpp_extension.CUDA_HOME, "bin", "nvcc") if cpp_extension.CUDA_HOME else ""
    return {"cxx": cpp_extension.get_cxx_compiler(), "nvcc": os.environ.get("PYTORCH_NVCC", nvcc)}


@lru_cache(maxsize=1)
def include() -> Path:
    """Torch's folder of headers."""
    import torch

    return Path(torch.__file__).parent / "include"


@lru_cache(maxsize=1)
def orders() -> list[list[str]]:
    """Folders of headers as torch names them, in its order: for C++ alone, and with CUDA where there is some."""
    from torch.utils import cpp_extension

    kinds = ["cpu", "cuda"] if cpp_extension.CUDA_HOME else ["cpu"]
    python = sysconfig.get_path("include", scheme="posix_prefix")
    return [[*cpp_extension.include_paths(kind), python] for kind in kinds]


@lru_cache(maxsize=1)
def macros() -> frozenset[str]:
    """Macros that torch itself defines for extensions and its headers look at, as flags."""
    from torch.utils import cpp_extension

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # later releases have none, and say that the function will go
        abi: list[str] = getattr(cpp_extension, "_get_pybind11_abi_build_flags", list)()
    return frozenset({"-DTORCH_API_INCLUDE_EXTENSION_H", *shlex.split(" ".join(abi))})


def folders() -> frozenset[str]:
    """All of them."""
    return frozenset(folder for order in orders() for folder in order)


@lru_cache(maxsize=4)
def identity(compiler: str) -> list[str]:
    """What changes when a compiler is another one."""
    path = shutil.which(compiler.split()[0]) or compiler
    real = os.path.realpath(path)
    said = subprocess.run([*compiler.split(), "--version"], capture_output=True, text=True).stdout
    facts = os.stat(real)
    return [compiler, real, said, str(facts.st_size), str(facts.st_mtime_ns)]


def is_gcc(compiler: str) -> bool:
    """Whether it is GCC's C++ compiler."""
    return "Free Software Foundation" in identity(compiler)[2]


@lru_cache(maxsize=1)
def torch_identity() -> list[str]:
    """What changes when torch is another one."""
    import torch

    facts = os.stat(torch.version.__file__)
    return [torch.__version__, str(torch.version.git_version), str(include()), str(facts.st_mtime_ns)]


@lru_cache(maxsize=1)
def cpu() -> str:
    """What ``-march=native`` looks at."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    told = ("flags", "model name", "Features", "CPU part")
    lines = sorted({line for line in text.splitlines() if line.startswith(told)})
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
