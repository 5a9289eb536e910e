"""The part of a page that a benchmark writes."""

from __future__ import annotations

from pathlib import Path

__all__ = ["BEGIN", "END", "write_tables"]

BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"


def write_tables(page: Path, part: str) -> None:
    """Put a text, which begins with `BEGIN` and ends with `END`, in the place of the one between these marks."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    page.write_text(f"{before}{part}{rest.partition(END)[2]}", encoding="utf-8")
