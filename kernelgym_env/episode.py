"""An episode as data: pure functions from one state to the next.

`KernelEnv` holds an `Episode` and does the input and output around it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.limits import MAX_FEEDBACK_CHARS, MAX_SOURCE_CHARS, clip

__all__ = ["Episode", "Turn", "history_from"]


@dataclass(frozen=True)
class Turn:
    """One turn that was played.

    Attributes:
        action: the action's text, cut to the action space's bound.
        feedback: what the policy was told.
        status: how the evaluation ended, ``""`` for a stop and for a turn given from outside.
        score: the turn's reward.
        speedup: NaN where not measured.
        speedup_low: lower end of its interval.
        speedup_high: upper end of its interval.
    """

    action: str
    feedback: str
    status: str = ""
    score: float = 0.0
    speedup: float = math.nan
    speedup_low: float = math.nan
    speedup_high: float = math.nan


@dataclass(frozen=True)
class Episode:
    """State of an episode.

    Attributes:
        task_id: the task.
        turns: the turn budget, at least 1.
        given: turns that were there at the start (`options["history"]`); they use no budget.
        played: turns played.
        ended: whether the episode is over.
        faulted: whether infrastructure ended it.
    """

    task_id: str
    turns: int
    given: tuple[Turn, ...] = ()
    played: tuple[Turn, ...] = ()
    ended: bool = False
    faulted: bool = False

    @property
    def turn(self) -> int:
        """Turns played so far."""
        return len(self.played)

    @property
    def turns_left(self) -> int:
        """Turns that may still be played."""
        return 0 if self.ended else self.turns - self.turn

    @property
    def best_speedup(self) -> float:
        """Greatest speedup of a correct turn, NaN before the first."""
        speedups = [turn.speedup for turn in self.played if not math.isnan(turn.speedup)]
        return max(speedups, default=math.nan)

    def after(self, turn: Turn, *, stop: bool = False, fault: bool = False) -> Episode:
        """The state after one more turn.

        Args:
            turn: what was played.
            stop: the agent asked to end the episode.
            fault: infrastructure failed in it.

        Raises:
            ValueError: if the episode is over.
        """
        if self.ended:
            raise ValueError("The episode is over.")
        played = (*self.played, turn)
        return replace(self, played=played, ended=stop or fault or len(played) >= self.turns, faulted=fault)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "task_id": self.task_id,
            "turns": self.turns,
            "given": [vars(turn).copy() for turn in self.given],
            "played": [vars(turn).copy() for turn in self.played],
            "ended": self.ended,
            "faulted": self.faulted,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Episode:
        """The inverse of `to_dict`."""
        turns = {name: tuple(Turn(**turn) for turn in data[name]) for name in ("given", "played")}
        return cls(**{**data, **turns})


def history_from(entries: Iterable[Mapping[str, Any]]) -> tuple[Turn, ...]:
    """Turns from `options["history"]`: dicts with ``action`` and ``feedback``.

    Raises:
        InvalidOptionError: for anything else.
    """
    turns = []
    for index, entry in enumerate(entries):
        if not isinstance(entry, Mapping) or set(entry) != {"action", "feedback"}:
            raise InvalidOptionError(
                f"history[{index}] must be a dict with 'action' and 'feedback', got {entry!r:.200}."
            )
        if not all(isinstance(entry[name], str) for name in entry):
            raise InvalidOptionError(f"history[{index}] must hold text, got {entry!r:.200}.")
        turns.append(Turn(clip(entry["action"], MAX_SOURCE_CHARS), clip(entry["feedback"], MAX_FEEDBACK_CHARS)))
    return tuple(turns)
