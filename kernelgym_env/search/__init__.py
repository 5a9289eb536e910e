"""Search at test time: how to spend many evaluations on one task.

- `best_of_n` -- independent samples.
- `refine` -- trajectories of several turns, each seeing what became of the turns before.
- `beam` -- trajectories of which the best are kept and copied (Kevin).
- `stts` -- one long memory, of which a window of the best turns is shown (Dr. Kernel).
- `islands` -- populations that show kernels of different speed (CUDA-L1).
- `grid` -- the same number of evaluations in several shapes, e.g. 16x8, 32x4 and 128x1.
- `run_method` -- one of these by name.
- `Budget`, `Trial`, `SearchResult` -- what a search may spend, one evaluation, and what came out.

Each works with any policy and any pool, records every evaluation with its parent, and goes on after a break with the
same call.
"""

from __future__ import annotations

from kernelgym_env.search.methods import METHODS, beam, best_of_n, grid, islands, refine, run_method, stts
from kernelgym_env.search.result import Budget, SearchResult, Trial

__all__ = [
    "METHODS",
    "Budget",
    "SearchResult",
    "Trial",
    "beam",
    "best_of_n",
    "grid",
    "islands",
    "refine",
    "run_method",
    "stts",
]
