"""The task record."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle

import pytest

from kernelgym_env.errors import InvalidOptionError, KernelGymError, UnknownNameError
from kernelgym_env.tasks import Task

SOURCE = """import torch
from torch import nn

SCALE = 2
M, K = 64 * SCALE, 128


class Model(nn.Module):
    def forward(self, x):
        return x * 2


def get_inputs():
    return [torch.randn(M, K)]


def get_init_inputs():
    return []
"""


def make(**fields) -> Task:
    return Task(**{"id": "Demo/Double", "source": SOURCE, **fields})


def test_constants_and_sizes():
    task = make(sizes={"cpu": {"K": 16}, "cuda": {"SCALE": 8}})
    assert task.constants() == {"SCALE": 2, "K": 128}
    cpu = task.for_device("cpu")
    assert cpu.source == SOURCE.replace("128", "16")
    assert cpu.sizes == {} and cpu.id == task.id
    assert task.for_device("cuda").source == SOURCE.replace("SCALE = 2", "SCALE = 8")
    assert cpu.for_device("cuda") == cpu
    assert make(sizes={"cpu": {"K": 16}}).for_device("cuda").source == SOURCE
    assert task.with_sizes({"K": 1, "SCALE": 3}).constants() == {"SCALE": 3, "K": 1}


def test_hash_is_of_the_source_alone():
    task = make()
    assert task.hash == make(id="Other/Name", title="x", source=SOURCE.replace("\n", "\r\n")).hash
    assert len(task.hash) == 64
    assert task.hash != task.with_sizes({"K": 1}).hash


def test_plain_data_and_copies():
    task = make(title="t", description="d", level=2, tags=["a", "b"], sizes={"cpu": {"K": 16}}, origin="o", licence="l")
    task = dataclasses.replace(task, input_laws=["permuted", "shifted", "permuted"])
    assert task.input_laws == ("permuted", "shifted") and task.to_dict()["input_laws"] == ["permuted", "shifted"]
    assert make().to_dict()["input_laws"] is None and make(input_laws=[]).input_laws == ()
    assert task.tags == ("a", "b")
    assert Task.from_dict(json.loads(json.dumps(task.to_dict()))) == task
    assert pickle.loads(pickle.dumps(task)) == task == copy.deepcopy(task) == dataclasses.replace(task)
    assert hash(task) == hash(copy.deepcopy(task))
    assert task != dataclasses.replace(task, sizes={})
    assert SOURCE not in repr(task)
    assert task.env_id == "Demo/Double-v0"


def test_sizes_are_a_copy():
    sizes = {"cpu": {"K": 16}}
    task = make(sizes=sizes)
    sizes["cpu"]["K"] = 1
    assert task.sizes == {"cpu": {"K": 16}}


@pytest.mark.parametrize("name", ["KernelGym/RowSoftmax", "KernelBench/L1-019", "a_b-c:d/e.f", "File/sub.name"])
def test_ids_that_fit(name):
    assert make(id=name).id == name


@pytest.mark.parametrize("name", ["", "A", "A/", "/B", "A/B/C", "A.x/B", "A/B C", "A/B-v0", "A/B\n", "A/ü b", 3, None])
def test_ids_that_do_not_fit(name):
    with pytest.raises(InvalidOptionError, match="id"):
        make(id=name)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("class Model(", "class ModelNew(", r"lacks class Model\(nn.Module\)\."),
        ("def get_inputs", "def inputs", r"lacks function get_inputs\(\)\."),
        ("def get_init_inputs", "def init_inputs", r"lacks function get_init_inputs\(\)\."),
        ("def forward", "def forward(", "is not Python: .* in line 9"),
        ("return []", "return []" + " " * 300_000, "characters"),
    ],
)
def test_a_source_that_does_not_fit_says_why_and_whence(old, new, said):
    with pytest.raises(InvalidOptionError, match=rf"'Demo/Double' \(from here\) .*{said}"):
        make(source=SOURCE.replace(old, new), origin="here")


@pytest.mark.parametrize(
    "fields",
    [
        {"source": b"x"},
        {"title": None},
        {"level": -1},
        {"level": True},
        {"level": "1"},
        {"tags": "abc"},
        {"tags": [1]},
        {"tags": None},
        {"sizes": None},
        {"sizes": {"cpu": 3}},
        {"sizes": {"cpu": {"M": 3}}},
        {"sizes": {"cpu": {"K": 0.5}}},
        {"sizes": {"gpu": {"K": 3}}},
        {"input_laws": "permuted"},
        {"input_laws": [3]},
    ],
)
def test_fields_that_do_not_fit(fields):
    with pytest.raises(KernelGymError):
        make(**fields)


def test_unknown_names():
    with pytest.raises(InvalidOptionError, match=r"Unknown constant of task 'Demo/Double': 'N'. Allowed: K, SCALE"):
        make().with_sizes({"N": 1})
    with pytest.raises(UnknownNameError, match=r"'gpu'.*cpu, cuda"):
        make().for_device("gpu")
    with pytest.raises(UnknownNameError, match="input law of task 'Demo/Double': 'permutted'. Did you mean 'permuted'"):
        make(input_laws=("permutted",))
    with pytest.raises(InvalidOptionError, match="lacks source; has colour"):
        Task.from_dict({"id": "A/B", "colour": "red"})
