"""The published systems as recipes: options of the environment, wrappers, rewards and credit, put together.

- `Recipe` -- one system; `Recipe.make` builds its environment, `Recipe.reward` and `Recipe.credit` are its formulas.
- `Layer`, `Channel`, `CreditSettings`, `Credit` -- its parts.
- `recipe`, `recipe_names` -- look one up.

Every recipe is judged by this package, not by the system's own evaluator, under a protocol with the system's tolerance,
number of inputs and mode (`kernelgym_env.evaluation.presets`); timing is this package's own. What a recipe reproduces,
and where it differs from paper or released code, is in `Recipe.reproduced` and `Recipe.differs`, and on one page in
``docs/recipes.md``.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec, WrapperSpec
from numpy.typing import NDArray

from kernelgym_env import credit as formulas
from kernelgym_env.errors import InvalidOptionError, unknown_name
from kernelgym_env.evaluation.result import Evaluation
from kernelgym_env.rewards import get_reward

__all__ = ["Channel", "Credit", "CreditSettings", "Layer", "Recipe", "recipe", "recipe_names"]


@dataclass(frozen=True)
class Layer:
    """A wrapper of the stack.

    Attributes:
        name: its class in `kernelgym_env.wrappers`.
        options: its arguments, plain data.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def spec(self) -> WrapperSpec:
        """What gymnasium re-makes it from."""
        return WrapperSpec(self.name, f"kernelgym_env.wrappers:{self.name}", copy.deepcopy(dict(self.options)))


@dataclass(frozen=True)
class Channel:
    """A reward that is credited on its own.

    Attributes:
        name: ``score``, or which tokens it is for.
        reward: its name in `kernelgym_env.rewards.REWARDS`.
        options: arguments of that function.
        weight: of its loss.
    """

    name: str
    reward: str
    options: Mapping[str, Any] = field(default_factory=dict)
    weight: float = 1.0

    def __call__(self, evaluation: Evaluation) -> float:
        """The reward of a turn."""
        return get_reward(self.reward).function(evaluation, **self.options)


@dataclass(frozen=True)
class CreditSettings:
    """How scores become advantages.

    Attributes:
        gamma: discount per turn.
        mode: how later scores count for a turn, see `kernelgym_env.credit.turn_returns`.
        kind: an estimator of `kernelgym_env.credit.group_advantages`, or ``gae``.
        scope: ``task`` or ``task_turn``: what makes a group.
        ddof: of the standard deviation.
        lam: trace decay of ``gae``.
        clip: rewards become z-scores of their group, clipped to ± this, before anything else; None leaves them.
        prs: whether lazy turns are rejected, see `kernelgym_env.credit.prs_probabilities`.
        disclosed: whether the system's estimator is known; if not, `kind` is this package's choice.
    """

    gamma: float = 1.0
    mode: str = "sum"
    kind: str = "grpo"
    scope: str = "task"
    ddof: int = 0
    lam: float = 1.0
    clip: float | None = None
    prs: bool = False
    disclosed: bool = True


class Credit(NamedTuple):
    """What `Recipe.credit` gives.

    Attributes:
        returns: float64 [trajectories, turns], NaN where the mask is False.
        advantages: the same shape, 0 where the mask is False.
    """

    returns: NDArray[np.float64]
    advantages: NDArray[np.float64]


