"""Formulas as data: what a reference computes for each element, and how C and Triton write it.

- `Node` -- a formula.
- `number`, `call` -- make one.
- `walk`, `uses` -- look into one.
- `lower` -- an activation of PyTorch by name, in terms of a few functions that every language has.
- `write` -- a formula as an expression of C (also CUDA and C++) or of Triton.

The functions are chosen for accuracy in float32: `tanh`, `expm1` and `log1p` keep their relative error near zero, where
the obvious forms lose every digit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from kernelgym_env.errors import InvalidOptionError, unknown_name

__all__ = ["ACTIVATIONS", "LANGUAGES", "Node", "call", "lower", "number", "uses", "walk", "write"]

LANGUAGES = ("c", "triton")
"""What `write` writes; CUDA and C++ are ``c``."""


@dataclass(frozen=True)
class Node:
    """A formula.

    Attributes:
        op: ``number``, ``name`` (a value that the kernel has under `text`), ``reduce``, or a function.
        args: what the function is applied to.
        value: of a number.
        text: of a name; of a reduction its kind (``sum``, ``mean``, ``max``, ``min``).
        dims: of a reduction: the dimensions.
        keepdim: of a reduction.
    """

    op: str
    args: tuple[Node, ...] = ()
    value: float = 0.0
    text: str = ""
    dims: tuple[int, ...] = ()
    keepdim: bool = False


def number(value: float) -> Node:
    """A constant.

    >>> number(2).value
    2.0
    """
    return Node("number", value=float(value))


def call(op: str, *args: Node | float) -> Node:
    """A function of formulas or numbers; constants are folded.

    >>> call("mul", 2.0, 3.0)
    Node(op='number', args=(), value=6.0, text='', dims=(), keepdim=False)
    """
    nodes = tuple(arg if isinstance(arg, Node) else number(arg) for arg in args)
    if op in _FOLDED and all(node.op == "number" for node in nodes):
        try:
            return number(_FOLDED[op](*(node.value for node in nodes)))
        except (ZeroDivisionError, ValueError, OverflowError):
            pass  # the kernel computes what the reference does
    return Node(op, nodes)


_FOLDED: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "neg": lambda a: -a,
    "sqrt": math.sqrt,
    "abs": abs,
    "exp": math.exp,
    "log": math.log,
}


def walk(node: Node) -> Iterator[Node]:
    """A formula and all that it is made of, the parts first."""
    for arg in node.args:
        yield from walk(arg)
    yield node


def uses(node: Node, text: str) -> bool:
    """Whether the name occurs.

    >>> uses(call("add", Node("name", text="x"), 1.0), "x")
    True
    """
    return any(part.op == "name" and part.text == text for part in walk(node))


# --- activations


def _tanh(x: Node) -> Node:
    return Node("tanh", (x,))


def _expm1(x: Node) -> Node:
    # exp(x) - 1 = 2 t / (1 - t) with t = tanh(x / 2), for x up to about 17
    half = _tanh(call("mul", 0.5, x))
    return call("div", call("mul", 2.0, half), call("sub", 1.0, half))


def _log1p(u: Node) -> Node:
    # Kahan: log(1 + u) with the rounding error of 1 + u divided out
    near = call("add", 1.0, u)
    return call(
        "where", call("eq", near, 1.0), u, call("div", call("mul", call("log", near), u), call("sub", near, 1.0))
    )


def _sigmoid(x: Node) -> Node:
    return call("div", 1.0, call("add", 1.0, call("exp", call("neg", x))))


def _clamp(x: Node, low: Node | float | None = None, high: Node | float | None = None) -> Node:
    if low is not None:
        x = call("max", x, low)
    return x if high is None else call("min", x, high)


def _elu(x: Node, alpha: Node | float = 1.0) -> Node:
    return call("where", call("gt", x, 0.0), x, call("mul", alpha, _expm1(x)))


def _selu(x: Node) -> Node:
    # the constants of Klambauer et al. 2017, as PyTorch has them
    return call("mul", 1.0507009873554804934193349852946, _elu(x, 1.6732632423543772848170429916717))


def _softplus(x: Node, beta: Node | float = 1.0, threshold: Node | float = 20.0) -> Node:
    scaled = call("mul", x, beta)
    return call("where", call("gt", scaled, threshold), x, call("div", _log1p(call("exp", scaled)), beta))


def _gelu(x: Node, approximate: str = "none") -> Node:
    if approximate == "tanh":
        cube = call("mul", call("mul", x, x), x)
        inner = call("mul", math.sqrt(2 / math.pi), call("add", x, call("mul", 0.044715, cube)))
        return call("mul", call("mul", 0.5, x), call("add", 1.0, _tanh(inner)))
    return call("mul", call("mul", 0.5, x), call("add", 1.0, call("erf", call("mul", x, math.sqrt(0.5)))))


ACTIVATIONS: dict[str, Callable[..., Node]] = {
    "relu": lambda x: call("where", call("gt", x, 0.0), x, 0.0),
    "leaky_relu": lambda x, negative_slope=0.01: call("where", call("gt", x, 0.0), x, call("mul", negative_slope, x)),
    "sigmoid": _sigmoid,
    "tanh": _tanh,
    "silu": lambda x: call("mul", x, _sigmoid(x)),
    "gelu": _gelu,
    "selu": _selu,
    "elu": _elu,
    "hardsigmoid": lambda x: call("div", _clamp(call("add", x, 3.0), 0.0, 6.0), 6.0),
    "hardtanh": lambda x, min_val=-1.0, max_val=1.0: _clamp(x, min_val, max_val),
    "relu6": lambda x: _clamp(x, 0.0, 6.0),
    "softplus": _softplus,
    "softsign": lambda x: call("div", x, call("add", 1.0, call("abs", x))),
    "clamp": lambda x, min=None, max=None: _clamp(x, min, max),
    "abs": lambda x: call("abs", x),
    "exp": lambda x: call("exp", x),
    "log": lambda x: call("log", x),
    "sqrt": lambda x: call("sqrt", x),
    "rsqrt": lambda x: call("div", 1.0, call("sqrt", x)),
    "erf": lambda x: call("erf", x),
    "neg": lambda x: call("neg", x),
    "square": lambda x: call("mul", x, x),
    "reciprocal": lambda x: call("div", 1.0, x),
    "maximum": lambda x, other: call("max", x, other),
    "minimum": lambda x, other: call("min", x, other),
}
"""PyTorch's functions of one element, by name, as functions from formulas to a formula."""


