"""KernelBench: the numbering of its 270 problems, and readers and writers of its files.

The problems themselves are not part of this package; `load` reads them from ``KERNELBENCH_DIR``, else from what
`kernelgym tasks fetch kernelbench` brought.

- `IDS`, `LEVELS`, `make_id`, `parse_id` -- the numbering.
- `CATEGORIES`, `FLAWS`, `flaw_tags` -- what is known of the problems.
- `PARTS`, `REPRESENTATIVE`, `kevin_split` -- named sets of them.
- `build`, `load`, `problem_names` -- the data.
- `VERSIONS`, `identify` -- which published version some problems are.

Modules beside these: `fetch` brings the data set from the Hugging Face Hub; `runs` and `baselines` read and write
results; `requirements` says what level 4 needs.
"""

from __future__ import annotations

from kernelgym_env.tasks.kernelbench.categories import CATEGORIES
from kernelgym_env.tasks.kernelbench.flaws import FLAWS, flaw_tags
from kernelgym_env.tasks.kernelbench.ids import IDS, LEVELS, make_id, parse_id
from kernelgym_env.tasks.kernelbench.loader import build, load, problem_names
from kernelgym_env.tasks.kernelbench.subsets import PARTS, REPRESENTATIVE, kevin_split
from kernelgym_env.tasks.kernelbench.versions import VERSIONS, identify

__all__ = [
    "CATEGORIES",
    "FLAWS",
    "IDS",
    "LEVELS",
    "PARTS",
    "REPRESENTATIVE",
    "VERSIONS",
    "build",
    "flaw_tags",
    "identify",
    "kevin_split",
    "load",
    "make_id",
    "parse_id",
    "problem_names",
]
