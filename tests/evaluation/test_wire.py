import os
import socket
import struct
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym_env.evaluation import wire

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture
def pair():
    one, two = socket.socketpair()
    yield one, two
    one.close()
    two.close()


@given(st.lists(st.dictionaries(st.text(max_size=5), plain, max_size=4), min_size=1, max_size=5))
@settings(max_examples=50)
def test_messages_arrive_in_order(messages):
    one, two = socket.socketpair()
    with one, two:
        for message in messages:
            wire.send(one, message)
        reader = wire.Reader(two)
        assert [wire.recv(reader) for _ in messages] == messages


def test_a_large_message_arrives_in_pieces(pair):
    one, two = pair
    message = {"text": "x" * 3_000_000}
    thread = threading.Thread(target=wire.send, args=(one, message))
    thread.start()
    assert wire.recv(wire.Reader(two, limit=1 << 23)) == message
    thread.join()


def test_file_descriptors_ride_along(pair):
    one, two = pair
    read, write = os.pipe()
    wire.send(one, {"op": "take"}, [write])
    os.close(write)
    reader = wire.Reader(two, fds=True)
    assert wire.recv(reader) == {"op": "take"}
    os.write(reader.fds[0], b"hello")
    assert os.read(read, 5) == b"hello"
    os.close(reader.fds[0])
    os.close(read)


def test_file_descriptors_that_nobody_asked_for_are_dropped(pair):
    one, two = pair
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        wire.send(one, {"op": "flood"}, [0, 1, 2])
        reader = wire.Reader(two)
        assert wire.recv(reader) == {"op": "flood"}
        assert reader.fds == []
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("body", [b"not json", b"[1, 2]", b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_message_is_refused(pair, body):
    one, two = pair
    one.sendall(struct.pack("<I", len(body)) + body)
    with pytest.raises(wire.WireError):
        wire.recv(wire.Reader(two))


def test_a_frame_over_the_limit_is_refused_before_it_is_read(pair):
    one, two = pair
    one.sendall(struct.pack("<I", 2**31))
    with pytest.raises(wire.WireError, match="limit"):
        wire.recv(wire.Reader(two))


def test_the_end_of_the_stream_is_said(pair):
    one, two = pair
    one.close()
    with pytest.raises(wire.WireError, match="closed"):
        wire.recv(wire.Reader(two))
