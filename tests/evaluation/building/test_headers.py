"""Slim headers are made from the installed ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kernelgym_env.evaluation.building import installed
from kernelgym_env.evaluation.building.headers import needs_full, operators_in, slim_headers

FACTORIES = "torch/csrc/autograd/generated/variable_factories.h"
ADD = "torch::Tensor f(torch::Tensor a) { auto c = torch::empty_like(a); return c.add_(a).sum(); }"


def test_operators_are_chosen_by_words() -> None:
    made = slim_headers(installed.include(), ADD)
    included = set(re.findall(r"ATen/ops/(\w+)\.h", made["torch/types.h"]))
    assert {"empty_like", "sum"} <= included and "conv2d" not in included
    assert "empty_like(" in made[FACTORIES] and "inline at::Tensor zeros(" not in made[FACTORIES]
    assert "pybind" not in made["torch/extension.h"]
    assert "pybind" in slim_headers(installed.include(), ADD + "PYBIND11_MODULE(x, m) {}")["torch/extension.h"]


def test_all_that_make_tensors_are_there_without_a_source_but_for_the_one_left_out() -> None:
    made = slim_headers(installed.include(), None)[FACTORIES]
    original = (installed.include() / FACTORIES).read_text(encoding="utf-8")
    wanted = re.findall(r"^inline at::Tensor (\w+)\(", original, re.MULTILINE)
    assert sorted(
        [*re.findall(r"^inline at::Tensor (\w+)\(", made, re.MULTILINE), "kernelgym_fresh", "tensor"]
    ) == sorted([*wanted, "kernelgym_fresh", "kernelgym_fresh"])
    assert "make_variable" not in made and "TensorDataContainer" not in made


def test_every_operator_has_its_header() -> None:
    names = operators_in(installed.include())
    assert {"add", "empty_like", "from_blob", "matmul"} <= names and "add_ops" not in names


def test_an_unknown_torch_has_none(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        slim_headers(tmp_path, ADD)
    path = tmp_path / FACTORIES
    path.parent.mkdir(parents=True)
    path.write_text("// nothing that is known")
    with pytest.raises(OSError, match="not in the known form"):
        slim_headers(tmp_path, ADD)


@pytest.mark.parametrize(
    "text",
    [
        "#include <torch/torch.h>",
        "#include <ATen/Parallel.h>",
        "torch::nn::functional::relu(x)",
        "torch::autograd::Function<F>",
        "torch :: tensor({1, 2})",
        "TORCH_LIBRARY(a, m) {}",
        "at::parallel_for(0, 1, 1, f)",
        "torch::NoGradGuard guard;",
    ],
)
def test_what_needs_the_full_headers_is_known(text: str) -> None:
    assert needs_full(text) and not needs_full(ADD)
