"""`BatchFilter`: which records of a batch a cleaning keeps, and the batch that holds them afterwards.

Source: Kafka's ``Cleaner.cleanInto`` (what stays) and ``MemoryRecords.filterTo`` (how it is written); KIP-534
for the delete horizon.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.log.cleaner.offset_map import NOT_FOUND, key_hash
from oncelog.wire.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    assemble,
)
from oncelog.wire.compression import compress
from oncelog.wire.control import read_control_type
from oncelog.wire.errors import DecodeError
from oncelog.wire.records import RecordLayout, records_of, scan, wrap_int64
from oncelog.wire.varint import append_varint, read_varint, read_varlong

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from oncelog.broker.log.cleaner.offset_map import OffsetMap
    from oncelog.broker.log.cleaner.transactions import CleanedTransactions
    from oncelog.broker.scheduling.slices import Slices
    from oncelog.broker.seams.files import Buffer

RECORDS_BETWEEN_CHECKS = 128
"""Records after which the end of the slice is checked."""


class LastBatch:
    """The batch that must stay of a producer that the log remembers: its last data batch, or else its last
    marker."""

    __slots__ = ("last_data_offset", "producer_epoch")

    def __init__(self, last_data_offset: int | None, producer_epoch: int) -> None:
        self.last_data_offset = last_data_offset
        self.producer_epoch = producer_epoch

    def is_in(self, header: BatchHeader) -> bool:
        if self.last_data_offset is None:
            return header.is_control and header.producer_epoch == self.producer_epoch
        return header.last_offset == self.last_data_offset


class BatchFilter:
    """The rules of one cleaning.

    ``now_ms``: wall time at its beginning. ``end_offset``: the log's high watermark; the batch just before it
    stays, even if empty, so that the offset is not lost (Kafka 4.4: ``Cleaner.cleanInto``). ``pause`` is awaited
    between slices.
    """

    def __init__(
        self,
        offset_map: OffsetMap,
        transactions: CleanedTransactions,
        last_batches: Mapping[int, LastBatch],
        *,
        now_ms: int,
        delete_retention_ms: int,
        end_offset: int,
        slices: Slices,
        pause: Callable[[], Awaitable[None]],
    ) -> None:
        self._offset_map = offset_map
        self._transactions = transactions
        self._last_batches = last_batches
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self._end_offset = end_offset
        self._slices = slices
        self._pause = pause

    async def filter(self, header: BatchHeader, batch: memoryview) -> tuple[Buffer, int] | None:
        """The batch with the records that stay, and its max timestamp; None if no batch stays. Raises
        DecodeError."""
        horizon = header.delete_horizon_ms
        if header.is_control:
            removable = self._transactions.on_control(header, control_type_of(header, batch))
            emptied = removable and horizon is not None and horizon <= self._now_ms
        else:
            removable = emptied = self._transactions.on_batch(header)
        if emptied or not header.record_count:
            kept: list[tuple[int, RecordLayout]] = []
            data, tombstones, whole = b"", False, False
        elif header.is_control:
            # It stays whole. If its transaction has no records left, it gets a delete horizon.
            data = records_of(batch, header)
            kept, tombstones, whole = [(0, scan(data, 0, len(data)))], removable, True
        else:
            data = records_of(batch, header)
            kept, tombstones = await self._walk(header, data)
            whole = len(kept) == header.record_count
        if not kept:
            return self._without_records(header)
        if tombstones and horizon is None:
            horizon, whole = self._now_ms + self._delete_retention_ms, False
        if whole:
            return batch, header.max_timestamp
        return rebuild(header, data, kept, horizon)

    def _without_records(self, header: BatchHeader) -> tuple[Buffer, int] | None:
        last = self._last_batches.get(header.producer_id) if header.producer_id >= 0 else None
        if header.next_offset != self._end_offset and (last is None or not last.is_in(header)):
            return None
        kept_bits = header.attributes & (LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT)
        return _assemble(header, b"", 0, kept_bits, NO_TIMESTAMP, header.max_timestamp), header.max_timestamp

    async def _walk(self, header: BatchHeader, data: bytes) -> tuple[list[tuple[int, RecordLayout]], bool]:
        """The records that stay, as (position, layout), and whether there is a tombstone among them."""
        horizon = header.delete_horizon_ms
        tombstones_stay = horizon is None or self._now_ms < horizon
        latest, find = self._offset_map.latest_offset, self._offset_map.offsets.get
        kept: list[tuple[int, RecordLayout]] = []
        tombstones = False
        position, limit, base_offset = 0, len(data), header.base_offset
        for count in range(header.record_count):
            layout = scan(data, position, limit)
            offset, key_at, key_end, value_end = base_offset + layout[2], layout[3], layout[4], layout[6]
            if offset > latest or (
                key_end >= 0
                and offset >= find(key_hash(data[key_at:key_end]), NOT_FOUND)
                and (value_end >= 0 or tombstones_stay)
            ):
                kept.append((position, layout))
                if value_end < 0:
                    tombstones = True
            position = layout[0]
            if not count % RECORDS_BETWEEN_CHECKS and self._slices.is_over():
                await self._pause()
        if position != limit:
            raise DecodeError(f"{limit - position} bytes after the records of a batch")
        return kept, tombstones


def control_type_of(header: BatchHeader, batch: Buffer) -> int | None:
    """The type of a control batch's record; None if its record is gone. Raises DecodeError."""
    if not header.record_count:
        return None
    data = records_of(batch, header)
    layout = scan(data, 0, len(data))
    return read_control_type(data[layout[3] : max(layout[4], layout[3])])


