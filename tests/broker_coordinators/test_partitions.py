"""Which partition stores a group; addresses as Java writes them."""

from __future__ import annotations

import ipaddress

import pytest

from oncelog.broker.coordinators.partition_of_key import java_hash, partition_of_key
from oncelog.broker.coordinators.runtime import KNOWN_KEY_CHARS_MAX
from oncelog.broker.requests.request import host_of
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated

# Hashes that are well known, as a Java program prints them.
HASHES = {
    "": 0,
    "a": 97,
    "Aa": 2112,
    "BB": 2112,
    "hello": 99162322,
    "Hello, World!": 1498789909,
    "polygenelubricants": -(1 << 31),
    "\U0001f600": 1772899,  # two UTF-16 code units: 0xD83D * 31 + 0xDE00
}


@pytest.mark.parametrize(("text", "value"), HASHES.items())
def test_hashes(text: str, value: int) -> None:
    assert java_hash(text) == value


def test_partitions() -> None:
    assert [partition_of_key(text, 50) for text in HASHES] == [0, 47, 12, 12, 22, 9, 0, 49]


def test_a_negative_hash() -> None:
    names = [f"consumers-of-{number}" for number in range(100)]
    assert any(java_hash(name) < 0 for name in names)
    assert all(0 <= partition_of_key(name, 50) < 50 for name in names)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "::", "fe80::1:0:0:2", "2001:db8::", "1:2:3:4:5:6:7:8"])
def test_addresses(host: str) -> None:
    parts = ipaddress.ip_address(host).exploded
    expected = host if ":" not in host else ":".join(f"{int(part, 16):x}" for part in parts.split(":"))
    assert host_of(f"{host}:9092") == host_of(f"[{host}]:9092") == expected


def test_a_mapped_address() -> None:
    """A client that reaches an IPv6 socket by IPv4."""
    assert host_of("::ffff:10.0.0.7:9092") == "10.0.0.7"


@simulated
async def test_very_long_names_are_not_cached() -> None:
    """Ten thousand names of 32 kB each would fill the memory."""
    async with SimBroker() as broker:
        client = broker.connect()
        names = ["g", "g" * KNOWN_KEY_CHARS_MAX, "g" * (KNOWN_KEY_CHARS_MAX + 1), "g" * 32_767]
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=names)
        response = await client.call(request, 4, FindCoordinatorResponse)
        assert [row.error_code for row in response.coordinators] == [0] * 4
        groups = broker.node.groups
        assert list(groups.runtime._partition_by_key) == names[:2]
        assert [groups.runtime.partition_for(name) for name in names] == [
            partition_of_key(name, 50) for name in names
        ]
