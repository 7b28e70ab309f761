"""Bytes between two connections through a kernel pipe: in order, as many as the reader takes."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator

import pytest
import trio

from oncelog.broker.seams.pipes import PIPE_BYTES, SocketPipes
from oncelog.broker.seams.platforms import HERE
from oncelog.broker.seams.transport import WOULD_BLOCK, SocketTransport
from tests.harness.sim_network import memory_pair

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="splice is Linux's")

Ends = tuple[socket.socket, SocketTransport]


def descriptors() -> set[str]:
    """Of this process, with one that reads them."""
    return set(os.listdir("/proc/self/fd"))


def _connected() -> Ends:
    with socket.create_server(("127.0.0.1", 0)) as server:
        far = socket.create_connection(server.getsockname())
        near, _ = server.accept()
    return far, SocketTransport(near, "peer:1")


@pytest.fixture
def ends() -> Iterator[tuple[Ends, Ends]]:
    """Two connections: of a client, and to upstream."""
    both = _connected(), _connected()
    yield both
    for far, near in both:
        far.close()
        near.detach().close()


def test_bytes_pass_in_order_and_the_rest_stays_in_the_socket(ends: tuple[Ends, Ends]) -> None:
    (client, source), (node, target) = ends
    pipes = SocketPipes()
    pipe = pipes.take()
    assert pipe is not None
    assert pipe.fill(source, 10) == WOULD_BLOCK
    client.sendall(b"0123456789")
    trio.run(source.wait_readable)
    assert (pipe.fill(source, 6), pipe.held) == (6, 6)
    while pipe.held:
        pipe.drain(target, more=False)
    assert node.recv(100) == b"012345"
    assert source.receive_into(memoryview(rest := bytearray(10))) == 4
    assert rest[:4] == b"6789"
    client.close()
    trio.run(source.wait_readable)
    assert pipe.fill(source, 10) == 0
    pipes.give_back(pipe)
    pipes.close()


def test_a_target_that_does_not_read_leaves_bytes_in_the_pipe(ends: tuple[Ends, Ends]) -> None:
    (client, source), (node, target) = ends
    pipes = SocketPipes()
    data = os.urandom(PIPE_BYTES // 8)
    pipe = pipes.take()
    assert pipe is not None
    moved = 0
    while not pipe.held:
        client.sendall(data)
        left = len(data)
        while left and not pipe.held:
            count = pipe.fill(source, left)
            if count == WOULD_BLOCK:
                continue
            left -= count
            while pipe.held and (sent := pipe.drain(target, more=True)) != WOULD_BLOCK:
                moved += sent
    pipes.give_back(pipe)  # with bytes of one connection in it: nobody gets it again
    other = pipes.take()
    assert other is not None
    assert other is not pipe
    assert other.held == 0
    pipes.give_back(other)
    assert pipes.take() is other
    pipes.give_back(other)
    pipes.close()
    received = b""
    while len(received) < moved:
        received += node.recv(moved)
    assert received == (data * (moved // len(data) + 1))[:moved]


def test_a_closed_connection_is_no_other_ones_descriptor(ends: tuple[Ends, Ends]) -> None:
    (client, source), _ = ends
    client.sendall(b"x")
    source.detach().close()
    pipe = SocketPipes().take()
    assert pipe is not None
    with pytest.raises(OSError, match="Bad file descriptor"):
        pipe.fill(source, 1)
    pipe.close()


def test_few_pipes_are_in_use_and_none_is_left() -> None:
    before = descriptors()
    pipes = SocketPipes(pipes_max=2)
    first, second = pipes.take(), pipes.take()
    assert first is not None
    assert second is not None
    assert pipes.take() is None
    pipes.give_back(first)
    pipes.close()
    assert pipes.take() is None
    pipes.give_back(second)
    assert descriptors() <= before


def test_only_sockets_are_joined_and_only_where_there_is_splice(ends: tuple[Ends, Ends]) -> None:
    (_, source), (_, target) = ends
    assert SocketPipes().can_join(source, target)
    assert not SocketPipes().can_join(source, memory_pair()[0])
    elsewhere = SocketPipes(platform=HERE._replace(pipe_size_command=None))
    assert not elsewhere.can_join(source, target)
    assert elsewhere.take() is None


def test_where_no_pipe_can_be_made_bytes_are_copied() -> None:
    unknown_command = 9999
    before = descriptors()
    assert SocketPipes(platform=HERE._replace(pipe_size_command=unknown_command)).take() is None
    assert descriptors() <= before