def rebuild(
    header: BatchHeader, data: bytes, kept: list[tuple[int, RecordLayout]], horizon: int | None
) -> tuple[Buffer, int]:
    """A batch with some of another batch's records, and its max timestamp.

    It has the same offsets, sequence numbers and codec. Its base timestamp is the first record's, or the delete
    horizon.
    """
    is_append_time = header.is_log_append_time
    if is_append_time:
        timestamps = [header.max_timestamp] * len(kept)
    else:
        timestamps = [wrap_int64(header.base_timestamp + layout[1]) for _, layout in kept]
    base_timestamp = timestamps[0] if horizon is None else horizon
    max_timestamp = header.max_timestamp if is_append_time else max(NO_TIMESTAMP, *timestamps)
    if base_timestamp == header.base_timestamp and not is_append_time:
        payload = b"".join(data[position : layout[0]] for position, layout in kept)
    else:
        out = bytearray()
        for (position, layout), timestamp in zip(kept, timestamps, strict=True):
            _append_with_delta(out, data, position, layout[0], wrap_int64(timestamp - base_timestamp))
        payload = bytes(out)
    bits = header.attributes & (CODEC_MASK | LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT)
    if horizon is not None:
        bits |= DELETE_HORIZON_BIT
    return _assemble(header, payload, len(kept), bits, base_timestamp, max_timestamp), max_timestamp


def _append_with_delta(out: bytearray, data: bytes, position: int, end: int, timestamp_delta: int) -> None:
    """Append the record at ``position`` with another timestamp delta; the fields after that are copied."""
    _, at = read_varint(data, position)
    _, at = read_varlong(data, at + 1)
    body = bytearray(1)
    append_varint(body, timestamp_delta)
    append_varint(out, len(body) + end - at)
    out += body
    out += data[at:end]


def _assemble(
    header: BatchHeader,
    payload: bytes,
    record_count: int,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
) -> bytearray:
    """A batch with these records; all other fields are those of ``header``."""
    codec = attributes & CODEC_MASK
    written = BatchHeader(
        header.base_offset,
        0,
        header.partition_leader_epoch,
        MAGIC,
        0,
        attributes,
        header.last_offset_delta,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        record_count,
    )
    return assemble(written, compress(codec, payload) if codec else payload)
