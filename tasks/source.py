"""Reading and rewriting the text of a reference, without running it.

- `NAMES` -- what a reference must define at module level.
- `normalise` -- LF line ends, no byte order mark.
- `missing_names` -- which of `NAMES` a source lacks.
- `ARITHMETIC` -- the operators that are computed.
- `constants` -- its numeric module-level constants.
- `rewrite` -- give some of them other values, leaving all other text as it is.
- `summary` -- the first line of what its docstring says.
"""

from __future__ import annotations

import ast
import itertools
import math
import numbers
import operator
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from kernelgym_env.errors import InvalidOptionError, unknown_name

__all__ = ["ARITHMETIC", "NAMES", "Number", "constants", "missing_names", "normalise", "rewrite", "summary"]

Number = int | float

NAMES = {
    "Model": "class Model(nn.Module)",
    "get_inputs": "function get_inputs()",
    "get_init_inputs": "function get_init_inputs()",
}
"""The three names of KernelBench's contract, each with how to speak of it."""

# Greatest magnitude of an integer constant. Sizes are int64 in torch; the bound also keeps folding cheap.
_INT_BOUND = 2**63

ARITHMETIC = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
}
"""Operators that are computed where both sides are known, by the node's type."""


@dataclass(frozen=True)
class _Constant:
    """A number in the text: its value and the UTF-8 byte span of the expression it is written as."""

    value: Number
    start: int
    end: int


@dataclass(frozen=True)
class _Outline:
    names: frozenset[str]
    constants: Mapping[str, _Constant]
    summary: str


def normalise(text: str) -> str:
    r"""Return `text` with LF line ends and without a byte order mark.

    Python reads every kind of line end as LF, so the meaning stays the same.

    >>> normalise("a\r\nb\rc")
    'a\nb\nc'
    """
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def missing_names(source: str) -> list[str]:
    """Return how to speak of the names a source lacks, in the order of `NAMES`.

    Raises:
        SyntaxError: if the source is not Python.
    """
    names = _outline(source).names
    return [spoken for name, spoken in NAMES.items() if name not in names]


def constants(source: str) -> dict[str, Number]:
    r"""Return the numeric constants of a source by name, in the order of the text.

    A constant is a name that the module binds once, at its top level, to a number or to arithmetic on numbers. Names
    that are computed from other names are not constants; they follow when those are rewritten.

    Raises:
        SyntaxError: if the source is not Python.

    >>> constants("SCALE = 2\nM, K = 64 * SCALE, 128 * 2\nheight = width = 32\n")
    {'SCALE': 2, 'K': 256, 'height': 32, 'width': 32}
    """
    return {name: constant.value for name, constant in _outline(source).constants.items()}


def rewrite(source: str, values: Mapping[str, Number], *, where: str = "the source") -> str:
    r"""Return the source with constants set to `values`; every other character stays.

    Names that share one value (``height = width = 32``) move together.

    Args:
        source: a normalised source.
        values: new values by name; a constant that is an integer takes an integer.
        where: how to speak of the source in an error.

    Raises:
        InvalidOptionError: for an unknown name (says which are allowed), a value that is not a finite number or not
            of the constant's kind, or two values for names that share one.
        SyntaxError: if the source is not Python.

    >>> rewrite("R, C = 128, 300  # rows, columns\\n", {"C": 7})
    'R, C = 128, 7  # rows, columns\\n'
    """
    known = _outline(source).constants
    spans: dict[tuple[int, int], Number] = {}
    for name, value in values.items():
        if name not in known:
            raise InvalidOptionError(str(unknown_name(f"constant of {where}:", name, known)))
        constant = known[name]
        number = _checked(name, value, constant.value, where)
        span = constant.start, constant.end
        if spans.setdefault(span, number) != number:
            raise InvalidOptionError(
                f"Constant {name!r} of {where} shares its value with another name; got both {spans[span]} and {number}."
            )
    data = source.encode()
    for (start, end), number in sorted(spans.items(), reverse=True):
        data = data[:start] + repr(number).encode() + data[end:]
    return data.decode()


