"""Facts on disk: one JSON document, written anew after each task, that a later run goes on with.

- `AuditFile` -- reads, writes, and says what is still to do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.keeping import named, write_whole
from kernelgym_env.tasks.flaws import METHOD, MISSING

__all__ = ["SCHEMA", "AuditFile"]

SCHEMA = 1
"""Version of the document's form."""


class AuditFile:
    """The records of `kernelgym_env.audit.Auditor` by task id.

    Args:
        path: where they lie; read if there is such a file. None keeps them in memory alone.

    Attributes:
        tasks: the records.

    Raises:
        InvalidOptionError: if the file cannot be read or holds something else.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.tasks: dict[str, dict[str, Any]] = {}
        if path is not None and path.exists():
            self.tasks = _read(path)

    def has(self, task_id: str, digest: str, *, kind: str, scale: str, protocols: Sequence[str]) -> bool:
        """Whether there is a record of this very task, kind of device and scale, with all protocols."""
        record = self.tasks.get(task_id, {})
        same = (record.get("hash"), record.get("kind"), record.get("scale")) == (digest, kind, scale)
        known = {name for name, facts in record.get("protocols", {}).items() if facts["state"] != MISSING}
        return same and set(protocols) <= known

    def put(self, task_id: str, record: Mapping[str, Any]) -> None:
        """Take a record in; what there was of the task goes, unless it differs in the protocols alone."""
        old = self.tasks.get(task_id, {})
        same = all(old.get(key) == record.get(key) for key in ("hash", "kind", "scale", "device", "torch", "package"))
        protocols = {**(old.get("protocols", {}) if same else {}), **record["protocols"]}
        self.tasks[task_id] = {**record, "protocols": protocols}
        if self.path is not None:
            self._write(self.path)

    def to_dict(self) -> dict[str, Any]:
        """The document."""
        return {"schema": SCHEMA, "method": METHOD, "tasks": {name: self.tasks[name] for name in sorted(self.tasks)}}

    def _write(self, path: Path) -> None:
        # a line for each task, and never half a file
        document = self.to_dict()
        lines = [f"{json.dumps(name)}: {json.dumps(record)}" for name, record in document.pop("tasks").items()]
        head = json.dumps(document)[:-1]
        text = f'{head},\n"tasks": {{\n' + ",\n".join(lines) + "\n}}\n"
        try:
            write_whole(named(path), text)
        except OSError as error:
            raise InvalidOptionError(f"The audit cannot be written to {str(path)!r}: {error.strerror}.") from error


def _read(path: Path) -> dict[str, dict[str, Any]]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidOptionError(f"The audit {str(path)!r} cannot be read: {error}.") from error
    if not isinstance(data, Mapping) or data.get("schema") != SCHEMA or not isinstance(data.get("tasks"), Mapping):
        raise InvalidOptionError(
            f"{str(path)!r} is no audit of schema {SCHEMA}. Name another file, or one that `kernelgym audit` wrote."
        )
    return {str(name): dict(record) for name, record in data["tasks"].items()}
