"""Evaluations per minute, ours against KernelBench's method with a new process for each sample.

    python benchmarks/throughput.py --device cuda --judges 8 12 --out benchmarks/results/throughput_h200.json

- The same submissions for both, in one run, on one device: kernels of our own in Triton, CuPy, CUDA (or, on a CPU, C++)
  with other launch parameters each, so that none is compiled twice; one in eight is wrong.
- KernelBench's method, from its description (`kernelbench_method.py`), one process at a time; with `--theirs-on` on
  another GPU of the host at the same time, so that all fits into one run.
- Ours: protocol `strict`, with every check, by so many judges that work side by side and time one at a time; first all
  kinds, then Triton alone for as long as `--steady` says, with as many in flight as there are judges.
- Verdicts of all ways must be the same.
- Cache folders are new ones, ours and those of torch, Triton and CuPy: nothing was built or found out before.

Seconds of a stage are medians over submissions. `timing` is the stage in which an evaluation has the device to itself.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from facts import facts
from rich.console import Console
from rich.progress import track
from rich.table import Table

from kernelgym_env.devices import cuda_device_names
from kernelgym_env.evaluation.result import Evaluation
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.pools.local import LocalPool
from kernelgym_env.tasks import Task

HERE = Path(__file__).parent
STAGES = ("queue", "build", "start", "correctness", "timing", "total")
ROWS, COLUMNS = {"cuda": 8192, "cpu": 256}, {"cuda": 4096, "cpu": 1024}
WRONG_EVERY = 8
CACHES = ("TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR", "CUPY_CACHE_DIR")

REFERENCE = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return {expression}


def get_inputs():
    return [torch.randn({rows}, {columns})]


def get_init_inputs():
    return []
"""
EXPRESSIONS = {
    "swish": "nn.functional.silu(x)",
    "gelu": "nn.functional.gelu(x, approximate='tanh')",
    "hinge": "torch.clamp(1.0 - x, min=0.0) * 0.5",
    "soft": "nn.functional.softplus(x)",
}
"""What a task computes, element by element, by name. One of four is several kernels in eager PyTorch: a fused one is
more than three times as fast, which the judge does not believe before it has measured it again."""

