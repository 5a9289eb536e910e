"""What all wrappers of this package share.

- `KernelWrapper` -- base class: arguments are recorded as plain data, the order is checked.
- `load_function` -- the function that a text like ``"module:function"`` names.
- `is_valid`, `counts` -- whether a step says something about the submission; whether it enters statistics.
- `needs` -- checks what a step gives.
- `plain`, `number`, `whole` -- checks of arguments.
"""

from __future__ import annotations

import math
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from kernelgym_env.errors import InvalidOptionError, unknown_name
from kernelgym_env.wrappers.order import PLACES, check_order

__all__ = ["KernelWrapper", "counts", "is_valid", "load_function", "needs", "number", "plain", "whole"]


class KernelWrapper(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """A wrapper that can be re-made from its spec, from the spec's JSON, and in another process.

    A subclass sets `place` (see `kernelgym_env.wrappers.order`) and hands every argument but the environment on. Its
    arguments are texts, numbers, booleans, None, and lists and dicts of them.

    Args:
        env: what to wrap.
        **arguments: every argument of the subclass's constructor.

    Raises:
        TypeError: if `env` is no environment.
        InvalidOptionError: if the wrapper stands in a wrong place, or an argument is no plain data.
        UnknownNameError: if the class has a `place` that there is not.

    >>> import gymnasium as gym
    >>> class Doubled(KernelWrapper):
    ...     place = "normalize"
    ...     def __init__(self, env, factor=2.0):
    ...         super().__init__(env, factor=factor)
    >>> Doubled(gym.make("kernelgym_env:KernelGym/Fake-v0")).spec.additional_wrappers[-1].kwargs
    {'factor': 2.0}
    """

    place: ClassVar[str | None] = None

    def __init__(self, env: gym.Env[Any, Any], **arguments: Any) -> None:
        if not isinstance(env, gym.Env):
            raise TypeError(f"{type(self).__name__} wraps a gymnasium.Env, got {type(env).__name__}: {env!r:.100}.")
        if self.place is not None and self.place not in PLACES:
            raise unknown_name(f"place of {type(self).__name__}", self.place, PLACES)
        recorded = {name: plain(value, f"{type(self).__name__}: argument {name}") for name, value in arguments.items()}
        RecordConstructorArgs.__init__(self, **recorded)
        gym.Wrapper.__init__(self, env)
        check_order(self)


def plain(value: Any, what: str = "value") -> Any:
    """`value` as JSON would give it back: tuples become lists, numpy's scalars Python's.

    Raises:
        InvalidOptionError: for anything that JSON has no form for, NaN and infinity included.

    >>> plain({"edges": (1, np.float64(2.5))})
    {'edges': [1, 2.5]}
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, list | tuple):
        return [plain(item, what) for item in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: plain(item, what) for key, item in value.items()}
    hint = " Name a function by a text, 'module:function'." if callable(value) else ""
    raise InvalidOptionError(
        f"{what} must be plain data (text, finite numbers, booleans, None, lists, dicts with text keys), "
        f"got {value!r:.200}.{hint}"
    )


def load_function(name: str, what: str) -> Callable[..., Any]:
    """The function that ``"module:function"`` names.

    Args:
        name: an importable module, a colon, and a name in it.
        what: the option it was given for, for the error.

    Raises:
        InvalidOptionError: if there is no such function.

    >>> load_function("math:sqrt", "counter")(9)
    3.0
    """
    if not isinstance(name, str) or ":" not in name:
        raise InvalidOptionError(f"{what} must be a text 'module:function', got {name!r:.200}.")
    try:
        function = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidOptionError(f"{what}={name!r} cannot be loaded: {error}. Give 'module:function'.") from error
    if not callable(function):
        raise InvalidOptionError(f"{what}={name!r} names a {type(function).__name__}; give a function.")
    return function


def needs(wrapper: gym.Wrapper[Any, Any, Any, Any], info: Mapping[str, Any], *keys: str) -> None:
    """Check that a step gives what a wrapper reads.

    Raises:
        InvalidOptionError: naming what is missing.
    """
    if missing := [key for key in keys if key not in info]:
        named = ", ".join(f"info[{key!r}]" for key in missing)
        raise InvalidOptionError(
            f"{type(wrapper).__name__} reads {named}, which {wrapper.unwrapped} does not give. "
            "Wrap a KernelEnv, or an environment that puts the same there."
        )


def is_valid(info: Mapping[str, Any]) -> bool:
    """Whether a step says something about the submission: False after a fault of infrastructure.

    >>> is_valid({"valid": False}), is_valid({})
    (False, True)
    """
    return bool(info.get("valid", True))


def number(
    owner: str,
    option: str,
    value: float,
    *,
    above: float = -math.inf,
    low: float = -math.inf,
    high: float = math.inf,
) -> float:
    """Check an option that is a finite number.

    Args:
        owner: the class, for the error.
        option: the option's name, for the error.
        value: what was given.
        above: what it must exceed.
        low: least value.
        high: greatest value.

    Raises:
        InvalidOptionError: for anything else.

    >>> number("Wrapper", "gamma", 0.4, low=0, high=1)
    0.4
    """
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float | np.integer | np.floating)
        or not math.isfinite(value)
        or not (value > above and low <= value <= high)
    ):
        bounds = [f"above {above:g}"] if above > -math.inf else []
        bounds += [f"at least {low:g}"] if low > -math.inf else []
        bounds += [f"at most {high:g}"] if high < math.inf else []
        said = f" {' and '.join(bounds)}" if bounds else ""
        raise InvalidOptionError(f"{owner}: {option} must be a finite number{said}, got {value!r:.100}.")
    return float(value)


def whole(owner: str, option: str, value: int, *, low: int) -> int:
    """Check an option that is a whole number of at least `low`.

    Raises:
        InvalidOptionError: for anything else.

    >>> whole("Wrapper", "warmup", 3, low=0)
    3
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < low:
        raise InvalidOptionError(f"{owner}: {option} must be a whole number of at least {low}, got {value!r:.100}.")
    return int(value)


def counts(info: Mapping[str, Any]) -> bool:
    """Whether a step enters returns and statistics.

    It does not after a fault, on a task that cannot be judged, and where nothing was evaluated (the agent's stop).

    >>> counts({"status": "task_invalid"}), counts({"status": ""}), counts({"status": "wrong"}), counts({})
    (False, False, True, True)
    """
    return is_valid(info) and info.get("status") not in ("task_invalid", "")
