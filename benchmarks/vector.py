"""How `KernelVectorEnv` scales: 1 to 1,000 episodes on the simulated pool, with the memory that they take.

    python benchmarks/vector.py --out benchmarks/results/vector_cpu.json

- Overhead: whole episodes of four turns with sources of 4 KB, each another one, on a pool that answers at once. Beside
  it gymnasium's `SyncVectorEnv` of the same environments. Each number of episodes has a process of its own, whose
  greatest resident memory is the figure.
- Waiting: eight episodes on a pool whose evaluations take 0.2 s, eight at a time.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from facts import facts
from rich.console import Console
from rich.table import Table

COUNTS = (1, 3, 10, 30, 100, 300, 1000)
TURNS = 4
TASK = "KernelGym/RowSoftmax"
LIMIT_MIB = 2048
LATENCY_S, LANES = 0.2, 8
LINE = "        x = torch.relu(x * 2.0 + 1.0) - x.sum(dim=-1, keepdim=True)\n"
BODY = f"class ModelNew:\n    def forward(self, x):\n{LINE * 55}        return x\n"
SCHEDULES = ("naive", "tiled", "vectorized", "fused")


def source_of(episode: int, turn: int) -> str:
    return f"# simulate: schedule={SCHEDULES[(episode + turn) % 4]} sample={episode}-{turn}\n{BODY}"


def make(way: str, count: int, pool: str) -> Any:
    import gymnasium as gym

    from kernelgym_env.env import KernelEnv
    from kernelgym_env.vector_env import KernelVectorEnv

    options: dict[str, Any] = {"task": TASK, "turns": TURNS, "pool": pool}
    if way == "KernelVectorEnv":
        return KernelVectorEnv(count, **options)
    return gym.vector.SyncVectorEnv([lambda: KernelEnv(**options)] * count)


def overhead(way: str, count: int, episodes: int) -> dict[str, Any]:
    start = time.perf_counter()
    envs = make(way, count, "simulated")
    made = time.perf_counter()
    envs.reset(seed=0)
    reset = time.perf_counter()
    steps, correct = [], 0
    for episode in range(episodes):
        for turn in range(TURNS):
            actions = [source_of(episode * count + place, turn) for place in range(count)]
            before = time.perf_counter()
            infos = envs.step(actions)[4]
            steps.append(time.perf_counter() - before)
            correct += int(infos["correct"].sum())
        envs.reset()
    return {
        "way": way,
        "episodes": count,
        "make_s": round(made - start, 4),
        "reset_s": round(reset - made, 4),
        "step_ms": round(1e3 * sorted(steps)[len(steps) // 2], 3),
        "step_ms_per_episode": round(1e3 * sorted(steps)[len(steps) // 2] / count, 4),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "correct": correct,
    }


def waiting(way: str) -> dict[str, Any]:
    from kernelgym_env import pools
    from kernelgym_env.pools.simulated import SimulatedConfig, SimulatedPool

    pools.register("slow", lambda: SimulatedPool(SimulatedConfig(latency_s=LATENCY_S, lanes=LANES)))
    envs = make(way, LANES, "slow")
    envs.reset(seed=0)
    start = time.perf_counter()
    for turn in range(TURNS):
        envs.step([source_of(place, turn) for place in range(LANES)])
    return {"way": way, "episodes": LANES, "step_s": round((time.perf_counter() - start) / TURNS, 3)}


def in_a_process(*arguments: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def show(document: dict[str, Any]) -> None:
    table = Table(title="whole episodes on the simulated pool")
    names = ("way", "episodes", "make_s", "reset_s", "step_ms", "step_ms_per_episode", "peak_mib")
    for name in names:
        table.add_column(name, justify="right")
    for row in document["overhead"]:
        table.add_row(*(str(row[name]) for name in names))
    Console().print(table)
    for row in document["waiting"]:
        Console().print(
            f"{row['way']}: a step of {row['episodes']} evaluations of {LATENCY_S} s takes {row['step_s']} s"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="How KernelVectorEnv scales.")
    parser.add_argument("--rounds", type=int, default=3, help="whole episodes in each place")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--part", nargs="+", help=argparse.SUPPRESS)  # one measurement, in a process of its own
    arguments = parser.parse_args()
    if arguments.part:
        kind, way, *count = arguments.part
        print(json.dumps(waiting(way) if kind == "waiting" else overhead(way, int(count[0]), arguments.rounds)))
        return
    if arguments.out is None:
        parser.error("--out is needed: the file for the results.")
    ways, rounds = ("KernelVectorEnv", "SyncVectorEnv"), ("--rounds", str(arguments.rounds))
    document = {
        "benchmark": "vector",
        "what": "episodes of 4 turns on the simulated pool; times are medians over steps, memory is of the process",
        "machine": facts(),
        "limit_mib": LIMIT_MIB,
        "overhead": [in_a_process(*rounds, "--part", "overhead", way, str(count)) for way in ways for count in COUNTS],
        "waiting": [in_a_process("--part", "waiting", way) for way in ways],
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    show(document)


if __name__ == "__main__":
    main()
