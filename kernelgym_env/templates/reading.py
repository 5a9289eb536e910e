"""Reading a reference without running it: its constants, the shapes of its inputs, what its constructor is given.

- `Reference` -- what is known of one.
- `Unread` -- it does something that is not understood; the text says what.

A small evaluator of arithmetic and of PyTorch's makers of tensors. What it does not know it refuses, so a shape that is
read is right.
"""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelgym_env.tasks.source import ARITHMETIC

__all__ = ["Reference", "Shape", "Unread", "broadcast", "dotted"]


class Unread(Exception):
    """A part of a reference that this package cannot read; the text says which."""


@dataclass(frozen=True)
class Shape:
    """A float32 tensor of this shape.

    Attributes:
        sizes: number of elements in each dimension.
    """

    sizes: tuple[int, ...]


_MAKERS = frozenset({"rand", "randn", "zeros", "ones", "empty"})
_LIKE = frozenset({"contiguous", "triu", "tril", "abs", "clone", "exp", "softmax", "sigmoid", "clamp", "rand_like"})
_MATHS = {"sqrt": math.sqrt, "exp": math.exp, "log": math.log, "pi": math.pi}


def dotted(node: ast.AST) -> str:
    """``torch.nn.functional.relu`` from such a node, ``""`` for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = dotted(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    return ""


def _stored(node: ast.AST) -> list[str]:
    """The names that a statement may change, e.g. in a branch or a loop: their values are not known behind it."""
    return [
        path
        for part in ast.walk(node)
        if isinstance(part, ast.Name | ast.Attribute)
        and isinstance(part.ctx, ast.Store | ast.Del)
        and (path := dotted(part))
    ]


def broadcast(one: tuple[int, ...], two: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of an elementwise operation, by NumPy's rule.

    Raises:
        Unread: if the shapes do not fit.

    >>> broadcast((4, 1), (3,))
    (4, 3)
    """
    length = max(len(one), len(two))
    pairs = zip((1,) * (length - len(one)) + one, (1,) * (length - len(two)) + two, strict=True)
    sizes = []
    for first, second in pairs:
        if first != second and 1 not in (first, second):
            raise Unread(f"shapes {one} and {two} do not fit")
        sizes.append(second if first == 1 else first)
    return tuple(sizes)


