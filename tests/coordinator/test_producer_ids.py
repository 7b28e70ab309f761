"""Producer ids: never the same twice, even after restarts and failures."""

from __future__ import annotations

import pytest

from oncelog.coordinator.producer_ids import BLOCK_SIZE, PRODUCER_ID_MAX, ProducerIds, next_block
from oncelog.wire.errors import ErrorCode, KafkaError


class Disk:
    """Allocates blocks; its stored state outlives a `ProducerIds`."""

    def __init__(self, next_producer_id: int = 0) -> None:
        self.next_producer_id = next_producer_id
        self.taken = 0
        self.full = False

    def take_block(self) -> int:
        if self.full:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        first, self.next_producer_id = next_block(self.next_producer_id)
        self.taken += 1
        return first


def test_a_block_is_taken_when_it_is_needed() -> None:
    disk = Disk()
    ids = ProducerIds(disk.take_block)
    assert disk.taken == 0
    assert [ids.next() for _ in range(BLOCK_SIZE)] == list(range(1000))
    assert (disk.taken, disk.next_producer_id) == (1, 1000)
    assert ids.next() == 1000
    assert (disk.taken, disk.next_producer_id) == (2, 2000)


def test_a_restart_continues_after_the_block() -> None:
    disk = Disk()
    assert ProducerIds(disk.take_block).next() == 0
    assert ProducerIds(disk.take_block).next() == 1000


def test_a_failed_allocation_loses_no_id() -> None:
    disk = Disk()
    ids = ProducerIds(disk.take_block)
    disk.full = True
    for _ in range(2):
        with pytest.raises(KafkaError):
            ids.next()
    disk.full = False
    assert ids.next() == 0


def test_the_last_block() -> None:
    disk = Disk(PRODUCER_ID_MAX - BLOCK_SIZE)
    ids = ProducerIds(disk.take_block)
    assert [ids.next() for _ in range(BLOCK_SIZE)][-1] == PRODUCER_ID_MAX - 1
    with pytest.raises(KafkaError, match="Exhausted all producerIds") as caught:
        ids.next()
    assert caught.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert disk.next_producer_id == PRODUCER_ID_MAX
