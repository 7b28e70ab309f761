"""One partition's log: the only way to read and write it.

Every record goes through ``append``, or through `append_as_follower` where another node leads. First come the
steps that may refuse it (validation, producer state), then those that may fail (roll, write), and last those that
others see (log end offset, producer state, leader epoch, high watermark, waiters). So a batch that is refused or
cannot be written leaves no trace. Neither waits, so nothing runs between its steps.

A log with one replica moves its high watermark by itself. In a replicated log ``append`` leaves it where it is, and
``advance_high_watermark`` moves it, as the replicas have the records. So two kinds of waiters hear of a log:
``waiters`` want what is below the watermark (consumers), and hear of each move of it; ``add_end_waiter`` is
for who reads to the log end offset (followers), and hears of each append.

Source: Kafka's ``UnifiedLog``, ``LocalLog``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncelog.broker.log.durability import Durability
from oncelog.broker.log.environment import WaiterSet, shortage_of
from oncelog.broker.log.local_log import LocalLog
from oncelog.broker.log.producers.entry import NO_SEQUENCE
from oncelog.broker.log.producers.replay import read_marker, restore_earlier_batches
from oncelog.broker.log.producers.state import AppendOrigin, ProducerStateManager
from oncelog.broker.log.results import AppendResult, LogRead, first_at_or_after, latest_timestamp
from oncelog.broker.log.validation import ZSTD_PRODUCE_VERSION, AppendRules
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.scheduling.slices import in_slices
from oncelog.wire.batch import CONTROL_BIT, LOG_OVERHEAD, stamp
from oncelog.wire.errors import DecodeError, ErrorCode, KafkaError
from oncelog.wire.validate import read_produced_batch, validate, validate_built

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from oncelog.broker.config.topic_config import TopicConfig
    from oncelog.broker.log.durability import FlushWork
    from oncelog.broker.log.environment import LogEnvironment, LogWaiter
    from oncelog.broker.log.indexes import AbortedTxn
    from oncelog.broker.log.loaded_log import LoadedLog
    from oncelog.broker.log.producers.entry import BatchMetadata
    from oncelog.broker.log.producers.snapshots import ProducerSnapshots
    from oncelog.broker.log.producers.state import Marker
    from oncelog.broker.log.results import TimestampOffset
    from oncelog.broker.log.segment import Segment
    from oncelog.wire.batch import BatchHeader
    from oncelog.wire.steps import Steps
    from oncelog.wire.validate import LongValidation, ValidatedBatch
    from oncelog.wire.validation_rules import ValidationRules

    Check = Callable[[memoryview, BatchHeader, ValidationRules, int], ValidatedBatch]

_log = get_logger(__name__)

PRODUCE_VERSION_LATEST = 13
"""The Produce version whose rules hold for an append that no Produce request made."""

VALIDATION_STEPS_MAX = 8
"""Steps of a long validation, about a tenth of a millisecond each, after which others have their turn."""

_NOTHING = b""


class PreparedTruncation(NamedTuple):
    """The producers of a log that is truncated to an offset, unless it has been truncated once more by now."""

    offset: int
    truncations: int
    producers: ProducerStateManager


class PartitionLog:
    """The log of one partition. ``broker/log/opening.py`` makes one, from a directory."""

    __slots__ = (
        "_rules",
        "appended",
        "config",
        "deleted",
        "durability",
        "end_waiters",
        "env",
        "epochs",
        "high_watermark",
        "is_closing",
        "is_replicated",
        "last_stable_offset",
        "local",
        "log_end_offset",
        "log_start_offset",
        "offline",
        "partition",
        "prepared_truncation",
        "producers",
        "topic",
        "topic_id",
        "truncations",
        "waiters",
        "waits_at",
    )

    def __init__(
        self,
        env: LogEnvironment,
        directory: str,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: TopicConfig,
        loaded: LoadedLog,
    ) -> None:
        self.env = env
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.config = config
        self.local = LocalLog(env, directory, loaded.segments, loaded.snapshots)
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.durability = Durability(
            env.files,
            self.local,
            loaded.epochs,
            loaded.producers,
            topic_id,
            recovery_point=loaded.recovery_point,
            metadata_synced=loaded.metadata_synced,
        )
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.is_replicated = loaded.high_watermark is not None
        """Whether the partition has several replicas; `set_replicated` changes it."""
        self.waits_at: int
        """With how many records above the recovery point an append waits: ``flush.messages``; 0 in a replicated log,
        where each waits."""
        self.high_watermark = loaded.log_end_offset
        self.last_stable_offset = loaded.log_end_offset
        self.offline = False
        """A write or an fsync failed: every request gets KAFKA_STORAGE_ERROR."""
        self.deleted = False
        self.is_closing = False
        """Whether the next flush also writes what `close` would write."""
        self.waiters = WaiterSet()
        self.end_waiters = WaiterSet()
        """In a replicated log: who reads to its end (`add_end_waiter`)."""
        self.truncations = 0
        """How often it was truncated: what takes several turns (a cleaning) must notice."""
        self.prepared_truncation: PreparedTruncation | None = None
        self.appended: tuple[int, memoryview] | None = None
        """Set while waiters are notified of an append: base offset and bytes of its batch, the last of the
        log."""
        self.update_config(config)
        high_watermark = loaded.high_watermark
        if high_watermark is None:
            high_watermark = self.log_end_offset
        self._publish_high_watermark(min(max(high_watermark, self.log_start_offset), self.log_end_offset))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.topic}-{self.partition}, {self.log_start_offset}..{self.log_end_offset})"

    @property
    def directory(self) -> str:
        return self.local.directory

    @property
    def segments(self) -> list[Segment]:
        """Oldest first; the last is the active one."""
        return self.local.segments

    @property
    def active(self) -> Segment:
        return self.local.active

    @property
    def snapshots(self) -> ProducerSnapshots:
        return self.local.snapshots

    @property
    def size(self) -> int:
        """Bytes of its log files."""
        return self.local.size

    @property
    def recovery_point(self) -> int:
        """All below it is on the disk."""
        return self.durability.recovery_point

    @property
    def unflushed_bytes(self) -> int:
        return self.durability.unflushed_bytes

    @property
    def durable_offset(self) -> int:
        """The end of what is as durable as ``flush.messages`` demands: the log end offset, or the recovery point while
        a flush is due. A replica counts itself up to here."""
        end_offset, recovery_point = self.log_end_offset, self.durability.recovery_point
        return recovery_point if end_offset - recovery_point >= self.config.flush_messages else end_offset

    def update_config(self, config: TopicConfig) -> None:
        """The topic's configuration has changed."""
        self.config = config
        self.waits_at = 0 if self.is_replicated else config.flush_messages
        self._rules = AppendRules(config, fast_readers=self.env.has_fast_readers)

    def set_replicated(self, is_replicated: bool) -> None:
        """The partition has several replicas from now on, or only this one. All waiters are notified: they must
        watch the log anew."""
        if is_replicated != self.is_replicated:
            self.is_replicated = is_replicated
            self.update_config(self.config)
            if not is_replicated:
                self.advance_high_watermark(self.durable_offset)
            self._notify_all()

    # Appending.

    def append(
        self,
        records: memoryview | bytearray,
        *,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        produce_version: int = PRODUCE_VERSION_LATEST,
        transaction_version: int = 0,
        check: Check = validate,
    ) -> AppendResult:
        """Append one batch; its bytes are stamped in place. Batches of this broker's own coordinators are not
        validated.

        Raises KafkaError if validation or the producer state refuses it (InvalidRecords carries errors of
        single records), or KAFKA_STORAGE_ERROR if it cannot be written. The log is then unchanged. Raises
        LongValidation if validation takes long: `checked` goes on with it, and gives the ``check`` for another append.
        """
        if self.offline or self.deleted:
            self.check_alive()
        now_ms = self.env.clock.now_ms()
        config = self.config
        if origin is AppendOrigin.CLIENT and produce_version >= ZSTD_PRODUCE_VERSION:
            rules = self._rules.of_produce
        else:
            rules = self._rules.others(from_client=origin is AppendOrigin.CLIENT)
            if origin is AppendOrigin.COORDINATOR:
                check = validate_built
        valid = check(*read_produced_batch(records, rules), rules, now_ms)
        batch, header, max_timestamp = valid.batch, valid.header, valid.max_timestamp
        size = header.batch_length + LOG_OVERHEAD
        marker = None
        if header.producer_id >= 0:
            if header.attributes & CONTROL_BIT:
                marker = self._check_marker(batch, header, origin, transaction_version)
            else:
                duplicate = self._check_producer(header, origin)
                if duplicate is not None:
                    return AppendResult.of_duplicate(duplicate, self.log_start_offset, self.high_watermark)
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        if batch.readonly:
            batch = memoryview(bytearray(batch))
        stamp(batch, 0, base_offset, leader_epoch)
        local, durability = self.local, self.durability
        try:
            if local.active.should_roll(size, last_offset, max_timestamp, now_ms, config):
                self.roll()
            local.active.append(batch, size, last_offset, max_timestamp)
        except OSError as error:
            self.write_failed(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

        local.size += size
        durability.changed = True
        durability.unflushed_bytes = unflushed_bytes = durability.unflushed_bytes + size
        self.log_end_offset = end_offset = last_offset + 1
        if leader_epoch > self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        if header.producer_id >= 0:
            if marker is None:
                self.producers.add(header, base_offset, max_timestamp)
            else:
                self._add_marker(header, base_offset, marker)
        must_wait = end_offset - durability.recovery_point >= self.waits_at
        if must_wait:
            if self.is_replicated:
                local.remember_end(end_offset)
                self.appended = (base_offset, batch)
                self.end_waiters.notify(self)
                self.appended = None
        else:
            if self.waiters:
                self.appended = (base_offset, batch)
            self._publish_high_watermark(end_offset)
            self.appended = None
        if unflushed_bytes >= durability.due_bytes:
            self.env.flusher.due(self)
        return AppendResult(base_offset, last_offset, valid.log_append_time, self.log_start_offset, must_wait)

    async def checked(self, validation: LongValidation) -> Check:
        """Go on with a long validation beside other work. Returns a ``check`` for `append` with the same outcome.

        `LogEnvironment.long_validations` of them are under way at once: each may need the memory of a decompressed
        batch.
        """
        async with self.env.long_validations:
            try:
                valid: ValidatedBatch = await in_slices(validation.steps, VALIDATION_STEPS_MAX)
            except KafkaError as error:
                refusal = error

                def refused(*_: object) -> ValidatedBatch:
                    raise refusal

                return refused
        return lambda _batch, _header, _rules, now_ms: valid.appended_at(now_ms)

    def advance_high_watermark(self, offset: int) -> None:
        """Move the high watermark of a replicated log to ``offset``: not beyond the log end offset, and never back."""
        offset = min(offset, self.log_end_offset)
        if offset > self.high_watermark:
            self._publish_high_watermark(offset)

    def add_end_waiter(self, waiter: LogWaiter) -> None:
        """Notify somebody who reads to the log end offset (a follower, replica id -2) of each append, and of each flush
        of a replicated log. Until `discard_end_waiter`."""
        (self.end_waiters if self.is_replicated else self.waiters).add(waiter)

    def discard_end_waiter(self, waiter: LogWaiter) -> None:
        self.end_waiters.discard(waiter)
        self.waiters.discard(waiter)

    def _notify_all(self) -> None:
        self.waiters.notify(self)
        self.end_waiters.notify(self)

    def _publish_high_watermark(self, offset: int) -> None:
        self.high_watermark = self.last_stable_offset = offset
        if self.producers.has_transactions:
            self.producers.on_high_watermark(offset)
            unstable = self.producers.first_unstable_offset
            if unstable is not None and unstable < offset:
                self.last_stable_offset = max(unstable, self.log_start_offset)
        if self.waiters:
            self.waiters.notify(self)

    def _check_producer(self, header: BatchHeader, origin: AppendOrigin) -> BatchMetadata | None:
        """Check a batch against its producer's state. Returns the batch in the log that it duplicates, None for
        a new one."""
        if self.producers.is_next(header):
            return None
        if not self.producers.is_complete:
            try:
                restore_earlier_batches(self.producers, self.local.segments)
            except OSError as error:
                raise self.storage_error(error) from error
        return self.producers.check(header, origin)

    def _check_marker(
        self,
        batch: memoryview | bytearray,
        header: BatchHeader,
        origin: AppendOrigin,
        transaction_version: int,
    ) -> Marker | None:
        """The end-transaction marker in a control batch; None for another control batch. Raises KafkaError."""
        marker = read_marker(batch)
        if marker is not None:
            self.producers.check_marker(header, marker.coordinator_epoch, origin, transaction_version)
        return marker

    def _add_marker(self, header: BatchHeader, offset: int, marker: Marker) -> None:
        aborted = self.producers.add_marker(header, offset, marker)
        if aborted is not None:
            self.local.active.txn_index.append(aborted)

    def become_leader(self, leader_epoch: int) -> None:
        """Lead the partition from now on, in an epoch that begins at the log end offset."""
        if leader_epoch > self.epochs.latest:
            self.epochs.assign(leader_epoch, self.log_end_offset)
            self.durability.changed = True

    def start_verification(
        self, producer_id: int, epoch: int, sequence: int = NO_SEQUENCE, *, raises_epochs: bool
    ) -> bool:
        """Whether the transaction coordinator must verify a producer's transactional batch before its append,
        because the producer has no transaction open in this partition (Kafka:
        ``maybeStartTransactionVerification``).

        ``raises_epochs``: it uses transactions v2. Raises KafkaError: INVALID_PRODUCER_EPOCH.
        """
        return self.producers.start_verification(
            producer_id, epoch, sequence, self.env.clock.now_ms(), raises_epochs=raises_epochs
        )

    def remove_expired_producers(self, now_ms: int) -> Iterator[int | None]:
        """Forget producers that have written nothing for ``producer.id.expiration.ms``, in steps. Yields their ids, and
        None for others.
        """
        env = self.env
        return self.producers.remove_expired(now_ms, env.producer_id_expiration_ms, env.time_gaps.aged)

    # Reading.

    def read(self, offset: int, max_bytes: int, *, minimum_one: bool, up_to: int) -> LogRead:
        """Batches of one segment, from the one that holds ``offset`` to those that end before ``up_to``.

        At most ``max_bytes``, so the last batch may be cut. A first batch that is larger than that is returned
        whole with ``minimum_one``, and not at all without. Raises KafkaError: OFFSET_OUT_OF_RANGE,
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
            return self.local.read(offset, max_bytes, minimum_one, up_to, self.log_end_offset)
        except OSError as error:
            raise self.storage_error(error) from error

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTxn]:
        """The aborted transactions with records from offset ``start`` to before ``end``. Raises KafkaError:
        KAFKA_STORAGE_ERROR."""
        try:
            return self.local.aborted_transactions(start, end)
        except OSError as error:
            raise self.storage_error(error) from error

    async def searched(self, search: Steps[TimestampOffset | None]) -> TimestampOffset | None:
        """Go on with a search by time beside other work; return what it finds. Raises KafkaError as the search does.

        `LogEnvironment.searches` of them are under way at once.
        """
        async with self.env.searches:
            found: TimestampOffset | None = await in_slices(search)
            return found

    def offset_for_timestamp(self, timestamp: int) -> Steps[TimestampOffset | None]:
        """Find the first record whose timestamp (ms) is at least ``timestamp``, in steps; None if there is none.

        Raises KafkaError: KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE; INVALID_RECORD for a record that is too large by
        ``max.decompressed.message.bytes``.
        """
        limit = self.config.max_decompressed_message_bytes
        return self._search(
            lambda: first_at_or_after(self.local.segments, timestamp, self.log_start_offset, limit)
        )

    def max_timestamp(self) -> Steps[TimestampOffset | None]:
        """Find the first record with the latest timestamp, in steps; None in an empty log. Raises as
        `offset_for_timestamp`.
        """
        limit = self.config.max_decompressed_message_bytes
        return self._search(lambda: latest_timestamp(self.local.segments, limit))

    def _search(self, search: Callable[[], Steps[TimestampOffset | None]]) -> Steps[TimestampOffset | None]:
        self.check_alive()
        try:
            return (yield from search())
        except OSError as error:
            raise self.storage_error(error) from error
        except DecodeError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error

    # Leader epochs, and the log's start.

    @property
    def latest_epoch(self) -> int:
        """The highest known leader epoch, -1 if there is none."""
        return self.epochs.latest

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The highest known leader epoch that is at most ``epoch``, and its end offset (exclusive); (-1, -1) if
        there is none."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def epoch_of(self, offset: int) -> int:
        """The leader epoch of the record at an offset, -1 if it is not known."""
        return self.epochs.epoch_for(offset)

    def delete_records(self, offset: int) -> int:
        """Raise the log start offset to ``offset``, durably. Returns the log start offset, which may be higher.

        Raises KafkaError: OFFSET_OUT_OF_RANGE above the high watermark, KAFKA_STORAGE_ERROR.
        """
        self.check_alive()
        if offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {offset} is above the high watermark {self.high_watermark}",
            )
        if offset > self.log_start_offset:
            try:
                self._save_log_start(offset)
            except OSError as error:
                self.fail(error)
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
            self.raise_log_start(offset)
            self.durability.changed = True
        return self.log_start_offset

    def truncated(self, end: int, start: int) -> None:
        """The log now begins at ``start`` and ends at ``end`` (truncation.py)."""
        before = self.log_end_offset
        self.log_start_offset, self.log_end_offset = start, end
        self.truncations += 1
        self.durability.truncated(end)
        _log.info("truncated", topic=self.topic, partition=self.partition, from_offset=end, end_offset=before)
        self._publish_high_watermark(max(start, min(self.high_watermark, end)))
        self.end_waiters.notify(self)

    def check_alive(self) -> None:
        """Raises KafkaError: KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC_OR_PARTITION."""
        if self.offline:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"The log of {self.topic}-{self.partition} is offline"
            )
        if self.deleted:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    # When files cannot be used.

    def fail(self, error: Exception) -> None:
        """Take the log offline: after a failed write or fsync nobody knows what is on the disk."""
        self.durability.abandon()
        if not self.offline:
            self.offline = True
            _log.error("log is offline", topic=self.topic, partition=self.partition, error=error)
            self._notify_all()
            self.env.on_offline(self.topic, self.partition)

    def write_failed(self, error: OSError) -> None:
        """An append or a roll failed. The log stays online after a shortage, such as a full disk, that was
        undone: there may be room again. It goes offline after any other error, and if the failure was not
        undone (the error has a note)."""
        if getattr(error, "__notes__", None):
            self.fail(error)
        else:
            self.storage_error(error)

    def storage_error(self, error: OSError) -> KafkaError:
        """The error to respond with when a file operation failed. The log goes offline unless it was a
        shortage."""
        if shortage := shortage_of(error):
            about = {"topic": self.topic, "partition": self.partition}
            self.env.lines.write(_log.warning, f"{shortage}, records not written", about, error=error)
        else:
            self.fail(error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    # Segments.

    def roll(self) -> Segment:
        """Make a new active segment that begins at the log end offset, and return it.

        An empty active segment stays. Raises OSError, and then the active segment is unchanged.
        """
        offset = self.log_end_offset
        if self.local.roll(offset, self.config, self.producers):
            self.durability.rolled()
            self.env.flusher.due(self)
            _log.debug("rolled a segment", topic=self.topic, partition=self.partition, offset=offset)
        return self.local.active

    def delete_oldest(self, count: int, reason: str) -> None:
        """Remove the first ``count`` segments: the log start offset rises to the next one's base offset.

        None of them may reach above the high watermark. If they are all segments, the log rolls first. Their
        files are renamed at once and deleted later, so that readers can finish. Raises OSError.
        """
        if count == len(self.local.segments):
            self.roll()
            count = min(count, len(self.local.segments) - 1)
        if not count:
            return
        start = self.local.segments[count].base_offset
        assert start <= self.high_watermark, (start, self.high_watermark)
        if self.is_replicated:
            # Or a start after a loss of power would take them for lost, and drop the others (`PartitionRecovery`).
            self._save_log_start(max(start, self.log_start_offset))
        gone = self.local.detach_oldest(count)
        self.durability.changed = True
        self.raise_log_start(start)
        _log.info(
            "deleting segments",
            topic=self.topic,
            partition=self.partition,
            segments=count,
            log_start_offset=start,
            reason=reason,
        )
        self.local.delete(gone)

    def _save_log_start(self, offset: int) -> None:
        """Make a log start offset durable before the log has it. Raises OSError."""
        before, self.log_start_offset = self.log_start_offset, offset
        try:
            self.env.save_log_start(self)
        finally:
            self.log_start_offset = before

    def raise_log_start(self, offset: int) -> None:
        """Records below ``offset`` no longer belong to the log."""
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)
            self.local.forget_positions()
            self._publish_high_watermark(max(self.high_watermark, offset))

    def replace_segments(self, new: Segment, old: Sequence[Segment]) -> None:
        """Put a cleaned segment in the place of those it was made from (`LocalLog.replace`). Raises OSError."""
        self.local.replace(new, old)
        self.durability.changed = True

    # The disk.

    async def flush(self, up_to: int) -> None:
        """Return when the log is on the disk up to that offset. Raises KafkaError: KAFKA_STORAGE_ERROR."""
        await self.env.flusher.flush(self, up_to)

    def prepare_flush(self) -> FlushWork | None:
        """The flush of what is not on the disk yet; None if all is. Only one may be under way.

        Raises KafkaError (KAFKA_STORAGE_ERROR) if index entries cannot be written.
        """
        try:
            if self.is_closing:
                return self.prepare_close()
            work = self.durability.prepare(self.log_end_offset)
        except OSError as error:
            raise self.storage_error(error) from error
        if work is not None and self.log_end_offset > self.high_watermark:
            self.local.remember_end(self.log_end_offset)
        return work

    def prepare_close(self) -> FlushWork | None:
        """As `prepare_flush`, with the derived files that a start after a clean stop relies on.

        `close` writes what changes after it. Raises OSError.
        """
        if self.offline or self.deleted:
            self.durability.abandon()
            return None
        return self.durability.prepare_close(self.log_end_offset)

    def flushed(self, work: FlushWork) -> None:
        """``work.run()`` has succeeded: raise the recovery point, and the high watermark if it waited for the
        flush. In a replicated log the end waiters hear of it instead."""
        self.durability.flushed(work, self.log_end_offset)
        if not self.offline:
            if self.is_replicated:
                self.end_waiters.notify(self)
            else:
                self.advance_high_watermark(self.durable_offset)

    def close(self) -> None:
        """Bring everything to the disk, derived files included, and close the files. It blocks.

        Raises OSError; the stop is not a clean one then. A log that is offline or deleted is only closed.
        """
        try:
            work = self.prepare_close()
            if work is not None:
                work.run()
                self.flushed(work)
        finally:
            self.local.close()

    def rename(self, directory: str) -> None:
        """Move the partition's directory. Raises OSError."""
        self.local.rename(directory)

    def mark_deleted(self) -> None:
        """The topic was deleted: all requests, waiting ones included, get UNKNOWN_TOPIC_OR_PARTITION."""
        self.deleted = True
        self._notify_all()
