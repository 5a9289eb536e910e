"""PPO of stable-baselines3 learns which schedule a kernel needs at which size.

    python examples/sb3_ppo.py --out results/sb3                  # C++ kernels on this CPU
    python examples/sb3_ppo.py --out results/sb3 --device cuda    # Triton kernels on a GPU

For each family (matrix products, row softmax) every configuration of a template is measured at several sizes; the
tables are kept. An agent sees the task as numbers and picks a configuration, one turn an episode, with the noise of a
measurement; its reward is the logarithm of the speedup over eager PyTorch. It is trained on some sizes and judged on
others, which it never saw, by the noiseless times:

- first pick: the most likely configuration of the trained policy, of the same policy before training, and the mean of
  all configurations (what a random pick gets), each as a share of the speed of the best one in the table;
- search: the best after 1 to 200 evaluations, drawn without repetition by the trained policy's probabilities, by the
  untrained one's, and at random.

Intervals are 95%, by a bootstrap over seeds. Results go to ``results.json`` and, with matplotlib, ``*.png`` in --out.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

FAMILIES = ("matmul", "softmax")
BUDGETS = (1, 10, 50, 200)
NOISE = 0.02
GROUND = {"matmul": "KernelGym/Matmul", "softmax": "KernelGym/RowSoftmax"}
NAMES = {"matmul": ("M", "N", "K"), "softmax": ("ROWS", "COLUMNS")}
TEMPLATES: dict[str, dict[str, tuple[str, dict[str, list[Any]]]]] = {
    "cpu": {"matmul": ("cpp/matmul", {}), "softmax": ("cpp/rows", {})},
    "cuda": {
        # without the split of long sums, which these sizes do not need, and with two depths of pipelines
        "matmul": ("triton/matmul", {"split": [1], "stages": [2, 4]}),
        "softmax": ("triton/rows", {}),
    },
}
SIZES: dict[str, dict[str, tuple[list[tuple[int, ...]], list[tuple[int, ...]]]]] = {
    "cpu": {
        "matmul": (
            [
                (16, 256, 256),
                (64, 64, 64),
                (256, 16, 256),
                (128, 128, 512),
                (256, 256, 64),
                (512, 512, 32),
                (8, 512, 512),
            ],
            [(32, 256, 512), (128, 128, 128), (384, 24, 256), (8, 1024, 256)],
        ),
        "softmax": (
            [(16, 4096), (64, 1024), (256, 256), (1024, 64), (4096, 16), (256, 1024), (8, 32768)],
            [(32, 2048), (512, 128), (2048, 32), (64, 8192)],
        ),
    },
    "cuda": {
        "matmul": (
            [
                (512, 512, 512),
                (1024, 1024, 1024),
                (2048, 2048, 512),
                (256, 2048, 2048),
                (64, 4096, 1024),
                (4096, 64, 1024),
                (512, 512, 4096),
            ],
            [(768, 768, 768), (128, 4096, 2048), (1536, 1536, 1024)],
        ),
        "softmax": (
            [(65536, 256), (16384, 1024), (4096, 4096), (1024, 16384), (256, 65536), (128, 131072)],
            [(32768, 512), (4096, 2048), (512, 32768)],
        ),
    },
}


def tasks_of(family: str, device: str) -> tuple[list[Any], list[Any]]:
    """The tasks to train on and the held-out ones."""
    from kernelgym_env.tasks import load_task
    from kernelgym_env.tuning import sized

    ground = load_task(GROUND[family])
    return tuple(  # type: ignore[return-value]
        [sized(ground, **dict(zip(NAMES[family], sizes, strict=True))) for sizes in part]
        for part in SIZES[device][family]
    )


def template_of(family: str, device: str) -> Any:
    from kernelgym_env.templates import get_template

    name, knobs = TEMPLATES[device][family]
    return get_template(name).restricted(**knobs)


def tables_of(family: str, device: str, cache: str, workers: int | None, say: Any) -> list[Any]:
    """A table for each size: all those that are trained on, then the held-out ones."""
    from kernelgym_env.tuning import measure_tables

    trained, held = tasks_of(family, device)
    options: dict[str, Any] = {"device": device, "cache": cache, "workers": workers}
    tables = measure_tables([*trained, *held], template_of(family, device), budget_ms=4.0, **options)
    for table in tables:
        say(
            f"{table.task_id}: {len(table.entries)} configurations timed in {table.seconds:.1f} s, best "
            f"{table.speedup(table.best):.3g}x, eager {table.eager_us:.1f} us"
        )
    return tables


def shares(table: Any) -> np.ndarray:
    """Speed of each configuration as a share of the best one's, 0 for one that fails."""
    speeds = np.array(table.speedups())
    return np.asarray(speeds / speeds.max())


