"""What makes two sources the same program, as far as their text tells.

- `canonical_hash` -- equal for sources that differ in layout, comments and docstrings alone.
"""

from __future__ import annotations

import ast
import hashlib
import warnings

__all__ = ["canonical_hash"]


def canonical_hash(source: str) -> str:
    """SHA-256, hexadecimal, of a source's syntax tree without positions and docstrings.

    Text within strings (CUDA or C++ source) counts as it is. What is no Python is hashed with runs of white space as
    one space.

    >>> canonical_hash("x = 1  # one") == canonical_hash("x=1")
    True
    >>> canonical_hash("x = 1") == canonical_hash("x = 2")
    False
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a SyntaxWarning is no error
            tree = ast.parse(source)
        for node in ast.walk(tree):
            _without_docstring(node)
        text = "tree " + ast.dump(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        text = "text " + " ".join(source.split())
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _without_docstring(node: ast.AST) -> None:
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return
    first = node.body[0] if node.body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        node.body = node.body[1:]
