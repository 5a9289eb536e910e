"""Worked examples for prompts: small references, each with a kernel in every language that is judged correct.

- `Example` -- one of them in one language.
- `examples` -- the first few in a language.
- `NAMES` -- all of them, the simplest first.
"""

from __future__ import annotations

import importlib.resources
from dataclasses import dataclass

from kernelgym_env.errors import unknown_name

__all__ = ["LANGUAGES", "NAMES", "Example", "examples"]

NAMES = ("bias_gate", "row_rms")
"""An element-wise kernel with a parameter, and a reduction."""

LANGUAGES = {"triton": "Triton", "cuda": "CUDA", "cupy": "CuPy", "cpp": "C++"}
"""Languages by backend."""


@dataclass(frozen=True)
class Example:
    """A reference and a kernel for it.

    Attributes:
        name: one of `NAMES`.
        language: for people, e.g. ``C++``.
        reference: a task's source.
        source: a submission.
    """

    name: str
    language: str
    reference: str
    source: str


def examples(backend: str, count: int) -> list[Example]:
    """The first examples in a language.

    Args:
        backend: ``triton``, ``cuda``, ``cupy`` or ``cpp``.
        count: how many; at most as many as there are.

    Raises:
        UnknownNameError: for another backend.
    """
    if backend not in LANGUAGES:
        raise unknown_name("backend of an example", backend, LANGUAGES)
    folder = importlib.resources.files("kernelgym_env.prompts").joinpath("worked")

    def read(name: str, part: str) -> str:
        return folder.joinpath(f"{name}/{part}.py").read_text(encoding="utf-8")

    return [Example(name, LANGUAGES[backend], read(name, "reference"), read(name, backend)) for name in NAMES[:count]]
