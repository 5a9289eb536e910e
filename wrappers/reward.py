"""The published systems' rewards as wrappers, and three of this package's own.

Each reads ``info["evaluation"]``, applies a function of `kernelgym_env.rewards`, and makes the result both the reward
and ``info["score"]``. A stack has one of them, inside everything else that looks at rewards.

- `RecipeReward` -- base class, also for rewards of one's own.
- `KevinReward`, `MilestoneReward` (CUDA Agent), `CudaL1Reward`, `DrKernelReward`, `MakoraReward`, `TritonRLReward`,
  `KernelGymTiersReward` -- published ones.
- `LogSpeedupReward`, `RooflineReward`, `ImprovementReward` -- this package's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import gymnasium as gym

from kernelgym_env import rewards
from kernelgym_env.errors import InvalidOptionError, unknown_name
from kernelgym_env.evaluation.result import Evaluation, Status
from kernelgym_env.wrappers.base import KernelWrapper, counts, is_valid, needs, number

__all__ = [
    "PARTS",
    "CudaL1Reward",
    "DrKernelReward",
    "ImprovementReward",
    "KernelGymTiersReward",
    "KevinReward",
    "LogSpeedupReward",
    "MakoraReward",
    "MilestoneReward",
    "RecipeReward",
    "RooflineReward",
    "TritonRLReward",
]

PARTS = ("plan_reward", "code_reward")
"""Keys of ``info`` that hold the reward of a part of the reply; a guard that changes the reward changes them too."""

_PROBE = Evaluation("", Status.CORRECT)
"""A verdict to try options on, so that a wrong one raises in the constructor and not in a step."""


class RecipeReward(KernelWrapper):
    """Base class: the reward is a function of the evaluation, whatever comes in.

    A subclass defines `pay`, and hands its arguments on. A fault gives 0.0, and so does a turn without an evaluation
    (the agent's stop). The reward is a Python float.

    Args:
        env: what to wrap; ``info["evaluation"]`` is read at each step.
        **arguments: every argument of the subclass's constructor.

    Raises:
        InvalidOptionError: for an argument outside its range; in `step`, if ``info`` has no ``evaluation`` (what
            `Evaluation.to_dict` gives).

    >>> import gymnasium as gym
    >>> class Correct(RecipeReward):
    ...     def pay(self, evaluation):
    ...         return float(evaluation.credited)
    >>> env = Correct(gym.make("kernelgym_env:KernelGym/Fake-v0"))
    >>> observation, info = env.reset()
    >>> observation, reward, *_, info = env.step("# fake: speedup=2\\nclass ModelNew: ...")
    >>> reward, info["score"]
    (1.0, 1.0)
    """

    place: ClassVar[str | None] = "recipe"

    def pay(self, evaluation: Evaluation) -> float:
        """The reward of an evaluation; never called for a fault."""
        raise NotImplementedError(f"{type(self).__name__} must define pay(evaluation).")

    def _try_options(self) -> None:
        try:
            self.pay(_PROBE)
        except TypeError as error:
            raise InvalidOptionError(f"{type(self).__name__}: an argument has the wrong type ({error}).") from error

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, {**info, "score": 0.0}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, _, terminated, truncated, info = self.env.step(action)
        needs(self, info, "evaluation")
        evaluated = is_valid(info) and info["evaluation"].get("status", "") != ""
        reward = float(self.pay(Evaluation.from_dict(info["evaluation"]))) if evaluated else 0.0
        return observation, reward, terminated, truncated, {**info, "score": reward}


class KevinReward(RecipeReward):
    """Kevin: ``correct · (weight + speedup)``, see `kernelgym_env.rewards.kevin`. The environment's own reward.

    Args:
        env: what to wrap.
        weight: reward of correctness, at least 0.
        cap: greatest rewarded speedup, None for no cap.

    >>> import gymnasium as gym
    >>> env = KevinReward(gym.make("kernelgym_env:KernelGym/Fake-v0"), cap=3.0)
    >>> observation, info = env.reset()
    >>> env.step("# fake: speedup=18\\nclass ModelNew: ...")[1]
    3.3
    """

    def __init__(self, env: gym.Env[Any, Any], weight: float = 0.3, cap: float | None = None) -> None:
        super().__init__(env, weight=weight, cap=cap)
        self.weight, self.cap = weight, math.inf if cap is None else cap
        self._try_options()

    def pay(self, evaluation: Evaluation) -> float:
        return rewards.kevin(evaluation, weight=self.weight, cap=self.cap)


class MilestoneReward(RecipeReward):
    """CUDA Agent: -1, 1, 2, 3 by which baselines are beaten, see `kernelgym_env.rewards.milestone`.

    CUDA Agent pays once an episode: put `TerminalOnly` outside.

    Args:
        env: what to wrap.
        levels: ``[value, margin, baselines]`` of each level; the default is CUDA Agent's.
        correct: reward of a correct submission that reaches no level.
        failed: reward of one that is not correct.

    >>> import gymnasium as gym
    >>> env = MilestoneReward(gym.make("kernelgym_env:KernelGym/Fake-v0"))
    >>> observation, info = env.reset()
    >>> [env.step(f"# fake: speedup={s}\\nclass ModelNew: ...")[1] for s in (1.0, 1.2)], env.step("")[1]
    ([1.0, 2.0], -1.0)
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        levels: Sequence[Sequence[Any]] = rewards.CUDA_AGENT,
        correct: float = 1.0,
        failed: float = -1.0,
    ) -> None:
        super().__init__(env, levels=levels, correct=correct, failed=failed)
        self.levels, self.correct, self.failed = levels, correct, failed
        self._try_options()

    def pay(self, evaluation: Evaluation) -> float:
        return rewards.milestone(evaluation, levels=self.levels, correct=self.correct, failed=self.failed)


