"""Which tasks are fit to train on: CUDA Agent's filters, by running the references on a device.

- `sift` -- audits tasks and says of each what speaks against it.
- `Sifted` -- a task, what speaks against it, and the facts.
- `reasons` -- what the facts of an audit say against a task.
- `BANDS_US` -- how long a call should take.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.tasks.flaws import MEANINGS, flaws_of
from kernelgym_env.tasks.model import Task

__all__ = ["BANDS_US", "Sifted", "check_band", "reasons", "sift"]

BANDS_US: Mapping[str, tuple[float, float]] = MappingProxyType({"cpu": (100.0, 100e3), "cuda": (1e3, 100e3)})
"""Shortest and longest eager call in microseconds by kind of device; on a GPU CUDA Agent's."""

_BAND_INSTEAD = "flaw-short"
_WEIGHTS = "flaw-weights-blind"


@dataclass(frozen=True)
class Sifted:
    """A task and what was found out about it.

    Attributes:
        task: as it was given.
        reasons: what speaks against it, in words; empty if it is fit.
        record: the facts, see `kernelgym_env.audit.Auditor.audit`.
    """

    task: Task
    reasons: tuple[str, ...]
    record: Mapping[str, Any] = field(repr=False, hash=False)

    @property
    def fit(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.reasons


def sift(
    tasks: Iterable[Task],
    device: str = "auto",
    *,
    protocols: Sequence[str] = ("strict",),
    band_us: tuple[float, float] | None = None,
    backend: str = "inductor",
    deadline_s: float = 120.0,
    threads: int = 0,
) -> Iterator[Sifted]:
    """Run the references of tasks, each in a process of its own, and hold them against the filters.

    A task is fit if it runs in eager mode and compiled with the same result, a second call gives the same, every
    argument and the weights matter, no answer without the work is accepted, and a call takes a time within the band. It
    is run at the sizes that it has for the device, so what is fit on one need not be on another.

    Args:
        tasks: what to choose from; their code runs with your rights.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:<index>``.
        protocols: how submissions will be judged; a task must be without flaws under each.
        band_us: shortest and longest call in microseconds; None takes `BANDS_US`.
        backend: of `torch.compile`: ``inductor``; ``aot_eager``, faster and without generated code; ``""`` for none.
        deadline_s: seconds for a task.
        threads: CPU threads, 0 for torch's default.

    Yields:
        What was found out, task by task in order.

    Raises:
        UnknownNameError: for an unknown protocol or backend.
        InvalidOptionError: for a value outside its range, or a GPU that is not there.
    """
    from kernelgym_env.audit import Auditor  # which imports what evaluates

    with Auditor(device, protocols=protocols, deadline_s=deadline_s, threads=threads, backend=backend) as auditor:
        band = check_band(BANDS_US[auditor.kind] if band_us is None else band_us)
        for task in tasks:
            record = auditor.audit(task)
            yield Sifted(task, reasons(record, band), record)


def reasons(record: Mapping[str, Any], band_us: tuple[float, float]) -> tuple[str, ...]:
    """What the facts of an audit say against a task, in words; ``()`` for one that is fit.

    Args:
        record: from `kernelgym_env.audit.Auditor.audit`.
        band_us: shortest and longest call in microseconds.

    >>> reasons({"protocols": {"strict": {"state": "ok", "time_us": 50.0}}}, (200.0, 1e5))
    ('a call takes 50 µs, not 200 to 100000',)
    """
    found: dict[str, None] = {}
    for name, facts in record["protocols"].items():
        found.update(dict.fromkeys(_against(name, facts)))
    times = [facts["time_us"] for facts in record["protocols"].values() if facts["state"] == "ok"]
    low, high = band_us
    if times and not low <= times[0] <= high:
        found[f"a call takes {times[0]:.4g} µs, not {low:g} to {high:g}"] = None
    return tuple(found)


def check_band(band_us: tuple[float, float]) -> tuple[float, float]:
    """Return a band of times that can hold one.

    Raises:
        InvalidOptionError: if it is not two numbers, the first at least 0 and below the second.
    """
    try:
        low, high = (float(value) for value in band_us)
    except (TypeError, ValueError):
        raise InvalidOptionError(f"A band is two numbers of microseconds, got {band_us!r}.") from None
    if not 0 <= low < high:
        raise InvalidOptionError(f"A band goes from a number of at least 0 to a greater one, got {band_us!r}.")
    return low, high


def _against(protocol: str, facts: Mapping[str, Any]) -> Iterator[str]:
    if facts["state"] != "ok":
        why = facts.get("why", "")
        yield facts["state"] + (f": {why}" if why else "")
        return
    accepted = facts.get("accepted", {})
    for flaw in flaws_of(facts):
        # weights that the judge overwrites matter all the same
        harmless = flaw == _WEIGHTS and protocol == "strict" and accepted.get("redrawn") is False
        if flaw != _BAND_INSTEAD and not harmless:
            yield f"{MEANINGS[flaw]} under {protocol}"
    if facts.get("judge"):
        yield f"{facts['judge']} (under {protocol})"
    if facts.get("ignored"):
        yield f"arguments that do not matter under {protocol}: {', '.join(map(str, facts['ignored']))}"
    for step, why in facts.get("unmeasured", {}).items():
        if not step.startswith("precision"):
            yield f"{step} could not be found out: {why}"
    compiled = facts.get("compiled")
    if compiled and not compiled["passes"]:
        yield f"torch.compile with {compiled['backend']}: {compiled['why']}"
