"""Rewards: pure functions from an `Evaluation` to a number.

Published:

- `kevin` -- the environment's default: correct · (0.3 + speedup).
- `milestone` -- steps of speed against several baselines; `CUDA_AGENT` are CUDA Agent's.
- `cuda_l1` -- the speedup, to be normalised; `round_toward_one` is that system's rounding.
- `dr_kernel` -- correctness, capped speedup and coverage, as in the paper or as released.
- `makora` -- a sigmoid of the speedup over torch.compile.
- `tritonrl` -- two numbers, for the tokens of the plan and of the code; `tritonrl_plan` and `tritonrl_code` alone.
- `kernelgym_tiers`, `kernelgym_weighted` -- the two other rewards in KernelGYM's code.

Further ones:

- `log_speedup` -- the same step for every doubling.
- `roofline_fraction` -- how near the time is to the device's limit.
- `improvement` -- what a turn adds to the best score so far.

Lists of them: `REWARDS`, `get_reward`, `reward_table`.

Three rules hold for all:

1. Only the status `correct` is paid as correct. `policy` and `integrity` are paid as failures.
2. `fault` and `task_invalid` pay 0.0 whatever a failure pays: they say nothing about the submission. Leave them out of
   returns and groups with a mask.
3. What was not measured (NaN) pays as little as it can in its term, so that nothing is gained by escaping a
   measurement. `Reward.missing` says which measurements an evaluation lacks.
"""

from __future__ import annotations

from kernelgym_env.rewards.further import improvement, log_speedup, roofline_fraction
from kernelgym_env.rewards.kernelgym import dr_kernel, kernelgym_tiers, kernelgym_weighted
from kernelgym_env.rewards.published import (
    CUDA_AGENT,
    Level,
    PlanCode,
    cuda_l1,
    kevin,
    makora,
    milestone,
    round_toward_one,
    tritonrl,
    tritonrl_code,
    tritonrl_plan,
)
from kernelgym_env.rewards.registry import REWARDS, Reward, get_reward, reward_table

__all__ = [
    "CUDA_AGENT",
    "REWARDS",
    "Level",
    "PlanCode",
    "Reward",
    "cuda_l1",
    "dr_kernel",
    "get_reward",
    "improvement",
    "kernelgym_tiers",
    "kernelgym_weighted",
    "kevin",
    "log_speedup",
    "makora",
    "milestone",
    "reward_table",
    "roofline_fraction",
    "round_toward_one",
    "tritonrl",
    "tritonrl_code",
    "tritonrl_plan",
]
