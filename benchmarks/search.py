"""Searches at equal budgets: best-of-n, refinement, beam, STTS and islands, 128 evaluations each.

    python benchmarks/search.py --out benchmarks/results/search_cpu.json --images docs/images

Two policies, neither of them a model:

- simulated: `SimulatedPolicy` on tasks with 1,920 schedules of five knobs, drawn for each seed: every knob has a best
  value, two of them depend on each other, and schedules fail now and then. It needs no clock.
- template: `TemplatePolicy` on matrix products in C++, answered out of tables that are measured here first (216
  configurations at four sizes), with the noise of a measurement.

What counts is the true speed of the kernel that a search would hand over, the one with the greatest measured speedup,
as a share of the best there is. Intervals are 95%, by a bootstrap over seeds and tasks.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import random
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table as RichTable

sys.path.insert(0, str(Path(__file__).resolve().parent))  # `facts`, also in the processes that are started

from facts import facts  # noqa: E402

EVALUATIONS = 128
MARKS = (8, 16, 32, 64, 128)
ARMS: dict[str, tuple[str, dict[str, int]]] = {
    "best of 128 (128x1)": ("best_of_n", {"n": 128}),
    "refine 32x4": ("refine", {"trajectories": 32, "turns": 4}),
    "refine 16x8": ("refine", {"trajectories": 16, "turns": 8}),
    "refine 1x128": ("refine", {"trajectories": 1, "turns": 128}),
    "beam 16x4, keep 4, 2 rounds": ("beam", {"width": 16, "turns": 4, "keep": 4, "rounds": 2}),
    "stts 8 chains of 16": ("stts", {"turns": 5, "keep": 4, "iterations": 12, "chains": 8}),
    "islands 4x32": ("islands", {"count": 4, "generations": 32}),
}
TASKS = ("KernelGym/RowSum", "KernelGym/RowSoftmax", "KernelGym/Matmul", "KernelGym/LayerNorm")
KNOBS = {
    "block": (16, 32, 64, 128, 256, 512),
    "warps": (1, 2, 4, 8, 16),
    "stages": (1, 2, 3, 4),
    "vector": (1, 2, 4, 8),
    "unroll": (1, 2, 4, 8),
}
SHAPES = ((32, 256, 512), (128, 128, 128), (384, 24, 256), (8, 1024, 256))
NOISE = 0.03
WORLDS = ("simulated", "template")


def world(seed: int, task_id: str) -> Any:
    """A simulated task with an optimum somewhere and two knobs that depend on each other."""
    from kernelgym_env.pools.simulated_tasks import SimulatedSchedule, SimulatedTask, schedule_key

    draw = random.Random(f"{seed}/{task_id}")
    best = {name: draw.uniform(0, len(values) - 1) for name, values in KNOBS.items()}
    steep = {name: draw.uniform(0.03, 0.3) for name in KNOBS}
    tied, eager, top = draw.uniform(-0.15, 0.15), 1000.0, draw.uniform(2.0, 12.0)
    schedules = {}
    for places in np.ndindex(*(len(values) for values in KNOBS.values())):
        away = {name: place - best[name] for name, place in zip(KNOBS, places, strict=True)}
        loss = sum(steep[name] * away[name] ** 2 for name in KNOBS) + tied * away["block"] * away["warps"]
        chosen = {name: values[place] for (name, values), place in zip(KNOBS.items(), places, strict=True)}
        fails = 0.1 + 0.4 * (draw.random() < 0.1)
        schedules[schedule_key("", chosen)] = SimulatedSchedule(
            eager / (top * math.exp(-max(loss, 0.0))), 1.0, {"compile_error": fails / 2, "wrong": fails / 2}
        )
    return SimulatedTask(eager, schedules=schedules, noise=NOISE)


def shares_of(result: Any, speeds: dict[str, float], key: Any) -> list[float]:
    """After 1, 2, … evaluations: the true speed of the kernel with the greatest measured one, of the best's."""
    top = max(speeds.values())
    found, seen, mine = [], 0.0, 0.0
    for trial in result.trials:
        if trial.speed > seen:
            seen, mine = trial.speed, speeds[key(trial.action)]
        found.append(mine / top)
    return found


def simulated(seed: int, task_id: str) -> dict[str, list[float]]:
    from kernelgym_env import pools
    from kernelgym_env.policies.simulated import SimulatedPolicy
    from kernelgym_env.pools.simulated import SimulatedConfig, SimulatedPool
    from kernelgym_env.pools.simulated_tasks import schedule_key
    from kernelgym_env.search import run_method

    task = world(seed, task_id)
    speeds = {name: task.eager_us / entry.latency_us for name, entry in task.schedules.items()}

    def key(action: str) -> str:
        pairs = dict(part.split("=") for part in action.splitlines()[0].removeprefix("# simulate: ").split())
        return schedule_key("", {name: pairs[name] for name in KNOBS})

    found = {}
    for arm, (method, options) in ARMS.items():
        pools.register("searched", lambda: SimulatedPool(SimulatedConfig({task_id: task}), seed))
        result = run_method(method, task_id, SimulatedPolicy(KNOBS), pool="searched", seed=seed, **options)
        found[arm] = shares_of(result, speeds, key)
    pools.close_all()
    return found


def measured(cache: str) -> list[Any]:
    """The tables of the template's world."""
    from kernelgym_env.tasks import load_task
    from kernelgym_env.tuning import measure_table, sized

    ground = load_task("KernelGym/Matmul")
    tasks = [sized(ground, M=m, N=n, K=k) for m, n, k in SHAPES]
    return [measure_table(task, "cpp/matmul", device="cpu", cache=cache) for task in tasks]


