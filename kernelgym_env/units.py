"""Numbers for people."""

from __future__ import annotations

import math

__all__ = ["duration"]


def duration(microseconds: float) -> str:
    """A time in the unit that suits it, with four digits.

    >>> duration(12.3456), duration(98765.4), duration(2.5e6), duration(float("nan"))
    ('12.35 µs', '98.77 ms', '2.5 s', '–')
    """
    if math.isnan(microseconds):
        return "–"
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= size:
            return f"{microseconds / size:.4g} {unit}"
    return f"{microseconds:.4g} µs"