class CudaL1Reward(RecipeReward):
    """CUDA-L1: the speedup of a correct submission, see `kernelgym_env.rewards.cuda_l1`.

    It is meant to be normalised: put `RunningNormalizeClip` outside.

    Args:
        env: what to wrap.
        decimals: round towards 1 to so many decimals, as the paper does with 2; None does not round.

    >>> import gymnasium as gym
    >>> env = CudaL1Reward(gym.make("kernelgym_env:KernelGym/Fake-v0"), decimals=2)
    >>> observation, info = env.reset()
    >>> env.step("# fake: speedup=1.118\\nclass ModelNew: ...")[1]
    1.11
    """

    def __init__(self, env: gym.Env[Any, Any], decimals: int | None = None) -> None:
        super().__init__(env, decimals=decimals)
        self.decimals = decimals
        self._try_options()

    def pay(self, evaluation: Evaluation) -> float:
        return rewards.cuda_l1(evaluation, decimals=self.decimals)


class DrKernelReward(RecipeReward):
    """Dr. Kernel: correctness, capped speedup and coverage, see `kernelgym_env.rewards.dr_kernel`.

    Args:
        env: what to wrap.
        form: ``paper`` or ``released``.
        cap: greatest rewarded speedup, None for no cap.
        lower: a speedup below it counts as 0.
        coverage_weight: weight of the coverage; None is the form's own.

    >>> import gymnasium as gym
    >>> env = DrKernelReward(gym.make("kernelgym_env:KernelGym/Fake-v0"))
    >>> observation, info = env.reset()
    >>> round(env.step("# fake: speedup=4.2 coverage=0.8615\\nclass ModelNew: ...")[1], 6)
    4.8615
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        form: str = "paper",
        cap: float | None = 3.0,
        lower: float = 0.0,
        coverage_weight: float | None = None,
    ) -> None:
        super().__init__(env, form=form, cap=cap, lower=lower, coverage_weight=coverage_weight)
        self.form, self.cap, self.lower = form, math.inf if cap is None else cap, lower
        self.coverage_weight = coverage_weight
        self._try_options()

    def pay(self, evaluation: Evaluation) -> float:
        return rewards.dr_kernel(
            evaluation, form=self.form, cap=self.cap, lower=self.lower, coverage_weight=self.coverage_weight
        )


class MakoraReward(RecipeReward):
    """Makora: a sigmoid of the speedup over torch.compile, see `kernelgym_env.rewards.makora`.

    Args:
        env: what to wrap.
        delta: shift of the sigmoid.
        baseline: ``compile``, ``eager`` or ``graph``.

    >>> import gymnasium as gym
    >>> env = MakoraReward(gym.make("kernelgym_env:KernelGym/Fake-v0"), baseline="eager")
    >>> observation, info = env.reset()
    >>> round(env.step("# fake: speedup=1.5\\nclass ModelNew: ...")[1], 4)
    0.6682
    """

    def __init__(self, env: gym.Env[Any, Any], delta: float = 1.8, baseline: str = "compile") -> None:
        super().__init__(env, delta=delta, baseline=baseline)
        self.delta, self.baseline = delta, baseline
        self._try_options()

    def pay(self, evaluation: Evaluation) -> float:
        return rewards.makora(evaluation, delta=self.delta, baseline=self.baseline)


class TritonRLReward(RecipeReward):
    """TritonRL: two rewards, for the tokens of the plan and of the code, see `kernelgym_env.rewards.tritonrl`.

    A trainer reads both from ``info["plan_reward"]`` and ``info["code_reward"]``, and where the two lie in the reply
    from `ExtractCode`. The reward of the step is ``alpha · plan + code``, the weights of the published loss; it stands
    for both only where a single number is needed.

    Args:
        env: what to wrap.
        alpha: weight of the plan, at least 0.
        cap: greatest rewarded speedup, None for no cap.

    >>> import gymnasium as gym
    >>> env = TritonRLReward(gym.make("kernelgym_env:KernelGym/Fake-v0"))
    >>> observation, info = env.reset()
    >>> observation, reward, *_, info = env.step("# fake: speedup=2.5\\nclass ModelNew: ...")
    >>> reward, info["plan_reward"], info["code_reward"]
    (1.25, 2.5, 1.0)
    """

    def __init__(self, env: gym.Env[Any, Any], alpha: float = 0.1, cap: float | None = None) -> None:
        super().__init__(env, alpha=alpha, cap=cap)
        self.alpha = number("TritonRLReward", "alpha", alpha, low=0)
        self.cap = math.inf if cap is None else cap
        self._parts = rewards.PlanCode(0.0, 0.0)
        self._try_options()

    def pay(self, evaluation: Evaluation) -> float:
        self._parts = rewards.tritonrl(evaluation, cap=self.cap)
        return self.alpha * self._parts.plan + self._parts.code

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = super().reset(seed=seed, options=options)
        return observation, {**info, "plan_reward": 0.0, "code_reward": 0.0}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._parts = rewards.PlanCode(0.0, 0.0)
        observation, reward, terminated, truncated, info = super().step(action)
        info = {**info, "plan_reward": self._parts.plan, "code_reward": self._parts.code}
        return observation, reward, terminated, truncated, info


class KernelGymTiersReward(RecipeReward):
    """KernelGYM's tiers: steps of speed, and a penalty for each kind of failure.

    See `kernelgym_env.rewards.kernelgym_tiers`.

    Args:
        env: what to wrap.
        tiers: ``[speedup, value]`` of each tier; None takes KernelGYM's.
        slower: correct, but below every tier.
        wrong: for wrong values and exceptions.
        compile_error: for a source that a compiler refuses.
        failed: for every other failure.

    >>> import gymnasium as gym
    >>> env = KernelGymTiersReward(gym.make("kernelgym_env:KernelGym/Fake-v0"))
    >>> observation, info = env.reset()
    >>> [env.step(f"# fake: {text}\\nclass ModelNew: ...")[1] for text in ("speedup=1.7", "status=wrong")]
    [0.6, -0.3]
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        tiers: Sequence[Sequence[float]] | None = None,
        slower: float = -0.1,
        wrong: float = -0.3,
        compile_error: float = -0.5,
        failed: float = -1.0,
    ) -> None:
        super().__init__(env, tiers=tiers, slower=slower, wrong=wrong, compile_error=compile_error, failed=failed)
        self._options: dict[str, Any] = {
            "slower": slower,
            "wrong": wrong,
            "compile_error": compile_error,
            "failed": failed,
        }
        if tiers is not None:
            self._options["tiers"] = tiers
        self._try_options()

    def pay(self, evaluation: Evaluation) -> float:
        return rewards.kernelgym_tiers(evaluation, **self._options)


