"""What the tests of the wrappers share: replies, environments, and functions that are named by a text."""

from __future__ import annotations

import math
from concurrent.futures import CancelledError
from dataclasses import replace

import gymnasium as gym
from gymnasium import spaces

import kernelgym_env  # noqa: F401  (registers the ids)
from kernelgym_env.evaluation.result import Evaluation, Finding, Status
from kernelgym_env.scoring import score

FAKE = "KernelGym/Fake-v0"
GOOD = "# fake: status=correct speedup=2.0 coverage=0.5\nclass ModelNew: ..."
BAD = "# fake: status=wrong\nclass ModelNew: ..."
FAULT = "# fake: status=fault\nclass ModelNew: ..."


def fake(**options):
    return gym.make(FAKE, **options)


def kernel(speedup=None, coverage=None, status=None):
    """A submission that the fake evaluator answers as asked."""
    given = {"speedup": speedup, "coverage": coverage, "status": status}
    text = " ".join(f"{name}={value}" for name, value in given.items() if value is not None)
    return f"# fake: {text}\nclass ModelNew: ..."


def play(env, actions, **reset):
    """Rewards and infos of an episode."""
    env.reset(**reset)
    steps = [env.step(action) for action in actions]
    return [step[1] for step in steps], [step[4] for step in steps]


class ScriptedEnv(gym.Env):
    """A foreign environment: it has steps, rewards, and whatever `info` it is told to give."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Discrete(100)

    def __init__(self, infos=(), rewards=None, end="terminated", observation=0):
        self.infos, self.end, self.observation = list(infos), end, observation
        self.rewards = list(rewards) if rewards is not None else [0.0] * len(self.infos)
        self.at = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return self.observation, {}

    def step(self, action):
        info, reward = self.infos[self.at], self.rewards[self.at]
        self.at += 1
        last = self.at == len(self.infos)
        return self.observation, reward, last and self.end == "terminated", last and self.end == "truncated", dict(info)


class Findings(gym.Wrapper):
    """Puts findings into the evaluation of each turn: the fake evaluator makes none."""

    def __init__(self, env, *findings):
        super().__init__(env)
        self.findings = [Finding(*finding) for finding in findings]

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        evaluation = replace(Evaluation.from_dict(info["evaluation"]), findings=tuple(self.findings))
        return observation, reward, terminated, truncated, {**info, "evaluation": evaluation.to_dict()}


# named by a text


def words(text):
    return len(text.split())


def slower(task, source, **options):
    return replace(score(task, source, **options), speedup=2.0, speedup_low=1.9, speedup_high=2.1)


def faster(task, source, **options):
    return replace(score(task, source, **options), speedup=50.0)


def cancelled(task, source, **options):
    raise CancelledError


def unmeasured(task, source, **options):
    return replace(score(task, source, **options), speedup=math.nan)


def wrong(task, source, **options):
    return replace(score(task, source, **options), status=Status.WRONG, speedup=math.nan)


def faulty(task, source, **options):
    return replace(score(task, source, **options), status=Status.FAULT)


def distrusts(context):
    assert {"task_id", "source", "speedup", "previous_best", "evaluation", "retest"} == set(context)
    return 0.1


def trusts(context):
    return True


def breaks(context):
    raise ConnectionError("no service")


def out_of_range(context):
    return 2.0


def silent(context):
    return None


NO_FUNCTION = 3
