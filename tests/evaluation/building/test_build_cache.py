"""Objects on disk."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from kernelgym_env.evaluation.building.cache import Kept, ObjectCache

KEY, OTHER = "ab" * 32, "cd" * 32
KEPT = Kept(b"object", "warning: x", "slim")


@pytest.fixture
def cache(tmp_path: Path) -> ObjectCache:
    return ObjectCache(tmp_path / "objects")


def test_what_is_kept_is_found_and_nobody_else_can_read_it(cache: ObjectCache) -> None:
    assert cache.find(KEY) is None
    cache.keep(KEY, KEPT)
    assert cache.find(KEY) == KEPT and cache.find(OTHER) is None
    for path in cache.folder.rglob("*"):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


@pytest.mark.parametrize("harm", ["other bytes", "no facts", "no JSON", "facts of another key", "no bytes"])
def test_what_does_not_fit_its_digest_is_not_there(cache: ObjectCache, harm: str) -> None:
    cache.keep(KEY, KEPT)
    path, facts = cache.folder / "ab" / f"{KEY}.o", cache.folder / "ab" / f"{KEY}.json"
    if harm == "other bytes":
        path.write_bytes(b"planted")
    elif harm == "no facts":
        facts.unlink()
    elif harm == "no JSON":
        facts.write_text("[")
    elif harm == "no bytes":
        path.unlink()
    else:
        facts.write_text(json.dumps({**json.loads(facts.read_text()), "key": OTHER}))
    assert cache.find(KEY) is None
    cache.keep(KEY, KEPT)
    assert cache.find(KEY) == KEPT


def test_what_was_not_asked_for_longest_goes(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path, most_bytes=40_000)
    keys = [f"{number:064x}" for number in range(130)]
    for key in keys:
        cache.keep(key, Kept(b"x" * 1000, "", "slim"))
    assert cache.find(keys[-1]) is not None and cache.find(keys[0]) is None
    assert len(list(tmp_path.glob("*/*.o"))) <= 110


def test_a_disk_that_takes_nothing_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = ObjectCache(tmp_path / "file")
    cache.keep(KEY, KEPT)
    assert cache.find(KEY) is None
