"""No network and no sockets of others: servers of the test wait for a submission that tries to reach them."""

from __future__ import annotations

import os
import secrets
import socket

import pytest


@pytest.fixture
def servers(tmp_path):
    """Listening sockets by kind, with their addresses."""
    tcp = socket.create_server(("127.0.0.1", 0))
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    path = socket.socket(socket.AF_UNIX)
    path.bind(str(tmp_path / "s"))
    path.listen()
    os.chmod(tmp_path / "s", 0o777)
    datagram = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    datagram.bind(str(tmp_path / "d"))
    os.chmod(tmp_path / "d", 0o777)
    abstract = socket.socket(socket.AF_UNIX)
    name = "\0kg-" + secrets.token_hex(8)
    abstract.bind(name)
    abstract.listen()
    found = {"tcp": tcp, "udp": udp, "path": path, "datagram": datagram, "abstract": abstract}
    for server in found.values():
        server.setblocking(False)
    yield found
    for server in found.values():
        server.close()


def _reached(server):
    try:
        if server.type == socket.SOCK_DGRAM:
            server.recv(16)
        else:
            server.accept()
    except BlockingIOError:
        return False
    return True


def test_no_server_is_reached(inside, servers):
    code = f"""
def connect(family, kind, address):
    with socket.socket(family, kind) as sock:
        sock.settimeout(1)
        sock.connect(address)


def send(family, address):
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"x", address)


def through_a_pair(address):
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    left.sendto(b"x", address)


U, S, D = socket.AF_UNIX, socket.SOCK_STREAM, socket.SOCK_DGRAM
result = [
    attempt(connect, socket.AF_INET, S, {servers["tcp"].getsockname()!r}),
    attempt(connect, socket.AF_INET, D, {servers["udp"].getsockname()!r}),
    attempt(send, socket.AF_INET, {servers["udp"].getsockname()!r}),
    attempt(connect, U, S, {servers["path"].getsockname()!r}),
    attempt(connect, U, D, {servers["datagram"].getsockname()!r}),
    attempt(send, U, {servers["datagram"].getsockname()!r}),
    attempt(through_a_pair, {servers["datagram"].getsockname()!r}),
    attempt(connect, U, S, {servers["abstract"].getsockname()!r}),
    attempt(socket.create_connection, ("127.0.0.1", 9), 1),
    attempt(socket.getaddrinfo, "example.com", 80),
]
"""
    assert "done" not in inside(code)
    assert [kind for kind, server in servers.items() if _reached(server)] == []


def test_no_other_kind_of_socket_can_be_made(inside):
    code = """
families = ("AF_INET", "AF_INET6", "AF_NETLINK", "AF_PACKET", "AF_VSOCK", "AF_ALG", "AF_BLUETOOTH", "AF_CAN", "AF_TIPC")
result = {}
for name in families:
    if hasattr(socket, name):
        result[name] = attempt(socket.socket, getattr(socket, name), socket.SOCK_RAW)
        result[name + "/dgram"] = attempt(socket.socket, getattr(socket, name), socket.SOCK_DGRAM)
result["server"] = attempt(socket.create_server, ("127.0.0.1", 0))
"""
    result = inside(code)
    assert set(result.values()) == {"PermissionError"}, result


def test_pairs_of_sockets_still_work(inside):
    code = """
left, right = socket.socketpair()
left.sendall(b"hello")
result = right.recv(16).decode()
"""
    assert inside(code) == "hello"
