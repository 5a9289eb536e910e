"""What software judges on this machine, found without importing any of it.

- `software` -- versions of packages, and the compilers.
"""

from __future__ import annotations

import functools
import os
import platform
import shutil
from importlib import metadata

from kernelgym_env._version import __version__

__all__ = ["software"]

_PACKAGES = ("numpy", "torch", "triton")
_CUPY = ("cupy", "cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x")
_COMPILERS = ("g++", "gcc", "clang++", "nvcc")
_DRIVER = "/proc/driver/nvidia/version"


@functools.lru_cache(maxsize=1)
def software() -> dict[str, str]:
    """Versions by name, ``""`` for what is not there; a compiler's is its file and when that was changed.

    >>> software()["kernelgym_env"] == __version__
    True
    """
    found = {"kernelgym_env": __version__, "python": platform.python_version(), "platform": platform.platform()}
    for name in (*_PACKAGES, *_CUPY):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = ""
    for name in _COMPILERS:
        path = shutil.which(name)
        found[name] = f"{os.path.realpath(path)} {os.stat(path).st_mtime_ns}" if path else ""
    try:
        with open(_DRIVER, encoding="utf-8") as file:
            found["driver"] = file.readline().strip()
    except OSError:
        found["driver"] = ""
    return found
