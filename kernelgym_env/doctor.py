"""What works on this machine, and what to install or change.

- `Check` -- one thing that was looked at.
- `run` -- look at everything; a few seconds, most of them for importing torch in a process of its own.
- `evaluate` -- judge a small submission for real.
- `evaluation_works` -- whether submissions can be evaluated here, at least on the CPU.

Nothing here changes the machine, and nothing imports torch into this process.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from kernelgym_env import isolation, nvml, settings
from kernelgym_env._version import __version__
from kernelgym_env.errors import KernelGymError
from kernelgym_env.evaluation.sandbox.plan import LAYERS, missing

__all__ = ["STATES", "Check", "evaluate", "evaluation_works", "run"]

STATES = ("ok", "missing", "note")
"""``ok``: works. ``missing``: something that is of use here does not. ``note``: worth knowing."""

_TORCH_S = 120
_TOOL_S = 20
_LITTLE_GIB = 2.0
_TORCH = """
import json, torch
facts = {"version": torch.__version__, "cuda": torch.version.cuda or "", "hip": torch.version.hip or "",
         "threads": torch.get_num_threads(), "devices": [], "archs": []}
if facts["cuda"] and torch.cuda.is_available():
    facts["archs"] = torch.cuda.get_arch_list()
    for index in range(torch.cuda.device_count()):
        facts["devices"].append([torch.cuda.get_device_name(index), *torch.cuda.get_device_capability(index)])
