"""Which value laws a task bears, found out when each is first wanted.

A law at some level is fit for a task if the reference does as well under it as under the task's own inputs: it does not
fail, gives no NaN or infinity of its own, is no worse conditioned than what honest rounding can be told from, and is
not matched by zeros, a constant or its input. Else the next milder level is tried, and after the last the law is
dropped. What was found is kept for the task's further submissions.

- `LawBook` -- the findings for one task, in one mode.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelgym_env.evaluation.correctness import Expected, compare, floor_of
from kernelgym_env.evaluation.laws import LEVELS, vary
from kernelgym_env.evaluation.protocols import Protocol
from kernelgym_env.evaluation.reference import Case, Reference, TaskError, clone, flat, map_tensors
from kernelgym_env.tasks.model import INPUT_LAWS, Task

__all__ = ["LawBook"]

_WORSE = 2.0
_SLACK = 4.0
_SLOW_S = 0.25
_LARGE_BYTES = 1 << 30


@dataclass(frozen=True)
class _Health:
    """How the reference does on some inputs.

    Attributes:
        nans: NaN elements per output.
        nonfinite: NaN and infinite elements per output.
        error: greatest error of the reference, in units of the floor of what is allowed.
        swing: the same for the oracle's answer to inputs that are off by half a rounding step; NaN if not asked for.
    """

    nans: list[int]
    nonfinite: list[int]
    error: float
    swing: float

    def problem(self, usual: _Health, slack: float = 1.0) -> str:
        """Why these inputs are not fit, measured by the usual ones; ``""`` if they are."""
        if any(a > b for a, b in zip(self.nans + self.nonfinite, usual.nans + usual.nonfinite, strict=True)):
            return "its reference is not finite"
        for mine, theirs in ((self.error, usual.error), (self.swing, usual.swing)):
            if not math.isnan(theirs) and mine > slack * max(1.0, _WORSE * theirs):
                return "its reference is ill-conditioned"
        return ""


class LawBook:
    """The value laws of one task.

    Args:
        task: the task; its `input_laws` say which laws are tried.

    Attributes:
        dropped: why, by the name of each law that the task does not bear.
        levels: the level at which each law found fit is applied, by name.
    """

    def __init__(self, task: Task) -> None:
        self.names = INPUT_LAWS if task.input_laws is None else task.input_laws
        self.chosen = task.input_laws is not None
        self.dropped: dict[str, str] = {}
        self.levels: dict[str, int] = {}
        self._usual: _Health | None = None
        self._lasts = False

    def to_dict(self) -> dict[str, Any]:
        """What was found, as plain data; nothing where it might come out otherwise on a machine that is less busy."""
        if self._usual is None or not self._lasts:
            return {"dropped": {}, "levels": {}, "usual": None}
        return {"dropped": dict(self.dropped), "levels": dict(self.levels), "usual": asdict(self._usual)}

    def add(self, found: Mapping[str, Any]) -> None:
        """Take over what another book has found for the same task, where this one knows nothing.

        Args:
            found: from `to_dict`.

        Raises:
            KeyError, TypeError: if it has another form.
        """
        if found["usual"] is None:
            return
        if self._usual is None:
            self._usual, self._lasts = _Health(**found["usual"]), True
        unknown = set(self.names) - set(self.dropped) - set(self.levels)
        self.dropped |= {name: str(why) for name, why in found["dropped"].items() if name in unknown}
        self.levels |= {name: int(level) for name, level in found["levels"].items() if name in unknown}

    def order(self, seed: int) -> list[str]:
        """The laws that are not dropped, in a secret order, which does not depend on what is known."""
        names = list(self.names)
        random.Random(seed).shuffle(names)
        return [name for name in names if name not in self.dropped]

    def learn(self, reference: Reference, case: Case) -> None:
        """Note, once, how the reference does on its usual inputs."""
        if self._usual is None:
            reference.expect(case)
            usual = _health(reference, case, swing=_affordable(reference, case))
            if reference.device.type == "cuda" and not self.chosen and _makes_indices(reference, case.inputs):
                # an index out of range ends a CUDA context, and the judge with it
                self.dropped = {name: "its reference makes integers of its inputs" for name in self.names}
            # a machine that was too busy or too full to ask for the swing may be neither the next time
            self._lasts = not math.isnan(usual.swing) or _is_large(reference, case)
            self._usual = usual

    def admit(self, reference: Reference, name: str, seed: int) -> bool:
        """Whether the task bears a law; found out on inputs of its own where that is not known yet."""
        for level in range(LEVELS[name]) if name not in self.levels and name not in self.dropped else ():
            problem = self._try(reference, name, seed + level, level)
            if not problem:
                self.levels[name] = level
                break
            if level + 1 == LEVELS[name]:
                self.dropped[name] = problem
        return name in self.levels

    def case(self, reference: Reference, name: str, seed: int, like: Case) -> Case | None:
        """Inputs under an admitted law, of the form of another case; None if these turn out otherwise."""
        inputs = vary(name, reference.draw(seed), seed, self.levels[name])
        case = None if inputs is None else reference.case_of(inputs)
        return case if case is not None and case.tree == like.tree else None

    def holds(self, reference: Reference, case: Case) -> bool:
        """Whether the reference does well on these inputs too; fills in what is expected of the case."""
        assert self._usual is not None
        try:
            reference.expect(case)
        except TaskError:
            return False
        return not _health(reference, case, swing=False).problem(self._usual, _SLACK)

    def _try(self, reference: Reference, name: str, seed: int, level: int) -> str:
        """Why a law is not fit at some level, ``""`` if it is."""
        assert self._usual is not None
        inputs = vary(name, reference.draw(seed), seed, level)
        if inputs is None:
            return "it changes nothing"
        case = Case(inputs, {}, 0, [], [])
        try:
            reference.expect(case)
        except TaskError as error:
            return str(error)
        health = _health(reference, case, swing=_affordable(reference, case))
        problem = health.problem(self._usual)
        if not problem and (answer := reference.null_answer(case)):
            problem = f"{answer} would pass"
        return problem


def _affordable(reference: Reference, case: Case) -> bool:
    """Whether to ask the oracle once more: not where that takes long or needs much memory."""
    return reference.expect_s < _SLOW_S and not _is_large(reference, case)


def _is_large(reference: Reference, case: Case) -> bool:
    size = sum(value.nbytes for value in flat(case.inputs) if isinstance(value, torch.Tensor)) + reference.out_size
    return size >= _LARGE_BYTES


def _health(reference: Reference, case: Case, *, swing: bool) -> _Health:
    """Look at the reference on a case whose expected values are known."""
    floats = [wanted for wanted in case.expected if wanted.reference.is_floating_point()]
    error = max((_own_error(wanted, reference.protocol) for wanted in floats), default=0.0)
    worst = float("nan")
    if swing:
        near = reference.oracle(_nudged(case.inputs))
        outputs = [] if near is None else [value for value in flat(near) if isinstance(value, torch.Tensor)]
        if len(outputs) == len(case.expected):
            pairs = [
                (value, dataclasses.replace(wanted, reference_error=0.0))
                for value, wanted in zip(outputs, case.expected, strict=True)
                if wanted.oracle is not None and value.shape == wanted.reference.shape
            ]
            worst = max((compare(value, wanted, reference.protocol).ratio for value, wanted in pairs), default=0.0)
    counts = [_specials(wanted.reference) for wanted in floats]
    return _Health([nans for nans, _ in counts], [nonfinite for _, nonfinite in counts], error, worst)


def _own_error(wanted: Expected, protocol: Protocol) -> float:
    """The reference's greatest error in units of the floor, or an upper bound of it where that is small."""
    bound = wanted.reference_error / (floor_of(wanted.reference.dtype, protocol) * wanted.rms or math.inf)
    if bound <= 1.0:
        return bound
    # without the reference's own error what is left of the allowed one is the floor
    return compare(wanted.reference, dataclasses.replace(wanted, reference_error=0.0), protocol).ratio


