"""`KernelVectorEnv`: many episodes in one process, evaluated by one pool.

`gymnasium.make_vec` takes it for every id of this package. A step hands all submissions to the pool before it waits
for the first, where gymnasium's `SyncVectorEnv` waits for each; the results are the same.

- `KernelVectorEnv` -- the environment.
- `Turned` -- a turn that `KernelVectorEnv.collect` gives.
"""

from __future__ import annotations

import math
import queue
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array
from numpy.typing import NDArray

from kernelgym_env import rendering
from kernelgym_env.batching import stack_infos
from kernelgym_env.episode import Episode
from kernelgym_env.errors import InvalidOptionError, unknown_name
from kernelgym_env.evaluation.result import Evaluation
from kernelgym_env.rules import Played, Position, Rules

__all__ = ["KernelVectorEnv", "Turned"]

_Reset = tuple[dict[str, Any], dict[str, Any]]
_Step = tuple[dict[str, Any], NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]


@dataclass(frozen=True)
class Turned:
    """What a turn of one episode came to, as a single environment's `step` returns it.

    Attributes:
        index: which episode.
        observation: what to act on next. With ``SAME_STEP`` that is the next episode's where this one has ended; the
            last one of the ended episode is then in ``info["final_obs"]``, and its info in ``info["final_info"]``.
        reward: the turn's reward.
        terminated: whether the episode ended by its rules.
        truncated: whether infrastructure ended it.
        info: see `KernelEnv`.
    """

    index: int
    observation: dict[str, Any]
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


@dataclass(frozen=True)
class _Pending:
    """A turn that is being played: an action with its evaluation to come (None for a stop), or the next episode."""

    position: Position
    action: str | None
    future: Future[Evaluation] | None = None


