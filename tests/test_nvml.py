"""NVML by both ways: against a library that is compiled here with NVML's interface, and a module with its bindings'."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym_env import nvml
from kernelgym_env.nvml import CLOCK_REASONS, SLOWING, GpuProcess, GpuState, clock_reasons

# One device; the memory of the last of its processes is not told, and two of them were busy.
LIBRARY = r"""
#include <cstring>
extern "C" {
typedef unsigned int number;
typedef struct { number pid; unsigned long long usedGpuMemory; number gpuInstanceId, computeInstanceId; } Info;
typedef struct { number pid; unsigned long long timeStamp; number smUtil, memUtil, encUtil, decUtil; } Sample;
int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void** handle) { *handle = (void*)7; return index ? 2 : 0; }
int nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
    *handle = (void*)7;
    return strcmp(uuid, "GPU-1") ? 6 : 0;
}
int nvmlDeviceGetUUID(void* handle, char* text, unsigned int size) { strncpy(text, "GPU-1", size); return 0; }
int nvmlDeviceGetClockInfo(void* handle, int kind, unsigned int* mhz) { *mhz = kind == 1 ? 1980 : 3201; return 0; }
int nvmlDeviceGetTemperature(void* handle, int kind, unsigned int* celsius) { *celsius = 41; return 0; }
int nvmlDeviceGetPowerUsage(void* handle, unsigned int* milliwatts) { *milliwatts = 312500; return 0; }
int nvmlDeviceGetUtilizationRates(void* handle, unsigned int* shares) { shares[0] = 73; shares[1] = 12; return 0; }
int REASONS(void* handle, unsigned long long* bits) { *bits = 0x44; return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void* handle, unsigned int* count, Info* infos) {
    unsigned int room = *count;
    *count = PROCESSES;
    if (room < PROCESSES) return 7;
    for (unsigned int i = 0; i < PROCESSES; ++i)
        infos[i] = {1000 - i, i + 1 == PROCESSES ? ~0ull : (i + 1) << 20, ~0u, ~0u};
    return 0;
}
int nvmlDeviceGetProcessUtilization(void* handle, Sample* samples, unsigned int* count, unsigned long long since) {
    unsigned int room = *count;
    if (since > 5000) return 6;
    *count = 3;
    if (room < 3) return 7;
    samples[0] = {1000, 4000, 20, 1, 2, 3};
    samples[1] = {999, 4500, 5, 1, 2, 3};
    samples[2] = {1000, 5000, 55, 1, 2, 3};
    return 0;
}
}
"""
PLAIN = ("uuid", "sm_mhz", "memory_mhz", "reasons", "temperature_c", "power_w", "utilisation")


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that makes the compiled library the driver's."""
    if not shutil.which("g++"):
        pytest.skip("no g++")
    load = ctypes.CDLL

    def make(processes: int = 40, reasons: str = "nvmlDeviceGetCurrentClocksEventReasons") -> None:
        path = tmp_path / f"nvml_{processes}_{reasons}.so"
        command = ["g++", "-shared", "-fPIC", f"-DPROCESSES={processes}", f"-DREASONS={reasons}", "-xc++", "-"]
        subprocess.run([*command, "-o", str(path)], input=LIBRARY.encode(), check=True)
        monkeypatch.setitem(sys.modules, "pynvml", None)
        monkeypatch.setattr(nvml.ctypes, "CDLL", lambda name: load(str(path)))

    return make


class Bindings:
    """`nvidia-ml-py` with the same device, of which some calls fail."""

    class NVMLError(Exception):
        def __init__(self, value: int) -> None:
            super().__init__(value)
            self.value = value

    def __init__(self, failing: tuple[str, ...] = ()) -> None:
        self.failing = failing

    def __getattr__(self, name: str) -> Any:
        answers: dict[str, Any] = {
            "nvmlInit": None,
            "nvmlShutdown": None,
            "nvmlDeviceGetHandleByIndex": "handle",
            "nvmlDeviceGetHandleByUUID": "handle",
            "nvmlDeviceGetUUID": b"GPU-1",
            "nvmlDeviceGetTemperature": 41,
            "nvmlDeviceGetPowerUsage": 312500,
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=73, memory=12),
            "nvmlDeviceGetCurrentClocksThrottleReasons": 0x44,
            "nvmlDeviceGetComputeRunningProcesses": [
                SimpleNamespace(pid=1000, usedGpuMemory=1 << 20),
                SimpleNamespace(pid=999, usedGpuMemory=None),
            ],
            "nvmlDeviceGetProcessUtilization": [
                SimpleNamespace(pid=1000, smUtil=20),
                SimpleNamespace(pid=1000, smUtil=55),
            ],
        }
        if name == "nvmlDeviceGetCurrentClocksEventReasons":
            raise AttributeError(name)  # as in releases before the call was renamed
        if name == "nvmlDeviceGetClockInfo" and name not in self.failing:
            return lambda handle, kind: {1: 1980, 2: 3201}[kind]
        if name not in answers or name in self.failing:
            return self._refuse
        return lambda *arguments: answers[name]

    def _refuse(self, *arguments: Any) -> None:
        raise self.NVMLError(3)


