"""Compiles the expert kernels of the suite `rl` for a GPU that is not there, at the sizes for a GPU.

Run as a program, in a process without Triton's interpreter. Inputs are meta tensors. A launch compiles the kernel for
compute capability 9.0 with the arguments it got and runs nothing. Prints one JSON object: by task, the kernels with
their bytes of shared memory, and whether the outputs have the form of the reference's.
"""

from __future__ import annotations

import json
import sys
import tempfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from kernelgym_env.tasks import rl

DTYPES = {
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.uint8: "u8",
}
ALIGNED = [["tt.divisibility", 16]]
HOPPER = GPUTarget("cuda", 90, 32)


class Launches:
    """Takes the place of a kernel's launch; `shared` has bytes of shared memory by kernel."""

    def __init__(self) -> None:
        self.shared: dict[str, int] = {}

    def compile(self, kernel: JITFunction, *args: object, grid: object, warmup: bool, **options: object) -> None:
        values = dict(zip(kernel.arg_names, args, strict=False)) | options
        signature, constants, attributes = {}, {}, {}
        for place, parameter in enumerate(kernel.params):
            value = values.pop(parameter.name)
            if parameter.is_constexpr or (isinstance(value, int) and value == 1):
                signature[parameter.name], constants[parameter.name] = "constexpr", value
            elif isinstance(value, torch.Tensor):
                signature[parameter.name], attributes[(place,)] = "*" + DTYPES[value.dtype], ALIGNED
            elif isinstance(value, int):
                signature[parameter.name] = "i32" if value < 2**31 else "i64"
                if value % 16 == 0:
                    attributes[(place,)] = ALIGNED
            else:
                signature[parameter.name] = "fp32"
        values = {name: value for name, value in values.items() if name in ("num_warps", "num_stages")}
        source = ASTSource(kernel, signature, constants, attributes)
        binary = triton.compile(source, target=HOPPER, options=values)
        self.shared[kernel.__name__] = binary.metadata.shared


def form(output: object) -> list[tuple[tuple[int, ...], torch.dtype]]:
    return [(tuple(leaf.shape), leaf.dtype) for leaf in (output if isinstance(output, tuple) else (output,))]


def main(folder: Path) -> None:
    launches, report = Launches(), {}
    JITFunction.run = lambda kernel, *args, **options: launches.compile(kernel, *args, **options)
    for task_id in rl.IDS:
        launches.shared = {}
        path = folder / f"{task_id.partition('/')[2]}.py"
        path.write_text(rl.expert(task_id), encoding="utf-8")
        spec = spec_from_file_location(path.stem, path)
        expert = module_from_spec(spec)
        spec.loader.exec_module(expert)
        space: dict = {"__name__": "reference"}
        exec(compile(rl.load(task_id).for_device("cuda").source, task_id, "exec"), space)
        with torch.device("meta"), torch.no_grad():
            inputs = space["get_inputs"]()
            init = space["get_init_inputs"]()
            same = form(expert.ModelNew(*init)(*inputs)) == form(space["Model"](*init)(*inputs))
        report[task_id] = {"shared": launches.shared, "same_form": same}
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(Path(name))
