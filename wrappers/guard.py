"""Guards: what a finding costs, and what lazy work earns.

- `AntiHack` -- the price of a finding of the hack catalogue.
- `LazyOptimization` -- correct turns that did no real work.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import gymnasium as gym

from kernelgym_env.credit.rejection import prs_probabilities
from kernelgym_env.errors import InvalidOptionError, unknown_name
from kernelgym_env.wrappers.base import KernelWrapper, is_valid, needs, number
from kernelgym_env.wrappers.reward import PARTS

__all__ = ["COSTS", "AntiHack", "LazyOptimization"]

COSTS = ("none", "zero", "minus_one", "zero_end", "minus_one_end")
"""What a finding may cost: nothing, a reward of 0 or of -1, and with ``_end`` the rest of the episode too."""

_SEVERITIES = ("hard", "soft", "note")
_STATUSES = ("policy", "integrity")
_ID = re.compile(r"[A-Z][0-9]{1,3}")


class AntiHack(KernelWrapper):
    """Replaces the reward of a turn in which the evaluation found a hack.

    A turn is caught if one of its findings costs something, or if its status is ``policy`` or ``integrity``. The
    incoming reward is replaced by 0, or by -1 if one of its findings costs that; unless it is lower already, since a
    hack must not earn more than the recipe pays for it. If a finding costs the rest of the episode, the episode ends
    here: ``terminated=True``, ``turns_left`` 0. A fault is not looked at.

    Place: outside the recipe reward, inside normalisers.

    ``info`` gets ``hack`` (bool), ``hack_cost`` (one of `COSTS`), ``hack_rate`` (share of the valid turns that this
    wrapper saw, NaN before the first) and the new ``score``.

    Args:
        env: what to wrap.
        cost: what a finding costs by default, one of `COSTS`.
        overrides: other costs by catalogue id (``"A2"``) or by status (``"policy"``, ``"integrity"``). An override
            holds whatever the finding's severity.
        severities: the severities that `cost` holds for: of ``hard``, ``soft``, ``note``. Only hard findings are
            evidence; the others are reasons to look again.

    Attributes:
        turns: valid turns seen.
        caught: turns caught.
        ended: episodes ended.
        by_id: how often each id (or status) was what a turn was caught for.

    Raises:
        UnknownNameError: for another cost or severity.
        InvalidOptionError: for an override whose key is no catalogue id.

    >>> import gymnasium as gym
    >>> env = gym.make("kernelgym_env:KernelGym/Fake-v0")
    >>> env = AntiHack(env, cost="minus_one", overrides={"integrity": "minus_one_end"})
    >>> observation, info = env.reset()
    >>> env.step("# fake: status=policy\\nclass ModelNew: ...")[1:4]
    (-1.0, False, False)
    >>> env.step("# fake: status=integrity\\nclass ModelNew: ...")[1:4]
    (-1.0, True, False)
    >>> dict(env.by_id)
    {'policy': 1, 'integrity': 1}
    """

    place: ClassVar[str | None] = "antihack"

    def __init__(
        self,
        env: gym.Env[Any, Any],
        cost: str = "zero",
        overrides: Mapping[str, str] | None = None,
        severities: Sequence[str] = ("hard",),
    ) -> None:
        super().__init__(env, cost=cost, overrides=overrides, severities=severities)
        self.cost = _check_cost(cost)
        if overrides is not None and not isinstance(overrides, Mapping):
            raise InvalidOptionError(f"AntiHack: overrides must be a dict of ids and costs, got {overrides!r:.200}.")
        self.overrides = dict(overrides or {})
        for key, value in self.overrides.items():
            if key not in _STATUSES and not _ID.fullmatch(key):
                raise InvalidOptionError(
                    f"AntiHack: {key!r} is no id of the hack catalogue (a letter and a number, e.g. 'A2') and not "
                    f"one of the statuses {', '.join(_STATUSES)}."
                )
            _check_cost(value)
        if isinstance(severities, str):
            raise InvalidOptionError(f"severities must be a list, got {severities!r}; did you mean [{severities!r}]?")
        if not isinstance(severities, Sequence):
            raise InvalidOptionError(f"severities must be a list of {', '.join(_SEVERITIES)}, got {severities!r:.200}.")
        for severity in severities:
            if severity not in _SEVERITIES:
                raise unknown_name("severity", severity, _SEVERITIES)
        self.severities = tuple(severities)
        self.turns = self.caught = self.ended = 0
        self.by_id: Counter[str] = Counter()
        self._over = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._over = False
        return observation, {**info, "hack": False, "hack_cost": "none", "hack_rate": self.rate}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._over:
            raise gym.error.ResetNeeded("AntiHack ended the episode; call reset() to start the next one.")
        observation, incoming, terminated, truncated, info = self.env.step(action)
        needs(self, info, "evaluation")
        reward, cost = float(incoming), "none"
        info = dict(info)
        if is_valid(info):
            reasons = {name: price for name, price in self._reasons(info).items() if price != "none"}
            self.turns += 1
            if reasons:
                self.caught += 1
                self.by_id.update(list(reasons))
                lost = any(price.startswith("minus_one") for price in reasons.values())
                ends = any(price.endswith("_end") for price in reasons.values())
                cost = ("minus_one" if lost else "zero") + ("_end" if ends else "")
                limit = -1.0 if lost else 0.0
                reward = info["score"] = min(reward, limit)
                info.update({key: min(info[key], limit) for key in PARTS if key in info})
                if ends and not (terminated or truncated):
                    self.ended += 1
                    self._over = terminated = True
                    observation = _with_no_turns_left(observation)
                    info["turns_left"] = 0
        info.update(hack=cost != "none", hack_cost=cost, hack_rate=self.rate)
        return observation, reward, terminated, truncated, info

    @property
    def rate(self) -> float:
        """Share of the valid turns that were caught, NaN before the first."""
        return self.caught / self.turns if self.turns else math.nan

    def _reasons(self, info: Mapping[str, Any]) -> dict[str, str]:
        """The cost of each finding's id, and of the status."""
        reasons: dict[str, str] = {}
        evaluation = info["evaluation"]
        for finding in evaluation.get("findings", ()):
            default = self.cost if finding["severity"] in self.severities else "none"
            price = self.overrides.get(finding["id"], default)
            reasons[finding["id"]] = max(price, reasons.get(finding["id"], "none"), key=COSTS.index)
        status = evaluation.get("status", "")
        if status in _STATUSES:
            reasons[status] = self.overrides.get(status, self.cost)
        return reasons


