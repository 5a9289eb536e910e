"""Whose kernels did the work on a GPU: attribution of what a call launched, and what follows from it.

The candidate reports each kernel's device time and the files of machine code that its launch came through (see
`cupti`); whose those files are is decided here. A kernel is the submission's own where it was launched by code in the
submission's own folder, by a launcher that anyone may use (Triton's, CuPy's for raw kernels, the driver itself), or by
the interpreter. It is a library's where an installed library launched it: PyTorch's operators on whatever thread,
cuBLAS called by pointer, CuPy's own generators, a Triton kernel that was installed.

- `KernelShare` -- one kernel with its owner.
- `attribute` -- all kernels with their owners, from a candidate's report.
- `coverage` -- share of device time in own kernels.
- `library_kernels` -- what speaks against a submission.
- `Evidence` -- all of it, as an evaluation records it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kernelgym_env.evaluation.attribution import PRODUCTS, installed_folders, library_name, owner

__all__ = ["Evidence", "KernelShare", "attribute", "coverage", "library_kernels"]

_LEAST_SHARE = 0.25
_SHOWN_CHARS = 120
_MOST_US = 1e12
_MOST_LAUNCHES = 10**7
_INDUCTOR = "/home/inductor/"

_LAUNCHERS = (
    "libcuda.", "libcudart", "libcupti", "libnvrtc", "libnvJitLink", "libnvidia-", "libtriton",
)  # fmt: skip
_LAUNCHING_FOLDERS = ("/cupy_backends/", "/cupy/cuda/", "/cuda/bindings/", "/cuda/core/")
_TORCH = "libtorch_cuda"
_CUPY_CORE = "/cupy/_core/"
_CUPY_RAW = "/cupy/_core/raw"
_CUPY_OWN = ("/cupy/_core/_kernel", "/cupy/_core/_reduction")
_CUPY_COPIES = ("cupy_copy__", "cupy_fill__")
_TORCH_COPIES = ("direct_copy_kernel", "FillFunctor", "CatArrayBatchedCopy")
"""Copies, fills and concatenations, which any submission may use, where no mode sees that they are called as such."""


@dataclass(frozen=True)
class KernelShare:
    """One kernel in the calls that were looked at.

    Attributes:
        name: its symbol, shortened.
        whose: ``"own"``, ``"library"``, or ``"allowed"`` for what any submission may use.
        us: device time in microseconds a call.
        launches: launches a call.
        file: name of the library, ``""`` for an own kernel.
    """

    name: str
    whose: str
    us: float
    launches: float
    file: str = ""


@dataclass(frozen=True)
class Evidence:
    """What is known of who did the work.

    Attributes:
        kernels: most time first.
        coverage: see `coverage`.
        own_launches: launches of own kernels a call, NaN where not measured.
        problem: why nothing is known, ``""`` if something is.
    """

    kernels: tuple[KernelShare, ...] = ()
    coverage: float = math.nan
    own_launches: float = math.nan
    problem: str = ""

    @classmethod
    def of(cls, kernels: Sequence[KernelShare]) -> Evidence:
        """From attributed kernels."""
        own = sum(kernel.launches for kernel in kernels if kernel.whose == "own")
        return cls(tuple(kernels), coverage(kernels), own)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for an evaluation's provenance."""
        return {"kernels": [asdict(kernel) for kernel in self.kernels], "problem": self.problem}


def attribute(reported: Any, calls: int, scratch: str) -> list[KernelShare] | None:
    """Decide whose each kernel is.

    Args:
        reported: what the candidate said, a list of `cupti.Kernel` as plain data; not believed to have that form.
        calls: number of calls that were looked at.
        scratch: the submission's own folder.

    Returns:
        Most time first; None if the report has no such form.
    """
    if not isinstance(reported, list):
        return None
    places = installed_folders()
    kernels = []
    for kernel in reported:
        if not _is_kernel(kernel):
            return None
        whose, file = _whose(kernel, os.path.realpath(scratch), places)
        name = kernel["name"][:_SHOWN_CHARS]
        kernels.append(KernelShare(name, whose, kernel["us"] / calls, kernel["launches"] / calls, file))
    return sorted(kernels, key=lambda kernel: -kernel.us)


def _is_kernel(data: Any) -> bool:
    return (
        isinstance(data, dict)
        and isinstance(data.get("name"), str)
        and isinstance(data.get("python"), str)
        and isinstance(data.get("allowed"), bool)
        and isinstance(data.get("files"), list)
        and all(isinstance(path, str) for path in data["files"])
        and type(data.get("launches")) is int
        and 1 <= data["launches"] <= _MOST_LAUNCHES
        and type(data.get("us")) in (int, float)
        and 0 <= data["us"] <= _MOST_US
    )


def _whose(kernel: dict[str, Any], scratch: str, places: tuple[str, ...]) -> tuple[str, str]:
    """Owner, and the library's name where it is one."""
    if kernel["allowed"]:
        return "allowed", ""
    if python := kernel["python"]:
        # a Triton kernel is whose text it is; what torch.compile generates lies in the submission's folder too
        own = owner(python, scratch, places) == "own" and _INDUCTOR not in python
        return ("own", "") if own else ("library", os.path.basename(python))
    for path in kernel["files"]:
        name = os.path.basename(path)
        if name.startswith(_LAUNCHERS) or any(part in path for part in _LAUNCHING_FOLDERS):
            continue
        if _CUPY_CORE in path:
            return _whose_of_cupy(kernel["name"], path)
        whose = owner(path, scratch, places)
        if whose == "own":
            return "own", ""
        if whose in ("library", "tensor"):
            if name.startswith(_TORCH) and any(part in kernel["name"] for part in _TORCH_COPIES):
                return "allowed", ""
            return "library", library_name(path)
    return "own", ""


def _whose_of_cupy(symbol: str, path: str) -> tuple[str, str]:
    """CuPy compiles a submission's kernels and generates its own; those of its own have its name in front."""
    if symbol.startswith(_CUPY_COPIES):
        return "allowed", ""
    if path.count(_CUPY_RAW) or (any(part in path for part in _CUPY_OWN) and not symbol.startswith("cupy")):
        return "own", ""
    return "library", "cupy"


def coverage(kernels: Sequence[KernelShare]) -> float:
    """Share of device time spent in own kernels, 0 to 1; NaN where no kernel ran (Dr. Kernel, section 4.2)."""
    total = sum(kernel.us for kernel in kernels)
    return sum(kernel.us for kernel in kernels if kernel.whose == "own") / total if total > 0 else math.nan


def library_kernels(kernels: Sequence[KernelShare], *, gemm: bool) -> list[str]:
    """Names of the libraries whose kernels take a quarter of the time or more, most first; empty if there are none.

    What any submission may use (copies, fills) counts for neither side.

    Args:
        kernels: as `attribute` gives them.
        gemm: whether products may come from a library.
    """
    found: dict[str, float] = {}
    for kernel in kernels:
        if kernel.whose == "library" and not (gemm and any(part in kernel.file.lower() for part in PRODUCTS)):
            found[kernel.file] = found.get(kernel.file, 0.0) + kernel.us
    own = sum(kernel.us for kernel in kernels if kernel.whose == "own")
    if not found or sum(found.values()) < _LEAST_SHARE * (own + sum(found.values())):
        return []
    return sorted(found, key=lambda name: -found[name])[:4]