def _specials(tensor: torch.Tensor) -> tuple[int, int]:
    """NaN elements, and those that are NaN or infinite."""
    finite = torch.isfinite(tensor)
    return (0, 0) if bool(finite.all()) else (int(torch.isnan(tensor).sum()), int((~finite).sum()))


def _nudged(inputs: list[Any]) -> list[Any]:
    """Inputs in float64, each float off by half a rounding step of its dtype, up or down."""

    def nudge(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            return tensor
        exact = tensor.double()
        sign = torch.randint_like(exact, 2) * 2 - 1
        return exact * (1 + 0.5 * torch.finfo(tensor.dtype).eps * sign)

    return [map_tensors(nudge, value) for value in inputs]


class _Conversions(TorchDispatchMode):
    """Notes whether a tensor of floats is converted to integers."""

    found = False

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        source = next((value for value in reversed(args) if isinstance(value, torch.Tensor)), None)
        copies = function.overloadpacket in (torch.ops.aten._to_copy, torch.ops.aten.copy_)
        if copies and source is not None and source.is_floating_point() and isinstance(result, torch.Tensor):
            whole = not result.is_floating_point() and not result.is_complex() and result.dtype != torch.bool
            self.found = self.found or whole
        return result


def _makes_indices(reference: Reference, inputs: list[Any]) -> bool:
    with _Conversions() as seen:
        reference.run(clone(inputs))
    return seen.found
