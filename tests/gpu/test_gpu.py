"""What only a GPU can show. Run with `pytest -m gpu`; each test is skipped where there is none."""

import math
import subprocess
import sys
import time
from pathlib import Path

import gymnasium as gym
import pytest
from gpu_programs import CUPY, PROTOCOL, TASK, TRITON
from programs import QUICK, task

from kernelgym_env.evaluation import processes
from kernelgym_env.evaluation.protocols import Allclose, Deadlines
from kernelgym_env.evaluation.result import Status
from kernelgym_env.evaluation.spares import kept
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.tasks import load_task, rl

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(("name", "source"), [("triton", TRITON), ("cupy", CUPY)], ids=["triton", "cupy"])
def test_own_kernels_are_correct_and_timed_by_events(judge, name, source):
    if name == "cupy":
        pytest.importorskip("cupy")
    evaluation = judge(source)
    assert evaluation.status is Status.CORRECT, evaluation.feedback
    assert evaluation.times["candidate"].clock == "cuda_event"
    assert evaluation.speedup_low > 1.2  # one pass instead of two
    assert evaluation.device.startswith("cuda:")


def test_a_wrong_kernel_is_wrong(judge):
    assert judge(TRITON.replace("* 2,", "* 2.001,")).status is Status.WRONG


def test_a_kernel_that_leaves_part_of_the_output_is_wrong(judge):
    assert judge(TRITON.replace("triton.cdiv(x.numel(), 1024)", "x.numel() // 2048")).status is Status.WRONG


def test_a_kernel_that_does_not_compile_shows_its_error(judge):
    triton_error = judge(TRITON.replace("tl.maximum(v, 0.0)", "tl.maximum(v, nothing)"))
    assert triton_error.status is Status.COMPILE_ERROR
    assert "nothing" in triton_error.feedback
    pytest.importorskip("cupy")
    cupy_error = judge(CUPY.replace("fmaxf", "fmaxx"))
    assert cupy_error.status is Status.COMPILE_ERROR
    assert "fmaxx" in cupy_error.feedback


def test_an_illegal_access_harms_nobody_else(judge):
    pytest.importorskip("cupy")
    evaluation = judge(CUPY.replace("if (i < n) y[i]", "y[i + (1ll << 40)]"))
    assert evaluation.status in (Status.RUNTIME_ERROR, Status.CRASH)
    assert judge(TRITON).status is Status.CORRECT


def test_a_kernel_that_never_ends_is_killed(judge, pool):
    pytest.importorskip("cupy")
    judge(TRITON)
    hang = CUPY.replace("if (i < n)", "while (*(volatile const float*)x < 1e30f) {} if (i < n)")
    quick = PROTOCOL.replace(deadlines=Deadlines(import_s=30, build_s=60, first_call_s=5, run_s=5))
    start = time.monotonic()
    evaluation = pool.submit(Submission(TASK, hang, device="cuda", protocol=quick)).result(timeout=120)
    assert evaluation.status is Status.TIMEOUT
    assert time.monotonic() - start < 5 + 8
    assert judge(TRITON).status is Status.CORRECT


def test_memory_comes_back(judge, pool):
    judge(TRITON)
    (judge_pid,) = pool.stats()["judges"].values()
    hog = TRITON.replace(
        "y = torch.empty_like(x)",
        "self.z = torch.empty(20 << 30, dtype=torch.uint8, device='cuda'); y = torch.empty_like(x)",
    )
    assert judge(hog).status is Status.CORRECT
    (server,) = processes.children(judge_pid)
    spares = kept(Path(f"/proc/{server}/cwd").resolve())
    deadline = time.monotonic() + 20
    # what is left is the fork server, and what is kept for the next evaluation
    while set(processes.descendants(judge_pid)) - {server, *spares, *processes.descendants(*spares)}:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    used = subprocess.run(query, capture_output=True, text=True, timeout=60)
    assert int(used.stdout.split()[0]) < 8 * 1024


def test_integer_targets_work(judge):
    reference = task(
        "        return nn.functional.cross_entropy(*args)", "[torch.rand(4096, 512), torch.randint(0, 512, (4096,))]"
    )
    evaluation = judge(reference.source.replace("class Model(", "class ModelNew("), reference)
    assert evaluation.status is Status.CORRECT, evaluation.feedback


def test_tf32_in_an_fp32_task_is_wrong(judge):
    reference = task("        return args[0] @ args[1]", "[torch.randn(1024, 1024), torch.randn(1024, 1024)]")
    source = reference.source.replace("class Model(", "class ModelNew(")
    assert judge(source, reference).status is Status.CORRECT
    cheat = "import torch\ntorch.backends.cuda.matmul.allow_tf32 = True\n"
    assert judge(cheat + source, reference).status is Status.WRONG


def test_tf32_is_right_where_the_protocol_has_it_or_tolerates_it(judge):
    reference = task("        return args[0] @ args[1]", "[torch.randn(1024, 1024), torch.randn(1024, 1024)]")
    source = reference.source.replace("class Model(", "class ModelNew(")
    cheat = "import torch\ntorch.backends.cuda.matmul.allow_tf32 = True\n" + source
    loose = PROTOCOL.replace(
        allclose=Allclose(0.5, 1e-2), precision="torch", inputs_on="cpu", input_sets=4, law_trials=0
    )
    for protocol in (PROTOCOL.replace(precision="tf32"), loose):
        evaluation = judge(cheat, reference, protocol=protocol)
        assert evaluation.status is Status.CORRECT, evaluation.feedback


def test_a_step_of_the_environment_creates_no_context_in_the_client(repo_root):
    code = (
        "import gymnasium as g, kernelgym_env, sys\n"
        "e = g.make('KernelGym/GeluTanh-v0', device='cuda'); e.reset(seed=0)\n"
        "i = e.step(e.unwrapped.task.source.replace('class Model(', 'class ModelNew('))[4]\n"
        "print(i['status'], 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=repo_root, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["policy", "False"], done.stderr


def test_the_whole_core_suite_accepts_its_own_references(pool):
    from kernelgym_env.tasks import load_tasks

    quick = QUICK.replace(deadlines=Deadlines())
    results = {}
    for one in load_tasks("core"):
        sized = one.for_device("cuda")
        source = sized.source.replace("class Model(", "class ModelNew(").replace("super(Model,", "super(ModelNew,")
        results[one.id] = pool.submit(Submission(sized, source, device="cuda", protocol=quick)).result(timeout=120)
    bad = {name: (str(e.status), e.feedback[:200]) for name, e in results.items() if e.status is not Status.CORRECT}
    assert not bad
    assert all(not math.isnan(e.speedup) for e in results.values())


@pytest.mark.parametrize("task_id", rl.IDS)
def test_experts_of_the_suite_rl_are_correct(pool, task_id):
    evaluation = pool.submit(Submission(load_task(task_id), rl.expert(task_id), device="cuda")).result(timeout=240)
    assert evaluation.credited, evaluation.feedback
    assert not math.isnan(evaluation.speedup)


def test_environments_step_in_parallel_processes():
    envs = gym.make_vec(
        "KernelGym/GeluTanh-v0",
        num_envs=2,
        vectorization_mode="async",
        vector_kwargs={"shared_memory": False, "context": "spawn"},
        device="cuda",
        turns=2,
    )
    try:
        envs.reset(seed=0)
        info = envs.step(["class ModelNew: ...", "import os; os._exit(1)\nclass ModelNew: ..."])[4]
        assert info["status"].tolist() == ["runtime_error", "crash"]
    finally:
        envs.close()
