"""Bytes of another protocol on the port are called by its name in the log."""

from __future__ import annotations

import ssl
import struct

import pytest

from oncelog.broker.net.unexpected_bytes import unexpected_bytes
from oncelog.wire.messages.metadata import MetadataRequest
from tests.harness.log_lines import lines
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import ConnectionEndedError
from tests.harness.simulation import simulated

__all__ = ["lines"]  # a fixture

TLS = "this looks like a TLS handshake: this listener speaks plaintext"
HTTP = "this looks like an HTTP request: this listener speaks Kafka's protocol"
PROXY = "this looks like a PROXY protocol header: this listener takes none"


def client_hello() -> bytes:
    """Return the first bytes of a TLS client on this machine."""
    out = ssl.MemoryBIO()
    context = ssl.create_default_context()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost").do_handshake()
    return out.read()


SENT = [
    (client_hello(), TLS),
    (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", HTTP),
    (b"POST /topics/t HTTP/1.1\r\n\r\n", HTTP),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", HTTP),
    (b"PROXY TCP4 192.0.2.1 192.0.2.2 5000 9092\r\n", PROXY),
    (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes(12), PROXY),
]


@pytest.mark.parametrize(("sent", "sentence"), SENT)
def test_the_guess_from_the_first_bytes(sent: bytes, sentence: str) -> None:
    assert unexpected_bytes(sent) == sentence
    assert unexpected_bytes(sent[:4]) == sentence
    assert unexpected_bytes(sent[:3]) is None


@pytest.mark.parametrize("size", [-1, 0, 8, 14, 1_048_588, 104_857_600, 200_000_000])
def test_a_size_that_a_client_could_mean_is_taken_for_nothing_else(size: int) -> None:
    assert unexpected_bytes(struct.pack(">ihhi", size, 3, 12, 1)) is None


OTHER = [
    (struct.pack(">i", -9), "a frame of -9 bytes"),
    (struct.pack(">ihhih", 10, 999, 1, 1, -1), "API key 999 is not served'"),
]


@pytest.mark.parametrize("frame_bytes_max", ["104857600", "2147483647"])
@pytest.mark.parametrize(("sent", "sentence"), [*SENT, *OTHER])
@pytest.mark.parametrize("after_a_request", [False, True])
def test_the_log_says_why_the_connection_was_closed(
    lines: list[str], sent: bytes, sentence: str, frame_bytes_max: str, after_a_request: bool
) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker(config={"socket.request.max.bytes": frame_bytes_max}) as broker:
            client = broker.connect()
            if after_a_request:
                await client.send(MetadataRequest([], False), 9)
                await client.receive_frame()
            await client.send_bytes(sent)
            with pytest.raises(ConnectionEndedError):
                await client.receive_frame()

    run()
    assert [line for line in lines if "connection closed" in line and sentence in line]


@simulated
async def test_a_client_that_tries_again_and_again_is_one_line(lines: list[str]) -> None:
    async with SimBroker(config={"max.connections.per.ip": "1"}) as broker:
        for _ in range(20):
            client = broker.connect()
            await client.send_bytes(SENT[0][0])
            with pytest.raises(ConnectionEndedError):
                await client.receive_frame()
        first = broker.connect()
        await first.send(MetadataRequest([], False), 9)
        await first.receive_frame()
        for _ in range(20):
            with pytest.raises(ConnectionEndedError):
                await broker.connect().receive_frame()
        closed = [line for line in lines if "connection closed" in line]
        assert [TLS in line for line in closed] == [True, False]
        assert "max.connections.per.ip" in closed[1]
        broker.clock.advance(60)
        with pytest.raises(ConnectionEndedError):
            await broker.connect().receive_frame()
        assert lines[-1].endswith(" left_out=19\n")
