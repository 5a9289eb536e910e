"""What makes a task winnable without the work, from the facts of an audit.

- `MEANINGS` -- every flaw, with what it means.
- `flaws_of` -- the flaws that the facts of a task under a protocol show.
- `known_flaws` -- those of a task under a protocol: listed ones and measured ones.
- `flaws_of_source` -- those of a source under any protocol that it was audited under.
- `is_audited` -- whether there are facts of it.
- `verified` -- the tasks without any.
- `MISSING` -- the state of one that could not be looked at on this machine.
- `METHOD` -- how the facts are found, in a sentence each.
"""

from __future__ import annotations

import functools
import importlib.resources
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kernelgym_env.tasks.model import Task

if TYPE_CHECKING:
    from kernelgym_env.evaluation.protocols import Protocol

__all__ = [
    "MEANINGS",
    "METHOD",
    "MISSING",
    "describe",
    "flaws_of",
    "flaws_of_source",
    "is_audited",
    "known_flaws",
    "shipped_facts",
    "verified",
]

MEANINGS: dict[str, str] = {
    "flaw-zeros": "zeros are accepted",
    "flaw-constant": "one constant is accepted",
    "flaw-input-blind": "the output for one input is accepted for another",
    "flaw-identity": "the input itself is accepted",
    "flaw-weights-blind": "freshly drawn weights are accepted",
    "flaw-redundant": "some operations cannot change the output",
    "flaw-random": "the reference differs from itself",
    "flaw-fails": "the reference fails, or the judge refuses it",
    "flaw-short": "a call takes hardly longer than launching it",
}
"""Flaws by tag. `flaw-redundant` is never measured: it is found by reading."""

MISSING = "missing"
"""State of a task that could not be audited for want of a library or weights, which says nothing about it."""

METHOD: dict[str, str] = {
    "inputs": "Drawn on the device under every protocol, from seeds that are no secret.",
    "null answers": "Zeros, the best constant for three sets of inputs, and a copy of an input take the place of the "
    "output and are compared as a submission's would be.",
    "other_seed": "The outputs for two other sets of inputs must both pass for the first.",
    "reseeded, redrawn": "The output of weights from another seed, and of weights that are overwritten as the judge "
    "does.",
    "random": "A second call on equal inputs must pass.",
    "precision": "On a GPU the reference runs in the format; on a CPU its weights and inputs are rounded to it.",
    "time": "Median of warm calls; launch_us is an operation on one element. Times at small sizes say nothing of the "
    "shipped ones.",
}
"""How an audit finds its facts."""

_ACCEPTED = {
    "zeros": "flaw-zeros",
    "constant": "flaw-constant",
    "other_seed": "flaw-input-blind",
    "input": "flaw-identity",
    "reseeded": "flaw-weights-blind",
}
_REFUSED = {
    "zeros in place": "flaw-zeros",
    "a constant in place": "flaw-constant",
    "a copy of an input in place": "flaw-identity",
    "is not deterministic": "flaw-random",
}
"""What the judge says of a task that it refuses, with the flaw that this is; else the flaw is ``flaw-fails``."""
_SHORT = 10.0
"""A call is short if it takes less than so many launches."""
_SHIPPED = "shipped"
_FILES = {"KernelBench": "kernelbench/audit.json"}


def flaws_of(facts: Mapping[str, Any], *, shipped: bool = True) -> tuple[str, ...]:
    """Return the flaws that facts show, in the order of `MEANINGS`.

    Args:
        facts: of one task under one protocol, see `kernelgym_env.audit.facts.measure`.
        shipped: whether they are of the sizes that the task comes with; shrunk, every task is short.

    >>> flaws_of({"state": "ok", "accepted": {"zeros": True, "input": None}})
    ('flaw-zeros',)
    >>> flaws_of({"state": "fails", "why": "the reference fails: RuntimeError"})
    ('flaw-fails',)
    >>> flaws_of({"state": "ok", "judge": "output is NaN or infinite in nearly all elements"})
    ('flaw-fails',)
    """
    if facts.get("state") == "fails":
        return ("flaw-fails",)
    refused = _refusal(facts.get("judge") or "")
    if facts.get("random") or refused == "flaw-random":
        return ("flaw-random",)  # what is accepted in place of a random output says nothing
    accepted = facts.get("accepted", {})
    found = {flaw for name, flaw in _ACCEPTED.items() if accepted.get(name)}
    if refused:
        found.add(refused)
    time, launch = facts.get("time_us"), facts.get("launch_us")
    if shipped and time and launch and time < _SHORT * launch:
        found.add("flaw-short")
    return tuple(flaw for flaw in MEANINGS if flaw in found)


