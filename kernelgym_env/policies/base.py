"""The protocol between policies and loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from kernelgym_env.evaluation.result import Evaluation

__all__ = ["Action", "Policy"]


@dataclass(frozen=True)
class Action:
    """What a policy does in one environment.

    Attributes:
        text: the action for `env.step`.
        tokens: token ids of the text, None where there are none.
        logprobs: log-probability of each token under the policy, same length as `tokens`.
        usage: plain counters of the model's service, e.g. tokens paid for.
    """

    text: str
    tokens: Sequence[int] | None = None
    logprobs: Sequence[float] | None = None
    usage: Mapping[str, Any] | None = None


@runtime_checkable
class Policy(Protocol):
    """Acts in a batch of environments."""

    def act(self, observations: Sequence[Mapping[str, Any]]) -> list[Action]:
        """One action per observation, in order."""
        ...

    def observe(self, evaluations: Sequence[Evaluation]) -> None:
        """See what the last actions led to, one evaluation per action."""
        ...
