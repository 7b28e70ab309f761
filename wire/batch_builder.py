"""`BatchBuilder`: builds a record batch, record by record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.wire.batch import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    assemble,
)
from oncelog.wire.compression import NONE, compress
from oncelog.wire.varint import append_varint, varint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Buffer

_NO_DELTAS = bytes(2)
_SHORT = 64
"""A length below this is a varint of one byte: twice the length."""


class BatchBuilder:
    """Builds one batch, record by record: for internal topics, the metadata log, compaction and tests.

    Offsets are consecutive from ``base_offset`` unless ``append`` gets one (compaction leaves gaps).
    ``log_append_time`` (ms) makes the timestamp type LogAppendTime; ``delete_horizon_ms`` replaces the base timestamp.
    ``codec`` and ``level`` are those of wire.compression.
    """

    def __init__(
        self,
        *,
        base_offset: int = 0,
        leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
        control: bool = False,
        codec: int = NONE,
        level: int | None = None,
        log_append_time: int | None = None,
        delete_horizon_ms: int | None = None,
    ) -> None:
        self.base_offset = base_offset
        self.leader_epoch = leader_epoch
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.transactional = transactional
        self.control = control
        self.codec = codec
        self.level = level
        self.log_append_time = log_append_time
        self.delete_horizon_ms = delete_horizon_ms
        self.record_count = 0
        self._payload = bytearray()
        self._base_timestamp = delete_horizon_ms
        self._max_timestamp = NO_TIMESTAMP
        self._last_offset = base_offset - 1

    @property
    def size(self) -> int:
        """Bytes of the batch so far, before compression."""
        return HEADER_SIZE + len(self._payload)

    def append(
        self,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Iterable[tuple[str | bytes, Buffer | None]] = (),
        *,
        offset: int | None = None,
    ) -> int:
        """Add a record and return its offset. ``timestamp`` in ms, -1 for none; header keys are UTF-8.

        Raises ValueError if ``offset`` is not above the last record's.
        """
        if offset is None:
            offset = self._last_offset + 1
        elif offset <= self._last_offset:
            raise ValueError(f"offset {offset} after {self._last_offset}")
        if self._base_timestamp is None:
            self._base_timestamp = timestamp
        body = bytearray(1)  # the record's attributes, all unused
        if timestamp == self._base_timestamp and offset == self.base_offset:  # as in a batch of one record
            body += _NO_DELTAS
        else:
            append_varint(body, timestamp - self._base_timestamp)
            append_varint(body, offset - self.base_offset)
        _append_bytes(body, key)
        _append_bytes(body, value)
        headers = tuple(headers)
        append_varint(body, len(headers))
        for name, content in headers:
            _append_bytes(body, name.encode() if isinstance(name, str) else name)
            _append_bytes(body, content)
        append_varint(self._payload, len(body))
        self._payload += body
        self._max_timestamp = max(self._max_timestamp, timestamp)
        self._last_offset = offset
        self.record_count += 1
        return offset

    def extend(self, timestamp: int, encoded: Iterable[bytes]) -> None:
        """Add records of one timestamp whose keys, values and headers are ``encoded``."""
        if self._base_timestamp is None:
            self._base_timestamp = timestamp
        front = b"\0" + varint(timestamp - self._base_timestamp)  # the attributes, all unused, come first
        first = self._last_offset + 1 - self.base_offset
        payload, delta = self._payload, first - 1
        for delta, fields in enumerate(encoded, first):
            number = varint(delta)
            payload += varint(len(front) + len(number) + len(fields))
            payload += front
            payload += number
            payload += fields
        self._max_timestamp = max(self._max_timestamp, timestamp)
        self._last_offset = self.base_offset + delta
        self.record_count += delta + 1 - first

    def build(self, *, last_offset: int | None = None, max_timestamp: int | None = None) -> bytearray:
        """The batch's bytes, which may be stamped in place.

        ``last_offset`` may be above the last record's, where compaction removed the last records. ``max_timestamp``
        replaces that of the records. Raises ValueError for a batch without offsets.
        """
        last_offset = self._last_offset if last_offset is None else last_offset
        if last_offset < max(self._last_offset, self.base_offset):
            raise ValueError(f"last offset {last_offset} of a batch from {self.base_offset}")
        if max_timestamp is None:
            max_timestamp = self._max_timestamp if self.log_append_time is None else self.log_append_time
        return assemble(
            BatchHeader(
                self.base_offset,
                0,
                self.leader_epoch,
                MAGIC,
                0,
                self._attributes(),
                last_offset - self.base_offset,
                NO_TIMESTAMP if self._base_timestamp is None else self._base_timestamp,
                max_timestamp,
                self.producer_id,
                self.producer_epoch,
                self.base_sequence,
                self.record_count,
            ),
            compress(self.codec, self._payload, self.level) if self.codec else self._payload,
        )

    def _attributes(self) -> int:
        attributes = self.codec
        if self.log_append_time is not None:
            attributes |= LOG_APPEND_TIME_BIT
        if self.transactional:
            attributes |= TRANSACTIONAL_BIT
        if self.control:
            attributes |= CONTROL_BIT
        if self.delete_horizon_ms is not None:
            attributes |= DELETE_HORIZON_BIT
        return attributes


def _append_bytes(out: bytearray, data: Buffer | None) -> None:
    if data is None:
        out.append(1)  # -1 in zig-zag form
        return
    size = len(data) if type(data) is bytes else memoryview(data).nbytes
    if size < _SHORT:
        out.append(2 * size)
    else:
        append_varint(out, size)
    out += data
