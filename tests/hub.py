"""A server on this machine that answers as the Hugging Face Hub does for one data set."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DATASET = "ScalingIntelligence/KernelBench"

REFERENCE = """import torch
from torch import nn

ROWS = {rows}


class Model(nn.Module):
    def forward(self, x):
        return x + {rows}


def get_inputs():
    return [torch.randn(ROWS)]


def get_init_inputs():
    return []
"""


def problem(level: int, number: int, code: str = "") -> dict[str, Any]:
    """A problem of our own in the data set's columns."""
    code = code or REFERENCE.format(rows=100 * level + number)
    return {"code": code, "level": level, "name": f"{number}_Add_{number}_", "problem_id": number}


def parquet(rows: Sequence[Mapping[str, Any]]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    sink = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), sink)
    return sink.getvalue()


class Hub:
    """What the server holds, and what it was asked for.

    Attributes:
        commits: files by name for each commit.
        branches: commits by name.
        asked: paths of all requests.
        url: where it answers.
    """

    def __init__(self) -> None:
        self.commits: dict[str, dict[str, bytes]] = {}
        self.branches: dict[str, str] = {}
        self.asked: list[str] = []
        self.url = ""

    def commit(self, problems: Sequence[Mapping[str, Any]], branch: str = "main") -> str:
        """Add a commit with some problems, and move a branch to it."""
        name = f"{len(self.commits) + 1:040x}"
        levels = sorted({row["level"] for row in problems})
        files = {
            f"data/level_{level}-00000-of-00001.parquet": parquet([row for row in problems if row["level"] == level])
            for level in levels
        }
        self.commits[name] = {"README.md": b"A data set.", **files}
        self.branches[branch] = name
        return name

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Status, address to go on to, and content."""
        self.asked.append(path)
        revision = path.removeprefix(f"/api/datasets/{DATASET}/revision/")
        commit = self.branches.get(revision, revision)
        if revision != path and commit in self.commits:
            siblings = [{"rfilename": name} for name in self.commits[commit]]
            return 200, "", json.dumps({"id": DATASET, "sha": commit, "siblings": siblings}).encode()
        commit, _, name = path.removeprefix(f"/datasets/{DATASET}/resolve/").partition("/")
        if name in self.commits.get(commit, {}):
            return 302, f"/stored/{commit}/{name}", b""  # as the Hub does for large files
        commit, _, name = path.removeprefix("/stored/").partition("/")
        if name in self.commits.get(commit, {}):
            return 200, "", self.commits[commit][name]
        return 404, "", b"not found"


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    """Answer for a hub while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, location, content = hub.answer(self.path)
            self.send_response(status)
            if location:
                self.send_header("Location", location)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        hub.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()
