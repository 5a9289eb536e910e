"""Measuring a template's configurations in this process.

- `measure_table`, `measure_tables` -- all of them on a task or some, from cached files where there are any.
- `sized` -- a task at other sizes, under an id of its own.

The source is rendered here from this package's templates; there is no way to hand in another one.
"""

from __future__ import annotations

import dataclasses
import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kernelgym_env import devices, settings
from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.evaluation.result import Status
from kernelgym_env.keeping import digest
from kernelgym_env.pools.software import software
from kernelgym_env.tasks.model import Task
from kernelgym_env.templates.library import Template, get_template
from kernelgym_env.tuning.running import Built, Problem, build
from kernelgym_env.tuning.table import SCHEMA, Entry, Table
from kernelgym_env.tuning.warming import warm

__all__ = ["measure_table", "measure_tables", "sized"]

_TOLERANCE = 4.0
"""Error of a configuration, in errors of the reference in its own precision, both against float64."""

_SLACK = 2e-6
"""The same, added to it, as a share of the output's root mean square: sums in another order."""


def sized(task: Task, **sizes: int) -> Task:
    """The task at other sizes, with them in its id: two sizes of a task are two tasks to a table.

    Args:
        task: a task.
        sizes: constants of its source.

    Raises:
        InvalidOptionError: for a name that is no constant of it.

    >>> from kernelgym_env.tasks import load_task
    >>> sized(load_task("KernelGym/RowSoftmax"), ROWS=64, COLUMNS=100).id
    'KernelGym/RowSoftmax:ROWS64:COLUMNS100'
    """
    suffix = "".join(f":{name}{value}" for name, value in sizes.items())
    return dataclasses.replace(task.with_sizes(sizes), id=f"{task.id}{suffix}")


def measure_table(task: Task, template: Template | str, **options: Any) -> Table:
    """The time of each configuration of a template on a task; `measure_tables` explains the options and errors."""
    return measure_tables([task], template, **options)[0]


def measure_tables(
    tasks: Sequence[Task],
    template: Template | str,
    *,
    device: str = "auto",
    configurations: Sequence[Mapping[str, Any]] | None = None,
    workers: int | None = None,
    budget_ms: float = 10.0,
    cache: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Table]:
    """The time of each configuration of a template on some tasks.

    Each is built, its output compared with the reference's in float64, and timed: the median of some calls, on a GPU by
    events with the second-level cache flushed before each. This is quicker than a pool's verdict and less careful:
    nothing guards against a submission that cheats, as none can come here. The interval of a time is not known, its
    spread is.

    Args:
        tasks: sized for the device.
        template: a template that fits them, or its name.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:<index>``.
        configurations: those to measure; None for all.
        workers: threads (C++) or processes (Triton, on a GPU) that compile; None for one a core.
        budget_ms: how long each may be timed, about.
        cache: a folder of tables; None for the package's. A table of the same task, template, configurations, device
            and versions is read and not measured.
        progress: called with the number of configurations that are done on a task, and of all.

    Returns:
        A table for each task, in order.

    Raises:
        InvalidOptionError: if the template does not fit a task, the device is not there, or the template cannot run
            on it; if a reference fails.
    """
    template = get_template(template) if isinstance(template, str) else template
    kind = devices.device_kind(device) if device == "auto" else device.partition(":")[0]
    device = devices.resolve_device(device if device != "auto" else kind)
    for task in tasks:
        template.check_fit(task)
    if (template.backend == "cpp") != (kind == "cpu"):
        raise InvalidOptionError(f"{template.name} cannot be timed on {device}; C++ runs on a cpu, the others on cuda.")
    chosen = [template.check(one) for one in (configurations or list(template.configurations()))]
    versions = {name: software()[name] for name in ("kernelgym_env", "python", "torch", "triton", "g++")}
    name = devices.cuda_device_names()[int(device.partition(":")[2] or 0)] if kind == "cuda" else devices.cpu_name()
    folder = settings.cache_dir() / "tables" if cache is None else Path(cache)
    jobs = []
    for task in tasks:
        # the sources stand for the templates: a changed template is another table
        sources = [template.render(task, choices) for choices in chosen]
        key = digest({"task": task.hash, "sources": sources, "device": name, "versions": versions, "schema": SCHEMA})
        stem = f"{task.id.replace('/', '-').replace(':', '-')}-{template.backend}-{template.kind}"
        jobs.append((task, sources, folder / f"{stem}-{key[:16]}.json"))
    workers = workers or len(os.sched_getaffinity(0))
    fresh = [(task, sources) for task, sources, path in jobs if not path.exists()]
    if template.backend == "triton":
        warm([(task.source, source) for task, sources in fresh for source in sources], device, workers)
    with ThreadPoolExecutor(workers if template.backend == "cpp" else 1) as threads:
        # all of them first: a compiler beside it would spoil the times
        list(threads.map(build, dict.fromkeys(source for _, sources in fresh for source in sources)))
    tables = []
    for task, sources, path in jobs:
        if path.exists():
            tables.append(Table.load(path))
            continue
        started = time.perf_counter()
        problem, entries = Problem(task, device), []
        with problem.alone():
            for done, (choices, source) in enumerate(zip(chosen, sources, strict=True), start=1):
                entries.append(_entry(problem, choices, build(source), budget_ms / 1e3))
                if progress is not None:
                    progress(done, len(chosen))
        seconds = round(time.perf_counter() - started, 3)
        eager_us = problem.eager_us
        tables.append(Table(task.id, task.hash, template.name, eager_us, tuple(entries), name, versions, seconds))
        tables[-1].save(path)
    return tables


def _entry(problem: Problem, choices: Mapping[str, Any], built: Built, budget_s: float) -> Entry:
    if built.module is None:
        return Entry(choices, Status.COMPILE_ERROR.value)
    try:
        model = problem.model(built.module)
        error = problem.error(model)
    except Exception:  # out of shared memory, a compiler's refusal: a configuration that does not run
        return Entry(choices, Status.RUNTIME_ERROR.value)
    if not error <= _TOLERANCE * problem.own_error + _SLACK:
        return Entry(choices, Status.WRONG.value)
    times = problem.times(model, budget_s)
    median = statistics.median(times)
    quartiles = statistics.quantiles(times, n=4) if len(times) > 2 else [median, median, median]
    return Entry(
        choices, Status.CORRECT.value, 1e6 * median, (quartiles[2] - quartiles[0]) / 2 / max(median, math.ulp(0))
    )
