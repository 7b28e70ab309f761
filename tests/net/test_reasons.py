"""One address that is turned away for one reason writes one line a minute, whatever it sends."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress

import pytest

from oncelog.wire.framing import encode_frame, encode_request
from oncelog.wire.messages.metadata import MetadataRequest
from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from oncelog.wire.messages.sasl_handshake import SaslHandshakeRequest
from oncelog.wire.schema import Message
from tests.common.batches import batch
from tests.harness.log_lines import lines
from tests.harness.requests import produce_request
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import ConnectionEndedError
from tests.harness.simulation import deterministic

__all__ = ["lines"]  # a fixture

TRIES = 20
Sent = Callable[[int], bytes]
"""What a client sends at its nth try: something that nobody has sent before."""


def head(api_key: int, version: int) -> bytes:
    return struct.pack(">hhih", api_key, version, 1, -1)


def of(request: Message, version: int) -> bytes:
    return encode_request(request, version, 1, "test")


def log_in(mechanism: str, token: bytes) -> bytes:
    return of(SaslHandshakeRequest(mechanism), 1) + of(SaslAuthenticateRequest(token), 2)


PLAINTEXT: dict[str, Sent] = {
    "an API": lambda number: encode_frame(head(1000 + number, 0)),
    "a version": lambda number: encode_frame(head(3, 1000 + number)),
    "a size": lambda number: struct.pack(">i", (1 << 30) + number),
    "a size for its API": lambda number: struct.pack(">i", (5 << 20) + number) + head(number + 2, 0),
    "a text that is cut off": lambda number: encode_frame(head(3, 1) + struct.pack(">ih", 1, 100 + number)),
    "a topic, without acks": lambda number: of(produce_request(f"{number} {{}}", batch(), acks=0), 9),
}
SASL: dict[str, Sent] = {
    "an API": lambda number: encode_frame(head(1000 + number, 0)),
    "a mechanism": lambda number: of(SaslHandshakeRequest(f"{number} {{}}"), 1),
    "a version": lambda number: encode_frame(head(17, 1000 + number)),
    "a size": lambda number: struct.pack(">i", (1 << 30) + number),
    "an API in place of a token": lambda number: (
        of(SaslHandshakeRequest("PLAIN"), 1) + encode_frame(head(1000 + number, 0))
    ),
    "a user": lambda number: log_in("PLAIN", f"\0{number} {{}}\0x".encode()),
    "a number of words": lambda number: log_in("PLAIN", b"\0" * (number + 3)),
    "a token's id": lambda number: log_in("SCRAM-SHA-256", f"n,,n={number}{{}},r=x,tokenauth=true".encode()),
    "a text that is cut off": lambda number: encode_frame(head(17, 1) + struct.pack(">h", 100 + number)),
}


async def turned_away(broker: SimBroker, sent: bytes) -> None:
    """Connect, send, and read until the broker closes the connection."""
    client = broker.connect()
    await client.send_bytes(sent)
    with suppress(ConnectionEndedError):
        while True:
            await client.receive_frame()


@pytest.mark.parametrize(
    ("protocol", "what"),
    [("PLAINTEXT", what) for what in PLAINTEXT] + [("SASL_PLAINTEXT", what) for what in SASL],
)
def test_one_line(lines: list[str], protocol: str, what: str) -> None:
    ways = PLAINTEXT if protocol == "PLAINTEXT" else SASL

    async def run() -> None:
        config = {"auto.create.topics.enable": "false", "connection.failed.authentication.delay.ms": "0"}
        config["sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256"
        async with SimBroker(config=config, protocol=protocol, users={"app": "app-secret"}) as broker:
            for number in range(TRIES):
                await turned_away(broker, ways[what](number))
            broker.clock.advance(60)
            await turned_away(broker, ways[what](TRIES))

    deterministic(run, 0)
    closed = [line for line in lines if "connection closed" in line]
    assert len(closed) == 2, closed
    assert closed[1].endswith(f" left_out={TRIES - 1}\n")


def test_another_reason_is_told_at_once(lines: list[str]) -> None:
    async def run() -> None:
        async with SimBroker() as broker:
            for sent in PLAINTEXT.values():
                await turned_away(broker, sent(0) + of(MetadataRequest([]), 12))

    deterministic(run, 0)
    assert len([line for line in lines if "connection closed" in line]) == len(PLAINTEXT)
