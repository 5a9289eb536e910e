"""What kind of computation each problem of KernelBench asks for, known without its data.

A category is a tag, so that tasks are chosen by it like by any other: ``--tag matmul``. Level 1 has the kind of its
operator, level 2 that of the operator its chain starts from, levels 3 and 4 that of the network.

- `CATEGORIES` -- the problems of each.
- `category` -- of one problem.
"""

from __future__ import annotations

from functools import lru_cache

from kernelgym_env.tasks.kernelbench.ids import LEVELS

__all__ = ["CATEGORIES", "category"]

CATEGORIES: dict[str, dict[int, str]] = {
    "matmul": {
        1: "1-18",
        2: "9 12 14 18 22 28-30 33 37 39-41 45 51 53 55 56 59 62-64 66 68 70 75 76 80 81 84 86 88 94 95 97-99",
    },
    "activation": {1: "19-32 88"},
    "norm": {1: "33-40"},
    "pooling": {1: "41-46"},
    "reduction": {1: "47-49 51-53"},
    "convolution": {
        1: "50 54-56 59 60 62 63 66 67 76 80 82-87",
        2: "1 4 6-8 17 21 23-25 27 31 32 35 43 46-48 52 54 57 65 67 69 71 73 79 82 83 85 87 90 92",
    },
    "transposed-convolution": {
        1: "57 58 61 64 65 68-75 77-79 81",
        2: "2 3 5 10 11 13 15 16 19 20 26 34 36 38 42 44 49 50 58 60 61 72 74 77 78 89 91 93 96 100",
    },
    "scan": {1: "89-93"},
    "loss": {1: "94-96 98-100"},
    "attention": {1: "97", 3: "31 43 50"},
    "mlp": {3: "1-3"},
    "cnn": {3: "4-27 45-47"},
    "transformer": {3: "28-30 32 44"},
    "recurrent": {3: "33-42"},
    "state-space": {3: "48 49"},
    "language-model": {4: "1-20"},
}
"""Problem numbers by category and level, as numbers and ranges."""


def category(level: int, number: int) -> str:
    """Return the category of a problem, ``""`` for one that KernelBench does not have.

    >>> category(1, 19), category(2, 1), category(3, 28), category(1, 101)
    ('activation', 'convolution', 'transformer', '')
    """
    return _by_problem().get((level, number), "")


@lru_cache(maxsize=1)
def _by_problem() -> dict[tuple[int, int], str]:
    return {
        (level, number): name
        for name, levels in CATEGORIES.items()
        for level, numbers in levels.items()
        for number in _numbers(numbers)
        if number <= LEVELS[level]
    }


def _numbers(text: str) -> list[int]:
    """The numbers of a text like ``1 4-6``."""
    spans = [[int(end) for end in part.split("-")] for part in text.split()]
    return [number for span in spans for number in range(span[0], span[-1] + 1)]