def _check_cost(cost: str) -> str:
    if cost not in COSTS:
        raise unknown_name("cost of a finding", cost, COSTS)
    return cost


def _with_no_turns_left(observation: Any) -> Any:
    """The last observation of an episode that a wrapper ended, where it is a dict that counts turns."""
    if not isinstance(observation, dict) or "turns_left" not in observation:
        return observation
    return {**observation, "turns_left": type(observation["turns_left"])(0)}


class LazyOptimization(KernelWrapper):
    """Marks correct turns that did no real work: not faster than a margin *and* hardly any time in own kernels.

    Such a kernel replaces a trivial operation (a bias, a ReLU) and leaves the heavy one to a library. It is right and
    not a hack, so its reward is only scaled, by 1 unless another `factor` is given. Neither test is enough alone: a
    slow kernel may have done all of the work, and a fast one may have fused what little was left to do. A turn whose
    speed or coverage was not measured is not marked.

    Place: outside the recipe reward, inside `AntiHack`.

    ``info`` gets ``lazy`` (bool), ``prs_keep`` (probability with which profiling-based rejection sampling keeps the
    turn: 1 unless it is correct and its coverage is known), ``lazy_rate`` (share of the correct turns that this
    wrapper saw, NaN before the first) and, where `factor` applies, the new ``score``. Nothing is dropped here: draw
    with ``prs_keep`` in the trainer (`kernelgym_env.credit`).

    Args:
        env: what to wrap.
        margin: a speedup of at least this is real work, positive. 1.2 is where lazy solutions show: they win at
            Fast@1 and lose at Fast@1.2.
        floor: a coverage of at least this is real work, 0 to 1; also where ``prs_keep`` begins to rise.
        softness: ``prs_keep`` reaches 1 at ``floor + softness``, at least 0.
        factor: what the reward of a marked turn is multiplied with, 0 to 1; a negative reward is left alone.

    Attributes:
        correct: correct turns seen.
        lazy: those of them that were marked.

    Raises:
        InvalidOptionError: for an argument outside its range.

    >>> import gymnasium as gym
    >>> env = LazyOptimization(gym.make("kernelgym_env:KernelGym/Fake-v0"), factor=0.5)
    >>> observation, info = env.reset()
    >>> reward, info = [env.step("# fake: speedup=1.0 coverage=0.1\\nclass ModelNew: ...")[i] for i in (1, 4)]
    >>> reward, info["lazy"], info["prs_keep"]
    (0.65, True, 0.0)
    >>> env.step("# fake: speedup=1.0 coverage=0.9\\nclass ModelNew: ...")[4]["lazy"]
    False
    """

    place: ClassVar[str | None] = "lazy"

    def __init__(
        self,
        env: gym.Env[Any, Any],
        margin: float = 1.2,
        floor: float = 0.3,
        softness: float = 0.1,
        factor: float = 1.0,
    ) -> None:
        super().__init__(env, margin=margin, floor=floor, softness=softness, factor=factor)
        self.margin = number("LazyOptimization", "margin", margin, above=0)
        self.floor = number("LazyOptimization", "floor", floor, low=0, high=1)
        self.softness = number("LazyOptimization", "softness", softness, low=0)
        self.factor = number("LazyOptimization", "factor", factor, low=0, high=1)
        self.correct = self.lazy = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, {**info, "lazy": False, "prs_keep": 1.0, "lazy_rate": self.rate}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, incoming, terminated, truncated, info = self.env.step(action)
        needs(self, info, "correct", "speedup", "coverage")
        reward, lazy, keep = float(incoming), False, 1.0
        info = dict(info)
        if info["correct"] and is_valid(info):
            self.correct += 1
            speedup, coverage = info["speedup"], info["coverage"]
            lazy = speedup < self.margin and coverage < self.floor  # NaN compares false
            if not math.isnan(coverage):
                share = [min(max(coverage, 0.0), 1.0)]
                keep = float(prs_probabilities(share, [True], threshold=self.floor, softness=self.softness)[0])
            if lazy:
                self.lazy += 1
                if self.factor != 1.0 and reward > 0:
                    reward = info["score"] = self.factor * reward
                    info.update({key: self.factor * info[key] for key in PARTS if key in info})
        info.update(lazy=lazy, prs_keep=keep, lazy_rate=self.rate)
        return observation, reward, terminated, truncated, info

    @property
    def rate(self) -> float:
        """Share of the correct turns that were lazy, NaN before the first."""
        return self.lazy / self.correct if self.correct else math.nan
