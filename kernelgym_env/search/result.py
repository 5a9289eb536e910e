"""What a search may spend, and what came out of it.

- `Budget` -- evaluations, seconds, or both.
- `Trial` -- one evaluation.
- `SearchResult` -- all of them, in order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from kernelgym_env.errors import InvalidOptionError, check_whole

__all__ = ["Budget", "SearchResult", "Trial"]


@dataclass(frozen=True)
class Budget:
    """What a search may spend; it ends at the first bound that is reached.

    Attributes:
        evaluations: at most so many, those of an earlier call on the same folder included; None for no bound.
        seconds: of this call; no evaluation starts after them. None for no bound.

    Raises:
        InvalidOptionError: for a bound that is no positive number.
    """

    evaluations: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.evaluations is not None:
            check_whole("evaluations", self.evaluations)
        number = isinstance(self.seconds, int | float) and not isinstance(self.seconds, bool)
        if self.seconds is not None and not (number and self.seconds > 0):
            raise InvalidOptionError(f"seconds must be a number above 0, got {self.seconds!r:.100}.")


@dataclass(frozen=True)
class Trial:
    """One evaluation of a search.

    Attributes:
        id: its `episode_id` in the store.
        parent: the id of the trial that it goes on from, ``""`` for none.
        depth: turns on the way to it, from 1.
        action: what the policy did.
        status: how it was judged.
        speedup: NaN where not correct.
        score: of the turn.
        valid: False for a fault of infrastructure.
    """

    id: str
    parent: str
    depth: int
    action: str = field(repr=False)
    status: str
    speedup: float
    score: float
    valid: bool = True

    @property
    def speed(self) -> float:
        """The speedup; 0 for what is not correct. What searches rank by."""
        return 0.0 if math.isnan(self.speedup) or self.status != "correct" else self.speedup


@dataclass(frozen=True)
class SearchResult:
    """What a search came to.

    Attributes:
        method: its name.
        task_id: the task.
        trials: in the order in which they were asked for.
        complete: whether the search came to its end, not its budget's.
        seconds: what this call took.
    """

    method: str
    task_id: str
    trials: tuple[Trial, ...]
    complete: bool
    seconds: float = math.nan

    @property
    def best(self) -> Trial | None:
        """The fastest correct one, the first of equals; None if nothing was correct."""
        found = max(self.trials, key=lambda trial: trial.speed, default=None)
        return found if found is not None and found.speed > 0 else None

    @property
    def curve(self) -> list[float]:
        """The greatest speedup after 1, 2, … evaluations; 0 before the first correct one.

        >>> trials = [Trial(str(n), "", 1, "", "correct", speed, speed) for n, speed in enumerate((0.5, 2.0, 1.0))]
        >>> SearchResult("refine", "a/b", tuple(trials), True).curve
        [0.5, 2.0, 2.0]
        """
        found, best = [], 0.0
        for trial in self.trials:
            best = max(best, trial.speed)
            found.append(best)
        return found

    def path(self, trial: Trial) -> list[Trial]:
        """The trials that led to one, the first one first."""
        known = {one.id: one for one in self.trials}
        found = [trial]
        while found[0].parent in known:
            found.insert(0, known[found[0].parent])
        return found

    def to_dict(self) -> dict[str, Any]:
        """Figures as plain data, without sources."""
        best = self.best
        return {
            "method": self.method,
            "task_id": self.task_id,
            "evaluations": len(self.trials),
            "complete": self.complete,
            "seconds": self.seconds,
            "correct": sum(trial.status == "correct" for trial in self.trials),
            "best_speedup": math.nan if best is None else best.speedup,
            "best_id": "" if best is None else best.id,
            "curve": self.curve,
        }
