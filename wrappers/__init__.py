"""Wrappers: the published systems' rewards and contexts, put together around an environment.

Each one can be re-made from its spec and from the spec's JSON, and pickled. They read what every step has in ``info``,
and each says what it adds there.

Rewards (`kernelgym_env.wrappers.reward`), one of them in a stack:

- `KevinReward`, `MilestoneReward` (CUDA Agent), `CudaL1Reward`, `DrKernelReward`, `MakoraReward`, `TritonRLReward`,
  `KernelGymTiersReward` -- published ones.
- `LogSpeedupReward`, `RooflineReward`, `ImprovementReward` -- this package's.
- `RecipeReward` -- base class for one's own.

Guards:

- `RewardJump` -- measures again when a speedup jumps.
- `LazyOptimization` -- marks correct turns that did no real work.
- `AntiHack` -- what a finding costs.

Normalising and returns:

- `RunningNormalizeClip` -- z-scores, clipped.
- `TurnReturns` -- the return of each turn, at the episode's end.
- `TerminalOnly` -- pays at the end only.

Observations:

- `Exemplars` -- two scored kernels of different speed in the prompt.
- `HistoryPrompt` -- earlier kernels, summaries and results within a token budget.
- `ChatObservation` -- chat messages.
- `NumericObservation` -- numbers, for agents that know no text.

Actions:

- `ExtractCode` -- the code of a reply, and where it was.
- `ScheduleAction` -- numbers instead of text, through a template.

Recording:

- `RecordTrajectory` -- every turn into a file.

From the inside out the order is: `RewardJump`, one reward, `LazyOptimization`, `AntiHack`, `RunningNormalizeClip`,
`TurnReturns` or `TerminalOnly`, `RecordTrajectory`. Any other order raises and says the right one; see
`kernelgym_env.wrappers.order`. gymnasium's `ClipReward`, `TransformReward`, `TimeLimit`, `RecordEpisodeStatistics`,
`FilterObservation` and `TimeAwareObservation` fit in as they are.
"""

from __future__ import annotations

from kernelgym_env.wrappers.action import ExtractCode, ScheduleAction
from kernelgym_env.wrappers.base import KernelWrapper
from kernelgym_env.wrappers.guard import AntiHack, LazyOptimization
from kernelgym_env.wrappers.jump import RewardJump
from kernelgym_env.wrappers.normalize import RunningNormalizeClip
from kernelgym_env.wrappers.numeric import NumericObservation
from kernelgym_env.wrappers.observation import ChatObservation, Exemplars, HistoryPrompt
from kernelgym_env.wrappers.recording import RecordTrajectory
from kernelgym_env.wrappers.returns import TerminalOnly, TurnReturns
from kernelgym_env.wrappers.reward import (
    CudaL1Reward,
    DrKernelReward,
    ImprovementReward,
    KernelGymTiersReward,
    KevinReward,
    LogSpeedupReward,
    MakoraReward,
    MilestoneReward,
    RecipeReward,
    RooflineReward,
    TritonRLReward,
)

__all__ = [
    # rewards
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
    # guards
    "AntiHack",
    "LazyOptimization",
    "RewardJump",
    # normalising and returns
    "RunningNormalizeClip",
    "TerminalOnly",
    "TurnReturns",
    # observations
    "ChatObservation",
    "Exemplars",
    "HistoryPrompt",
    "NumericObservation",
    # actions
    "ExtractCode",
    "ScheduleAction",
    # recording
    "RecordTrajectory",
    # base class
    "KernelWrapper",
]
