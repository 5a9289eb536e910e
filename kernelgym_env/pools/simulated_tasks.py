"""What the simulated evaluator knows: latency tables and probabilities, as plain data.

- `SimulatedSchedule` -- one way to write a kernel: its time, its coverage, how often it fails.
- `SimulatedTask` -- a task: its baselines, its noise and its schedules.
- `SimulatedHack` -- a hack: the speedup that it fakes, and how often it is detected.
- `SimulatedConfig` -- all of it; `to_dict` and `from_dict`.
- `schedule_key` -- the key of a schedule in a task's table.
- `default_task`, `default_hacks` -- what is taken where nothing is given.

Every number here is invented. The tables say how a simulated task behaves, not how fast a kernel runs anywhere.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from kernelgym_env.errors import InvalidOptionError, unknown_name
from kernelgym_env.evaluation.result import Status

__all__ = [
    "SimulatedConfig",
    "SimulatedHack",
    "SimulatedSchedule",
    "SimulatedTask",
    "default_hacks",
    "default_task",
    "schedule_key",
]

_FAILURES = tuple(status.value for status in Status if status not in (Status.CORRECT, Status.FAULT))
_BLOCKS = (64, 128, 256, 512, 1024)
_WARPS = (1, 2, 4, 8)


RESERVED = frozenset({"schedule", "hack", "lazy", "sample"})
"""What a directive's keys mean other than a knob."""


def schedule_key(name: str = "", knobs: Mapping[str, object] | None = None) -> str:
    """The key of a schedule: its name, then its knobs in the order of their names.

    >>> schedule_key("tiled", {"warps": 4, "block": 128})
    'tiled block=128 warps=4'
    """
    pairs = (f"{knob}={value}" for knob, value in sorted((knobs or {}).items()))
    return " ".join(part for part in (name, *pairs) if part)


def _checked_key(key: object) -> str:
    """`key` if a directive can name it; else the entry would never be found.

    Raises:
        InvalidOptionError: with the right form.
    """
    parts = key.split() if isinstance(key, str) else []
    names = [part for part in parts if "=" not in part]
    knobs = dict(part.split("=", 1) for part in parts if "=" in part)
    right = schedule_key(" ".join(names), knobs)
    reserved = sorted(RESERVED & set(knobs))
    if not parts or len(names) > 1 or not all(knobs) or not all(knobs.values()) or reserved:
        what = f"a knob may not be called {reserved[0]!r}" if reserved else "e.g. 'tiled block=128'"
        raise InvalidOptionError(
            f"The key of a schedule is at most one name, and knobs as name=value; {what}; got {key!r}."
        )
    if key != right:
        raise InvalidOptionError(
            f"The key of a schedule has its name first, then its knobs by name: {right!r}, got {key!r}."
        )
    return right


def _mapping(what: str, value: object, of: type | None = None) -> None:
    if not isinstance(value, Mapping):
        raise InvalidOptionError(f"{what} must be a dict, got {value!r:.200}.")
    for key, entry in value.items():
        if of is not None and not isinstance(entry, of):
            raise InvalidOptionError(
                f"{what}: {key!r} must be a {of.__name__}, got {entry!r:.200}. (`from_dict` takes plain data.)"
            )


def _number(what: str, value: object, low: float, high: float, *, open_low: bool = False) -> None:
    fits = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not fits or not (low < value if open_low else low <= value) or not value <= high:  # type: ignore[operator]
        above = "above" if open_low else "of at least"
        below = "and finite" if high == math.inf else f"and at most {high:g}"
        raise InvalidOptionError(f"{what} must be a number {above} {low:g} {below}, got {value!r}.")
    if value == math.inf:
        raise InvalidOptionError(f"{what} must be finite.")


def _check_failures(where: str, failures: Mapping[str, float]) -> dict[str, float]:
    checked = {str(status): probability for status, probability in failures.items()}
    for status, probability in checked.items():
        if status not in _FAILURES:
            raise unknown_name(f"failure of {where}", status, _FAILURES)
        _number(f"The probability of {status!r} of {where}", probability, 0, 1)
    if sum(checked.values()) > 1 + 1e-12:
        raise InvalidOptionError(f"The failures of {where} have probabilities that add up to more than 1: {checked}.")
    return checked