def reward(evaluation: Any) -> float:
    """The logarithm of the speedup, with room for slow kernels; a failure is worse than any."""
    from kernelgym_env.rewards import log_speedup

    return log_speedup(evaluation, low=-8.0, high=8.0, failed=-9.0)


def train(family: str, device: str, paths: list[str], seed: int, steps: int) -> dict[str, Any]:
    """One seed: learn on the first sizes, look at the others."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import VecMonitor

    from kernelgym_env import pools
    from kernelgym_env.integrations.sb3 import KernelCallback, KernelVecEnv
    from kernelgym_env.pools.table import TablePool
    from kernelgym_env.tuning import Table

    torch.set_num_threads(1)  # small networks, and other seeds beside this one
    tables = [Table.load(path) for path in paths]
    trained, held = tasks_of(family, device)
    template = template_of(family, device)
    pools.register("measured", functools.partial(TablePool, tables, noise=NOISE, seed=seed))
    knobs = {name: list(values) for name, values in template.knobs.items()}
    options = {"knobs": knobs, "reward": reward, "pool": "measured", "device": device, "turns": 1}
    envs = VecMonitor(KernelVecEnv(16, template.name, task=trained, **options))
    model = PPO(
        "MlpPolicy",
        envs,
        n_steps=8,
        batch_size=64,
        n_epochs=10,
        learning_rate=1e-3,
        gamma=0.0,
        gae_lambda=1.0,
        ent_coef=0.02,
        seed=1000 * seed,  # an episode's seed is this one's and its place: those of two runs must not overlap
        device="cpu",
    )
    before = look(model, held, tables[len(trained) :], template, options, seed)

    class Curve(KernelCallback):
        def _on_rollout_end(self) -> None:
            rewards = [entry["r"] for entry in list(self.model.ep_info_buffer)[-128:]]
            curve.append((self.num_timesteps, float(np.mean(rewards))))
            super()._on_rollout_end()

    curve: list[tuple[int, float]] = []
    start = time.perf_counter()
    model.learn(steps, callback=Curve())
    seconds = time.perf_counter() - start
    after = look(model, held, tables[len(trained) :], template, options, seed)
    pools.close_all()
    return {"seed": seed, "seconds": round(seconds, 2), "curve": curve, "trained": after, "untrained": before}


def look(model: Any, held: list[Any], tables: list[Any], template: Any, options: dict[str, Any], seed: int) -> Any:
    """What a policy picks first at each held-out size, and the best that it finds with more evaluations."""
    import torch

    from kernelgym_env.integrations.sb3 import KernelVecEnv

    knobs = list(template.knobs.values())
    found = []
    for task, table in zip(held, tables, strict=True):
        envs = KernelVecEnv(1, template.name, task=task, **options)
        observation = envs.reset()
        picked, _ = model.predict(observation, deterministic=True)
        choices = {name: values[place] for (name, values), place in zip(template.knobs.items(), picked[0], strict=True)}
        entry = table.find(choices)
        share = shares(table)
        first = 0.0 if entry is None else float(share[table.entries.index(entry)])
        indices = np.array(
            [[values.index(one.choices[name]) for name, values in template.knobs.items()] for one in table.entries]
        )
        assert len(knobs) == indices.shape[1]
        with torch.no_grad():
            seen = torch.as_tensor(np.repeat(observation, len(indices), axis=0))
            _, logs, _ = model.policy.evaluate_actions(seen, torch.as_tensor(indices))
        draw = np.random.default_rng([seed, len(found)])
        order = np.argsort(-(logs.numpy() + draw.gumbel(size=len(indices))))  # a draw without repetition
        found.append({"task": task.id, "first": first, "best": best_so_far(share[order])})
        envs.close()
    return found


def best_so_far(values: np.ndarray) -> list[float]:
    """The greatest of the first 1, 2, … values, up to the last budget."""
    return [round(float(value), 5) for value in np.maximum.accumulate(values)[: BUDGETS[-1]]]


def random_search(tables: list[Any], seed: int) -> list[Any]:
    """The best of configurations that are drawn alike, without repetition."""
    draws = [np.random.default_rng([1000 + seed, place]) for place in range(len(tables))]
    return [
        {"task": table.task_id, "best": best_so_far(draw.permutation(shares(table)))}
        for table, draw in zip(tables, draws, strict=True)
    ]


def interval(values: list[float]) -> dict[str, float]:
    from kernelgym_env.metrics import bootstrap

    found = bootstrap(values, lambda some: float(np.mean(some)))
    return {"mean": round(found.value, 4), "low": round(found.low, 4), "high": round(found.high, 4)}


def summary(family: str, tables: list[Any], runs: list[Any], held: int) -> dict[str, Any]:
    """The figures of a family."""
    held_tables = tables[-held:]
    chance = float(np.mean([shares(table).mean() for table in held_tables]))
    arms: dict[str, list[Any]] = {
        "trained": [run["trained"] for run in runs],
        "untrained": [run["untrained"] for run in runs],
        "random": [random_search(held_tables, run["seed"]) for run in runs],
    }
    first = {
        name: [float(np.mean([one["first"] for one in run])) for run in arms[name]] for name in ("trained", "untrained")
    }
    search = {
        name: {
            str(budget): interval([float(np.mean([at(one["best"], budget) for one in run])) for run in found])
            for budget in BUDGETS
        }
        for name, found in arms.items()
    }
    return {
        "configurations": len(tables[0].entries),
        "tables": [
            {
                "task": table.task_id,
                "eager_us": round(table.eager_us, 2),
                "best_speedup": round(table.speedup(table.best), 4),
                "best": dict(table.best.choices),
                "median_speedup": round(float(np.median(table.speedups())), 4),
                "failed": sum(entry.status != "correct" for entry in table.entries),
                "seconds": table.seconds,
            }
            for table in tables
        ],
        "first_pick": {
            "trained": interval(first["trained"]),
            "untrained": interval(first["untrained"]),
            "random": round(chance, 4),
            "trained_minus_random": interval([value - chance for value in first["trained"]]),
            "trained_minus_untrained": interval(
                [one - two for one, two in zip(first["trained"], first["untrained"], strict=True)]
            ),
        },
        "search": search,
        "trained_minus_random_search": {
            str(budget): interval(
                [
                    float(
                        np.mean([at(a["best"], budget) - at(b["best"], budget) for a, b in zip(one, two, strict=True)])
                    )
                    for one, two in zip(arms["trained"], arms["random"], strict=True)
                ]
            )
            for budget in BUDGETS
        },
        "curves": {
            name: np.round(np.mean([[padded(one["best"]) for one in run] for run in found], axis=(0, 1)), 4).tolist()
            for name, found in arms.items()
        },
        "learning": [run["curve"] for run in runs],
        "train_seconds": [run["seconds"] for run in runs],
    }


def at(best: list[float], budget: int) -> float:
    """After that many evaluations; where there are fewer configurations, after all of them."""
    return best[min(budget, len(best)) - 1]


def padded(best: list[float]) -> list[float]:
    return best + [best[-1]] * (BUDGETS[-1] - len(best))


def plot(report: dict[str, Any], folder: Path) -> None:
    """Curves of learning and search, a picture a family."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        print("matplotlib is not installed: no pictures. Draw them later with --plot.")
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    for family, found in report["families"].items():
        figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
        for curve in found["learning"]:
            left.plot(*zip(*curve, strict=True), color="tab:blue", alpha=0.5)
        left.set(title=f"{family}: learning, a line a seed", xlabel="evaluations", ylabel="log2 of speedup over eager")
        for name, colour in (("trained", "tab:blue"), ("untrained", "tab:orange"), ("random", "tab:gray")):
            right.plot(range(1, BUDGETS[-1] + 1), found["curves"][name], label=name, color=colour)
        right.axhline(1.0, color="black", linewidth=0.8, linestyle=":")
        right.set(
            title="search at sizes not trained on",
            xlabel="evaluations",
            ylabel="share of the best in the table",
            xscale="log",
        )
        right.legend()
        figure.savefig(folder / f"sb3_{family}.png", dpi=110)
        plt.close(figure)


