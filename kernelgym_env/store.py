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
- `checked_evaluation` -- the evaluation of a record, with what is wrong in it said.
- `is_whole` -- whether an episode has all of its turns up to the last recorded one.
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

from kernelgym_env.errors import InvalidOptionError, NotRecordedError, unknown_name
from kernelgym_env.evaluation.canonical import program_hash
from kernelgym_env.evaluation.result import Evaluation, Status
from kernelgym_env.prompts import extract_source
from kernelgym_env.tasks.files import is_parquet, parquet

try:
    import fcntl
except ImportError:  # Windows has no flock; one process at a time may write there
    fcntl = None  # type: ignore[assignment]

__all__ = ["SCHEMA", "Store", "TurnRecord", "checked_evaluation", "is_whole"]

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
            InvalidOptionError: for a newer schema, a record without the keys that identify a turn, or a value that is
                not what `to_dict` gives.

        >>> record = TurnRecord("run", "e1", "KernelGym/RowSum", 1, "prompt", "action", score=float("nan"))
        >>> TurnRecord.from_dict(record.to_dict()).score
        nan
        """
        if not isinstance(data, Mapping):
            raise InvalidOptionError(f"Not a record of a turn, which is an object: {_told(data)}.")
        schema = data.get("schema", SCHEMA)
        if not isinstance(schema, int) or schema > SCHEMA:
            raise InvalidOptionError(f"TurnRecord schema {schema!r} is newer than this version reads ({SCHEMA}).")
        needed = ("run_id", "episode_id", "task_id", "turn", "prompt", "action")
        if missing := [key for key in needed if key not in data]:
            raise InvalidOptionError(f"Not a record of a turn: {', '.join(missing)} missing.")
        known = {item.name: data[item.name] for item in fields(cls) if item.name in data}
        _check_kinds(known, _KINDS)
        if isinstance(known["turn"], bool) or known["turn"] < 1:
            raise InvalidOptionError(f"turn must be {_TURN[1]}, got {_told(known['turn'])}.")
        for key in ("score", "reward"):
            if key in known:
                known[key] = _number(known[key], key)
        if known.get("logprobs") is not None:
            known["logprobs"] = [_number(value, "logprobs") for value in known["logprobs"]]
        if known.get("evaluation"):
            known["evaluation"] = checked_evaluation(known["evaluation"])
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
            InvalidOptionError: for a record that JSON has no form for or that could not be read again, or a Parquet
                file; nothing is written then.
            NotRecordedError: if the file cannot be written, e.g. as the disk is full; it is an `OSError`. What was
                recorded before stays.
        """
        if is_parquet(self.path):
            raise InvalidOptionError(f"{self.path.name} is compacted; turns are appended to a file of JSON lines.")
        data = _line(record)
        try:
            self._write(data)
        except OSError as error:
            told = f"Turn {record.turn} of {record.episode_id} cannot be written to {str(self.path)!r}"
            raise NotRecordedError(f"{told}: {error.strerror or error}.") from error

    def _write(self, data: bytes) -> None:
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
            InvalidOptionError: for a record of a newer version of this package, or with a value that is none of a turn
                (it names the line, or the row); or a Parquet file that no store wrote.
            FileNotFoundError: if there is no file.
            MissingDataError: for a Parquet file without pyarrow.
        """
        if is_parquet(self.path):
            for number, text in enumerate(_compacted(self.path), 1):
                yield _read(text, f"{self.path.name}, row {number}", "row")
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
                    yield _read(data, f"{self.path.name}, line {number}", "line")
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
            InvalidOptionError: for a record that cannot be read, see `records`.
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
            InvalidOptionError: for a count below 1, or a record that cannot be read, see `records`.
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
        So is one of which a line was lost, see `is_whole`.
        A turn that was recorded again, as a search does behind a fault that it makes good, is as it was recorded last.
        The file is read once and held in memory.

        Raises:
            InvalidOptionError: for a record that cannot be read, see `records`.
            FileNotFoundError: if there is no file.
        """
        found: dict[tuple[str, str], dict[int, TurnRecord]] = {}
        for record in self.records():
            found.setdefault((record.run_id, record.episode_id), {})[record.turn] = record
        for turns in found.values():
            yield [turns[turn] for turn in sorted(turns)]


def is_whole(episode: Sequence[TurnRecord]) -> bool:
    """Whether an episode has each turn up to its last recorded one, so that no line of it was lost in between.

    The turns follow one another and start at 1; where the first one has a `parent`, as in a search, at any number.

    Args:
        episode: its records by rising turn, at least one, as `Store.episodes` gives them.

    >>> turns = [TurnRecord("run", "e1", "KernelGym/RowSum", turn, "prompt", "action") for turn in (1, 2, 3)]
    >>> is_whole(turns), is_whole(turns[:2]), is_whole(turns[::2]), is_whole(turns[1:])
    (True, True, False, False)
    """
    first = episode[0].turn if episode[0].parent else 1
    return all(record.turn == turn for turn, record in enumerate(episode, first))


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


