"""docs/credit.md names what there is, and its examples run."""

from __future__ import annotations

import re

import pytest

from kernelgym_env import credit

PAGE = "docs/credit.md"


@pytest.fixture(scope="module")
def text(repo_root):
    return (repo_root / PAGE).read_text(encoding="utf-8")


def test_examples_run(text, capsys):
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 4
    for number, block in enumerate(blocks):
        exec(compile(block, f"{PAGE}, block {number}", "exec"), {"__name__": "__main__"})
    assert "[0.808 2.02  1.8  ]" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["MODES", "KINDS", "LEVELS"])
def test_every_choice_is_named(text, name):
    assert all(f"`{choice}`" in text for choice in getattr(credit, name))


def test_every_function_is_used(text):
    shown = "\n".join(re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    functions = [name for name in credit.__all__ if name.islower()]
    assert [name for name in functions if f"{name}(" not in shown] == []


def test_lines_are_short(text):
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert not [line for line in prose.splitlines() if len(line) > 120 and not line.startswith("|")]
