"""The names that a template file uses, for a pattern.

- `Wording` -- makes them.
"""

from __future__ import annotations

from typing import Any

from kernelgym_env.tasks.model import Task
from kernelgym_env.templates.expressions import Node, walk, write
from kernelgym_env.templates.patterns import Pattern

__all__ = ["Wording"]


class Wording:
    """What a template file says of a pattern.

    A tensor ``x`` is ``p_x`` as a pointer and ``v_x`` as a loaded value, a scalar ``s`` is ``s_s``, the weights are
    ``p_w0``, … and ``w0``, …; results of passes are ``r0``, ….

    Args:
        pattern: what is computed.
        task: the task that it was read from.
    """

    def __init__(self, pattern: Pattern, task: Task) -> None:
        self.pattern = pattern
        self.task = task

    def names(self) -> dict[str, Any]:
        """Everything, by the names that the files use."""
        pattern = self.pattern
        pointers = [f"p_{name}" for name in pattern.tensors] + [
            f"p_w{place}" for place, _ in enumerate(pattern.weights)
        ]
        scalars = [f"s_{name}" for name in pattern.scalars]
        tensors = list(pattern.tensors) + list(pattern.weights)
        head, _, model = pattern.head.rpartition("\n\n\n")
        weights = range(len(pattern.weights))
        return {
            "family": pattern.family,
            "head": _imports(head),
            "model": f"{model}\n",
            "arguments": pattern.arguments,
            "tensors": pattern.tensors,
            "weights": pattern.weights,
            "passes": pattern.passes,
            "formula": pattern.formula,
            "product": pattern.product,
            "softmax": pattern.is_softmax,
            "length": pattern.length,
            "simple_product": pattern.formula == Node("name", text="product") and not _triangle(pattern),
            "uses_tanh": any(part.op == "tanh" for formula in pattern.formulas for part in walk(formula)),
            "write_c": self._write_c,
            "write_triton": self._write_triton,
            "output_sizes": self._output_sizes(),
            "length_of": _product_of(range(pattern.start, pattern.start + pattern.count)),
            "inner_of": _product_of(range(pattern.start + pattern.count, len(pattern.shape))),
            # C and CUDA
            "c_parameters": "".join(f"const float* {name}, " for name in pointers)
            + "".join(f"float {name}, " for name in scalars),
            "c_types": lambda outputs: (
                f"[ctypes.c_void_p] * {len(pointers)} + [ctypes.c_float] * {len(scalars)}"
                f" + [ctypes.c_void_p] * {outputs}"
            ),
            "c_arguments": "".join(f"{name}.data_ptr(), " for name in tensors)
            + "".join(f"{name}, " for name in pattern.scalars),
            "c_weights": "".join(f"const float* p_w{place}, " for place in weights),
            "weight_arguments": "".join(f"{name}.data_ptr(), " for name in pattern.weights),
            "cupy_arguments": "".join(f"address({name}), " for name in tensors)
            + "".join(f"np.float32({name}), " for name in pattern.scalars),
            "cupy_weights": "".join(f"address({name}), " for name in pattern.weights),
            # Triton
            "pointers": "".join(f"{name}, " for name in [*pointers, *scalars]),
            "pointer_arguments": "".join(f"{name}, " for name in [*tensors, *pattern.scalars]),
            "weight_pointers": "".join(f"p_w{place}, " for place in weights),
            "weight_tensors": "".join(f"{name}, " for name in pattern.weights),
        }

    def _write_c(self, formula: Node, tensor: str, weight: str) -> str:
        pattern = self.pattern
        names = {name: f"p_{name}{tensor}" for name in pattern.tensors}
        names |= {name: f"p_w{place}{weight}" for place, name in enumerate(pattern.weights)}
        return write(formula, "c", names | {name: f"s_{name}" for name in pattern.scalars})

    def _write_triton(self, formula: Node) -> str:
        pattern = self.pattern
        names = {name: f"v_{name}" for name in pattern.tensors}
        names |= {name: f"w{place}" for place, name in enumerate(pattern.weights)}
        names |= {name: f"s_{name}" for name in pattern.scalars}
        names["product"] = "total"
        return write(formula, "triton", names)

    def _output_sizes(self) -> str:
        """Sizes of a reduction's output, from ``sizes``, those of its input."""
        pattern = self.pattern
        after = pattern.start + pattern.count
        kept = ", ".join(["1"] * pattern.count) if pattern.keepdim else ""
        parts = [f"*sizes[:{pattern.start}]" if pattern.start else "", kept]
        parts.append(f"*sizes[{after}:]" if after < len(pattern.shape) else "")
        # in brackets: without dimensions there is one element
        return f"[{', '.join(part for part in parts if part)}]"


def _product_of(dims: range) -> str:
    return " * ".join(f"sizes[{dim}]" for dim in dims) or "1"


def _imports(head: str) -> str:
    """The head with the imports that every template needs."""
    lines = head.splitlines()
    return "\n".join(lines if "import torch" in lines else ["import torch", *lines])


def _triangle(pattern: Pattern) -> bool:
    return pattern.product is not None and bool(pattern.product.triangle)