def judged(report: dict[str, Any], device: str, count: int) -> list[dict[str, Any]]:
    """What the judge says of the best configurations of the first tables: another clock, other inputs, a sandbox."""
    from kernelgym_env import score

    found = []
    for family, figures in report["families"].items():
        template = template_of(family, device)
        for task, entry in list(zip(sum(tasks_of(family, device), []), figures["tables"], strict=True))[-count:]:
            verdict = score(task, template.render(task, entry["best"]), device=device)
            found.append(
                {
                    "task": task.id,
                    "status": verdict.status.value,
                    "speedup": None if math.isnan(verdict.speedup) else round(verdict.speedup, 4),
                    "in_table": entry["best_speedup"],
                }
            )
            print(found[-1], flush=True)
    return found


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--out", required=True, help="folder for results.json and the pictures")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6144, help="evaluations that a seed learns from")
    parser.add_argument("--cache", default=None, help="folder of the tables (default: the package's cache)")
    parser.add_argument("--workers", type=int, default=None, help="processes (default: one a core)")
    parser.add_argument(
        "--judge", type=int, default=0, metavar="N", help="let the judge look at N best kernels a family"
    )
    parser.add_argument("--plot", action="store_true", help="only draw the pictures of results.json in --out")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    folder = Path(given.out)
    folder.mkdir(parents=True, exist_ok=True)
    if given.plot:
        plot(json.loads((folder / "results.json").read_text(encoding="utf-8")), folder)
        return
    workers = given.workers or len(os.sched_getaffinity(0))
    cache = given.cache or str(folder / "tables")
    started = time.perf_counter()

    def say(text: str) -> None:
        print(f"[{time.perf_counter() - started:6.1f} s] {text}", flush=True)

    report: dict[str, Any] = {"device": given.device, "seeds": given.seeds, "steps": given.steps, "noise": NOISE}
    tables = {family: tables_of(family, given.device, cache, given.workers, say) for family in given.families}
    say("every configuration is measured")
    report["table_seconds"] = round(time.perf_counter() - started, 1)
    jobs = []
    for family, found in tables.items():
        paths = []
        for place, table in enumerate(found):
            paths.append(str(folder / "tables" / f"{family}-{place}.json"))
            table.save(paths[-1])
        jobs += [(family, given.device, paths, seed, given.steps) for seed in range(given.seeds)]
    with ProcessPoolExecutor(min(workers, len(jobs)), mp_context=multiprocessing.get_context("spawn")) as executor:
        runs = list(executor.map(train, *zip(*jobs, strict=True)))
    report["families"] = {}
    for family, found in tables.items():
        mine = [run for run, job in zip(runs, jobs, strict=True) if job[0] == family]
        report["families"][family] = summary(family, found, mine, len(tasks_of(family, given.device)[1]))
        report["hardware"], report["versions"] = found[0].device, dict(found[0].versions)
    report["seconds"] = round(time.perf_counter() - started, 1)
    if given.judge:
        report["judged"] = judged(report, given.device, given.judge)
    (folder / "results.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    for family, found in report["families"].items():
        say(f"{family}: first pick, as a share of the best of {found['configurations']} configurations")
        for name, value in found["first_pick"].items():
            print(f"    {name:24} {value}")
        for name, budgets in found["search"].items():
            print(
                f"    best of a search, {name:10} " + ", ".join(f"{n}: {one['mean']:.3f}" for n, one in budgets.items())
            )
    plot(report, folder)


if __name__ == "__main__":
    main()
