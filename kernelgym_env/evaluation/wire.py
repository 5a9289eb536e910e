"""Messages between the processes: a length, then JSON; file descriptors may ride along.

Nothing here unpickles. A frame from a candidate is bounded in size, and anything that is not a JSON object raises
`WireError`, which the judge turns into a verdict.
"""

from __future__ import annotations

import array
import json
import select
import socket
import struct
from collections.abc import Sequence
from typing import Any

__all__ = ["MAX_FRAME", "Reader", "WireError", "readable", "recv", "send"]

MAX_FRAME = 1 << 20
"""Greatest accepted frame from an untrusted peer, in bytes."""

_LONGEST_S = 1_000_000.0
_HEAD = struct.Struct("<I")


class WireError(Exception):
    """The peer sent something that is not a message, or closed the connection."""


def send(sock: socket.socket, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
    """Send one message, with file descriptors if given.

    Raises:
        OSError: if the peer is gone.
    """
    body = json.dumps(message).encode("ascii")
    frame = memoryview(_HEAD.pack(len(body)) + body)
    sent = 0
    if fds:
        sent = sock.sendmsg([frame], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
    sock.sendall(frame[sent:])


class Reader:
    """Collects frames from a socket, whole messages at a time.

    Args:
        sock: a stream socket.
        limit: greatest frame in bytes.
        fds: whether file descriptors are taken; they are collected in `fds`. Without it the kernel drops what an
            untrusted peer sends along.
    """

    def __init__(self, sock: socket.socket, limit: int = MAX_FRAME, *, fds: bool = False) -> None:
        self.sock = sock
        self.limit = limit
        self._takes_fds = fds
        self.fds: list[int] = []
        self._data = bytearray()

    def feed(self) -> dict[str, Any] | None:
        """Read what is there once; return a message if one is complete.

        Raises:
            WireError: at the end of the stream, for a frame over the limit, or for one that is not a JSON object.
        """
        if (message := self.take()) is not None:
            return message
        try:
            space = socket.CMSG_SPACE(16 * 4) if self._takes_fds else 0
            chunk, ancillary, _, _ = self.sock.recvmsg(1 << 16, space)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            raise WireError(f"connection lost: {error}") from None
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                received = array.array("i")
                received.frombytes(data[: len(data) - len(data) % received.itemsize])
                self.fds.extend(received)
        if not chunk:
            raise WireError("connection closed")
        self._data += chunk
        return self.take()

    def take(self) -> dict[str, Any] | None:
        """The next message if it has been read in full already.

        Raises:
            WireError: for a frame over the limit, or one that is not a JSON object.
        """
        if len(self._data) < _HEAD.size:
            return None
        (size,) = _HEAD.unpack_from(self._data)
        if size > self.limit:
            raise WireError(f"frame of {size} bytes is over the limit of {self.limit}")
        if len(self._data) < _HEAD.size + size:
            return None
        body = bytes(self._data[_HEAD.size : _HEAD.size + size])
        del self._data[: _HEAD.size + size]
        try:
            message = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise WireError(f"not JSON: {error}") from None
        if not isinstance(message, dict):
            raise WireError("not a JSON object")
        return message


def readable(seconds: float, *fds: int) -> set[int]:
    """Which of the descriptors can be read or have ended, waiting at most `seconds` (negative counts as 0).

    Unlike `select.select` it takes descriptors above 1023, which a trainer may well hold.
    """
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return {fd for fd, _ in poll.poll(min(max(0.0, seconds), _LONGEST_S) * 1000)}


def recv(reader: Reader) -> dict[str, Any]:
    """Wait for the next message on a blocking socket.

    Raises:
        WireError: as `Reader.feed`.
    """
    while True:
        message = reader.feed()
        if message is not None:
            return message
