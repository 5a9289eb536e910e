"""Pairs of module and kernel from data sets."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from kernelgym_env.errors import InvalidOptionError, MissingDataError
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.tasks.synth import read_pairs

MODULE = """
import torch
from torch import nn


class Scale(nn.Module):
    def __init__(self, factor, shift=0.0):
        super().__init__()
        self.factor, self.shift = factor, shift

    def forward(self, x):
        return x * self.factor + self.shift


def get_inputs():
    return [torch.rand([4, 4, 4, 4])]


def get_init_inputs():
    return [[3.0], {'shift': 0.5}]
"""
KERNEL = MODULE.partition("def get_inputs")[0].replace("class Scale", "class ScaleNew")
PLAIN = MODULE.replace("class Scale", "class Model").replace("[[3.0], {'shift': 0.5}]", "[3.0, 0.5]")


def write(path: Path, *rows: dict) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_row_as_in_kernelbook(tmp_path: Path, local_pool) -> None:
    row = {"entry_point": "Scale", "python_code": MODULE, "triton_code": KERNEL, "licenses": ["MIT", "BSD"]}
    (pair,) = read_pairs(write(tmp_path / "book.jsonl", {**row, "module_name": "scale module"}))
    assert pair.task.id == "Pairs/00001-scale-module"
    assert (pair.task.licence, pair.task.tags, pair.task.title) == ("MIT, BSD", ("pair",), "scale module")
    assert "class Model(Scale):" in pair.task.source and "class ModelNew(ScaleNew):" in pair.source
    for source, status in ((pair.source, "correct"), (pair.source.replace("+ self.shift", "- self.shift"), "wrong")):
        submission = Submission(pair.task, source, device="cpu", library_ops="allow")
        evaluation = local_pool.submit(submission).result()
        assert evaluation.status == status, evaluation.feedback


def test_classes_that_have_the_names_stay(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"reference": PLAIN, "kernel": KERNEL.replace("ScaleNew", "ModelNew")})
    (pair,) = read_pairs(path, namespace="Mine")
    assert pair.task.id == "Mine/00001" and pair.task.source == PLAIN
    (renamed,) = read_pairs(
        write(tmp_path / "b.jsonl", {"a": PLAIN.replace("Model", "Scale"), "b": KERNEL, "class": "Scale"}),
        reference="a",
        kernel="b",
        entry="class",
    )
    assert renamed.task.source.endswith("class Model(Scale):\n    pass\n")


def test_rows_that_are_no_pair_are_named(tmp_path: Path) -> None:
    good = {"reference": PLAIN, "kernel": KERNEL.replace("ScaleNew", "ModelNew")}
    rows = [
        {**good, "kernel": None},
        {**good, "kernel": "class ("},
        {**good, "kernel": "class Other: ..."},
        {**good, "reference": PLAIN.replace("def get_inputs", "def inputs")},
        good,
        {**good, "level": 1, "problem_id": 3},
        {**good, "level": 1, "problem_id": 3},
    ]
    found = read_pairs(write(tmp_path / "a.jsonl", *rows))
    assert [pair.task.id for pair in found] == ["Pairs/00005", "KernelBench/L1-003"] and len(found) == 2
    assert list(found.refused) == [1, 2, 3, 4, 7]
    assert found.refused[1] == "kernel must be a source text, got NoneType."
    assert "kernel is not Python" in found.refused[2]
    assert found.refused[3] == "kernel has no class ModelNew; it has Other."
    assert "lacks function get_inputs()" in found.refused[4]
    assert found.refused[7] == "KernelBench/L1-003 has come before."


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"code": PLAIN})
    with pytest.raises(InvalidOptionError, match="has no columns python_code and triton_code; .* It has: code"):
        read_pairs(path)
    with pytest.raises(InvalidOptionError, match="has no columns code and kernel"):
        read_pairs(path, reference="code", kernel="kernel")
    with pytest.raises(InvalidOptionError, match="reference='code' and kernel=''"):
        read_pairs(path, reference="code")
    with pytest.raises(MissingDataError, match="There is no file"):
        read_pairs(tmp_path / "none.jsonl")
    (tmp_path / "a.csv").write_text("a")
    with pytest.raises(InvalidOptionError, match="is no file of pairs: needs .jsonl"):
        read_pairs(tmp_path / "a.csv")


def test_kernels_that_cuda_l1_published(shared_data) -> None:
    path = shared_data("cuda_l1_a100.jsonl.gz")
    with gzip.open(path, "rt") as file:
        rows = sum(1 for _ in file)
    found = read_pairs(path)
    assert len(found) + len(found.refused) == rows == 250
    assert len(found) > 200
    assert all(pair.task.id.startswith("KernelBench/L") and "class ModelNew" in pair.source for pair in found)
