"""A policy for simulated tasks: it behaves like a model that learns from what it is shown.

- `SimulatedPolicy` -- picks knobs, and changes those of the best turn in its history.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.evaluation.result import Evaluation
from kernelgym_env.policies.base import Action

__all__ = ["SimulatedPolicy"]

_DIRECTIVE = re.compile(r"^# simulate: (.*)$", re.MULTILINE)
_SPEEDUP = re.compile(r"Speedup over eager ([\d.]+)x")


class SimulatedPolicy:
    """Writes the directives of `kernelgym_env.pools.simulated` for schedules made of knobs.

    Without a correct turn in its history each value is drawn alike. With one it changes one or two knobs of the best,
    and with the probability `fresh` draws anew all the same. It follows from the observation alone, with its ``seed``.

    Args:
        knobs: the values of each knob, by name, in an order in which neighbours behave alike.
        fresh: probability of a new start, 0 to 1.

    Raises:
        InvalidOptionError: for knobs without values, or a probability outside 0 to 1.

    >>> policy = SimulatedPolicy({"block": (64, 128)})
    >>> policy.act([{"turn": 0, "seed": 7, "history": ()}])[0].text.splitlines()[0]
    '# simulate: block=128 sample=7'
    """

    def __init__(self, knobs: Mapping[str, Sequence[Any]], fresh: float = 0.2) -> None:
        if not knobs or not all(len(values) for values in knobs.values()):
            raise InvalidOptionError(f"SimulatedPolicy needs knobs with values, got {knobs!r:.200}.")
        if not 0 <= fresh <= 1:
            raise InvalidOptionError(f"fresh is a probability, got {fresh!r}.")
        self.knobs = {name: [str(value) for value in values] for name, values in knobs.items()}
        self.fresh = fresh

    def act(self, observations: Sequence[Mapping[str, Any]]) -> list[Action]:
        """A source for each observation."""
        return [Action(self._source(observation)) for observation in observations]

    def observe(self, evaluations: Sequence[Evaluation]) -> None:
        """It reads what became of its actions off the history."""

    def _source(self, observation: Mapping[str, Any]) -> str:
        seed = int(observation.get("seed", 0))
        rng = random.Random(f"{seed}/{int(observation['turn'])}")
        best, chosen = 0.0, None
        for turn in observation.get("history", ()):
            speed, directive = _SPEEDUP.search(turn["feedback"]), _DIRECTIVE.search(turn["action"])
            if speed and directive and float(speed[1]) > best:
                found = dict(part.split("=", 1) for part in directive[1].split())
                if set(self.knobs) <= set(found):
                    best, chosen = float(speed[1]), {name: found[name] for name in self.knobs}
        if chosen is None or rng.random() < self.fresh:
            chosen = {name: rng.choice(values) for name, values in self.knobs.items()}
        else:
            chosen = self._changed(chosen, rng)
        knobs = " ".join(f"{name}={value}" for name, value in chosen.items())
        return f"# simulate: {knobs} sample={seed}\nclass ModelNew: ...\n"

    def _changed(self, chosen: Mapping[str, str], rng: random.Random) -> dict[str, str]:
        new = dict(chosen)
        for name in rng.sample(list(self.knobs), min(rng.choice((1, 2)), len(self.knobs))):
            values = self.knobs[name]
            place = values.index(new[name])
            new[name] = values[min(max(place + rng.choice((-1, 1)), 0), len(values) - 1)]
        return new
