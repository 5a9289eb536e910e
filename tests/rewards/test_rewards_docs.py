"""docs/rewards.md says what the code does, and its examples run."""

from __future__ import annotations

import math
import re

import pytest

from kernelgym_env.evaluation.result import Evaluation, Status
from kernelgym_env.rewards import REWARDS, reward_table

PAGE = "docs/rewards.md"


@pytest.fixture(scope="module")
def text(repo_root):
    return (repo_root / PAGE).read_text(encoding="utf-8")


def table(text, heading):
    """Head and rows of the first table below a heading."""
    lines = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("|")]
    return rows[0], {row[0].strip("` "): row[1:] for row in rows[2:]}


def test_the_table_is_that_of_the_code(text):
    head, rows = table(text, "What each pays")
    assert list(rows) == list(REWARDS)
    columns = [re.findall(r"`(\w+)`", cell) for cell in head[1:-1]]
    assert sorted(name for column in columns for name in column) == sorted(Status)
    for name, cells in rows.items():
        for column, cell in zip(columns, cells[:-1], strict=True):
            for status in column:
                pays = reward_table()[name][status]
                assert cell == (pays if isinstance(pays, str) else f"{pays:g}"), (name, status)
        assert cells[-1] == f"{REWARDS[name].low:g} to {REWARDS[name].high:g}"


def test_what_is_read_and_what_its_absence_pays(text):
    _, rows = table(text, "What was not measured")
    assert list(rows) == list(REWARDS)
    for name, (reads, absent) in rows.items():
        assert tuple(re.findall(r"`([\w.]+)`", reads)) == REWARDS[name].needs
        if number := re.match(r"-?[\d.]+", absent):
            pays = REWARDS[name].function(Evaluation("a/b", Status.CORRECT))
            assert pays == pytest.approx(float(number[0].rstrip(".")), abs=5e-4), name
    assert math.isclose(REWARDS["improvement"].function(Evaluation("a/b", Status.CORRECT)), 0.3)


def test_examples_run(text):
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert blocks
    for number, block in enumerate(blocks):
        exec(compile(block, f"{PAGE}, block {number}", "exec"), {"__name__": "__main__"})


def test_lines_are_short(text):
    assert not [line for line in text.splitlines() if len(line) > 120 and not line.startswith("|")]
