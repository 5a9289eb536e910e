"""How good a speedup is: a kernel against itself, and against one that is 5% slower.

    python benchmarks/timing.py --out benchmarks/results/timing_h200.json
    python benchmarks/timing.py --device cpu --out benchmarks/results/timing_cpu.json

- A/A: the reference against itself, each run in a new process, against the judge's own one for references. Whatever
  differs from 1 is error.
- A/B: a Triton kernel against the same one with 5% more work. What counts is how often it is ranked right.
- Beside both the same by KernelBench's method, from its description: the mean of 100 calls between events, one process,
  the reference after the candidate, the cache emptied before each call.
- The outside clock: the slope of batches by the judge's wall clock against the device's events around the same calls
  (`slope_over_events`), and the bound that it sets on what a candidate reports, against the cold calls that it
  reports (`bound_over_reported`).

With ``--beside`` there is A/A alone too, while other judges work on the same device (`throughput.py --steady`): they
hold still while a pair is timed, and KernelBench's method would not.

On a CPU there is A/A alone: KernelBench's method has no CPU, and a slope no device's clock to be held against.
"""

from __future__ import annotations

import argparse
import json
import random
import secrets
import statistics
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import torch
from kernelbench_method import FLUSH_BYTES, mean_ms
from pages import BEGIN, END, write_tables
from rich.console import Console
from rich.progress import track
from rich.table import Table

import kernelgym_env
from kernelgym_env.evaluation.checking import match_weights, send_weights
from kernelgym_env.evaluation.contents import Contents
from kernelgym_env.evaluation.judging import Judging, Stages
from kernelgym_env.evaluation.outside import outside_us
from kernelgym_env.evaluation.protocols import Protocol, get_protocol
from kernelgym_env.evaluation.reference import Reference, derive_seed
from kernelgym_env.evaluation.session import Session
from kernelgym_env.evaluation.speed import prepare, time_both
from kernelgym_env.evaluation.statistics import bootstrap_median
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.tasks import Task

TASK = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, *args):
        return {expression}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""

TASKS = {
    "relu-256x4096": ("torch.relu(args[0])", "torch.randn(256, 4096)"),
    "softmax-1024x4096": ("torch.softmax(args[0], -1)", "torch.randn(1024, 4096)"),
    "relu-4096x4096": ("torch.relu(args[0])", "torch.randn(4096, 4096)"),
    "mm-1024": ("args[0] @ args[1]", "torch.randn(1024, 1024), torch.randn(1024, 1024)"),
    "sum-8192x8192": ("args[0].sum(-1)", "torch.randn(8192, 8192)"),
    "cumsum-2048x2048": ("args[0].cumsum(-1)", "torch.randn(2048, 2048)"),
    "layernorm-8192x4096": ("nn.functional.layer_norm(args[0], (4096,))", "torch.randn(8192, 4096)"),
    "chain-4096x4096": ("torch.tanh(args[0] * 2 + 1).abs().sqrt()", "torch.randn(4096, 4096)"),
    "softmax-8192x8192": ("torch.softmax(args[0], -1)", "torch.randn(8192, 8192)"),
    "conv-16x64x128x128": (
        "nn.functional.conv2d(args[0], args[1], padding=1)",
        "torch.randn(16, 64, 128, 128), torch.randn(64, 64, 3, 3)",
    ),
    "gelu-16384x8192": ("nn.functional.gelu(args[0])", "torch.randn(16384, 8192)"),
    "mm-4096": ("args[0] @ args[1]", "torch.randn(4096, 4096), torch.randn(4096, 4096)"),
}
"""Expression and inputs by name; from some microseconds to some milliseconds."""

CPU_TASKS = {
    "relu-64x256": ("torch.relu(args[0])", "torch.randn(64, 256)"),
    "softmax-64x512": ("torch.softmax(args[0], -1)", "torch.randn(64, 512)"),
    "layernorm-256x1024": ("nn.functional.layer_norm(args[0], (1024,))", "torch.randn(256, 1024)"),
    "mm-256": ("args[0] @ args[1]", "torch.randn(256, 256), torch.randn(256, 256)"),
    "chain-512x1024": ("torch.tanh(args[0] * 2 + 1).abs().sqrt()", "torch.randn(512, 1024)"),
    "conv-4x16x64x64": (
        "nn.functional.conv2d(args[0], args[1], padding=1)",
        "torch.randn(4, 16, 64, 64), torch.randn(16, 16, 3, 3)",
    ),
}
"""The same for a CPU."""

SCALE = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def scale(x, y, n, blocks, B: tl.constexpr):
    i = (tl.program_id(0) % blocks).to(tl.int64) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, mask=i < n) * 2.0, mask=i < n)


