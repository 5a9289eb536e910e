"""Recording what was played.

- `RecordTrajectory` -- writes each turn into a `kernelgym_env.store.Store`.
"""

from __future__ import annotations

import platform
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import gymnasium as gym

from kernelgym_env._version import __version__
from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.prompts import messages
from kernelgym_env.store import Store, TurnRecord
from kernelgym_env.wrappers.base import KernelWrapper, is_valid

__all__ = ["RecordTrajectory"]


class RecordTrajectory(KernelWrapper):
    """Appends a `TurnRecord` to a file for each turn, before the step returns.

    A record has what the policy saw before it acted, its action, and what came of it: the evaluation, the score and
    the reward that left the wrappers inside. So it stands outside all of them. Environments of a vector may write to
    the same file. A step whose record cannot be written raises: no turn is lost without notice.

    ``info["episode_id"]`` is the id of the running episode, a new one from each reset on.

    Args:
        env: what to wrap. ``info["score"]`` and ``info["evaluation"]`` are recorded where there are any.
        path: the file, see `kernelgym_env.store.Store`.
        run_id: name of the experiment, the same in all its environments.
        versions: what else the turns are played with, e.g. the policy's, by name; added to those of this package,
            gymnasium and Python.

    Attributes:
        store: the `Store`.

    Raises:
        InvalidOptionError: for an argument that is no text (or, for `versions`, no dict of texts).

    >>> import gymnasium as gym, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> env = RecordTrajectory(gym.make("kernelgym_env:KernelGym/Fake-v0"), f"{folder.name}/run.jsonl", run_id="first")
    >>> observation, info = env.reset()
    >>> step = env.step("# fake: speedup=2\\nclass ModelNew: ...")
    >>> [(record.turn, record.score) for episode in env.store.episodes() for record in episode]
    [(1, 2.3)]
    >>> folder.cleanup()
    """

    place: ClassVar[str | None] = "record"

    def __init__(
        self, env: gym.Env[Any, Any], path: str, run_id: str = "", versions: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(env, path=path, run_id=run_id, versions=versions)
        for option, value in (("path", path), ("run_id", run_id)):
            if not isinstance(value, str) or (option == "path" and not value):
                raise InvalidOptionError(f"{option} must be a text, got {value!r:.200}.")
        if versions is not None and not all(isinstance(value, str) for value in versions.values()):
            raise InvalidOptionError(f"versions must be a dict of texts, got {versions!r:.200}.")
        self.store = Store(path)
        self.run_id = run_id
        self.versions = {
            "kernelgym_env": __version__,
            "gymnasium": gym.__version__,
            "python": platform.python_version(),
            **(versions or {}),
        }
        self._episode_id = ""
        self._turn = 0
        self._prompt: Any = None
        self._tokens: Sequence[int] | None = None
        self._logprobs: Sequence[float] | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._episode_id, self._turn = uuid.uuid4().hex, 0
        self._tokens = self._logprobs = None
        self._prompt = _as_prompt(observation)
        return observation, {**info, "episode_id": self._episode_id}

    def annotate(self, *, tokens: Sequence[int] | None = None, logprobs: Sequence[float] | None = None) -> None:
        """Say which tokens the next action is made of; they are recorded with it.

        Args:
            tokens: token ids of the action.
            logprobs: log-probability of each.

        Raises:
            InvalidOptionError: if the two differ in length.
        """
        if tokens is not None and logprobs is not None and len(tokens) != len(logprobs):
            raise InvalidOptionError(f"There are {len(tokens)} tokens and {len(logprobs)} logprobs; give one for each.")
        self._tokens = None if tokens is None else [int(token) for token in tokens]
        self._logprobs = None if logprobs is None else [float(value) for value in logprobs]

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._turn += 1
        self.store.append(
            TurnRecord(
                run_id=self.run_id,
                episode_id=self._episode_id,
                task_id=str(info.get("task_id", "")),
                turn=self._turn,
                prompt=self._prompt,
                action=action,
                evaluation=info.get("evaluation", {}),
                score=float(info.get("score", reward)),
                reward=float(reward),
                terminated=bool(terminated),
                truncated=bool(truncated),
                valid=is_valid(info),
                tokens=self._tokens,
                logprobs=self._logprobs,
                versions=self.versions,
            )
        )
        self._tokens = self._logprobs = None
        self._prompt = _as_prompt(observation)
        return observation, reward, terminated, truncated, {**info, "episode_id": self._episode_id}


def _as_prompt(observation: Any) -> Any:
    """Chat messages where the observation can be read as such, else the observation."""
    if isinstance(observation, Mapping) and {"prompt", "history", "turns_left"} <= set(observation):
        return messages(observation)
    return observation
