"""Measuring every configuration of a template, for studies and for agents that need thousands of answers.

- `measure_table`, `measure_tables` -- the time of each configuration on a task, or on some.
- `Table` -- what was measured; in a file as JSON or Parquet.
- `sized` -- a task at other sizes, under an id of its own.

This is for this package's own templates alone: their source runs in this process, without a sandbox. Submissions go to
the pools, which trust nobody. `kernelgym_env.pools.table.TablePool` answers out of tables.
"""

from __future__ import annotations

from kernelgym_env.tuning.measure import measure_table, measure_tables, sized
from kernelgym_env.tuning.table import Entry, Table

__all__ = ["Entry", "Table", "measure_table", "measure_tables", "sized"]
