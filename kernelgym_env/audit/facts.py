"""The facts of one task under one protocol, from its reference alone.

- `measure` -- all of them.

`kernelgym_env.evaluation.reference.Reference` computes the expected values and says what would be accepted, exactly as
in the judging of a submission; it draws the inputs on the device under every protocol. What cannot be found out (the
device's memory is full, say) is listed with the reason, and the rest is found out all the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from kernelgym_env.audit import clocks, precision
from kernelgym_env.evaluation.buffers import describe
from kernelgym_env.evaluation.correctness import Expected, compare
from kernelgym_env.evaluation.protocols import Protocol
from kernelgym_env.evaluation.reference import (
    Case,
    Reference,
    TaskError,
    best_constant,
    clone,
    derive_seed,
    extremes,
    flat,
    null_answers,
)
from kernelgym_env.evaluation.weights import redraw, tensors_of
from kernelgym_env.tasks.model import Task

__all__ = ["measure"]

_KEY = b"kernelgym audit"  # the facts of a task are to be found again, so these seeds are no secret
_REASON_CHARS = 300
_MOST_ARGUMENTS = 8
_RANDOM = "is not deterministic"
_OUT_OF_MEMORY = "out of memory"


def measure(task: Task, protocol: Protocol, device: str, *, backend: str = "") -> dict[str, Any]:
    """Find out the facts of a task under a protocol.

    Args:
        task: sized for the device.
        protocol: how answers would be judged.
        device: ``"cpu"`` or ``"cuda:0"``.
        backend: of `torch.compile`, to see whether the reference works with it; ``""`` leaves that out.

    Returns:
        Plain data. ``state`` is ``ok``; ``fails``, with ``why``, where the reference does not work; or ``memory`` where
        not even one call fits. Then, as far as they could be found out (``unmeasured`` has the reasons of the others):

        - ``judge``: why the judge would call the task invalid, ``""`` if it would not.
        - ``accepted``: which answers without the work pass: ``zeros``, ``constant``, ``input``, ``other_seed`` (the
          output for other inputs), ``reseeded`` and ``redrawn`` (the output of other weights: of another seed, or
          overwritten as the judge does), each True, False, or None where there is no such answer.
        - ``ignored``: numbers of the arguments whose values do not matter.
        - ``sensitivity``: RMS of the difference that other inputs make, over the RMS of the output.
        - ``noise``: the same of a second equal call; ``random``: whether that second output would fail, or the judge
          calls the reference random. Then ``accepted`` and ``precision`` say nothing.
        - ``precision``: by format, whether it passes for a float32 task, and ``how`` it was tried.
        - ``time_us``, ``wall_us``, ``launch_us``: median of a call on the device's clock, a call among many on the
          wall's, and the least that any call costs.
        - ``bytes``: of inputs, weights and output, the peak of one call and of the whole audit.
        - ``compiled``: with a backend, its name, whether the compiled reference ``passes``, and ``why`` it does not.
        - ``finite``: share of finite elements in the output; ``rms``: root mean square of the output.
    """
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = protocol.tf32
    return _Audit(task, protocol, device, backend).facts()


class _Audit:
    """One audit in progress."""

    def __init__(self, task: Task, protocol: Protocol, device: str, backend: str) -> None:
        self.backend = backend
        self.task = task
        # which numbers they are does not matter here, and a CPU would take seconds to draw what a GPU draws at once
        self.protocol = protocol.replace(inputs_on="device")
        self.device = device
        self.found: dict[str, Any] = {"state": "ok", "unmeasured": {}}

    def seed(self, part: str) -> int:
        return derive_seed(_KEY, self.task.hash, part)

    def facts(self) -> dict[str, Any]:
        try:
            reference = Reference(self.task, self.device, self.seed("weights"), self.protocol)
            reference.construct()
            inputs = reference.draw(self.seed("a"))
            self.found.update(clocks.measure(reference, clone(inputs)))
        except TaskError as error:
            return {"state": "fails", "why": str(error)[:_REASON_CHARS]}
        except torch.cuda.OutOfMemoryError:
            return {"state": "memory"}
        except BaseException as error:  # a reference may raise what is no Exception, which nothing of ours does
            if isinstance(error, (Exception, KeyboardInterrupt)):
                raise
            return {"state": "fails", "why": f"the reference raises {type(error).__name__}: {error}"[:_REASON_CHARS]}
        self.step("judge", lambda: self.judge(reference))
        if not reference.out_tree:
            return {**self.found, "state": "fails", "why": self.found.get("judge", _OUT_OF_MEMORY)}
        self.found["bytes"].update(
            inputs=describe(inputs, dense=False)[1], weights=reference.weight_size, output=reference.out_size
        )
        case = reference.case_of(inputs)
        self.step("expected", lambda: self.expected(reference, case))
        if case.expected:
            for part in (self.null, self.repeated, self.inputs, self.weights, self.precision):
                self.step(part.__name__, lambda part=part: part(reference, case))  # type: ignore[misc]
        self.found["bytes"]["audit"] = clocks.peak_bytes(reference.device)
        if self.backend and case.expected:
            self.step("compiled", lambda: self.compiled(reference, case))  # last: the compiler takes memory of its own
        return self.found

    def step(self, name: str, work: Callable[[], dict[str, Any]]) -> None:
        try:
            for key, value in work().items():
                if isinstance(value, dict):
                    self.found.setdefault(key, {}).update(value)
                else:
                    self.found[key] = value
        except TaskError as error:
            self.found["unmeasured"][name] = str(error)[:_REASON_CHARS]
        except torch.cuda.OutOfMemoryError:
            self.found["unmeasured"][name] = _OUT_OF_MEMORY
        if self.device != "cpu":
            torch.cuda.empty_cache()

    # the steps

    def judge(self, reference: Reference) -> dict[str, Any]:
        try:
            reference.probe(self.seed("a"))
        except TaskError as error:
            return {"judge": str(error)[:_REASON_CHARS]}
        return {"judge": ""}

    def expected(self, reference: Reference, case: Case) -> dict[str, Any]:
        reference.expect(case)
        shares = [
            float(torch.isfinite(wanted.reference).float().mean())
            for wanted in case.expected
            if wanted.reference.numel() and wanted.reference.is_floating_point()
        ]
        return {
            "finite": min(shares, default=1.0),
            "rms": max((wanted.rms for wanted in case.expected), default=0.0),
        }

    def null(self, reference: Reference, case: Case) -> dict[str, Any]:
        """Zeros, and a copy of an input."""
        given = [value for value in flat(case.inputs) if isinstance(value, torch.Tensor)]
        zeros, copied, alike = True, True, True
        for wanted in case.expected:
            if not wanted.reference.numel():
                continue  # without elements there is nothing to be right
            answers = list(null_answers(wanted, given, self.protocol))
            zeros = zeros and reference.passes(answers[0][1], wanted)
            copies = [tensor for name, tensor in answers if name == "a copy of an input"]
            alike = alike and bool(copies)
            copied = copied and any(reference.passes(tensor, wanted) for tensor in copies)
        return {"accepted": {"zeros": zeros, "input": copied if alike else None}}

    def repeated(self, reference: Reference, case: Case) -> dict[str, Any]:
        again = _tensors(reference.run(clone(case.inputs)))
        # the judge looks at two outputs without the scale of an oracle, which a random reference makes meaningless
        random = _RANDOM in self.found.get("judge", "") or not self.accepts(again, case)
        return {"noise": _difference(again, case), "random": random}

    def inputs(self, reference: Reference, case: Case) -> dict[str, Any]:
        """Answers that do not depend on the inputs: outputs for others, one number for all of them."""
        ranges = [_range(wanted.reference) for wanted in case.expected]
        accepted, sensitivity = True, math.inf
        for part in ("b", "c"):
            other = reference.draw(self.seed(part))
            output = _tensors(reference.run(other))
            if not _alike(output, case):
                accepted, ranges = False, []
                break
            accepted = accepted and self.accepts(output, case)
            sensitivity = min(sensitivity, _difference(output, case))
            ranges = [
                (min(low, mine[0]), max(high, mine[1]))
                for (low, high), mine in zip(ranges, map(_range, output), strict=True)
            ]
        constant = bool(ranges) and all(
            self.constant(reference, wanted, low, high)
            for wanted, (low, high) in zip(case.expected, ranges, strict=True)
        )
        return {
            "accepted": {"other_seed": accepted, "constant": constant},
            "sensitivity": sensitivity if math.isfinite(sensitivity) else None,
            "ignored": self.ignored(reference, case),
        }

    def constant(self, reference: Reference, wanted: Expected, low: float, high: float) -> bool:
        """Whether one number passes for the outputs of all sets of inputs, whose values go from `low` to `high`."""
        tensor = wanted.reference
        if tensor.is_complex() or low > high:
            return False
        number = best_constant(low, high, wanted, self.protocol)
        answer = torch.full((), number, dtype=torch.float64).to(tensor).expand_as(tensor)
        if not reference.passes(answer, wanted):
            return False
        # the ends of the range may be other inputs'; they stand in for their outputs
        ends = torch.tensor([low, high], dtype=torch.float64).to(tensor)
        stand_in = Expected("output", ends, None, wanted.reference_error, wanted.rms)
        return compare(answer.reshape(-1)[:1].expand(2), stand_in, self.protocol).ok

    def ignored(self, reference: Reference, case: Case) -> list[int]:
        """Arguments that another draw's can take the place of; of one that is alone `other_seed` says it."""
        places = [place for place, value in enumerate(case.inputs) if isinstance(value, torch.Tensor)]
        if not 1 < len(places) <= _MOST_ARGUMENTS:
            return []
        other = reference.draw(self.seed("b"))
        found = []
        for place in places:
            mixed = clone([*case.inputs[:place], other[place], *case.inputs[place + 1 :]])
            try:
                output = _tensors(reference.run(mixed))
            except TaskError:  # arguments that belong together, such as values and their lengths
                continue
            if self.accepts(output, case):
                found.append(place)
        return found

    def weights(self, reference: Reference, case: Case) -> dict[str, Any]:
        if not reference.weight_size:
            return {"accepted": {"reseeded": None, "redrawn": None}}
        other = Reference(self.task, self.device, self.seed("other weights"), self.protocol)
        other.construct()
        reseeded = self.accepts(_tensors(other.run(clone(case.inputs))), case)
        generator = torch.Generator(other.device).manual_seed(self.seed("redrawn"))
        with torch.no_grad():
            for tensor in tensors_of(other.model).values():
                tensor.copy_(redraw(tensor, generator))
        redrawn = self.accepts(_tensors(other.run(clone(case.inputs))), case)
        return {"accepted": {"reseeded": reseeded, "redrawn": redrawn}}

    def precision(self, reference: Reference, case: Case) -> dict[str, Any]:
        if not all(wanted.reference.dtype == torch.float32 for wanted in case.expected):
            return {"precision": {}}
        formats: dict[str, Any] = {}
        for name, how in precision.ways(reference.device):
            try:
                output = _tensors(precision.run(reference, case.inputs, name, how))
            except TaskError as error:
                self.found["unmeasured"][f"precision {name}"] = str(error)[:_REASON_CHARS]
                continue
            output = [tensor.to(wanted.reference) for tensor, wanted in zip(output, case.expected, strict=True)]
            formats[name] = {"passes": self.accepts(output, case), "how": how}
        return {"precision": formats}

    def compiled(self, reference: Reference, case: Case) -> dict[str, Any]:
        said = {"backend": self.backend, "passes": False, "why": ""}
        try:
            with torch.no_grad():
                output = _tensors(torch.compile(reference.model, backend=self.backend)(*clone(case.inputs)))
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:  # compilers raise whatever they like
            return {"compiled": {**said, "why": f"{type(error).__name__}: {error}"[:_REASON_CHARS]}}
        passes = self.accepts(output, case)
        return {"compiled": {**said, "passes": passes, "why": "" if passes else "its output differs"}}

    def accepts(self, output: list[torch.Tensor], case: Case) -> bool:
        if not _alike(output, case):
            return False
        return all(
            compare(tensor, wanted, self.protocol).ok for tensor, wanted in zip(output, case.expected, strict=True)
        )


