"""Protocols: every constant that a verdict or a time depends on, under a name.

A protocol never touches isolation. A change of a number here changes what a reward means and is a new version of the
environments that use it.

- `Protocol` -- the constants.
- `Allclose` -- a published tolerance in place of the rule with the float64 oracle.
- `Deadlines` -- seconds per stage.
- `get_protocol`, `protocol_names` -- look one of `kernelgym_env.evaluation.presets` up.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelgym_env.errors import InvalidOptionError, unknown_name

__all__ = [
    "BASELINES",
    "INPUTS_ON",
    "LIBRARY_OPS",
    "PRECISIONS",
    "Allclose",
    "Deadlines",
    "Protocol",
    "get_protocol",
    "protocol_names",
]

LIBRARY_OPS = ("forbid", "gemm", "allow")
"""What a submission may take from libraries: nothing, matrix products and convolutions, or anything."""

PRECISIONS = ("fp32", "tf32", "torch")
"""What PyTorch may do in float32 products: float32 in full, TF32, or its default, TF32 in cuDNN's convolutions."""

INPUTS_ON = ("device", "cpu")
"""Where inputs are drawn: by the device's own generator, or by the CPU's and then moved, as KernelBench does."""

BASELINES = ("compile", "graph")
"""What a speed may be held against besides eager PyTorch: `torch.compile`, and the reference as one CUDA graph."""

_LONGEST_S = 1_000_000
_NO_CONSTANTS = ("name", "summary", "source", "baselines", "deadlines")
_TF32 = {"fp32": (False, False), "tf32": (True, True), "torch": (False, True)}


@dataclass(frozen=True)
class Deadlines:
    """Seconds after which a stage is killed.

    Attributes:
        import_s: importing the source where nothing is left to build, and constructing the model.
        build_s: importing the source where compilers may run.
        first_call_s: the first call, in which JIT compilers and autotuners run.
        run_s: each later call or block of timed calls.
    """

    import_s: float = 60.0
    build_s: float = 240.0
    first_call_s: float = 120.0
    run_s: float = 60.0

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= _LONGEST_S:
                raise InvalidOptionError(
                    f"Deadline {name} must be a number of seconds above 0 and at most {_LONGEST_S:,}, got {value!r}."
                )


@dataclass(frozen=True)
class Allclose:
    """A tolerance as evaluators publish it: |output - reference| <= atol + rtol * |reference|, element by element.

    The reference is the reference's own output, not the float64 oracle's. It holds for floating-point and complex
    outputs; integers and booleans must be equal as always, NaN and infinity must stand where the reference has them.

    Attributes:
        atol: absolute part, in the output's units.
        rtol: relative part.
        half: both of them for float16 and bfloat16 outputs; None takes the same.

    >>> Allclose(1e-4, 1e-4, half=(1e-2, 1e-2)).pair(half=True)
    (0.01, 0.01)
    """

    atol: float
    rtol: float
    half: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.half is not None:
            if not isinstance(self.half, (list, tuple)) or len(self.half) != 2:
                raise InvalidOptionError(f"Allclose half must be a pair (atol, rtol) or None, got {self.half!r}.")
            object.__setattr__(self, "half", tuple(self.half))  # JSON has lists only
        for value in (self.atol, self.rtol, *(self.half or ())):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
                raise InvalidOptionError(f"Allclose tolerances must be finite numbers of at least 0, got {value!r}.")

    def pair(self, *, half: bool) -> tuple[float, float]:
        """``(atol, rtol)`` for outputs of half precision, or for all others."""
        return self.half if half and self.half is not None else (self.atol, self.rtol)


