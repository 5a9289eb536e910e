"""The red team: cases that try to fool a judge, and honest kernels that a judge must not condemn.

- `find_cases`, `read_case`, `RedTeamCase` -- cases on disk.
- `Arena`, `Record` -- running them.
- `failures`, `Outcome` -- whether a judge did as a case expects.
- `run_naive`, `Naive` -- a naive evaluator for contrast.
"""

from kernelgym_env.redteam.arena import Arena, Record
from kernelgym_env.redteam.cases import EXPECTS, RedTeamCase, find_cases, read_case
from kernelgym_env.redteam.naive import Naive, run_naive
from kernelgym_env.redteam.verdict import Outcome, failures

__all__ = [
    "EXPECTS",
    "Arena",
    "Naive",
    "Outcome",
    "Record",
    "RedTeamCase",
    "failures",
    "find_cases",
    "read_case",
    "run_naive",
]
