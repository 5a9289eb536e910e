"""Errors raised for a caller's mistakes.

A submission never raises: whatever it does becomes an `Evaluation`. These classes are for the other case, a wrong
name, option or file given by the user of the package.

- `KernelGymError` -- base class of everything here.
- `UnknownNameError` -- a name that is not in a closed list; says what is allowed and what may have been meant.
- `InvalidOptionError` -- a value outside its range or of the wrong type.
- `MissingDataError` -- a task's data is not on this machine; says how to get it.
- `DownloadError` -- something could not be fetched; says from where and why.
- `NotRecordedError` -- a turn could not be written; says where and why.
- `unknown_name` -- builds an `UnknownNameError`.
- `check_whole` -- raises for what is no whole number.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

__all__ = [
    "DownloadError",
    "InvalidOptionError",
    "KernelGymError",
    "MissingDataError",
    "NotRecordedError",
    "UnknownNameError",
    "check_whole",
    "unknown_name",
]

_LISTED = 40
_FEW = 8


class KernelGymError(Exception):
    """Base class of the package's own errors."""


class UnknownNameError(KernelGymError, ValueError):
    """A name that is not in the list of allowed ones."""


class InvalidOptionError(KernelGymError, ValueError):
    """A value that is outside what an option allows."""


class MissingDataError(KernelGymError, FileNotFoundError):
    """Data that a task needs is not on this machine."""


class DownloadError(KernelGymError, OSError):
    """A server did not give what was asked for."""


class NotRecordedError(KernelGymError, OSError):
    """A turn was played and could not be written, e.g. as the disk is full."""


def unknown_name(kind: str, value: object, allowed: Iterable[str], *, see: str = "") -> UnknownNameError:
    """Build the error for an unknown `kind` of name.

    Args:
        kind: what the name stands for, e.g. ``"task id"``.
        value: what the caller gave.
        allowed: every allowed name.
        see: a sentence that says where the names are listed; it takes the place of a long list.

    Returns:
        The error, to be raised by the caller.

    >>> str(unknown_name("device", "tpu:0", ["auto", "cpu", "cuda"]))
    "Unknown device 'tpu:0'. Allowed: auto, cpu, cuda."
    >>> str(unknown_name("protocol", "stirct", ["strict"]))
    "Unknown protocol 'stirct'. Did you mean 'strict'? Allowed: strict."
    >>> str(unknown_name("task id", "a-7", (f"a-{i:03d}" for i in range(50)), see="`kernelgym tasks` lists them."))
    "Unknown task id 'a-7'. Did you mean 'a-007'? `kernelgym tasks` lists them."
    """
    names = sorted({str(name) for name in allowed})
    folded = {name.lower(): name for name in names}
    given = str(value).lower()
    close = [name for name in folded if _without_zeros(name) == _without_zeros(given)]
    close = close or difflib.get_close_matches(given, folded, n=1)
    hint = f" Did you mean {folded[close[0]]!r}?" if close else ""
    if see and len(names) > _FEW:
        return UnknownNameError(f"Unknown {kind} {value!r}.{hint} {see}")
    if not names:
        listed = "none"
    elif len(names) <= _LISTED:
        listed = ", ".join(names)
    else:
        listed = f"{', '.join(names[:_LISTED])}, … ({len(names)} in all)"
    return UnknownNameError(f"Unknown {kind} {value!r}.{hint} Allowed: {listed}.")


def check_whole(name: str, value: object, low: int = 1) -> int:
    """Return `value` if it is a whole number of at least `low`.

    Args:
        name: of the option.
        value: what the caller gave.
        low: the least that is allowed.

    Raises:
        InvalidOptionError: for anything else.

    >>> check_whole("turns", 3)
    3
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise InvalidOptionError(f"{name} must be a whole number of at least {low}, got {value!r:.100}.")
    return value


def _without_zeros(name: str) -> str:
    """A name without the zeros that its numbers begin with."""
    return re.sub(r"(?<!\d)0+(?=\d)", "", name)
