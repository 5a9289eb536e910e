"""Problems of KernelBench with known flaws, as tags.

A flaw is a property of the reference and its inputs as published: an answer that computes less passes a comparison at
KernelBench's own fp32 tolerance of 1e-4. The lists come from running every affordable problem of levels 1 to 3; the
audit that comes with the package takes their place where it has measured the same source.

- `FLAWS` -- the lists.
- `listed_flaws` -- of one problem.
- `flaw_tags` -- the tags of a problem, by the lists and the audit.
"""

from __future__ import annotations

from kernelgym_env.tasks.flaws import flaws_of_source
from kernelgym_env.tasks.kernelbench import ids

__all__ = ["FLAWS", "flaw_tags", "listed_flaws"]

FLAWS: dict[str, dict[int, tuple[int, ...]]] = {
    # Zeros are accepted.
    "flaw-zeros": {1: (23, 37), 2: (9, 23, 38, 80, 83)},
    # One constant is accepted.
    "flaw-constant": {1: (23, 37), 2: (9, 23, 36, 38, 42, 65, 80, 83)},
    # The output for one input is accepted for another.
    "flaw-input-blind": {1: (23,), 2: (9, 23, 36, 38, 42, 65, 80, 83), 3: (3, 7, 11, 12, 18, 28, 35)},
    # The input itself is accepted.
    "flaw-identity": {1: (19, 20, 31, 32)},
    # Freshly drawn weights are accepted.
    "flaw-weights-blind": {1: (33, 35, 40), 2: (9, 23, 38, 80, 83)},
    # The reference computes operations that cannot change its output.
    "flaw-redundant": {2: (7, 44, 81, 95), 3: (36, 37, 49)},
    # The reference is random: it differs from itself.
    "flaw-random": {2: (66,)},
}
"""Flawed problems by tag and level."""


def listed_flaws(task_id: str) -> tuple[str, ...]:
    """Return what `FLAWS` says of a problem or a variant of it; nothing of other tasks.

    >>> listed_flaws("KernelBench/L1-019:small")
    ('flaw-identity',)
    """
    level, number = ids.parse_id(task_id.partition(":")[0]) or (0, 0)
    return tuple(tag for tag, levels in FLAWS.items() if number in levels.get(level, ()))


def flaw_tags(level: int, number: int, digest: str | None = None) -> tuple[str, ...]:
    """Return the tags of a problem's known flaws: all that `Task.flaws` says under ``strict`` or ``kernelbench``.

    Args:
        level: 1 to 4.
        number: the problem's number in its level.
        digest: `Task.hash` of its source; None for the source that was audited, KernelBench's v0.2.

    >>> flaw_tags(1, 12), flaw_tags(1, 12, "of another text")
    (('flaw-short',), ())
    """
    task_id = ids.make_id(level, number)
    return flaws_of_source(task_id, listed_flaws(task_id), digest)
