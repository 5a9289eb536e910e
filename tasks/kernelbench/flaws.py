"""Problems of KernelBench with known flaws, as tags.

A flaw is a property of the reference and its inputs as published: an answer that computes less passes a comparison at
KernelBench's own fp32 tolerance of 1e-4. The lists come from running every affordable problem of levels 1 to 3; a
problem that is not listed may still have one.
"""

from __future__ import annotations

__all__ = ["FLAWS", "flaw_tags"]

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


def flaw_tags(level: int, number: int) -> tuple[str, ...]:
    """Return the tags of a problem's known flaws.

    >>> flaw_tags(1, 19)
    ('flaw-identity',)
    """
    return tuple(tag for tag, levels in FLAWS.items() if number in levels.get(level, ()))
