"""Types of options that several commands share.

- `name_of` -- an option whose value a `check_…` function accepts.
- `add_device` -- the option ``--device``.
- `kind_of` -- the kind of device whose sizes are meant.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from kernelgym_env import devices
from kernelgym_env.errors import KernelGymError
from kernelgym_env.evaluation.submission import check_device

__all__ = ["add_device", "kind_of", "name_of"]


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


def kind_of(device: str) -> str:
    """``cpu`` or ``cuda``; a GPU may be named on a machine that has none."""
    return devices.device_kind(device) if device == "auto" else device.partition(":")[0]
