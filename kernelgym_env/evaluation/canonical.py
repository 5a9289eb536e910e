"""Which sources are the same program: those that differ in comments, white space and docstrings alone.

- `program_hash` -- equal for such sources.
"""

from __future__ import annotations

import ast
import hashlib
import re

from kernelgym_env.evaluation.source import parse

__all__ = ["program_hash"]

# What reads the program's own text: there a comment, a docstring or a line number may matter, as in CUDA code that is
# kept in a docstring. And what says how the text is to be decoded.
_READS_ITSELF = re.compile(
    r"__(doc|file|loader|spec|cached|code|traceback)__|\.(src|raw_src|read)\b"
    r"|\b(inspect|linecache|tokenize|traceback|ast|dis|help|open|fdopen|fromfile|from_file|memmap|loadtxt|genfromtxt"
    r"|read_text|read_bytes|readlines?|getsource\w*|get_source|get_data|_getframe|currentframe|co_\w+|tb_\w+|f_lineno"
    r"|lineno)\b"
)
_CODING = re.compile(r"^[ \t\f]*#.*?coding[:=]", re.MULTILINE)


def program_hash(source: str) -> str:
    """SHA-256 of what a source does, hexadecimal.

    Comments, white space and docstrings do not count; names do, and so does the text of every other string. A source
    that may read its own text, and one that cannot be parsed, is hashed as it is. That is told by words, so a source
    which is made to hide it can look like another one; see `kernelgym_env.pools.cached`.

    >>> program_hash("x  =  1  # one") == program_hash("x = 1")
    True
    >>> program_hash("x = 1") == program_hash("y = 1")
    False
    >>> program_hash("'''A'''\\nx = __doc__") == program_hash("'''B'''\\nx = __doc__")
    False
    """
    text = source
    if not _READS_ITSELF.search(source) and not _CODING.search("\n".join(source.splitlines()[:2])):
        try:
            text = "program " + ast.dump(_without_docstrings(parse(source)))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            text = source
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.body:
            first = node.body[0]
            value = first.value if isinstance(first, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                node.body[:1] = [] if len(node.body) > 1 else [ast.Pass()]
    return tree