class KernelVectorEnv(Rules, VectorEnv[dict[str, Any], Sequence[str], NDArray[Any]]):
    """Several episodes of `KernelEnv` at once, in one process and on one pool.

    Observations, rewards, ends and infos are those of as many single environments, batched as gymnasium does: a dict
    with ``prompt``, ``history`` and ``feedback`` as tuples, ``turn`` and ``turns_left`` as arrays; infos as arrays with
    masks. Actions are a list or tuple of texts.

    **All at once**: `step`. **Each in its own time**: `submit` an action for one episode, and `collect` those that are
    done, in whatever order they end. One thread at a time may use an environment.

    Args:
        num_envs: number of episodes, at least 1.
        autoreset_mode: an `AutoresetMode` or its value. ``NextStep``: the step after an episode's end begins the next
            one and ignores the action. ``SameStep``: the step in which it ends does. ``Disabled``: `reset` with
            ``options={"reset_mask": …}`` does, which suits groups of rollouts on the same task.
        **options: those of `KernelEnv`: ``task``, ``turns``, ``device``, ``backend``, ``protocol``, ``library_ops``,
            ``pool``, ``feedback``, ``render_mode``, ``level_mix``.

    Raises:
        UnknownNameError: for an unknown option or name, with what is allowed.
        InvalidOptionError: for a value outside its range.
        MissingDataError: for a task whose data is not on this machine.

    >>> envs = KernelVectorEnv(2, task="KernelGym/RowSum", pool="fake", turns=1)
    >>> observations, infos = envs.reset(seed=0)
    >>> sources = ["# fake: speedup=2\\nclass ModelNew: ...", "# fake: status=wrong\\nclass ModelNew: ..."]
    >>> observations, rewards, terminated, truncated, infos = envs.step(sources)
    >>> rewards, terminated, infos["status"]
    (array([2.3, 0. ]), array([ True,  True]), array(['correct', 'wrong'], dtype=object))
    """

    def __init__(
        self, num_envs: int = 1, *, autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP, **options: Any
    ) -> None:
        self._pending: dict[int, _Pending] = {}  # first of all, since `close` is called even if the rest fails
        if isinstance(num_envs, bool) or not isinstance(num_envs, (int, np.integer)) or num_envs < 1:
            raise InvalidOptionError(f"num_envs must be a whole number of at least 1, got {num_envs!r}.")
        _check_options(options)
        mode = _mode_of(autoreset_mode)
        Rules.__init__(self, **options)
        self.num_envs = int(num_envs)
        self.autoreset_mode = mode
        self.metadata = {**Rules.metadata, "autoreset_mode": mode}
        self.single_action_space, self.single_observation_space = self.action_space, self.observation_space
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self._positions: list[Position | None] = [None] * self.num_envs
        self._random: list[tuple[np.random.Generator, int] | None] = [None] * self.num_envs
        self._done: queue.SimpleQueue[tuple[int, _Pending]] = queue.SimpleQueue()

    # gymnasium's interface

    @property  # type: ignore[misc]  # as in gymnasium's own, it cannot be set
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """The random state of each episode, as gymnasium's own vector environments give it."""
        return tuple(self._seeded(index)[0] for index in range(self.num_envs))

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The seed of each of them."""
        return tuple(self._seeded(index)[1] for index in range(self.num_envs))

    def reset(self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None) -> _Reset:
        """Start an episode in each place, or in some.

        Args:
            seed: of the first place, the following places taking the following numbers; or one for each place, where
                None goes on with the random state that the place has; None does so for all.
            options: those of `KernelEnv.reset`, for all places alike, and ``reset_mask``, an array of bool with True
                for each place in which an episode is to start. The others stay as they are and are in no info.

        Returns:
            (observations, infos).

        Raises:
            InvalidOptionError: for seeds of another number, or a mask of another form.
            UnknownNameError: for an unknown option or task.
            gymnasium.error.AlreadyPendingCallError: if a turn of such a place has not been collected.
            gymnasium.error.ResetNeeded: if a place that the mask leaves out was never reset.
        """
        self._check_open()
        seeds = self._seeds(seed)
        options = dict(options or {})
        mask = self._mask(options.pop("reset_mask")) if "reset_mask" in options else None
        chosen = range(self.num_envs) if mask is None else [int(index) for index in np.flatnonzero(mask)]
        self._check_free(chosen, "reset")
        if mask is not None:
            for left in np.flatnonzero(~mask):
                self._reached(int(left))
        infos = []
        for index in chosen:
            if seeds[index] is not None:
                self._random[index] = seeding.np_random(seeds[index])
            position = self._restart(index, options)
            infos.append((index, self._info(position)))
        return self._observations(), stack_infos(infos, self.num_envs)

    def step(self, actions: Sequence[str]) -> _Step:
        """Play a turn in each place.

        Args:
            actions: a text for each place, see `KernelEnv.step`.

        Returns:
            (observations, rewards float64, terminated bool, truncated bool, infos), each with an entry for a place.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset, and with ``Disabled`` after an episode's end.
            gymnasium.error.InvalidAction: if there is not a text for each place. Nothing is evaluated then.
            gymnasium.error.AlreadyPendingCallError: if a turn has not been collected.
        """
        self._check_open()
        self._check_free(range(self.num_envs), "step")
        texts = self._texts(actions)
        started: list[_Pending] = []
        try:
            for pending, submission in [self._planned(index, text) for index, text in enumerate(texts)]:
                future = None if submission is None else self._send(submission)
                started.append(_Pending(pending.position, pending.action, future))
            played = [self._played(pending) for pending in started]
        except BaseException:  # an interrupt, or a bug of the pool: every episode stays where it was
            for pending in started:
                if pending.future is not None:
                    pending.future.cancel()
            raise
        infos: list[tuple[int, dict[str, Any]]] = []
        rewards = np.zeros(self.num_envs, dtype=np.float64)
        terminated, truncated = np.zeros(self.num_envs, dtype=np.bool_), np.zeros(self.num_envs, dtype=np.bool_)
        for index, one in enumerate(played):
            turned = self._arrive(index, one)
            rewards[index], terminated[index], truncated[index] = turned.reward, turned.terminated, turned.truncated
            infos.append((index, turned.info))
        return self._observations(), rewards, terminated, truncated, stack_infos(infos, self.num_envs)

    def render(self) -> tuple[Any, ...] | None:
        """Each episode so far, as `KernelEnv.render` gives it; None in mode ``human``, which prints each turn.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset.
            gymnasium.error.DependencyNotInstalled: for ``rgb_array`` without Pillow.
        """
        if self.render_mode is None:
            gym.logger.warn("render() does nothing without a render_mode; choose one in gym.make_vec.")
            return None
        positions = [self._reached(index) for index in range(self.num_envs)]
        if self.render_mode == "human":
            return None
        return tuple(rendering.frame(position.episode, self.render_mode) for position in positions)

    def close_extras(self, **kwargs: Any) -> None:
        """Cancel what waits. The pool is the process's and stays open, see `kernelgym_env.pools.close_all`."""
        for pending in self._pending.values():
            if pending.future is not None:
                pending.future.cancel()
        self._pending.clear()

    # episodes that take their own time

    @property
    def pending(self) -> tuple[int, ...]:
        """The places with a turn that was submitted and not collected, in order of submission."""
        return tuple(self._pending)

    def submit(self, index: int, action: str) -> None:
        """Begin a turn in one place; returns at once. `collect` gives what becomes of it.

        With ``NextStep`` the turn after an episode's end begins the next episode and ignores the action, as in `step`.

        Args:
            index: the place, from 0.
            action: see `KernelEnv.step`.

        Raises:
            InvalidOptionError: if there is no such place.
            gymnasium.error.AlreadyPendingCallError: if its last turn has not been collected.
            gymnasium.error.ResetNeeded: before the first reset, and with ``Disabled`` after an episode's end.
            gymnasium.error.InvalidAction: if the action is not text.
        """
        self._check_open()
        index = self._place(index)
        self._check_free([index], "submit")
        planned, submission = self._planned(index, action)
        future = None if submission is None else self._send(submission)
        pending = self._pending[index] = _Pending(planned.position, planned.action, future)
        if future is None:
            self._done.put((index, pending))
        else:
            future.add_done_callback(lambda _: self._done.put((index, pending)))

    def collect(self, timeout: float | None = None) -> list[Turned]:
        """The turns that are done, in the order in which they ended; waits until there is one.

        Args:
            timeout: seconds after which it returns an empty list if there is none; None waits without end.

        Raises:
            gymnasium.error.NoAsyncCallError: if no turn was submitted, or all were collected.
            InvalidOptionError: for a timeout that is negative or no number.

        >>> envs = KernelVectorEnv(2, task="KernelGym/RowSum", pool="fake")
        >>> _ = envs.reset(seed=0)
        >>> envs.submit(1, "# fake: speedup=2\\nclass ModelNew: ...")
        >>> [(turned.index, turned.reward) for turned in envs.collect()]
        [(1, 2.3)]
        """
        self._check_open()
        number = isinstance(timeout, (int, float)) and not isinstance(timeout, bool)
        if timeout is not None and (not number or math.isnan(timeout) or timeout < 0):
            raise InvalidOptionError(f"timeout must be None or seconds of at least 0, got {timeout!r}.")
        if not self._pending:
            raise gym.error.NoAsyncCallError("There is no turn to collect; call submit(index, action) first.", "submit")
        turns: list[Turned] = []
        end = None if timeout is None or timeout == math.inf else time.monotonic() + timeout
        while self._pending:
            try:
                index, pending = self._next_done(wait=not turns, end=end)
            except queue.Empty:
                break
            if self._pending.get(index) is not pending:
                continue  # of a turn that an error ended
            try:
                played = self._played(pending)
            except Exception:  # a bug of the pool: the episode stays where it was
                if turns:  # which must not be lost; the error comes with the next call
                    self._done.put((index, pending))
                    break
                del self._pending[index]
                raise
            del self._pending[index]
            turns.append(self._arrive(index, played))
        return turns

    # beside gymnasium's interface

    @property
    def episodes(self) -> tuple[Episode | None, ...]:
        """The state of each episode; None before the first reset."""
        return tuple(None if position is None else position.episode for position in self._positions)

    def clone_state(self, index: int) -> dict[str, Any]:
        """One episode as plain data, see `KernelEnv.clone_state`."""
        return self._state(self._reached(self._place(index)))

    def restore_state(self, index: int, state: dict[str, Any]) -> _Reset:
        """Continue one episode from a cloned state, of this environment or of a `KernelEnv`.

        Returns:
            (observation, info) of that episode alone.

        Raises:
            InvalidOptionError: if there is no such place, or the state has another turn budget.
            gymnasium.error.AlreadyPendingCallError: if its last turn has not been collected.
        """
        index = self._place(index)
        self._check_free([index], "restore_state")
        position = self._positions[index] = self._continue(state)
        return self._observe(position), self._info(position)

    # parts

    def _planned(self, index: int, action: object) -> tuple[_Pending, Any]:
        """The turn that an action begins in a place, and what has to be evaluated for it."""
        position = self._reached(index)
        if position.episode.ended and self.autoreset_mode is AutoresetMode.NEXT_STEP:
            return _Pending(position, None), None
        if position.episode.ended:
            raise gym.error.ResetNeeded(
                f"Episode {index} is over and autoreset_mode is {self.autoreset_mode.value!r}; start the next one with "
                "reset(options={'reset_mask': mask})."
            )
        submission = self._submission(position, action)
        return _Pending(position, str(action)), submission

    def _played(self, pending: _Pending) -> Played | None:
        """What a turn came to, waiting for its evaluation; None where the next episode is to begin."""
        if pending.action is None:
            return None
        future = pending.future
        evaluation = None if future is None else self._evaluation(pending.position, future)
        return self._after(pending.position, pending.action, evaluation)

    def _arrive(self, index: int, played: Played | None) -> Turned:
        """Move an episode on."""
        if played is None:
            position = self._restart(index, {})
            return Turned(index, self._observe(position), 0.0, False, False, self._info(position))
        self._positions[index] = played.position
        self._print(played.position)
        observation, info = played.observation, played.info
        if self.autoreset_mode is AutoresetMode.SAME_STEP and played.position.episode.ended:
            position = self._restart(index, {})
            info = {"final_obs": observation, "final_info": info, **self._info(position)}
            observation = self._observe(position)
        return Turned(index, observation, played.reward, played.terminated, played.truncated, info)

    def _restart(self, index: int, options: dict[str, Any]) -> Position:
        position = self._positions[index] = self._begin(self._seeded(index)[0], options)
        self._print(position)
        return position

    def _print(self, position: Position) -> None:
        if self.render_mode == "human":
            rendering.show(position.episode)

    def _next_done(self, *, wait: bool, end: float | None) -> tuple[int, _Pending]:
        if not wait:
            return self._done.get_nowait()
        return self._done.get(timeout=None if end is None else max(0.0, end - time.monotonic()))

    def _observations(self) -> dict[str, Any]:
        space = self.single_observation_space
        items = [self._observe(self._reached(index)) for index in range(self.num_envs)]
        empty = create_empty_array(space, n=self.num_envs, fn=np.zeros)
        assert isinstance(empty, dict)
        batched = concatenate(space, items, empty)
        assert isinstance(batched, dict)
        return batched

    def _seeded(self, index: int) -> tuple[np.random.Generator, int]:
        found = self._random[index]
        if found is None:
            found = self._random[index] = seeding.np_random()
        return found

    def _seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, (int, np.integer)):
            return [int(seed) + index for index in range(self.num_envs)]
        seeds = [one if one is None else int(one) for one in seed]
        if len(seeds) != self.num_envs:
            raise InvalidOptionError(
                f"seed must be an integer, None, or one of them for each of the {self.num_envs} episodes, "
                f"got {len(seeds)} of them."
            )
        return seeds

    def _mask(self, mask: object) -> NDArray[np.bool_]:
        fits = isinstance(mask, np.ndarray) and mask.shape == (self.num_envs,) and mask.dtype == np.bool_
        if not isinstance(mask, np.ndarray) or not fits or not mask.any():
            raise InvalidOptionError(
                f"options['reset_mask'] must be a numpy array of {self.num_envs} bool, at least one of them True, "
                f"got {mask!r:.200}."
            )
        return mask

    def _texts(self, actions: Iterable[Any]) -> list[Any]:
        if isinstance(actions, (str, bytes)) or not isinstance(actions, Iterable):
            raise gym.error.InvalidAction(f"Actions are a list of {self.num_envs} texts, got {actions!r:.100}.")
        texts = list(actions)
        if len(texts) != self.num_envs:
            raise gym.error.InvalidAction(f"Actions are a list of {self.num_envs} texts, got {len(texts)} of them.")
        return texts

    def _place(self, index: object) -> int:
        whole = isinstance(index, (int, np.integer)) and not isinstance(index, bool)
        if not whole or not 0 <= index < self.num_envs:  # type: ignore[operator]
            raise InvalidOptionError(f"index must be a whole number from 0 to {self.num_envs - 1}, got {index!r}.")
        return int(index)  # type: ignore[call-overload]

    def _reached(self, index: int) -> Position:
        position = self._positions[index]
        if position is None:
            raise gym.error.ResetNeeded(f"Episode {index} has not begun; call reset() first.")
        return position

    def _check_free(self, indices: Iterable[int], caller: str) -> None:
        busy = [index for index in indices if index in self._pending] if self._pending else []
        if busy:
            raise gym.error.AlreadyPendingCallError(
                f"{caller}() cannot touch episodes with a turn that was submitted and not collected: {busy}. "
                "Call collect() until `pending` is empty.",
                "submit",
            )

    def _check_open(self) -> None:
        if self.closed:
            raise gym.error.ClosedEnvironmentError("This environment is closed; make a new one with gym.make_vec.")


def _check_options(options: dict[str, Any]) -> None:
    """Refuse what `KernelEnv` does not take; `make_vec` passes on whatever it was given."""
    if "max_episode_steps" in options:
        raise InvalidOptionError(
            f"max_episode_steps={options['max_episode_steps']!r} asks for a wrapper, for which KernelVectorEnv has no "
            "place: use turns, or gym.make_vec(..., vectorization_mode='sync')."
        )
    allowed = [name for name in Rules.__init__.__annotations__ if name != "return"]
    for name in options:
        if name not in allowed:
            raise unknown_name("option of KernelVectorEnv", name, ["num_envs", "autoreset_mode", *allowed])


def _mode_of(mode: str | AutoresetMode) -> AutoresetMode:
    try:
        return AutoresetMode(mode)
    except ValueError:
        raise unknown_name("autoreset_mode", mode, [known.value for known in AutoresetMode]) from None
