"""`ShardLog`: one partition of an internal topic, as the coordinator whose state it stores writes and reads it.

Source: ``CoordinatorPartitionWriter``, ``CoordinatorLoaderImpl``.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from oncelog.broker.log.producers.state import Origin
from oncelog.broker.log.results import FileRange
from oncelog.broker.logs import get_logger
from oncelog.coordinator.partition_writer import NO_PRODUCER_ID
from oncelog.wire.batch import HEADER_SIZE, BatchBuilder, crc_matches, read_header
from oncelog.wire.compression import NONE
from oncelog.wire.control import ABORT_MARKER, COMMIT_MARKER, end_transaction_marker, read_control_type
from oncelog.wire.errors import DecodeError, ErrorCode, KafkaError
from oncelog.wire.records import iterate_records
from oncelog.wire.stored.coordinator import (
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    is_known_version,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from oncelog.broker.cluster import Cluster, LeaderPartition
    from oncelog.broker.log.partition_log import PartitionLog
    from oncelog.broker.seams.clock import Clock
    from oncelog.coordinator.partition_writer import CoordinatorRecord
    from oncelog.wire.batch import BatchHeader
    from oncelog.wire.schema import Message

READ_BYTES = 64 * 1024
"""Bytes of log that a load reads at once; more where one batch has more."""

_ANY_SIZE = float("inf")

_log = get_logger(__name__)


class ShardLog:
    """The `PartitionWriter` of the shard that ``topic``'s ``partition`` stores. ``codec`` returns the codec of new
    batches.
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
        """The partition's log. Raises KafkaError as `Cluster.leader_partition`."""
        return self._cluster.leader_partition(self.topic, self.partition)

    def append(
        self,
        records: Sequence[CoordinatorRecord],
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = -1,
    ) -> int:
        """Write ``records`` as one batch; the offset of the first. Raises KafkaError as the log gives it."""
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
            if (
                batch.size > size_max
            ):  # the log would say so in the end, after a long time for an absurd request
                raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
        return leader.log.append(
            batch.build(), leader_epoch=leader.leader_epoch, origin=Origin.COORDINATOR
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
        """Write the marker that ends a producer's transaction in this partition; its offset. Raises KafkaError."""
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
            origin=Origin.COORDINATOR,
            transaction_version=transaction_version,
        ).base_offset

    def is_durable(self) -> bool:
        """Whether what was appended is as durable as the log's settings promise. Raises KafkaError."""
        log = self.leader_partition().log
        return log.high_watermark >= log.log_end_offset

    def is_durable_to(self, offset: int) -> bool:
        """The same for the record at ``offset``. Raises KafkaError."""
        return self.leader_partition().log.high_watermark > offset

    async def wait_durable(self) -> None:
        """Return when what is appended so far is on the disk. Raises KafkaError (KAFKA_STORAGE_ERROR)."""
        log = self.leader_partition().log
        await log.flush(log.log_end_offset)


def _size_max(leader: LeaderPartition, codec: int) -> float:
    """Bytes of a batch before it is compressed."""
    return leader.log.config.max_message_bytes if codec == NONE else _ANY_SIZE


class Replayable(Protocol):
    """The state that a log makes."""

    def replay(self, key: Message, value: Message | None, offset: int, producer_id: int = -1) -> None: ...

    def replay_end_transaction(self, producer_id: int, *, committed: bool) -> None: ...


class LogReplay:
    """Replays a log from its start to its end into ``target``. Iterate over `steps`, a record each.

    Records of a type not known are left out, as Kafka does (KIP-915). ``skips_versions``: so are values of a version
    not known, which a transaction coordinator does and a group coordinator does not.
    """

    __slots__ = ("_key_types", "_log", "_skipped", "_skips_versions", "_target", "_value_types", "records")

    def __init__(
        self,
        log: PartitionLog,
        key_types: Mapping[int, type[Message]],
        value_types: Mapping[int, type[Message]],
        target: Replayable,
        *,
        skips_versions: bool = False,
    ) -> None:
        self._log = log
        self._key_types = key_types
        self._value_types = value_types
        self._target = target
        self._skips_versions = skips_versions
        self._skipped: set[tuple[str, int]] = set()
        self.records = 0
        """Replayed so far."""

    def steps(self) -> Generator[FileRange | None, None, None]:
        """A step that would read from a cold disk gives the range first: it may be read ahead in a thread.

        Raises KafkaError where the log cannot be read, DecodeError where what is in it is no such record.
        """
        log = self._log
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            offset = max(offset, log.log_start_offset)
            found = log.read(offset, READ_BYTES, minimum_one=True, up_to=log.log_end_offset)
            data = b""
            if isinstance(found.records, FileRange):
                with closing_range(found.records) as bytes_there:
                    if not bytes_there.file.is_cached(bytes_there.position, bytes_there.size):
                        yield bytes_there
                    data = self._read(bytes_there)
            position = 0
            while position + HEADER_SIZE <= len(data):
                header = read_header(data, position)
                if position + header.size > len(data):
                    break
                for _ in self._replay_batch(data, position, header):
                    yield None
                position += header.size
                offset = header.next_offset
            if not position:
                offset = max(offset, found.next_offset)  # nothing is left up to there: compaction took it
                yield None

    def _read(self, found: FileRange) -> bytes:
        try:
            return found.read()
        except OSError as error:
            raise self._log.storage_error(error) from error

    def _replay_batch(self, data: bytes, position: int, header: BatchHeader) -> Iterator[None]:
        log, producer_id = self._log, header.producer_id
        if not crc_matches(data, position, header):
            raise DecodeError(
                f"{log.topic}-{log.partition} has a damaged batch at offset {header.base_offset}"
            )
        for record in iterate_records(data, header, offset=position):
            if record.key is None:
                raise DecodeError(f"{log.topic}-{log.partition} has no key at offset {record.offset}")
            if header.is_control:
                kind = read_control_type(record.key)
                if kind in (COMMIT_MARKER, ABORT_MARKER):
                    self._target.replay_end_transaction(producer_id, committed=kind == COMMIT_MARKER)
            else:
                self._replay(record.key, record.value, record.offset, producer_id)
            self.records += 1
            yield

    def _replay(self, key_data: bytes, value_data: bytes | None, offset: int, producer_id: int) -> None:
        key = decode_key(key_data, self._key_types)
        if key is None:
            self._skip("type", key_data)
            return
        value_type = self._value_types[key.API_KEY]
        if value_data is not None and self._skips_versions and not is_known_version(value_data, value_type):
            self._skip("version", value_data)
            return
        value = None if value_data is None else decode_value(value_data, value_type)
        self._target.replay(key, value, offset, producer_id)

    def _skip(self, what: str, data: bytes) -> None:
        """Say once of each that it is not known."""
        number = int.from_bytes(data[:2], "big", signed=True)
        if (what, number) not in self._skipped:
            self._skipped.add((what, number))
            log = self._log
            _log.warning(
                f"records of an unknown {what}", topic=log.topic, partition=log.partition, number=number
            )


@contextmanager
def closing_range(found: FileRange) -> Iterator[FileRange]:
    try:
        yield found
    finally:
        found.release()
