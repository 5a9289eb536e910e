"""From what an agent gives to the source that an environment takes.

- `ExtractCode` -- from a model's reply.
- `ScheduleAction` -- from the choices of a schedule, through a template.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from kernelgym_env.env import STOP
from kernelgym_env.errors import InvalidOptionError, unknown_name
from kernelgym_env.limits import MAX_SOURCE_CHARS
from kernelgym_env.prompts.reply import parse_reply
from kernelgym_env.spaces import UnicodeText
from kernelgym_env.tasks.model import Task
from kernelgym_env.templates.library import Template, get_template, templates
from kernelgym_env.wrappers.base import KernelWrapper

__all__ = ["MAX_SCHEDULES", "ExtractCode", "ScheduleAction"]

_PICKS = ("entry", "last", "first")


class ExtractCode(KernelWrapper):
    """Hands the code in a reply on, and says in ``info["extraction"]`` where it was.

    `KernelEnv` extracts code by itself. This wrapper is for stricter rules, for environments that take bare source,
    and for trainers that credit the plan and the code of a reply separately (TritonRL): it gives both as spans. What
    the environment shows in its history is the code alone.

    ``info["extraction"]`` has ``kind`` (``fenced``, ``unfenced``, ``none``, ``stop``; ``""`` at reset), ``language``
    (of the fence), ``blocks`` (fenced blocks outside of thinking), ``thinking_chars``, and ``plan_start``,
    ``plan_end``, ``code_start``, ``code_end``: characters of the reply, the end excluded, -1 for none. The plan is
    everything before the code. A reply without code becomes an empty action, which a `KernelEnv` answers with `format`.
    Its action that ends an episode passes.

    Args:
        env: what to wrap; its actions are text.
        pick: which fenced block counts: ``entry`` (the last that names ``ModelNew``, else the last), ``last`` or
            ``first``.
        languages: tags of fences that count, e.g. ``["python", "py", ""]`` (``""``: no tag); None for any.
        unfenced: whether code without a fence counts.

    Raises:
        UnknownNameError: for another pick.
        InvalidOptionError: if the environment's actions are no text, or `languages` is no list of texts.

    >>> import gymnasium as gym
    >>> env = ExtractCode(gym.make("kernelgym_env:KernelGym/Fake-v0"), languages=["python"])
    >>> observation, info = env.reset()
    >>> *_, info = env.step("Fused:\\n```python\\n# fake: speedup=2\\nclass ModelNew: ...\\n```")
    >>> info["score"], info["extraction"]["kind"], info["extraction"]["code_start"]
    (2.3, 'fenced', 17)
    """

    place: ClassVar[str | None] = "action"

    def __init__(
        self,
        env: gym.Env[Any, Any],
        pick: str = "entry",
        languages: Sequence[str] | None = None,
        unfenced: bool = True,
    ) -> None:
        super().__init__(env, pick=pick, languages=languages, unfenced=unfenced)
        if pick not in _PICKS:
            raise unknown_name("pick", pick, _PICKS)
        if languages is not None and (
            isinstance(languages, str) or not languages or not all(isinstance(tag, str) for tag in languages)
        ):
            raise InvalidOptionError(f"languages must be a list of texts, or None for any, got {languages!r:.200}.")
        if not isinstance(env.action_space, spaces.Text):
            raise InvalidOptionError(
                f"ExtractCode needs actions that are text, this environment has {env.action_space}."
            )
        self.pick = pick
        self.languages = None if languages is None else tuple(tag.lower() for tag in languages)
        self.unfenced = bool(unfenced)
        self.action_space = UnicodeText(MAX_SOURCE_CHARS)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, {**info, "extraction": _found("")}

    def step(self, action: str) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        if not isinstance(action, str):
            raise gym.error.InvalidAction(f"An action is text, got {type(action).__name__}: {action!r:.100}")
        if action.strip() == STOP:
            source, extraction = action, _found("stop")
        else:
            reply = parse_reply(action, pick=self.pick, languages=self.languages, unfenced=self.unfenced)
            source = reply.source
            extraction = _found(reply.kind, reply.language, reply.blocks, reply.thinking, *reply.plan, *reply.code)
        observation, reward, terminated, truncated, info = self.env.step(source)
        return observation, reward, terminated, truncated, {**info, "extraction": extraction}


def _found(
    kind: str,
    language: str = "",
    blocks: int = 0,
    thinking: int = 0,
    plan_start: int = -1,
    plan_end: int = -1,
    code_start: int = -1,
    code_end: int = -1,
) -> dict[str, Any]:
    return {
        "kind": kind,
        "language": language,
        "blocks": blocks,
        "thinking_chars": thinking,
        "plan_start": plan_start,
        "plan_end": plan_end,
        "code_start": code_start,
        "code_end": code_end,
    }


MAX_SCHEDULES = 100_000
"""Greatest number of actions of a discrete `ScheduleAction`."""


class ScheduleAction(KernelWrapper):
    """Lets an agent choose numbers instead of writing text: a template turns the choices into source.

    Each knob has a list of values. An action picks one of each, as an array of indices (``MultiDiscrete``, in the
    order of `knobs`), or all at once as one number (``Discrete``, the last knob changing fastest). The template is one
    of `kernelgym_env.templates`, e.g. ``"triton/rows"``, which brings its knobs along; or a Jinja file of your own,
    which sees the knobs by name, and ``task``, the environment's task. That makes the environment fit for agents that
    know no text, such as those of stable-baselines3; `NumericObservation` is the other half.

    ``info["schedule"]`` has the indices of the last action, int64 [knobs], -1 at reset.

    Args:
        env: what to wrap; its actions are text.
        template: name of a template of the library, or the path of a file.
        knobs: the values of each knob, by name. A template of the library has its own; values given here are those of
            its knobs that are left, the other knobs keep theirs.
        discrete: one number for all knobs together.
        forbidden: combinations that make no sense, as dicts of some knobs and their values. They are masked where
            masks can say it (see `action_masks`); chosen all the same, they are evaluated like any other.

    Attributes:
        knobs: the values of each knob, by name.

    Raises:
        InvalidOptionError: for a template that cannot be read or does not fit the knobs, for knobs without values, an
            unknown forbidden value, or more than `MAX_SCHEDULES` combinations of a discrete action; at reset for a
            task that a template of the library does not fit.
        UnknownNameError: for a knob that a template of the library does not have.

    >>> import gymnasium as gym, tempfile
    >>> env = ScheduleAction(gym.make("kernelgym_env:KernelGym/RowSoftmax-v0", pool="fake"), "cpp/rows")
    >>> env.action_space, list(env.knobs)
    (MultiDiscrete([2 3 3 2]), ['math', 'chunk', 'unroll', 'threads'])
    >>> with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
    ...     _ = file.write("# fake: speedup={{ block / 64 }}\\nclass ModelNew: ...  # {{ warps }} warps")
    ...     file.flush()
    ...     env = ScheduleAction(
    ...         gym.make("kernelgym_env:KernelGym/Fake-v0"), file.name, {"block": [64, 128, 256], "warps": [4, 8]},
    ...         forbidden=[{"block": 64}],
    ...     )
    >>> env.action_space, env.action_masks().tolist()
    (MultiDiscrete([3 2]), [False, True, True, True, True])
    >>> observation, info = env.reset()
    >>> env.step([1, 0])[4]["speedup"]
    2.0
    """

    place: ClassVar[str | None] = "action"

    def __init__(
        self,
        env: gym.Env[Any, Any],
        template: str,
        knobs: Mapping[str, Sequence[Any]] | None = None,
        discrete: bool = False,
        forbidden: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(env, template=template, knobs=knobs, discrete=discrete, forbidden=forbidden)
        if not isinstance(env.action_space, spaces.Text):
            raise InvalidOptionError(
                f"ScheduleAction needs actions that are text, this environment has {env.action_space}."
            )
        self._library = _of_library(template, knobs)
        if self._library is None:
            self.knobs = _check_knobs(knobs)
            self._text = _read(template)
            _check_template(template, self._text, self.knobs)
        else:
            self.knobs = {name: list(values) for name, values in self._library.knobs.items()}
            forbidden = [*forbidden, *self._library.forbidden]
        self._sizes = [len(values) for values in self.knobs.values()]
        self.discrete = bool(discrete)
        if self.discrete:
            if math.prod(self._sizes) > MAX_SCHEDULES:
                raise InvalidOptionError(
                    f"{math.prod(self._sizes)} schedules are more than a discrete action may have ({MAX_SCHEDULES}). "
                    "Use discrete=False, or give the knobs fewer values."
                )
            self.action_space = spaces.Discrete(math.prod(self._sizes))
        else:
            self.action_space = spaces.MultiDiscrete(self._sizes)
        self._masks = self._make_masks(_check_forbidden(forbidden, self.knobs))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        task = getattr(self.unwrapped, "task", None)
        if task is not None:
            self.check_fit(task)
        return observation, {**info, "schedule": np.full(len(self.knobs), -1, dtype=np.int64)}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        indices = self.indices(action)
        observation, reward, terminated, truncated, info = self.env.step(self.source(action))
        return observation, reward, terminated, truncated, {**info, "schedule": indices}

    def check_fit(self, task: Task) -> None:
        """Raise `InvalidOptionError` for a task that a template of the library does not fit."""
        if self._library is not None:
            self._library.check_fit(task)

    def choices(self, action: Any) -> dict[str, Any]:
        """The value of each knob that an action stands for.

        Raises:
            gymnasium.error.InvalidAction: if it is not in the action space.
        """
        indices = self.indices(action)
        return {name: values[index] for (name, values), index in zip(self.knobs.items(), indices, strict=True)}

    def source(self, action: Any, task: Task | None = None) -> str:
        """The source that an action stands for.

        Args:
            action: of the action space.
            task: what it is for; None for the environment's.

        Raises:
            gymnasium.error.InvalidAction: if it is not in the action space.
            InvalidOptionError: for a task that a template of the library does not fit.
        """
        chosen = self.choices(action)
        task = getattr(self.unwrapped, "task", None) if task is None else task
        if self._library is not None:
            if task is None:
                raise gym.error.ResetNeeded("Call reset() first; a template of the library needs a task.")
            return self._library.render(task, chosen)
        return str(_compiled(self._text).render(**chosen, task=task))

    def action_masks(self) -> NDArray[np.bool_]:
        """Which choices are allowed, for sb3-contrib's `MaskablePPO`.

        Returns:
            bool [number of schedules] for a discrete action; else [sum of the knobs' numbers of values], one knob after
            the other. The latter can rule out a value, not a pair of values: only forbidden dicts with one knob have
            an effect there, not counting knobs that have one value only.
        """
        return self._masks.copy()

    def indices(self, action: Any) -> NDArray[np.int64]:
        """The place of each knob's value that an action stands for, int64 [knobs].

        Raises:
            gymnasium.error.InvalidAction: if it is not in the action space.
        """
        # lists too: a vector environment and JSON give them
        given = np.asarray(action)
        wanted: Any = int(given) if self.discrete and given.ndim == 0 and given.dtype.kind in "iu" else given
        if given.dtype.kind not in "iu" or not self.action_space.contains(wanted):
            raise gym.error.InvalidAction(f"An action must be in {self.action_space}, got {action!r:.100}.")
        if self.discrete:
            return np.array(np.unravel_index(wanted, self._sizes), dtype=np.int64)
        return given.astype(np.int64)

    def _make_masks(self, forbidden: list[dict[str, int]]) -> NDArray[np.bool_]:
        if self.discrete:
            names = list(self.knobs)
            allowed = [
                not any(
                    all(indices[names.index(name)] == index for name, index in entry.items()) for entry in forbidden
                )
                for indices in itertools.product(*map(range, self._sizes))
            ]
            masks = np.array(allowed, dtype=np.bool_)
            left = bool(masks.any())
        else:
            parts = {name: np.ones(len(values), dtype=np.bool_) for name, values in self.knobs.items()}
            for entry in forbidden:
                # a knob that has one value only is no choice
                free = [(name, index) for name, index in entry.items() if len(self.knobs[name]) > 1] or [*entry.items()]
                if len(free) == 1:
                    ((name, index),) = free
                    parts[name][index] = False
            masks = np.concatenate(list(parts.values()))
            left = all(part.any() for part in parts.values())
        if not left:
            raise InvalidOptionError("forbidden leaves no schedule; take entries out of it.")
        return masks


def _of_library(template: str, knobs: Mapping[str, Sequence[Any]] | None) -> Template | None:
    """The template of that name with the values that are left; None for the path of a file."""
    if template not in {known.name for known in templates()}:
        return None
    return get_template(template).restricted(**(_check_knobs(knobs) if knobs else {}))


def _check_knobs(knobs: Mapping[str, Sequence[Any]] | None) -> dict[str, list[Any]]:
    if not isinstance(knobs, Mapping) or not knobs:
        raise InvalidOptionError(
            f"knobs must be a dict of names and lists of values, got {knobs!r:.200}. Only a template of the library "
            f"has its own: {', '.join(known.name for known in templates())}."
        )
    for name, values in knobs.items():
        if not name.isidentifier() or name == "task":
            raise InvalidOptionError(f"A knob's name must be an identifier other than 'task', got {name!r}.")
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise InvalidOptionError(f"Knob {name!r} must have a list of at least one value, got {values!r:.200}.")
    return {name: list(values) for name, values in knobs.items()}


def _check_forbidden(forbidden: Sequence[Mapping[str, Any]], knobs: Mapping[str, list[Any]]) -> list[dict[str, int]]:
    """The entries with indices in place of values."""
    result = []
    for entry in forbidden:
        if not isinstance(entry, Mapping) or not entry:
            raise InvalidOptionError(
                f"forbidden must be a list of dicts of knobs and values, got {entry!r:.200} in it."
            )
        for name, value in entry.items():
            if name not in knobs:
                raise unknown_name("knob", name, knobs)
            if value not in knobs[name]:
                raise InvalidOptionError(
                    f"forbidden: knob {name!r} has no value {value!r}; it has {knobs[name]!r:.200}."
                )
        result.append({name: knobs[name].index(value) for name, value in entry.items()})
    return result


def _read(template: str) -> str:
    if not isinstance(template, str):
        raise InvalidOptionError(f"template must be the path of a file, got {template!r:.200}.")
    try:
        return Path(template).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidOptionError(f"The template {template!r} cannot be read: {error}.") from error


def _check_template(template: str, text: str, knobs: Mapping[str, list[Any]]) -> None:
    import jinja2
    import jinja2.meta

    try:
        used = jinja2.meta.find_undeclared_variables(_environment().parse(text))
    except jinja2.TemplateSyntaxError as error:
        raise InvalidOptionError(f"The template {template!r} has an error in line {error.lineno}: {error}.") from error
    if unknown := sorted(used - set(knobs) - {"task"}):
        raise InvalidOptionError(f"The template {template!r} uses {', '.join(unknown)}, for which there is no knob.")
    if unused := sorted(set(knobs) - used):
        raise InvalidOptionError(f"The template {template!r} does not use the knob {', '.join(unused)}.")


@functools.lru_cache(maxsize=1)
def _environment() -> Any:
    import jinja2

    return jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)


@functools.lru_cache(maxsize=64)
def _compiled(text: str) -> Any:
    return _environment().from_string(text)
