"""Who runs evaluations.

- `Evaluator` -- the protocol of a pool.
- `get` -- the shared pool of this process for a key: ``local`` (this machine), ``fake`` (deterministic, for tests),
  ``simulated`` (latency tables with noise and failures, for studies).
- `register` -- gives a configured pool a key of its own.
- `close_all` -- end every shared pool of this process; done at exit too.
"""

from __future__ import annotations

import atexit
import os
import re
import threading
from collections.abc import Callable
from typing import Any

from kernelgym_env import settings
from kernelgym_env.errors import InvalidOptionError, unknown_name
from kernelgym_env.pools.base import Evaluator

__all__ = ["Evaluator", "check_key", "close_all", "get", "register"]


def _local() -> Evaluator:
    from kernelgym_env.pools.local import LocalPool

    return LocalPool(judges=settings.judges())


def _fake() -> Evaluator:
    from kernelgym_env.pools.fake import FakePool

    return FakePool()


def _simulated() -> Evaluator:
    from kernelgym_env.pools.simulated import SimulatedPool

    return SimulatedPool()


_BUILT_IN: dict[str, Callable[[], Evaluator]] = {"local": _local, "fake": _fake, "simulated": _simulated}
_MAKERS = dict(_BUILT_IN)
_KEY = re.compile(r"[\w.-]+")
# by process too: a forked child must not use its parent's judges
_pools: dict[tuple[int, str], Any] = {}
_lock = threading.Lock()


def check_key(key: str) -> str:
    """Return `key`, or raise `UnknownNameError`."""
    if key not in _MAKERS:
        raise unknown_name("pool", key, _MAKERS)
    return key


def register(key: str, maker: Callable[[], Evaluator]) -> None:
    """Give a pool of your own a key, which `get` and ``gym.make(..., pool=key)`` then take.

    The pool is made when first asked for and closed at exit, as the others are. A key may be registered again: the
    pool that it had is closed, and the next `get` makes the new one. A process started by spawning knows no more than
    its imports: there, register in a module that it imports. A forked process inherits the keys.

    Args:
        key: letters, digits, ``_``, ``-`` and ``.``; none of the built-in keys.
        maker: makes the pool; called with no arguments, once in each process.

    Raises:
        InvalidOptionError: for a key that is taken by a built-in pool or has another form, and a maker that cannot be
            called.

    >>> from kernelgym_env.pools.simulated import SimulatedPool
    >>> register("study", lambda: SimulatedPool(seed=7))
    >>> get("study").seed
    7
    """
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise InvalidOptionError(f"A pool's key is letters, digits, _, - and . (e.g. 'study'), got {key!r}.")
    if key in _BUILT_IN:
        raise InvalidOptionError(f"Pool key {key!r} is built in; choose another. Built in: {', '.join(_BUILT_IN)}.")
    if not callable(maker):
        raise InvalidOptionError(f"The maker of pool {key!r} must be callable without arguments, got {maker!r}.")
    with _lock:
        _MAKERS[key] = maker
        former = _pools.pop((os.getpid(), key), None)
    if former is not None:
        former.close()


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
