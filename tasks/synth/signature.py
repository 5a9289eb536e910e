"""What a reference computes, as the sequence of its operators, read from the text and never run.

- `signature` -- the operators of a reference in the order of its `forward`.
- `similarity` -- how much of two such sequences is the same.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

__all__ = ["signature", "similarity"]

_DEPTH = 6
"""How deep calls of the text's own functions and classes are followed."""

_SAME = {
    "mm": "matmul",
    "bmm": "matmul",
    "linear": "matmul",
    "clip": "clamp",
    "multiply": "mul",
    "subtract": "sub",
    "divide": "div",
    "truedivide": "div",
    "amax": "max",
    "amin": "min",
    "maxpool": "maxpool2d",
    "norm": "vectornorm",
}
_WRITTEN_OUT = {"silu": ("sigmoid", "mul"), "softsign": ("abs", "add", "div"), "square": ("pow",)}
"""Names that are as often written as what they consist of."""
_NORMS = re.compile(r"(batchnorm|instancenorm)\dd")
# fmt: off
_LAYOUT = frozenset({
    "append", "arange", "chunk", "clone", "contiguous", "cpu", "cuda", "detach", "device", "dim", "double",
    "dtype", "empty", "emptylike", "expand", "expandas", "flatten", "float", "full", "fulllike", "half",
    "identity", "item", "len", "movedim", "narrow", "numel", "ones", "oneslike", "parameter", "permute", "range",
    "reshape", "select", "shape", "size", "split", "squeeze", "swapaxes", "t", "tensor", "to", "transpose",
    "type", "unbind", "unflatten", "unsqueeze", "view", "zeros", "zeroslike",
})
"""Names that move data at most, or make tensors of no interest."""
# fmt: on
_OPERATORS = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.MatMult: "matmul",
    ast.Pow: "pow",
    ast.FloorDiv: "div",
    ast.Mod: "remainder",
}
_LIBRARIES = frozenset({"torch", "F", "nn", "functional"})
_CONTAINERS = frozenset({"sequential", "modulelist"})


def signature(source: str) -> tuple[str, ...]:
    """The operators of a reference: names in lower case without underscores, one for all ways to write it.

    Modules count where they are called, a `Sequential` as what it holds, functions and classes of the text's own as
    their bodies. Reshaping does not count, nor do sizes, dtypes and the values of arguments.

    Args:
        source: a text with ``class Model``.

    Returns:
        The names; ``()`` for a text without a `Model` that has a `forward`.

    Raises:
        SyntaxError: if the text is not Python.

    >>> signature('''
    ... class Model(nn.Module):
    ...     def __init__(self):
    ...         self.linear = nn.Linear(4, 4)
    ...     def forward(self, x):
    ...         return torch.relu(self.linear(x)) + 1
    ... ''')
    ('matmul', 'relu', 'add')
    """
    reader = _Reader(ast.parse(source))
    return tuple(reader.forward("Model", 0))


def similarity(one: Sequence[str], two: Sequence[str]) -> float:
    """Twice the operators that two sequences have in common, in order, over all of both; 1 for equal ones.

    >>> similarity(["matmul", "relu", "add"], ["matmul", "gelu", "add"])
    0.6666666666666666
    """
    if not one and not two:
        return 1.0
    return difflib.SequenceMatcher(None, one, two, autojunk=False).ratio()


@dataclass
class _Class:
    methods: dict[str, ast.FunctionDef] = field(default_factory=dict)
    modules: dict[str, list[ast.expr]] = field(default_factory=dict)


class _Reader:
    """The classes and functions of a text."""

    def __init__(self, tree: ast.Module) -> None:
        self.functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        self.classes = {node.name: _class(node) for node in tree.body if isinstance(node, ast.ClassDef)}

    def forward(self, name: str, depth: int) -> Iterator[str]:
        known = self.classes.get(name)
        if known is not None and "forward" in known.methods and depth < _DEPTH:
            for statement in known.methods["forward"].body:
                yield from self.walk(statement, known, depth)

    def walk(self, node: ast.AST, owner: _Class, depth: int) -> Iterator[str]:
        """Operators below a node, arguments before what is called on them."""
        if isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
            return
        if isinstance(node, ast.Call):
            yield from self.call(node, owner, depth)
            return
        for child in ast.iter_child_nodes(node):
            yield from self.walk(child, owner, depth)
        if isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in _OPERATORS:
            yield _OPERATORS[type(node.op)]

    def call(self, node: ast.Call, owner: _Class, depth: int) -> Iterator[str]:
        function = node.func
        if isinstance(function, ast.Attribute):
            yield from self.walk(function.value, owner, depth)
        for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
            yield from self.walk(argument, owner, depth)
        if isinstance(function, ast.Name):
            if function.id in self.functions and depth < _DEPTH:
                for statement in self.functions[function.id].body:
                    yield from self.walk(statement, owner, depth + 1)
            return
        if not isinstance(function, ast.Attribute):
            return
        root = _root(function)
        if isinstance(function.value, ast.Name) and function.value.id == "self":
            yield from self.of_self(function.attr, owner, depth)
        elif root not in ("math", "np", "numpy", "super", "self") or (root == "self" and _is_parameter(function)):
            yield from _named(function.attr)

    def of_self(self, name: str, owner: _Class, depth: int) -> Iterator[str]:
        if name in owner.methods and depth < _DEPTH:
            for statement in owner.methods[name].body:
                yield from self.walk(statement, owner, depth + 1)
        for module in owner.modules.get(name, []):
            yield from self.module(module, depth)

    def module(self, node: ast.expr, depth: int) -> Iterator[str]:
        """What calling a module computes, from the expression that made it."""
        if isinstance(node, (ast.List, ast.Tuple)):
            for item in node.elts:
                yield from self.module(item, depth)
        elif isinstance(node, ast.Starred):
            yield from self.module(node.value, depth)
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in self.classes:
                yield from self.forward(name, depth + 1)
            elif name.lower() in _CONTAINERS:
                for argument in node.args:
                    yield from self.module(argument, depth)
            elif name[:1].isupper():
                yield from _named(name)


def _class(node: ast.ClassDef) -> _Class:
    found = _Class({item.name: item for item in node.body if isinstance(item, ast.FunctionDef)})
    made = found.methods.pop("__init__", None)
    for statement in ast.walk(made) if made else ():
        if not isinstance(statement, ast.Assign):
            continue
        for target in statement.targets:
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
                found.modules.setdefault(target.attr, []).append(statement.value)
    return found


def _named(name: str) -> Iterator[str]:
    plain = name.lower().replace("_", "")
    if _NORMS.fullmatch(plain):
        plain = plain[:-2]
    plain = _SAME.get(plain, plain)
    if plain and plain not in _LAYOUT:
        yield from _WRITTEN_OUT.get(plain, (plain,))


def _root(node: ast.expr) -> str:
    while isinstance(node, (ast.Attribute, ast.Call, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_parameter(function: ast.Attribute) -> bool:
    """Whether this is a method of an attribute of `self`: ``self.weight.t()``."""
    return isinstance(function.value, (ast.Attribute, ast.Subscript, ast.Call))
