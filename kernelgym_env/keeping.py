"""Files that are written as a whole, and the names that they are found by.

- `write_whole` -- replace a file so that nobody meets half of it.
- `digest` -- the same text for the same plain data.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["digest", "write_whole"]


def write_whole(path: Path, text: str) -> None:
    """Write a file at once for all readers, in place of the one before; its folder must be there.

    Args:
        path: the file. It is readable by its owner alone.
        text: written as UTF-8.

    Raises:
        OSError: if the folder cannot be written; nothing is left behind then.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def digest(data: Mapping[str, Any]) -> str:
    """SHA-256 of data that JSON has a form for, hexadecimal; the order of keys does not count.

    >>> digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
