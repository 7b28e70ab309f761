"""`PassingRecord`: a record on its way through a filter; `rewrite` shows a batch's records to one."""

from __future__ import annotations

from collections.abc import Callable

from oncelog.wire.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC, MAGIC_AT, BatchHeader, read_header
from oncelog.wire.batch_builder import BatchBuilder
from oncelog.wire.records import Record, iterate_records
from oncelog.wire.schema import Buffer
from oncelog.wire.steps import Steps

FILTERED_BYTES_MAX = 64 * 1024 * 1024
"""A batch with more bytes of records than this, decompressed, is refused."""


class PassingRecord:
    """A record that is produced or fetched. A filter may change all but its place: the change goes on.

    topic, partition: where it is going, or comes from.
    offset: of a fetched record; of a produced one, its index in the batch.
    timestamp: milliseconds since 1970; -1 for none.
    key, value: bytes, or None.
    headers: a list of name and value.
    """

    __slots__ = ("_is_left_out", "headers", "key", "offset", "partition", "timestamp", "topic", "value")

    def __init__(self, topic: str, partition: int, record: Record) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = record.offset
        self.timestamp = record.timestamp
        self.key = record.key
        self.value = record.value
        self.headers: list[tuple[str, bytes | None]] = [
            (name.decode("utf-8", "surrogateescape"), value) for name, value in record.headers
        ]
        self._is_left_out = False

    def header(self, name: str) -> bytes | None:
        """Return the last header of that name; None if there is none."""
        return next((value for key, value in reversed(self.headers) if key == name), None)

    def leave_out(self) -> None:
        """Let the client not see this record, which it fetched: it skips the offset, as one that compaction removed."""
        self._is_left_out = True

    @property
    def is_left_out(self) -> bool:
        """Whether `leave_out` was called."""
        return self._is_left_out

    def _content(self) -> tuple[object, ...]:
        return self.timestamp, self.key, self.value, tuple(self.headers), self._is_left_out

    def __repr__(self) -> str:
        return f"PassingRecord({self.topic}-{self.partition}@{self.offset}, key={self.key!r}, value={self.value!r})"


def rewrite(
    data: Buffer, topic: str, partition: int, show: Callable[[PassingRecord], None]
) -> Steps[bytes | memoryview | None]:
    """Show every record in these batches to ``show``, one at each step; it may change it. Returns the batches as they
    are then; None if nothing has changed.

    Offsets, sequence numbers, codec and transaction of a batch stay as they are. Control batches and the rest of a
    batch that is cut off, as at the end of a Fetch, pass unseen. Raises DecodeError for records that cannot be read,
    TypeError for what ``show`` made something else than bytes, and what ``show`` raises.
    """
    view = memoryview(data)
    out = bytearray()
    is_changed = False
    at = 0
    while at + HEADER_SIZE <= len(view):
        end = at + LOG_OVERHEAD + int.from_bytes(view[at + 8 : at + LOG_OVERHEAD], "big")
        if end > len(view) or view[at + MAGIC_AT] != MAGIC:
            break
        header = read_header(view, at)
        changed = None
        if not header.is_control:
            changed = yield from _rewrite_batch(view[at:end], header, topic, partition, show)
        is_changed |= changed is not None
        out += view[at:end] if changed is None else changed
        at = end
    if not is_changed:
        return None
    out += view[at:]
    return memoryview(out)


def _check(changed: PassingRecord) -> None:
    """Raises TypeError for what a filter has set and no record can hold: text instead of bytes, above all."""
    set_by_filter = [("key", changed.key), ("value", changed.value)]
    set_by_filter += [(f"header {name!r}", value) for name, value in changed.headers]
    for what, value in set_by_filter:
        if value is not None and not isinstance(value, bytes | bytearray | memoryview):
            raise TypeError(
                f"the {what} of a record is bytes or None; the filter made it {type(value).__name__}"
            )


def _rewrite_batch(
    batch: memoryview,
    header: BatchHeader,
    topic: str,
    partition: int,
    show: Callable[[PassingRecord], None],
) -> Steps[bytearray | None]:
    kept = []
    is_changed = False
    for record in iterate_records(batch, header, max_size=FILTERED_BYTES_MAX):
        yield
        passing = PassingRecord(topic, partition, record)
        before = passing._content()
        show(passing)
        if passing._content() != before:
            _check(passing)
            is_changed = True
        if not passing.is_left_out:
            kept.append(passing)
    if not is_changed:
        return None
    builder = BatchBuilder(
        base_offset=header.base_offset,
        leader_epoch=header.partition_leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        codec=header.codec,
        log_append_time=header.max_timestamp if header.is_log_append_time else None,
        delete_horizon_ms=header.delete_horizon_ms,
    )
    for passing in kept:
        yield
        headers = [(name.encode("utf-8", "surrogateescape"), value) for name, value in passing.headers]
        builder.append(passing.timestamp, passing.key, passing.value, headers, offset=passing.offset)
    return builder.build(last_offset=header.last_offset)
