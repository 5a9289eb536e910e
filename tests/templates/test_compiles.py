"""Triton's own compiler takes what the templates render, for a GPU that is not there."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

# Our own sources alone. The compiler needs no device for a target that is named.
CHILD = """
import importlib.util, json, random, sys
from triton import compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from kernelgym_env.tasks import load_task
from kernelgym_env.templates import template_for
rng, names, folder = random.Random(1), json.loads(sys.argv[1]), sys.argv[2]
for number, name in enumerate(names):
    task = load_task(f"KernelGym/{name}")
    template = template_for(task, "triton")
    choices = template.draw(rng)
    path = f"{folder}/compiled_{number}.py"
    open(path, "w").write(template.render(task, choices))
    spec = importlib.util.spec_from_file_location(f"compiled_{number}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kernel, signature, constants = module.kernel, {}, {}
    sizes = {parameter.upper(): value for parameter, value in choices.items()}
    for parameter in kernel.params:
        at = parameter.name
        if parameter.is_constexpr:
            signature[at], constants[at] = "constexpr", 1 if at == "SPLIT" else sizes[at]
        elif at in ("a_column", "b_column"):
            signature[at], constants[at] = "constexpr", 1
        else:
            pointer = at in ("y", "a", "b") or at.startswith("p_")
            signature[at] = "*fp32" if pointer else "fp32" if at.startswith("s_") else "i32"
    places = {(kernel.arg_names.index(at),): value for at, value in constants.items()}
    options = {"num_warps": choices["warps"], "num_stages": choices.get("stages", 3)}
    made = compile(ASTSource(kernel, signature, places, {}), target=GPUTarget("cuda", 90, 32), options=options)
    assert "ptx" in made.asm
print("done")
"""


def test_kernels_compile_for_a_hopper(tmp_path):
    names = ["GeluTanh", "ElementwiseChain", "RowSoftmax", "LayerNorm", "RowSum", "ColumnMax", "Matmul"]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps([*names, "MatmulBiasGelu"]), str(tmp_path)],
        env={**environment, "TRITON_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=240,
    )
    if "ptxas" in done.stderr and "not found" in done.stderr:
        pytest.skip("no ptxas beside triton")
    assert done.returncode == 0, done.stderr[-3000:]