def _tensors(output: Any) -> list[torch.Tensor]:
    return [value for value in flat(output) if isinstance(value, torch.Tensor)]


def _alike(output: list[torch.Tensor], case: Case) -> bool:
    return [(t.shape, t.dtype) for t in output] == [(w.reference.shape, w.reference.dtype) for w in case.expected]


def _range(tensor: torch.Tensor) -> tuple[float, float]:
    """Of an output's values; one that no number fits for what cannot be a number."""
    return (1.0, 0.0) if tensor.is_complex() or not tensor.numel() else extremes(tensor)


def _difference(output: list[torch.Tensor], case: Case) -> float:
    """RMS of the difference over the RMS of the output, the greatest of all outputs; share of unequal integers.

    Outputs of another structure differ without bounds.
    """
    if not _alike(output, case):
        return math.inf
    greatest = 0.0
    for tensor, wanted in zip(output, case.expected, strict=True):
        reference = wanted.reference
        if not tensor.numel():
            continue
        if not reference.is_floating_point() and not reference.is_complex():
            greatest = max(greatest, float((tensor != reference).float().mean()))
            continue
        gap = (tensor - reference).abs().float()
        gap = torch.where(torch.isfinite(gap), gap, 0)
        rms = float(gap.norm()) / math.sqrt(gap.numel())
        greatest = max(greatest, rms / wanted.rms if wanted.rms else (math.inf if rms else 0.0))
    return greatest
