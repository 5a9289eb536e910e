"""The judge process: one per device, started by exec, owner of the task, the seeds, the clock and the verdict.

It never forks; candidates come from its fork server. It reads requests from its client and answers each with an
`Evaluation`. When the client goes away, it ends everything it started and itself.

Request: ``{"id": n, "submission": {...}, "secret": hex, "number": k}``. Answer: ``{"id": n, "evaluation": {...}}``, or
``{"id": n, "fault": text}`` where infrastructure failed; after a fault the client starts a new judge.
"""

from __future__ import annotations

import argparse
import os
import queue
import socket
import threading
import traceback
from typing import Any

from kernelgym_env.evaluation import wire

__all__ = ["main"]

_LARGEST = 1 << 28
_POLL_S = 2.0


def _read(reader: wire.Reader, requests: queue.Queue[dict[str, Any]], session: list[Any]) -> None:
    """Collect requests; when the client is gone end all that was started, and this process."""
    parent = os.getppid()
    try:
        # a forked child of the client may hold its end of the socket open, so its death is looked for as well
        while os.getppid() == parent:
            if wire.readable(_POLL_S, reader.sock.fileno()) and (request := reader.feed()) is not None:
                requests.put(request)
        raise wire.WireError("the client died")
    except wire.WireError:
        for open_session in session:
            open_session.close()
        os._exit(0)


def main() -> None:
    """Serve the client on an inherited socket."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", type=int, required=True)
    parser.add_argument("--device", required=True, help="as the client calls it: cpu or cuda:<index>")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--sandbox", default="best_effort")
    parser.add_argument("--memory-gib", type=float, default=None)
    parser.add_argument("--cores", type=int, default=None)
    arguments = parser.parse_args()
    os.umask(0o022)  # what is written for a worker must be readable under another user id
    client = socket.socket(fileno=arguments.socket)
    requests: queue.Queue[dict[str, Any]] = queue.Queue()
    sessions: list[Any] = []
    reader = wire.Reader(client, limit=_LARGEST)
    threading.Thread(target=_read, args=(reader, requests, sessions), daemon=True).start()

    from kernelgym_env.evaluation.sandbox.options import SandboxOptions
    from kernelgym_env.evaluation.session import Session
    from kernelgym_env.evaluation.submission import Submission

    # the client made this device the only visible one
    device = "cpu" if arguments.device == "cpu" else "cuda:0"
    sandbox = SandboxOptions(arguments.sandbox, arguments.memory_gib, arguments.cores)
    session = Session(device, arguments.device, arguments.threads, sandbox)
    sessions.append(session)
    session.prepare()
    wire.send(client, {"ready": os.getpid()})
    while True:
        request = requests.get()
        try:
            submission = Submission.from_dict(request["submission"])
            evaluation = session.evaluate(submission, bytes.fromhex(request["secret"]), request["number"])
            answer = {"id": request["id"], "evaluation": evaluation.to_dict()}
        except Exception:  # whatever fails in here is ours, not the submission's
            answer = {"id": request["id"], "fault": traceback.format_exc()[-4000:]}
        wire.send(client, answer)


if __name__ == "__main__":
    main()
