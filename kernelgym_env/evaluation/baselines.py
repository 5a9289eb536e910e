"""What else a speed is held against: the reference compiled, and the reference as a CUDA graph.

Each is measured once for a task, a device, versions and a protocol, against the eager reference, and kept on disk: the
ratio of the two is what is used, so that a device which has become faster or slower since changes nothing. Where the
eager reference itself takes another time than it did then, by more than drift explains, everything is measured anew.

- `Baseline` -- one measured way.
- `BaselineCache` -- the files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kernelgym_env import settings
from kernelgym_env.evaluation.keyed_files import KeyedFiles
from kernelgym_env.evaluation.result import Timing

__all__ = ["DRIFT", "Baseline", "BaselineCache"]

DRIFT = 0.15
"""Relative change of the eager reference's time from which on a stored baseline is measured anew."""


@dataclass(frozen=True)
class Baseline:
    """One way of running the reference.

    Attributes:
        over_eager: eager time / its time, from interleaved blocks; NaN where it does not work for the task.
        eager_us: the eager reference's median time in the evaluation that it was measured in, microseconds.
        times: its own times.
        problem: why there is none, ``""`` if there is one.
        lasting: whether it would come out so again; a process that died or took too long may do better.
    """

    over_eager: float = math.nan
    eager_us: float = math.nan
    times: Timing = Timing()
    problem: str = ""
    lasting: bool = True

    def drifted(self, eager_us: float) -> bool:
        """Whether the eager reference takes another time by now.

        >>> Baseline(2.0, 100.0).drifted(110.0), Baseline(2.0, 100.0).drifted(120.0), Baseline().drifted(120.0)
        (False, True, False)
        """
        return abs(eager_us / self.eager_us - 1) > DRIFT if not math.isnan(self.eager_us) else False

    def speedup(self, over_eager: float) -> float:
        """Speedup over this way of something with a speedup over eager.

        >>> Baseline(2.0, 100.0).speedup(3.0)
        1.5
        """
        return over_eager / self.over_eager


class BaselineCache:
    """Baselines on disk, one file for a task and all that its times depend on.

    Args:
        folder: where; None takes ``baselines`` below the cache folder of the settings.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._files = KeyedFiles(folder or settings.cache_dir() / "baselines")

    def load(self, key: Mapping[str, Any]) -> dict[str, Baseline]:
        """What is stored under a key, by the name of the way; nothing where there is no readable file."""
        try:
            return {name: _baseline(one) for name, one in (self._files.load(key) or {}).items()}
        except (TypeError, KeyError, AttributeError):
            return {}  # one that another version left: measured again

    def save(self, key: Mapping[str, Any], baselines: Mapping[str, Baseline]) -> None:
        """Replace what is stored under a key, at once for all readers.

        Raises:
            OSError: if the folder cannot be written.
        """
        self._files.save(key, {name: asdict(one) for name, one in baselines.items()})


def _baseline(data: Mapping[str, Any]) -> Baseline:
    return Baseline(**{**data, "times": Timing(**data["times"])})
