"""The submission's side of a build: torch writes its build file as ever, and objects are asked for instead of made.

This runs in the submission's own process, so nobody relies on it. What it does not understand is left to Ninja.

- `Client` -- takes the place of torch's call of Ninja.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Client"]

# what changes a compiler's work from outside its command line
_OUTSIDE = [
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
    "GCC_EXEC_PREFIX",
    "COMPILER_PATH",
    "LIBRARY_PATH",
    "NVCC_PREPEND_FLAGS",
    "NVCC_APPEND_FLAGS",
    "NVCC_CCBIN",
    "CCACHE_DIR",
    "GCC_COMPARE_DEBUG",
    "SOURCE_DATE_EPOCH",
]
_VARIABLE = re.compile(r"^(\w+) = ?(.*)$", re.MULTILINE)
_BUILD = re.compile(r"^build (\S+): (\w+) (.+)$", re.MULTILINE)
_RULE = re.compile(r"^rule (\w+)\n((?:  .*\n)+)", re.MULTILINE)
_COMMAND = re.compile(r"^  command = (.*)$", re.MULTILINE)
_QUOTED = re.compile(r"^\s*#\s*include\s*\"([^\"]+)\"", re.MULTILINE)
_STAMP = ".kernelgym-link"
_MOST_BYTES = 900_000
_KINDS = {"compile": ("cxx", "cflags", "post_cflags"), "cuda_compile": ("nvcc", "cuda_cflags", "cuda_post_cflags")}
_NOT_FOUND = re.compile(r"No such file or directory|cannot open source file|file not found")


@dataclass(frozen=True)
class _Step:
    """One object: where it goes, what is asked for it, and the command that stock would have run."""

    target: str
    unit: dict[str, Any]
    path: str
    command: str


class _Unknown(Exception):
    """The build file is not in the known form, or what it builds depends on more than is sent."""


class Client:
    """Stands in for torch's call of Ninja, as long as `ask` is set.

    Args:
        stock: torch's own function.

    Attributes:
        ask: sends a request to the judge; returns the answer and file descriptors. None while it cannot be asked.
    """

    def __init__(self, stock: Callable[..., None]) -> None:
        self.stock = stock
        self.ask: Callable[[dict[str, Any]], tuple[dict[str, Any], list[int]]] | None = None
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._found = {name: shutil.which(name) for name in ("c++", "nvcc", "ninja", os.environ.get("CXX", "c++"))}

    def open(self, ask: Callable[[dict[str, Any]], tuple[dict[str, Any], list[int]]]) -> None:
        """From now on the judge can be asked, by this process alone."""
        self._pid = os.getpid()
        self.ask = ask

    def close(self) -> None:
        """It can no longer be asked. Waits for a thread that still is at it."""
        with self._lock:
            self.ask = None

    def run(self, build_directory: str, verbose: bool, error_prefix: str) -> None:
        """What torch's `_run_ninja_build` does."""
        with self._lock:
            answer: dict[str, Any] = {}
            fds: list[int] = []
            if self.ask is not None and os.getpid() == self._pid:
                try:
                    steps, link, target = self._plan(Path(build_directory))
                    request = {"units": [step.unit for step in steps]}
                    if len(json.dumps(request)) > _MOST_BYTES:
                        raise _Unknown
                    answer, fds = self.ask(request)
                except (OSError, _Unknown):
                    answer = {}
            units = answer.get("units") or []
            try:
                if units and not any(unit["code"] and _NOT_FOUND.search(unit["output"]) for unit in units):
                    return _finish(Path(build_directory), verbose, error_prefix, steps, link, target, units, fds)
            finally:
                for fd in fds:
                    os.close(fd)
        return self.stock(build_directory, verbose, error_prefix)

    def _plan(self, folder: Path) -> tuple[list[_Step], str, str]:
        if any(os.environ.get(name) for name in _OUTSIDE):
            raise _Unknown
        if any(shutil.which(name) != path for name, path in self._found.items()):
            raise _Unknown
        text = (folder / "build.ninja").read_text(encoding="utf-8")
        variables = dict(_VARIABLE.findall(text))
        rules = {name: _COMMAND.findall(body) for name, body in _RULE.findall(text)}
        steps, link, target = [], "", ""
        for made, rule, sources in _BUILD.findall(text):
            if len(rules.get(rule, ())) != 1 or "$ " in made + sources:
                raise _Unknown
            (pattern,) = rules[rule]
            command = _expand(pattern, {**variables, "in": sources, "out": made})
            if rule == "link":
                link, target = command, made
            elif rule in _KINDS and " " not in sources:
                steps.append(_step(made, rule, sources, command, variables, folder))
            else:
                raise _Unknown
        if not steps or not link:
            raise _Unknown
        return steps, link, target


