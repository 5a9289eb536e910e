"""Which files a submission may read: an allow-list, worked out once in the fork server.

- `Readable` -- the list: what may be read, and what below it may not.
- `survey` -- works it out for this interpreter and machine.
- `private_places` -- what no submission may see, as far as it lies below something that it may.
- `punch` -- the entries below a folder that do not contain a hole.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernelgym_env import settings

__all__ = ["DEVICES", "Readable", "private_places", "punch", "survey"]

# what the loader, the C library, compilers, OpenSSL and the CUDA and OpenCL loaders look at; no file with passwords
_ETC = (
    "alternatives",
    "crypto-policies",
    "group",
    "host.conf",
    "hosts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "ld.so.preload",
    "localtime",
    "nsswitch.conf",
    "nvidia",
    "OpenCL",
    "os-release",
    "passwd",
    "pki/tls/certs",
    "pki/tls/openssl.cnf",
    "protocols",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "timezone",
)
_SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/sys",
    "/nix/store",
    "/gnu/store",
    "/run/current-system/sw",
    "/run/opengl-driver",
    *(f"/etc/{name}" for name in _ETC),
)
_TOOLS = ("c++", "g++", "gcc", "cc", "clang++", "clang", "ld", "as", "nvcc", "ninja", "ptxas")
_TOOL_FOLDERS = ("bin", "lib", "lib32", "lib64", "libexec", "include", "nvvm", "targets")
_SITE = ("site-packages", "dist-packages")

DEVICES = ("null", "zero", "full", "random", "urandom")
"""Device nodes below ``/dev`` that every process needs."""


@dataclass(frozen=True)
class Readable:
    """What may be read.

    Attributes:
        roots: absolute paths of files and folders, links not resolved; no one lies below another.
        holes: absolute real paths below a root that may not be read.
        essential: files without which nothing works.
    """

    roots: tuple[str, ...]
    holes: tuple[str, ...]
    essential: tuple[str, ...]


def private_places(package: Path | None = None) -> list[str]:
    """Real paths that no submission may read: this package with its tasks, the checkout around it, homes, caches, data.

    Args:
        package: the folder of this package; for tests.
    """
    package = package or Path(__file__).resolve().parents[2]
    checkout = package.parent
    places = [package, Path.home(), settings.cache_dir(), settings.kernelbench_dir(), Path(settings.runtime_dir())]
    if (checkout / "tasks").is_dir() and checkout.name not in _SITE:
        places.append(checkout)
    else:
        places += checkout.glob("kernelgym_env-*.dist-info")
    return sorted({os.path.realpath(place) for place in places if place is not None})


def survey(private: Iterable[str], environ: Mapping[str, str]) -> Readable:
    """Work out what may be read.

    Args:
        private: real paths that may not be, from `private_places`.
        environ: the environment that submissions get; compilers and libraries are looked for with it.
    """
    private = [path for path in private if path != os.sep]
    roots = [path for path in (sys.prefix, sys.base_prefix, sys.exec_prefix, *sysconfig.get_paths().values()) if path]
    roots += [environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH")]
    found = [*_SYSTEM, *(path for path in roots if path != os.sep)]
    # what follows was set by somebody for other purposes too, so it must not open a folder around a private one
    loose = [path for path in sys.path if path and path != os.sep]
    modules = _module_files()
    loose += [os.path.dirname(file) for file in modules]
    loose += environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) + _tool_folders(environ)
    # scripts in a home are its owner's own affair; compilers there were found by name above
    home = os.path.realpath(Path.home())
    programs = environ.get("PATH", "").split(os.pathsep)
    loose += [path for path in programs if not _inside(os.path.realpath(path), home)]
    found += [path for path in loose if os.path.isabs(path) and not _touches(path, private, home)]
    kept = _outermost(os.path.normpath(path) for path in found if os.path.isabs(path) and os.path.exists(path))
    real = [os.path.realpath(path) for path in kept]
    holes = [place for place in private if any(_inside(place, root) for root in real)]
    return Readable(tuple(kept), tuple(_outermost(holes)), (sys.executable, os.__file__, *modules))


def _module_files() -> list[str]:
    """Files of the packages that are loaded before the fork, wherever they lie."""
    modules = (sys.modules.get(name) for name in ("torch", "triton", "numpy", "cupy"))
    return [file for module in modules if (file := getattr(module, "__file__", None))]


def _tool_folders(environ: Mapping[str, str]) -> list[str]:
    """The parts of an installation that a compiler found on the search path belongs to."""
    folders = []
    for name in (*_TOOLS, environ.get("CC", ""), environ.get("CXX", "")):
        path = shutil.which(name, path=environ.get("PATH")) if name else None
        if path:
            prefix = Path(os.path.realpath(path)).parents[1]
            folders += [str(prefix / part) for part in _TOOL_FOLDERS]
    return folders


def _inside(path: str, root: str) -> bool:
    """Whether `path` is `root` or lies below it."""
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)


def _touches(path: str, private: Iterable[str], home: str) -> bool:
    """Whether a folder contains a private one, or lies in one that is no home; installed packages do not count."""
    if set(Path(path).parts) & set(_SITE):
        return False
    real = os.path.realpath(path)
    return any(_inside(place, real) or (place != home and _inside(real, place)) for place in private)


def _outermost(paths: Iterable[str]) -> list[str]:
    """Without what lies below another one, in order."""
    kept: list[str] = []
    for path in sorted(set(paths)):
        if not any(_inside(path, other) for other in kept):
            kept.append(path)
    return kept


def punch(root: str, holes: Iterable[str]) -> tuple[list[str], list[str]]:
    """Split a folder around holes.

    Args:
        root: a real path.
        holes: real paths, some of them below it.

    Returns:
        What may be read with all below it, and the folders on the way to a hole, of which only the names may be read.
    """
    inner = [hole for hole in holes if _inside(hole, root)]
    if not inner:
        return [root], []
    if root in inner:
        return [], []
    whole: list[str] = []
    listed = [root]
    try:
        names = sorted(os.listdir(root))
    except OSError:
        return [], []
    for name in names:
        path = os.path.join(root, name)
        if os.path.islink(path):
            continue  # what it points to has a rule of its own, or none
        more, way = punch(path, inner)
        whole += more
        listed += way
    return whole, listed
