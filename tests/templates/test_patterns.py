"""What is read off references, and what is refused."""

import pytest

from kernelgym_env.errors import MissingDataError
from kernelgym_env.tasks import load_task, load_tasks
from kernelgym_env.tasks.model import Task
from kernelgym_env.templates import recognise, templates_for, why_not
from kernelgym_env.templates.reading import Reference, Shape, Unread, broadcast

COVERED = {
    "matmul": (1, 2, 3, 6, 7, 8, 9, 10, 11, 13, 14, 15, 16, 17, 18),
    "elementwise": (5, 19, 20, 21, 22, 25, 26, 27, 28, 29, 30, 31, 32, 88),
    "rows": (23, 24, 36, 38, 39, 40),
    "reduction": (47, 48, 49, 53),
}
"""Problems of KernelBench's level 1 that templates cover, as docs/sb3.md lists them."""

CORE = {
    "ElementwiseChain": "elementwise",
    "GeluTanh": "elementwise",
    "RowSum": "reduction",
    "ColumnMax": "reduction",
    "RowSoftmax": "rows",
    "RowLogSoftmax": "rows",
    "LayerNorm": "rows",
    "RmsNorm": "rows",
    "Matmul": "matmul",
    "BatchedMatmul": "matmul",
    "MatmulTransposed": "matmul",
    "MatmulSkinny": "matmul",
    "MatmulBiasGelu": "matmul",
}


def reference(forward, init="", inputs="torch.rand(8, 16)", arguments="x", given="[]"):
    body = f"    def __init__(self, *args):\n        super().__init__()\n{init}" if init else ""
    return Task(
        "Test/Reference",
        f"import math\nimport torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
        f"class Model(nn.Module):\n{body}    def forward(self, {arguments}):\n        {forward}\n"
        f"def get_inputs():\n    return [{inputs}]\ndef get_init_inputs():\n    return {given}\n",
    )


def test_the_core_suite():
    found = {task.id.partition("/")[2]: recognise(task) for task in load_tasks("core")}
    assert {name: pattern.family for name, pattern in found.items() if pattern is not None} == CORE
    assert recognise(load_task("KernelRL/Gae")).family == "gae"
    for name, pattern in found.items():
        assert bool(why_not(load_task(f"KernelGym/{name}"))) == (pattern is None)


def test_kernelbench_level_1(shared_data, monkeypatch):
    monkeypatch.setenv("KERNELBENCH_DIR", str(shared_data("kernelbench.jsonl.gz")))
    found = {}
    for number in range(1, 101):
        try:
            pattern = recognise(load_task(f"KernelBench/L1-{number:03d}"))
        except MissingDataError:
            pytest.skip("the problems are not there")
        if pattern is not None:
            found.setdefault(pattern.family, []).append(number)
    assert {family: tuple(numbers) for family, numbers in found.items()} == COVERED


@pytest.mark.parametrize(
    ("forward", "family"),
    [
        ("return torch.relu(x) + 1", "elementwise"),
        ("y = x.exp(); return y".replace("; ", "\n        "), "elementwise"),
        ("return F.gelu(x, approximate='tanh') * math.sqrt(2.0)", "elementwise"),
        ("return x.softmax(dim=-1)", "rows"),
        ("return x / x.norm(p=2, dim=1, keepdim=True)", "rows"),
        ("return x.pow(2).mean(dim=0)", "reduction"),
        ("return torch.sqrt(torch.sum(x * x, dim=1))", "reduction"),
        ("return torch.max(x, dim=1)[0]", "reduction"),
        ("return x.min(dim=0).values", "reduction"),
        ("return torch.clamp(x, min=-1.0, max=1.0)", "elementwise"),
    ],
)
def test_forms_that_are_understood(forward, family):
    task = reference(forward)
    assert why_not(task) == ""
    assert recognise(task).family == family


