"""A policy that plays given replies, one per turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.evaluation.result import Evaluation
from kernelgym_env.policies.base import Action

__all__ = ["FIRST_EPISODE_TASK", "ScriptedPolicy", "first_episode"]

FIRST_EPISODE_TASK = "KernelGym/ElementwiseChain"
"""The task that `first_episode` is written for."""

_FIRST_EPISODE = ("1_wrong.md", "2_slow.md", "3_does_not_compile.md", "4_fast.md")


class ScriptedPolicy:
    """Plays the reply of the turn that an observation is at; after the last one it repeats it.

    Args:
        replies: at least one text.

    >>> policy = ScriptedPolicy(["first", "second"])
    >>> [action.text for action in policy.act([{"turn": 0}, {"turn": 1}, {"turn": 5}])]
    ['first', 'second', 'second']
    """

    def __init__(self, replies: Sequence[str]) -> None:
        if isinstance(replies, str) or not replies:
            raise InvalidOptionError(f"ScriptedPolicy needs a list of at least one reply, got {replies!r:.80}.")
        self.replies = list(replies)

    def act(self, observations: Sequence[Mapping[str, Any]]) -> list[Action]:
        """The scripted reply for each observation's turn."""
        last = len(self.replies) - 1
        return [Action(self.replies[min(int(observation["turn"]), last)]) for observation in observations]

    def observe(self, evaluations: Sequence[Evaluation]) -> None:
        """A script does not learn."""


def first_episode() -> ScriptedPolicy:
    """Four turns on `FIRST_EPISODE_TASK` for a machine without a GPU: a wrong answer, a slow one, one that does not
    compile, and C++ that beats eager PyTorch.
    """
    folder = resources.files("kernelgym_env.policies") / "first_episode"
    return ScriptedPolicy([(folder / name).read_text(encoding="utf-8") for name in _FIRST_EPISODE])