@dataclass(frozen=True)
class Protocol:
    """The constants of one way of judging.

    Attributes:
        name: how it is asked for.
        summary: one sentence.
        source: where a published system's figures come from, and which of them are this package's choice.
        trials: calls that are checked, alternating between two sets of fresh secret inputs.
        law_trials: further calls that are checked, each on inputs under a value law of its own; 0 for none.
        law_budget_s: seconds of the judge's own work on laws, the submission's apart, after which no further law is
            begun.
        input_sets: sets of secret inputs that are checked; those beyond two are called once each, after the `trials`.
            Each set has a seed of its own, from the pool's secret.
        shape_trials: sizes besides its own at which a submission is checked, of those that the task declares
            (`Task.shapes`), each chosen in secret.
        inputs_on: where inputs are drawn, see `INPUTS_ON`. The CPU's generator gives the numbers that KernelBench's
            would for the same seed; the seed stays secret.
        allclose: a published tolerance that decides in place of the next three; None leaves it to them. The error ratio
            of an evaluation is theirs in any case.
        error_factor: allowed error as a multiple of the reference's own error against a float64 oracle.
        error_floor: allowed error in units of the dtype's rounding step, scaled by the output's RMS.
        error_floor_half: the same for half-precision outputs, whose rounding step is itself large.
        library_ops: default policy, see `LIBRARY_OPS`.
        train_mode: None leaves the model as its constructor did (KernelBench), True or False sets the mode.
        precision: PyTorch's own for float32 products and convolutions, see `PRECISIONS`: in the reference that gives
            the expected values, in the one that is timed, and at the start of a submission. It says nothing of a
            submission's own kernels: what they may do follows from the tolerance.
        warmup: untimed calls of each side before timing.
        min_blocks: least number of candidate/reference block pairs.
        max_blocks: greatest number of block pairs.
        block_us: aimed length of a block of timed calls in microseconds of device time.
        max_block_calls: greatest number of calls in a block.
        target_width: relative half-width of the ratio's interval at which timing stops.
        budget_s: seconds after which timing stops at the next block pair once `min_blocks` are there.
        baselines: what a speed is held against besides the eager reference, see `BASELINES`; measured once for a task
            and kept on disk, which for ``compile`` takes as long as compiling does.
        flush_mib: size in MiB of the buffer written before each timed call to empty a GPU's L2 cache.
        flush_cpu_mib: the same for the caches of a CPU.
        deadlines: seconds per stage.
    """

    name: str
    summary: str = ""
    source: str = ""
    trials: int = 3
    law_trials: int = 7
    law_budget_s: float = 1.0
    input_sets: int = 2
    shape_trials: int = 1
    inputs_on: str = "device"
    allclose: Allclose | None = None
    error_factor: float = 8.0
    error_floor: float = 256.0
    error_floor_half: float = 4.0
    library_ops: str = "forbid"
    train_mode: bool | None = None
    precision: str = "fp32"
    warmup: int = 3
    min_blocks: int = 10
    max_blocks: int = 60
    block_us: float = 8_000.0
    max_block_calls: int = 20
    target_width: float = 0.01
    budget_s: float = 2.0
    baselines: tuple[str, ...] = ()
    flush_mib: int = 256
    flush_cpu_mib: int = 64
    deadlines: Deadlines = field(default_factory=Deadlines)

    def __post_init__(self) -> None:
        if self.library_ops not in LIBRARY_OPS:
            raise unknown_name("library_ops", self.library_ops, LIBRARY_OPS)
        if self.precision not in PRECISIONS:
            raise unknown_name("precision", self.precision, PRECISIONS)
        if self.inputs_on not in INPUTS_ON:
            raise unknown_name("inputs_on", self.inputs_on, INPUTS_ON)
        if self.allclose is not None and not isinstance(self.allclose, Allclose):
            raise InvalidOptionError(f"Protocol allclose must be an Allclose or None, got {self.allclose!r}.")
        for name in ("trials", "input_sets", "min_blocks", "max_block_calls"):
            if getattr(self, name) < 1:
                raise InvalidOptionError(f"Protocol {name} must be at least 1, got {getattr(self, name)!r}.")
        for name in ("law_trials", "shape_trials"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise InvalidOptionError(f"Protocol {name} must be an integer of at least 0, got {value!r}.")
        object.__setattr__(self, "baselines", tuple(self.baselines))  # JSON has lists only
        for name in self.baselines:
            if name not in BASELINES:
                raise unknown_name("baseline", name, BASELINES)
        if self.max_blocks < self.min_blocks:
            raise InvalidOptionError(
                f"Protocol max_blocks ({self.max_blocks}) must be at least min_blocks ({self.min_blocks})."
            )

    @property
    def tf32(self) -> tuple[bool, bool]:
        """Whether PyTorch may use TF32 in matrix products, and in convolutions."""
        return _TF32[self.precision]

    def replace(self, **changes: Any) -> Protocol:
        """A copy with some constants changed, named ``<name>+custom`` unless a name is given.

        Raises:
            UnknownNameError: for a name that is not a constant of a protocol.
        """
        names = [f.name for f in dataclasses.fields(self)]
        for name in changes:
            if name not in names:
                raise unknown_name("protocol constant", name, names)
        custom = self.name if self.name.endswith("+custom") else f"{self.name}+custom"
        return dataclasses.replace(self, **{"name": custom, **changes})

    def constants(self) -> dict[str, Any]:
        """What measurements and findings depend on: all but names, deadlines and what else is measured."""
        return {name: value for name, value in self.to_dict().items() if name not in _NO_CONSTANTS}

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Protocol:
        """The inverse of `to_dict`."""
        allclose = data.get("allclose")
        return cls(
            **{
                **data,
                "deadlines": Deadlines(**data["deadlines"]),
                "allclose": None if allclose is None else Allclose(**allclose),
            }
        )


def _presets() -> Mapping[str, Protocol]:
    from kernelgym_env.evaluation.presets import PRESETS  # which is made of this module's classes

    return PRESETS


def protocol_names() -> list[str]:
    """Names of all protocols, ``strict`` first and the others sorted."""
    return sorted(_presets(), key=lambda name: (name != "strict", name))


def get_protocol(name: str | Protocol) -> Protocol:
    """Look a protocol up; one that is given as such is returned.

    Raises:
        UnknownNameError: if there is none of that name.

    >>> get_protocol("strict").library_ops
    'forbid'
    >>> get_protocol(get_protocol("strict").replace(trials=1)).trials
    1
    """
    if isinstance(name, Protocol):
        return name
    try:
        return _presets()[name]
    except (KeyError, TypeError):
        raise unknown_name("protocol", name, protocol_names()) from None
