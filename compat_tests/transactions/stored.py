"""Records of ``__transaction_state`` encoded by hand and produced with an admin client's rights.

A broker loads them at its next start. It then is in a state that would otherwise take 32,767 requests, or a crash
between two writes. The layouts are Kafka's TransactionLogKey.json and TransactionLogValue.json, each after its version
as an int16.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from compat_tests.differential import Session, produce_request
from tests.common.batches import batch, record
from tests.common.real_kafka import INTERNAL_PARTITIONS

TOPIC = "__transaction_state"
ADMIN_CLIENT = "__admin_client"
"""The client id that may produce to internal topics."""
EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)


def partition_of(key: str) -> int:
    """The internal topic's partition of a key: Java's String.hashCode without its sign, modulo the partitions."""
    value = 0
    for unit in struct.unpack(f"<{len(key)}H", key.encode("utf-16-le")):
        value = (31 * value + unit) & 0xFFFFFFFF
    return min(value, 0x1_0000_0000 - value) % 0x80000000 % INTERNAL_PARTITIONS


class TransactionState(NamedTuple):
    """A TransactionLogValue. Times are in ms."""

    producer_id: int
    producer_epoch: int
    state: int
    partitions: Sequence[tuple[str, int]] = ()
    timeout_ms: int = 60_000
    start_ms: int = -1
    update_ms: int = 0
    previous_producer_id: int = -1
    next_producer_id: int = -1
    client_version: int = 0

    def encode(self, version: int) -> bytes:
        return struct.pack(">h", version) + (
            self._encode_version_1() if version else self._encode_version_0()
        )

    def _head(self) -> bytes:
        return struct.pack(">qhib", self.producer_id, self.producer_epoch, self.timeout_ms, self.state)

    def _encode_version_0(self) -> bytes:
        rows = b"" if self.state != EMPTY else struct.pack(">i", -1)
        if self.state != EMPTY:
            rows = struct.pack(">i", len(self.partitions))
            for topic, partition in self.partitions:
                rows += struct.pack(">h", len(topic)) + topic.encode() + struct.pack(">ii", 1, partition)
        return self._head() + rows + struct.pack(">qq", self.update_ms, self.start_ms)

    def _encode_version_1(self) -> bytes:
        rows = b"\0"
        if self.state != EMPTY:
            rows = bytes((len(self.partitions) + 1,))
            for topic, partition in self.partitions:
                rows += bytes((len(topic) + 1,)) + topic.encode() + struct.pack(">bib", 2, partition, 0)
        tags = b""
        for tag, size, value in ((0, 8, self.previous_producer_id), (1, 8, self.next_producer_id)):
            tags += bytes((tag, size)) + struct.pack(">q", value)
        tags += b"\2\2" + struct.pack(">h", self.client_version)
        return self._head() + rows + struct.pack(">qq", self.update_ms, self.start_ms) + b"\3" + tags


def write(session: Session, transactional_id: str, value: bytes | None, key_version: int = 0) -> None:
    """Append a record for the id; a value of None is a tombstone."""
    name = transactional_id.encode()
    key = struct.pack(">hh", key_version, len(name)) + name
    request = produce_request(TOPIC, batch([record(key, value)]), partition_of(transactional_id), -1)
    response = session.connect(ADMIN_CLIENT).call("Produce", 9, request)
    row = response["responses"][0]["partition_responses"][0]
    assert row["error_code"] == 0, row
