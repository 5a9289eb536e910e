"""Whether tasks can be won without the work: found out by running their references alone.

- `measure` -- the facts of one task under one protocol, in this process.
- `Auditor` -- the facts of tasks, each found out in a process of its own with a deadline and a bound on memory.
- `AuditFile` -- facts on disk, written task by task.

What the facts say about a task is in `kernelgym_env.tasks.flaws`.
"""

from __future__ import annotations

from kernelgym_env.audit.auditor import Auditor
from kernelgym_env.audit.facts import measure
from kernelgym_env.audit.file import AuditFile

__all__ = ["AuditFile", "Auditor", "measure"]
