"""First light: real submissions through `gym.make(...).step`, one verdict each, with seconds by stage.

Runs rows of CUDA-L1's released A100 kernels and this folder's own kernels on KernelBench tasks:

    KERNELBENCH_DIR=kernelbench.jsonl.gz python benchmarks/first_light.py \
        --cuda-l1 cuda_l1_a100.jsonl.gz --out benchmarks/results/first_light_h200.json
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
from rich.console import Console
from rich.progress import track
from rich.table import Table

import kernelgym_env
from kernelgym_env.devices import cuda_device_names
from kernelgym_env.evaluation.source import check_format

OWN = Path(__file__).parent / "first_light"

# of every kind: PyTorch only, CUDA graphs, torch.compile, extensions that build, extensions that do not, a syntax
# error, known hacks
ROWS = {
    1: (9, 12, 14, 20, 21, 22, 26, 31, 40, 53, 55, 61, 67, 87, 90, 95, 100, 88),
    2: (1, 3, 5, 9, 12, 14, 18, 24, 29, 39, 40, 44, 51, 66, 69, 75, 80, 83, 16, 78),
    3: (1, 4, 14, 20, 26, 31, 44),
}
"""Problems by level."""


def cuda_l1(path: Path, wanted: list[str]) -> list[dict[str, Any]]:
    """Rows of CUDA-L1's file by ``level-id``."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = {f"{row['level_id']}-{row['task_id']}": row for row in map(json.loads, file)}
    return [
        {
            "origin": "cuda-l1",
            "task": f"KernelBench/L{name.split('-')[0]}-{int(name.split('-')[1]):03d}",
            "source": str(rows[name]["custom_code"]),
            "claimed": rows[name]["score_default"],
        }
        for name in wanted
    ]


def own() -> list[dict[str, Any]]:
    """The kernels beside this file, named ``L<level>_<nnn>_<backend>.py``."""
    found = []
    for path in sorted(OWN.glob("L*_*_*.py")):
        level, number, backend = path.stem.split("_")
        task = f"KernelBench/{level}-{number}"
        found.append({"origin": f"own-{backend}", "task": task, "source": path.read_text(), "claimed": None})
    return found


def run(item: dict[str, Any], device: str) -> dict[str, Any]:
    """One submission through the environment."""
    start = time.perf_counter()
    env = gym.make(f"{item['task']}-v0", device=device, turns=1)
    env.reset(seed=0)
    made = time.perf_counter()
    _, reward, terminated, truncated, info = env.step(item["source"])
    wall = time.perf_counter() - made
    env.close()
    evaluation = info["evaluation"]
    return {
        "task": item["task"],
        "origin": item["origin"],
        "claimed": item["claimed"],
        "reward": reward,
        "terminated": terminated,
        "truncated": truncated,
        "make_s": made - start,
        "step_s": wall,
        "overhead_s": info["overhead_s"],
        **{
            key: evaluation[key] for key in ("status", "speedup", "speedup_low", "speedup_high", "error_ratio", "times")
        },
        "stages_s": evaluation["stages_s"],
        "fault": evaluation["fault"][-2000:],
        "feedback": evaluation["feedback"][:600],
        "provenance": evaluation["provenance"],
    }


def main() -> None:
    """Run everything, write the JSON, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cuda-l1", type=Path)
    parser.add_argument(
        "--rows", nargs="*", default=[f"{level}-{number}" for level, numbers in ROWS.items() for number in numbers]
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--budget", type=float, default=540.0, help="seconds after which nothing new is started")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    items = own() + (cuda_l1(arguments.cuda_l1, list(arguments.rows)) if arguments.cuda_l1 else [])
    # cheap ones first, so that a budget cuts extension builds
    items.sort(key=lambda item: "cpp_extension" in item["source"] and not check_format(item["source"]))
    start, results, skipped = time.perf_counter(), [], []
    console = Console(width=140)
    for item in track(items, console=console):
        if time.perf_counter() - start > arguments.budget:
            skipped.append({"task": item["task"], "origin": item["origin"]})
            continue
        result = run(item, arguments.device)
        results.append(result)
        speed = f"{result['speedup']:.3f} [{result['speedup_low']:.3f}, {result['speedup_high']:.3f}]"
        stages = {key: round(value, 2) for key, value in result["stages_s"].items() if value >= 0.005}
        console.print(f"{result['task']} {result['origin']} {result['status']} {speed} {stages}", highlight=False)
        if result["status"] != "correct":
            console.print(f"    {(result['feedback'] or result['fault'])[:300]!r}", highlight=False, markup=False)
        save(arguments.out, results, skipped)
    save(arguments.out, results, skipped)
    table = Table(title=f"{len(results)} submissions, {len(skipped)} not started")
    for column in ("status", "count", "median step s", "median overhead s"):
        table.add_column(column)
    for status in sorted({result["status"] for result in results}):
        group = [result for result in results if result["status"] == status]
        medians = [statistics.median(result[key] for result in group) for key in ("step_s", "overhead_s")]
        table.add_row(status, str(len(group)), *(f"{value:.2f}" for value in medians))
    console.print(table)


def save(path: Path, results: list[dict[str, Any]], skipped: list[dict[str, Any]]) -> None:
    """Write what there is so far."""
    path.parent.mkdir(parents=True, exist_ok=True)
    judged = [result for result in results if result["status"] not in ("format", "fault")]
    # provenance is the same for all but the backend, so it is kept once
    provenance = next((dict(r["provenance"]) for r in results if "versions" in r["provenance"]), {})
    provenance.pop("backend", None)
    document = {
        "benchmark": "first_light",
        "device": cuda_device_names()[:1] or ["cpu"],
        "package": kernelgym_env.__version__,
        "provenance": provenance,
        "summary": {
            "submissions": len(results),
            "not_started": len(skipped),
            "by_status": {s: sum(r["status"] == s for r in results) for s in sorted({r["status"] for r in results})},
            "overhead_s_median": statistics.median(r["overhead_s"] for r in judged) if judged else None,
            "overhead_s_max": max((r["overhead_s"] for r in judged), default=None),
        },
        "results": [{key: value for key, value in result.items() if key != "provenance"} for result in results],
        "not_started": skipped,
    }
    path.write_text(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