@pytest.mark.parametrize(
    ("forward", "said"),
    [
        ("return x.cumsum(dim=1)", "cumsum"),
        ("return x - x.mean()", "calls 'mean'"),
        ("return x / x.sum(dim=1)", "shapes"),
        ("return x.sum(dim=0, keepdim=True) * x.sum(dim=1, keepdim=True)", "several axes"),
        ("return torch.sum(x, dim=1, dtype=torch.float64)", "torch.float64"),
        ("return x ** 1.7", "a power of 1.7"),
        ("return x if True else x", "whose value is not known"),
        ("for i in range(3): x = x + 1", "its forward has"),
        ("return 1.0", "does not depend on an input"),
        ("return x.T + x.T", "elementwise"),
        ("return x @ x.T @ x", "more than one matrix product"),
        ("return self.nothing(x)", "self.nothing"),
        ("return F.softmax(x, dim=5)", "no dimension 5"),
    ],
)
def test_forms_that_are_refused(forward, said):
    task = reference(forward)
    assert recognise(task) is None
    assert said in why_not(task)
    assert templates_for(task) == []


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ("torch.rand(8, 16).half()", "half"),
        ("torch.randint(0, 4, (8,))", "randint"),
        ("[torch.rand(3)]", "other than float32"),
        ("torch.rand(8, 16), torch.rand(8, 16)", "for each argument"),
    ],
)
def test_inputs_that_are_refused(inputs, said):
    assert said in why_not(reference("return x + 1", inputs=inputs))


def test_weights_belong_to_the_trailing_dimensions():
    init = "        self.w = nn.Parameter(torch.randn({}))\n"
    assert recognise(reference("return x * self.w", init.format(16))).weights == ("self.w",)
    assert "trailing" in why_not(reference("return x * self.w", init.format("8, 1")))
    assert "trailing" in why_not(reference("return x * self.w", init.format(1)))


def test_a_constructor_is_kept_and_renamed():
    init = "        self.w = nn.Parameter(torch.randn(16))\n"
    head = recognise(reference("return x * self.w", init)).head
    assert "class ModelNew(nn.Module):" in head and "forward" not in head


def test_a_constructor_that_calls_the_module_s_functions_is_refused():
    task = reference("return x * self.w", "        self.w = nn.Parameter(torch.randn(16)) if get_inputs else None\n")
    assert recognise(task) is None


def test_shapes_follow_the_sizes():
    small = load_task("KernelGym/Matmul").with_sizes({"M": 3, "K": 5, "N": 7})
    product = recognise(small).product
    assert (product.m, product.k, product.n) == (3, 5, 7)


def test_broadcasting_is_numpy_s():
    assert broadcast((2, 1, 3), (4, 1)) == (2, 4, 3)
    with pytest.raises(Unread, match="do not fit"):
        broadcast((2,), (3,))


def test_a_reference_s_parts():
    found = Reference(load_task("KernelGym/LayerNorm").source)
    assert found.inputs == [Shape((16384, 4096))]
    assert found.members["norm"] == ("LayerNorm", (4096,), {})


@pytest.mark.parametrize(
    ("constants", "init"),
    [
        ("SCALE = 2.0", "self.scale = SCALE\n        if True:\n            self.scale = 3.0"),
        ("SCALE = 2.0", "self.scale = SCALE\n        self.scale *= 2"),
        ("SCALE = 2.0", "scale = SCALE\n        scale += 1\n        self.scale = scale"),
        ("SCALE = 2.0\nSCALE *= 2", "self.scale = SCALE"),
        ("SCALE = 2.0\nfor SCALE in (3.0,):\n    pass", "self.scale = SCALE"),
    ],
)
def test_what_a_branch_or_a_loop_may_change_is_not_known(constants, init):
    source = f"""
import torch
from torch import nn
{constants}
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}
    def forward(self, x):
        return x * self.scale
def get_inputs():
    return [torch.randn(4, 8)]
def get_init_inputs():
    return []
"""
    assert "self.scale" in why_not(Task("Some/Task", source))