class {name}(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        blocks = triton.cdiv(x.numel(), 2048)
        scale[(blocks * {percent} // 100,)](x, y, x.numel(), blocks, 2048)
        return y


def get_inputs():
    return [torch.randn({rows}, 4096)]


def get_init_inputs():
    return []
"""
ROWS = (4096, 16384, 32768)
COLUMNS = (
    "task",
    "µs",
    "median off",
    "95th percentile",
    "KernelBench: median off",
    "95th percentile",
    "re-run inside",
    "slope",
)
SLOPES, LAUNCHES_US, CYCLES_PER_US = 9, 60, 2_000
"""Repeats of a slope; what launching a call takes at the most; cycles of waiting in a microsecond."""


class Pair:
    """A candidate in a new process and the reference's twin, ready to be timed.

    Args:
        session: the judge's state on the device.
        task: says what is right.
        source: of the candidate.
        other: what it is held against, the task's own source or one with a `Model` that does the same.
        protocol: its timing constants count.
    """

    def __init__(self, session: Session, task: Task, source: str, other: str, protocol: Protocol) -> None:
        secret = secrets.token_bytes(16)
        self.rng = random.Random(secrets.randbits(64))
        submission = Submission(task, source, device=session.kind, protocol=protocol, library_ops="allow")
        self.judging = Judging(
            submission,
            protocol,
            session.zygote,
            device=session.device,
            threads=0,
            environ={},
            stages=Stages(),
            spares=session.spares,
        )
        weights = derive_seed(secret, task.hash, 0, "weights")
        self.reference = Reference(task, session.device, weights, protocol)
        self.candidate = self.judging.launch(weights, self.reference.init_tree)
        self.twin = self.judging.twin(other, weights, self.reference.init_tree)
        self.reference.construct()
        self.reference.probe(derive_seed(secret, task.hash, 0, "probe"))
        cases = [self.reference.case(derive_seed(secret, task.hash, 0, part)) for part in "ab"]
        self.judging.share(cases, self.reference)
        self.judging.started()
        session.spares.fill()
        self.judging.attach(self.candidate)
        send_weights(
            self.judging,
            self.candidate,
            self.reference,
            match_weights(self.judging, self.candidate, self.reference),
        )
        self.contents = Contents(cases, self.rng)
        self.contents.settle(self.reference)
        prepare(self.judging, self.twin, self.contents, self.reference)

    def ratio(self) -> dict[str, Any]:
        """One measurement."""
        start = time.perf_counter()
        time_both(self.judging, self.twin, self.contents, self.reference, self.rng)
        figures = self.judging.figures
        return {
            "ratio": figures["speedup"],
            "low": figures["speedup_low"],
            "high": figures["speedup_high"],
            "us": figures["times"]["candidate"].median_us,
            "clock": figures["times"]["candidate"].clock,
            "seconds": time.perf_counter() - start,
        }

    def outside(self) -> float:
        """Microseconds of a call by the judge's own clock; nothing is so small that it ends the measurement early."""
        return outside_us(self.judging, self.candidate, self.contents, self.reference, 0.0)

    def slopes(self, us: float) -> tuple[float, float]:
        """Microseconds of a call in batches by the judge's wall clock, and by the device's events around the same.

        Calls follow each other with warm caches in both. Each is the median slope between a batch and one of three
        times its calls, which are all launched while the device waits.

        Args:
            us: what a call takes, roughly.
        """
        few = max(4, min(64, int(10_000 / us)))
        wait = int((3 * few * LAUNCHES_US + 2_000) * CYCLES_PER_US)

        def batch(calls: int) -> tuple[float, float]:
            message = {"op": "batch", "calls": calls, "wait": wait}
            start = time.perf_counter()
            answer = self.judging.command(self.candidate, message, self.judging.protocol.deadlines.run_s)
            return (time.perf_counter() - start) * 1e6, answer["us"]

        found = []
        for _ in range(SLOPES):
            short, long = batch(few), batch(3 * few)
            found.append([(most - least) / (2 * few) for least, most in zip(short, long, strict=True)])
        outside, inside = zip(*found, strict=True)
        return statistics.median(outside), statistics.median(inside)

    def close(self) -> None:
        """End both processes."""
        self.judging.close()


def load(source: str) -> dict[str, Any]:
    """The names of a source, in this process."""
    path = Path("/tmp") / f"timing_{secrets.token_hex(4)}.py"  # Triton reads a kernel's text from its file
    path.write_text(source)
    names: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    exec(compile(source, str(path), "exec"), names)
    return names


def model(names: dict[str, Any], entry: str) -> tuple[Any, list[torch.Tensor]]:
    """A new model of a source and new inputs, on the device; drawn there, since that takes no part in the time."""
    with torch.device("cuda"):
        return names[entry](), names["get_inputs"]()


def by_kernelbench(one: str, two: str, runs: int) -> list[float]:
    """Ratios reference / candidate by KernelBench's method."""
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    first, second = load(one), load(two)
    ratios = []
    with torch.no_grad():
        for _ in range(runs):
            (candidate, inputs), (reference, _) = model(first, "ModelNew"), model(second, "Model")
            spent = mean_ms(candidate, inputs, flush)
            ratios.append(mean_ms(reference, inputs, flush) / spent)
    return ratios


def error(ratios: list[float]) -> dict[str, float]:
    """How far ratios of equals are from 1, in percent; the median's 95% interval with its sign."""
    off = [abs(ratio - 1) * 100 for ratio in ratios]
    _, low, high = bootstrap_median(ratios)
    return {
        "median_percent": abs(statistics.median(ratios) - 1) * 100,
        "median_low_percent": (low - 1) * 100,
        "median_high_percent": (high - 1) * 100,
        "p95_percent": float(numpy.quantile(off, 0.95)),
        "max_percent": max(off),
    }


def a_a(
    session: Session, protocol: Protocol, names: list[str], runs: int, *, beside: bool = False
) -> Iterator[dict[str, Any]]:
    """Each task against itself; the ratios alone where other judges work beside."""
    on_gpu = session.kind == "cuda"
    for name in track(names, "A/A"):
        expression, inputs = (TASKS if on_gpu else CPU_TASKS)[name]
        task = Task(f"Timing/{name}", TASK.format(expression=expression, inputs=inputs))
        source = task.source.replace("class Model(", "class ModelNew(")
        found, outside, slopes = [], [], []
        for _ in range(runs):
            pair = Pair(session, task, source, task.source, protocol)
            try:
                found.append(pair.ratio())
                if not beside:
                    outside.append(pair.outside() / found[-1]["us"])
                    slopes += [pair.slopes(found[-1]["us"])] if on_gpu else []
            finally:
                pair.close()
        theirs = by_kernelbench(source, task.source, runs) if on_gpu and not beside else []
        ratios = [one["ratio"] for one in found]
        inside = [
            first["low"] <= again["ratio"] <= first["high"] for first in found for again in found if again is not first
        ]
        yield {
            "task": name,
            "us": statistics.median(one["us"] for one in found),
            "ours": error(ratios),
            "kernelbench": error(theirs) if theirs else None,
            "interval_holds_1": sum(one["low"] <= 1 <= one["high"] for one in found) / runs,
            "rerun_inside": sum(inside) / max(1, len(inside)),
            "bound_over_reported": statistics.median(outside) if outside else None,
            "slope_us": [statistics.median(ones) for ones in zip(*slopes, strict=True)],
            "slope_over_events": statistics.median(wall / events for wall, events in slopes) if slopes else None,
            "seconds": statistics.median(one["seconds"] for one in found),
            "runs": found,
            "kernelbench_ratios": theirs,
        }


def a_b(session: Session, protocol: Protocol, pairs: int) -> Iterator[dict[str, Any]]:
    """A kernel against one with 5% more work, ten measurements a pair of processes; none for no pairs."""
    for rows in track(ROWS if pairs else (), "A/B"):
        reference = SCALE.format(name="Model", percent=100, rows=rows)
        slower = SCALE.format(name="ModelNew", percent=105, rows=rows)
        task = Task(f"Timing/Scale{rows}", TASK.format(expression="args[0] * 2", inputs=f"torch.randn({rows}, 4096)"))
        found = []
        while len(found) < pairs // len(ROWS):
            pair = Pair(session, task, slower, reference, protocol)
            try:
                found += [pair.ratio() for _ in range(10)]
            finally:
                pair.close()
        theirs = by_kernelbench(slower, reference, min(len(found), 100))
        yield {
            "rows": rows,
            "us": statistics.median(one["us"] for one in found),
            "pairs": len(found),
            "ranked_right": sum(one["ratio"] < 1 for one in found),
            "ratio_median": statistics.median(one["ratio"] for one in found),
            "kernelbench_pairs": len(theirs),
            "kernelbench_ranked_right": sum(ratio < 1 for ratio in theirs),
            "seconds": statistics.median(one["seconds"] for one in found),
        }


def show(document: dict[str, Any]) -> None:
    """Print what was measured."""
    console = Console(width=150)
    table = Table(title="A/A: |ratio - 1| in percent")
    for column in (
        "task",
        "µs",
        "median",
        "95th",
        "max",
        "KernelBench: median",
        "95th",
        "re-run inside",
        "outside/inside slope",
        "s",
    ):
        table.add_column(column, justify="left" if column == "task" else "right")
    for one in document["a_a"]:
        ours, theirs = one["ours"], one["kernelbench"]
        table.add_row(
            one["task"],
            f"{one['us']:.1f}",
            *(f"{ours[key]:.2f}" for key in ("median_percent", "p95_percent", "max_percent")),
            *(f"{theirs[key]:.2f}" if theirs else "" for key in ("median_percent", "p95_percent")),
            f"{one['rerun_inside']:.2f}",
            f"{one['slope_over_events']:.4f}" if theirs else "",
            f"{one['seconds']:.2f}",
        )
    console.print(table)
    if not document["a_b"]:
        return
    table = Table(title="A/B: 5% more work, ranked right")
    for column in ("rows", "µs", "ours", "ratio", "KernelBench", "s"):
        table.add_column(column, justify="right")
    for one in document["a_b"]:
        table.add_row(
            str(one["rows"]),
            f"{one['us']:.1f}",
            f"{one['ranked_right']} of {one['pairs']}",
            f"{one['ratio_median']:.4f}",
            f"{one['kernelbench_ranked_right']} of {one['kernelbench_pairs']}",
            f"{one['seconds']:.2f}",
        )
    console.print(table)


def page_part(document: dict[str, Any]) -> str:
    """The tables of the page, between their marks."""
    lines = [
        BEGIN,
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|---" * len(COLUMNS) + "|",
    ]
    for one in document["a_a"]:
        ours, theirs = one["ours"], one["kernelbench"]
        off = [
            f"{side[key]:.2f}%" if side else "–" for side in (ours, theirs) for key in ("median_percent", "p95_percent")
        ]
        slope = f"{one['slope_over_events']:.4f}" if theirs else "–"
        inside = one.get("rerun_inside_narrowed", one["rerun_inside"])
        cells = [one["task"], f"{one['us']:.1f}", *off, f"{inside:.0%}", slope]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "| 5% more work, µs | ranked right | KernelBench: ranked right |", "|---|---|---|"]
    for one in document["a_b"]:
        theirs = f"{one['kernelbench_ranked_right']} of {one['kernelbench_pairs']}"
        lines.append(f"| {one['us']:.0f} | {one['ranked_right']} of {one['pairs']} | {theirs} |")
    if note := document.get("note"):
        lines += ["", *textwrap.wrap(note, 120)]
    return "\n".join([*lines, "", END])


def main() -> None:
    """Measure, write the JSON, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10, help="runs of each task")
    parser.add_argument("--pairs", type=int, default=300, help="measurements of the 5%% slower kernel")
    parser.add_argument("--device", default="cuda:0", help="cuda:0, or cpu")
    parser.add_argument("--beside", action="store_true", help="other judges work on the device: no clocks but theirs")
    parser.add_argument("--tasks", nargs="*", help="by name; all unless given")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--page", type=Path, help="a page into which the tables are written")
    parser.add_argument("--show", action="store_true", help="do not measure, show what is in --out")
    arguments = parser.parse_args()
    if arguments.show:
        document = json.loads(arguments.out.read_text())
        show(document)
        if arguments.page:
            write_tables(arguments.page, page_part(document))
        return
    on_cpu = arguments.device == "cpu"
    known = CPU_TASKS if on_cpu else TASKS
    names = list(known) if arguments.tasks is None else arguments.tasks
    if unknown := sorted(set(names) - set(known)):
        parser.error(f"no tasks of that name on {arguments.device}: {unknown}; there are {list(known)}")
    protocol = get_protocol("strict")
    session = Session(arguments.device, arguments.device)
    session.prepare()
    document = {
        "benchmark": "timing",
        "package": kernelgym_env.__version__,
        "hardware": session.hardware,
        "versions": session.zygote.versions,
        "protocol": protocol.to_dict(),
        "beside": arguments.beside,
        "a_a": [],
        "a_b": [],
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    parts = {
        "a_b": a_b(session, protocol, 0 if on_cpu else arguments.pairs),
        "a_a": a_a(session, protocol, names, arguments.runs, beside=arguments.beside),
    }
    try:
        for name, part in parts.items():
            for result in part:
                document[name].append(result)
                arguments.out.write_text(json.dumps(document, indent=1))  # a run that is cut short keeps what it has
    finally:
        session.close()
    show(document)
    if arguments.page:
        write_tables(arguments.page, page_part(document))


if __name__ == "__main__":
    main()
