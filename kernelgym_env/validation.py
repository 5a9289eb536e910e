"""Stored results, judged again: whether the same source still gets the same verdict and the same speedup.

- `Stored` -- one stored result with its source; `read` takes them from a file.
- `resubmission` -- the submission that has to be judged again, or why it cannot be.
- `Agreement` -- a stored result against a new one; `compare` makes it.

A record holds what `Evaluation.to_dict` gives, and the source. Two kinds are read: what ``kernelgym eval --json``
prints, and turns of a `kernelgym_env.store.Store`, where the action holds the source.

A task is never read from a record: its code would run in the judge, outside of any sandbox. It comes from a suite or
from whoever validates.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgym_env.errors import InvalidOptionError, KernelGymError
from kernelgym_env.evaluation.protocols import Protocol, get_protocol
from kernelgym_env.evaluation.result import Evaluation, Status
from kernelgym_env.evaluation.submission import BACKENDS, Submission
from kernelgym_env.prompts import extract_source
from kernelgym_env.runs import turn_files
from kernelgym_env.store import TurnRecord, checked_evaluation
from kernelgym_env.tasks import registry
from kernelgym_env.tasks.model import Task

__all__ = ["Agreement", "CannotJudgeError", "Stored", "compare", "read", "resubmission"]

_DEVICE = re.compile(r"cpu|cuda(:\d+)?")
_LISTS = ("results", "records")


class CannotJudgeError(KernelGymError):
    """A stored result that cannot be judged again; the message says why."""


@dataclass(frozen=True)
class Stored:
    """One stored result.

    Attributes:
        name: where it was found, e.g. ``run.jsonl:3``.
        evaluation: the stored verdict.
        sources: what may be its source, the likeliest first.
        library_ops: the policy that overrode the protocol's, None if none did or it is not known.
    """

    name: str
    evaluation: Evaluation
    sources: tuple[str, ...]
    library_ops: str | None = None


def read(path: Path) -> list[Stored]:
    """The results of a file: JSON with one of them, a list, or a list under ``results`` or ``records``; or JSON lines,
    also gzipped; or the turns in the folder of a run, of a search, or of the searches on several tasks. Turns without
    an evaluation (an agent's stop) and torn lines of a store are left out.

    Raises:
        InvalidOptionError: if the file cannot be read, is no JSON, or holds something else; the message says where.
    """
    files = turn_files(path) or [path]
    return [
        _stored(f"{file.parent.name}/{name}" if len(files) > 1 else name, record)
        for file in files
        for name, record in _records(file)
        if not _without_evaluation(record)
    ]


def _records(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.name.lower().endswith(".gz") else data).decode("utf-8-sig")
    except OSError as error:
        told = "it is a folder without turns" if path.is_dir() else error.strerror or error
        raise InvalidOptionError(f"The record {str(path)!r} cannot be read: {told}.") from error
    except (UnicodeDecodeError, EOFError, zlib.error) as error:
        raise InvalidOptionError(f"The record {str(path)!r} is no UTF-8 text, or not gzip: {error}.") from error
    name = path.name.lower().removesuffix(".gz")
    return _lines(path, text) if name.endswith(".jsonl") else _document(path, text)


def _lines(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    lines = text.split("\n")  # JSON may hold other line separators
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield f"{path.name}:{number}", json.loads(line)
        except ValueError:
            continue  # a writer was killed there, see `kernelgym_env.store`


def _document(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise InvalidOptionError(f"The record {str(path)!r} is no JSON: {error}.") from error
    if isinstance(data, Mapping):
        data = next((data[key] for key in _LISTS if isinstance(data.get(key), list)), [data])
    if not isinstance(data, list):
        raise InvalidOptionError(f"The record {str(path)!r} holds a {type(data).__name__}, no result or list of them.")
    for number, record in enumerate(data, start=1):
        yield path.name if len(data) == 1 else f"{path.name}:{number}", record


def _without_evaluation(record: Any) -> bool:
    """Whether it is a turn in which nothing was judged."""
    if not isinstance(record, Mapping) or "evaluation" not in record:
        return False
    evaluation = record["evaluation"]
    return not evaluation or (isinstance(evaluation, Mapping) and evaluation.get("status") == "")


def _stored(name: str, record: Any) -> Stored:
    if not isinstance(record, Mapping):
        raise InvalidOptionError(f"{name} is no result: it is a {type(record).__name__}, and an object is needed.")
    try:
        if "evaluation" in record:
            turn = TurnRecord.from_dict(record)
            evaluation = Evaluation.from_dict(turn.evaluation)
            given: tuple[Any, ...] = (extract_source(turn.action), turn.action) if isinstance(turn.action, str) else ()
        else:
            evaluation, given = Evaluation.from_dict(checked_evaluation(record)), (record.get("source"),)
        sources = tuple(source for source in given if isinstance(source, str))
        library_ops = record.get("library_ops", evaluation.provenance.get("library_ops"))
        return Stored(name, evaluation, sources, library_ops)
    except (KernelGymError, TypeError, ValueError, AttributeError) as error:
        raise InvalidOptionError(f"{name} is no result that can be read: {error}") from error


def resubmission(stored: Stored, tasks: Mapping[str, Task], device: str = "auto") -> Submission:
    """The submission that has to be judged again: same source, same constants, same kind of device.

    Args:
        stored: the result.
        tasks: tasks by id that are in no suite, or stand in for a suite's.
        device: where to judge; ``auto`` takes a device of the kind that the result was judged on.

    Raises:
        CannotJudgeError: if the result is a fault, was judged on no device, lacks its source, its task's hash or its
            constants, or if source, task or kind of device are not those that were judged.
    """
    evaluation = stored.evaluation
    if not evaluation.valid:
        raise CannotJudgeError("a fault says nothing about the submission")
    if not _DEVICE.fullmatch(evaluation.device):
        raise CannotJudgeError(f"it was judged on {evaluation.device!r}, which is no device")
    kind = evaluation.device.partition(":")[0]
    if device == "auto":
        device = kind
    elif device.partition(":")[0] != kind:
        raise CannotJudgeError(f"it was judged on {evaluation.device}, and {device} is another kind of device")
    backend = evaluation.provenance.get("backend")
    try:
        task = _task(evaluation, tasks, kind)
        found = [
            Submission(
                task,
                source,
                backend=backend if backend in BACKENDS else "auto",
                protocol=_protocol(evaluation),
                device=device,
                library_ops=stored.library_ops,
            )
            for source in stored.sources
        ]
    except CannotJudgeError:
        raise
    except (KernelGymError, TypeError, KeyError, ValueError) as error:
        raise CannotJudgeError(str(error)) from error
    if not found:
        raise CannotJudgeError("it does not hold the source")
    same = [submission for submission in found if submission.source_hash == evaluation.source_hash]
    if not same:
        raise CannotJudgeError("its source is not the one that was judged: the hashes differ")
    return same[0]


def _task(evaluation: Evaluation, tasks: Mapping[str, Task], kind: str) -> Task:
    task = tasks.get(evaluation.task_id)
    if task is None:
        if not registry.is_task_id(evaluation.task_id):
            raise CannotJudgeError(f"its task {evaluation.task_id!r} is in no suite, and was not given")
        task = registry.find_task(evaluation.task_id)
    if not evaluation.task_hash:
        raise CannotJudgeError("it lacks the hash of its task")
    if task.for_device(kind).hash != evaluation.task_hash:
        raise CannotJudgeError("its task has changed since: the hashes differ")
    return task


def _protocol(evaluation: Evaluation) -> str | Protocol:
    constants = evaluation.provenance.get("protocol")
    if not isinstance(constants, Mapping):
        return get_protocol(evaluation.protocol)
    try:
        return Protocol.from_dict(constants)
    except (TypeError, KeyError) as error:
        raise CannotJudgeError(f"its protocol has other constants than this version's: {error}") from error


@dataclass(frozen=True)
class Agreement:
    """A stored result against a new one.

    Attributes:
        agree: whether they do; None where the new one is a fault, which says nothing.
        why: what differs or was not compared, ``""`` if nothing.
    """

    agree: bool | None
    why: str


def compare(stored: Evaluation, again: Evaluation) -> Agreement:
    """Whether two evaluations of the same submission agree.

    The statuses must be equal, and one of the two speedups must lie in the interval of the other, which says where a
    repetition falls. On other hardware only the statuses are compared.

    Args:
        stored: the earlier one.
        again: the new one.

    >>> first = Evaluation("a/b", "correct", speedup=2.0, speedup_low=1.9, speedup_high=2.1)
    >>> compare(first, Evaluation("a/b", "correct", speedup=2.15, speedup_low=2.0, speedup_high=2.3)).agree
    True
    >>> compare(first, Evaluation("a/b", "correct", speedup=2.2, speedup_low=2.15, speedup_high=2.3)).agree
    False
    """
    if again.status is Status.FAULT:
        return Agreement(None, again.fault.strip().splitlines()[-1] if again.fault.strip() else "a fault")
    if stored.status is not again.status:
        return Agreement(False, f"{stored.status} then, {again.status} now")
    if other := _other_hardware(stored, again):
        return Agreement(True, f"speedups were not compared: {other}")
    if math.isnan(stored.speedup) and math.isnan(again.speedup):
        return Agreement(True, "")
    if math.isnan(stored.speedup) or math.isnan(again.speedup):
        return Agreement(False, f"it has a speedup only {'now' if math.isnan(stored.speedup) else 'then'}")
    if _holds(stored, again.speedup) or _holds(again, stored.speedup):
        return Agreement(True, "")
    return Agreement(False, f"it is {'faster' if again.speedup > stored.speedup else 'slower'} now")


def _holds(evaluation: Evaluation, speedup: float) -> bool:
    """Whether a speedup lies in an evaluation's interval; where an end is missing, the figure itself is that end."""
    low, high = (
        evaluation.speedup if math.isnan(end) else end for end in (evaluation.speedup_low, evaluation.speedup_high)
    )
    return low <= speedup <= high


def _other_hardware(stored: Evaluation, again: Evaluation) -> str:
    """What hardware both were judged on if it differs, else ``""``."""
    then, now = stored.provenance.get("hardware"), again.provenance.get("hardware")
    if not isinstance(then, Mapping) or not isinstance(now, Mapping):
        return ""
    parts = [
        f"{name} {then.get(name)} then, {now.get(name)} now"
        for name in ("name", "threads")
        if then.get(name) != now.get(name)
    ]
    return "; ".join(parts)
