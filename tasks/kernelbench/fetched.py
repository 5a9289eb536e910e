"""KernelBench's problems as fetched from the Hugging Face Hub, in this machine's cache.

- `Manifest` -- what was fetched.
- `save` -- puts a fetched set in place of the one before.
- `find` -- the file with the problems and its manifest.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.keeping import write_whole
from kernelgym_env.settings import cache_dir
from kernelgym_env.tasks import files
from kernelgym_env.tasks.kernelbench import rows as table
from kernelgym_env.tasks.kernelbench.versions import content_hash

__all__ = ["Manifest", "find", "save"]

_AGAIN = "Run `kernelgym tasks fetch kernelbench` again."


@dataclass(frozen=True)
class Manifest:
    """What was fetched.

    Attributes:
        dataset: the Hub's name of the data set.
        commit: the commit of the data set that the files are from.
        version: the published version that the problems are, as words.
        content_hash: SHA-256 of the problems, see `kernelgym_env.tasks.kernelbench.versions.content_hash`.
        problems: how many there are.
    """

    dataset: str
    commit: str
    version: str
    content_hash: str
    problems: int


def save(problems: Sequence[Mapping[str, Any]], manifest: Manifest) -> Path:
    """Write a set of problems to the cache, in place of the one before, and return the file.

    Args:
        problems: rows with ``level``, ``problem_id``, ``name`` and ``code``.
        manifest: what they are.

    Raises:
        OSError: if the cache cannot be written.
    """
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    path = _problems(manifest)
    write_whole(path, "".join(json.dumps(dict(row)) + "\n" for row in problems))
    # the manifest names its file, so a reader meets the old pair or the new one
    write_whole(folder / "manifest.json", json.dumps(dataclasses.asdict(manifest), indent=2) + "\n")
    return path


def find() -> tuple[Path, Manifest] | None:
    """Return the file with the fetched problems and its manifest, or None if nothing was fetched.

    Raises:
        InvalidOptionError: if the files are not as they were written.
    """
    path = _folder() / "manifest.json"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        manifest = Manifest(**json.loads(text))
    except (TypeError, ValueError) as error:
        raise InvalidOptionError(f"{path} is damaged: {error}. {_AGAIN}") from error
    problems = _problems(manifest)
    try:
        state = problems.stat()
        found = _hash_of(problems, state.st_mtime_ns, state.st_size)
    except FileNotFoundError:
        raise InvalidOptionError(f"{problems}, which {path} names, is gone. {_AGAIN}") from None
    if found != manifest.content_hash:
        raise InvalidOptionError(f"{problems} has changed since it was fetched: its content hash is {found}. {_AGAIN}")
    return problems, manifest


def _folder() -> Path:
    return cache_dir() / "kernelbench"


def _problems(manifest: Manifest) -> Path:
    return _folder() / f"{manifest.content_hash[:16]}.jsonl"


@lru_cache(maxsize=4)
def _hash_of(path: Path, mtime_ns: int, size: int) -> str:
    return content_hash(table.sources(files.read_rows(path), str(path)))
