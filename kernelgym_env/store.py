"""Trajectories in a file: append a turn, read episodes.

A store is one file with a JSON object a line, in the order in which turns were played. It is only ever appended to.

- What was appended stays, also when the process is killed right after: `append` returns when the line is with the
  operating system.
- Several processes and threads may append to one file; each line is written under a lock (``flock``), so lines never
  mix.
- A process that is killed while it writes leaves a torn line. Readers skip it, and the next writer ends it, so that it
  costs nothing but itself.

Lines are strict JSON: NaN is ``null`` and infinity a text there. In scores, rewards, log-probabilities and the figures
of an evaluation both are numbers again when read; in a prompt or an action of another environment they stay.

`Store.to_parquet` compacts it, `Store.query` and `Store.best` look into it, `Store.export` makes rows for trainers.

- `TurnRecord` -- one turn.
- `Store` -- the file.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from kernelgym_env.errors import InvalidOptionError, unknown_name
from kernelgym_env.evaluation.canonical import program_hash
from kernelgym_env.evaluation.result import Evaluation, Status
from kernelgym_env.prompts import extract_source
from kernelgym_env.tasks.files import is_parquet, parquet

try:
    import fcntl
except ImportError:  # Windows has no flock; one process at a time may write there
    fcntl = None  # type: ignore[assignment]

__all__ = ["SCHEMA", "Store", "TurnRecord"]

SCHEMA = 1
"""Version of `TurnRecord.to_dict`; a reader refuses a newer one."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class TurnRecord:
    """One turn of an episode.

    Attributes:
        run_id: the experiment, as the user names it.
        episode_id: the same for all turns of an episode and for no other.
        task_id: the task.
        turn: number of the turn in its episode, from 1.
        prompt: what the policy saw: chat messages where the observation has that form, else the observation.
        action: what it did.
        evaluation: `Evaluation.to_dict`; empty for other environments.
        score: the turn's score (``info["score"]``).
        reward: the turn's reward, as the agent got it.
        terminated: whether the episode ended with it.
        truncated: whether it was cut off there.
        valid: False for a fault: the turn enters no return, group or metric.
        tokens: token ids of the action, None where there are none.
        logprobs: log-probability of each token under the policy that sampled it.
        versions: what it was played with.
        parent: of a search: the `episode_id` of the turn that it goes on from, ``""`` for none.
        schema: version of this form.
    """

    run_id: str
    episode_id: str
    task_id: str
    turn: int
    prompt: Any
    action: Any
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    score: float = 0.0
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    valid: bool = True
    tokens: Sequence[int] | None = None
    logprobs: Sequence[float] | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    parent: str = ""
    schema: int = SCHEMA

    def to_dict(self) -> dict[str, Any]:
        """Data for strict JSON.

        Raises:
            InvalidOptionError: for a value that JSON has no form for.
        """
        return {item.name: _to_json(getattr(self, item.name), item.name) for item in fields(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TurnRecord:
        """The inverse of `to_dict`. Keys that this version does not know are left out.

        Raises:
            InvalidOptionError: for a newer schema, or a record without the keys that identify a turn.

        >>> record = TurnRecord("run", "e1", "KernelGym/RowSum", 1, "prompt", "action", score=float("nan"))
        >>> TurnRecord.from_dict(record.to_dict()).score
        nan
        """
        schema = data.get("schema", SCHEMA)
        if not isinstance(schema, int) or schema > SCHEMA:
            raise InvalidOptionError(f"TurnRecord schema {schema!r} is newer than this version reads ({SCHEMA}).")
        needed = ("run_id", "episode_id", "task_id", "turn", "prompt", "action")
        if missing := [key for key in needed if key not in data]:
            raise InvalidOptionError(f"Not a record of a turn: {', '.join(missing)} missing.")
        known = {item.name: data[item.name] for item in fields(cls) if item.name in data}
        for key in ("score", "reward"):
            if key in known:
                known[key] = _number(known[key])
        if known.get("logprobs") is not None:
            known["logprobs"] = [_number(value) for value in known["logprobs"]]
        if known.get("evaluation"):
            known["evaluation"] = _evaluation(known["evaluation"])
        return cls(**known)


class Store:
    """A file of turns.

    Args:
        path: the file; it and its folder are made by the first `append`. Or a Parquet file of `to_parquet`, to read.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = Store(f"{folder.name}/trajectories.jsonl")
    >>> for turn in (1, 2):
    ...     store.append(TurnRecord("run", "e1", "KernelGym/RowSum", turn, "prompt", "action", score=1.3))
    >>> [[record.score for record in episode] for episode in store.episodes()]
    [[1.3, 1.3]]
    >>> folder.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).expanduser()

    def append(self, record: TurnRecord) -> None:
        """Write one turn at the end of the file.

        Raises:
            InvalidOptionError: for a record that JSON has no form for, or a Parquet file; nothing is written then.
            OSError: if the file cannot be written.
        """
        if is_parquet(self.path):
            raise InvalidOptionError(f"{self.path.name} is compacted; turns are appended to a file of JSON lines.")
        data = _line(record)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
        try:
            if fcntl is not None:
                fcntl.flock(descriptor, fcntl.LOCK_EX)  # given back by close, also when the process is killed
            if not _ends_a_line(descriptor):
                data = b"\n" + data
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
        finally:
            os.close(descriptor)

    def records(self) -> Iterator[TurnRecord]:
        """Every turn, in the order in which they were written; a torn line is skipped.

        Raises:
            InvalidOptionError: for a record of a newer version of this package, or a Parquet file that no store wrote.
            FileNotFoundError: if there is no file.
            MissingDataError: for a Parquet file without pyarrow.
        """
        if is_parquet(self.path):
            yield from (TurnRecord.from_dict(json.loads(text)) for text in _compacted(self.path))
            return
        with open(self.path, "rb") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    data = json.loads(line)
                except ValueError:
                    data = None
                if isinstance(data, dict):
                    yield TurnRecord.from_dict(data)
                elif line.endswith(b"\n"):
                    _LOG.warning("%s, line %d is torn and was skipped.", self.path.name, number)
                # else it may just be written

    def query(
        self, *, run_id: str | None = None, task_id: str | None = None, status: str | None = None
    ) -> Iterator[TurnRecord]:
        """The turns that have all that is given.

        Args:
            run_id: the experiment.
            task_id: the task.
            status: how the evaluation ended, a value of `Status`; ``""`` for turns in which nothing was judged.

        Raises:
            UnknownNameError: for an unknown status.
            InvalidOptionError: for a record of a newer version of this package.
            FileNotFoundError: if there is no file.
        """
        allowed = [*(entry.value for entry in Status), ""]
        if status is not None and status not in allowed:
            raise unknown_name("status", status, allowed)
        return (
            record
            for record in self.records()
            if run_id in (None, record.run_id)
            and task_id in (None, record.task_id)
            and status in (None, record.evaluation.get("status", ""))
        )

    def best(self, task_id: str, count: int = 1) -> list[TurnRecord]:
        """The fastest correct turns on a task, the fastest first; each program once (`program_hash`).

        Args:
            task_id: the task.
            count: how many at most, at least 1.

        Raises:
            InvalidOptionError: for a count below 1, or a record of a newer version of this package.
            FileNotFoundError: if there is no file.
        """
        if count < 1:
            raise InvalidOptionError(f"count must be at least 1, got {count!r}.")
        found: dict[str, TurnRecord] = {}
        timed = (record for record in self.query(task_id=task_id, status="correct") if _speedup(record) > 0)
        for record in sorted(timed, key=_speedup, reverse=True):
            found.setdefault(program_hash(extract_source(str(record.action))), record)
            if len(found) == count:
                break
        return list(found.values())

    def to_parquet(self, path: str | os.PathLike[str]) -> int:
        """Compact the store into a Parquet file, which `Store` reads as well and nothing appends to.

        It has a column for each field of `TurnRecord` that is a text, number or truth value, ``status`` and
        ``speedup``, and ``record`` with the whole turn as strict JSON. The file is there whole or not at all; the store
        itself stays.

        Returns:
            Number of turns.

        Raises:
            MissingDataError: without pyarrow.
            InvalidOptionError: for a name that does not end with ``.parquet``, or a store without turns.
            FileNotFoundError: if there is no store.
            OSError: if the file cannot be written.
        """
        from kernelgym_env.export import write_rows  # it reads records, so it comes after this module

        if not is_parquet(Path(path)):
            raise InvalidOptionError(f"The name of the file must end with .parquet, got {str(path)!r}.")
        rows = [
            {
                **{name: getattr(record, name) for name in _COLUMNS},
                "status": record.evaluation.get("status", ""),
                "speedup": _speedup(record),
                "record": json.dumps(record.to_dict(), allow_nan=False),
            }
            for record in self.records()
        ]
        write_rows(path, rows)
        return len(rows)

    def export(self, kind: str, **options: Any) -> list[dict[str, Any]]:
        """Rows for trainers, see `kernelgym_env.export.export`, which has the kinds, the options and the errors."""
        from kernelgym_env.export import export

        return export(self.episodes(), kind, **options)

    def episodes(self) -> Iterator[list[TurnRecord]]:
        """The turns of each episode together, in the order of their first turns.

        An episode that was not played to its end is among them; its last record is neither terminated nor truncated.
        A turn that was recorded again, as a search does behind a fault that it makes good, is as it was recorded last.
        The file is read once and held in memory.

        Raises:
            InvalidOptionError: for a record of a newer version of this package.
            FileNotFoundError: if there is no file.
        """
        found: dict[tuple[str, str], dict[int, TurnRecord]] = {}
        for record in self.records():
            found.setdefault((record.run_id, record.episode_id), {})[record.turn] = record
        for turns in found.values():
            yield [turns[turn] for turn in sorted(turns)]


_COLUMNS = (
    "run_id",
    "episode_id",
    "task_id",
    "turn",
    "score",
    "reward",
    "terminated",
    "truncated",
    "valid",
    "schema",
)


def _compacted(path: Path) -> list[str]:
    """The records in a file of `Store.to_parquet`, as JSON."""
    library = parquet()
    try:
        file = library.ParquetFile(path)
        there = "record" in file.schema_arrow.names
        texts = file.read(columns=["record"]).column("record").to_pylist() if there else None
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:  # what pyarrow's complaints about the content of a file are
        raise InvalidOptionError(f"{path} cannot be read as Parquet: {error}") from error
    if texts is None:
        raise InvalidOptionError(f"{path} is no compacted store: it has no column 'record'.")
    return list(texts)


def _speedup(record: TurnRecord) -> float:
    """NaN where there is none."""
    value = record.evaluation.get("speedup")
    return math.nan if value is None else float(value)


def _ends_a_line(descriptor: int) -> bool:
    size = os.fstat(descriptor).st_size
    return size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"


def _line(record: TurnRecord) -> bytes:
    data = record.to_dict()
    try:
        text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8")
    except UnicodeEncodeError:  # a lone surrogate has no form in UTF-8, but an escape
        text = json.dumps(data, allow_nan=False, separators=(",", ":")).encode("ascii")
    return text + b"\n"


def _to_json(value: Any, what: str) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return None if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, np.ndarray):
        return _to_json(value.tolist(), what)
    if isinstance(value, list | tuple):
        return [_to_json(item, what) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _to_json(item, what) for key, item in value.items()}
    raise InvalidOptionError(f"{what} holds a {type(value).__name__}, for which JSON has no form: {value!r:.100}.")


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


_NUMBERS = frozenset(name for name, item in Evaluation.__dataclass_fields__.items() if item.type == "float")


def _evaluation(data: Mapping[str, Any]) -> dict[str, Any]:
    """An evaluation as `Evaluation.to_dict` gave it, with its numbers back."""
    result: dict[str, Any] = {key: _number(value) if key in _NUMBERS else value for key, value in data.items()}
    if "times" in result:
        result["times"] = {
            name: {key: _number(value) if key.endswith("_us") else value for key, value in timing.items()}
            for name, timing in result["times"].items()
        }
    return result