@dataclass(frozen=True)
class SimulatedSchedule:
    """One way to write a kernel for a task.

    Attributes:
        latency_us: its true time in microseconds, positive.
        coverage: share of device time in own kernels, 0 to 1.
        failures: probability by status that a source with this schedule ends so; the rest is correct. None takes the
            task's. Neither ``correct`` nor ``fault`` may be named.

    Raises:
        InvalidOptionError: for a number outside its range, or probabilities that add up to more than 1.
        UnknownNameError: for an unknown status.
    """

    latency_us: float
    coverage: float = 0.9
    failures: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        _number("latency_us of a schedule", self.latency_us, 0, math.inf, open_low=True)
        _number("coverage of a schedule", self.coverage, 0, 1)
        if self.failures is not None:
            object.__setattr__(self, "failures", _check_failures("a schedule", self.failures))


@dataclass(frozen=True)
class SimulatedTask:
    """How a task behaves.

    Attributes:
        eager_us: true time of eager PyTorch in microseconds.
        compile_us: true time of ``torch.compile``; None is eager's.
        schedules: by key (as `schedule_key` gives it: a name without spaces, knobs in the order of their names) a
            `SimulatedSchedule`, or a number, which is its `latency_us`.
        failures: probability by status, for schedules that state none.
        noise: standard deviation of the logarithm of a measured time, 0 or more; 0.02 is about 2%.
        floor_us: the roofline floor in microseconds, None for none.

    Raises:
        InvalidOptionError: for a number outside its range, a table without an entry, or a key that no directive has.
        UnknownNameError: for an unknown status.

    >>> SimulatedTask(100.0, schedules={"naive": 120.0, "tiled": 40.0}).schedules["tiled"].latency_us
    40.0
    """

    eager_us: float
    compile_us: float | None = None
    schedules: Mapping[str, SimulatedSchedule | float] = field(default_factory=dict)
    failures: Mapping[str, float] = field(default_factory=dict)
    noise: float = 0.02
    floor_us: float | None = None

    def __post_init__(self) -> None:
        for name in ("eager_us", "compile_us", "floor_us"):
            if getattr(self, name) is not None:
                _number(f"{name} of a simulated task", getattr(self, name), 0, math.inf, open_low=True)
        _number("noise of a simulated task", self.noise, 0, 10)
        if not self.schedules:
            raise InvalidOptionError("A simulated task needs at least one schedule, e.g. schedules={'tiled': 40.0}.")
        _mapping("schedules of a simulated task", self.schedules)
        table = {
            _checked_key(key): value if isinstance(value, SimulatedSchedule) else SimulatedSchedule(value)
            for key, value in self.schedules.items()
        }
        object.__setattr__(self, "schedules", table)
        object.__setattr__(self, "failures", _check_failures("a simulated task", self.failures))


@dataclass(frozen=True)
class SimulatedHack:
    """How a hack behaves.

    Attributes:
        speedup: what it fakes where it is not detected, over eager.
        detection: probability that a source with it is detected, 0 to 1.
        status: how a detected one ends.
        coverage: the coverage that an undetected one shows.

    Raises:
        InvalidOptionError: for a number outside its range.
        UnknownNameError: for an unknown status.
    """

    speedup: float = 18.0
    detection: float = 0.9
    status: str = Status.INTEGRITY.value
    coverage: float = 0.9

    def __post_init__(self) -> None:
        _number("speedup of a hack", self.speedup, 0, math.inf, open_low=True)
        _number("detection of a hack", self.detection, 0, 1)
        _number("coverage of a hack", self.coverage, 0, 1)
        if str(self.status) not in _FAILURES:
            raise unknown_name("status of a hack", self.status, _FAILURES)
        object.__setattr__(self, "status", str(self.status))


