"""Restoring the producer state from a snapshot and from the batches of the log after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from oncelog.broker.log.batches import iterate_headers
from oncelog.broker.log.environment import LogEnvironment
from oncelog.broker.log.indexes import AbortedTxn
from oncelog.broker.log.producers.entry import BATCHES_RETAINED, BatchMetadata, ProducerEntry
from oncelog.broker.log.producers.snapshots import CorruptSnapshot, ProducerSnapshots
from oncelog.broker.log.producers.state import Marker, ProducerStateManager
from oncelog.broker.log.read_ahead import Progress, ReadAhead
from oncelog.broker.log.segment import Segment
from oncelog.broker.logging.logs import get_logger
from oncelog.wire.batch import CONTROL_BIT, BatchHeader
from oncelog.wire.control import ABORT_MARKER, COMMIT_MARKER, read_control_type, read_coordinator_epoch
from oncelog.wire.errors import DecodeError, ErrorCode, KafkaError
from oncelog.wire.records import iterate_records

_log = get_logger(__name__)

RECOVERY_STEP_BYTES = 1024 * 1024
"""Bytes of log that a step of a recovery reads: about a millisecond of work."""

EARLIER_CHUNK_BYTES = 64 * 1024
EARLIER_BYTES_MAX = 8 * 1024 * 1024
EARLIER_BATCHES_MAX = 2000
"""Bytes read at once, and limits in bytes and batches, of `restore_earlier_batches`."""


def restore_earlier_batches(state: ProducerStateManager, segments: Sequence[Segment]) -> None:
    """Read back the last five batches of each producer: a snapshot has only the last one.

    The log is read backwards, a chunk at a time, until every producer has its five, or up to a limit of bytes
    and batches: a producer that retries an older batch has given up by then. Raises OSError.
    """
    incomplete = {entry.producer_id: entry for entry in state.producers.values() if entry.batches}
    budget_bytes, budget_batches = EARLIER_BYTES_MAX, EARLIER_BATCHES_MAX
    for segment in reversed(segments):
        end = segment.size
        while end and incomplete and budget_bytes > 0 and budget_batches > 0:
            start = segment.offset_index.position_before(end - EARLIER_CHUNK_BYTES)
            headers = [header for _, header in segment.headers(start, end)]
            budget_bytes -= end - start
            budget_batches -= len(headers)
            for header in reversed(headers):
                entry = incomplete.get(header.producer_id)
                if entry is not None and not _prepend(entry, header):
                    del incomplete[header.producer_id]
            end = start
    state.is_complete = True


def _prepend(entry: ProducerEntry, header: BatchHeader) -> bool:
    """Add a batch in front of those that the entry has. Returns whether it may have still earlier ones."""
    if header.attributes & CONTROL_BIT:
        return True
    if header.producer_epoch != entry.producer_epoch:
        return False
    if header.last_offset < entry.batches[0].first_offset:
        entry.batches.appendleft(
            BatchMetadata(
                header.base_sequence,
                header.last_sequence,
                header.base_offset,
                header.last_offset,
                header.max_timestamp,
            )
        )
    return len(entry.batches) < BATCHES_RETAINED


def read_marker(batch: memoryview | bytearray | bytes) -> Marker | None:
    """The end-transaction marker in a control batch's first record; None if that is another control record, or the
    cleaner has removed it. Raises KafkaError (INVALID_RECORD)."""
    try:
        for record in iterate_records(batch):
            kind = read_control_type(record.key or b"")
            if kind in (ABORT_MARKER, COMMIT_MARKER):
                epoch = read_coordinator_epoch(record.value or b"")
                return Marker(epoch, record.timestamp, kind == ABORT_MARKER)
            return None
    except DecodeError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
    return None


def load_newest_snapshot(
    env: LogEnvironment,
    snapshots: ProducerSnapshots,
    producers: ProducerStateManager,
    up_to: int,
    above: int = -1,
) -> int:
    """Load the newest undamaged snapshot that is above ``above`` and not above ``up_to``. Returns its offset,
    or -1. Damaged ones are removed.
    """
    for offset in [offset for offset in reversed(snapshots.offsets) if above < offset <= up_to]:
        try:
            rows = snapshots.read(offset)
        except CorruptSnapshot as error:
            _log.warning("producer snapshot is damaged", path=snapshots.path(offset), reason=error)
            snapshots.remove(offset)
        else:
            producers.load(rows, env.clock.now_ms(), env.producer_id_expiration_ms, env.time_gaps.aged)
            return offset
    return -1


def reload_producers(
    env: LogEnvironment,
    snapshots: ProducerSnapshots,
    segments: list[Segment],
    producers: ProducerStateManager,
    end: int,
) -> None:
    """The log was cut at the offset ``end``: restore the state that it had there (Kafka:
    ``ProducerStateManager.truncateAndReload``). Raises OSError, DecodeError.
    """
    if not producers.producers and not producers.has_transactions:
        return  # as before the cut, then
    completed = producers.completed_below(end)
    producers.clear()
    start = load_newest_snapshot(env, snapshots, producers, end)
    for _ in replay_producers(segments, producers, max(start, 0), end):
        pass
    producers.add_completed(completed)


def has_markers(segments: list[Segment], start: int, end: int) -> bool:
    """Whether a transaction ends from offset ``start`` to before ``end``. Raises OSError, DecodeError."""
    for segment in reversed(segments):
        for _, header in segment.headers(segment.position_of(start)):
            if header.is_control and header.has_producer_id and header.base_offset < end:
                return True
        if segment.base_offset <= start:
            break
    return False


def replay_producers(
    segments: list[Segment], producers: ProducerStateManager, start: int, end: int
) -> Iterator[Progress]:
    """Add the batches from offset ``start`` to before ``end`` to the producer state, by their headers. Raises
    DecodeError."""
    for at, segment in enumerate(segments):
        following = segments[at + 1].base_offset if at + 1 < len(segments) else end
        if start >= end or following <= start or segment.base_offset >= end:
            continue
        begin = segment.position_of(start)
        ahead = ReadAhead(segment.file, begin, segment.size)
        yield from ahead.before(begin)
        for position, header in iterate_headers(segment.file, begin, segment.size):
            if header.base_offset >= end:
                break
            batch = segment.file.pread(header.size, position) if header.attributes & CONTROL_BIT else b""
            replay(producers, header, batch)
            yield header.size if header.size < RECOVERY_STEP_BYTES else 1
            yield from ahead.before(position + header.size)


def replay(
    producers: ProducerStateManager, header: BatchHeader, batch: bytes | memoryview
) -> AbortedTxn | None:
    """Add a batch that is in the log to the producer state. Returns the transaction that it aborted, if any."""
    if header.producer_id < 0:
        return None
    if not header.attributes & CONTROL_BIT:
        producers.add(header, header.base_offset, header.max_timestamp)
        return None
    marker = read_marker(batch)
    if marker is None:
        return None
    return producers.add_marker(header, header.base_offset, marker)
