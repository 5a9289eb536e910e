"""How long extensions take to build: torch alone against this package, for the first time and again.

    python benchmarks/build.py --out benchmarks/results/build_cpu.json
    python benchmarks/build.py --device cuda:0 --kernels cuda_l1_a100.jsonl.gz --out benchmarks/results/build_h200.json

Each source is judged three times, by the judge and in its sandbox: with ``KERNELGYM_FAST_BUILDS=0``, and twice without,
with a cache that is empty but for precompiled headers. The time is the evaluation's stage ``build``: importing the
source with all that it builds, so linking and loading count too. Headers are precompiled once on a machine; those
seconds (``prepared_s``) are shown apart. The verdicts of all three must be the same.

What the file of results already holds is not measured again, so a run that was cut short goes on where it ended.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from build_sources import TASK, sources
from facts import facts
from rich.console import Console
from rich.table import Table

from kernelgym_env.evaluation.protocols import get_protocol
from kernelgym_env.evaluation.result import Evaluation, Status
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.keeping import write_whole
from kernelgym_env.pools.local import LocalPool
from kernelgym_env.tasks.model import Task

PROTOCOL = get_protocol("strict").replace(min_blocks=2, max_blocks=2, budget_s=0.05, baselines=())
SWITCH, CACHE = "KERNELGYM_FAST_BUILDS", "KERNELGYM_CACHE_DIR"


def published(path: Path) -> Iterator[tuple[str, str]]:
    """CUDA-L1's kernels that are built by `load_inline`."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            if "load_inline" in (row["custom_code"] or ""):
                yield f"CUDA-L1: {row['level_id']}-{row['task_id']}", with_entry(row["custom_code"])


def with_entry(source: str) -> str:
    """A published source whose class may have the reference's name; what it computes is no matter here."""
    return source if "class ModelNew" in source else source + "\n\nModelNew = Model\n"


class Side:
    """One way to build: a pool of its own.

    Args:
        fast: whether the judge compiles.
        device: as for `Submission`.
        cache: the folder for its caches.
    """

    def __init__(self, fast: bool, device: str, cache: Path) -> None:
        os.environ[SWITCH], os.environ[CACHE] = str(int(fast)), str(cache)
        self.pool = LocalPool(threads=1)
        self.device = device
        self.judge(next(iter(sources("cpu").values())).replace("ext = ", "ext = None and "))  # the judge is up now

    def judge(self, source: str) -> Evaluation:
        submission = Submission(Task(id="Benchmark/Add", source=TASK), source, device=self.device, protocol=PROTOCOL)
        return self.pool.submit(submission).result()


def told(evaluation: Evaluation) -> dict[str, Any]:
    builds = evaluation.provenance.get("builds") or {}
    prepared = builds.get("prepared_s", 0.0)
    return {
        "status": evaluation.status.value,
        "build_s": round(evaluation.stages_s.get("build", 0.0) - prepared, 3),
        "prepared_s": prepared,
        "units": builds.get("units", []),
        "fallbacks": builds.get("fallbacks", 0),
        "declined": builds.get("declined", []),
        "feedback": evaluation.feedback[:2000] if evaluation.status is not Status.CORRECT else "",
    }


def measure(source: str, stock: Side, ours: Side) -> dict[str, Any]:
    row = {name: told(side.judge(source)) for name, side in (("stock", stock), ("cold", ours), ("cached", ours))}
    compiled = {one["status"] != Status.COMPILE_ERROR.value for one in row.values()}
    return {**row, "same": len(compiled) == 1 and len({one["status"] for one in row.values()}) == 1}


