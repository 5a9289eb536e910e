"""Who else uses a GPU while times are taken, and what its clocks do meanwhile.

A kernel of another process makes a call slower; the power limit or the temperature make the clocks fall. Neither can be
prevented from here, so both are looked at before and after, and kept with the figure.

What cannot be known is said to be unknown: without a driver, and in most containers, where the driver counts processes
by the host's ids or shows none at all. Such a list cannot be told from one of strangers, except by its length.

- `DeviceState` -- one look at a device, as plain data; `look` takes it.
- `foreign` -- the processes on a device that are none of ours.
- `Neighbourhood` -- two looks and what they say together; `compare` makes it.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from kernelgym_env import nvml
from kernelgym_env.nvml import GpuProcess, GpuState

__all__ = ["BUSY", "DeviceState", "Neighbourhood", "compare", "foreign", "look"]

BUSY = 0.05
"""Share of a sample period in which a neighbour's kernels run, from which on no time is worth anything."""


@dataclass(frozen=True)
class DeviceState:
    """One look at a device.

    Attributes:
        gpu: what the driver says; None where there is none to ask.
        shared: whether a process that is none of ours has a context there; None if unknown.
        neighbours: those processes as far as they are known one by one.
        unknown: why `shared` or `gpu` is unknown, ``""`` if both are known.
        taken_us: when, in microseconds since 1970.
    """

    gpu: GpuState | None
    shared: bool | None
    neighbours: tuple[GpuProcess, ...] = ()
    unknown: str = ""
    taken_us: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Plain data for the provenance: clocks, what holds them, temperature, power; None for what is unknown."""
        gpu = None if self.gpu is None else dataclasses.asdict(self.gpu)
        if gpu is not None:
            del gpu["processes"]  # ids of other people's processes are of no use to who reads a result
            gpu["reasons"] = None if gpu["reasons"] is None else list(gpu["reasons"])
        return {"gpu": gpu, "shared": self.shared, "neighbours": len(self.neighbours), "unknown": self.unknown}


def look(device: int | str, own: Collection[int], *, since_us: int = 0) -> DeviceState:
    """Look at a device; never raises.

    Args:
        device: its NVML index or its UUID, see `kernelgym_env.nvml.state`.
        own: ids of our processes that have a context there by now.
        since_us: microseconds since 1970 from which on a neighbour's kernels count.
    """
    now = time.time_ns() // 1000
    try:
        gpu = nvml.state(device, since_us=since_us)
    except OSError as error:
        return DeviceState(None, None, unknown=str(error), taken_us=now)
    shared, neighbours, unknown = foreign(gpu.processes, own)
    return DeviceState(gpu, shared, neighbours, unknown, now)


def foreign(
    listed: Sequence[GpuProcess] | None, own: Collection[int]
) -> tuple[bool | None, tuple[GpuProcess, ...], str]:
    """Which processes on a device are none of ours.

    Args:
        listed: what the driver lists; None if it does not say.
        own: ids of our processes that have a context there.

    Returns:
        Whether there are others (None if unknown), those that are known one by one, and why it is unknown.

    >>> mine, other = GpuProcess(10, 500.0, 0.0), GpuProcess(11, 900.0, 0.4)
    >>> foreign([mine], [10])
    (False, (), '')
    >>> foreign([mine, other], [10])[:2] == (True, (other,))
    True
    >>> foreign([other], [10])[0] is None
    True
    """
    if listed is None:
        return None, (), "the driver does not list the processes of this device"
    others = tuple(process for process in listed if process.pid not in own)
    if len(others) < len(listed) or (listed and not own):
        return bool(others), others, ""
    # none of ours is on the list: it shows other ids than those of this container
    if len(listed) > len(own):
        return True, (), "the driver lists more processes than ours, by ids of another namespace"
    return None, (), "the driver lists none of our processes: their ids are those of another namespace, or hidden"


@dataclass(frozen=True)
class Neighbourhood:
    """What two looks at a device say together.

    Attributes:
        before: the look before times were taken.
        after: the one after.
        device_shared: whether somebody else had a context there at either; None if unknown.
        busy: greatest share of a sample period in which a neighbour's kernels ran meanwhile, 0 to 1; None if unknown.
        slowed: what held the clocks at either, of `kernelgym_env.nvml.SLOWING`; None if unknown.
    """

    before: DeviceState
    after: DeviceState
    device_shared: bool | None
    busy: float | None
    slowed: tuple[str, ...] | None

    @property
    def worthless(self) -> str:
        """Why times that were taken meanwhile are worth nothing, ``""`` if they are, or if nothing is known.

        A neighbour that only holds memory, such as a trainer that has handed the device over, disturbs nothing.
        """
        if self.busy is None or self.busy < BUSY:
            return ""
        return f"another process used the device for up to {self.busy:.0%} of the time while it was timed"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for the provenance."""
        return {
            "device_shared": self.device_shared,
            "neighbours_busy": self.busy,
            "clocks_held_by": None if self.slowed is None else list(self.slowed),
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
        }


def compare(before: DeviceState, after: DeviceState) -> Neighbourhood:
    """Put two looks together. Take the second one with ``since_us=before.taken_us``.

    Args:
        before: taken before times were.
        after: taken after them.
    """
    both = (before, after)
    shared = True if any(one.shared for one in both) else None if any(one.shared is None for one in both) else False
    shares = [process.busy for process in after.neighbours]
    most = max((share for share in shares if share is not None), default=0.0)
    # that nobody was busy is known only where each neighbour is
    known = after.shared is not None and bool(after.neighbours) == after.shared and None not in shares
    reasons = [one.gpu.reasons for one in both if one.gpu is not None and one.gpu.reasons is not None]
    return Neighbourhood(
        before,
        after,
        shared,
        most if known or most >= BUSY else None,
        tuple(sorted({name for held in reasons for name in held} & nvml.SLOWING)) if reasons else None,
    )
