"""KernelBench: the numbering of its 270 problems, and a reader for data that the user has.

The problems themselves are not part of this package; `load` reads them from ``KERNELBENCH_DIR``.
"""

from __future__ import annotations

from kernelgym_env.tasks.kernelbench.flaws import FLAWS, flaw_tags
from kernelgym_env.tasks.kernelbench.ids import IDS, LEVELS, make_id, parse_id
from kernelgym_env.tasks.kernelbench.loader import build, load

__all__ = ["FLAWS", "IDS", "LEVELS", "build", "flaw_tags", "load", "make_id", "parse_id"]
