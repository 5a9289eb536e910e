"""A task that is being composed.

- `Dim` -- one extent of a tensor: how it is written, and what it is on each kind of device.
- `Draft` -- the text so far, and the shape of the tensor that the next operator takes.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from kernelgym_env.tasks.model import DEVICE_KINDS

__all__ = ["Dim", "Draft"]

_LINE = 100


@dataclass(frozen=True)
class Dim:
    """One extent of a tensor.

    Attributes:
        text: the expression in the task's source.
        sizes: its value by kind of device.
    """

    text: str
    sizes: Mapping[str, int]

    def divided(self, by: int) -> Dim:
        """The extent over a number that divides it, see `divisible`."""
        return Dim(f"{self.atom} // {by}", {kind: size // by for kind, size in self.sizes.items()})

    def times(self, by: int) -> Dim:
        """A multiple of the extent."""
        return Dim(f"{self.atom} * {by}", {kind: size * by for kind, size in self.sizes.items()})

    def divisible(self, by: int) -> bool:
        """Whether a number divides it on every device."""
        return all(size % by == 0 for size in self.sizes.values())

    @property
    def atom(self) -> str:
        """The expression, in brackets if it is more than a name."""
        return self.text if self.text.isidentifier() else f"({self.text})"


@dataclass
class Draft:
    """A task that is being composed; the tensor at hand is called ``x``.

    Attributes:
        layout: ``matrix`` (rows, columns), ``sequence`` (batch, channels, length) or ``image`` (batch, channels,
            height, width).
        shape: of ``x`` as it is now.
        rng: what decides.
        constants: sizes by name and kind of device.
        inputs: expressions of the arguments by name.
        init: lines of the constructor.
        forward: lines of ``forward``.
        words: what has been done, for the title.
    """

    layout: str
    shape: list[Dim]
    rng: random.Random
    constants: dict[str, dict[str, int]] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)
    init: list[str] = field(default_factory=list)
    forward: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)

    def constant(self, name: str, sizes: Mapping[str, int]) -> Dim:
        """A new size with a name of its own."""
        number = 1
        while (unique := name if number == 1 else f"{name}_{number}") in self.constants:
            number += 1
        self.constants[unique] = dict(sizes)
        return Dim(unique, dict(sizes))

    def tensor(self, shape: list[Dim], scale: str = "") -> str:
        """A further argument, drawn from a normal distribution."""
        name = next(letter for letter in "yzuvwabcd" if letter not in self.inputs)
        self.inputs[name] = f"{scale}{_randn(shape)}"
        return name

    def parameter(self, shape: list[Dim], stem: str, expression: str = "{}") -> str:
        """A parameter of the module, drawn from a normal distribution; ``{}`` stands for the draw."""
        name = f"{stem}_{len(self.init)}"
        self.init.append(f"self.{name} = nn.Parameter({expression.format(_randn(shape))})")
        return f"self.{name}"

    def module(self, stem: str, expression: str) -> str:
        """A module of the module."""
        name = f"{stem}_{len(self.init)}"
        self.init.append(f"self.{name} = {expression}")
        return f"self.{name}"

    def step(self, expression: str) -> None:
        """Let ``x`` be something else."""
        self.forward.append(f"x = {expression}")

    def source(self, summary: str) -> str:
        """The text of the task, at the sizes of a GPU."""
        used = {name: values["cuda"] for name, values in self.constants.items()}
        sizes = [f"{name} = {value}" for name, value in used.items()]
        names = ", ".join(["x", *self.inputs])
        first = _randn(self._first)
        drawn = [first, *self.inputs.values()]
        init = ["    def __init__(self):", "        super().__init__()", *(f"        {line}" for line in self.init), ""]
        lines = [
            f'"""{summary}"""',
            "",
            "import torch",
            "import torch.nn as nn",
            "import torch.nn.functional as F",
            "",
            *sizes,
            "",
            "",
            "class Model(nn.Module):",
            *(init if self.init else []),
            f"    def forward(self, {names}):",
            *(f"        {line}" for line in self.forward),
            "        return x",
            "",
            "",
            "def get_inputs():",
            f"    return [{', '.join(drawn)}]",
            "",
            "",
            "def get_init_inputs():",
            "    return []",
            "",
        ]
        return "\n".join(lines)

    def __post_init__(self) -> None:
        self._first = list(self.shape)

    def elements(self, kind: str) -> int:
        """Elements of ``x`` as it is now on a kind of device."""
        assert kind in DEVICE_KINDS
        count = 1
        for dim in self.shape:
            count *= dim.sizes[kind]
        return count


def _randn(shape: list[Dim]) -> str:
    return f"torch.randn({', '.join(dim.text for dim in shape)})"
