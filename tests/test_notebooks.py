"""Runs every notebook from its own folder, as Jupyter does."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("matplotlib")

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def executed(path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a notebook; raises if a cell does."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])))
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(path.parent)}})
    client.execute()
    return notebook


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_stripped(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert all(not cell.outputs and cell.execution_count is None for cell in code_cells(notebook))


def test_01_first_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = executed(ROOT / "notebooks" / "01_first_episode.ipynb", monkeypatch)
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    text = "".join(output.get("text", "") for output in outputs)
    for turn, status in enumerate(("wrong", "correct", "compile_error", "correct"), start=1):
        assert f"turn {turn}: {status}, reward" in text
    assert "error: expected" in text, "the compiler's messages"
    shown = {kind for output in outputs for kind in output.get("data", {})}
    assert {"image/png", "text/html"} <= shown, "the plot and the table"
    (table,) = (output["data"]["text/plain"] for output in outputs if "text/html" in output.get("data", {}))
    assert "return" in table
    assert not re.search(r"\d\.\d{4}", text.partition("median time")[2]), "rounded numbers"