class LogSpeedupReward(RecipeReward):
    """The logarithm of the speedup, see `kernelgym_env.rewards.log_speedup`.

    Args:
        env: what to wrap.
        base: of the logarithm, above 1.
        low: least reward of a correct submission.
        high: greatest reward.
        failed: reward of one that is not correct, at most `low`.

    >>> import gymnasium as gym
    >>> env = LogSpeedupReward(gym.make("kernelgym_env:KernelGym/Fake-v0"))
    >>> observation, info = env.reset()
    >>> [env.step(f"# fake: speedup={s}\\nclass ModelNew: ...")[1] for s in (0.5, 1, 8)]
    [-1.0, 0.0, 3.0]
    """

    def __init__(
        self, env: gym.Env[Any, Any], base: float = 2.0, low: float = -3.0, high: float = 5.0, failed: float = -4.0
    ) -> None:
        super().__init__(env, base=base, low=low, high=high, failed=failed)
        self.base, self.low, self.high, self.failed = base, low, high, failed
        self._try_options()

    def pay(self, evaluation: Evaluation) -> float:
        return rewards.log_speedup(evaluation, base=self.base, low=self.low, high=self.high, failed=self.failed)


class RooflineReward(RecipeReward):
    """How much of the device's limit is reached, 0 to 1, see `kernelgym_env.rewards.roofline_fraction`.

    Args:
        env: what to wrap.

    >>> import gymnasium as gym
    >>> env = RooflineReward(gym.make("kernelgym_env:KernelGym/Fake-v0"))
    >>> observation, info = env.reset()
    >>> env.step("# fake: speedup=2\\nclass ModelNew: ...")[1]  # the fake evaluator knows no limit
    0.0
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)

    def pay(self, evaluation: Evaluation) -> float:
        return rewards.roofline_fraction(evaluation)


class ImprovementReward(RecipeReward):
    """What a turn adds to the best score of the episode so far, see `kernelgym_env.rewards.improvement`.

    The rewards of an episode add up to its best score (less `start`), so with gamma 1 only the best kernel counts and
    repeating it pays nothing. ``info["score"]`` is the improvement; ``info["best_score"]`` the best so far.

    Args:
        env: what to wrap.
        score: name of the reward whose best is sought, a key of `kernelgym_env.rewards.REWARDS`.
        start: best score before the first turn. Give what a failure pays where that is negative.

    Raises:
        UnknownNameError: for another score.

    >>> import gymnasium as gym
    >>> env = ImprovementReward(gym.make("kernelgym_env:KernelGym/Fake-v0"))
    >>> observation, info = env.reset()
    >>> [round(env.step(f"# fake: speedup={s}\\nclass ModelNew: ...")[1], 6) for s in (1.25, 1.0, 2.25)]
    [1.55, 0.0, 1.0]
    """

    def __init__(self, env: gym.Env[Any, Any], score: str = "kevin", start: float = 0.0) -> None:
        super().__init__(env, score=score, start=start)
        names = [name for name in rewards.REWARDS if name != "improvement"]
        if score not in names:
            raise unknown_name("score of ImprovementReward", score, names)
        self.score = score
        self.start = number("ImprovementReward", "start", start)
        self.best = self.start

    def pay(self, evaluation: Evaluation) -> float:
        function = rewards.REWARDS[self.score].function
        gained = rewards.improvement(evaluation, self.best, score=function)
        if counts({"status": evaluation.status.value}):
            self.best = max(self.best, function(evaluation))
        return gained

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.best = self.start
        observation, info = super().reset(seed=seed, options=options)
        return observation, {**info, "best_score": self.best}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated, truncated, {**info, "best_score": self.best}
