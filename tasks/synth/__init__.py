"""Tasks that are made: composed of torch's operators from a seed, or read from pairs of module and kernel.

- `generate` -- composes tasks of one to five operators.
- `nearest` -- the problem of KernelBench that a reference is most like.
- `OPERATORS` -- what tasks are composed of.
- `sift` -- which tasks work, and are worth solving, on a device.
- `read_pairs` -- tasks and kernels from data sets of pairs.
"""

from __future__ import annotations

from kernelgym_env.tasks.synth.generate import generate, nearest
from kernelgym_env.tasks.synth.operators import OPERATORS
from kernelgym_env.tasks.synth.pairs import read_pairs
from kernelgym_env.tasks.synth.sift import sift

__all__ = ["OPERATORS", "generate", "nearest", "read_pairs", "sift"]
