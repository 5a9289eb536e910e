"""The compiling process's side: runs compilers on texts that the judge sends, in a sandbox, and nothing else.

It is forked like a candidate and confined like one, but no code of a submission runs in it. So what the compiler writes
here is a function of the texts and the flags.

- `answer` -- take one command, run the compiler once, say how that went.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from kernelgym_env.evaluation import wire

__all__ = ["MAX_OUTPUT", "answer"]

MAX_OUTPUT = 1 << 18
"""Bytes of a compiler's messages that are passed on: head and tail."""

_LARGEST = 1 << 26


def answer(control: socket.socket) -> None:
    """Write the files, run the first of the commands whose files are there, and report.

    The command: ``{"files": {name: text}, "choices": [{"name", "command", "needs"}], "nonce"}``. The answer: ``{"name",
    "code", "output", "seconds", "nonce"}``, with an empty name if none could be run.
    """
    asked = wire.recv(wire.Reader(control, limit=_LARGEST))
    for name, text in asked["files"].items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for choice in asked["choices"]:
        if all(os.access(path, os.R_OK) for path in choice["needs"]):
            wire.send(control, {"name": choice["name"], **_run(choice["command"]), "nonce": asked["nonce"]})
            return
    wire.send(control, {"name": "", "code": 127, "output": "", "seconds": 0.0, "nonce": asked["nonce"]})


def _run(command: list[str]) -> dict[str, Any]:
    start = time.perf_counter()
    try:
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        code, output = ended.returncode, ended.stdout
    except OSError as error:
        code, output = 127, str(error).encode()
    if len(output) > MAX_OUTPUT:
        output = output[: MAX_OUTPUT // 2] + b"\n...\n" + output[-MAX_OUTPUT // 2 :]
    text = output.decode("utf-8", "backslashreplace")
    return {"code": code, "output": text, "seconds": time.perf_counter() - start}
