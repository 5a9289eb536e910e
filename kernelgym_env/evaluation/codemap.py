"""Which file the machine code at an address of a process was mapped from.

- `CodeMap` -- one process's executable memory.
"""

from __future__ import annotations

from bisect import bisect_right

__all__ = ["CodeMap"]


class CodeMap:
    """The executable memory of a process; empty until it is read.

    Args:
        pid: the process, or ``"self"``.
    """

    def __init__(self, pid: int | str) -> None:
        self._pid = pid
        self._starts: list[int] = []
        self._ranges: list[tuple[int, str]] = []

    def read(self) -> None:
        """Read it as it is now.

        Raises:
            OSError: if the process is gone.
        """
        found = []
        with open(f"/proc/{self._pid}/maps", encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                fields = line.rstrip("\n").split(None, 5)
                if "x" in fields[1]:
                    low, _, high = fields[0].partition("-")
                    found.append((int(low, 16), int(high, 16), fields[5] if len(fields) > 5 else ""))
        self._starts = [low for low, _, _ in found]
        self._ranges = [(high, path) for _, high, path in found]

    def find(self, address: int) -> str | None:
        """The path that an address was mapped from, ``""`` for memory without a file, None where nothing is mapped."""
        index = bisect_right(self._starts, address) - 1
        if index < 0 or address >= self._ranges[index][0]:
            return None
        return self._ranges[index][1]

    def paths(self) -> set[str]:
        """All that is mapped for execution, ``""`` among them where there is memory without a file."""
        return {path for _, path in self._ranges}
