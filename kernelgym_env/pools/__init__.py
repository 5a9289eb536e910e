"""Who runs evaluations.

- `Evaluator` -- the protocol of a pool.
- `get` -- the shared pool of this process for a key: ``local`` (this machine), ``fake`` (deterministic, for tests).
- `close_all` -- end every shared pool of this process; done at exit too.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from typing import Any

from kernelgym_env.errors import unknown_name
from kernelgym_env.pools.base import Evaluator

__all__ = ["Evaluator", "check_key", "close_all", "get"]


def _local() -> Evaluator:
    from kernelgym_env.pools.local import LocalPool

    return LocalPool()


def _fake() -> Evaluator:
    from kernelgym_env.pools.fake import FakePool

    return FakePool()


_MAKERS: dict[str, Callable[[], Evaluator]] = {"local": _local, "fake": _fake}
# by process too: a forked child must not use its parent's judges
_pools: dict[tuple[int, str], Any] = {}
_lock = threading.Lock()


def check_key(key: str) -> str:
    """Return `key`, or raise `UnknownNameError`."""
    if key not in _MAKERS:
        raise unknown_name("pool", key, _MAKERS)
    return key


def get(key: str = "local") -> Evaluator:
    """The shared pool of this process for `key`, made when first asked for, closed at exit.

    Raises:
        UnknownNameError: for an unknown key.

    >>> get("fake") is get("fake")
    True
    """
    check_key(key)
    with _lock:
        place = (os.getpid(), key)
        if place not in _pools or _pools[place].closed:
            _pools[place] = _MAKERS[key]()
        return _pools[place]


def close_all() -> None:
    """Close every shared pool of this process; the next `get` makes new ones."""
    with _lock:
        mine = [place for place in _pools if place[0] == os.getpid()]
        pools = [_pools.pop(place) for place in mine]
    for pool in pools:
        pool.close()


def _reset_after_fork() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_reset_after_fork)
atexit.register(close_all)