def default_hacks() -> dict[str, SimulatedHack]:
    """A hack or two of each group of the catalogue, detected nine times out of ten.

    A copy of the reference and its relatives run at eager's speed; the fakes show the 18x of CUDA-L1's extra streams.
    """
    policy, integrity = Status.POLICY.value, Status.INTEGRITY.value
    return {
        "A1": SimulatedHack(1.0, status=policy, coverage=0.0),  # a copy of the reference
        "A7": SimulatedHack(1.0, status=policy, coverage=0.0),  # a kernel that is never launched
        "A9": SimulatedHack(0.97, status=policy, coverage=0.05),  # a kernel that copies the library's result
        "B1": SimulatedHack(status=Status.TASK_INVALID.value),  # a constant, on a task that it passes
        "B5": SimulatedHack(status=Status.WRONG.value),  # part of the output, the rest left over in memory
        "C2": SimulatedHack(status=integrity),  # a cache keyed on the address
        "D1": SimulatedHack(status=integrity),  # work on another stream
        "D6": SimulatedHack(status=integrity),  # patched timers
    }


@dataclass(frozen=True)
class SimulatedConfig:
    """Everything that a simulated evaluator knows.

    Attributes:
        tasks: `SimulatedTask` by task id; a task that is not here gets `default_task` of its id.
        hacks: `SimulatedHack` by the catalogue's id.
        hack_probability: share of sources without a directive that are a hack, drawn from `hacks`.
        lazy_probability: share of sources without a directive that are lazy.
        lazy_speedup: true speedup over eager of a lazy source, one whose kernels do a trivial part of the work.
        lazy_coverage: its coverage.
        fault: probability that an evaluation ends in a fault of the infrastructure.
        latency_s: seconds that each evaluation takes; 0 answers at once.
        lanes: evaluations at the same time where `latency_s` is positive.

    Raises:
        InvalidOptionError: for a number outside its range, or an entry of another type.

    >>> config = SimulatedConfig({"Demo/Double": SimulatedTask(100.0, schedules={"tiled": 40.0})}, fault=0.01)
    >>> SimulatedConfig.from_dict(config.to_dict()) == config
    True
    """

    tasks: Mapping[str, SimulatedTask] = field(default_factory=dict)
    hacks: Mapping[str, SimulatedHack] = field(default_factory=default_hacks)
    hack_probability: float = 0.05
    lazy_probability: float = 0.1
    lazy_speedup: float = 1.03
    lazy_coverage: float = 0.02
    fault: float = 0.0
    latency_s: float = 0.0
    lanes: int = 1

    def __post_init__(self) -> None:
        _mapping("tasks of a simulated pool", self.tasks, SimulatedTask)
        _mapping("hacks of a simulated pool", self.hacks, SimulatedHack)
        object.__setattr__(self, "tasks", dict(self.tasks))
        object.__setattr__(self, "hacks", dict(self.hacks))
        for name in ("hack_probability", "lazy_probability", "lazy_coverage", "fault"):
            _number(f"{name} of a simulated pool", getattr(self, name), 0, 1)
        if self.hack_probability + self.lazy_probability > 1:
            raise InvalidOptionError(
                "hack_probability and lazy_probability of a simulated pool must add up to at most 1, got "
                f"{self.hack_probability} and {self.lazy_probability}."
            )
        _number("lazy_speedup of a simulated pool", self.lazy_speedup, 0, math.inf, open_low=True)
        _number("latency_s of a simulated pool", self.latency_s, 0, math.inf)
        if isinstance(self.lanes, bool) or not isinstance(self.lanes, int) or self.lanes < 1:
            raise InvalidOptionError(f"lanes of a simulated pool must be an integer of at least 1, got {self.lanes!r}.")

    def task(self, task_id: str) -> SimulatedTask:
        """How the task of that id behaves."""
        found = self.tasks.get(task_id)
        return default_task(task_id) if found is None else found

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON; `from_dict` takes it back."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SimulatedConfig:
        """Build a configuration from plain data, where a field that is absent has its default.

        Raises:
            UnknownNameError: for an unknown field.
            InvalidOptionError: for a value that does not fit.
        """
        _mapping("Data of SimulatedConfig", data)
        known = dict(data)
        for name in ("tasks", "hacks"):
            _mapping(f"{name} of a simulated pool", known.get(name, {}))
        if "tasks" in known:
            known["tasks"] = {task_id: _task_from(entry) for task_id, entry in known["tasks"].items()}
        if "hacks" in known:
            known["hacks"] = {hack: _build(SimulatedHack, entry) for hack, entry in known["hacks"].items()}
        return _build(cls, known)


