"""Z-scores of rewards, clipped.

- `RunningNormalizeClip` -- against what was seen before, or within a group.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium as gym

from kernelgym_env.errors import InvalidOptionError, unknown_name
from kernelgym_env.wrappers.base import KernelWrapper, counts, number, whole

__all__ = ["RunningNormalizeClip"]

_SCOPES = ("running", "group")
_FLAT = 1e-9
"""A standard deviation below this, relative to the mean, is rounding: nothing differs."""


@dataclass
class _Moments:
    """Number, mean and summed squared deviation of values, one at a time (Welford)."""

    n: int = 0
    mean: float = 0.0
    m2: float = 0.0

    def add(self, value: float) -> None:
        self.n += 1
        delta = value - self.mean
        self.mean += delta / self.n
        self.m2 += delta * (value - self.mean)

    def std(self, ddof: int) -> float:
        return math.sqrt(max(self.m2, 0.0) / (self.n - ddof)) if self.n > ddof else math.nan


def _loaded(n: float, mean: float, m2: float) -> _Moments:
    """Saved moments.

    Raises:
        ValueError: for numbers that no values have.
    """
    if n != int(n) or n < 0 or not math.isfinite(mean) or not 0 <= m2 < math.inf:
        raise ValueError(f"no moments: {[n, mean, m2]}")
    return _Moments(int(n), float(mean), float(m2))


class RunningNormalizeClip(KernelWrapper):
    """Replaces the reward by its z-score, kept within ``±clip``: CUDA-L1's defence against outliers.

    ``z = (reward - mean) / std``. The statistics are those of rewards of single turns; nothing is summed or discounted
    along an episode, so nothing of an episode is left when it ends, however it ends. Turns that say nothing about a
    submission (a fault, a task that cannot be judged, the agent's stop) are not counted and give 0.0. Neither is a
    reward counted that is NaN, which gives 0.0, or infinite, which gives ``±clip`` once the statistics are known.

    - ``scope="running"``: mean and std of all rewards *before* this one. A sudden 18x is measured against what was
      usual, so z has no bound but the clip.
    - ``scope="group"``: of all rewards of the same group *including* this one, as within a group of GRPO. The group is
      ``info["group_id"]`` where there is one, else ``info["task_id"]``. With n members |z| is at most √(n-1), so a
      clip of 1.5 has no effect below n = 4. An environment sees its group one after the other; for z-scores within a
      finished group use `kernelgym_env.credit.clipped_zscores`.

    Place: outside `AntiHack`, inside `TurnReturns`. Like the reward, ``info["score"]`` becomes the z-score;
    ``info["raw_score"]`` keeps what came in. ``info`` also gets ``norm_count``, ``norm_mean`` and ``norm_std`` (NaN
    until known), the statistics that were used.

    The statistics are no part of the spec: each environment of a vector has its own, and a re-made one starts anew.
    Save and restore them with `state_dict` and `load_state_dict`; freeze them for evaluation.

    gymnasium's `NormalizeReward` and stable-baselines3's `VecNormalize` do something else: they divide by the standard
    deviation of a discounted return and subtract no mean.

    Args:
        env: what to wrap.
        clip: greatest |z|, above 0; None does not clip.
        scope: ``running`` or ``group``.
        warmup: the reward is 0.0 until so many rewards were counted (in ``group`` scope, of this group and with this
            one), at least 0.
        ddof: 0 divides the squared deviations by n, 1 by n - 1.
        frozen: start with statistics that do not change.

    Attributes:
        frozen: whether the statistics stand still.

    Raises:
        UnknownNameError: for another scope.
        InvalidOptionError: for an argument outside its range.

    >>> import gymnasium as gym
    >>> env = RunningNormalizeClip(gym.make("kernelgym_env:KernelGym/Fake-v0", turns=5), scope="group", warmup=2)
    >>> observation, info = env.reset()
    >>> [round(env.step(f"# fake: speedup={s}\\nclass ModelNew: ...")[1], 6) for s in (1, 1.1, 0.9, 1, 18)]
    [0.0, 1.0, -1.224745, 0.0, 1.5]
    """

    place: ClassVar[str | None] = "normalize"

    def __init__(
        self,
        env: gym.Env[Any, Any],
        clip: float | None = 1.5,
        scope: str = "running",
        warmup: int = 4,
        ddof: int = 0,
        frozen: bool = False,
    ) -> None:
        super().__init__(env, clip=clip, scope=scope, warmup=warmup, ddof=ddof, frozen=frozen)
        if scope not in _SCOPES:
            raise unknown_name("scope", scope, _SCOPES)
        self.clip = math.inf if clip is None else number("RunningNormalizeClip", "clip", clip, above=0)
        self.scope = scope
        self.warmup = whole("RunningNormalizeClip", "warmup", warmup, low=0)
        if ddof not in (0, 1) or isinstance(ddof, bool):
            raise InvalidOptionError(f"RunningNormalizeClip: ddof must be 0 or 1, got {ddof!r:.100}.")
        if not isinstance(frozen, bool):
            raise InvalidOptionError(f"RunningNormalizeClip: frozen must be True or False, got {frozen!r:.100}.")
        self.ddof = int(ddof)
        self.frozen = frozen
        self._moments: dict[str, _Moments] = {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, {**info, "raw_score": 0.0, **self._used(self._statistics(info))}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, incoming, terminated, truncated, info = self.env.step(action)
        value, moments = float(incoming), self._statistics(info)
        learns = counts(info) and not self.frozen and math.isfinite(value)  # one NaN would stay in the mean for good
        if learns and self.scope == "group":
            moments.add(value)
        reward = self._z(value, moments) if counts(info) else 0.0
        info = {**info, "raw_score": value, "score": reward, **self._used(moments)}
        if learns and self.scope == "running":
            moments.add(value)
        return observation, reward, terminated, truncated, info

    def freeze(self) -> None:
        """Let the statistics stand still."""
        self.frozen = True

    def unfreeze(self) -> None:
        """Go on learning."""
        self.frozen = False

    def forget(self) -> None:
        """Start the statistics anew, e.g. for the next groups."""
        self._moments.clear()

    def state_dict(self) -> dict[str, Any]:
        """The statistics as plain data: ``{"scope", "frozen", "moments": {group: [n, mean, m2]}}``."""
        moments = {key: [value.n, value.mean, value.m2] for key, value in self._moments.items()}
        return {"scope": self.scope, "frozen": self.frozen, "moments": moments}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from saved statistics.

        Args:
            state: from `state_dict`.

        Raises:
            InvalidOptionError: if it is of another form or was saved with another scope.
        """
        try:
            scope, frozen = str(state["scope"]), state["frozen"]
            moments = {str(key): _loaded(*values) for key, values in state["moments"].items()}
            if not isinstance(frozen, bool):
                raise ValueError(f"frozen is {frozen!r:.100}")
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise InvalidOptionError(f"Not a state of RunningNormalizeClip ({error!r}): {state!r:.200}.") from error
        if scope != self.scope:
            raise InvalidOptionError(
                f"The state has the scope {scope!r}, this wrapper {self.scope!r}; give the wrapper the state's scope."
            )
        self.frozen, self._moments = frozen, moments

    def _statistics(self, info: Mapping[str, Any]) -> _Moments:
        key = str(info.get("group_id", info.get("task_id", ""))) if self.scope == "group" else ""
        return self._moments.setdefault(key, _Moments())

    def _z(self, value: float, moments: _Moments) -> float:
        std = moments.std(self.ddof)
        if math.isnan(value) or moments.n < self.warmup or not std > _FLAT * max(1.0, abs(moments.mean)):  # NaN as well
            return 0.0
        return float(max(-self.clip, min(self.clip, (value - moments.mean) / std)))

    def _used(self, moments: _Moments) -> dict[str, Any]:
        known = moments.n > 0
        return {
            "norm_count": moments.n,
            "norm_mean": moments.mean if known else math.nan,
            "norm_std": moments.std(self.ddof) if known else math.nan,
        }