def _expand(pattern: str, variables: dict[str, str]) -> str:
    return re.sub(r"\$(\w+)", lambda found: variables.get(found[1], ""), pattern).strip()


def _step(target: str, rule: str, source: str, command: str, variables: dict[str, str], folder: Path) -> _Step:
    kind, flags, more = _KINDS[rule]
    try:
        text = Path(source).read_text(encoding="utf-8")
        told = shlex.split(f"{variables.get(flags, '')} {variables.get(more, '')}")
    except (ValueError, UnicodeDecodeError):
        raise _Unknown from None
    for name in _QUOTED.findall(text):
        if any((place / name).exists() for place in (Path(source).parent, folder)):
            raise _Unknown
    unit = {"kind": kind, "name": os.path.basename(source), "text": text, "flags": told}
    return _Step(target, {**unit, "compiler": variables.get(kind, "")}, source, command)


def _finish(
    folder: Path,
    verbose: bool,
    error_prefix: str,
    steps: list[_Step],
    link: str,
    target: str,
    units: list[dict[str, Any]],
    fds: list[int],
) -> None:
    """Put objects in place and link them; say and raise what stock would."""
    lines, total, failed = [], len(steps) + 1, False
    rest = iter(fds)
    for number, (step, unit) in enumerate(zip(steps, units, strict=True), 1):
        said = _as_of(step, unit["output"])
        if unit["code"] == 0:
            with open(os.dup(next(rest)), "rb") as made:
                _replace(folder / step.target, made.read())
            lines.append(f"[{number}/{total}] {step.command}\n{said}")
        else:
            failed = True
            lines.append(f"[{number}/{total}] {step.command}\nFAILED: {step.target} \n{step.command}\n{said}")
    if not failed:
        stamp = _stamp(folder, [step.target for step in steps], link)
        if _same(folder, stamp) and (folder / target).exists():
            lines = ["ninja: no work to do.\n"]
        else:
            ended = subprocess.run(link, shell=True, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            said = ended.stdout.decode("utf-8", "replace")
            failed = ended.returncode != 0
            mark = f"FAILED: {target} \n{link}\n" if failed else ""
            lines.append(f"[{total}/{total}] {link}\n{mark}{said}")
            if not failed:
                _replace(folder / _STAMP, stamp.encode())
    if failed:
        lines.append("ninja: build stopped: subcommand failed.\n")
    output = "".join(lines)
    if verbose:
        sys.stdout.flush()
        os.write(1, output.encode())
    if failed:
        said = "" if verbose else f": {output}"
        cause = subprocess.CalledProcessError(1, ["ninja", "-v"], output=None if verbose else output.encode())
        raise RuntimeError(f"{error_prefix}{said}") from cause


def _as_of(step: _Step, output: str) -> str:
    """A compiler's messages with the path that stock would have named."""
    name = re.escape(os.path.basename(step.path))
    return re.sub(rf"(?<![\w./-]){name}(?=[:(,])", lambda _: step.path, output)


def _replace(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def _stamp(folder: Path, objects: list[str], link: str) -> str:
    sums = [hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in objects]
    return json.dumps([link, objects, sums])


def _same(folder: Path, stamp: str) -> bool:
    try:
        return (folder / _STAMP).read_text(encoding="utf-8") == stamp
    except OSError:
        return False
