"""The trusted side: a task's reference loaded in the judge, its inputs drawn, its expected values computed.

Inputs and expected values live in the judge's own memory, which is never shared; what a candidate sees are copies.
"""

from __future__ import annotations

import copy
import hashlib
import hmac
import itertools
import math
import random
import sys
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy
import torch

from kernelgym_env.evaluation.buffers import TreeError, describe, describe_plain, give_back, leaves
from kernelgym_env.evaluation.correctness import Expected, compare, slope_of
from kernelgym_env.evaluation.protocols import Protocol
from kernelgym_env.evaluation.shortage import is_short
from kernelgym_env.evaluation.weights import tensors_of
from kernelgym_env.tasks.model import Task

__all__ = ["Case", "Reference", "TaskError", "best_constant", "derive_seed", "extremes", "null_answers"]

_counter = itertools.count()
_SAMPLE = 4096
_LEAST_FINITE = 0.01
"""Share of finite elements in an output up to which there is nothing to compare."""
_EQUAL_CALLS = 2
"""Calls that are held against the first one to find a random reference: one alone agrees with it now and then."""


class TaskError(Exception):
    """The task cannot be judged: its reference fails or is not a function of its inputs."""


def derive_seed(secret: bytes, *parts: object) -> int:
    """A 63-bit seed that only the holder of `secret` can know: HMAC-SHA256 over the parts.

    >>> derive_seed(b"k", "task", 1) == derive_seed(b"k", "task", 1) != derive_seed(b"k", "task", 2)
    True
    """
    text = "\0".join(str(part) for part in parts).encode()
    return int.from_bytes(hmac.new(secret, text, hashlib.sha256).digest()[:8], "big") >> 1


@dataclass
class Case:
    """One set of inputs and what a right answer to it is.

    Attributes:
        inputs: the judge's pristine arguments.
        tree: their description, with offsets for a shared buffer.
        size: bytes of such a buffer.
        expected: per output tensor.
        values: plain values in the output by path.
    """

    inputs: list[Any]
    tree: dict[str, Any]
    size: int
    expected: list[Expected]
    values: list[tuple[str, Any]]

    def forget(self) -> None:
        """Drop the expected values, after the reference's parameters have changed."""
        self.expected, self.values = [], []


