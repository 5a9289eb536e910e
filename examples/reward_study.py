"""Which published findings about rewards and credit hold on a simulated evaluator, and with what certainty?

A softmax table over kernel schedules is trained by policy gradient, with this package's rewards, advantages and
wrappers, against `kernelgym_env.pools.simulated`. Six studies, each with at least ten seeds; the intervals are
percentile bootstraps over seeds, and two arms are compared by the differences of runs with the same seed.

    python examples/reward_study.py            # minutes; writes benchmarks/results and docs/images
    python examples/reward_study.py --quick    # seconds; prints only

Needs matplotlib for the plots (extra `notebooks`). What was found: docs/reward_study.md.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from reward_study_worlds import RATE, RATES, STUDIES, Claim, Outcome, Size, Study
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
QUICK = Size(steps=4, group=8, seeds=2)
FULL = Size()
TUNING_SEEDS = range(1000, 1003)
RESAMPLES = 4000

Job = tuple[str, str, float, int, Size]


def run(job: Job) -> Outcome:
    """One run: (study, arm, learning rate, seed, size)."""
    name, arm, rate, seed, size = job
    study = STUDIES[name]
    options = dict(study.arms[arm])
    if study.tuned:
        options["rate"] = rate
    return study.run(seed, size, **options)


def interval(values: Any, seed: int = 0) -> tuple[float, float, float]:
    """Mean of `values` (one for each seed) with its 95% percentile-bootstrap interval."""
    data = np.asarray(values, dtype=float)
    picks = np.random.default_rng(seed).integers(0, len(data), (RESAMPLES, len(data)))
    low, high = np.quantile(data[picks].mean(axis=1), [0.025, 0.975])
    return float(data.mean()), float(low), float(high)


def play(jobs: list[Job], workers: int, console: Console, what: str) -> dict[Job, Outcome]:
    """Run all jobs, in processes where `workers` is above 1."""
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task(what, total=len(jobs))

        def count(outcomes: Iterable[Outcome]) -> list[Outcome]:
            found = []
            for outcome in outcomes:
                found.append(outcome)
                progress.advance(bar)
            return found

        if workers == 1:
            return dict(zip(jobs, count(map(run, jobs)), strict=True))
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as executor:
            return dict(zip(jobs, count(executor.map(run, jobs)), strict=True))


def choose_rates(
    names: list[str], size: Size, workers: int, console: Console, quick: bool
) -> dict[tuple[str, str], float]:
    """The learning rate of each arm: the best of `RATES` on seeds of its own, the same rule for every arm."""
    tuned = [(name, arm) for name in names if STUDIES[name].tuned for arm in STUDIES[name].arms]
    rates = dict.fromkeys(((name, arm) for name in names for arm in STUDIES[name].arms), RATE)
    if quick:
        return rates
    jobs = [(name, arm, rate, seed, size) for name, arm in tuned for rate in RATES for seed in TUNING_SEEDS]
    outcomes = play(jobs, workers, console, "learning rates")
    for name, arm in tuned:
        metric = STUDIES[name].claims[0].metric
        mean = {
            rate: np.mean([outcomes[name, arm, rate, seed, size].metrics[metric] for seed in TUNING_SEEDS])
            for rate in RATES
        }
        rates[name, arm] = max(RATES, key=mean.__getitem__)
    return rates


def verdict(claim: Claim, runs: Mapping[str, list[Outcome]]) -> dict[str, Any]:
    """Whether an ordering holds: the mean difference with its interval decides."""
    more, less = ([outcome.metrics[claim.metric] for outcome in runs[arm]] for arm in (claim.more, claim.less))
    mean, low, high = interval(np.subtract(more, less))
    said = "holds" if low > 0 else "reversed" if high < 0 else "not resolved"
    return {**vars(claim), "difference": mean, "low": low, "high": high, "verdict": said}


def summarise(study: Study, runs: Mapping[str, list[Outcome]], rates: Mapping[str, float]) -> dict[str, Any]:
    """Plain data of one study."""
    arms = {}
    for arm, outcomes in runs.items():
        curves = {}
        for name in study.curves:
            rows = np.array([outcome.curves[name] for outcome in outcomes])
            places = np.unique(np.linspace(0, rows.shape[1] - 1, 25).round().astype(int))
            points = [interval(rows[:, place]) for place in places]
            curves[name] = {
                "at": (places + 1).tolist(),
                **{key: [round(point[i], 5) for point in points] for i, key in enumerate(("mean", "low", "high"))},
            }
        metrics = {name: interval([outcome.metrics[name] for outcome in outcomes]) for name in outcomes[0].metrics}
        arms[arm] = {
            "rate": rates[arm],
            "metrics": {name: [round(value, 5) for value in found] for name, found in metrics.items()},
            "curves": curves,
        }
    claims = [verdict(claim, runs) for claim in study.claims]
    rounded = [{k: round(v, 5) if isinstance(v, float) else v for k, v in claim.items()} for claim in claims]
    about = {"question": study.question, "axis": study.axis, "curves": list(study.curves)}
    return {**about, "arms": arms, "claims": rounded}


def show(name: str, found: Mapping[str, Any], console: Console) -> None:
    """Print one study."""
    metrics = list(next(iter(found["arms"].values()))["metrics"])
    table = Table("arm", *metrics, title=f"{name}: {found['question']}", title_justify="left")
    for arm, entry in found["arms"].items():
        cells = ("{:.2f} [{:.2f}, {:.2f}]".format(*entry["metrics"][metric]) for metric in metrics)
        table.add_row(arm, *cells)
    console.print(table)
    table = Table("published ordering", "source", "difference", "95% interval", "here")
    for claim in found["claims"]:
        bounds = f"{claim['low']:+.3f} to {claim['high']:+.3f}"
        table.add_row(claim["text"], claim["source"], f"{claim['difference']:+.3f}", bounds, claim["verdict"])
    console.print(table)


def main() -> None:
    """Run the studies and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few updates and two seeds: shows that everything runs")
    parser.add_argument("--studies", nargs="+", choices=list(STUDIES), default=list(STUDIES))
    parser.add_argument("--seeds", type=int, help=f"number of seeds, default {FULL.seeds}")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--results", type=Path, help="JSON file, default benchmarks/results/reward_study.json")
    parser.add_argument("--images", type=Path, help="folder for the plots, default docs/images")
    arguments = parser.parse_args()
    quick = arguments.quick
    size = QUICK if quick else FULL
    if arguments.seeds is not None:
        size = Size(size.steps, size.group, arguments.seeds)
    if size.seeds < 1 or arguments.workers < 1:
        parser.error("--seeds and --workers must be at least 1")
    results = arguments.results or (None if quick else ROOT / "benchmarks" / "results" / "reward_study.json")
    images = arguments.images or (None if quick else ROOT / "docs" / "images")
    console, began = Console(), time.perf_counter()

    rates = choose_rates(arguments.studies, size, arguments.workers, console, quick)
    jobs = [
        (name, arm, rates[name, arm], seed, size)
        for name in arguments.studies
        for arm in STUDIES[name].arms
        for seed in range(size.seeds)
    ]
    outcomes = play(jobs, arguments.workers, console, "runs")
    report: dict[str, Any] = {"schema": 1, "size": vars(size), "quick": quick, "studies": {}}
    for name in arguments.studies:
        study = STUDIES[name]
        runs = {
            arm: [outcomes[name, arm, rates[name, arm], seed, size] for seed in range(size.seeds)] for arm in study.arms
        }
        report["studies"][name] = summarise(study, runs, {arm: rates[name, arm] for arm in study.arms})
        show(name, report["studies"][name], console)
    if results is not None:
        results.parent.mkdir(parents=True, exist_ok=True)
        results.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        console.print(f"Wrote {results}.")
    if images is not None:
        from reward_study_plots import plot

        for path in plot(report["studies"], images):
            console.print(f"Wrote {path}.")
    console.print(f"{len(jobs)} runs in {time.perf_counter() - began:.0f} s.")


if __name__ == "__main__":
    main()