def summary(source: str) -> str:
    """Return the first line of the docstring of `Model`, else of the module, else an empty string.

    Raises:
        SyntaxError: if the source is not Python.
    """
    return _outline(source).summary


def _checked(name: str, value: object, current: Number, where: str) -> Number:
    """Return `value` as a plain int or float, or raise `InvalidOptionError`."""
    plain: Number | None = None
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        plain = int(value)
    elif isinstance(value, numbers.Real) and not isinstance(value, (bool, numbers.Integral)):
        plain = float(value)
    if plain is None or not _bounded(plain):
        raise InvalidOptionError(f"Constant {name!r} of {where} needs a finite number, got {value!r}.")
    if isinstance(current, int) and isinstance(plain, float):
        raise InvalidOptionError(f"Constant {name!r} of {where} is an integer ({current}), got {value!r}.")
    return plain


def _bounded(value: Number) -> bool:
    return abs(value) < _INT_BOUND if isinstance(value, int) else math.isfinite(value)


@lru_cache(maxsize=512)
def _outline(source: str) -> _Outline:
    """Parse a source once.

    Raises:
        SyntaxError: if it is not Python, whatever the parser calls its complaint.
    """
    try:
        tree = ast.parse(source)
        data = source.encode()
        bindings = Counter(_bound_names(tree))
        starts = list(itertools.accumulate((len(line) + 1 for line in data.split(b"\n")), initial=0))
        found: dict[str, _Constant] = {}
        for name, node, value in _numbers(tree):
            if bindings[name] == 1:
                assert node.end_lineno is not None and node.end_col_offset is not None
                start = starts[node.lineno - 1] + node.col_offset
                found[name] = _Constant(value, start, starts[node.end_lineno - 1] + node.end_col_offset)
        return _Outline(frozenset(bindings), found, _first_line(tree))
    except (ValueError, RecursionError, MemoryError) as error:
        # A null byte, a lone surrogate or too deep a nesting: the parser knows several names for "not Python".
        raise SyntaxError(str(error) or type(error).__name__) from error


def _bound_names(tree: ast.Module) -> Iterator[str]:
    """Every binding of a module-level name, once per statement that makes it."""
    stack: list[ast.AST] = list(tree.body)
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
            # A function may bind a module's name too, if it says so.
            yield from (name for inner in ast.walk(node) if isinstance(inner, ast.Global) for name in inner.names)
            continue
        if isinstance(node, ast.Lambda):
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from ((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            yield node.id
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name
        stack.extend(ast.iter_child_nodes(node))


def _numbers(tree: ast.Module) -> Iterator[tuple[str, ast.expr, Number]]:
    """Names that a top-level assignment sets to a number, with the expression and its value."""
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                yield from _paired(target, statement.value)
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            yield from _paired(statement.target, statement.value)


def _paired(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr, Number]]:
    if isinstance(target, ast.Name):
        number = _folded(value)
        if number is not None:
            yield target.id, value, number
    elif isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List)):
        starred = any(isinstance(part, ast.Starred) for part in (*target.elts, *value.elts))
        if len(target.elts) == len(value.elts) and not starred:
            for inner, part in zip(target.elts, value.elts, strict=True):
                yield from _paired(inner, part)


def _folded(node: ast.expr) -> Number | None:
    """The value of a number or of arithmetic on numbers, else None."""
    value: object = None
    if isinstance(node, ast.Constant):
        value = node.value
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        inner = _folded(node.operand)
        if inner is not None:
            value = -inner if isinstance(node.op, ast.USub) else inner
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        left, right = _folded(node.left), _folded(node.right)
        if left is None or right is None:
            return None
        if isinstance(node.op, (ast.Pow, ast.LShift)) and abs(right) > 64:
            return None  # far outside int64, and slow to compute
        try:
            value = ARITHMETIC[type(node.op)](left, right)
        except (ArithmeticError, TypeError, ValueError):
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not _bounded(value):
        return None
    return value


def _first_line(tree: ast.Module) -> str:
    holders: list[ast.ClassDef | ast.Module] = [tree]
    holders[:0] = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Model"]
    for node in holders:
        lines = (ast.get_docstring(node) or "").strip().splitlines()
        if lines:
            return lines[0].strip()
    return ""