@dataclass(frozen=True)
class Recipe:
    """A published system, as far as an environment and a trainer's arithmetic can be it.

    Attributes:
        name: how it is asked for.
        title: the system and who made it.
        options: arguments of `KernelEnv`; `Recipe.make` takes others in their place.
        layers: the wrappers, from the inside out.
        channels: the rewards that are credited, one for most systems.
        settings: how they are credited.
        format_rules: what a reply must be, and what becomes of the published rule here.
        reproduced: what is as published.
        differs: where it is not, and where paper and released code disagree.
    """

    name: str
    title: str
    options: Mapping[str, Any]
    layers: tuple[Layer, ...]
    channels: tuple[Channel, ...]
    settings: CreditSettings
    format_rules: tuple[str, ...] = ()
    reproduced: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()

    @property
    def protocol(self) -> str:
        """Name of the protocol that it is judged by, the system's preset."""
        return str(self.options["protocol"])

    @property
    def library_ops(self) -> str:
        """What a submission may take from libraries."""
        return str(self.options["library_ops"])

    def spec(self, env_id: str, **kwargs: Any) -> EnvSpec:
        """The environment as data: for ``gym.make``, ``gym.make_vec``, JSON and other processes.

        With wrappers it has no `KernelVectorEnv`: they are for single environments, of which ``gym.make_vec`` then
        makes as many.

        Args:
            env_id: any id of this package, e.g. ``KernelGym/RowSoftmax-v0``.
            **kwargs: arguments of `KernelEnv` in place of the recipe's.
        """
        spec = copy.deepcopy(gym.spec(env_id))
        spec.kwargs = {**spec.kwargs, **copy.deepcopy(dict(self.options)), **kwargs}
        spec.additional_wrappers = (*spec.additional_wrappers, *(layer.spec() for layer in self.layers))
        if spec.additional_wrappers:
            spec.vector_entry_point = None
        return spec

    def make(self, env_id: str, **kwargs: Any) -> gym.Env[Any, Any]:
        """The environment with its wrappers.

        Args:
            env_id: any id of this package.
            **kwargs: arguments of `KernelEnv` in place of the recipe's, and those of ``gym.make``.

        >>> env = recipe("kevin").make("KernelGym/Fake-v0")
        >>> env.unwrapped.turns
        4
        """
        own = ("max_episode_steps", "disable_env_checker")
        given = {name: kwargs.pop(name) for name in own if name in kwargs}
        return gym.make(self.spec(env_id, **kwargs), **given)

    def reward(self, evaluation: Evaluation) -> float:
        """The score of a turn: the sum of the channels' rewards by their weights.

        >>> recipe("dr_kernel").reward(Evaluation("a/b", "correct", speedup=4.2, coverage=0.5))
        4.5
        """
        return float(sum(channel.weight * channel(evaluation) for channel in self.channels))

    def credit(
        self,
        scores: Any,
        groups: Sequence[Hashable],
        *,
        mask: Any = None,
        values: Any = None,
    ) -> Credit:
        """Returns and advantages of one channel's scores.

        Scores are the channel's own (`Recipe.reward` where there is one), not what a normalising wrapper makes of them.

        Args:
            scores: shape [trajectories, turns].
            groups: the task (or prompt) of each trajectory, hashable, [trajectories].
            mask: same shape as `scores`, False for faults, turns that were not played, and turns of a task that cannot
                be judged; their score is not read.
            values: a critic's values, same shape, only for ``gae``; None takes 0, so that the advantage is the return
                with `lam` as a further discount, also across turns that the mask leaves out.

        Returns:
            `Credit`, both float64 of the shape of `scores`.

        Raises:
            InvalidOptionError: for scores without two axes, another number of groups than of trajectories, and what
                `kernelgym_env.credit` refuses.

        >>> recipe("kevin").credit([[0, 1.3, 1.8], [0, 0, 0]], ["a", "a"]).advantages.round(6).tolist()
        [[0.0428, 1.457543, 1.200742], [-0.900362, -0.900362, -0.900362]]
        """
        settings = self.settings
        # turn_returns checks scores and mask; gamma 0 gives the scores back, with NaN where they do not count
        own = formulas.turn_returns(scores, 0.0, mask=mask)
        valid = ~np.isnan(own)
        if own.ndim != 2:
            raise InvalidOptionError(f"scores must have the shape [trajectories, turns], got {own.shape}.")
        if len(groups) != len(own):
            raise InvalidOptionError(f"groups must be the keys of the {len(own)} trajectories, got {len(groups)} keys.")
        if settings.clip is not None:
            own = formulas.clipped_zscores(np.where(valid, own, 0.0), groups, bound=settings.clip, mask=valid)
        returns = formulas.turn_returns(np.where(valid, own, 0.0), settings.gamma, settings.mode, mask=valid)
        if settings.kind == "gae":
            return Credit(returns, _terminal_gae(own, valid, settings, values))
        advantages = formulas.group_advantages(
            returns, groups, kind=settings.kind, scope=settings.scope, ddof=settings.ddof, mask=valid
        )
        return Credit(returns, advantages)


def _terminal_gae(
    scores: NDArray[np.float64], valid: NDArray[np.bool_], settings: CreditSettings, values: Any
) -> NDArray[np.float64]:
    """GAE where an episode pays the score of its last turn at that turn, and nothing before."""
    if values is None or not scores.size:
        ahead = formulas.turn_returns(np.where(valid, scores, 0.0), settings.gamma * settings.lam, "last", mask=valid)
        return np.where(valid, ahead, 0.0)
    turns = np.arange(scores.shape[-1])
    last = np.where(valid, turns, -1).max(axis=-1, keepdims=True, initial=-1)
    ends = valid & (turns == last)
    return formulas.gae(
        np.where(ends, scores, 0.0),
        values,
        terminated=ends,
        bootstrap=0.0,
        gamma=settings.gamma,
        lam=settings.lam,
        mask=valid,
    ).advantages


