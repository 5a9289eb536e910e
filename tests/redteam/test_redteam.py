"""The red team against the judge, on the CPU: the set of this repository and the shared one, where that is there.

`QUICK` are the cases that ``make test`` runs: some of each kind, none of which hangs on how fast the machine is.
`NOT_YET` lists what the judge does not catch yet; each entry must go as soon as it does, since an expected failure that
does not fail is an error here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelgym_env.redteam import Arena, RedTeamCase, find_cases

OWN = Path(__file__).resolve().parent / "cases"
SHARED = OWN.parents[2].parent / "shared" / "redteam" / "cases"
LONGEST_S = 280

QUICK = {
    "A3b-bound-operators",
    "A9-copied-through",
    "B15b-slope-literal",
    "B26-folded-once",
    "B29-bias-left-out",
    "C1b-memo-on-the-argument",
    "C7-transposed-input-kept",
    "C16-weights-of-the-reference",
    "C20-instance-overrides",
    "E2c-shell-writes",
    "E9-encoded-memo",
    "E10d-environments-of-others",
    "H60-guard-for-other-dtypes",
    "H66-half-task",
    "H67-folded-by-version",
    "H74-registered-operator",
}

NOT_YET: dict[str, str] = {}

CASES = [case for folder in (OWN, SHARED) if folder.is_dir() for case in find_cases(folder)]
RUNNABLE = [case for case in CASES if not case.why_not("cpu")]
ATTACKS = [case for case in RUNNABLE if case.folder.parent == OWN and case.expect != "accept"]


def parameters() -> list[object]:
    found = []
    for case in RUNNABLE:
        marks = [pytest.mark.timeout(LONGEST_S)]
        if case.name not in QUICK:
            marks.append(pytest.mark.slow)
        if case.name in NOT_YET:
            marks.append(pytest.mark.xfail(reason=NOT_YET[case.name], strict=True))
        found.append(pytest.param(case, id=case.name, marks=marks))
    return found


@pytest.fixture(scope="module")
def arena() -> Iterator[Arena]:
    """One judge for all cases that a process runs."""
    with Arena("cpu", threads=1) as opened:
        yield opened


@pytest.mark.parametrize("case", parameters())
def test_case(arena: Arena, case: RedTeamCase) -> None:
    record = arena.run(case)
    outcome = record.outcome
    speedup = "" if math.isnan(outcome.speedup) else f", speedup {outcome.speedup:.3g} (from {outcome.speedup_low:.3g})"
    assert record.ok, f"{'; '.join(record.failures)} [{outcome.status}{speedup}] {outcome.fault or outcome.feedback}"


AIMED_HERE = {"A26", "B41", "D30", "D32", "D34", "D38", "E20", "E21", "E23", "E24", "E25"}
"""Attacks on this judge's own commands, messages and builds, values in letters, and one that is wrong for anybody."""


@pytest.mark.slow
@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in ATTACKS])
def test_every_attack_of_the_own_set_is_real(arena: Arena, case: RedTeamCase) -> None:
    """It fools the naive evaluator, or does its harm beside it, unless it is aimed at what this judge alone does."""
    if case.id in AIMED_HERE:
        pytest.skip("aimed at this package's own judge, or wrong for anybody")
    naive = arena.ask_naive(case)
    assert naive.credited or naive.markers or naive.leaks, naive.error


def test_the_own_set_is_large_enough_and_of_both_kinds() -> None:
    own = find_cases(OWN)
    assert len({case.id for case in own}) == len(own) >= 30
    assert all(case.name.startswith(f"{case.id}-") for case in own)
    honest = [case for case in own if case.expect == "accept"]
    assert len(honest) >= 12 and len(own) - len(honest) >= 18
    assert all((case.kind == "honest") == (case.expect == "accept") == case.id.startswith("H") for case in own)


def test_no_case_of_the_own_set_is_a_copy_of_a_shared_one() -> None:
    if not SHARED.is_dir():
        pytest.skip("the shared cases are not on this machine")
    shared = find_cases(SHARED)
    sources = {case.source for case in shared} | {case.task_source for case in shared}
    ids = {case.id for case in shared}
    for case in find_cases(OWN):
        assert case.id not in ids
        assert not {case.source, case.task_source} & sources


def test_the_lists_name_cases_that_exist() -> None:
    names = {case.name for case in CASES}
    own = {case.name for case in CASES if case.folder.parent == OWN}
    assert own >= QUICK
    assert names >= set(NOT_YET) or not SHARED.is_dir()
