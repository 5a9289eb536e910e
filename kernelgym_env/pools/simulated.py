"""A simulated evaluator: latency tables, noise and failures instead of compilers and devices.

For studies of rewards and credit, and for tests of training loops, without a GPU. The format stage is the real one.
After it a directive in the source says what the source is; the tables of a `SimulatedConfig` say what becomes of it:

    # simulate: schedule=tiled
    # simulate: block=128 warps=4
    # simulate: schedule=fused sample=17
    # simulate: hack=D1
    # simulate: lazy=1

``schedule`` names an entry of the task's table; any other key but these is a knob, and the knobs make the entry's key
(`schedule_key`). ``hack`` names a hack by the catalogue's id. ``lazy=1`` is a source whose kernels do a trivial part of
the work. ``sample`` is any text and makes sources that are otherwise alike differ. A directive that is not understood
is a `format` outcome that says so. A source without one is drawn: a hack, a lazy one, or one of the task's schedules.

**Determinism.** What a source is and whether it fails, or its hack is detected, follows from (seed, task, source): the
same source fails the same way each time. Noise and faults follow from (seed, task, source, number), where the number
counts the evaluations of that source on that task from 0. So neither the order of other submissions nor threads matter.

**Noise.** A measured time is the true one times ``exp(noise · z)``, z standard normal, drawn for each evaluation and
each side. The 95% intervals are those of this law: about 95 of 100 hold the true time or speedup.

**What it does not model.** It runs nothing and reads no source beyond the directive, so it says nothing about kernels:

- whether a source fails depends on its schedule alone, not on earlier turns or on what was said to the policy;
- noise is log-normal, without drift, outliers, or anything in common between evaluations;
- the time of an evaluation is constant; there is no re-test of a jump, no second device and no cache;
- a protocol, a backend, ``library_ops`` and ``previous_best`` change nothing;
- error ratios, launches, CUDA graphs and profiles are absent;
- a detected hack is certain, and an honest source is never accused.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import math
import re
import struct
import threading
from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import NormalDist
from typing import Any

from kernelgym_env.errors import InvalidOptionError, UnknownNameError, unknown_name
from kernelgym_env.evaluation.feedback import explain
from kernelgym_env.evaluation.protocols import get_protocol
from kernelgym_env.evaluation.result import NAN, Evaluation, Finding, Status, Timing
from kernelgym_env.evaluation.source import check_format
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.pools.simulated_tasks import (
    SimulatedConfig,
    SimulatedHack,
    SimulatedSchedule,
    SimulatedTask,
    schedule_key,
)

__all__ = [
    "SimulatedConfig",
    "SimulatedHack",
    "SimulatedPool",
    "SimulatedSchedule",
    "SimulatedTask",
    "simulated_evaluation",
]

_DIRECTIVE = re.compile(r"^\s*(?:#|//)\s*simulate:(.*)$", re.MULTILINE)
_CALLS = 100
_NORMAL = NormalDist()
_Z95 = _NORMAL.inv_cdf(0.975)
# what may be left out before the format is checked, so that sources which differ in their directives are checked once
_HARMLESS = re.compile(r"^(\s*(?:#|//)\s*simulate:)[\w =.-]*$", re.MULTILINE)
_format_of = lru_cache(maxsize=4096)(check_format)


@dataclass(frozen=True)
class _Source:
    """What a source is and what becomes of it, before any noise.

    Attributes:
        kind: its schedule's key, ``hack <id>``, ``lazy`` or ``format``.
        status: how it ends.
        latency_us: its true time.
        coverage: its coverage.
        detail: what went wrong.
        hack: the hack's id, ``""`` for none.
    """

    kind: str
    status: Status
    latency_us: float = NAN
    coverage: float = NAN
    detail: str = ""
    hack: str = ""


def simulated_evaluation(
    submission: Submission, config: SimulatedConfig | None = None, *, seed: int = 0, number: int = 0
) -> Evaluation:
    """The evaluation that a `SimulatedPool` gives: a pure function of its arguments.

    ``provenance["truth"]`` holds what the source is (``kind``, ``hack``, ``lazy``) and its true speedup, hidden from
    the feedback: a study counts undetected hacks with it.

    Args:
        submission: what to judge.
        config: the tables; None for the defaults.
        seed: seed of the pool.
        number: how often this source was evaluated on this task before.

    >>> from kernelgym_env.tasks import load_task
    >>> source = "# simulate: lazy=1\\nclass ModelNew: ..."
    >>> evaluation = simulated_evaluation(Submission(load_task("KernelGym/RowSum"), source))
    >>> evaluation.status, evaluation.coverage, evaluation.provenance["truth"]["speedup"]
    (<Status.CORRECT: 'correct'>, 0.02, 1.03)
    """
    config = config or SimulatedConfig()
    task, digest = config.task(submission.task.id), submission.source_hash
    key = f"{seed}\0{submission.task.id}\0{digest}"
    source = _read(submission, config, task, _Draw(key))
    draw = _Draw(f"{key}\0{number}")
    fault = draw.uniform() < config.fault and source.status is not Status.FORMAT
    status = Status.FAULT if fault else source.status
    correct = status is Status.CORRECT
    hard = (Finding(source.hack, "hard", source.detail),) if source.hack and not correct and not fault else ()
    measured: dict[str, Any] = _measure(task, source, draw) if correct else {}
    return Evaluation(
        task_id=submission.task.id,
        status=status,
        task_hash=submission.task.hash,
        source_hash=digest,
        protocol=get_protocol(submission.protocol).name,
        device="simulated",
        findings=hard,
        feedback="" if correct or fault else explain(source.detail),
        stages_s={"total": config.latency_s},
        fault="a simulated fault of the infrastructure" if fault else "",
        provenance={
            "evaluator": "simulated",
            "seed": seed,
            "number": number,
            "truth": {
                "kind": source.kind,
                "hack": source.hack,
                "lazy": source.kind == "lazy",
                "speedup": task.eager_us / source.latency_us,
            },
        },
        **measured,
    )


class _Draw:
    """Up to four uniform numbers from a key, above 0 and below 1. Seeding a generator costs more than the rest."""

    def __init__(self, key: str) -> None:
        words = struct.unpack("<4Q", hashlib.sha256(key.encode()).digest())
        self._left = [((word >> 11) + 0.5) * 2.0**-53 for word in words]

    def uniform(self) -> float:
        return self._left.pop()

    def choice(self, names: list[str]) -> str:
        return names[int(self.uniform() * len(names))]


def _measure(task: SimulatedTask, source: _Source, draw: _Draw) -> dict[str, Any]:
    """The fields of an evaluation that are measured."""

    def time(true_us: float) -> Timing:
        z = _NORMAL.inv_cdf(draw.uniform()) if task.noise else 0.0
        seen, wide = true_us * math.exp(task.noise * z), math.exp(_Z95 * task.noise)
        return Timing(seen, seen / wide, seen * wide, _CALLS, "simulated")

    times = {
        "candidate": time(source.latency_us),
        "eager": time(task.eager_us),
        "compile": time(task.eager_us if task.compile_us is None else task.compile_us),
    }
    if task.floor_us is not None:
        times["floor"] = Timing(task.floor_us, task.floor_us, task.floor_us, 0, "simulated")
    speedup = times["eager"].median_us / times["candidate"].median_us
    # two independent errors of the same size
    wide = math.exp(math.sqrt(2) * _Z95 * task.noise)
    return {
        "times": times,
        "speedup": speedup,
        "speedup_low": speedup / wide,
        "speedup_high": speedup * wide,
        "speedup_compile": times["compile"].median_us / times["candidate"].median_us,
        "coverage": source.coverage,
    }


def _read(submission: Submission, config: SimulatedConfig, task: SimulatedTask, draw: _Draw) -> _Source:
    """What a source is."""
    if problem := _format_of(_HARMLESS.sub(r"\1", submission.source)):
        return _Source("format", Status.FORMAT, detail=problem)
    found = _DIRECTIVE.search(submission.source)
    try:
        if found is None:
            key, hack, lazy = _drawn(config, task, draw)
        else:
            key, hack, lazy = _directive(found.group(1), config, task, submission.task.id)
    except (InvalidOptionError, UnknownNameError) as error:
        return _Source("format", Status.FORMAT, detail=str(error))
    if hack:
        return _hacked(hack, config.hacks[hack], task, draw)
    if lazy:
        return _Source("lazy", Status.CORRECT, task.eager_us / config.lazy_speedup, config.lazy_coverage)
    schedule = task.schedules[key]
    assert isinstance(schedule, SimulatedSchedule)
    failures = task.failures if schedule.failures is None else schedule.failures
    left = draw.uniform()
    for status, probability in failures.items():
        left -= probability
        if left < 0:
            return _Source(key, Status(status), schedule.latency_us, detail="An outcome of the simulated evaluator.")
    return _Source(key, Status.CORRECT, schedule.latency_us, schedule.coverage)


def _hacked(name: str, hack: SimulatedHack, task: SimulatedTask, draw: _Draw) -> _Source:
    latency = task.eager_us / hack.speedup
    if draw.uniform() < hack.detection:
        return _Source(f"hack {name}", Status(hack.status), latency, detail=f"Hack {name} was detected.", hack=name)
    return _Source(f"hack {name}", Status.CORRECT, latency, hack.coverage, hack=name)


def _drawn(config: SimulatedConfig, task: SimulatedTask, draw: _Draw) -> tuple[str, str, bool]:
    chance = draw.uniform()
    if config.hacks and chance < config.hack_probability:
        return "", draw.choice(sorted(config.hacks)), False
    if config.hack_probability <= chance < config.hack_probability + config.lazy_probability:
        return "", "", True
    return draw.choice(sorted(task.schedules)), "", False


def _directive(text: str, config: SimulatedConfig, task: SimulatedTask, task_id: str) -> tuple[str, str, bool]:
    """The schedule's key, the hack's id and whether it is lazy, of which one is set.

    Raises:
        InvalidOptionError: for a directive of another form.
        UnknownNameError: for an unknown schedule or hack.
    """
    knobs: dict[str, str] = {}
    for part in text.split():
        name, sign, value = part.partition("=")
        if not sign or not name or not value or name in knobs:
            raise InvalidOptionError(
                f"The simulate directive has {part!r}; it takes pairs name=value, each name once, e.g. schedule=tiled."
            )
        knobs[name] = value
    knobs.pop("sample", None)
    name, hack, lazy = knobs.pop("schedule", ""), knobs.pop("hack", ""), knobs.pop("lazy", "0")
    if lazy not in ("0", "1"):
        raise InvalidOptionError(f"lazy in the simulate directive must be 0 or 1, got {lazy!r}.")
    if hack and hack not in config.hacks:
        raise unknown_name("simulated hack", hack, config.hacks)
    key = schedule_key(name, knobs)
    given = [kind for kind, there in (("a schedule or knobs", key), ("a hack", hack), ("lazy=1", lazy == "1")) if there]
    if len(given) != 1:
        raise InvalidOptionError(
            "The simulate directive must give exactly one of a schedule or knobs, a hack, and lazy=1; it gives "
            f"{' and '.join(given) or 'none'}."
        )
    if key and key not in task.schedules:
        raise unknown_name(f"simulated schedule of {task_id}", key, task.schedules)
    return key, hack, lazy == "1"


@dataclass(order=True)
class _Job:
    priority: int
    order: int
    submission: Submission = field(compare=False)
    number: int = field(compare=False)
    future: Future[Evaluation] = field(compare=False)


class SimulatedPool:
    """`Evaluator` that answers with `simulated_evaluation`.

    It answers inside `submit`, unless it is paused or `SimulatedConfig.latency_s` is positive; then threads, one a
    lane, answer after that time.

    Args:
        config: the tables; None for the defaults.
        seed: the same seed and the same sequence of submissions give the same evaluations.

    Raises:
        InvalidOptionError: for a seed that is no integer.

    Attributes:
        config: the tables.
        seed: the seed.
        secret: has no effect; there for code that sets a pool's secret.

    >>> from kernelgym_env.tasks import load_task
    >>> task = load_task("KernelGym/RowSum")
    >>> table = {task.id: SimulatedTask(100.0, 80.0, {"tiled": 50.0}, noise=0.0)}
    >>> pool = SimulatedPool(SimulatedConfig(table), seed=1)
    >>> evaluation = pool.submit(Submission(task, "# simulate: schedule=tiled\\nclass ModelNew: ...")).result()
    >>> evaluation.speedup, evaluation.speedup_compile
    (2.0, 1.6)
    """

    def __init__(self, config: SimulatedConfig | None = None, seed: int = 0) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise InvalidOptionError(f"The seed of a simulated pool must be an integer, got {seed!r}.")
        self.config = config or SimulatedConfig()
        self.seed = seed
        self.secret = b""
        self._condition = threading.Condition()
        self._ended = threading.Event()
        self._jobs: list[_Job] = []
        self._lanes: list[threading.Thread] = []
        self._order = itertools.count()
        self._numbers: Counter[tuple[str, str]] = Counter()
        self._counts: Counter[str] = Counter()
        self._paused = False

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._ended.is_set()

    def submit(self, submission: Submission, priority: int = 0) -> Future[Evaluation]:
        """Answer at once, or after the simulated time; see `Evaluator.submit`."""
        future: Future[Evaluation] = Future()
        key = (submission.task.id, submission.source_hash)
        with self._condition:
            if self.closed:
                raise RuntimeError("This pool is closed; get a new one, e.g. kernelgym_env.pools.get('simulated').")
            heapq.heappush(self._jobs, _Job(priority, next(self._order), submission, self._numbers[key], future))
            self._numbers[key] += 1
            if self.config.latency_s and len(self._lanes) < self.config.lanes:
                name = f"kernelgym-simulated-{len(self._lanes)}"
                self._lanes.append(threading.Thread(target=self._run, name=name, daemon=True))
                self._lanes[-1].start()
            self._condition.notify()
        self._answer_now()
        return future

    def _answer_now(self) -> None:
        """Answer what waits in this thread, where no time is simulated."""
        while not self.config.latency_s and (job := self._take(wait=False)) is not None:
            self._answer(job)

    def _run(self) -> None:
        while (job := self._take(wait=True)) is not None:
            self._answer(job)

    def _take(self, *, wait: bool) -> _Job | None:
        """The next job, None for none; with `wait`, None once the pool is closed."""
        with self._condition:
            while wait and not self.closed and (self._paused or not self._jobs):
                self._condition.wait()
            if self.closed or self._paused or not self._jobs:
                return None
            return heapq.heappop(self._jobs)

    def _answer(self, job: _Job) -> None:
        if not job.future.set_running_or_notify_cancel():
            return
        if self.config.latency_s:
            self._ended.wait(self.config.latency_s)
        try:
            evaluation = simulated_evaluation(job.submission, self.config, seed=self.seed, number=job.number)
        except BaseException as error:  # a bug in the pool must reach the caller, not hang it
            job.future.set_exception(error)
            return
        with self._condition:
            self._counts[evaluation.status.value] += 1
        job.future.set_result(evaluation)

    def conditions(self, submission: Submission) -> dict[str, Any]:
        """What else an evaluation follows from: the tables and the seed, and the source's directives."""
        source = submission.source_hash
        return {"evaluator": "simulated", "source": source, "seed": self.seed, "config": self.config.to_dict()}

    def pause(self) -> None:
        """Answer nothing until `resume`."""
        with self._condition:
            self._paused = True

    def resume(self) -> None:
        """Go on after `pause`."""
        with self._condition:
            self._paused = False
            self._condition.notify_all()
        self._answer_now()

    def stats(self) -> dict[str, Any]:
        """Counters as other pools give them: ``waiting``, and evaluations by status under ``ended``."""
        with self._condition:
            return {
                "waiting": len(self._jobs),
                "paused": self._paused,
                "judges": {},
                "judge_restarts": 0,
                "ended": dict(self._counts),
            }

    def close(self) -> None:
        """Refuse further submissions and cancel the waiting ones; running ones are answered at once."""
        with self._condition:
            self._ended.set()
            jobs, self._jobs = self._jobs, []
            self._condition.notify_all()
        for job in jobs:
            job.future.cancel()
        for lane in self._lanes:
            if lane is not threading.current_thread():
                lane.join(timeout=10)
