"""What one evaluation says: the closed set of outcomes and the immutable record.

- `Status` -- every way an evaluation can end.
- `Finding` -- one observation about a submission, with the hack catalogue's id.
- `Timing` -- one measured time with its interval.
- `Evaluation` -- the verdict; plain data through `to_dict` and `from_dict`.

Absent numbers are NaN and absent text is ``""``, so that the types in an environment's `info` never change.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from kernelgym_env.errors import InvalidOptionError

__all__ = ["SCHEMA", "Evaluation", "Finding", "Status", "Timing"]

SCHEMA = 1
"""Version of `Evaluation.to_dict`; a reader refuses a newer one."""

NAN = math.nan


class Status(str, Enum):
    """How an evaluation ended. Only `CORRECT` is credited."""

    FORMAT = "format"
    """No usable source: no code, a syntax error, no `ModelNew`, too long."""
    COMPILE_ERROR = "compile_error"
    """A compiler (nvcc, g++, NVRTC, Triton) refused the source."""
    RUNTIME_ERROR = "runtime_error"
    """An exception at import, construction or call."""
    TIMEOUT = "timeout"
    """A stage outran its deadline and was killed."""
    CRASH = "crash"
    """The process ended by a signal, by `os._exit`, or stopped answering."""
    WRONG = "wrong"
    """The output differs from the reference's in structure, shape, dtype or value."""
    POLICY = "policy"
    """Right values, but not by the submission's own kernels."""
    INTEGRITY = "integrity"
    """Hard evidence of an attack on the checker, the clock or the environment."""
    TASK_INVALID = "task_invalid"
    """The task itself is degenerate or its reference fails."""
    FAULT = "fault"
    """Infrastructure failed; says nothing about the submission."""
    CORRECT = "correct"
    """Right, and credited."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Finding:
    """One observation about a submission.

    Attributes:
        id: the hack catalogue's id, e.g. ``"A2"``.
        severity: ``"hard"`` (evidence), ``"soft"`` (a reason to look again) or ``"note"``.
        message: a sentence that may be shown to a policy; never a hidden value.
    """

    id: str
    severity: str
    message: str

    def __post_init__(self) -> None:
        if self.severity not in ("hard", "soft", "note"):
            raise InvalidOptionError(f"Finding severity {self.severity!r} must be 'hard', 'soft' or 'note'.")

    def to_dict(self) -> dict[str, str]:
        """Plain data."""
        return {"id": self.id, "severity": self.severity, "message": self.message}


@dataclass(frozen=True)
class Timing:
    """A time in microseconds with its 95% interval.

    Attributes:
        median_us: median over all timed calls.
        low_us: lower end of the interval.
        high_us: upper end of the interval.
        n: number of timed calls.
        clock: what was read: ``"cuda_event"``, ``"perf_counter"``, ``"fake"``, ….
    """

    median_us: float = NAN
    low_us: float = NAN
    high_us: float = NAN
    n: int = 0
    clock: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "median_us": self.median_us,
            "low_us": self.low_us,
            "high_us": self.high_us,
            "n": self.n,
            "clock": self.clock,
        }


def _timing(data: Mapping[str, Any]) -> Timing:
    known: dict[str, Any] = {name: NAN if value is None else value for name, value in data.items()}
    return Timing(**known)


STAGES = ("queue", "format", "build", "start", "correctness", "timing", "total")
"""Keys of `Evaluation.stages_s`, in seconds; a stage that did not run has 0."""

TIMES = ("candidate", "eager", "compile", "graph", "floor")
"""Keys of `Evaluation.times`."""


_NUMBERS = (
    "speedup",
    "speedup_low",
    "speedup_high",
    "speedup_compile",
    "speedup_graph",
    "coverage",
    "own_launches",
    "error_ratio",
)


@dataclass(frozen=True)
class Evaluation:
    """The verdict on one submission.

    Attributes:
        task_id: the task's id.
        task_hash: hash of the task's sized source.
        source_hash: hash of the judged source.
        protocol: name of the protocol.
        device: what it ran on, e.g. ``"cpu"``, ``"cuda:0"``.
        status: how it ended.
        speedup: eager time / candidate time, NaN where not measured.
        speedup_low: lower end of the 95% interval of `speedup`.
        speedup_high: upper end.
        speedup_compile: torch.compile time / candidate time.
        speedup_graph: CUDA-graphed eager time / candidate time.
        times: `Timing` by name, see `TIMES`.
        coverage: share of device time spent in the submission's own kernels, 0 to 1.
        own_launches: launches of own kernels in one call, NaN where not measured.
        error_ratio: greatest error / allowed error over all checks, by the rule with the float64 oracle; at most 1
            passes, unless the protocol decides by a published tolerance (`Protocol.allclose`).
        findings: what was noticed.
        feedback: the text for the next turn.
        stages_s: seconds by stage, see `STAGES`.
        fault: what infrastructure failed, ``""`` otherwise.
        provenance: device, versions, protocol constants and isolation in force.
    """

    task_id: str
    status: Status
    task_hash: str = ""
    source_hash: str = ""
    protocol: str = ""
    device: str = ""
    speedup: float = NAN
    speedup_low: float = NAN
    speedup_high: float = NAN
    speedup_compile: float = NAN
    speedup_graph: float = NAN
    times: Mapping[str, Timing] = field(default_factory=dict)
    coverage: float = NAN
    own_launches: float = NAN
    error_ratio: float = NAN
    findings: tuple[Finding, ...] = ()
    feedback: str = ""
    stages_s: Mapping[str, float] = field(default_factory=dict)
    fault: str = ""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        object.__setattr__(self, "status", Status(self.status))
        object.__setattr__(self, "times", {name: self.times.get(name, Timing()) for name in TIMES})
        object.__setattr__(self, "stages_s", {name: float(self.stages_s.get(name, 0.0)) for name in STAGES})
        object.__setattr__(self, "findings", tuple(self.findings))

    @property
    def correct(self) -> bool:
        """Whether the submission was found right and its own work."""
        return self.status is Status.CORRECT

    @property
    def credited(self) -> bool:
        """Whether it earns credit: the same as `correct`, the name that rewards read."""
        return self.correct

    @property
    def valid(self) -> bool:
        """False for a fault: such an evaluation enters no return, group or metric."""
        return self.status is not Status.FAULT

    @property
    def roofline_fraction(self) -> float:
        """Floor of the task over the submission's time, both of `times`; NaN where one of them is unknown.

        Above 1 for a time below the floor, which is no proof of anything; see `kernelgym_env.evaluation.roofline`.

        >>> times = {"candidate": Timing(50.0), "floor": Timing(20.0)}
        >>> Evaluation("KernelGym/Relu", Status.CORRECT, times=times).roofline_fraction
        0.4
        """
        candidate = self.times["candidate"].median_us
        return self.times["floor"].median_us / candidate if candidate > 0 else NAN

    @property
    def overhead_s(self) -> float:
        """Seconds spent beside the build and the timing stage (queue not counted)."""
        stages = self.stages_s
        return max(0.0, stages["total"] - stages["queue"] - stages["build"] - stages["timing"])

    def to_dict(self) -> dict[str, Any]:
        """Plain data with the same keys and types for every outcome."""
        return {
            "schema": self.schema,
            "task_id": self.task_id,
            "task_hash": self.task_hash,
            "source_hash": self.source_hash,
            "protocol": self.protocol,
            "device": self.device,
            "status": self.status.value,
            "credited": self.credited,
            "speedup": self.speedup,
            "speedup_low": self.speedup_low,
            "speedup_high": self.speedup_high,
            "speedup_compile": self.speedup_compile,
            "speedup_graph": self.speedup_graph,
            "times": {name: timing.to_dict() for name, timing in self.times.items()},
            "coverage": self.coverage,
            "own_launches": self.own_launches,
            "error_ratio": self.error_ratio,
            "findings": [finding.to_dict() for finding in self.findings],
            "feedback": self.feedback,
            "stages_s": dict(self.stages_s),
            "fault": self.fault,
            "provenance": dict(self.provenance),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Evaluation:
        """The inverse of `to_dict`. A null where a number belongs is read as NaN, as strict JSON has no NaN.

        Raises:
            InvalidOptionError: if the record has a newer schema or lacks `task_id` or `status`.

        >>> e = Evaluation("KernelGym/Relu", Status.CORRECT, speedup=2.0)
        >>> Evaluation.from_dict(e.to_dict()).speedup
        2.0
        """
        schema = data.get("schema", SCHEMA)
        if not isinstance(schema, int) or schema > SCHEMA:
            raise InvalidOptionError(f"Evaluation schema {schema!r} is newer than this version reads ({SCHEMA}).")
        missing = [key for key in ("task_id", "status") if key not in data]
        if missing:
            raise InvalidOptionError(f"Not an evaluation record: {', '.join(missing)} missing.")
        known = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        known.update({name: NAN for name in _NUMBERS if known.get(name, NAN) is None})
        known["times"] = {name: _timing(timing) for name, timing in data.get("times", {}).items()}
        known["findings"] = tuple(Finding(**finding) for finding in data.get("findings", ()))
        return cls(**known)