_ANTI_HACK = Layer("AntiHack", {"cost": "zero"})
_CODE = Layer("ExtractCode")

_RECIPES = (
    Recipe(
        "kevin",
        "Kevin-32B (Cognition, Stanford)",
        {"turns": 4, "backend": "cuda", "library_ops": "forbid", "protocol": "kevin"},
        (
            _CODE,
            Layer("KevinReward", {"weight": 0.3}),
            _ANTI_HACK,
            Layer("TurnReturns", {"gamma": 0.4, "mode": "sum"}),
            Layer("HistoryPrompt", {"token_budget": 16_384}),
        ),
        (Channel("score", "kevin", {"weight": 0.3}),),
        CreditSettings(gamma=0.4, mode="sum", kind="grpo", scope="task"),
        (
            "A reply whose code cannot be used scores 0 (status format).",
            "The published list of words that score 0 (torch.nn and functional operators, try, except, pass) is not "
            "applied: it is the evaluator that says whose kernels did the work, under library_ops=forbid.",
        ),
        (
            "Score 0.3 · correct + speedup over eager, without a cap; 0 for every failure.",
            "Four turns in training (eight in tests: make(…, turns=8)).",
            "Return of a turn: sum of later scores, gamma 0.4. The rejected forms are TurnReturns' other modes.",
            "Advantages over all turns of all trajectories of a task: (R - mean) / std, 16 trajectories of 4 turns.",
            "Context: earlier kernels with their own summaries and results, reasoning dropped, oldest turns first.",
        ),
        (
            "The context budget is not given for the prompt of a later turn; 16,384 tokens is this package's choice.",
            "Whether the standard deviation divides by N or N - 1 is not stated; ddof is 0.",
            "The CUDA example of the first prompt is not shown.",
        ),
    ),
    Recipe(
        "cuda_agent",
        "CUDA Agent (ByteDance Seed, Tsinghua)",
        {"turns": 150, "backend": "cuda", "library_ops": "gemm", "protocol": "cuda_agent"},
        (
            _CODE,
            Layer("MilestoneReward"),
            Layer("AntiHack", {"cost": "minus_one"}),
            Layer("TerminalOnly", {"mode": "last"}),
        ),
        (Channel("score", "milestone"),),
        CreditSettings(gamma=1.0, mode="last", kind="gae", lam=0.95),
        ("None published beside the files of the workspace; here an episode's action is one source.",),
        (
            "Reward -1, 1, 2, 3 from times, 5% of time, strict.",
            "One reward at the end of the episode, of the last kernel that was evaluated.",
            "GAE with gamma 1 and lambda 0.95; values are the trainer's critic (credit(…, values=…)).",
            "Up to 150 turns in training; 200 in tests.",
        ),
        (
            "A turn there is a tool call, of which many evaluate nothing; here every turn is a submission.",
            "Matrix products and convolutions may come from libraries there, called from C++; library_ops=gemm allows "
            "them from torch too. The released check replaces the callables of torch.nn.functional and nothing else.",
            "The 3 needs a time of torch.compile; where the evaluator measures none it is never paid.",
            "Metrics there take an episode's best kernel, the reward its last one; info['best_speedup'] has the best.",
            "The table of the paper says 97/100/90% faster than compile by level, its abstract 100/100/92.",
        ),
    ),
    Recipe(
        "cuda_l1",
        "CUDA-L1 (DeepReinforce)",
        {"turns": 1, "backend": "auto", "library_ops": "allow", "protocol": "cuda_l1"},
        (
            Layer("RewardJump", {"ratio": 2.0, "absolute": 3.0, "agreement": 0.1, "rule": "reject"}),
            _CODE,
            Layer("CudaL1Reward", {"decimals": 2}),
            _ANTI_HACK,
            Layer("RunningNormalizeClip", {"clip": 1.5, "scope": "group"}),
            Layer("Exemplars", {"count": 2}),
        ),
        (Channel("score", "cuda_l1", {"decimals": 2}),),
        CreditSettings(gamma=0.0, kind="grpo", clip=1.5),
        ("A reply has analysis, design and code; the code is taken, the rest is not asked for.",),
        (
            "Reward: the speedup, rounded to two decimals towards 1.",
            "z-scores clipped at ±1.5, then GRPO, which normalises again.",
            "A second measurement above 3x or twice the best; a disagreement beyond 10% is rejected.",
            "Two exemplars from different buckets of speed in the prompt.",
        ),
        (
            "Rewards, smoothing and exemplars follow secondary sources, not the text of the paper.",
            "Whether the z-score's mean and standard deviation are a group's is not stated. In a group of fewer than "
            "four the clip has no effect; running ones are RunningNormalizeClip(scope='running').",
            "The second measurement is in a fresh process of the same pool, not on a second device.",
            "The released evaluator takes the mean of seven ratios and does not round; the paper takes the median.",
            "An unsuccessful kernel has no reward there; here it scores 0.",
            "The language model that looks at jumps is RewardJump's judge, and none is set.",
        ),
    ),
    Recipe(
        "dr_kernel",
        "Dr. Kernel, KernelGYM (HKUST, TikTok)",
        {"turns": 3, "backend": "triton", "library_ops": "allow", "protocol": "kernelgym"},
        (
            _CODE,
            Layer("DrKernelReward", {"form": "paper"}),
            Layer("LazyOptimization", {"floor": 0.3, "softness": 0.1}),
            _ANTI_HACK,
            Layer("TurnReturns", {"gamma": 1.0, "mode": "sum"}),
        ),
        (Channel("score", "dr_kernel", {"form": "paper"}),),
        CreditSettings(gamma=1.0, mode="sum", kind="trloo", scope="task_turn", prs=True),
        ("A reply whose code cannot be used scores 0.",),
        (
            "Score correct · (1 + min(speedup, 3) + coverage); 0 for failures and hacks.",
            "Three turns; reward-to-go with gamma 1.",
            "TRLOO by task and turn: the mean of the others is the baseline, a single one has none.",
            "Rejection by coverage: info['prs_keep'] is the probability, drawn by the trainer (credit.prs_sample).",
        ),
        (
            "The release pays half of the paper's reward: DrKernelReward(form='released').",
            "Coverage there has the profiler's CPU time in its denominator and is smaller.",
            "In the release a rejected turn leaves the loss alone, and stays in baselines and earlier returns.",
            "A decoy is found there by a launch hook; here it is left to the evaluator, as a finding.",
            "Coverage is NaN where the evaluator does not measure it: it then adds 0, and no turn is rejected.",
            "Mismatch rejection is in credit.mrs_mask; it needs the trainer's log-probabilities.",
        ),
    ),
    Recipe(
        "tritonrl",
        "TritonRL (CMU, AWS)",
        {"turns": 1, "backend": "triton", "library_ops": "forbid", "protocol": "tritonrl"},
        (_CODE, Layer("TritonRLReward", {"alpha": 0.1}), _ANTI_HACK),
        (Channel("plan", "tritonrl_plan", weight=0.1), Channel("code", "tritonrl_code")),
        CreditSettings(gamma=0.0, kind="grpo"),
        (
            "The plan is what comes before the code; info['extraction'] has both as spans.",
            "Validity (it parses, has @triton.jit, calls its kernel) is the status here; no language model judges.",
        ),
        (
            "Two rewards: valid · speedup for the tokens of the plan, valid · correct for those of the code.",
            "GRPO for each kind of tokens on its own; loss alpha · plan + code, alpha 0.1.",
        ),
        (
            "Rewards follow secondary sources, not the text of the paper; alpha is that of two re-implementations.",
            "One re-implementation caps the speedup at 2; there is no cap here.",
        ),
    ),
    Recipe(
        "makora",
        "Makora (GPT-5 fine-tuned for Triton)",
        {"turns": 1, "backend": "triton", "library_ops": "forbid", "protocol": "makora"},
        (_CODE, Layer("MakoraReward", {"delta": 1.8}), _ANTI_HACK),
        (Channel("score", "makora", {"delta": 1.8}),),
        CreditSettings(gamma=0.0, kind="grpo", disclosed=False),
        ("Reachability of a kernel from the entry class is not read off the source; the status decides.",),
        ("Reward sigmoid(1 + speedup over torch.compile - 1.8), 0 for failures.",),
        (
            "Training was a service: estimator and group are not disclosed, GRPO is this package's choice.",
            "The reward needs a time of torch.compile; without one a correct kernel earns 0.310, whatever its speed.",
            "The tools (search among kernels, the web) and the cache by syntax tree are not part of it.",
        ),
    ),
)

_BY_NAME: Mapping[str, Recipe] = MappingProxyType({entry.name: entry for entry in _RECIPES})


def recipe_names() -> list[str]:
    """Names of all recipes.

    >>> recipe_names()
    ['kevin', 'cuda_agent', 'cuda_l1', 'dr_kernel', 'tritonrl', 'makora']
    """
    return list(_BY_NAME)


def recipe(name: str) -> Recipe:
    """A recipe by name.

    Raises:
        UnknownNameError: for an unknown name, with what may have been meant.

    >>> recipe("dr_kernel").settings.kind
    'trloo'
    """
    if name not in _BY_NAME:
        raise unknown_name("recipe", name, _BY_NAME)
    return _BY_NAME[name]
