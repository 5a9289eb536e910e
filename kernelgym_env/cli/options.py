"""Types of options that several commands share.

- `name_of` -- an option whose value a `check_…` function accepts.
- `add_device` -- the option ``--device``.
- `add_protocol`, `add_rules` -- how a submission is judged.
- `add_judging`, `judging_of` -- how and where what a policy writes is judged, and what that says to an environment.
- `add_sandbox`, `sandbox_of` -- the options of the sandbox, and what they say to a pool.
- `kind_of` -- the kind of device whose sizes are meant.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from kernelgym_env import devices, pools
from kernelgym_env.errors import KernelGymError
from kernelgym_env.evaluation.protocols import LIBRARY_OPS, get_protocol, protocol_names
from kernelgym_env.evaluation.sandbox.options import MODES, check_mode
from kernelgym_env.evaluation.submission import BACKENDS, check_backend, check_device, check_library_ops

__all__ = [
    "add_device",
    "add_judging",
    "add_protocol",
    "add_rules",
    "add_sandbox",
    "judging_of",
    "kind_of",
    "name_of",
    "sandbox_of",
]


def name_of(check: Callable[[str], object]) -> Callable[[str], str]:
    """A type for `argparse` out of a function that raises for an unknown name."""

    def parse(text: str) -> str:
        try:
            check(text)
        except KernelGymError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return text

    return parse


def add_device(parser: argparse.ArgumentParser, help_text: str) -> None:
    """Add ``--device``."""
    parser.add_argument(
        "--device", type=name_of(check_device), default="auto", metavar="auto|cpu|cuda[:i]", help=help_text
    )


_JUDGING = ("device", "backend", "protocol", "library_ops", "pool")


def add_protocol(parser: argparse.ArgumentParser, what: str = "it is") -> None:
    """Add the option ``--protocol``.

    Args:
        parser: what gets the option.
        what: is judged by it, with its verb.
    """
    parser.add_argument(
        "--protocol",
        type=name_of(get_protocol),
        default="strict",
        metavar="NAME",
        help=f"how {what} judged: {', '.join(protocol_names())} (default: strict)",
    )


def add_rules(parser: argparse.ArgumentParser) -> None:
    """Add ``--backend``, ``--protocol`` and ``--library-ops``."""
    backends, policies = "|".join(BACKENDS), "|".join(LIBRARY_OPS)
    parser.add_argument("--backend", type=name_of(check_backend), default="auto", metavar=backends, help="its language")
    add_protocol(parser)
    parser.add_argument(
        "--library-ops",
        type=name_of(check_library_ops),
        default=None,
        metavar=policies,
        help="what it may take from libraries (default: the protocol's policy)",
    )


def add_judging(parser: argparse.ArgumentParser) -> None:
    """Add ``--device``, the options of `add_rules`, and ``--pool``."""
    add_device(parser, "where to judge (default: a GPU if there is one)")
    add_rules(parser)
    parser.add_argument(
        "--pool", type=name_of(pools.check_key), default="local", metavar="NAME", help="who judges (default: local)"
    )


def judging_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the options of `add_judging` say, as options of an environment."""
    return {name: getattr(arguments, name) for name in _JUDGING}


def add_sandbox(parser: argparse.ArgumentParser) -> None:
    """Add ``--sandbox``, ``--memory-gib`` and ``--cores``."""
    parser.add_argument(
        "--sandbox",
        type=name_of(check_mode),
        default="best_effort",
        metavar="|".join(MODES),
        help="what to do where this machine lacks a part of the sandbox: go on without it, or give a fault "
        "(default: best_effort)",
    )
    parser.add_argument(
        "--memory-gib",
        type=float,
        default=None,
        metavar="N",
        help="host memory that a submission may use (default: three quarters of what there is)",
    )
    parser.add_argument(
        "--cores", type=int, default=None, metavar="N", help="CPU cores that an evaluation may use (default: all)"
    )


def sandbox_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The same as arguments of `LocalPool`."""
    return {"sandbox": arguments.sandbox, "memory_gib": arguments.memory_gib, "cores": arguments.cores}


def kind_of(device: str) -> str:
    """``cpu`` or ``cuda``; a GPU may be named on a machine that has none."""
    return devices.device_kind(device) if device == "auto" else device.partition(":")[0]