def template(seed: int, place: int, path: str) -> dict[str, list[float]]:
    from kernelgym_env import pools
    from kernelgym_env.policies.template import TemplatePolicy, read_choices
    from kernelgym_env.pools.table import TablePool
    from kernelgym_env.search import run_method
    from kernelgym_env.tasks import load_task
    from kernelgym_env.tuning import Table, sized

    table = Table.load(path)
    m, n, k = SHAPES[place]
    task = sized(load_task("KernelGym/Matmul"), M=m, N=n, K=k)
    speeds = {json.dumps(dict(entry.choices)): table.speedup(entry) for entry in table.entries}

    def key(action: str) -> str:
        choices = read_choices(action)
        return json.dumps({name: choices[name] for name in table.entries[0].choices})

    found = {}
    for arm, (method, options) in ARMS.items():
        pools.register("searched", lambda: TablePool([table], noise=NOISE, seed=seed))
        policy = TemplatePolicy("cpp")
        result = run_method(method, task, policy, pool="searched", device="cpu", seed=seed, **options)
        found[arm] = shares_of(result, speeds, key)
    pools.close_all()
    return found


def interval(values: list[float]) -> list[float]:
    from kernelgym_env.metrics import bootstrap

    return [round(value, 4) for value in bootstrap(values, lambda some: float(np.mean(some)))]


def summary(runs: list[dict[str, list[float]]]) -> dict[str, Any]:
    """Each arm's share at the marks, its difference to best-of-n, and its mean curve."""
    arms: dict[str, Any] = {}
    base = next(iter(ARMS))
    for arm in ARMS:
        curves = np.array([run[arm] for run in runs])
        ground = np.array([run[base] for run in runs])
        assert curves.shape[1] == EVALUATIONS
        arms[arm] = {
            "share": {str(mark): interval(curves[:, mark - 1].tolist()) for mark in MARKS},
            "over_best_of_n": {
                str(mark): interval((curves[:, mark - 1] - ground[:, mark - 1]).tolist()) for mark in MARKS
            },
            "curve": np.round(curves.mean(axis=0), 4).tolist(),
        }
    return arms


def draw(report: dict[str, Any], file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(WORLDS), figsize=(11, 4), layout="constrained", sharey=True)
    for panel, name in zip(panels, WORLDS, strict=True):
        for arm, found in report["worlds"][name].items():
            panel.plot(range(1, EVALUATIONS + 1), found["curve"], label=arm)
        panel.set(title=f"{name} policy", xlabel="evaluations", xscale="log")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("speed, as a share of the best")
    panels[-1].legend(fontsize=8)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--out", required=True, help="file for the figures, JSON")
    parser.add_argument("--images", default=None, help="folder for search.png (needs matplotlib)")
    parser.add_argument("--seeds", type=int, default=12, help="of each world; each has four tasks")
    parser.add_argument("--workers", type=int, default=None, help="processes (default: one a core)")
    parser.add_argument("--worlds", nargs="+", choices=WORLDS, default=list(WORLDS))
    given = parser.parse_args()
    out, started = Path(given.out), time.perf_counter()
    out.parent.mkdir(parents=True, exist_ok=True)
    report: dict[str, Any] = {
        "facts": facts(),
        "evaluations": EVALUATIONS,
        "seeds": given.seeds,
        "noise": NOISE,
        "arms": {arm: {"method": method, **options} for arm, (method, options) in ARMS.items()},
        "worlds": {},
    }
    workers = given.workers or len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as executor:
        if "simulated" in given.worlds:
            jobs = [(seed, task) for seed in range(given.seeds) for task in TASKS]
            report["worlds"]["simulated"] = summary(list(executor.map(simulated, *zip(*jobs, strict=True))))
        if "template" in given.worlds:
            from kernelgym_env import settings

            folder = settings.cache_dir() / "tables"
            tables = measured(str(folder))
            paths = []
            for place, table in enumerate(tables):
                paths.append(str(folder / f"search-{place}.json"))
                table.save(paths[-1])
            report["tables"] = [
                {
                    "task": table.task_id,
                    "configurations": len(table.entries),
                    "best_speedup": round(table.speedup(table.best), 4),
                    "mean_share": round(float(np.mean(table.speedups()) / max(table.speedups())), 4),
                }
                for table in tables
            ]
            again = [(seed, place, paths[place]) for seed in range(given.seeds) for place in range(len(SHAPES))]
            report["worlds"]["template"] = summary(list(executor.map(template, *zip(*again, strict=True))))
    report["seconds"] = round(time.perf_counter() - started, 1)
    out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    for name, arms in report["worlds"].items():
        shown = RichTable(title=f"{name}: true speed of what is handed over, as a share of the best", box=None)
        for column in ("search", *(f"after {mark}" for mark in MARKS), "at the end, over best of n"):
            shown.add_column(column)
        for arm, found in arms.items():
            cells = [f"{mean:.3f} [{low:.3f}, {high:.3f}]" for mean, low, high in found["share"].values()]
            mean, low, high = found["over_best_of_n"][str(EVALUATIONS)]
            shown.add_row(arm, *cells, f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]")
        Console(width=180).print(shown)
    print(f"{report['seconds']} s")
    if given.images:
        draw(report, Path(given.images) / "search.png")


if __name__ == "__main__":
    main()