def summary(rows: dict[str, Any]) -> dict[str, Any]:
    """Medians over the sources that compile, and over those that do not."""
    found: dict[str, Any] = {"sources": len(rows), "same_verdicts": sum(row["same"] for row in rows.values())}
    for name, wanted in (("compile", True), ("fail", False)):
        some = [row for row in rows.values() if (row["stock"]["status"] != Status.COMPILE_ERROR.value) is wanted]
        some = [row for row in some if row["stock"]["build_s"] > 1.0]  # others build nothing
        if some:
            ratios = [row["stock"]["build_s"] / max(row["cold"]["build_s"], 1e-3) for row in some]
            again = [row["stock"]["build_s"] / max(row["cached"]["build_s"], 1e-3) for row in some]
            found[name] = {
                "sources": len(some),
                **{
                    f"{way}_s": statistics.median(row[way]["build_s"] for row in some)
                    for way in ("stock", "cold", "cached")
                },
                "cold_times_faster": round(statistics.median(ratios), 2),
                "cold_times_faster_least": round(min(ratios), 2),
                "cached_times_faster": round(statistics.median(again), 2),
                "fallbacks": sum(row["cold"]["fallbacks"] for row in some),
            }
    found["prepared_s"] = round(sum(row["cold"]["prepared_s"] for row in rows.values()), 1)
    return found


def show(console: Console, rows: dict[str, Any]) -> None:
    table = Table("source", "verdict", "stock s", "cold s", "cached s", "faster", "how")
    for name, row in rows.items():
        stock, cold, cached = (row[way]["build_s"] for way in ("stock", "cold", "cached"))
        how = ", ".join(unit["how"] for unit in row["cold"]["units"]) or ", ".join(row["cold"]["declined"])
        verdict = row["stock"]["status"] if row["same"] else "[bold red]differs"
        table.add_row(
            name, verdict, *(f"{s:.2f}" for s in (stock, cold, cached)), f"{stock / max(cold, 1e-3):.1f}", how
        )
    console.print(table)


def plot(path: Path, rows: dict[str, Any]) -> None:
    """Seconds of the three ways for each source."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 0.28 * len(rows) + 1.2))
    for way, mark in (("stock", "o"), ("cold", "s"), ("cached", "^")):
        axes.plot([max(row[way]["build_s"], 0.01) for row in rows.values()], list(rows), mark, label=way)
    axes.set_xscale("log")
    axes.set_xlabel("seconds to build")
    axes.legend()
    figure.savefig(path, bbox_inches="tight", dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="results as JSON, continued if it is there")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--kernels", type=Path, help="cuda_l1_*.jsonl.gz")
    parser.add_argument("--limit", type=int, help="at most so many sources in all")
    parser.add_argument("--part", default="1/1", metavar="K/N", help="only every Nth source, from the Kth on")
    parser.add_argument("--budget", type=float, default=float("inf"), help="begin no source after so many seconds")
    parser.add_argument("--cache", type=Path, help="where precompiled headers are kept between runs")
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    console = Console()
    start = time.monotonic()
    wanted = dict(sources("cpu"))
    if arguments.device != "cpu":
        wanted = sources("cuda")
        wanted |= dict(published(arguments.kernels)) if arguments.kernels else {}
    part, parts = map(int, arguments.part.split("/"))
    wanted = dict(list(wanted.items())[: arguments.limit][part - 1 :: parts])
    rows: dict[str, Any] = {}
    if arguments.out.exists():
        rows = json.loads(arguments.out.read_text(encoding="utf-8"))["rows"]
    with tempfile.TemporaryDirectory() as folder:
        cache = arguments.cache or Path(folder)
        stock = ours = None
        for name, source in wanted.items():
            if name in rows or time.monotonic() - start > arguments.budget:
                continue
            if stock is None or ours is None:
                shutil.rmtree(cache / "builds" / "objects", ignore_errors=True)  # the first build is to be one
                stock, ours = Side(False, arguments.device, Path(folder)), Side(True, arguments.device, cache)
            marked = source + f"\n# {time.time_ns()}\n"
            rows[name] = measure(marked, stock, ours)
            write_whole(
                arguments.out, json.dumps({"facts": facts(), "summary": summary(rows), "rows": rows}, indent=1) + "\n"
            )
            console.print(
                name, {way: rows[name][way]["build_s"] for way in ("stock", "cold", "cached")}, rows[name]["same"]
            )
        for side in (stock, ours):
            if side is not None:
                side.pool.close()
    show(console, rows)
    console.print(summary(rows))
    if arguments.plot:
        plot(arguments.plot, rows)


if __name__ == "__main__":
    main()
