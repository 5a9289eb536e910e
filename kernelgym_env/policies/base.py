"""The protocol between policies and loops.

- `Action`, `Policy` -- what a policy has to have.
- `actions_of` -- ask a policy, and check what it says.
- `Choosy`, `check_tasks` -- a policy that is not for every task, and whether it is for these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.evaluation.result import Evaluation
from kernelgym_env.tasks.model import Task

__all__ = ["Action", "Choosy", "Policy", "actions_of", "check_tasks"]


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


@runtime_checkable
class Choosy(Protocol):
    """A policy that is not for every task."""

    covers: str
    """Which tasks it is for, in words."""

    def why_not(self, task: Task, kind: str) -> str:
        """Why it cannot act on a task on a kind of device (``cpu``, ``cuda``); ``""`` if it can."""
        ...


def actions_of(policy: Policy, observations: Sequence[Mapping[str, Any]]) -> list[Action]:
    """What a policy does.

    Args:
        policy: who acts.
        observations: one for each environment.

    Returns:
        An action for each observation.

    Raises:
        InvalidOptionError: if it gave anything but a list with one `Action` for each observation.
    """
    given: Any = policy.act(observations)
    wanted = "`act` has to give a list with one `Action` for each observation; a text is wrapped as `Action(text)`"
    if not isinstance(given, list | tuple):
        raise InvalidOptionError(f"The policy gave a {type(given).__name__}, and {wanted}.")
    if len(given) != len(observations):
        raise InvalidOptionError(
            f"The policy gave {len(given)} actions for {len(observations)} observations; {wanted}."
        )
    for action in given:
        if not isinstance(action, Action):
            raise InvalidOptionError(f"The policy gave a {type(action).__name__} as an action, and {wanted}.")
        if not isinstance(action.text, str):
            raise InvalidOptionError(f"The policy gave an `Action` whose text is a {type(action.text).__name__}.")
    return list(given)


def check_tasks(policy: Policy, tasks: Sequence[Task], kind: str) -> None:
    """Check that a policy can act on each of these tasks, as far as it says; see `Choosy`.

    Args:
        policy: who is to act.
        tasks: on what.
        kind: of the device that it is judged on, ``cpu`` or ``cuda``.

    Raises:
        InvalidOptionError: if it cannot act on some; names them, and says which ones it is for.
    """
    if not isinstance(policy, Choosy):
        return
    refused = {task.id: why for task in tasks if (why := policy.why_not(task, kind))}
    if refused:
        told = "; ".join(f"{task_id}: {why}" for task_id, why in list(refused.items())[:3])
        more = f"; and {len(refused) - 3} more" if len(refused) > 3 else ""
        raise InvalidOptionError(
            f"The policy cannot act on {len(refused)} of the {len(tasks)} tasks ({told}{more}). It is for "
            f"{policy.covers}; give other tasks."
        )
