"""The formula of a model's ``forward``.

- `Forward` -- reads one.
- `Tensor` -- a value in it: a formula with a shape.
- `Product` -- a matrix product in it.
- `PRODUCT` -- the name of the product in a formula.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.templates.expressions import ACTIVATIONS, Node, call, lower, number
from kernelgym_env.templates.reading import Reference, Shape, Unread, broadcast, dotted

__all__ = ["PRODUCT", "Forward", "Product", "Tensor"]

PRODUCT = "product"
"""What a formula calls an element of the matrix product."""

_BINARY = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div"}
_NAMED_BINARY = {"add": "add", "sub": "sub", "mul": "mul", "multiply": "mul", "div": "div", "true_divide": "div"}
_REDUCTIONS = {"sum": "sum", "mean": "mean", "amax": "max", "amin": "min", "max": "max", "min": "min"}
_MATMULS = ("matmul", "mm", "bmm")
_MODULES = {
    "ReLU": "relu",
    "LeakyReLU": "leaky_relu",
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "SiLU": "silu",
    "GELU": "gelu",
    "SELU": "selu",
    "ELU": "elu",
    "Hardsigmoid": "hardsigmoid",
    "Hardtanh": "hardtanh",
    "Softplus": "softplus",
    "Softsign": "softsign",
}


@dataclass(frozen=True)
class Product:
    """A product of two matrices, or of batches of them.

    Attributes:
        left: Python text of the left one, e.g. ``A.T``.
        right: of the right one.
        batch: number of products, 1 where the right matrix is shared (the left one's leading dimensions are rows then).
        m: rows of a product.
        n: columns.
        k: terms of a sum.
        batched: whether both have a leading dimension of batches.
        triangle: ``upper`` or ``lower`` if only that part is kept, else ``""``.
    """

    left: str
    right: str
    batch: int
    m: int
    n: int
    k: int
    batched: bool = False
    triangle: str = ""


@dataclass(frozen=True)
class Tensor:
    """A value.

    Attributes:
        node: formula of an element.
        shape: sizes.
        view: Python text where it is an input, a weight, or a transposed one.
    """

    node: Node
    shape: tuple[int, ...]
    view: str = ""


@dataclass(frozen=True)
class _Pair:
    """Values and positions of a reduction."""

    values: Tensor


class Forward:
    """A forward, read.

    Args:
        reference: the reference that it is of.

    Attributes:
        arguments: its parameters.
        tensors: those that are tensors.
        scalars: those that are numbers.
        product: the matrix product in it, None for none.
        result: what it returns.

    Raises:
        Unread: if it does something that is not understood.
    """

    def __init__(self, reference: Reference) -> None:
        self.reference = reference
        function = reference.method("forward")
        if function is None or function.args.kwonlyargs or function.args.vararg or function.args.kwarg:
            raise Unread("its forward takes other arguments than positional ones")
        self.arguments = tuple(argument.arg for argument in function.args.args[1:])
        inputs = reference.inputs
        if len(inputs) != len(self.arguments):
            raise Unread("get_inputs() does not give a value for each argument of forward")
        self.product: Product | None = None
        self.names: dict[str, Any] = {}
        for name, value in zip(self.arguments, inputs, strict=True):
            shape = value.sizes if isinstance(value, Shape) else ()
            self.names[name] = Tensor(Node("name", text=name), shape, name if isinstance(value, Shape) else "")
        self.tensors = tuple(
            name for name, value in zip(self.arguments, inputs, strict=True) if isinstance(value, Shape)
        )
        self.scalars = tuple(name for name in self.arguments if name not in self.tensors)
        self._inputs = dict(self.names)
        self.result = self._run(function)

    def shape_of(self, name: str) -> tuple[int, ...]:
        """The shape of an input or a weight."""
        if name in self._inputs:
            return tuple(self._inputs[name].shape)
        return self._weight(name.removeprefix("self.")).shape

    # statements

    def _run(self, function: ast.FunctionDef) -> Tensor:
        for node in function.body:
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                continue
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self.names[node.targets[0].id] = self._value(node.value)
            elif isinstance(node, ast.Return) and node.value is not None:
                return self._tensor(node.value)
            else:
                raise Unread(f"its forward has {ast.unparse(node).splitlines()[0][:60]!r}")
        raise Unread("its forward returns nothing")

    # expressions

    def _tensor(self, node: ast.AST) -> Tensor:
        value = self._value(node)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return Tensor(number(value), ())
        if not isinstance(value, Tensor):
            raise Unread(f"{ast.unparse(node)[:60]!r} is no tensor")
        return value

    def _value(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Name) and node.id in self.names:
            return self.names[node.id]
        if isinstance(node, ast.BinOp):
            return self._binary(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self._value(node.operand)
            return Tensor(call("neg", inner.node), inner.shape) if isinstance(inner, Tensor) else -inner
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Subscript):
            inner = self._value(node.value)
            if isinstance(inner, _Pair) and isinstance(node.slice, ast.Constant) and node.slice.value == 0:
                return inner.values
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        return self.reference.value(node)

    def _attribute(self, node: ast.Attribute) -> Any:
        path = dotted(node)
        if path.startswith("self."):
            member = path.removeprefix("self.")
            found = self.reference.members.get(member)
            if isinstance(found, int | float | str | tuple) and not _is_module(found):
                return found
            if isinstance(found, Shape) or member.rpartition(".")[2] in ("weight", "bias"):
                return self._weight(member)
            if node.attr not in ("T", "mT"):
                raise Unread(f"the value of self.{member} is not known")
        if node.attr in ("T", "mT"):
            inner = self._tensor(node.value)
            if inner.view and len(inner.shape) == 2:
                return Tensor(Node("name", text="transposed"), inner.shape[::-1], f"{inner.view}.T")
        if node.attr == "values":
            pair = self._value(node.value)
            if isinstance(pair, _Pair):
                return pair.values
        return self.reference.value(node)

    def _weight(self, member: str) -> Tensor:
        found = self.reference.members.get(member)
        if isinstance(found, Shape):
            return Tensor(Node("name", text=f"self.{member}"), found.sizes, f"self.{member}")
        module, _, part = member.rpartition(".")
        made: Any = self.reference.members.get(module)
        if _is_module(made) and made[0] == "LayerNorm" and part in ("weight", "bias"):
            return Tensor(Node("name", text=f"self.{member}"), _normalised(made), f"self.{member}")
        raise Unread(f"the shape of self.{member} is not known")

    def _binary(self, node: ast.BinOp) -> Any:
        if isinstance(node.op, ast.MatMult):
            return self._multiplied(self._tensor(node.left), self._tensor(node.right))
        left, right = self._value(node.left), self._value(node.right)
        if not isinstance(left, Tensor) and not isinstance(right, Tensor):
            return self.reference.value(node, {**self.reference.constants, **self._plain()})
        if isinstance(node.op, ast.Pow):
            return self._power(left, right)
        if type(node.op) not in _BINARY:
            raise Unread(f"it has the operator {type(node.op).__name__}")
        return self._joined(_BINARY[type(node.op)], left, right)

    def _plain(self) -> dict[str, Any]:
        return {name: value for name, value in self.names.items() if isinstance(value, int | float)}

    def _joined(self, op: str, *values: Any) -> Tensor:
        nodes: list[Node] = []
        shape: tuple[int, ...] = ()
        for value in values:
            if isinstance(value, Tensor):
                shape = broadcast(shape, value.shape)
                nodes.append(_untransposed(value))
            elif isinstance(value, int | float) and not isinstance(value, bool):
                nodes.append(number(value))
            else:
                raise Unread(f"an operand of {op} is neither a tensor nor a number")
        return Tensor(call(op, *nodes), shape)

    def _power(self, base: Any, exponent: Any) -> Tensor:
        if not isinstance(base, Tensor) or isinstance(exponent, Tensor):
            raise Unread("it has a power whose exponent is no constant")
        x = _untransposed(base)
        powers: dict[float, Callable[[], Node]] = {
            1.0: lambda: x,
            2.0: lambda: call("mul", x, x),
            3.0: lambda: call("mul", call("mul", x, x), x),
            0.5: lambda: call("sqrt", x),
            -0.5: lambda: call("div", 1.0, call("sqrt", x)),
            -1.0: lambda: call("div", 1.0, x),
        }
        if exponent not in powers:
            raise Unread(f"it has a power of {exponent!r}")
        return Tensor(powers[exponent](), base.shape)

    # calls

    def _call(self, node: ast.Call) -> Any:
        path = dotted(node.func)
        if path.startswith("math."):
            return self.reference.value(node)
        if path.startswith("self."):
            return self._module(path.removeprefix("self."), node)
        options = {item.arg: self._value(item.value) for item in node.keywords if item.arg}
        if path.partition(".")[0] in ("torch", "F", "nn"):
            function, args = path.rpartition(".")[2], [self._value(item) for item in node.args]
        elif isinstance(node.func, ast.Attribute):
            function = node.func.attr
            args = [self._value(node.func.value), *(self._value(item) for item in node.args)]
        else:
            raise Unread(f"it calls {ast.unparse(node.func)[:60]!r}")
        return self._applied(function, args, options)

    def _module(self, member: str, node: ast.Call) -> Any:
        made: Any = self.reference.members.get(member)
        if not _is_module(made) or len(node.args) != 1:
            raise Unread(f"it calls self.{member}, which no template knows")
        kind, args, options = made
        x = self._tensor(node.args[0])
        if any(value is None for value in (*args, *options.values())):
            raise Unread(f"an option of self.{member} is not known")
        if kind == "LayerNorm":
            return self._layer_norm(x, member, made)
        if kind == "Softmax" or kind == "LogSoftmax":
            return self._applied("softmax" if kind == "Softmax" else "log_softmax", [x, *args], options)
        if kind not in _MODULES:
            raise Unread(f"its module {kind} has no template")
        return self._applied(_MODULES[kind], [x, *args], options)

    def _applied(self, function: str, args: list[Any], options: dict[str, Any]) -> Any:
        if function == "einsum":
            return self._einsum(args)
        if function in _MATMULS and len(args) == 2:
            return self._multiplied(*args)
        if function in ("triu", "tril") and len(args) == 1 and not options:
            return self._triangle(args[0], "upper" if function == "triu" else "lower")
        if not args or not isinstance(args[0], Tensor):
            raise Unread(f"it calls {function!r} on something other than a tensor")
        x = args[0]
        if function in ("softmax", "log_softmax"):
            return self._softmax(x, *args[1:], log=function == "log_softmax", **_without(options, "dtype"))
        if function in ("norm", "vector_norm"):
            return self._norm(x, *args[1:], **options)
        if function in _NAMED_BINARY and len(args) == 2 and not options:
            return self._joined(_NAMED_BINARY[function], *args)
        if function == "pow" and len(args) == 2:
            return self._power(x, args[1])
        if (
            function in _REDUCTIONS
            and (len(args) > 1 or options)
            and not (len(args) > 1 and isinstance(args[1], Tensor))
        ):
            return self._reduced(function, x, *args[1:], **options)
        if function in ACTIVATIONS:
            return self._activated(function, args, options)
        raise Unread(f"it calls {function!r}, which no template knows")

    def _activated(self, function: str, args: list[Any], options: Mapping[str, Any]) -> Tensor:
        shape: tuple[int, ...] = ()
        for value in (*args, *options.values()):
            if isinstance(value, Tensor):
                shape = broadcast(shape, value.shape)
        plain = [_untransposed(value) if isinstance(value, Tensor) else value for value in args]
        named = {name: value.node if isinstance(value, Tensor) else value for name, value in options.items()}
        try:
            return Tensor(lower(function, *plain, **named), shape)
        except InvalidOptionError as error:
            raise Unread(str(error)) from error

    # reductions

    def _dims(self, x: Tensor, dim: Any) -> tuple[int, ...]:
        given = (dim,) if isinstance(dim, int) else dim
        if not isinstance(given, tuple) or not given or not all(isinstance(one, int) for one in given):
            raise Unread("it reduces along a dimension that is not known")
        dims = tuple(sorted(one % len(x.shape) for one in given if x.shape))
        if len(dims) != len(given) or not all(-len(x.shape) <= one < len(x.shape) for one in given):
            raise Unread(f"a tensor of shape {x.shape} has no dimension {dim!r}")
        return dims

    def _reduced(self, function: str, x: Tensor, dim: Any = None, keepdim: bool = False, **other: Any) -> Any:
        if other:
            raise Unread(f"it gives {function} the option {next(iter(other))}")
        dims = self._dims(x, dim)
        kept = tuple(1 if place in dims else size for place, size in enumerate(x.shape))
        shape = kept if keepdim else tuple(size for place, size in enumerate(x.shape) if place not in dims)
        node = Node("reduce", (_untransposed(x),), text=_REDUCTIONS[function], dims=dims, keepdim=bool(keepdim))
        found = Tensor(node, shape)
        return _Pair(found) if function in ("max", "min") else found

    def _softmax(self, x: Tensor, dim: Any = None, *, log: bool) -> Tensor:
        greatest = self._reduced("amax", x, dim, True)
        shifted = self._joined("sub", x, greatest)
        weight = Tensor(call("exp", shifted.node), x.shape)
        total = self._reduced("sum", weight, dim, True)
        if log:
            return self._joined("sub", shifted, Tensor(call("log", total.node), total.shape))
        return self._joined("div", weight, total)

    def _norm(self, x: Tensor, p: Any = 2, dim: Any = None, keepdim: bool = False, ord: Any = None) -> Tensor:
        if (p if ord is None else ord) not in (2, 2.0) or dim is None:
            raise Unread("it takes another norm than the Euclidean one along an axis")
        total = self._reduced("sum", self._power(x, 2), dim, keepdim)
        return Tensor(call("sqrt", total.node), total.shape)

    def _layer_norm(self, x: Tensor, member: str, made: Any) -> Tensor:
        shape = _normalised(made)
        if x.shape[len(x.shape) - len(shape) :] != shape:
            raise Unread("its layer normalisation does not fit its input")
        options = made[2]
        dims = tuple(range(len(x.shape) - len(shape), len(x.shape)))
        centred = self._joined("sub", x, self._reduced("mean", x, dims, True))
        variance = self._reduced("mean", self._power(centred, 2), dims, True)
        spread = call(
            "sqrt", call("add", variance.node, float(options.get("eps", made[1][1] if len(made[1]) > 1 else 1e-5)))
        )
        y = self._joined("div", centred, Tensor(spread, variance.shape))
        if not options.get("elementwise_affine", True):
            return y
        y = self._joined("mul", y, self._weight(f"{member}.weight"))
        return self._joined("add", y, self._weight(f"{member}.bias")) if options.get("bias", True) else y

    # matrix products

    def _multiplied(self, left: Any, right: Any) -> Tensor:
        operands = (left, right)
        if not all(isinstance(one, Tensor) and one.view for one in operands) or self.product is not None:
            raise Unread("it has more than one matrix product, or one of computed matrices")
        a, b = left.shape, right.shape
        if len(a) < 2 or len(b) < 2 or a[-1] != b[-2] or min(a[-2], b[-1]) < 2:
            raise Unread(f"it multiplies matrices of shapes {a} and {b}")
        if len(b) == 2:
            made = Product(left.view, right.view, 1, math.prod(a[:-1]), b[-1], a[-1])
        elif a[:-2] == b[:-2] and len(a) == 3:
            made = Product(left.view, right.view, a[0], a[-2], b[-1], a[-1], batched=True)
        else:
            raise Unread(f"it multiplies batches of shapes {a} and {b}")
        self.product = made
        return Tensor(Node("name", text=PRODUCT), (*a[:-1], b[-1]))

    def _einsum(self, args: list[Any]) -> Tensor:
        """Those that are a matrix product: one summed index, the left one's last and the right one's first."""
        if len(args) != 3 or not isinstance(args[0], str):
            raise Unread("it has an einsum of other than two tensors")
        operands, arrow, result = args[0].replace(" ", "").partition("->")
        left, _, right = operands.partition(",")
        fits = len(right) == 2 and len(set(left + right[1:])) == len(left) + 1 and left[-1:] == right[:1]
        if not arrow or not fits or result != left[:-1] + right[1:]:
            raise Unread(f"its einsum {args[0]!r} is no matrix product")
        return self._multiplied(args[1], args[2])

    def _triangle(self, x: Any, part: str) -> Tensor:
        product = self.product
        if not isinstance(x, Tensor) or x.node != Node("name", text=PRODUCT) or product is None or product.triangle:
            raise Unread("it takes a triangle of something other than a matrix product")
        self.product = Product(**{**vars(product), "triangle": part})
        return x


def _is_module(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 3 and isinstance(value[0], str) and isinstance(value[2], dict)


def _normalised(made: Any) -> tuple[int, ...]:
    """The trailing shape that a LayerNorm normalises."""
    _, args, options = made
    shape = options.get("normalized_shape", args[0] if args else None)
    shape = (shape,) if isinstance(shape, int) else shape
    if not isinstance(shape, tuple) or not all(isinstance(size, int) for size in shape):
        raise Unread("the shape that it normalises is not known")
    return shape


def _untransposed(value: Tensor) -> Node:
    if value.node == Node("name", text="transposed"):
        raise Unread("it uses a transposed tensor elementwise")
    return value.node


def _without(options: Mapping[str, Any], *names: str) -> dict[str, Any]:
    for name in names:
        if options.get(name) is not None:
            raise Unread(f"it gives the option {name}")
    return {key: value for key, value in options.items() if key not in names}