TRITON = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def kernel_{number}(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, {formula}, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel_{number}[(triton.cdiv(x.numel(), {block}),)](x, y, x.numel(), BLOCK={block}, num_warps={warps})
        return y
"""
IN_TRITON = {
    "swish": "v / (1.0 + tl.exp(-v))",
    "gelu": "v * (1.0 - 1.0 / (1.0 + tl.exp(1.5957691216057308 * (v + 0.044715 * v * v * v))))",
    "hinge": "tl.maximum(1.0 - v, 0.0) * 0.5",
    "soft": "tl.log(1.0 + tl.exp(-tl.abs(v))) + tl.maximum(v, 0.0)",
}
C_LIKE = {
    "swish": "v / (1.0f + expf(-v))",
    "gelu": "0.5f * v * (1.0f + tanhf(0.7978845608028654f * (v + 0.044715f * v * v * v)))",
    "hinge": "fmaxf(1.0f - v, 0.0f) * 0.5f",
    "soft": "log1pf(expf(-fabsf(v))) + fmaxf(v, 0.0f)",
}
CUPY = """
import cupy
import torch
from torch import nn

KERNEL = cupy.RawKernel(r'''
extern "C" __global__ void kernel_{number}(const float* x, float* y, long long n) {{
    const long long step = gridDim.x * (long long)blockDim.x;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += step) {{
        const float v = x[i];
        y[i] = {formula};
    }}
}}
''', "kernel_{number}")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            KERNEL(({blocks},), ({threads},), (x.data_ptr(), y.data_ptr(), x.numel()))
        return y
"""
CUDA = """
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r'''
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__global__ void kernel_{number}(const float* x, float* y, long long n) {{
    const long long step = gridDim.x * (long long)blockDim.x;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += step) {{
        const float v = x[i];
        y[i] = {formula};
    }}
}}

torch::Tensor run_{number}(torch::Tensor x) {{
    auto y = torch::empty_like(x);
    kernel_{number}<<<{blocks}, {threads}, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}}
'''
BUILT = load_inline("run_{number}", "torch::Tensor run_{number}(torch::Tensor x);", SOURCE, functions=["run_{number}"])


class ModelNew(nn.Module):
    def forward(self, x):
        return BUILT.run_{number}(x)
"""
CPP = """
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r'''
#include <torch/extension.h>
#include <cmath>

torch::Tensor run_{number}(torch::Tensor x) {{
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    for (long i = 0; i < x.numel(); ++i) {{
        const float v = in[i];
        out[i] = {formula};
    }}
    return y;
}}
'''
BUILT = load_inline("run_{number}", SOURCE, functions=["run_{number}"], extra_cflags=["-O3", "-march=native"])


class ModelNew(nn.Module):
    def forward(self, x):
        return BUILT.run_{number}(x)
"""
KINDS = {"cuda": {"triton": 24, "cupy": 8, "cuda": 8}, "cpu": {"cpp": 8}}
"""How many of each kind, by device."""


@dataclass(frozen=True)
class Sample:
    """A submission, and what becomes of it.

    Attributes:
        number: its place among all.
        kind: language.
        task: what it is for.
        source: its text.
        right: whether it computes that.
    """

    number: int
    kind: str
    task: Task
    source: str
    right: bool


def tasks(device: str) -> dict[str, Task]:
    """The tasks by name."""
    size = {"rows": ROWS[device], "columns": COLUMNS[device]}
    return {
        name: Task(f"Throughput/{name.title()}", REFERENCE.format(expression=expression, **size))
        for name, expression in EXPRESSIONS.items()
    }


def source(kind: str, name: str, number: int, *, right: bool) -> str:
    """A kernel, another one for each number."""
    formula = (IN_TRITON if kind == "triton" else C_LIKE)[name]
    values = {
        "number": number,
        "formula": formula if right else f"({formula}) * 1.01",
        "block": 256 << number % 5,
        "warps": 1 << number % 3,
        "blocks": 132 * (1 + number % 16),
        "threads": 128 << number % 4,
    }
    return {"triton": TRITON, "cupy": CUPY, "cuda": CUDA, "cpp": CPP}[kind].format(**values)


def samples(device: str, kinds: dict[str, int]) -> list[Sample]:
    """All kinds, in turn over the tasks; one in eight is wrong."""
    numbers = itertools.count()
    every = tasks(device)
    found = []
    for kind, count in kinds.items():
        for place in range(count):
            number, name = next(numbers), list(every)[place % len(every)]
            right = place % WRONG_EVERY != WRONG_EVERY - 1
            found.append(Sample(number, kind, every[name], source(kind, name, number, right=right), right))
    return found


def by_kernelbench(every: list[Sample], device: str, gpu: str | None) -> Iterator[dict[str, Any]]:
    """One process after the other, on the GPU of this number if one is given; what is known after each."""
    seconds: list[float] = []
    correct: list[bool] = []
    with tempfile.TemporaryDirectory() as folder:
        environ = os.environ | {name: str(Path(folder, name)) for name in CACHES}
        environ |= {"CUDA_VISIBLE_DEVICES": gpu} if gpu else {}
        for sample in track(every, "KernelBench's method", console=Console(stderr=True)):
            reference, submission = Path(folder, "reference.py"), Path(folder, f"submission_{sample.number}.py")
            reference.write_text(sample.task.source)
            submission.write_text(sample.source)
            command = [sys.executable, str(HERE / "kernelbench_method.py"), reference, submission, "--device", device]
            start = time.perf_counter()
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
            seconds.append(time.perf_counter() - start)
            correct.append(json.loads(done.stdout.splitlines()[-1])["correct"])
            known = {"wall_s": sum(seconds), "seconds": list(seconds), "correct": list(correct)}
            yield known | _rates(every[: len(seconds)], seconds, sum(seconds))


def _rates(every: list[Sample], seconds: list[float], wall_s: float) -> dict[str, Any]:
    kinds = {}
    for kind in dict.fromkeys(sample.kind for sample in every):
        own = [value for sample, value in zip(every, seconds, strict=True) if sample.kind == kind]
        kinds[kind] = {"samples": len(own), "median_s": statistics.median(own), "sum_s": sum(own)}
    return {"per_minute": 60 * len(every) / wall_s, "kinds": kinds}


def by_us(every: list[Sample], device: str, judges: int) -> dict[str, Any]:
    """All at once, by so many judges; then those in Triton (or, on a CPU, all) alone."""
    pool = LocalPool(judges=judges)
    try:
        start = time.perf_counter()
        pool.warm(device)
        warm_s = time.perf_counter() - start
        start = time.perf_counter()
        futures = [pool.submit(Submission(sample.task, sample.source, device=device)) for sample in every]
        evaluations = _results(futures, f"{judges} judges, all kinds")
        wall_s = time.perf_counter() - start
        found = {
            "judges": judges,
            "warm_s": warm_s,
            "wall_s": wall_s,
            "statuses": [evaluation.status.value for evaluation in evaluations],
            "correct": [evaluation.correct for evaluation in evaluations],
            "stages_s": _stages(evaluations),
        } | _rates(
            every, [evaluation.stages_s["total"] - evaluation.stages_s["queue"] for evaluation in evaluations], wall_s
        )
        light = [sample for sample in every if sample.kind in ("triton", "cupy")]
        if len(light) == len(every):
            found["light"] = {key: found[key] for key in ("wall_s", "per_minute", "correct")} | {"samples": len(light)}
        elif light:
            start = time.perf_counter()
            futures = [pool.submit(Submission(one.task, one.source, device=device)) for one in light]
            again = _results(futures, f"{judges} judges, Triton and CuPy")
            wall_s = time.perf_counter() - start
            found["light"] = {"samples": len(light), "wall_s": wall_s, "per_minute": 60 * len(light) / wall_s}
            found["light"]["correct"] = [evaluation.correct for evaluation in again]
        return found
    finally:
        pool.close()


def _results(futures: list[Future[Evaluation]], title: str) -> list[Evaluation]:
    """All of them, with a bar on a console of its own: KernelBench's method shows another one."""
    return [future.result() for future in track(futures, title, console=Console(stderr=True))]


def steady(device: str, judges: int, seconds: float) -> dict[str, Any]:
    """Triton (on a CPU C++) with as many in flight as there are judges and half as many again, none like another."""
    kind = "triton" if device == "cuda" else "cpp"
    pool = LocalPool(judges=judges)
    every = tasks(device)

    def endless() -> Iterator[Submission]:
        for number in itertools.count(1000):
            name = list(every)[number % len(every)]
            yield Submission(every[name], source(kind, name, number, right=True), device=device)

    more = endless()
    done: list[tuple[float, Evaluation]] = []
    try:
        pool.warm(device)
        start = time.perf_counter()
        flying: set[Future[Evaluation]] = {pool.submit(next(more)) for _ in range(judges + judges // 2)}
        while time.perf_counter() - start < seconds or len(done) < 4 * judges:
            ended, flying = wait(flying, return_when=FIRST_COMPLETED)
            done += [(time.perf_counter() - start, future.result()) for future in ended]
            flying |= {pool.submit(next(more)) for _ in ended}
    finally:
        pool.close()
    warm = done[len(done) // 4 :]  # what begins together ends together
    evaluations = [evaluation for _, evaluation in warm]
    span = warm[-1][0] - warm[0][0]
    return {
        "judges": judges,
        "seconds": span,
        "evaluations": len(warm) - 1,
        "per_minute": 60 * (len(warm) - 1) / span,
        "correct": sum(evaluation.correct for evaluation in evaluations),
        "stages_s": _stages(evaluations),
        "exclusive_share": sum(evaluation.stages_s["timing"] for evaluation in evaluations[1:]) / span,
        "device_us": statistics.median(
            evaluation.times["eager"].median_us for evaluation in evaluations if evaluation.correct
        ),
    }


def _stages(evaluations: list[Evaluation]) -> dict[str, float]:
    return {stage: statistics.median(one.stages_s.get(stage, 0.0) for one in evaluations) for stage in STAGES}


def show(document: dict[str, Any]) -> None:
    """Print the tables."""
    console = Console(width=140)
    table = Table(title="Evaluations per minute")
    for column in ("way", "judges", "all kinds", "x", "Triton and CuPy", "x", *STAGES):
        table.add_column(column, justify="left" if column == "way" else "right")
    theirs = document.get("kernelbench")
    their_rate = their_light = math.nan
    if theirs:
        their_rate = theirs["per_minute"]
        light = [theirs["kinds"][kind] for kind in ("triton", "cupy") if kind in theirs["kinds"]]
        if light:
            their_light = 60 * sum(one["samples"] for one in light) / sum(one["sum_s"] for one in light)
        table.add_row("KernelBench's method", "1", f"{their_rate:.1f}", "1", f"{their_light:.1f}", "1")
    for one in document["ours"]:
        rate = one.get("light", {}).get("per_minute", 0.0)
        table.add_row(
            "ours, strict",
            str(one["judges"]),
            f"{one['per_minute']:.1f}",
            f"{one['per_minute'] / their_rate:.1f}",
            f"{rate:.1f}" if rate else "–",
            f"{rate / their_light:.1f}" if rate else "–",
            *(f"{one['stages_s'][stage]:.2f}" for stage in STAGES),
        )
    for one in document["steady"]:
        table.add_row(
            f"steady, {one['exclusive_share']:.0%} of it timing",
            str(one["judges"]),
            f"{one['per_minute']:.1f}",
            *[""] * 3,
            *(f"{one['stages_s'][stage]:.2f}" for stage in STAGES),
        )
    console.print(table)
    console.print(f"verdicts alike: {document['verdicts_alike']}")


def main() -> None:
    """Measure, write the JSON, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=tuple(KINDS))
    parser.add_argument("--judges", type=int, nargs="+", default=[8])
    parser.add_argument("--kinds", nargs="+", help="only these languages")
    parser.add_argument("--steady", type=float, default=60.0, help="seconds of steady work; 0 for none")
    theirs_where = parser.add_mutually_exclusive_group()
    theirs_where.add_argument("--theirs-on", metavar="GPU", help="GPU that runs KernelBench's method meanwhile")
    theirs_where.add_argument("--ours-alone", action="store_true", help="leave KernelBench's method out")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    kinds = {kind: n for kind, n in KINDS[arguments.device].items() if not arguments.kinds or kind in arguments.kinds}
    every = samples(arguments.device, kinds)
    document: dict[str, Any] = {"benchmark": "throughput", **facts(), "device": cuda_device_names()[:1] or ["cpu"]}
    document |= {"samples": [f"{one.kind} {one.task.id}" for one in every], "right": [one.right for one in every]}

    saving = Lock()

    def save() -> None:
        with saving:
            arguments.out.parent.mkdir(parents=True, exist_ok=True)
            arguments.out.write_text(json.dumps(document, indent=1))

    document["steady"], document["ours"] = [], []
    document["theirs_meanwhile"] = arguments.theirs_on is not None
    threads = ThreadPoolExecutor(1)
    cache = tempfile.TemporaryDirectory()
    os.environ["KERNELGYM_CACHE_DIR"] = cache.name

    def theirs() -> None:
        for known in by_kernelbench(every, arguments.device, arguments.theirs_on):
            document["kernelbench"] = known
            save()

    meanwhile = threads.submit(theirs) if arguments.theirs_on else None
    for judges in arguments.judges:
        document["ours"].append(by_us(every, arguments.device, judges))
        save()
        if arguments.steady:
            document["steady"].append(steady(arguments.device, judges, arguments.steady))
            save()
    ways = [one["correct"] for one in document["ours"]]
    if not arguments.ours_alone:
        (meanwhile or threads.submit(theirs)).result()
        ways.append(document["kernelbench"]["correct"])
    cache.cleanup()
    document["verdicts_alike"] = all(way == document["right"] for way in ways)
    save()
    show(document)


if __name__ == "__main__":
    main()