def known_flaws(task: Task, protocol: str | Protocol = "strict") -> tuple[str, ...]:
    """Return the flaws that are known of a task, in the order of `MEANINGS`.

    What is listed are the task's tags and, for KernelBench's problems, what was found at its fp32 tolerance of 1e-4.
    Facts of this very source that come with the package add theirs. Facts that were measured at the shipped sizes under
    this protocol take the place of what is listed, but for `flaw-redundant`, where no step but those of lower precision
    is missing.

    Args:
        task: any task; one that no list and no audit names has none.
        protocol: its name, or a `Protocol`, whose name counts; ``+custom`` behind it makes no difference.

    Raises:
        UnknownNameError: for a name that is no protocol's.
    """
    from kernelgym_env.tasks.kernelbench.flaws import listed_flaws  # which is made of this

    listed = {*task.tags, *listed_flaws(task.id)}
    record = shipped_facts(task)
    facts = record.get("protocols", {}).get(_name_of(protocol))
    return _in_order(listed if facts is None else _with_facts(listed, record, facts))


def flaws_of_source(task_id: str, listed: Iterable[str], digest: str | None = None) -> tuple[str, ...]:
    """Return the flaws of a source under any of the protocols that it was audited under, in the order of `MEANINGS`.

    Args:
        task_id: the task's id.
        listed: flaws that it is listed with.
        digest: `Task.hash` of its source; with another one than what was audited, what is listed is returned. None for
            the source that was audited.
    """
    record = _record(task_id)
    if not record or digest not in (None, record["hash"]):
        return _in_order(listed)
    return _in_order(set().union(*(_with_facts(listed, record, facts) for facts in record["protocols"].values())))


def _with_facts(listed: Iterable[str], record: Mapping[str, Any], facts: Mapping[str, Any]) -> set[str]:
    """The flaws under a protocol that there are facts for."""
    shipped = record.get("scale") == _SHIPPED
    measured = set(flaws_of(facts, shipped=shipped))
    lacking = [step for step in facts.get("unmeasured", ()) if not step.startswith("precision")]  # shows no flaw
    complete = shipped and facts.get("state") in ("ok", "fails") and not lacking
    return measured | ({"flaw-redundant"}.intersection(listed) if complete else set(listed))


def _in_order(flaws: Iterable[str]) -> tuple[str, ...]:
    found = set(flaws)
    return tuple(flaw for flaw in MEANINGS if flaw in found)


def is_audited(task: Task, protocol: str | Protocol = "strict") -> bool:
    """Whether facts of this very source under a protocol come with the package, at whatever sizes.

    Raises:
        UnknownNameError: for a name that is no protocol's.
    """
    facts = shipped_facts(task).get("protocols", {}).get(_name_of(protocol), {})
    return facts.get("state") == "ok"


def verified(tasks: Iterable[Task], protocol: str | Protocol = "strict") -> list[Task]:
    """Return the tasks that an audit has seen and of which no flaw is known, in the order they come in.

    Args:
        tasks: what to choose from.
        protocol: how they are to be judged, see `known_flaws`.

    Raises:
        UnknownNameError: for a name that is no protocol's.
    """
    _name_of(protocol)  # also where there is no task to ask of
    return [task for task in tasks if is_audited(task, protocol) and not known_flaws(task, protocol)]


def describe(flaws: Iterable[str]) -> str:
    """Flaws in words.

    >>> describe(["flaw-zeros", "flaw-random"])
    'zeros are accepted; the reference differs from itself'
    """
    return "; ".join(MEANINGS[flaw] for flaw in flaws)


def shipped_facts(task: Task) -> Mapping[str, Any]:
    """Return the record of a task in the audit that comes with the package; empty if it was made of another source."""
    record = _record(task.id)
    return record if record.get("hash") == task.hash else {}


def _record(task_id: str) -> Mapping[str, Any]:
    path = _FILES.get(task_id.partition("/")[0])
    record: Mapping[str, Any] = _records(path).get(task_id, {}) if path else {}
    return record


def _refusal(judge: str) -> str:
    """The flaw of a task by why the judge refuses it; ``""`` where it does not."""
    return next((flaw for said, flaw in _REFUSED.items() if said in judge), "flaw-fails" if judge else "")


def _name_of(protocol: str | Protocol) -> str:
    """The name that facts are kept under."""
    from kernelgym_env.evaluation.protocols import get_protocol

    name = protocol.removesuffix("+custom") if isinstance(protocol, str) else protocol
    return get_protocol(name).name.removesuffix("+custom")


@functools.cache
def _records(path: str) -> Mapping[str, Any]:
    folder = importlib.resources.files("kernelgym_env.tasks")
    text = folder.joinpath(path).read_text(encoding="utf-8")
    records: Mapping[str, Any] = json.loads(text)["tasks"]
    return records
