"""A pool that answers out of measured tables: thousands of evaluations in a second, of real times.

- `TablePool` -- the pool.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.evaluation.feedback import explain
from kernelgym_env.evaluation.protocols import get_protocol
from kernelgym_env.evaluation.result import Evaluation, Status
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.pools.simulated import SimulatedPool
from kernelgym_env.pools.simulated_tasks import SimulatedConfig, schedule_key
from kernelgym_env.templates.library import get_template
from kernelgym_env.tuning.table import Table

__all__ = ["TablePool"]

_NOTE = re.compile(r"^# schedule: .*\n", re.MULTILINE)


class TablePool:
    """`Evaluator` that looks a source up in the tables of `kernelgym_env.tuning`.

    It knows the sources that the templates of its tables render for their tasks; a comment ``# schedule: …`` makes no
    difference. Times are those of the table with noise, drawn as `SimulatedPool` draws it. Any other source is
    `format`, and the feedback says that it is in no table.

    Args:
        tables: one a task, under the task's id.
        noise: standard deviation of the logarithm of a time.
        seed: of the noise.

    Raises:
        InvalidOptionError: without tables, or for two of a task.
    """

    def __init__(self, tables: Sequence[Table], *, noise: float = 0.0, seed: int = 0) -> None:
        self._tables = {table.task_id: table for table in tables}
        if not tables or len(self._tables) < len(tables):
            raise InvalidOptionError("A TablePool needs at least one table, and one a task at most.")
        config = SimulatedConfig({name: table.simulated(noise=noise) for name, table in self._tables.items()})
        self._pool = SimulatedPool(config, seed)
        self._known: dict[str, dict[str, str]] = {}

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._pool.closed

    def submit(self, submission: Submission, priority: int = 0) -> Future[Evaluation]:
        """Answer at once, see `Evaluator.submit`."""
        key = self._key(submission)
        if key is None:
            return _answered(
                Evaluation(
                    submission.task.id,
                    Status.FORMAT,
                    task_hash=submission.task.hash,
                    source_hash=submission.source_hash,
                    protocol=get_protocol(submission.protocol).name,
                    device="table",
                    feedback=explain("This pool knows the kernels of measured tables alone; this one is in none."),
                )
            )
        directive = dataclasses.replace(
            submission, source=f"# simulate: {key}\nimport torch\nclass ModelNew(torch.nn.Module): ...\n"
        )
        evaluation = self._pool.submit(directive, priority).result()
        return _answered(dataclasses.replace(evaluation, source_hash=submission.source_hash, device="table"))

    def _key(self, submission: Submission) -> str | None:
        table = self._tables.get(submission.task.id)
        if table is None or submission.source is None:
            return None
        if table.task_id not in self._known:
            template = get_template(table.template)
            self._known[table.task_id] = {
                template.render(submission.task, entry.choices): schedule_key("", entry.choices)
                for entry in table.entries
            }
        return self._known[table.task_id].get(_NOTE.sub("", submission.source))

    def pause(self) -> None:
        """Not of use: answers are there at once."""
        self._pool.pause()

    def resume(self) -> None:
        """Go on after `pause`."""
        self._pool.resume()

    def stats(self) -> dict[str, Any]:
        """Plain counters."""
        return {**self._pool.stats(), "tables": len(self._tables)}

    def close(self) -> None:
        """See `Evaluator.close`."""
        self._pool.close()


def _answered(evaluation: Evaluation) -> Future[Evaluation]:
    future: Future[Evaluation] = Future()
    future.set_result(evaluation)
    return future
