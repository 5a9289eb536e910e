"""Named sets of KernelBench's problems.

- `REPRESENTATIVE` -- numbers of the problems in KernelBench's own small subset.
- `kevin_split` -- 180 problems to train on and 20 held out.
- `PARTS` -- ids by the name of the set.

| name | problems |
|---|---|
| ``KernelBench/L1`` … ``KernelBench/L4`` | one level |
| ``KernelBench/250`` | levels 1 to 3, over which published results are reported |
| ``KernelBench/Representative`` | 35 of levels 1 to 3, chosen by KernelBench's authors; five have known flaws |
| ``KernelBench/Kevin-train``, ``KernelBench/Kevin-held-out`` | `kevin_split` with seed 0 |
"""

from __future__ import annotations

from kernelgym_env.tasks.kernelbench.ids import LEVELS, make_id, parse_id
from kernelgym_env.tasks.splits import Split, split

__all__ = ["PARTS", "REPRESENTATIVE", "kevin_split"]

REPRESENTATIVE: dict[int, tuple[int, ...]] = {
    1: (1, 3, 6, 18, 23, 26, 33, 36, 40, 42, 48, 54, 57, 65, 77, 82, 86, 87),
    2: (1, 2, 8, 18, 23, 28, 33, 43),
    3: (1, 5, 8, 11, 20, 21, 33, 38, 43),
}
"""KernelBench's representative subset: problem numbers by level."""

_BY_LEVEL = {level: tuple(make_id(level, number) for number in range(1, count + 1)) for level, count in LEVELS.items()}
_HELD_OUT = 20


def kevin_split(seed: int = 0) -> Split:
    """Return a division of levels 1 and 2 into 180 problems to train on and 20 held out, ten of each level.

    The sizes are those that Kevin was trained with. Which 20 its authors held out is not published, so scores on these
    are not comparable with theirs.

    Args:
        seed: which division.

    Raises:
        InvalidOptionError: for a seed that is no integer.

    >>> kevin_split().held_out[:2]
    ('KernelBench/L1-019', 'KernelBench/L1-030')
    """
    return split(
        _BY_LEVEL[1] + _BY_LEVEL[2], _HELD_OUT, seed=seed, group=lambda task_id: (parse_id(task_id) or (0,))[0]
    )


PARTS: dict[str, tuple[str, ...]] = {
    **{f"KernelBench/L{level}": ids for level, ids in _BY_LEVEL.items()},
    "KernelBench/250": _BY_LEVEL[1] + _BY_LEVEL[2] + _BY_LEVEL[3],
    "KernelBench/Representative": tuple(
        make_id(level, number) for level, numbers in REPRESENTATIVE.items() for number in numbers
    ),
    "KernelBench/Kevin-train": kevin_split().train,
    "KernelBench/Kevin-held-out": kevin_split().held_out,
}
"""Task ids by the name of a set."""