# --- what holds the clocks


def test_each_bit_has_its_name() -> None:
    assert [clock_reasons(1 << place) for place in range(len(CLOCK_REASONS))] == [(name,) for name in CLOCK_REASONS]
    assert set(CLOCK_REASONS) > SLOWING
    # as NVML's header has them
    assert clock_reasons(0x4) == ("software_power_cap",)
    assert clock_reasons(0x40) == ("hardware_thermal",)


@given(st.integers(0, 2**64 - 1))
def test_no_bit_is_lost(bits: int) -> None:
    names = clock_reasons(bits)
    known = {name: 1 << place for place, name in enumerate(CLOCK_REASONS)}
    assert sum(known[name] if name in known else int(name, 16) for name in names) == bits


# --- the state of a device


@pytest.mark.parametrize("device", [0, "GPU-1", "1"])
def test_the_library_itself(compiled: Any, device: int | str) -> None:
    compiled()
    found = nvml.state(device)
    assert [getattr(found, name) for name in PLAIN] == [
        "GPU-1",
        1980,
        3201,
        ("software_power_cap", "hardware_thermal"),
        41,
        312.5,
        0.73,
    ]
    assert found.processes is not None
    assert [one.pid for one in found.processes] == list(range(961, 1001))
    assert found.processes[-1] == GpuProcess(1000, 1.0, 0.55)
    assert found.processes[-2] == GpuProcess(999, 2.0, 0.05)
    assert found.processes[0] == GpuProcess(961, None, 0.0)


def test_an_older_driver(compiled: Any) -> None:
    compiled(0, "nvmlDeviceGetCurrentClocksThrottleReasons")
    found = nvml.state(0)
    assert (found.processes, found.reasons) == ((), ("software_power_cap", "hardware_thermal"))


def test_a_driver_that_knows_neither_name(compiled: Any) -> None:
    compiled(1, "something_else")
    assert nvml.state(0).reasons is None


def test_samples_before_a_time_do_not_count(compiled: Any) -> None:
    compiled(1)
    assert nvml.state(0, since_us=5001).processes == (GpuProcess(1000, None, 0.0),)


@pytest.mark.parametrize("device", [1, "GPU-2"])
def test_a_device_that_is_none(compiled: Any, device: int | str) -> None:
    compiled()
    with pytest.raises(OSError, match=f"knows no device {device!r}"):
        nvml.state(device)


def test_the_bindings(compiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(2)
    direct = nvml.state(0)
    monkeypatch.setitem(sys.modules, "pynvml", Bindings())
    found = nvml.state("GPU-1")
    assert [getattr(found, name) for name in PLAIN] == [getattr(direct, name) for name in PLAIN]
    assert found.processes == (GpuProcess(999, None, 0.0), GpuProcess(1000, 1.0, 0.55))


def test_what_the_driver_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = (
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetClockInfo",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
        "nvmlDeviceGetTemperature",
        "nvmlDeviceGetPowerUsage",
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetComputeRunningProcesses",
    )
    monkeypatch.setitem(sys.modules, "pynvml", Bindings(failing))
    assert nvml.state(0) == GpuState("", None, None, None, None, None, None, None)
    monkeypatch.setitem(sys.modules, "pynvml", Bindings(("nvmlDeviceGetProcessUtilization",)))
    assert nvml.state(0).processes == (GpuProcess(999, None, None), GpuProcess(1000, 1.0, None))
    monkeypatch.setitem(sys.modules, "pynvml", Bindings(("nvmlDeviceGetHandleByIndex",)))
    with pytest.raises(OSError, match="knows no device 0"):
        nvml.state(0)


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(nvml.ctypes, "CDLL", missing)
    with pytest.raises(OSError, match="no NVIDIA driver"):
        nvml.state(0)


@pytest.mark.gpu
def test_a_real_device() -> None:
    found = nvml.state(0)
    assert found.uuid.startswith("GPU-")
    assert found.sm_mhz is None or 100 < found.sm_mhz < 5000
    assert found.memory_mhz is None or 100 < found.memory_mhz < 20000
    assert found.temperature_c is None or 0 < found.temperature_c < 120
    assert found.power_w is None or 1 < found.power_w < 2000
    assert found.utilisation is None or 0 <= found.utilisation <= 1
    assert nvml.state(found.uuid).uuid == found.uuid
