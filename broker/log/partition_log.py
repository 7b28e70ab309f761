"""One partition's log: the only way to read and write it.

``append`` is the path of every record. It does first what can be refused (validation, the producer's state),
then what can fail (a roll, the write), and last what others see: log end offset, producer state, leader
epoch, high watermark, waiters. So a batch that is refused or could not be written leaves no trace, and since
it never waits, nothing comes between its steps.

Source: Kafka's ``UnifiedLog``, ``LocalLog``.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from oncelog.broker.log.batches import batch_size
from oncelog.broker.log.indexes import AbortedTransaction
from oncelog.broker.log.producers.replay import read_marker, restore_earlier_batches
from oncelog.broker.log.producers.state import NO_SEQUENCE, Origin
from oncelog.broker.log.reads import FileRange, LogRead, TimestampOffset, first_at_or_after, latest_timestamp
from oncelog.broker.log.results import AppendResult
from oncelog.broker.log.segment import Segment
from oncelog.broker.log.segmented_log import SegmentedLog
from oncelog.broker.log.validation import ZSTD_PRODUCE_VERSION, rules_of
from oncelog.broker.logs import get_logger
from oncelog.wire.batch import CONTROL_BIT, LOG_OVERHEAD, stamp
from oncelog.wire.errors import DecodeError, ErrorCode, KafkaError
from oncelog.wire.validate import read_produced_batch, validate, validate_built

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncelog.broker.config.topic_config import TopicConfig
    from oncelog.broker.log.environment import LogEnvironment
    from oncelog.broker.log.loaded_log import Loaded
    from oncelog.broker.log.producers.state import BatchMetadata
    from oncelog.wire.batch import BatchHeader
    from oncelog.wire.validate import ValidationRules

__all__ = [
    "AbortedTransaction",
    "AppendResult",
    "FileRange",
    "LogRead",
    "Origin",
    "PartitionLog",
    "TimestampOffset",
]

_log = get_logger(__name__)

PRODUCE_VERSION_LATEST = 13
"""What an append that no Produce request made counts as."""

_NOTHING = b""


class PartitionLog(SegmentedLog):
    """The log of one partition. ``broker/log/recovery/partition_recovery.py`` makes one, from a directory."""

    __slots__ = ("_rules", "_rules_of_broker", "_rules_without_zstd", "appended")

    def __init__(
        self,
        env: LogEnvironment,
        directory: str,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: TopicConfig,
        loaded: Loaded,
    ) -> None:
        super().__init__(env, directory, topic, partition, topic_id, config, loaded)
        self.appended: tuple[int, memoryview] | None = None
        """While waiters are told of an append: the base offset and the bytes of its batch, which are the log's last."""
        self._set_rules()
        self._publish_high_watermark(self.log_end_offset)

    def update_config(self, config: TopicConfig) -> None:
        """The topic's configuration has changed."""
        self.config = config
        self._set_rules()

    def _set_rules(self) -> None:
        self._rules = rules_of(self.config)
        self._rules_without_zstd: ValidationRules | None = None
        self._rules_of_broker: ValidationRules | None = None

    def _other_rules(self, origin: Origin) -> ValidationRules:
        """For what the broker writes itself, and for Produce requests that may not bring zstd."""
        if origin is not Origin.CLIENT:
            if self._rules_of_broker is None:
                self._rules_of_broker = rules_of(self.config, from_client=False)
            return self._rules_of_broker
        if self._rules_without_zstd is None:
            self._rules_without_zstd = rules_of(self.config, zstd_allowed=False)
        return self._rules_without_zstd

    # Appending.

    def append(
        self,
        records: memoryview | bytearray,
        *,
        leader_epoch: int,
        origin: Origin = Origin.CLIENT,
        produce_version: int = PRODUCE_VERSION_LATEST,
        transaction_version: int = 0,
    ) -> AppendResult:
        """Add one batch, whose bytes are stamped in place. What a coordinator of this broker brings is not checked.

        Raises KafkaError: what validation and the producer's state refuse (InvalidRecords with errors for
        single records), KAFKA_STORAGE_ERROR where it could not be written; nothing has changed then.
        """
        if self.offline or self.deleted:
            self.check_alive()
        now_ms = self.env.clock.now_ms()
        config = self.config
        if origin is Origin.CLIENT and produce_version >= ZSTD_PRODUCE_VERSION:
            rules = self._rules
        else:
            rules = self._other_rules(origin)
        check = validate_built if origin is Origin.COORDINATOR else validate
        valid = check(*read_produced_batch(records, rules), rules, now_ms)
        batch, header, max_timestamp = valid.batch, valid.header, valid.max_timestamp
        size = header.batch_length + LOG_OVERHEAD
        marker = None
        if header.producer_id >= 0:
            if header.attributes & CONTROL_BIT:
                marker = self._check_marker(batch, header, origin, transaction_version)
            else:
                repeated = self._check_producer(header, origin)
                if repeated is not None:
                    return self._answer_repeated(repeated)
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        if batch.readonly:
            batch = memoryview(bytearray(batch))
        stamp(batch, 0, base_offset, leader_epoch)
        try:
            if self.active.should_roll(size, last_offset, max_timestamp, now_ms, config):
                self.roll()
            self.active.append(batch, size, last_offset, max_timestamp)
        except OSError as error:
            self.write_failed(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

        self._touched = True
        self.size += size
        self.unflushed_bytes += size
        self.log_end_offset = end_offset = last_offset + 1
        if leader_epoch > self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        if header.producer_id >= 0:
            if marker is None:
                self.producers.add(header, base_offset, max_timestamp)
            else:
                self._add_marker(header, base_offset, *marker)
        must_flush = end_offset - self.recovery_point >= config.flush_messages
        if not must_flush:
            if self.waiters:
                self.appended = (base_offset, batch)
            self._publish_high_watermark(end_offset)
            self.appended = None
        if self.unflushed_bytes >= self.flush_due_bytes:
            self.env.flusher.due(self)
        return AppendResult(
            base_offset, last_offset, valid.log_append_time, self.log_start_offset, must_flush
        )

    def _publish_high_watermark(self, offset: int) -> None:
        self.high_watermark = self.last_stable_offset = offset
        if self.producers.has_transactions:
            self.producers.on_high_watermark(offset)
            unstable = self.producers.first_unstable_offset
            if unstable is not None and unstable < offset:
                self.last_stable_offset = max(unstable, self.log_start_offset)
        if self.waiters:
            self.waiters.notify(self)

    def _check_producer(self, header: BatchHeader, origin: Origin) -> BatchMetadata | None:
        """The batch that this one repeats, or None where it may follow."""
        if self.producers.is_next(header):
            return None
        if not self._producers_complete:
            try:
                restore_earlier_batches(self.producers, self.segments)
            except OSError as error:
                raise self.storage_error(error) from error
            self._producers_complete = True
        if origin is Origin.CLIENT:
            repeated = self.producers.find_duplicate(header)
            if repeated is not None:
                return repeated
        self.producers.check(header, origin)
        return None

    def _answer_repeated(self, batch: BatchMetadata) -> AppendResult:
        """As Kafka answers: with the batch's timestamp as append time, even where it is the producer's."""
        return AppendResult(
            batch.first_offset,
            batch.last_offset,
            batch.timestamp,
            self.log_start_offset,
            batch.last_offset >= self.high_watermark,
            True,
        )

    def _check_marker(
        self, batch: memoryview | bytearray, header: BatchHeader, origin: Origin, transaction_version: int
    ) -> tuple[int, int, bool] | None:
        """(coordinator epoch, timestamp, aborted) of an end-transaction marker; None for another control batch."""
        marker = read_marker(batch)
        if marker is not None:
            self.producers.check_marker(header, marker[0], origin, transaction_version)
        return marker

    def _add_marker(
        self, header: BatchHeader, offset: int, coordinator_epoch: int, timestamp: int, aborted: bool
    ) -> None:
        ended = self.producers.add_marker(header, offset, coordinator_epoch, timestamp, aborted=aborted)
        if ended is not None and aborted:
            transaction, last_stable_offset = ended
            index = self.active.txn_index
            index.append(
                AbortedTransaction(
                    transaction.producer_id,
                    transaction.first_offset,
                    transaction.last_offset,
                    last_stable_offset,
                )
            )

    def become_leader(self, leader_epoch: int) -> None:
        """This broker leads the partition in that epoch from now on: it begins at the log end offset."""
        if leader_epoch > self.epochs.latest:
            self.epochs.assign(leader_epoch, self.log_end_offset)
            self._touched = True

    def start_verification(
        self, producer_id: int, epoch: int, sequence: int = NO_SEQUENCE, *, raises_epochs: bool
    ) -> bool:
        """Whether the transaction coordinator must be asked before a producer's transactional batch is appended,
        since no transaction of it is open here (Kafka: ``maybeStartTransactionVerification``).

        ``raises_epochs``: it speaks transactions v2. Raises KafkaError: INVALID_PRODUCER_EPOCH.
        """
        return self.producers.start_verification(
            producer_id, epoch, sequence, self.env.clock.now_ms(), raises_epochs=raises_epochs
        )

    def remove_expired_producers(self, now_ms: int) -> None:
        """Forget producers that wrote nothing for ``producer.id.expiration.ms``."""
        self.producers.remove_expired(now_ms, self.env.producer_id_expiration_ms)

    # Reading.

    def read(self, offset: int, max_bytes: int, *, minimum_one: bool, up_to: int) -> LogRead:
        """The batches from the one that holds ``offset`` on, in one segment, none from ``up_to`` on.

        At most ``max_bytes``, which may cut the last batch; but where not even the first would be whole,
        that one as it is if ``minimum_one``, else nothing. Raises KafkaError: OFFSET_OUT_OF_RANGE,
        KAFKA_STORAGE_ERROR.
        """
        if self.offline or self.deleted:
            self.check_alive()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {offset} is not in {self.log_start_offset} to {self.log_end_offset}",
            )
        if offset >= up_to:
            return LogRead(_NOTHING, offset)
        try:
            return self._read(offset, max_bytes, minimum_one, up_to)
        except OSError as error:
            raise self.storage_error(error) from error

    def _read(self, offset: int, max_bytes: int, minimum_one: bool, up_to: int) -> LogRead:
        place = self._positions.get(offset)
        if place is None or (place[1] == place[0].size and place[0] is not self.active):
            # Not known, or it was the end of a segment that has a successor now.
            place = self._locate(offset)
        if place is None:
            return LogRead(_NOTHING, up_to)
        segment, position = place
        end, end_offset = self._end_of(segment, up_to)
        size = end - position
        if size <= 0:
            return LogRead(_NOTHING, up_to)
        if size > max_bytes:
            first = batch_size(segment.file, position)
            if first > max_bytes:
                if not minimum_one:
                    return LogRead(_NOTHING, offset)
                size = first
            else:
                size = max_bytes
            bound = segment.offset_index.upper_bound_offset(position + size)
            return LogRead(
                FileRange(segment.file, position, size),
                end_offset if bound is None else min(bound, end_offset),
            )
        self._remember(end_offset, segment, end)
        return LogRead(FileRange(segment.file, position, size), end_offset)

    def _locate(self, offset: int) -> tuple[Segment, int] | None:
        """Where the first batch is that holds ``offset`` or begins after it; segments may end with a gap."""
        for at in range(self._segment_at(offset), len(self.segments)):
            segment = self.segments[at]
            found = segment.find(offset)
            if found is not None:
                return segment, found[0]
        return None

    def _segment_at(self, offset: int) -> int:
        return max(0, bisect_right(self.segments, offset, key=_base_offset) - 1)

    def _end_of(self, segment: Segment, up_to: int) -> tuple[int, int]:
        """Where a segment's batches below ``up_to`` end: position, and offset (exclusive)."""
        if segment is self.active:
            if up_to >= self.log_end_offset:
                return segment.size, self.log_end_offset
        else:
            following = self.segments[self._segment_at(segment.base_offset) + 1].base_offset
            if up_to >= following:
                return segment.size, following
        known = self._positions.get(up_to)
        if known is not None and known[0] is segment:
            return known[1], up_to
        end = segment.position_of(up_to)
        self._remember(up_to, segment, end)
        return end, up_to

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """Those that have records from offset ``start`` to before ``end``. Raises KafkaError:
        KAFKA_STORAGE_ERROR."""
        found: list[AbortedTransaction] = []
        try:
            for segment in self.segments[self._segment_at(start) :]:
                if segment.txn_index.entries:
                    some, complete = segment.txn_index.collect(start, end)
                    found += some
                    if complete:
                        break
        except OSError as error:
            raise self.storage_error(error) from error
        return found

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record whose timestamp (ms) is at least ``timestamp``, None where there is none.

        Raises KafkaError: KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE.
        """
        return self._search(lambda: first_at_or_after(self.segments, timestamp, self.log_start_offset))

    def max_timestamp(self) -> TimestampOffset | None:
        """The first record with the latest timestamp, None in an empty log.

        Raises KafkaError: KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE.
        """
        return self._search(lambda: latest_timestamp(self.segments))

    def _search(self, search: Callable[[], TimestampOffset | None]) -> TimestampOffset | None:
        self.check_alive()
        try:
            return search()
        except OSError as error:
            raise self.storage_error(error) from error
        except DecodeError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error

    # Leader epochs, and the log's start.

    @property
    def latest_epoch(self) -> int:
        """The highest leader epoch it knows, -1 where there is none."""
        return self.epochs.latest

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The highest epoch it has that is at most ``epoch``, and where that ended, exclusive; or (-1, -1)."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def epoch_of(self, offset: int) -> int:
        """The leader epoch of a record, -1 where it is not known."""
        return self.epochs.epoch_for(offset)

    def delete_records(self, offset: int) -> int:
        """Let the log begin at ``offset``, durably, and return where it begins now.

        Raises KafkaError: OFFSET_OUT_OF_RANGE above the high watermark, KAFKA_STORAGE_ERROR.
        """
        self.check_alive()
        if offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {offset} is above the high watermark {self.high_watermark}",
            )
        if offset > self.log_start_offset:
            before = self.log_start_offset
            self.log_start_offset = offset
            try:
                self.env.save_log_start(self)
            except OSError as error:
                self.log_start_offset = before
                self.fail(error)
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
            self.log_start_offset = before
            self.raise_log_start(offset)
            self._touched = True
        return self.log_start_offset

    async def flush(self, up_to: int) -> None:
        """Return when the log is on the disk up to that offset. Raises KafkaError: KAFKA_STORAGE_ERROR."""
        await self.env.flusher.flush(self, up_to)


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
