"""The examples of docs/wrappers.md, and that it names every wrapper."""

import re

import pytest

from kernelgym_env import wrappers


@pytest.fixture
def page(repo_root):
    return (repo_root / "docs" / "wrappers.md").read_text(encoding="utf-8")


def test_examples(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 3
    for block in blocks:
        exec(compile(block, "docs/wrappers.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "1.8 1.8 [1.608 2.02  1.8  ]" in printed
    assert "[ 2. -1.]" in printed
    assert "[2.0, 2.0]" in printed
    assert "Long reasoning" not in printed


def test_every_wrapper_is_named(page):
    assert [
        name
        for name in wrappers.__all__
        if name != "KernelWrapper" and f"`{name}`" not in page and name != "RecipeReward"
    ] == []
