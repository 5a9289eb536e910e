"""docs/protocols.md says what the presets are, and its examples run."""

from __future__ import annotations

import re

import pytest

from kernelgym_env.evaluation.presets import PRESETS
from kernelgym_env.evaluation.protocols import Allclose, Protocol, protocol_names

PAGE = "docs/protocols.md"
MODES = {None: "constructor's", True: "train", False: "eval"}


@pytest.fixture(scope="module")
def text(repo_root):
    return (repo_root / PAGE).read_text(encoding="utf-8")


def number(value: float) -> str:
    return "0" if value == 0 else f"{value:.0e}".replace("e-0", "e-")


def tolerance(rule: Allclose | None) -> str:
    if rule is None:
        return "float64 oracle, see below"
    text = f"{number(rule.atol)} + {number(rule.rtol)}"
    return text if rule.half is None else f"{text}; half {number(rule.half[0])} + {number(rule.half[1])}"


def cells(protocol: Protocol) -> list[str]:
    """A row of the page's table, without the name and the source."""
    return [
        tolerance(protocol.allclose),
        str(protocol.input_sets),
        MODES[protocol.train_mode],
        protocol.precision,
        protocol.library_ops,
        protocol.inputs_on,
    ]


def test_the_table_is_that_of_the_code(text):
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    rows = [row for row in rows if len(row) == 8]
    assert [row[0].strip("`") for row in rows] == protocol_names()
    for name, source, *rest in rows:
        assert rest == cells(PRESETS[name.strip("`")]), name
        assert source


def test_examples_run(text, capsys):
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 3
    for number, block in enumerate(blocks):
        exec(compile(block, f"{PAGE}, block {number}", "exec"), {"__name__": "__main__"})
    printed = capsys.readouterr().out
    assert "kernelbench+custom" in printed
    assert "atol 0.0001 and rtol 0.0001 (0.01 and 0.01 for half-precision outputs)" in printed


def test_lines_are_short(text):
    assert not [line for line in text.splitlines() if len(line) > 120 and not line.startswith("|")]