def _timing(name: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """A timing of an evaluation, with its numbers back."""
    return {key: _number(value, f"{key} of {name}") if key.endswith("_us") else value for key, value in data.items()}


def _line(record: TurnRecord) -> bytes:
    data = record.to_dict()
    TurnRecord.from_dict(data)  # what could not be read again would stop every reader of the file
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


_TEXT, _TRUTH, _LIST = (str, "a text"), (bool, "true or false"), (list | None, "a list or null")
_OBJECT, _TURN = (Mapping, "an object"), (int, "a whole number of at least 1")
_Kinds = Mapping[str, tuple[Any, str]]
_KINDS: _Kinds = {
    **dict.fromkeys(("run_id", "episode_id", "task_id", "parent"), _TEXT),
    **dict.fromkeys(("terminated", "truncated", "valid"), _TRUTH),
    **dict.fromkeys(("tokens", "logprobs"), _LIST),
    **dict.fromkeys(("evaluation", "versions"), _OBJECT),
    "turn": _TURN,
}
"""What the values of a record are, and how that is said."""


def _check_kinds(data: Mapping[str, Any], kinds: _Kinds) -> None:
    for key, (kind, wanted) in kinds.items():
        if key in data and not isinstance(data[key], kind):
            raise InvalidOptionError(f"{key} must be {wanted}, got {_told(data[key])}.")


def _read(data: Any, where: str, what: str) -> TurnRecord:
    """A record, or its JSON; `where` it stands is said of one that cannot be read, and `what` it is there."""
    try:
        return TurnRecord.from_dict(json.loads(data) if isinstance(data, str) else data)
    except ValueError as error:
        raise InvalidOptionError(
            f"{where}: {error} Mend or remove the {what}, or read it with the version of this package that wrote it."
        ) from error


def _told(value: Any) -> str:
    """A value for a message, cut."""
    return f"{value!r:.80}"


def _number(value: Any, what: str) -> float:
    """A number as `_to_json` wrote it: null is NaN, and infinity a text."""
    if value is None:
        return math.nan
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:  # JSON has integers of any length
            raise InvalidOptionError(f"{what} is too large a number: {_told(value)}.") from None
    if value in ("inf", "-inf"):
        return float(value)
    raise InvalidOptionError(f"{what} must be a number, got {_told(value)}.")


_NUMBERS = frozenset(name for name, item in Evaluation.__dataclass_fields__.items() if item.type == "float")
_PARTS: _Kinds = {
    **{name: _TEXT for name, item in Evaluation.__dataclass_fields__.items() if item.type == "str"},
    **dict.fromkeys(("times", "stages_s", "provenance"), _OBJECT),
    "findings": (list | tuple, "a list"),
}
"""The same for the values of an evaluation."""
_SPEEDUPS = ("speedup", "speedup_compile", "speedup_graph")
_MOST = 1e12
"""No speedup reaches it: a second against a picosecond."""


def checked_evaluation(data: Any) -> dict[str, Any]:
    """An evaluation as a record has it, with its numbers back.

    Args:
        data: what `Evaluation.to_dict` gave, as JSON has it. Without a status, as of other environments, only what has
            the name of a number is checked.

    Raises:
        InvalidOptionError: for what is no evaluation; it says which value is wrong.

    >>> checked_evaluation({"task_id": "a/b", "status": "correct", "speedup": 0})
    Traceback (most recent call last):
    kernelgym_env.errors.InvalidOptionError: speedup must be above 0 and below 1e+12, or null, got 0.
    """
    if not isinstance(data, Mapping):
        raise InvalidOptionError(f"An evaluation must be an object, got {_told(data)}.")
    result: dict[str, Any] = {key: _number(value, key) if key in _NUMBERS else value for key, value in data.items()}
    if not data.get("status"):
        return result
    for key in _SPEEDUPS:
        if key in result and not (math.isnan(result[key]) or 0 < result[key] < _MOST):
            raise InvalidOptionError(f"{key} must be above 0 and below {_MOST:g}, or null, got {_told(data[key])}.")
    _check_kinds(result, _PARTS)
    try:
        if "times" in result:
            result["times"] = {name: _timing(name, timing) for name, timing in result["times"].items()}
        Evaluation.from_dict(result)
    except InvalidOptionError:
        raise
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InvalidOptionError(f"The evaluation cannot be read: {error}.") from error
    return result