def lower(function: str, *args: Node | float | str, **options: Node | float | str) -> Node:
    """An activation as a formula.

    Args:
        function: a key of `ACTIVATIONS`.
        args: as for PyTorch's.
        options: as for PyTorch's; ``inplace`` makes no difference.

    Raises:
        UnknownNameError: for another function.
        InvalidOptionError: for arguments that it does not take.

    >>> write(lower("relu", Node("name", text="x")), "c")
    '((x > 0.0f) ? x : 0.0f)'
    """
    if function not in ACTIVATIONS:
        raise unknown_name("activation", function, ACTIVATIONS)
    options.pop("inplace", None)
    try:
        return ACTIVATIONS[function](*args, **options)
    except TypeError as error:
        raise InvalidOptionError(f"{function} does not take these arguments: {error}.") from error


# --- languages

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "gt": ">", "eq": "=="}
_C = {"abs": "fabsf", "exp": "expf", "log": "logf", "sqrt": "sqrtf", "erf": "erff", "tanh": "tanhf"}
_TRITON = {"abs": "tl.abs", "exp": "tl.exp", "log": "tl.log", "sqrt": "tl.sqrt", "erf": "tl.erf", "tanh": "tanh"}


def write(node: Node, language: str, names: Mapping[str, str] | None = None) -> str:
    """A formula as an expression.

    In Triton, ``tanh`` is a function that the templates define; C's is the library's.

    Args:
        node: a formula without reductions.
        language: one of `LANGUAGES`.
        names: what the kernel calls the names; others stay.

    Raises:
        UnknownNameError: for another language.

    >>> write(call("max", Node("name", text="x"), 0.5), "triton", {"x": "x0"})
    'tl.maximum(x0, 0.5)'
    """
    if language not in LANGUAGES:
        raise unknown_name("language", language, LANGUAGES)
    args = [write(arg, language, names) for arg in node.args]
    if node.op == "number":
        return _literal(node.value, language)
    if node.op == "name":
        return (names or {}).get(node.text, node.text)
    if node.op in _INFIX:
        return f"({args[0]} {_INFIX[node.op]} {args[1]})"
    if node.op == "neg":
        return f"(-{args[0]})"
    if language == "c":
        return _in_c(node.op, args)
    if node.op == "where":
        # a scalar branch takes the other's shape; two of them take the condition's
        return f"tl.where({', '.join(args)})"
    if node.op in ("max", "min"):
        return f"tl.{node.op}imum({', '.join(args)})"
    return f"{_TRITON[node.op]}({', '.join(args)})"


def _in_c(op: str, args: list[str]) -> str:
    if op == "where":
        return f"({args[0]} ? {args[1]} : {args[2]})"
    if op in ("max", "min"):
        return f"f{op}f({', '.join(args)})"
    return f"{_C[op]}({', '.join(args)})"


def _literal(value: float, language: str) -> str:
    if math.isinf(value):
        sign = "-" if value < 0 else ""
        return f"({sign}INFINITY)" if language == "c" else f'({sign}float("inf"))'
    text = repr(value)
    text = f"({text})" if value < 0 else text
    return text.replace(")", "f)") if language == "c" and value < 0 else (text + "f" if language == "c" else text)
