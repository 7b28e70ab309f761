"""Reads the records of topics as a consumer would see them, but from the log and without a client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from oncelog.broker.control.errors import InvalidArgumentError
from oncelog.broker.control.names import check_word, no_partition, not_found
from oncelog.broker.control.types import IsolationLevel, Record, TimestampType
from oncelog.broker.log.partition_log import PartitionLog
from oncelog.broker.metadata.image import Topic
from oncelog.broker.node.node import Node
from oncelog.broker.scheduling.slices import Slices
from oncelog.wire.batch import HEADER_SIZE, NO_SEQUENCE, SEQUENCE_MAX, BatchHeader, read_header
from oncelog.wire.errors import DecodeError
from oncelog.wire.records import iterate_records
from oncelog.wire.schema import Buffer, Uuid

READ_BYTES: Final = 1024 * 1024
"""How much of a log is in memory at a time while it is read; one batch may be larger."""

ISOLATION_LEVELS: Final[tuple[IsolationLevel, ...]] = ("read_committed", "read_uncommitted")


def topic_of(node: Node, name: str) -> Topic:
    """Return the topic. Raises NotFoundError."""
    topic = node.metadata.image.topics.get(name)
    if topic is None:
        raise not_found("topic", name, node.metadata.image.topics)
    return topic


def partitions_of(node: Node, topic: str, partition: int | None) -> Sequence[int]:
    """Return all partitions of a topic, or the one given. Raises NotFoundError."""
    partitions = range(len(topic_of(node, topic).partitions))
    if partition is None:
        return partitions
    if partition not in partitions:
        raise no_partition(topic, partition, len(partitions))
    return (partition,)


def end_of(log: PartitionLog, isolation: IsolationLevel) -> int:
    """Return the end (exclusive) of what a consumer may read."""
    return log.last_stable_offset if isolation == "read_committed" else log.high_watermark


class RecordReader:
    """Reads a topic once, or again and again: each `read` returns what came since the last one.

    ``isolation``: under read_committed, records of aborted transactions are left out, and nothing is read beyond the
    last stable offset. Control records, which no consumer sees, are always left out.
    """

    def __init__(
        self,
        topic: str,
        *,
        isolation: IsolationLevel = "read_uncommitted",
        partition: int | None = None,
        from_offset: int = 0,
        limit: int | None = None,
    ) -> None:
        """``from_offset`` holds for every partition that is read. ``limit``: the most records that are read.

        Raises InvalidArgumentError.
        """
        self._isolation = check_word("isolation", isolation, ISOLATION_LEVELS)
        if from_offset < 0:
            raise InvalidArgumentError(f"from_offset={from_offset}: expected an offset from 0 on")
        if limit is not None and limit < 0:
            raise InvalidArgumentError(f"limit={limit}: expected a number of records, or None for all")
        self.topic = topic
        self._partition = partition
        self._from_offset = from_offset
        self._limit = limit
        self._next: dict[int, int] = {}
        """The offset at which each partition is read next."""
        self.topic_id: Uuid | None = None
        """Of the topic that was read last. With another one, a topic of that name was created anew."""

    def logs(self, node: Node) -> list[PartitionLog]:
        """Return the logs that are read. Raises NotFoundError, KafkaError."""
        partitions = partitions_of(node, self.topic, self._partition)
        return [node.cluster.leader_partition(self.topic, number).log for number in partitions]

    async def read(self, node: Node) -> list[Record]:
        """Return the records up to the present end, by partition and offset; all of them if the topic was created anew.

        Raises NotFoundError, KafkaError.
        """
        await node.logs.recovered()
        topic_id = topic_of(node, self.topic).topic_id
        if topic_id != self.topic_id:
            self._next.clear()
            self.topic_id = topic_id
        ends = [(log, self._end_of(log)) for log in self.logs(node)]
        records: list[Record] = []
        slices = Slices()
        for log, end in ends:
            start = self._next.get(log.partition, self._from_offset)
            for record in self._read_log(log, start, end):
                if self._limit is not None and len(records) >= self._limit:
                    return records
                if record is not None:
                    records.append(record)
                    self._next[log.partition] = record.offset + 1
                if slices.is_over():
                    await slices.pause()
            self._next[log.partition] = max(start, end)
        return records

    def _end_of(self, log: PartitionLog) -> int:
        return end_of(log, self._isolation)

    def _read_log(self, log: PartitionLog, start: int, end: int) -> Iterator[Record | None]:
        """Yield the records from ``start`` to before ``end``, and None after each batch."""
        start = max(start, log.log_start_offset)  # which may be in the middle of a batch
        aborted: list[tuple[int, int, int]] = []
        if self._isolation == "read_committed" and start < end:
            aborted = [entry[:3] for entry in log.aborted_transactions(start, end)]
        for data, position, header in batches(log, start, end):
            if not header.is_control and not (
                header.is_transactional
                and any(
                    header.producer_id == producer_id and first <= header.base_offset <= last
                    for producer_id, first, last in aborted
                )
            ):
                for record in records_of_batch(log.topic, log.partition, data, position, header):
                    if record.offset >= start:
                        yield record
            yield None


class ReplicaReader(RecordReader):
    """Reads the replicas of a topic that a node has, each to the end of its log, whatever is committed."""

    def logs(self, node: Node) -> list[PartitionLog]:
        """See `RecordReader`."""
        keys = ((self.topic, number) for number in partitions_of(node, self.topic, self._partition))
        return [node.logs.logs[key] for key in keys if key in node.logs.logs]

    def _end_of(self, log: PartitionLog) -> int:
        return log.log_end_offset


def batches(log: PartitionLog, start: int, end: int) -> Iterator[tuple[bytes, int, BatchHeader]]:
    """Yield the batches of a log from the one with offset ``start`` to those before ``end``: data that has the batch,
    its position there, and its header. Raises KafkaError.
    """
    while True:
        start = max(start, log.log_start_offset)  # which may rise meanwhile
        if start >= end:
            return
        read = log.read(start, READ_BYTES, minimum_one=True, up_to=end)
        if isinstance(read.records, bytes):
            data = read.records
        else:
            try:
                data = read.records.read()
            except OSError as error:
                raise log.storage_error(error) from error
            finally:
                read.records.release()
        position, before = 0, start
        while position + HEADER_SIZE <= len(data):
            header = read_header(data, position)
            if position + header.size > len(data):
                break  # cut short: the next read has it whole
            start = max(start, header.next_offset)
            if header.last_offset >= before:
                yield data, position, header
            position += header.size
        if start == before:
            return  # a gap up to the end, as compaction leaves it


def records_of_batch(
    topic: str, partition: int, data: Buffer, position: int, header: BatchHeader
) -> Iterator[Record]:
    """Yield the records of the batch at ``position``, decompressed. Raises DecodeError."""
    timestamp_type: TimestampType = "LogAppendTime" if header.is_log_append_time else "CreateTime"
    for record in iterate_records(data, header, offset=position):
        sequence = NO_SEQUENCE
        if header.base_sequence != NO_SEQUENCE:
            sequence = (header.base_sequence + record.offset - header.base_offset) & SEQUENCE_MAX
        yield Record(
            topic=topic,
            partition=partition,
            offset=record.offset,
            value=record.value,
            key=record.key,
            headers=tuple((name.decode("utf-8", "replace"), value) for name, value in record.headers),
            timestamp=record.timestamp,
            timestamp_type=timestamp_type,
            leader_epoch=header.partition_leader_epoch,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            sequence=sequence,
            is_transactional=header.is_transactional,
        )


def records_of_request(request: Any, response: Any) -> list[Record]:
    """Return the records of a decoded Produce, with the offsets that the response gave them, if it did.

    Raises ValueError for bytes that are no record batches.
    """
    offsets = {
        (topic.name, row.index): row.base_offset
        for topic in (response.responses if response is not None else ())
        for row in topic.partition_responses
        if row.base_offset >= 0
    }
    records: list[Record] = []
    try:
        for topic in request.topic_data:
            for row in topic.partition_data:
                data, position = row.records or b"", 0
                while position < len(data):
                    header = read_header(data, position)
                    header.base_offset = offsets.get((topic.name, row.index), header.base_offset)
                    records += records_of_batch(topic.name, row.index, data, position, header)
                    position += header.size
    except DecodeError as error:
        raise ValueError(f"no record batches: {error}") from error
    return records