print(json.dumps(facts))
"""
_OPENMP = "#include <omp.h>\n#include <cmath>\nint main() { return omp_get_max_threads() < 1; }\n"
_TASK = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x * 2 + 1


def get_inputs():
    return [torch.randn(256, 256)]


def get_init_inputs():
    return []
"""
_SUBMISSION = (
    "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x + x + 1\n"
)


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        group: what it belongs to.
        name: what it is.
        state: one of `STATES`.
        detail: what was found.
        advice: what to do, ``""`` where nothing is to be done.
        essential: whether no submission can be evaluated without it.
    """

    group: str
    name: str
    state: str
    detail: str
    advice: str = ""
    essential: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def evaluation_works(checks: list[Check]) -> bool:
    """Whether everything essential is there."""
    return all(check.state == "ok" for check in checks if check.essential)


def run() -> list[Check]:
    """Look at everything."""
    torch = _start_torch()
    driver, gpus, why = _gpus()
    base, isolated, folders = _base(), _isolation(bool(gpus)), _folders()
    facts = _torch_facts(torch)
    on_gpu = bool(gpus) or bool(facts.get("cuda"))
    return [
        *base,
        *_torch(facts, bool(gpus)),
        *_gpu_checks(driver, gpus, why),
        *_compilers(facts, on_gpu),
        *_languages(facts, on_gpu),
        *isolated,
        *folders,
        _kernelbench(),
    ]


# the interpreter and the system


def _base() -> list[Check]:
    group = "system"
    new_enough = sys.version_info >= (3, 10)
    linux = sys.platform == "linux"
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return [
        Check(
            group,
            "Python",
            "ok" if new_enough else "missing",
            platform.python_version(),
            "" if new_enough else "Use Python 3.10 or later.",
            True,
        ),
        Check(
            group,
            "platform",
            "ok" if linux else "missing",
            platform.platform(),
            "" if linux else "Evaluation needs Linux. Tasks, environments and the pool 'fake' work here.",
            True,
        ),
        Check(group, "CPU", "ok", f"{platform.machine()}, {usable} usable cores"),
        Check(group, "kernelgym_env", "ok", __version__),
        *(_library(name) for name in ("gymnasium", "numpy", "jinja2", "rich")),
    ]


def _library(name: str) -> Check:
    version = _version(name)
    advice = "" if version else f"pip install {name}"
    return Check("system", name, "ok" if version else "missing", version or "not installed", advice, True)


def _version(*distributions: str) -> str:
    """Version of the first distribution that is installed, else ``""``."""
    for name in distributions:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return ""


# torch


def _start_torch() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _TORCH],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        cwd=os.path.abspath(os.sep),  # the working directory is searched for modules
    )


def _torch_facts(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What the process found; ``{"error": text}`` if it failed."""
    try:
        out, said = process.communicate(timeout=_TORCH_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return {"error": f"importing it took more than {_TORCH_S} s"}
    try:
        facts = json.loads(out.strip().splitlines()[-1])
    except (IndexError, ValueError):
        facts = {"error": (said.strip().splitlines() or [f"the process ended with code {process.returncode}"])[-1]}
    return {**facts, "said": said.strip()}


def _torch(facts: dict[str, Any], gpu: bool) -> list[Check]:
    group = "torch"
    if error := facts.get("error"):
        return [Check(group, "torch", "missing", error[:500], "pip install torch", True)]
    build = f"CUDA {facts['cuda']}" if facts["cuda"] else f"ROCm {facts['hip']}" if facts["hip"] else "CPU only"
    found = [Check(group, "torch", "ok", f"{facts['version']} ({build}), {facts['threads']} CPU threads", "", True)]
    name = "torch on the GPU"
    if not gpu:
        return found
    if not facts["cuda"]:
        advice = "Install a build of torch with CUDA: see the selector on pytorch.org."
        return [*found, Check(group, name, "missing", f"this build is {build}", advice)]
    if not facts["devices"]:
        detail = (facts["said"].splitlines() or ["it sees no device"])[-1]
        advice = "Check CUDA_VISIBLE_DEVICES, and that the driver is new enough for this build of torch."
        return [*found, Check(group, name, "missing", detail[:500], advice)]
    lacking = [f"{device} (sm_{a}{b})" for device, a, b in facts["devices"] if not _has_code(facts["archs"], a, b)]
    if lacking:
        detail = f"this build has no code for {', '.join(lacking)}"
        return [*found, Check(group, name, "missing", detail, "Install a build of torch for this GPU.")]
    return [*found, Check(group, name, "ok", f"{len(facts['devices'])} visible")]


def _has_code(archs: list[str], major: int, minor: int) -> bool:
    """Whether a build with these architectures runs on a device of that compute capability.

    Machine code (``sm_90``) serves devices of the same major version from its minor version on, PTX (``compute_90``)
    every later device; either with a letter behind it (``sm_90a``) only its own.
    """
    for arch in archs:
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([a-z]?)", arch)
        if match is None:
            continue
        kind, own = match[1], (int(match[2]), int(match[3]))
        if match[4]:
            fits = own == (major, minor)
        elif kind == "sm":
            fits = own[0] == major and own[1] <= minor
        else:
            fits = own <= (major, minor)
        if fits:
            return True
    return False


# GPUs


def _gpus() -> tuple[str, list[nvml.Gpu], str]:
    """Driver, devices, and why there are none."""
    try:
        driver, gpus = nvml.query()
    except OSError as error:
        return "", [], str(error)
    return driver, gpus, "" if gpus else "the driver lists no device"


def _gpu_checks(driver: str, gpus: list[nvml.Gpu], why: str) -> list[Check]:
    group = "GPU"
    if not gpus:
        advice = (
            "Evaluation on the CPU needs none. For a GPU, install NVIDIA's driver; in a container, pass the GPU in."
        )
        return [Check(group, "NVIDIA GPU", "note", f"none: {why}", advice)]
    found = [Check(group, "driver", "ok", driver)]
    visible = settings.visible_devices()
    if visible is not None:
        detail = f"CUDA_VISIBLE_DEVICES={','.join(visible)}"
        found.append(Check(group, "visible devices", "note", detail, "Only these are used, numbered from cuda:0."))
    for gpu in gpus:
        detail = f"{gpu.name}, {gpu.memory_gib:.0f} GiB ({gpu.free_gib:.0f} free)"
        if gpu.compute_mode:
            detail += f", compute mode {gpu.compute_mode}"
        notes = []
        if gpu.compute_mode not in ("", "default"):
            notes.append(
                f"An evaluation opens the GPU from three processes: set it with `nvidia-smi -i {gpu.index} -c DEFAULT`."
            )
        if gpu.mig:
            detail += ", MIG enabled"
            notes.append("CUDA sees one MIG instance a process: name it by its UUID in CUDA_VISIBLE_DEVICES.")
        if gpu.persistence is False:
            detail += ", persistence mode off"
            notes.append(f"`nvidia-smi -i {gpu.index} -pm 1` keeps the driver loaded between runs.")
        if gpu.memory_gib and gpu.free_gib < _LITTLE_GIB:
            notes.append("Little memory is free; a task that does not fit ends in a fault.")
        found.append(Check(group, f"GPU {gpu.index}", "note" if notes else "ok", detail, " ".join(notes)))
    return found


# compilers and kernel languages


def _absent(group: str, name: str, needed: bool, advice: str, detail: str = "not found") -> Check:
    return Check(group, name, "missing" if needed else "note", detail, advice)


def _ask(*command: str) -> str:
    """Output of a tool, ``""`` if it fails."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=_TOOL_S
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _compilers(facts: dict[str, Any], on_gpu: bool) -> list[Check]:
    return [*_cxx(), _python_headers(), _ninja(), *_nvcc(facts, on_gpu)]


def _cxx() -> list[Check]:
    group, name = "compilers", "C++ compiler"
    # torch's load_inline takes $CXX, else c++
    default = os.environ.get("CXX") or "c++"
    found = {tool: shutil.which(tool) for tool in (default, "g++", "clang++")}
    compiler = next((path for path in found.values() if path), None)
    if compiler is None:
        advice = "Install g++, e.g. `apt-get install g++` or `dnf install gcc-c++`. C++ and CUDA sources need it."
        return [_absent(group, name, True, advice)]
    version = (_ask(compiler, "--version").splitlines() or ["its version is unknown"])[0]
    if not found[default]:
        tool = Path(compiler).name
        detail = f"{version}, but there is no {default!r}"
        checks = [Check(group, name, "note", detail, f"Set CXX={tool}: torch's load_inline calls {default!r}.")]
    else:
        checks = [Check(group, name, "ok", version)]
    openmp = _compiles(compiler)
    advice = "" if openmp else "Install the compiler's OpenMP library (libgomp or libomp) for kernels on all cores."
    detail = "compiles and links" if openmp else "a program with OpenMP does not compile"
    return [*checks, Check(group, "OpenMP", "ok" if openmp else "missing", detail, advice)]


def _compiles(compiler: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "openmp.cpp"
        source.write_text(_OPENMP, encoding="utf-8")
        try:
            command = [compiler, "-fopenmp", "-o", str(Path(folder) / "openmp"), str(source)]
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TOOL_S)
        except (OSError, subprocess.SubprocessError):
            return False
        return done.returncode == 0


def _python_headers() -> Check:
    name = "Python headers"
    if (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return Check("compilers", name, "ok", "Python.h found")
    advice = (
        "Install them (`apt-get install python3-dev`, `dnf install python3-devel`) for torch's load_inline and Triton."
    )
    return _absent("compilers", name, True, advice, "Python.h not found")


def _ninja() -> Check:
    path = shutil.which("ninja") or shutil.which("ninja", path=sysconfig.get_path("scripts"))
    if path is None:
        return _absent("compilers", "ninja", True, "pip install ninja; torch's load_inline needs it.")
    return Check("compilers", "ninja", "ok", _ask(path, "--version").strip() or "its version is unknown")


def _nvcc(facts: dict[str, Any], on_gpu: bool) -> list[Check]:
    group = "compilers"
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    known = shutil.which("nvcc")
    folder = Path(home) if home else Path(known).parents[1] if known else Path("/usr/local/cuda")
    version = re.search(r"release (\d+\.\d+)", _ask(str(folder / "bin" / "nvcc"), "--version"))
    wanted = str(facts.get("cuda") or "")
    release = f" {wanted}" if wanted else ""
    advice = f"Install the CUDA toolkit{release} and set CUDA_HOME to it. CUDA sources in load_inline need it."
    if not on_gpu:
        advice = "Only CUDA sources on a GPU need it."
    if version is None:
        nvcc = _absent(group, "nvcc", on_gpu, advice)
    elif wanted and version[1].split(".")[0] != wanted.split(".")[0]:
        nvcc = Check(group, "nvcc", "missing", f"release {version[1]}, but torch is built for CUDA {wanted}", advice)
    else:
        nvcc = Check(group, "nvcc", "ok", f"release {version[1]}")
    if home and not Path(home).is_dir():
        where = Check(
            group, "CUDA_HOME", "missing", f"{home} is no folder", "Set it to the toolkit's folder, or unset it."
        )
    elif home:
        where = Check(group, "CUDA_HOME", "ok", home)
    else:
        detail = f"not set; {folder} is used" if version else "not set"
        where = Check(group, "CUDA_HOME", "ok" if version else "note", detail)
    return [nvcc, where]


def _languages(facts: dict[str, Any], on_gpu: bool) -> list[Check]:
    group = "kernel languages"
    wanted = str(facts.get("cuda") or "").split(".")[0]
    extra = f"cu{wanted or '13'}"
    triton = _version("triton", "pytorch-triton")
    if not triton:
        first = _absent(group, "Triton", True, "pip install triton")
    elif on_gpu:
        first = Check(group, "Triton", "ok", triton)
    else:
        first = Check(group, "Triton", "note", f"{triton}, in its interpreter: checked for correctness, not timed")
    cupy = {name: _version(name) for name in ("cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x", "cupy")}
    name, version = next(((name, version) for name, version in cupy.items() if version), ("", ""))
    needs = f"pip install cupy-cuda{wanted or '13'}x" if on_gpu else "Only CuPy sources on a GPU need it."
    if not version:
        second = _absent(group, "CuPy", on_gpu, needs, "not installed")
    elif wanted and name != "cupy" and name != f"cupy-cuda{wanted}x":
        second = Check(group, "CuPy", "missing", f"{version} as {name}, but torch is built for CUDA {wanted}", needs)
    else:
        second = Check(group, "CuPy", "ok", version)
    cupti = _version("cupti-python")
    if cupti:
        third = Check(group, "cupti-python", "ok", cupti)
    else:
        advice = f"Not used by this version; the extra gpu-{extra} brings it." if on_gpu else "Only of use on a GPU."
        third = Check(group, "cupti-python", "note", "not installed", advice)
    return [first, second, third]


# isolation


def _isolation(gpu: bool) -> list[Check]:
    """What would be in force around a submission started now; then what the kernel offers."""
    group = "isolation"
    if not (offered := isolation.offers()):
        return []
    from kernelgym_env.evaluation.sandbox import probe  # of what it needs, some is on Linux only

    report, seconds = probe.look("cuda" if gpu else "cpu")
    lacking = missing(report)
    name = "sandbox" + " on a GPU" * gpu
    if lacking:
        advice = "Only evaluate sources that you would run yourself. docs/threat_model.md says what each part needs."
        found = [Check(group, name, "note", f"not guaranteed here: {', '.join(lacking)}", advice)]
    else:
        detail = f"complete, also for sandbox='require'; entering it takes {seconds * 1e3:.0f} ms"
        found = [Check(group, name, "ok", detail)]
    for layer, gives in LAYERS.items():
        state, _, why = report[layer].partition(": ")
        detail = f"in force: {gives}" if state == "on" else f"not in force: {why}"
        if state == "on" and why:
            detail += f" ({why})"
        found.append(Check(group, layer, "ok" if state == "on" else "note", detail))
    for offer in offered:
        detail = ("offered by this machine" if offer.usable else "not offered") + f": {offer.detail}" * bool(
            offer.detail
        )
        found.append(Check(group, offer.name, "ok" if offer.usable else "note", detail))
    return found


# folders and data


def _folders() -> list[Check]:
    group = "folders"
    try:
        runtime = settings.runtime_dir()
    except (OSError, AttributeError) as error:  # AttributeError: no user ids on Windows
        advice = "Set KERNELGYM_RUNTIME_DIR to a folder of your own."
        first = Check(group, "runtime folder", "missing", str(error), advice, True)
    else:
        first = _folder("runtime folder", runtime, "KERNELGYM_RUNTIME_DIR", essential=True)
    return [first, _folder("cache folder", settings.cache_dir(), "KERNELGYM_CACHE_DIR", essential=False)]


def _folder(name: str, path: Path, variable: str, *, essential: bool) -> Check:
    there = next((folder for folder in (path, *path.parents) if folder.exists()), path)
    advice = f"Set {variable} to a folder that you may write to."
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
        free = shutil.disk_usage(there).free / 2**30
    except OSError as error:
        return Check("folders", name, "missing", f"{path}: {error.strerror or error}", advice, essential)
    detail = f"{path}, {free:.1f} GiB free"
    if essential and hasattr(os, "statvfs") and os.statvfs(there).f_flag & getattr(os, "ST_NOEXEC", 0):
        advice = f"Compiled kernels are loaded from it. Set {variable} to a folder on a file system without noexec."
        return Check("folders", name, "missing", f"{detail}, mounted noexec", advice, essential)
    # little room is no obstacle by itself, so it must not read as if nothing worked
    if free < _LITTLE_GIB:
        detail += f": less than {_LITTLE_GIB:.0f} GiB, of which a build may need most"
        return Check(
            "folders", name, "ok" if essential else "note", detail, f"Free some, or set {variable}.", essential
        )
    return Check("folders", name, "ok", detail, "", essential)


def _kernelbench() -> Check:
    from kernelgym_env.tasks import kernelbench

    firsts = [kernelbench.make_id(level, 1) for level in kernelbench.LEVELS]
    found, why = [], ""
    for task_id in firsts:
        try:
            found.append(str(kernelbench.load(task_id).level))
        except KernelGymError as error:
            why = why or str(error)
        except OSError as error:
            why = why or f"KERNELBENCH_DIR cannot be read: {error}"
    group, name = "data", "KERNELBENCH_DIR"
    if found:
        place = settings.kernelbench_dir() or "not set, what was fetched"
        detail = f"{place}, level{'s' if len(found) > 1 else ''} {', '.join(found)}"
        return Check(group, name, "note" if why else "ok", detail, why)
    if settings.kernelbench_dir() is None:
        return Check(group, name, "note", "not set: the suite kernelbench is not available", why)
    return Check(group, name, "missing", str(settings.kernelbench_dir()), why)


# a real evaluation


def evaluate(device: str) -> Check:
    """Judge a small submission on a device, which takes about ten seconds.

    Args:
        device: ``cpu``, ``cuda`` or ``cuda:<index>``.
    """
    from kernelgym_env.evaluation.protocols import get_protocol
    from kernelgym_env.evaluation.submission import Submission
    from kernelgym_env.pools.local import LocalPool
    from kernelgym_env.tasks import load_task

    protocol = get_protocol("strict").replace(budget_s=0.2, min_blocks=5, max_blocks=5)
    submission = Submission(load_task(_TASK), _SUBMISSION, device=device, protocol=protocol, library_ops="allow")
    group, name = "evaluation", f"on {device}"
    try:
        pool = LocalPool()
        try:
            result = pool.submit(submission).result()
        finally:
            pool.close()
    except KernelGymError as error:
        return Check(group, name, "missing", str(error), "", device == "cpu")
    if not result.correct:
        detail = f"{result.status.value}: {result.fault or result.feedback}"[-500:]
        return Check(group, name, "missing", detail, "Look at the rows above that are missing.", device == "cpu")
    total = result.stages_s["total"] - result.stages_s["queue"]
    speed = "not timed" if math.isnan(result.speedup) else f"{result.speedup:.2f}x"
    return Check(group, name, "ok", f"correct, {speed}, in {total:.1f} s", "", device == "cpu")