class Reference:
    """A reference's text, taken apart.

    Args:
        source: of a task, sized.

    Attributes:
        tree: the module.
        model: its class `Model`.
        constants: values of the module's names, as far as they are numbers or tuples of them.

    Raises:
        Unread: if a part of the contract is missing.
    """

    def __init__(self, source: str) -> None:
        self.tree = ast.parse(source)
        classes = {node.name: node for node in self.tree.body if isinstance(node, ast.ClassDef)}
        self.functions = {node.name: node for node in self.tree.body if isinstance(node, ast.FunctionDef)}
        if "Model" not in classes or "get_inputs" not in self.functions:
            raise Unread("there is no class Model or no get_inputs()")
        self.model = classes["Model"]
        self.constants: dict[str, Any] = {}
        for node in self.tree.body:
            if isinstance(node, ast.Assign):
                self._assign(node, self.constants)
            elif not isinstance(node, ast.FunctionDef | ast.ClassDef):
                self.constants.update(dict.fromkeys(_stored(node)))

    def method(self, name: str) -> ast.FunctionDef | None:
        """A method of the model."""
        found = [node for node in self.model.body if isinstance(node, ast.FunctionDef) and node.name == name]
        return found[0] if found else None

    @functools.cached_property
    def inputs(self) -> list[Shape | float]:
        """What `get_inputs` returns: shapes of tensors, and numbers.

        Raises:
            Unread: for anything else.
        """
        values = self._returned("get_inputs")
        if not all(isinstance(value, Shape | int | float) for value in values):
            raise Unread("get_inputs() returns something other than float32 tensors and numbers")
        return values

    @functools.cached_property
    def members(self) -> dict[str, Any]:
        """What the constructor stores in ``self``: numbers, shapes of parameters, and the calls of modules.

        Raises:
            Unread: where a constructor's argument has no known value.
        """
        init = self.method("__init__")
        if init is None:
            return {}
        names = dict(self.constants)
        parameters = [argument.arg for argument in init.args.args][1:]
        given = self._returned("get_init_inputs") if "get_init_inputs" in self.functions else []
        defaults = init.args.defaults
        for parameter, default in zip(parameters[len(parameters) - len(defaults) :], defaults, strict=True):
            names[parameter] = self._try(default, names)
        names.update(zip(parameters, given, strict=False))
        members: dict[str, Any] = {}
        for node in init.body:
            if not isinstance(node, ast.Assign) or len(node.targets) != 1:
                for path in _stored(node):
                    (members if path.startswith("self.") else names)[path.removeprefix("self.")] = None
                continue
            targets, values = [node.targets[0]], [node.value]
            if isinstance(targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
                targets, values = list(targets[0].elts), list(node.value.elts)
            for target, value in zip(targets, values, strict=True):
                if dotted(target).startswith("self."):
                    members[dotted(target).removeprefix("self.")] = self._member(value, names)
                elif isinstance(target, ast.Name):
                    names[target.id] = self._try(value, names)
        return members

    def value(self, node: ast.AST, names: Mapping[str, Any] | None = None) -> Any:
        """The number, tuple, text or shape that an expression stands for.

        Raises:
            Unread: for one that is not understood.
        """
        known = self.constants if names is None else names
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name) and node.id in known and known[node.id] is not None:
            return known[node.id]
        if isinstance(node, ast.Tuple | ast.List):
            return tuple(self.value(item, known) for item in node.elts)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            found = self.value(node.operand, known)
            return found if isinstance(found, Shape) else -found
        if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
            return self._binary(node, known)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, known)
        if isinstance(node, ast.Call):
            return self._call(node, known)
        raise Unread(f"it has {ast.unparse(node)[:60]!r}, whose value is not known")

    # parts

    def _try(self, node: ast.AST, names: Mapping[str, Any]) -> Any:
        try:
            return self.value(node, names)
        except Unread:
            return None

    def _member(self, node: ast.AST, names: Mapping[str, Any]) -> Any:
        """A number or shape, or (class name, arguments, options) for a module."""
        if isinstance(node, ast.Call):
            kind = dotted(node.func).rpartition(".")[2]
            if kind == "Parameter":
                return self._try(node.args[0], names)
            if kind[:1].isupper():
                options = {item.arg: self._try(item.value, names) for item in node.keywords if item.arg}
                return kind, tuple(self._try(item, names) for item in node.args), options
        return self._try(node, names)

    def _assign(self, node: ast.Assign, names: dict[str, Any]) -> None:
        value = self._try(node.value, names)
        for target in node.targets:
            if isinstance(target, ast.Name):
                names[target.id] = value
            elif isinstance(target, ast.Tuple) and isinstance(value, tuple) and len(value) == len(target.elts):
                names.update(
                    {item.id: one for item, one in zip(target.elts, value, strict=True) if isinstance(item, ast.Name)}
                )

    def _returned(self, function: str) -> list[Any]:
        names = dict(self.constants)
        for node in self.functions[function].body:
            if isinstance(node, ast.Assign):
                self._assign(node, names)
            elif isinstance(node, ast.Return) and isinstance(node.value, ast.List | ast.Tuple):
                return [self.value(item, names) for item in node.value.elts]
            elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
                break
        raise Unread(f"{function}() does more than make values and return a list of them")

    def _binary(self, node: ast.BinOp, known: Mapping[str, Any]) -> Any:
        left, right = self.value(node.left, known), self.value(node.right, known)
        if isinstance(left, Shape) or isinstance(right, Shape):
            sizes = [item.sizes if isinstance(item, Shape) else () for item in (left, right)]
            return Shape(broadcast(*sizes))
        try:
            return ARITHMETIC[type(node.op)](left, right)
        except (TypeError, ZeroDivisionError, OverflowError, ValueError) as error:
            raise Unread(f"{ast.unparse(node)[:60]!r} has no value") from error

    def _attribute(self, node: ast.Attribute, known: Mapping[str, Any]) -> Any:
        path = dotted(node)
        if path.startswith("math.") and isinstance(_MATHS.get(node.attr), float):
            return _MATHS[node.attr]
        if node.attr in ("T", "mT"):
            inner = self.value(node.value, known)
            if isinstance(inner, Shape) and len(inner.sizes) >= 2:
                return Shape((*inner.sizes[:-2], inner.sizes[-1], inner.sizes[-2]))
        raise Unread(f"it has {ast.unparse(node)[:60]!r}, whose value is not known")

    def _call(self, node: ast.Call, known: Mapping[str, Any]) -> Any:
        path = dotted(node.func)
        function = path.rpartition(".")[2] or getattr(node.func, "attr", "")
        if path.startswith("math.") and callable(_MATHS.get(function)):
            return _MATHS[function](*(self.value(item, known) for item in node.args))  # type: ignore[operator]
        if path == f"torch.{function}" and function in _MAKERS and not node.keywords:
            sizes: Sequence[Any] = [self.value(item, known) for item in node.args]
            if len(sizes) == 1 and isinstance(sizes[0], tuple):
                sizes = sizes[0]
            if all(isinstance(size, int) for size in sizes):
                return Shape(tuple(sizes))
        if function in _LIKE:
            inner = (
                node.func.value if isinstance(node.func, ast.Attribute) and path.partition(".")[0] != "torch" else None
            )
            found = self.value(inner if inner is not None else node.args[0], known)
            if isinstance(found, Shape):
                return found
        raise Unread(f"it has {ast.unparse(node)[:60]!r}, whose value is not known")
