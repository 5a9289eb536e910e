"""What a step costs beside the evaluation: the fake pool, which answers at once, in place of a judge.

    python benchmarks/overhead.py --out benchmarks/results/overhead_cpu.json

- How the environment is made: the bare class, `gym.make` with gymnasium's checks around it, a vector of them.
- How large a submission is: the format stage parses it, and its cost grows with the length. `format` is that stage's
  own share, which an evaluation needs in any case; what is above it is the environment's.

Each figure is the median over repeats of the mean over the steps of an episode, in milliseconds of the clock; the least
of them, which other work on the machine disturbs the least, stands beside it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
from facts import facts
from rich.console import Console
from rich.table import Table

from kernelgym_env.env import KernelEnv
from kernelgym_env.evaluation.source import check_format
from kernelgym_env.vector_env import KernelVectorEnv

TARGET_MS = 0.2
TURNS = 16
EPISODES = 16
NUMBERS = itertools.count()
TASK = {"task": "KernelGym/RowSoftmax", "pool": "fake", "turns": TURNS}
HEAD = "# fake: speedup=1.5\nimport torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
LINE = "        x = torch.relu(x * 2.0 + 1.0) - x.sum(dim=-1, keepdim=True)\n"
SIZES = {"least": "# fake: speedup=1.5\nclass ModelNew: ...\n", "0.5 KB": 5, "4 KB": 55, "16 KB": 235}


def source_of(size: str | int) -> str:
    return size if isinstance(size, str) else HEAD + LINE * size + "        return x\n"


def different(source: str) -> list[str]:
    """A source for each turn, no two alike, since what was said of a text is remembered."""
    return [f"{source}# {next(NUMBERS)}\n" for _ in range(TURNS)]


def one_step(env: gym.Env[Any, Any], source: str) -> float:
    """Seconds of a step, the mean over an episode."""
    env.reset(seed=0)
    sources = different(source)
    start = time.perf_counter()
    for one in sources:
        env.step(one)
    return (time.perf_counter() - start) / TURNS


def one_step_of_many(envs: KernelVectorEnv, source: str) -> float:
    """The same for each episode of a vector."""
    envs.reset(seed=0)
    sources = list(zip(*(different(source) for _ in range(envs.num_envs)), strict=True))
    start = time.perf_counter()
    for ones in sources:
        envs.step(ones)
    return (time.perf_counter() - start) / TURNS / envs.num_envs


def format_alone(source: str) -> float:
    sources = different(source)
    start = time.perf_counter()
    for one in sources:
        check_format(one)
    return (time.perf_counter() - start) / TURNS


def measured(once: Callable[[], float], repeats: int) -> dict[str, float]:
    once()  # templates, tasks and imports are loaded on first use
    times = [1e3 * once() for _ in range(repeats)]
    return {"median_ms": round(statistics.median(times), 4), "least_ms": round(min(times), 4)}


def rows(repeats: int) -> list[dict[str, Any]]:
    bare, made = KernelEnv(**TASK), gym.make("KernelGym/RowSoftmax-v0", pool="fake", turns=TURNS)
    many = KernelVectorEnv(EPISODES, **TASK)
    found = []
    for name, size in SIZES.items():
        source = source_of(size)
        ways: dict[str, Callable[[], float]] = {
            "format": lambda source=source: format_alone(source),
            "KernelEnv": lambda source=source: one_step(bare, source),
            "gym.make": lambda source=source: one_step(made, source),
            f"KernelVectorEnv of {EPISODES}": lambda source=source: one_step_of_many(many, source),
        }
        for way, once in ways.items():
            found.append({"source": name, "characters": len(source), "way": way, **measured(once, repeats)})
    return found


def show(document: dict[str, Any]) -> None:
    table = Table(title=f"milliseconds a step, median (least); the target is {TARGET_MS} for the environment")
    ways = list(dict.fromkeys(row["way"] for row in document["rows"]))
    for name in ("source", *ways):
        table.add_column(name, justify="right")
    for size in SIZES:
        cells = [row for row in document["rows"] if row["source"] == size]
        table.add_row(size, *(f"{row['median_ms']:.3f} ({row['least_ms']:.3f})" for row in cells))
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description="What a step costs beside the evaluation.")
    parser.add_argument("--repeats", type=int, default=20, help="episodes of each kind")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    document = {
        "benchmark": "overhead",
        "what": "a step on the fake pool, mean over an episode, milliseconds; format is the format stage alone",
        "machine": facts(),
        "turns": TURNS,
        "repeats": arguments.repeats,
        "target_ms": TARGET_MS,
        "rows": rows(arguments.repeats),
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    show(document)


if __name__ == "__main__":
    main()
