"""The format stage: what can be said of a source without running it, in about a millisecond.

- `check_format` -- the first reason why a source cannot be a submission, or ``""``.
- `parse` -- its syntax tree.
- `detect_backend` -- which kernel language a source uses.
- `may_compile` -- whether importing it may start a native compiler.
"""

from __future__ import annotations

import ast
import hashlib
import re
import threading
import warnings

from kernelgym_env.limits import MAX_SOURCE_CHARS

__all__ = ["ENTRY", "check_format", "detect_backend", "may_compile", "parse"]

ENTRY = "ModelNew"
"""The class a submission must define."""

# warnings' filters belong to the whole process
_PARSING = threading.Lock()
_REMEMBERING = threading.Lock()
_KEPT = 4096
_known: dict[bytes, str] = {}
_NATIVE = re.compile(r"load_inline|cpp_extension|subprocess|\bos\s*\.\s*(system|popen|exec|spawn)|nvcc|\bg\+\+|\bgcc\b")


def check_format(source: str) -> str:
    """Say why `source` cannot be judged.

    Returns:
        A sentence for the policy, or ``""`` if the source can be judged.

    >>> check_format("class ModelNew: pass")
    ''
    >>> check_format("x = 1")
    'The source defines no class ModelNew at module level.'
    """
    if not source.strip():
        return "The reply holds no source code."
    if len(source) > MAX_SOURCE_CHARS:
        return f"The source has {len(source)} characters; at most {MAX_SOURCE_CHARS} are accepted."
    # Finding the source in a reply asks this, then the pool does, and parsing is most of what a step costs.
    digest = hashlib.sha256(source.encode("utf-8", "surrogatepass")).digest()
    problem = _known.get(digest)
    if problem is None:
        problem = _problem(source)
        with _REMEMBERING:
            if len(_known) >= _KEPT:
                del _known[next(iter(_known))]
            _known[digest] = problem
    return problem


def _problem(source: str) -> str:
    if "\0" in source:
        return "The source holds a NUL character."
    try:
        source.encode("utf-8")
    except UnicodeEncodeError as error:
        return f"The source is not valid Unicode text (character {error.start})."
    try:
        tree = parse(source)
    except SyntaxError as error:
        line = (error.text or "").rstrip()
        return f"SyntaxError: {error.msg} (line {error.lineno})" + (f"\n    {line[:200]}" if line else "")
    except (ValueError, RecursionError, MemoryError) as error:
        return f"The source cannot be parsed: {type(error).__name__}."
    if not _defines(tree, ENTRY):
        return f"The source defines no class {ENTRY} at module level."
    return ""


def parse(source: str) -> ast.Module:
    """Parse a source, without a warning of the parser's.

    Raises:
        SyntaxError: if it is no Python.
        ValueError: for a NUL character.
        RecursionError: if it is nested too deeply, and `MemoryError` likewise.
    """
    with _PARSING, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a SyntaxWarning is not an error
        return ast.parse(source)


def _defines(tree: ast.Module, name: str) -> bool:
    """Whether the module may bind `name` at its top level; a star import or a global statement may."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name:
            return True
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
            return True
        if isinstance(node, ast.alias) and (node.asname or node.name) in (name, "*"):
            return True
    return False


def detect_backend(source: str) -> str:
    """Read the kernel language off a source: ``triton``, ``cupy``, ``cuda``, ``cpp`` or ``torch``.

    >>> detect_backend("import torch, triton.language as tl"), detect_backend("# from triton to C++\\nimport ctypes")
    ('triton', 'cpp')
    """
    imported = _imported(source)
    for name in ("triton", "cupy"):
        if name in imported:
            return name
    if "__global__" in source or "cuda_sources" in source or re.search(r"\.cu\b", source):
        return "cuda"
    if _NATIVE.search(source) or "ctypes" in source:
        return "cpp"
    return "torch"


def _imported(source: str) -> set[str]:
    """Packages that a source imports anywhere; of one that is no Python, those that its lines seem to."""
    try:
        nodes = list(ast.walk(parse(source)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set(re.findall(r"^\s*(?:import|from)\s+(\w+)", source, re.MULTILINE))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


def may_compile(source: str) -> bool:
    """Whether importing the source may start a native compiler, so that a build stage pays.

    A guess that decides only where the time is spent: what it misses is built in the run stage.
    """
    return bool(_NATIVE.search(source))