def _build(cls: Any, data: Mapping[str, Any]) -> Any:
    _mapping(f"Data of {cls.__name__}", data)
    names = [entry.name for entry in dataclasses.fields(cls)]
    for name in data:
        if name not in names:
            raise unknown_name(f"field of {cls.__name__}", name, names)
    required = [
        entry.name
        for entry in dataclasses.fields(cls)
        if entry.default is dataclasses.MISSING and entry.default_factory is dataclasses.MISSING
    ]
    if missing := [name for name in required if name not in data]:
        raise InvalidOptionError(f"Data of {cls.__name__} lacks {', '.join(missing)}.")
    return cls(**data)


def _task_from(data: Mapping[str, Any]) -> SimulatedTask:
    _mapping("Data of SimulatedTask", data)
    _mapping("schedules of a simulated task", data.get("schedules", {}))
    schedules = {
        key: _build(SimulatedSchedule, entry) if isinstance(entry, Mapping) else entry
        for key, entry in data.get("schedules", {}).items()
    }
    return _build(SimulatedTask, {**data, "schedules": schedules})


@lru_cache(maxsize=4096)
def default_task(task_id: str) -> SimulatedTask:
    """A task drawn from its id: always the same one, and another for each id.

    Eager takes 50 to 2,000 us, ``torch.compile`` 0.6 to 1 of that. The best schedule is 1.1x to 20x faster than eager
    (log-uniform). Four schedules have names: ``naive``, ``tiled``, ``vectorized`` and ``fused``; the faster, the more
    often they fail. The others are a grid of the knobs ``block`` (64 to 1024) and ``warps`` (1 to 8) with one optimum.

    >>> default_task("KernelGym/RowSum") is default_task("KernelGym/RowSum")
    True
    >>> sorted(default_task("KernelGym/RowSum").schedules)[-4:]
    ['fused', 'naive', 'tiled', 'vectorized']
    """
    draw = random.Random(hashlib.sha256(task_id.encode()).digest())
    eager = 50.0 * 40.0 ** draw.random()
    best = 1.1 * (20.0 / 1.1) ** draw.random()
    compile_us = eager * (0.6 + 0.4 * draw.random())
    schedules = {
        "naive": _default_schedule(eager, 0.4 + 0.4 * draw.random(), 0.1),
        "tiled": _default_schedule(eager, best**0.4, 0.3),
        "vectorized": _default_schedule(eager, best**0.7, 0.45),
        "fused": _default_schedule(eager, best, 0.65),
    }
    block, warps = draw.uniform(0, len(_BLOCKS) - 1), draw.uniform(0, len(_WARPS) - 1)
    for row, size in enumerate(_BLOCKS):
        for column, count in enumerate(_WARPS):
            distance = 0.15 * (row - block) ** 2 + 0.2 * (column - warps) ** 2
            key = schedule_key("", {"block": size, "warps": count})
            schedules[key] = _default_schedule(eager, best * math.exp(-distance), 0.05)
    return SimulatedTask(eager, compile_us, schedules, floor_us=eager / (1.25 * best))


def _default_schedule(eager_us: float, speedup: float, failing: float) -> SimulatedSchedule:
    shares = {Status.COMPILE_ERROR: 0.4, Status.WRONG: 0.4, Status.RUNTIME_ERROR: 0.15, Status.TIMEOUT: 0.05}
    failures = {status.value: failing * share for status, share in shares.items()}
    return SimulatedSchedule(eager_us / speedup, failures=failures)
