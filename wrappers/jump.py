"""A second look at a sudden jump.

- `RewardJump` -- measures again when a speedup jumps, and may ask a judge.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import CancelledError
from dataclasses import replace
from typing import Any, ClassVar

import gymnasium as gym
from gymnasium import logger

from kernelgym_env.env import KernelEnv
from kernelgym_env.errors import InvalidOptionError, unknown_name
from kernelgym_env.evaluation.feedback import at_level
from kernelgym_env.evaluation.result import Evaluation, Status
from kernelgym_env.prompts import extract_source
from kernelgym_env.rewards import kevin
from kernelgym_env.wrappers.base import KernelWrapper, load_function, number
from kernelgym_env.wrappers.order import layers

__all__ = ["RewardJump"]


class RewardJump(KernelWrapper):
    """Measures a submission again when its speedup jumps, and lets everything outside see the outcome.

    A correct turn jumps if its speedup exceeds `absolute`, or `ratio` times the best one that this wrapper accepted for
    the task before. The submission is then evaluated once more. If the two speedups agree, the first one stands.
    Otherwise the slower evaluation counts; with ``rule="reject"`` no speed counts, as if it had not been measured. If
    the second evaluation is not correct, it is the one that counts. A fault in it changes nothing.

    A judge, e.g. a language model that reads the source, may be asked too. It can lower ``info["trust"]`` and never
    raise it, and it decides nothing by itself: where the measurements agree it has no effect on the reward. Where they
    do not, a trust of less than 0.5 from the judge has the same effect as ``rule="reject"``. A judge that raises, or
    returns no such number, has no say in the turn, and a warning says so.

    Since it replaces the evaluation, also in the environment's state and feedback, it stands directly around a
    `KernelEnv`, inside the recipe reward and all wrappers of observations. A turn that jumps costs two evaluations.

    ``info`` gets ``jump`` (bool), ``retest`` (``""``, ``agreed``, ``slower``, ``rejected``, ``failed`` or ``fault``)
    and ``trust`` (1 unless a jump was not confirmed: the smaller speedup divided by the greater, 0 if the second
    evaluation failed; or what the judge says if that is less).

    Args:
        env: what to wrap.
        ratio: greatest speedup without a re-test, in multiples of the best accepted one of the task; above 1.
        absolute: greatest speedup without a re-test; above 0.
        agreement: greatest relative difference at which two speedups agree, 0 to 1.
        rule: ``slower`` (the slower evaluation counts) or ``reject`` (no speed counts; CUDA-L1's rule).
        judge: ``"module:function"`` or None. It is called with a dict of ``task_id``, ``source``, ``speedup``,
            ``previous_best`` and the two evaluations as plain data (``evaluation``, ``retest``), and returns a number
            from 0 (a hack) to 1, or a bool.
        retest: ``"module:function"`` that evaluates again; it is called as `kernelgym_env.scoring.rescore` is, the
            default. Another one may ask for another device.

    Attributes:
        best: the best accepted speedup by task id.

    Raises:
        InvalidOptionError: for an argument outside its range, a function that cannot be loaded, or an environment
            that is no `KernelEnv`, or whose observations a wrapper changes.
        UnknownNameError: for another rule.

    >>> import gymnasium as gym
    >>> env = RewardJump(gym.make("kernelgym_env:KernelGym/Fake-v0"))
    >>> observation, info = env.reset()
    >>> info = env.step("# fake: speedup=2.0\\nclass ModelNew: ...")[4]
    >>> info["jump"], info["retest"]
    (False, '')
    >>> info = env.step("# fake: speedup=18.0\\nclass ModelNew: ...")[4]
    >>> info["jump"], info["retest"], info["trust"]
    (True, 'agreed', 1.0)
    """

    place: ClassVar[str | None] = "retest"

    def __init__(
        self,
        env: gym.Env[Any, Any],
        ratio: float = 2.0,
        absolute: float = 3.0,
        agreement: float = 0.1,
        rule: str = "slower",
        judge: str | None = None,
        retest: str = "kernelgym_env.scoring:rescore",
    ) -> None:
        super().__init__(
            env, ratio=ratio, absolute=absolute, agreement=agreement, rule=rule, judge=judge, retest=retest
        )
        if not isinstance(self.unwrapped, KernelEnv):
            raise InvalidOptionError(
                f"RewardJump evaluates again what a KernelEnv evaluated; {type(self.unwrapped).__name__} is none."
            )
        for layer in layers(env):
            if isinstance(layer, gym.ObservationWrapper):
                raise InvalidOptionError(
                    f"RewardJump cannot be put around {type(layer).__name__}: where it replaces an evaluation, the "
                    f"observation is the environment's own. Put {type(layer).__name__} around RewardJump."
                )
        if rule not in ("slower", "reject"):
            raise unknown_name("rule of RewardJump", rule, ("slower", "reject"))
        self.ratio = number("RewardJump", "ratio", ratio, above=1)
        self.absolute = number("RewardJump", "absolute", absolute, above=0)
        self.agreement = number("RewardJump", "agreement", agreement, low=0, high=1)
        self.rule = rule
        self._judge = None if judge is None else load_function(judge, "judge")
        self._retest = load_function(retest, "retest")
        self.best: dict[str, float] = {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, {**info, "jump": False, "retest": "", "trust": 1.0}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        info, reward = {**info, "jump": False, "retest": "", "trust": 1.0}, float(reward)
        if info["correct"] and self._jumps(info):
            first = Evaluation.from_dict(info["evaluation"])
            final, outcome, trust = self._second_look(first, info)
            info.update(jump=True, retest=outcome, trust=trust)
            if final is not first:
                observation, reward = self._replace(final, info)
        if info["correct"] and info["speedup"] > self.best.get(info["task_id"], 0.0):
            self.best[info["task_id"]] = info["speedup"]
        return observation, reward, terminated, truncated, info

    def _jumps(self, info: Mapping[str, Any]) -> bool:
        best = self.best.get(info["task_id"], math.inf)
        return bool(info["speedup"] > min(self.absolute, self.ratio * best))

    def _second_look(self, first: Evaluation, info: Mapping[str, Any]) -> tuple[Evaluation, str, float]:
        """The evaluation that counts, what the re-test said, and the trust."""
        env = self.unwrapped
        assert isinstance(env, KernelEnv) and env.task is not None and env.episode is not None
        source = extract_source(env.episode.played[-1].action)
        best = self.best.get(info["task_id"])
        try:
            second = self._retest(
                env.task,
                source,
                backend=env.backend,
                protocol=env.protocol,
                device=env.device,
                library_ops=env.library_ops,
                previous_best=best,
                pool=env.pool,
            )
        except CancelledError:  # the pool was closed meanwhile, a fault as in the environment
            second = Evaluation(env.task.id, Status.FAULT)
        agreed, doubt = _agree(first, second, self.agreement), False
        trust = 1.0 if agreed or not second.valid else _share(first, second)
        if self._judge is not None:
            said = self._ask_judge(
                {
                    "task_id": info["task_id"],
                    "source": source,
                    "speedup": first.speedup,
                    "previous_best": math.nan if best is None else best,
                    "evaluation": first.to_dict(),
                    "retest": second.to_dict(),
                }
            )
            doubt = said < 0.5
            trust = min(trust, said)
        if not second.valid:
            return first, "fault", trust
        if agreed:
            return first, "agreed", trust
        if not second.credited:
            return second, "failed", trust
        if self.rule == "reject" or doubt or math.isnan(second.speedup):
            return _without_speed(first, second), "rejected", trust
        return (second if second.speedup < first.speedup else first), "slower", trust

    def _ask_judge(self, context: dict[str, Any]) -> float:
        assert self._judge is not None
        try:
            said = self._judge(context)
            trust = float(said)
            if not 0 <= trust <= 1:
                raise ValueError(f"trust is a number from 0 to 1, it returned {said!r:.100}")
        except Exception as error:  # it may call a service, and a run must not end because that is down
            logger.warn(f"The judge of RewardJump has no say in this turn: {type(error).__name__}: {error}")
            return 1.0
        return trust

    def _replace(self, final: Evaluation, info: dict[str, Any]) -> tuple[Any, float]:
        """Put another evaluation of the last turn into the environment and into `info`."""
        env = self.unwrapped
        assert isinstance(env, KernelEnv)
        reward = kevin(final)  # the environment's own reward; a recipe outside replaces it
        state = env.clone_state()
        state["episode"]["played"][-1].update(
            feedback=at_level(final, env.feedback),
            status=final.status.value,
            score=reward,
            speedup=final.speedup,
            speedup_low=final.speedup_low,
            speedup_high=final.speedup_high,
        )
        observation, at_start = env.restore_state(state)
        info.update(
            status=final.status.value,
            correct=final.correct,
            credited=final.credited,
            score=reward,
            speedup=final.speedup,
            speedup_low=final.speedup_low,
            speedup_high=final.speedup_high,
            speedup_compile=final.speedup_compile,
            coverage=final.coverage,
            best_speedup=at_start["best_speedup"],
            finding_ids=tuple(finding.id for finding in final.findings),
            evaluation=final.to_dict(),
        )
        return observation, reward


def _share(first: Evaluation, second: Evaluation) -> float:
    """The smaller speedup divided by the greater, 0 where the second was not measured."""
    if not second.credited or not second.speedup > 0:
        return 0.0
    return min(first.speedup, second.speedup) / max(first.speedup, second.speedup)


def _agree(first: Evaluation, second: Evaluation, agreement: float) -> bool:
    """Whether both are correct and their speedups differ by at most a share of the first."""
    return second.credited and abs(first.speedup - second.speedup) <= agreement * first.speedup


def _without_speed(first: Evaluation, second: Evaluation) -> Evaluation:
    nan = math.nan
    sentence = f"Two measurements differ, {first.speedup:.2f}x and {second.speedup:.2f}x, so no speed is credited."
    return replace(
        first,
        speedup=nan,
        speedup_low=nan,
        speedup_high=nan,
        speedup_compile=nan,
        speedup_graph=nan,
        times={},
        feedback=f"{sentence}\n{first.feedback}".strip(),
    )
