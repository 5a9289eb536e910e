"""The rewards as data: what each needs, its range, and what it pays for every status.

- `Reward` -- one entry.
- `REWARDS` -- all of them by name.
- `get_reward` -- one by name, with a hint for a misspelt one.
- `reward_table` -- name by status, as the documentation shows it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kernelgym_env.errors import unknown_name
from kernelgym_env.evaluation.result import Evaluation, Status
from kernelgym_env.rewards._parts import NEUTRAL, time_us
from kernelgym_env.rewards.further import improvement, log_speedup, roofline_fraction
from kernelgym_env.rewards.kernelgym import dr_kernel, kernelgym_tiers, kernelgym_weighted
from kernelgym_env.rewards.published import cuda_l1, kevin, makora, milestone, tritonrl_code, tritonrl_plan

__all__ = ["REWARDS", "Reward", "get_reward", "reward_table"]


@dataclass(frozen=True)
class Reward:
    """A reward function and what is known of it, with its default options.

    Attributes:
        name: its key in `REWARDS`.
        function: from an `Evaluation` to a float.
        low: least value.
        high: greatest value, which may be infinite.
        needs: measurements that it reads, as paths in `Evaluation`: ``"speedup"``, ``"times.eager"``, ….
        correct: what `correct` pays, as a formula of s (speedup), c (coverage) and t (times).
        pays: what each other status pays.
        source: where the formula comes from.
        deterministic: whether equal evaluations are paid equally.
    """

    name: str
    function: Callable[..., float]
    low: float
    high: float
    needs: tuple[str, ...]
    correct: str
    pays: Mapping[Status, float]
    source: str
    deterministic: bool = True

    def missing(self, evaluation: Evaluation) -> tuple[str, ...]:
        """The entries of `needs` that a correct evaluation lacks; such a term pays as little as it can.

        >>> get_reward("makora").missing(Evaluation("a/b", Status.CORRECT, speedup=2.0))
        ('speedup_compile',)
        """
        if not evaluation.credited:
            return ()
        return tuple(path for path in self.needs if math.isnan(_measured(evaluation, path)))


def _measured(evaluation: Evaluation, path: str) -> float:
    field, _, name = path.partition(".")
    return time_us(evaluation, name) if field == "times" else float(getattr(evaluation, field))


def _failures(pays: float, **special: float) -> Mapping[Status, float]:
    """What every status but `correct` pays: `pays`, but 0.0 where it says nothing about the submission."""
    table = {status: 0.0 if status in NEUTRAL else pays for status in Status if status is not Status.CORRECT}
    return MappingProxyType({**table, **{Status(name): value for name, value in special.items()}})


_ALL = (
    Reward("kevin", kevin, 0.0, math.inf, ("speedup",), "0.3 + s", _failures(0.0), "Kevin"),
    Reward(
        "milestone",
        milestone,
        -1.0,
        3.0,
        ("times.candidate", "times.eager", "times.compile"),
        "1; 2 if t < 0.95 eager; 3 if also t < 0.95 compile",
        _failures(-1.0),
        "CUDA Agent, eq. 1",
    ),
    Reward("cuda_l1", cuda_l1, 0.0, math.inf, ("speedup",), "s", _failures(0.0), "CUDA-L1"),
    Reward(
        "dr_kernel",
        dr_kernel,
        0.0,
        5.0,
        ("speedup", "coverage"),
        "1 + min(s, 3) + c (released: half of it)",
        _failures(0.0),
        "Dr. Kernel",
    ),
    Reward(
        "makora",
        makora,
        0.0,
        1.0,
        ("speedup_compile",),
        "sigmoid(s over compile - 0.8)",
        _failures(0.0),
        "Makora",
    ),
    Reward("tritonrl_plan", tritonrl_plan, 0.0, math.inf, ("speedup",), "s", _failures(0.0), "TritonRL, plan tokens"),
    Reward("tritonrl_code", tritonrl_code, 0.0, 1.0, (), "1", _failures(0.0), "TritonRL, code tokens"),
    Reward(
        "kernelgym_tiers",
        kernelgym_tiers,
        -1.0,
        1.0,
        ("speedup",),
        "-0.1, 0.2, 0.4, 0.6, 0.8, 1 from s = 0, 1, 1.2, 1.5, 2, 3",
        _failures(-1.0, compile_error=-0.5, runtime_error=-0.3, wrong=-0.3),
        "KernelGYM, calculate_reward_like_kernel",
    ),
    Reward(
        "kernelgym_weighted",
        kernelgym_weighted,
        0.0,
        1.0,
        ("speedup",),
        "0.5; 1 if s >= 1.01",
        _failures(0.0),
        "KernelGYM, calculate_reward_weighted",
    ),
    Reward(
        "log_speedup",
        log_speedup,
        -4.0,
        5.0,
        ("speedup",),
        "log2(s), from -3 to 5",
        _failures(-4.0),
        "this package",
    ),
    Reward(
        "roofline_fraction",
        roofline_fraction,
        0.0,
        1.0,
        ("times.candidate", "times.floor"),
        "min(floor / t, 1)",
        _failures(0.0),
        "this package",
    ),
    Reward(
        "improvement",
        improvement,
        0.0,
        math.inf,
        ("speedup",),
        "max(0, 0.3 + s - best before)",
        _failures(0.0),
        "this package",
    ),
)

REWARDS: Mapping[str, Reward] = MappingProxyType({reward.name: reward for reward in _ALL})
"""Every reward by name."""


def get_reward(name: str) -> Reward:
    """A reward by name.

    Raises:
        UnknownNameError: for an unknown name, with what may have been meant.

    >>> get_reward("milestone").high
    3.0
    >>> get_reward("milestones")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    kernelgym_env.errors.UnknownNameError: Unknown reward 'milestones'. Did you mean 'milestone'? Allowed: cuda_l1, ...
    """
    if name not in REWARDS:
        raise unknown_name("reward", name, REWARDS)
    return REWARDS[name]


def reward_table() -> dict[str, dict[str, float | str]]:
    """What every reward pays for every status: a number, for `correct` the formula.

    >>> reward_table()["kernelgym_tiers"]["wrong"], reward_table()["kevin"]["correct"]
    (-0.3, '0.3 + s')
    """
    return {
        reward.name: {
            status.value: reward.correct if status is Status.CORRECT else reward.pays[status] for status in Status
        }
        for reward in _ALL
    }
