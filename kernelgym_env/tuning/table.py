"""What was measured of a template on a task.

- `Entry` -- one configuration.
- `Table` -- all of them.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.evaluation.result import Status
from kernelgym_env.keeping import finite, named, write_whole
from kernelgym_env.pools.simulated_tasks import SimulatedSchedule, SimulatedTask, schedule_key
from kernelgym_env.tasks.files import is_parquet, parquet

__all__ = ["SCHEMA", "Entry", "Table"]

SCHEMA = 1
"""Version of the form of a table."""


@dataclass(frozen=True)
class Entry:
    """One configuration.

    Attributes:
        choices: a value for each knob.
        status: ``correct``, or how it failed.
        latency_us: median time in microseconds, NaN where it failed.
        spread: half of the range between the quartiles of the times, as a share of the median.
    """

    choices: Mapping[str, Any] = field(hash=False)
    status: str
    latency_us: float = math.nan
    spread: float = math.nan


@dataclass(frozen=True)
class Table:
    """A template on a task, measured.

    Attributes:
        task_id: the task, with its sizes in the id.
        task_hash: of its reference.
        template: name.
        eager_us: median time of eager PyTorch in microseconds.
        entries: the configurations.
        device: name of what it was measured on.
        versions: of the software.
        seconds: what measuring took.
    """

    task_id: str
    task_hash: str
    template: str
    eager_us: float
    entries: tuple[Entry, ...] = field(hash=False, repr=False)
    device: str = ""
    versions: Mapping[str, str] = field(default_factory=dict, hash=False)
    seconds: float = math.nan

    def __post_init__(self) -> None:
        if not self.entries:
            raise InvalidOptionError("A table needs at least one entry.")
        if not self.eager_us > 0:
            raise InvalidOptionError(f"eager_us of a table must be above 0, got {self.eager_us!r}.")

    @property
    def best(self) -> Entry:
        """The fastest correct entry.

        Raises:
            InvalidOptionError: if none is correct.
        """
        correct = [entry for entry in self.entries if entry.status == Status.CORRECT.value]
        if not correct:
            raise InvalidOptionError(f"No configuration of {self.template} is correct on {self.task_id}.")
        return min(correct, key=lambda entry: entry.latency_us)

    def speedup(self, entry: Entry) -> float:
        """Eager's time over an entry's; 0 for one that failed."""
        return self.eager_us / entry.latency_us if entry.status == Status.CORRECT.value else 0.0

    def speedups(self) -> list[float]:
        """The speedup of each entry, in order."""
        return [self.speedup(entry) for entry in self.entries]

    def find(self, choices: Mapping[str, Any]) -> Entry | None:
        """The entry of a configuration."""
        return next((entry for entry in self.entries if dict(entry.choices) == dict(choices)), None)

    def simulated(self, *, noise: float = 0.0) -> SimulatedTask:
        """The same for a `SimulatedPool`, with noise of measuring.

        Args:
            noise: standard deviation of the logarithm of a time.
        """
        schedules = {}
        for entry in self.entries:
            correct = entry.status == Status.CORRECT.value
            schedules[schedule_key("", entry.choices)] = SimulatedSchedule(
                entry.latency_us if correct else self.eager_us, 1.0, {} if correct else {entry.status: 1.0}
            )
        return SimulatedTask(self.eager_us, schedules=schedules, noise=noise)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for strict JSON; what failed has None for times."""
        data = {**vars(self), "schema": SCHEMA, "versions": dict(self.versions)}
        data["entries"] = [{**vars(entry), "choices": dict(entry.choices)} for entry in self.entries]
        return dict(finite(data))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Table:
        """The inverse of `to_dict`.

        Raises:
            InvalidOptionError: for other data, or that of a newer version.
        """
        try:
            fields = dict(data)
            if fields.pop("schema") > SCHEMA:
                raise InvalidOptionError(f"The table is of a newer version than this reads ({SCHEMA}).")
            fields["entries"] = tuple(
                Entry(one["choices"], one["status"], _number(one["latency_us"]), _number(one["spread"]))
                for one in fields["entries"]
            )
            fields["seconds"] = _number(fields.get("seconds"))
            return cls(**fields)
        except (KeyError, TypeError, AttributeError) as error:
            raise InvalidOptionError(f"This is no table of a template: {error!r}.") from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it: Parquet where the name ends so (needs pyarrow), a row for each entry; else JSON.

        Raises:
            MissingDataError: for Parquet without pyarrow.
            OSError: if the file cannot be written.
        """
        file = named(path)
        data = self.to_dict()
        if not is_parquet(file):
            write_whole(file, json.dumps(data, indent=1) + "\n", private=False)
            return
        writer = parquet()
        import pyarrow

        shared = {key: value for key, value in data.items() if key != "entries"}
        rows = [{**one, "choices": json.dumps(one["choices"])} for one in data["entries"]]
        table = pyarrow.Table.from_pylist(rows).replace_schema_metadata({b"table": json.dumps(shared).encode()})
        writer.write_table(table, str(file))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Table:
        """Read what `save` wrote.

        Raises:
            InvalidOptionError: for a file that holds no table.
            OSError: if it cannot be read.
        """
        file = Path(path)
        if not is_parquet(file):
            try:
                return cls.from_dict(json.loads(file.read_text(encoding="utf-8")))
            except ValueError as error:
                raise InvalidOptionError(f"{file} holds no table: {error}") from error
        found = parquet().read_table(str(file))
        shared = (found.schema.metadata or {}).get(b"table")
        if shared is None:
            raise InvalidOptionError(f"{file} holds no table of a template.")
        rows = [{**one, "choices": json.loads(one["choices"])} for one in found.to_pylist()]
        return cls.from_dict({**json.loads(shared), "entries": rows})


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
