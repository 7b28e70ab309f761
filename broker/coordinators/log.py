"""`CoordinatorLog`: writes a shard's records to the partition that stores them, and waits until they are committed.

It belongs to one leader epoch. When the next begins, who waits gets NOT_LEADER_OR_FOLLOWER: its records may be gone,
and others may have their offsets (`renew` is for the same leader's next epoch). Source:
``CoordinatorPartitionWriter``.
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
    ``base_sequence``. ``write_timeout_ms`` returns for how long a response waits for other replicas. ``is_acks_all``:
    nothing is appended while the ISR is below ``min.insync.replicas``.

    Raises KafkaError as `Cluster.leader_partition`.
    """

    __slots__ = (
        "_base_sequence",
        "_clock",
        "_cluster",
        "_codec",
        "_is_acks_all",
        "_leader",
        "_write_timeout_ms",
        "partition",
        "topic",
    )

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        topic: str,
        partition: int,
        codec: Callable[[], int],
        base_sequence: int,
        write_timeout_ms: Callable[[], int],
        *,
        is_acks_all: bool,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._codec = codec
        self._base_sequence = base_sequence
        self._write_timeout_ms = write_timeout_ms
        self._is_acks_all = is_acks_all
        self.topic = topic
        self.partition = partition
        self._leader = cluster.leader_partition(topic, partition)

    @property
    def leader_epoch(self) -> int:
        """The leader epoch to which the shard belongs."""
        return self._leader.leader_epoch

    def is_current(self) -> bool:
        """Whether that leader epoch is the present one."""
        return self._leader.is_current

    def renew(self) -> None:
        """The same node goes on to lead, with a new epoch. Raises KafkaError as `Cluster.leader_partition`."""
        self._leader = self._cluster.leader_partition(self.topic, self.partition)

    def leader_partition(self) -> LeaderPartition:
        """The partition that stores the shard. Raises KafkaError (NOT_LEADER_OR_FOLLOWER) after its leader epoch."""
        if not self._leader.is_current:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self._leader

    def append(
        self,
        records: Sequence[CoordinatorRecord],
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = -1,
    ) -> int:
        """Append ``records`` as one batch and return the offset of the first. Raises the log's KafkaErrors."""
        leader = self.leader_partition()
        if self._is_acks_all:
            leader.check_isr()
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
        """Whether all records are committed. Raises KafkaError as `leader_partition`."""
        log = self.leader_partition().log
        return log.high_watermark >= log.log_end_offset

    def is_durable_to(self, offset: int) -> bool:
        """Whether the record at ``offset`` is committed. Raises KafkaError as `leader_partition`."""
        return self.leader_partition().log.high_watermark > offset

    async def wait_durable(self, timeout_ms: int | None = None) -> None:
        """Wait until all records appended so far are committed. ``timeout_ms``: instead of the usual one.

        Raises KafkaError as `LeaderPartition.wait_committed` and `leader_partition`.
        """
        leader = self.leader_partition()
        limit_ms = self._write_timeout_ms() if timeout_ms is None else timeout_ms
        try:
            await leader.wait_committed(leader.log.log_end_offset, limit_ms / 1000)
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:  # they are committed
                raise
        self.leader_partition()


def _size_max(leader: LeaderPartition, codec: int) -> float:
    """The limit in bytes for a batch before compression."""
    return leader.log.config.max_message_bytes if codec == NONE else _ANY_SIZE