class Reference:
    """A task's reference on one device. `construct` comes before anything else but reading `init`.

    Args:
        task: the task, already sized for the device.
        device: ``"cpu"`` or ``"cuda:0"``.
        weight_seed: seeds the constructor, on the candidate's side too.
        protocol: gives the mode and the constants of comparisons.

    Attributes:
        init: the constructor's arguments.
        init_tree: the same as plain data.
        out_tree: description of the output, known after `probe`.
        out_size: bytes of an output buffer.
        mutates: whether the reference writes into its inputs.
        weight_leaves: places of its parameters in a shared buffer, by name, known after `construct`.
        weight_size: bytes of such a buffer, 0 without parameters.
        expect_s: seconds that the last expected values took, oracle included.

    Raises:
        TaskError: if the source does not import.
    """

    def __init__(self, task: Task, device: str, weight_seed: int, protocol: Protocol) -> None:
        self.task = task
        self.device = torch.device(device)
        self.weight_seed = weight_seed
        self.protocol = protocol
        self.out_tree: dict[str, Any] = {}
        self.out_size = 0
        self.mutates = False
        self.weight_leaves: dict[str, dict[str, Any]] = {}
        self.weight_size = 0
        self.expect_s = 0.0
        self.model: Any = None
        self.module = types.ModuleType(f"kernelgym_reference_{next(_counter)}")
        with self._importable(), _task_errors("the reference does not load"):
            exec(compile(task.source, f"<{task.id}>", "exec"), self.module.__dict__)
            with _seeded(weight_seed, self.device):
                self.init = list(self.module.get_init_inputs())
            self.init_tree = describe_plain(self.init)

    def construct(self) -> None:
        """Construct the model.

        Raises:
            TaskError: if that fails.
        """
        with (
            self._importable(),
            _task_errors("the reference cannot be constructed"),
            _seeded(self.weight_seed, self.device),
            torch.no_grad(),
        ):
            self.model = self.module.Model(*self.init).to(self.device)
            if self.protocol.train_mode is not None:
                self.model.train(self.protocol.train_mode)
            for name, tensor in tensors_of(self.model).items():
                leaf, size = describe(tensor, dense=True)
                self.weight_leaves[name] = {**leaf, "offset": self.weight_size}
                self.weight_size += size

    @contextmanager
    def _importable(self) -> Iterator[None]:
        """What the source defines can be pickled and looked up while its code runs at module level."""
        sys.modules[self.module.__name__] = self.module
        try:
            yield
        finally:
            del sys.modules[self.module.__name__]

    def draw(self, seed: int) -> list[Any]:
        """Arguments from a seed, on the device.

        Factories without a device of their own make their tensors on the device directly; a task for which that
        fails draws on the CPU, as does every task where the protocol says so.
        """
        inputs = None
        if self.protocol.inputs_on == "device":
            try:
                with _seeded(seed, self.device), torch.device(self.device):
                    inputs = list(self.module.get_inputs())
            except Exception:  # code that is not meant for a default device; it gets its chance on the CPU
                inputs = None
        if inputs is None:
            with _task_errors("the reference's get_inputs fails"), _seeded(seed, self.device):
                inputs = list(self.module.get_inputs())
        inputs = [_to(value, self.device) for value in inputs]
        with _task_errors("the reference's inputs cannot be passed on"):
            describe(inputs, dense=False)
        return inputs

    def run(self, inputs: list[Any]) -> Any:
        """The reference's output on `inputs`, which it may overwrite.

        Raises:
            TaskError: if it raises.
        """
        with _task_errors("the reference fails"), torch.no_grad():
            return self.model(*inputs)

    def as_constructed(self) -> Reference:
        """The same reference with the parameters that its constructor gave it."""
        before = Reference(self.task, str(self.device), self.weight_seed, self.protocol)
        before.construct()
        before.out_tree, before.out_size, before.mutates = self.out_tree, self.out_size, self.mutates
        return before

    def oracle(self, inputs: list[Any]) -> Any | None:
        """The reference in float64, or None where it cannot be cast or does not fit."""
        try:
            model = copy.deepcopy(self.model).double()
            with torch.no_grad():
                return model(*[_to(value, self.device, torch.float64) for value in inputs])
        except Exception:  # a reference that insists on its own dtype has no exact answer but its own
            return None

    def probe(self, seed: int) -> None:
        """Learn the output's structure, and whether the reference is fit to judge by and writes into its inputs.

        Raises:
            TaskError: if it is not deterministic, returns what cannot be compared or hardly a finite value, or is
                matched by zeros, a constant or its own input.
        """
        inputs = self.draw(seed)
        used = clone(inputs)
        first = self.run(used)
        self.mutates = not _same(inputs, used)
        try:
            self.out_tree, self.out_size = describe(first, dense=True)
        except TreeError as error:
            raise TaskError(f"the reference returns {error}") from error
        if not any(isinstance(value, torch.Tensor) and value.numel() for value in flat(first)):
            raise TaskError("the reference returns no tensor with an element in it: there is nothing to compute")
        for _ in range(_EQUAL_CALLS):
            again = self.run(clone(inputs))
            if describe(again, dense=True)[0] != self.out_tree:
                raise TaskError(
                    "the reference is not deterministic: its output's structure differs between two equal calls"
                )
            for (path, leaf), one, two in zip(leaves(self.out_tree), flat(first), flat(again), strict=True):
                if leaf["t"] == "tensor" and not _close(one, two):
                    raise TaskError(f"the reference is not deterministic: {path} differs between two equal calls")
        case = Case(inputs, {}, 0, [], [])
        self.expect(case)
        for wanted in case.expected:
            if _finite_share(wanted.reference) <= _LEAST_FINITE:
                raise TaskError(
                    f"{wanted.path} is NaN or infinite in nearly all elements, which a constant would match"
                )
        answer = self.null_answer(case)
        if answer:
            raise TaskError(f"the task asks for no computation: {answer} in place of its output would pass")

    def null_answer(self, case: Case) -> str:
        """What passes for a case's output without a computation: zeros, a constant, a copy of an input; else ``""``.

        Outputs of one element are left out; each of the others may be matched by another of the three.
        """
        larger = [wanted for wanted in case.expected if wanted.reference.numel() > 1]
        given = [value for value in flat(case.inputs) if isinstance(value, torch.Tensor)]
        found = ""
        for wanted in larger:
            answers = null_answers(wanted, given, self.protocol)
            answer = next((name for name, tensor in answers if self.passes(tensor, wanted)), "")
            if not answer:
                return ""
            found = found or answer
        return found

    def passes(self, answer: torch.Tensor, wanted: Expected) -> bool:
        """Whether a tensor of the output's shape and dtype would be accepted in its place."""
        step = max(1, answer.numel() // _SAMPLE)
        # one wrong element is enough, and a sample nearly always has one
        samples = ((answer.reshape(-1)[::every], wanted.sample(every)) for every in sorted({step, 1}, reverse=True))
        return all(compare(part, expected, self.protocol).ok for part, expected in samples)

    def case(self, seed: int) -> Case:
        """Draw inputs; the expected values follow with `expect`, after the candidate has answered."""
        return self.case_of(self.draw(seed))

    def case_of(self, inputs: list[Any]) -> Case:
        """A case of given inputs."""
        tree, size = describe(inputs, dense=False)
        return Case(inputs, tree, size, [], [])

    def expect(self, case: Case) -> None:
        """Fill in the expected values of a case once.

        Raises:
            TaskError: if the output's structure changes with the inputs.
        """
        if case.expected or case.values:
            return
        start = time.perf_counter()
        result = self.run(clone(case.inputs))
        tree, _ = describe(result, dense=True)
        if tree != self.out_tree:
            raise TaskError("the shape of the reference's output depends on the input's values")
        exact = self.oracle(clone(case.inputs))
        places = leaves(tree)
        exact_flat = flat(exact) if exact is not None else [None] * len(places)
        if len(exact_flat) != len(places):
            exact_flat = [None] * len(places)
        for (path, leaf), value, good in zip(places, flat(result), exact_flat, strict=True):
            if leaf["t"] == "tensor":
                fits = isinstance(good, torch.Tensor) and good.shape == value.shape and good.dtype == torch.float64
                case.expected.append(Expected.of(path, value, good if fits else None))
            else:
                case.values.append((path, value))
        self.expect_s = time.perf_counter() - start

    def hand_over(self) -> None:
        """Before another process runs: wait until what was launched here is done, and leave it the device's memory."""
        if self.device.type != "cuda":
            return
        torch.cuda.synchronize(self.device)
        give_back(self.device)

    def deliver(self, case: Case, views: list[Any]) -> None:
        """Write a case's inputs into the shared buffer's views."""
        for source, target in zip(flat(case.inputs), flat(views), strict=True):
            if isinstance(source, torch.Tensor):
                _storage_line(target).copy_(_storage_line(source))

    def untouched(self, case: Case, views: list[Any]) -> bool:
        """Whether the shared buffer's views still hold the case's inputs, bit for bit."""
        pairs = zip(flat(case.inputs), flat(views), strict=True)
        return all(
            torch.equal(_storage_line(a).view(torch.uint8), _storage_line(b).view(torch.uint8))
            for a, b in pairs
            if isinstance(a, torch.Tensor) and a.numel()
        )


def _close(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether two outputs of equal calls agree up to the noise of atomic operations."""
    if one.is_complex():
        one, two = torch.view_as_real(one.resolve_conj()), torch.view_as_real(two.resolve_conj())
    return torch.allclose(one.double(), two.double(), rtol=1e-3, atol=1e-5, equal_nan=True)


def null_answers(
    wanted: Expected, inputs: list[torch.Tensor], protocol: Protocol
) -> Iterator[tuple[str, torch.Tensor]]:
    """Answers to try in place of an output; a copy of an input is a candidate if it has the output's form."""
    output = wanted.reference
    yield "zeros", torch.zeros_like(output)
    yield "a constant", _constant_like(wanted, protocol)
    for value in inputs:
        if value.shape == output.shape and value.dtype == output.dtype:
            yield "a copy of an input", value


def _finite_share(tensor: torch.Tensor) -> float:
    if not tensor.numel() or not (tensor.is_floating_point() or tensor.is_complex()):
        return 1.0
    return int(torch.isfinite(tensor).sum()) / tensor.numel()


def _constant_like(wanted: Expected, protocol: Protocol) -> torch.Tensor:
    tensor = wanted.reference
    if tensor.is_complex():
        return tensor.nan_to_num(0.0, 0.0, 0.0).mean().expand_as(tensor)
    low, high = extremes(tensor)
    return torch.full((), best_constant(low, high, wanted, protocol), dtype=torch.float64).to(tensor).expand_as(tensor)


def extremes(tensor: torch.Tensor) -> tuple[float, float]:
    """The least and the greatest finite value of a real tensor, ``(0.0, 0.0)`` if it has none."""
    if not tensor.numel():
        return 0.0, 0.0
    low, high = (float(value) for value in tensor.reshape(-1).aminmax())
    if not (math.isfinite(low) and math.isfinite(high)):
        kept = tensor[torch.isfinite(tensor)]
        low, high = (float(kept.min()), float(kept.max())) if kept.numel() else (0.0, 0.0)
    return low, high


def best_constant(low: float, high: float, wanted: Expected, protocol: Protocol) -> float:
    """The number that is accepted for values from `low` to `high` if any number is.

    Both rules of `kernelgym_env.evaluation.correctness` allow an error that grows with the value's size, a + b·|value|.
    For b < 1, value + a + b·|value| grows with the value and so does value - a - b·|value|: a number fits all values if
    it fits the least and the greatest, and if any does the middle of what these two allow is one.
    """
    slope = slope_of(wanted.reference.dtype, protocol)
    return (low + slope * abs(low) + high - slope * abs(high)) / 2


@contextmanager
def _task_errors(what: str) -> Iterator[None]:
    """Blame the task for an exception; running out of device memory is nobody's fault here."""
    try:
        yield
    except (Exception, SystemExit) as error:
        if isinstance(error, RuntimeError) and is_short(str(error)):
            raise
        raise TaskError(f"{what}: {type(error).__name__}: {error}") from error


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Every generator seeded as the harness does it; torch's are put back after the block."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        random.seed(seed)
        numpy.random.seed(seed % 2**32)
        torch.manual_seed(seed)
        yield


def flat(value: Any) -> list[Any]:
    """Tensors and plain values of a pytree in the order of `describe`."""
    return list(_flat(value, describe(value, dense=True)[0]))


def _flat(node: Any, shape: dict[str, Any]) -> Iterator[Any]:
    # no inner function: one that calls itself keeps what it saw until the garbage collector comes round, here tensors
    if shape["t"] in ("tensor", "value"):
        yield node
        return
    items = [node[key] for key in shape["keys"]] if shape["t"] == "dict" else node
    for item, below in zip(items, shape["items"], strict=True):
        yield from _flat(item, below)


def map_tensors(change: Callable[[torch.Tensor], torch.Tensor], value: Any) -> Any:
    """A pytree of arguments with each tensor replaced by what `change` makes of it; all else stays."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: map_tensors(change, item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [map_tensors(change, item) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    return value


def clone(value: Any) -> Any:
    """A copy of a pytree of arguments; its tensors have the same strides."""
    return map_tensors(_clone, value)


def _clone(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.numel():
        return tensor.clone()
    return _storage_line(tensor).clone().as_strided(tensor.shape, tensor.stride())


def _storage_line(tensor: torch.Tensor) -> torch.Tensor:
    """The elements a strided tensor reaches over, as one flat view; overlapping elements come once."""
    if not tensor.numel():
        return tensor.reshape(-1)
    count = 1 + sum((extent - 1) * step for extent, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.detach().as_strided((count,), (1,))


def _to(value: Any, device: torch.device, dtype: torch.dtype | None = None) -> Any:
    """Move the tensors of a pytree to a device, floating ones to a dtype; strides are kept."""

    def move(tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor.detach()
        wanted = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
        if tensor.device == device and wanted == tensor.dtype:
            return tensor
        if not tensor.numel():
            return tensor.to(device, wanted)
        return _storage_line(tensor).to(device, wanted).as_strided(tensor.shape, tensor.stride())

    return map_tensors(move, value)


def _same(one: list[Any], two: list[Any]) -> bool:
    return all(
        torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)) if isinstance(a, torch.Tensor) else a == b
        for a, b in zip(flat(one), flat(two), strict=True)
    )
