"""`CoordinatorLog`: writes a shard's records to the partition that stores them.

Source: ``CoordinatorPartitionWriter``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.log.producers.state import AppendOrigin
from oncelog.coordinator.partition_writer import NO_PRODUCER_ID
from oncelog.wire.batch_builder import BatchBuilder
from oncelog.wire.compression import NONE
from oncelog.wire.control import end_transaction_marker
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.stored.coordinator import encode_key, encode_value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oncelog.broker.cluster.cluster import Cluster, LeaderPartition
    from oncelog.broker.seams.clock import Clock
    from oncelog.coordinator.partition_writer import CoordinatorRecord

_ANY_SIZE = float("inf")


class CoordinatorLog:
    """The `PartitionWriter` of one shard. ``codec`` returns the compression codec of new batches; each of them has
    ``base_sequence``.
    """

    __slots__ = ("_base_sequence", "_clock", "_cluster", "_codec", "partition", "topic")

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        topic: str,
        partition: int,
        codec: Callable[[], int],
        base_sequence: int,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._codec = codec
        self._base_sequence = base_sequence
        self.topic = topic
        self.partition = partition

    def leader_partition(self) -> LeaderPartition:
        """The partition that stores the shard. Raises KafkaError as `Cluster.leader_partition`."""
        return self._cluster.leader_partition(self.topic, self.partition)

    def append(
        self,
        records: Sequence[CoordinatorRecord],
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = -1,
    ) -> int:
        """Append ``records`` as one batch and return the offset of the first. Raises the log's KafkaErrors."""
        leader = self.leader_partition()
        now_ms, codec = self._clock.now_ms(), self._codec()
        size_max = _size_max(leader, codec)
        batch = BatchBuilder(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=self._base_sequence,
            transactional=producer_id != NO_PRODUCER_ID,
            codec=codec,
        )
        for key, value, version in records:
            batch.append(now_ms, encode_key(key), None if value is None else encode_value(value, version))
            # The log would refuse the batch too, but building a far too large one takes long.
            if batch.size > size_max:
                raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
        return leader.log.append(
            batch.build(), leader_epoch=leader.leader_epoch, origin=AppendOrigin.COORDINATOR
        ).base_offset

    def check_batch_size(self, size: int) -> None:
        if size > _size_max(self.leader_partition(), self._codec()):
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)

    def append_marker(
        self,
        *,
        committed: bool,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> int:
        """Append the marker that ends a producer's transaction in this partition and return its offset.

        Raises the log's KafkaErrors.
        """
        marker = end_transaction_marker(
            commit=committed,
            coordinator_epoch=coordinator_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp=self._clock.now_ms(),
        )
        leader = self.leader_partition()
        return leader.log.append(
            marker,
            leader_epoch=leader.leader_epoch,
            origin=AppendOrigin.COORDINATOR,
            transaction_version=transaction_version,
        ).base_offset

    def is_durable(self) -> bool:
        """Whether all records are as durable as ``flush.messages`` demands. Raises KafkaError as `leader_partition`."""
        log = self.leader_partition().log
        return log.high_watermark >= log.log_end_offset

    def is_durable_to(self, offset: int) -> bool:
        """Whether the record at ``offset`` is as durable as ``flush.messages`` demands. Raises KafkaError."""
        return self.leader_partition().log.high_watermark > offset

    async def wait_durable(self) -> None:
        """Wait until all records appended so far are on the disk. Raises KafkaError (KAFKA_STORAGE_ERROR)."""
        log = self.leader_partition().log
        await log.flush(log.log_end_offset)


def _size_max(leader: LeaderPartition, codec: int) -> float:
    """The limit in bytes for a batch before compression."""
    return leader.log.config.max_message_bytes if codec == NONE else _ANY_SIZE
