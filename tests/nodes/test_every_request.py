"""Each request to three nodes gets a response or loses its connection, and ends no node."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

import oncelog
from oncelog.broker.handlers.table import HANDLERS
from oncelog.wire.framing import encode_request
from oncelog.wire.schema import Field, Message
from tests.faults.filled_requests import Filling, api_of, requests_of

WAIT_S = 1.0
"""For a response."""
MAY_WAIT = ("join_group",)
NOT_SENT = ("unregister_broker",)
"""It names one of the nodes."""


class Numbers(Filling):
    """Every number of one byte, such as a type of Kafka's, is ``number``."""

    def __init__(self, version: int, number: int) -> None:
        super().__init__(version)
        self._number = number

    def value(self, field: Field) -> object:
        return self._number if field.kind == "int8" else super().value(field)


@pytest.fixture(scope="module")
def kafka() -> Iterator[oncelog.Broker]:
    with oncelog.Broker(nodes=3, topics=["t"]) as broker:
        yield broker


def requests(name: str, version: int) -> list[Message]:
    kind = api_of(name).request
    return [*requests_of(name, version), *(Numbers(version, one).fill(kind) for one in (0, -1, 127))]


@pytest.mark.parametrize("name", [one.name for one in HANDLERS.values() if one.name not in NOT_SENT])
def test_no_request_ends_a_node(kafka: oncelog.Broker, name: str) -> None:
    handler = api_of(name).row
    for version in {handler.min_version, handler.max_version}:
        for request in requests(name, version):
            for address in kafka.bootstrap_servers.split(","):
                host, _, port = address.partition(":")
                with socket.create_connection((host, int(port)), WAIT_S) as connection:
                    connection.sendall(encode_request(request, version, 1, "client"))
                    try:
                        connection.recv(4)
                    except TimeoutError:
                        assert name in MAY_WAIT
    assert all(node.is_running for node in kafka.nodes.values())
