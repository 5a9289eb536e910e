"""Drawing a trial's inputs on the device, against drawing them on the CPU and moving them, as KernelBench does.

    KERNELBENCH_DIR=kernelbench.jsonl.gz python benchmarks/inputs.py --device cuda \
        --out benchmarks/results/inputs_h200.json

Both by the judge's own code, under the protocols `strict` and `kernelbench`, on problems of level 1 with large inputs;
each figure is the median over repeats, until the device is idle.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from facts import facts
from rich.console import Console
from rich.progress import track
from rich.table import Table

from kernelgym_env.devices import cuda_device_names
from kernelgym_env.evaluation.protocols import Protocol, get_protocol
from kernelgym_env.evaluation.reference import Reference
from kernelgym_env.tasks import Task, load_task

PROBLEMS = (1, 19, 21, 23, 25, 36, 40, 47, 89, 95)
WEIGHTS_SEED = 1


def drawn_s(task: Task, device: str, protocol: Protocol, repeats: int) -> tuple[float, int]:
    """Median seconds to draw inputs, and their bytes."""
    reference = Reference(task, device, WEIGHTS_SEED, protocol)
    seconds, size = [], 0
    for seed in range(repeats + 1):
        start = time.perf_counter()
        inputs = reference.draw(seed)
        if device != "cpu":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
        size = sum(value.nbytes for value in inputs if isinstance(value, torch.Tensor))
        del inputs
    return statistics.median(seconds[1:]), size  # the first one makes the generator


def main() -> None:
    """Measure, write the JSON, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--problems", type=int, nargs="+", default=PROBLEMS, help="numbers in level 1")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    device = "cuda:0" if arguments.device == "cuda" else "cpu"
    rows: list[dict[str, Any]] = []
    document = {"benchmark": "inputs", **facts(), "device": cuda_device_names()[:1] or ["cpu"], "rows": rows}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    for number in track(arguments.problems, "Inputs", console=Console(stderr=True)):
        task = load_task(f"KernelBench/L1-{number:03d}").for_device(arguments.device)
        row: dict[str, Any] = {"task": task.id, "repeats": arguments.repeats}
        for name, protocol in (("here", "strict"), ("kernelbench", "kernelbench")):
            row[f"{name}_s"], row["mib"] = drawn_s(task, device, get_protocol(protocol), arguments.repeats)
        row["mib"] /= 1 << 20
        rows.append(row | {"ratio": row["kernelbench_s"] / row["here_s"]})
        document["median_ratio"] = statistics.median(row["ratio"] for row in rows)
        arguments.out.write_text(json.dumps(document, indent=1))
    table = Table(title="Seconds to draw a trial's inputs")
    for column in ("task", "MiB", "on the device", "on the CPU, moved", "x"):
        table.add_column(column, justify="left" if column == "task" else "right")
    for row in rows:
        cells = (f"{row['mib']:.0f}", f"{row['here_s']:.5f}", f"{row['kernelbench_s']:.4f}", f"{row['ratio']:.0f}")
        table.add_row(row["task"], *cells)
    Console(width=100).print(table, f"median ratio {document['median_ratio']:.0f}")


if __name__ == "__main__":
    main()
