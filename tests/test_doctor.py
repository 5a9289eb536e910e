"""The doctor: what it finds here, and what it says of machines that lack something."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernelgym_env import doctor, isolation, nvml
from kernelgym_env.doctor import STATES, Check, evaluation_works
from kernelgym_env.evaluation.sandbox.plan import LAYERS

TORCH = {
    "version": "2.9.0",
    "cuda": "13.0",
    "hip": "",
    "threads": 4,
    "devices": [["NVIDIA H200", 9, 0]],
    "archs": ["sm_80", "sm_90"],
    "said": "",
}
GPU = nvml.Gpu(0, "NVIDIA H200", "GPU-1", 140.0, 139.0, "default", False, True)


def only(checks: list[Check], name: str) -> Check:
    (found,) = (check for check in checks if check.name == name)
    return found


@pytest.fixture(scope="module")
def here() -> list[Check]:
    return doctor.run()


# --- this machine


def test_here(here: list[Check]) -> None:
    assert {check.state for check in here} <= set(STATES)
    assert len({(check.group, check.name) for check in here}) == len(here)
    assert all(check.detail for check in here)
    assert all(check.advice for check in here if check.state == "missing")
    groups = [check.group for check in here]
    assert sorted(set(groups), key=groups.index) == [name for i, name in enumerate(groups) if name not in groups[:i]]
    assert only(here, "Python").detail == sys.version.split()[0]


def test_groups_are_in_one_piece(here: list[Check]) -> None:
    changes = [check.group for check, before in zip(here[1:], here, strict=False) if check.group != before.group]
    assert len(changes) == len(set(changes))


@pytest.mark.skipif(sys.platform != "linux", reason="evaluation needs Linux")
def test_the_tests_run_where_evaluation_works(here: list[Check]) -> None:
    assert evaluation_works(here)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
def test_every_layer_of_the_sandbox_is_told(here: list[Check]) -> None:
    for layer in LAYERS:
        check = only(here, layer)
        assert check.state == ("ok" if check.detail.startswith("in force: ") else "note")
        assert check.detail.startswith(("in force: ", "not in force: "))


@pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
def test_a_sandbox_that_is_incomplete_is_no_obstacle_but_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelgym_env.evaluation.sandbox import probe

    report = dict.fromkeys(LAYERS, "on") | {"seccomp": "off: no filter for riscv64", "memory": "on: 3 GiB, watched"}
    monkeypatch.setattr(probe, "look", lambda kind: (report, 0.005))
    monkeypatch.setattr(isolation, "offers", lambda: [isolation.Offer("Landlock", True, "ABI 7")])
    found = doctor._isolation(gpu=True)
    assert only(found, "sandbox on a GPU").state == "note"
    assert "system calls (seccomp off: no filter for riscv64)" in only(found, "sandbox on a GPU").detail
    assert only(found, "seccomp").detail == "not in force: no filter for riscv64"
    assert only(found, "memory").detail.endswith("(3 GiB, watched)")
    report["seccomp"] = "on"
    assert "takes 5 ms" in only(doctor._isolation(gpu=False), "sandbox").detail


def test_it_imports_no_torch_here(repo_root: Path) -> None:
    code = "import sys\nfrom kernelgym_env import doctor\ndoctor.run()\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=repo_root, check=True, timeout=120)


def test_a_real_evaluation() -> None:
    found = doctor.evaluate("cpu")
    assert (found.state, found.essential) == ("ok", True)
    assert found.detail.startswith("correct, ")


def test_an_evaluation_on_a_device_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = doctor.evaluate("cuda:0")
    assert (found.state, found.essential) == ("missing", False)
    assert "needs an NVIDIA GPU" in found.detail


# --- torch


def torch_process(out: str, said: str = "", code: int = 0) -> Any:
    return SimpleNamespace(communicate=lambda timeout=None: (out, said), returncode=code)


def test_torch_that_does_not_import() -> None:
    facts = doctor._torch_facts(torch_process("", "Traceback\nModuleNotFoundError: No module named 'torch'\n", 1))
    (found,) = doctor._torch(facts, gpu=True)
    assert found.state == "missing"
    assert found.essential
    assert found.detail == "ModuleNotFoundError: No module named 'torch'"
    assert not evaluation_works([found])


def test_torch_that_dies_silently() -> None:
    (found,) = doctor._torch(doctor._torch_facts(torch_process("", "", -11)), gpu=False)
    assert "-11" in found.detail


def test_torch_that_prints_before_the_facts() -> None:
    assert doctor._torch_facts(torch_process('hello\n{"version": "2"}\n'))["version"] == "2"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cuda": "", "devices": []}, "this build is CPU only"),
        ({"cuda": "", "hip": "6.4", "devices": []}, "this build is ROCm 6.4"),
        ({"devices": [], "said": "a\nThe driver on your system is too old"}, "The driver on your system is too old"),
        ({"devices": []}, "it sees no device"),
        ({"devices": [["NVIDIA B200", 10, 0]]}, "no code for NVIDIA B200 (sm_100)"),
    ],
)
def test_torch_that_cannot_use_the_gpu(change: dict[str, Any], said: str) -> None:
    torch, gpu = doctor._torch({**TORCH, **change}, gpu=True)
    assert torch.state == "ok"
    assert gpu.state == "missing"
    assert said in gpu.detail
    assert gpu.advice
    assert evaluation_works([torch, gpu]), "the CPU is enough"


def test_torch_that_can() -> None:
    assert [check.state for check in doctor._torch(TORCH, gpu=True)] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("archs", "capability", "runs"),
    [
        (["sm_80", "sm_90"], (9, 0), True),
        (["sm_80"], (8, 6), True),
        (["sm_86"], (8, 0), False),
        (["sm_90"], (10, 0), False),
        (["sm_90", "compute_90"], (10, 3), True),
        (["sm_90a"], (9, 0), True),
        (["compute_90a"], (10, 0), False),
        (["sm_120"], (12, 0), True),
        ([], (9, 0), False),
    ],
)
def test_which_devices_a_build_has_code_for(archs: list[str], capability: tuple[int, int], runs: bool) -> None:
    assert doctor._has_code(archs, *capability) == runs


# --- GPUs


def test_no_gpu_is_no_failure() -> None:
    (found,) = doctor._gpu_checks("", [], "no NVIDIA driver")
    assert found.state == "note"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"compute_mode": "exclusive-process"}, "nvidia-smi -i 0 -c DEFAULT"),
        ({"mig": True}, "MIG instance"),
        ({"persistence": False}, "nvidia-smi -i 0 -pm 1"),
        ({"free_gib": 0.5}, "memory is free"),
    ],
)
def test_gpu_settings_that_matter(change: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [check.state for check in doctor._gpu_checks("580.1", [GPU], "")] == ["ok", "ok"]
    _, found = doctor._gpu_checks("580.1", [nvml.Gpu(**{**vars(GPU), **change})], "")
    assert found.state == "note"
    assert said in found.advice


def test_hidden_gpus_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert only(doctor._gpu_checks("580.1", [GPU], ""), "visible devices").detail == "CUDA_VISIBLE_DEVICES=1"


class FakePynvml:
    """`nvidia-ml-py` with one device that does not know MIG."""

    class NVMLError(Exception):
        pass

    def __getattr__(self, name: str) -> Any:
        answers: dict[str, Any] = {
            "nvmlInit": None,
            "nvmlShutdown": None,
            "nvmlSystemGetDriverVersion": b"580.1",
            "nvmlDeviceGetCount": 1,
            "nvmlDeviceGetHandleByIndex": "handle",
            "nvmlDeviceGetName": "NVIDIA T4",
            "nvmlDeviceGetUUID": b"GPU-2",
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=16 << 30, free=15 << 30, used=1 << 30),
            "nvmlDeviceGetComputeMode": 3,
            "nvmlDeviceGetPersistenceMode": 0,
        }
        if name not in answers:
            return self._refuse
        return lambda *arguments: answers[name]

    def _refuse(self, *arguments: Any) -> None:
        raise self.NVMLError


def test_nvml_through_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakePynvml())
    driver, gpus = nvml.query()
    assert driver == "580.1"
    assert gpus == [nvml.Gpu(0, "NVIDIA T4", "GPU-2", 16.0, 15.0, "exclusive-process", None, False)]


def test_nvml_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(nvml.ctypes, "CDLL", missing)
    with pytest.raises(OSError, match="no NVIDIA driver"):
        nvml.query()
    assert doctor._gpus() == ("", [], "no NVIDIA driver: libnvidia-ml.so.1 was not found")


@pytest.mark.gpu
def test_both_ways_to_nvml_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pynvml")
    driver, gpus = nvml.query()
    monkeypatch.setitem(sys.modules, "pynvml", None)
    again, direct = nvml.query()
    assert driver == again
    assert [vars(gpu) | {"free_gib": 0} for gpu in gpus] == [vars(gpu) | {"free_gib": 0} for gpu in direct]


# --- compilers and languages


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.shutil, "which", lambda name, path=None: None)
    (found,) = doctor._cxx()
    assert found.state == "missing"
    assert "Install g++" in found.advice
    assert doctor._ninja().state == "missing"


def test_the_compiler_is_not_the_one_torch_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(doctor.shutil, "which", lambda name, path=None: f"/bin/{name}" if name == "clang++" else None)
    monkeypatch.setattr(doctor, "_ask", lambda *command: "clang version 17\n")
    monkeypatch.setattr(doctor, "_compiles", lambda compiler: False)
    compiler, openmp = doctor._cxx()
    assert compiler.state == "note"
    assert "CXX=clang++" in compiler.advice
    assert openmp.state == "missing"


def test_ninja_of_an_environment_that_is_not_activated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ninja = tmp_path / "ninja"
    ninja.write_text("#!/bin/sh\necho 1.2.3\n")
    ninja.chmod(0o755)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(doctor.sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setattr(doctor, "_ask", lambda *command: subprocess.check_output(["/bin/sh", command[0]], text=True))
    assert doctor._ninja().detail == "1.2.3"


@pytest.mark.parametrize(
    ("release", "facts", "on_gpu", "state"),
    [
        ("13.0", {"cuda": "13.0"}, True, "ok"),
        ("13.1", {"cuda": "13.0"}, True, "ok"),
        ("12.8", {"cuda": "13.0"}, True, "missing"),
        ("", {"cuda": "13.0"}, True, "missing"),
        ("", {"cuda": ""}, False, "note"),
        ("13.0", {"error": "no torch"}, False, "ok"),
    ],
)
def test_nvcc(
    release: str, facts: dict[str, Any], on_gpu: bool, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    said = f"Cuda compilation tools, release {release}, V1" if release else ""
    monkeypatch.setattr(doctor, "_ask", lambda *command: said)
    nvcc, home = doctor._nvcc(facts, on_gpu)
    assert nvcc.state == state
    assert home.state == "ok"
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "gone"))
    assert doctor._nvcc(facts, on_gpu)[1].state == "missing"


@pytest.mark.parametrize(
    ("installed", "cuda", "states"),
    [
        ({"triton": "3.5", "cupy-cuda13x": "14", "cupti-python": "13"}, "13.0", ["ok", "ok", "ok"]),
        ({"triton": "3.5", "cupy-cuda12x": "13"}, "13.0", ["ok", "missing", "note"]),
        ({"triton": "3.5", "cupy": "14"}, "13.0", ["ok", "ok", "note"]),
        ({}, "12.8", ["missing", "missing", "note"]),
        ({"triton": "3.5"}, "", ["note", "note", "note"]),
    ],
)
def test_languages(installed: dict[str, str], cuda: str, states: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_version", lambda *names: next((installed[n] for n in names if n in installed), ""))
    found = doctor._languages({"cuda": cuda}, on_gpu=bool(cuda))
    assert [check.state for check in found] == states


# --- isolation and folders


@pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
def test_offers() -> None:
    names = [offer.name for offer in isolation.offers()]
    assert names == [
        "Landlock",
        "user namespaces",
        "network namespaces",
        "seccomp filters",
        "cgroup v2, delegated",
    ]
    assert all(offer.usable or offer.detail for offer in isolation.offers())


def test_offers_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert isolation.offers() == []
    platform = only(doctor._base(), "platform")
    assert platform.state == "missing"
    assert not evaluation_works([platform])


@pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
def test_looking_at_isolation_changes_nothing() -> None:
    code = (
        "import os\nfrom kernelgym_env.isolation import offers\n"
        "def state():\n"
        "    status = open('/proc/self/status').read()\n"
        "    kept = [line for line in status.splitlines() if line.startswith(('Seccomp', 'NoNewPrivs', 'Cap'))]\n"
        "    return kept, [os.readlink(f'/proc/self/ns/{name}') for name in ('user', 'net')]\n"
        "before = state()\noffers()\nassert state() == before"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=Path(__file__).resolve().parent.parent)


def test_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELGYM_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("KERNELGYM_CACHE_DIR", str(tmp_path / "not" / "there"))
    runtime, cache = doctor._folders()
    assert (runtime.state, cache.state) == ("ok", "ok")
    assert str(tmp_path / "not" / "there") in cache.detail
    assert not (tmp_path / "not").exists()


def test_a_runtime_folder_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KERNELGYM_RUNTIME_DIR", str(tmp_path / "file" / "below"))
    runtime = doctor._folders()[0]
    assert (runtime.state, runtime.essential) == ("missing", True)
    assert "KERNELGYM_RUNTIME_DIR" in runtime.advice


def test_little_room_is_told_but_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: SimpleNamespace(free=1 << 29))
    runtime, cache = doctor._folders()
    assert evaluation_works([runtime, cache])
    assert "0.5 GiB free: less than" in runtime.detail
    assert cache.state == "note"


# --- data


def test_kernelbench(tmp_path: Path, shared_data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELBENCH_DIR", raising=False)
    monkeypatch.setenv("KERNELGYM_CACHE_DIR", str(tmp_path / "cache"))
    assert doctor._kernelbench().state == "note"
    monkeypatch.setenv("KERNELBENCH_DIR", str(tmp_path / "gone"))
    gone = doctor._kernelbench()
    assert gone.state == "missing"
    assert "does not exist" in gone.advice
    (tmp_path / "bad.jsonl").write_text("[]\n")
    monkeypatch.setenv("KERNELBENCH_DIR", str(tmp_path / "bad.jsonl"))
    assert doctor._kernelbench().state == "missing"
    monkeypatch.setenv("KERNELBENCH_DIR", str(shared_data("kernelbench.jsonl.gz")))
    found = doctor._kernelbench()
    assert found.state == "ok"
    assert "levels 1, 2, 3, 4" in found.detail


def test_checks_are_plain_data() -> None:
    check = Check("GPU", "driver", "ok", "580")
    assert check.to_dict() == {
        "group": "GPU",
        "name": "driver",
        "state": "ok",
        "detail": "580",
        "advice": "",
        "essential": False,
    }
