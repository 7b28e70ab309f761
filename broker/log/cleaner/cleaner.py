"""Log compaction: the last record of every key stays, by Kafka's rules (``LogCleaner``, ``Cleaner``).

A cleaning first notes the last offset of every key in the dirty part of a log. Then it copies the log's
segments, without obsolete records, into new ones (``.cleaned``), which replace the old ones once they are on
the disk. It runs in slices of the loop; cold reads and fsyncs run in worker threads. One log is cleaned at a
time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.log.cleaner.batch_filter import (
    RECORDS_BETWEEN_CHECKS,
    BatchFilter,
    LastBatch,
    control_type_of,
)
from oncelog.broker.log.cleaner.log_to_clean import LogToClean, group, segments_from
from oncelog.broker.log.cleaner.offset_map import OffsetMap, key_hash
from oncelog.broker.log.cleaner.segment_reader import SegmentReader
from oncelog.broker.log.cleaner.transactions import CleanedTransactions
from oncelog.broker.log.environment import shortage_of
from oncelog.broker.log.file_names import CLEANED_SUFFIX
from oncelog.broker.log.segment import Segment
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.scheduling.slices import Slices
from oncelog.wire.errors import DecodeError
from oncelog.wire.records import records_of, scan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.broker.log.manager import LogManager
    from oncelog.broker.log.partition_log import PartitionLog
    from oncelog.broker.seams.files import FileSystem
    from oncelog.wire.batch import BatchHeader

_log = get_logger(__name__)


class CleaningAborted(Exception):  # noqa: N818  # not an error: there is nothing to do any more
    """The log was deleted or truncated, went offline, is no longer compacted, or retention has removed a segment."""


class Cleaner:
    """The background task that cleans logs."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._uncleanable: set[PartitionLog] = set()

    async def run(self) -> None:
        while True:
            if not await self.clean_filthiest():
                await self._manager.clock.pause(self._manager.config.log_cleaner_backoff_ms / 1000)

    async def clean_filthiest(self) -> bool:
        """Clean the log with the highest cleanable ratio of those that are due. Returns whether there was
        one."""
        manager = self._manager
        now_ms = manager.clock.now_ms()
        cleaned_to = manager.offsets.cleaned.known
        due = []
        for log in manager.usable_logs():
            if log.config.compact and log not in self._uncleanable:
                to_clean = LogToClean(log, cleaned_to.get((log.topic, log.partition)), now_ms)
                if to_clean.is_due:
                    due.append(to_clean)
        return bool(due) and await self._clean(max(due, key=lambda to_clean: to_clean.cleanable_ratio))

    async def _clean(self, to_clean: LogToClean) -> bool:
        manager, log = self._manager, to_clean.log
        start, memory = to_clean.first_dirty_offset, manager.config.log_cleaner_dedupe_buffer_size
        cleaning = Cleaning(manager.files, to_clean, manager.clock.now_ms(), memory)
        try:
            before = log.size
            with manager.background.running("compaction"):
                end = await cleaning.run()
                await manager.offsets.save_cleaned(log, end)
        except CleaningAborted:
            return True
        except OSError as error:
            self._failed(log, error)
            return False
        except DecodeError as error:
            if cleaning.is_over:
                return True  # the file was truncated while it was read
            self._uncleanable.add(log)
            _log.error("cannot be compacted", topic=log.topic, partition=log.partition, error=str(error))
            return True
        _log.info(
            "compacted",
            topic=log.topic,
            partition=log.partition,
            from_offset=start,
            to_offset=end,
            bytes_before=before,
            bytes_after=log.size,
        )
        manager.background.timer_event(
            "log compacted", topic=log.topic, partition=log.partition, from_offset=start, to_offset=end
        )
        return True

    def _failed(self, log: PartitionLog, error: OSError) -> None:
        """A failed cleaning leaves the log as it was, or offline if a replacement was under way. After a
        shortage it is tried again; any other error would hit appends, too, and takes the log offline."""
        if log.deleted or log.offline:
            return
        if shortage := shortage_of(error):
            about = {"topic": log.topic, "partition": log.partition}
            log.env.lines.write(_log.warning, f"{shortage}, partition not compacted", about, error=error)
        else:
            log.fail(error)


class Cleaning:
    """One cleaning of one log."""

    def __init__(self, files: FileSystem, to_clean: LogToClean, now_ms: int, memory_bytes: int) -> None:
        self._files = files
        self._to_clean = to_clean
        self._log = to_clean.log
        self._truncations = to_clean.log.truncations
        self._now_ms = now_ms
        self._offset_map = OffsetMap(memory_bytes)
        self._slices = Slices()

    async def run(self) -> int:
        """Clean the log. Returns the offset up to which it is clean now. Raises CleaningAborted, OSError, and
        DecodeError if the log is damaged.
        """
        log, to_clean = self._log, self._to_clean
        await self._map_keys()
        end = self._offset_map.latest_offset + 1
        segments = [segment for segment in log.segments if segment.base_offset < end]
        transactions = CleanedTransactions()
        for run in group(
            segments,
            log.config.segment_size,
            log.config.segment_index_bytes,
            to_clean.first_uncleanable_offset,
        ):
            await self._clean_group(run, transactions)
        return end

    async def _pause(self) -> None:
        await self._slices.pause()
        self._check()

    @property
    def is_over(self) -> bool:
        """Whether something happened to the log that ends the cleaning."""
        log = self._log
        return log.deleted or log.offline or not log.config.compact or log.truncations != self._truncations

    def _check(self) -> None:
        if self.is_over:
            raise CleaningAborted

    # --- the offset map

    async def _map_keys(self) -> None:
        """Note every key's last offset, from the first dirty offset to the first uncleanable one, or until the
        map is full."""
        log, start, end = (
            self._log,
            self._to_clean.first_dirty_offset,
            self._to_clean.first_uncleanable_offset,
        )
        offset_map = self._offset_map
        transactions = CleanedTransactions()
        transactions.expect(log.aborted_transactions(start, end))
        dirty = [it for it in segments_from(log.segments, start) if it.base_offset < end]
        for at, segment in enumerate(dirty):
            with SegmentReader(self._files, segment, segment.offset_index.lookup(start)[1]) as reader:
                while (found := await reader.next()) is not None:
                    header, batch = found
                    if header.is_control:
                        transactions.on_control(header, control_type_of(header, batch))
                    elif not transactions.on_batch(header) and header.last_offset >= start:
                        await self._map_batch(header, batch)
                    if header.last_offset >= start:
                        offset_map.latest_offset = max(offset_map.latest_offset, header.last_offset)
                    if offset_map.is_full:
                        return
                    if self._slices.is_over():
                        await self._pause()
            self._check()
            following = dirty[at + 1].base_offset if at + 1 < len(dirty) else end
            offset_map.latest_offset = max(offset_map.latest_offset, following - 1)

    async def _map_batch(self, header: BatchHeader, batch: memoryview) -> None:
        offsets, start, base_offset = (
            self._offset_map.offsets,
            self._to_clean.first_dirty_offset,
            header.base_offset,
        )
        data = records_of(batch, header)
        position, limit = 0, len(data)
        for count in range(header.record_count):
            position, _, offset_delta, key_at, key_end, *_ = scan(data, position, limit)
            if key_end >= 0 and base_offset + offset_delta >= start:
                offsets[key_hash(data[key_at:key_end])] = base_offset + offset_delta
            if not count % RECORDS_BETWEEN_CHECKS and self._slices.is_over():
                await self._pause()

    # --- the copy

    async def _clean_group(self, old: Sequence[Segment], transactions: CleanedTransactions) -> None:
        log = self._log
        new = Segment(
            self._files,
            log.directory,
            old[0].base_offset,
            index_interval_bytes=log.config.index_interval_bytes,
            now_ms=self._now_ms,
            new=True,
            suffix=CLEANED_SUFFIX,
        )
        try:
            transactions.cleaned_index = new.txn_index
            for segment in old:
                await self._copy(segment, new, transactions)
            new.seal()
            for file in (new.file, *new.unsynced_indexes()):
                await self._files.sync(file)
            new.synced_size = new.size
            self._check()
            if new.max_timestamp < 0:
                # Retention uses the file's time if the records have no timestamps.
                modified_ms = self._files.modified_ms(old[-1].log_path)
                self._files.set_modified_ms(new.log_path, modified_ms)
        except BaseException:
            self._discard(new)
            raise
        self._swap(new, old)

    async def _copy(self, source: Segment, target: Segment, transactions: CleanedTransactions) -> None:
        log = self._log
        segments = log.segments
        at = self._index_of(source)
        following = segments[at + 1].base_offset if at + 1 < len(segments) else log.log_end_offset
        transactions.expect(log.aborted_transactions(source.base_offset, following))
        rules = BatchFilter(
            self._offset_map,
            transactions,
            last_batches(log),
            now_ms=self._now_ms,
            delete_retention_ms=log.config.delete_retention_ms,
            end_offset=log.high_watermark,
            slices=self._slices,
            pause=self._pause,
        )
        with SegmentReader(self._files, source) as reader:
            while (found := await reader.next()) is not None:
                header, batch = found
                kept = await rules.filter(header, batch)
                if kept is not None:
                    target.append(kept[0], len(kept[0]), header.last_offset, kept[1])
                if self._slices.is_over():
                    await self._pause()
        self._check()

    def _swap(self, new: Segment, old: Sequence[Segment]) -> None:
        log = self._log
        try:
            self._index_of(old[0])  # retention begins with the oldest: if it is there, all are
        except CleaningAborted:
            self._discard(new)
            raise
        try:
            log.replace_segments(new, old)
        except OSError as error:
            log.fail(error)  # some files are renamed, some not: the next start completes or undoes it
            raise

    def _index_of(self, segment: Segment) -> int:
        try:
            return self._log.segments.index(segment)
        except ValueError:
            raise CleaningAborted from None  # retention has removed it

    def _discard(self, new: Segment) -> None:
        """Remove the files of a segment that will not be used. If that fails, the next start removes them."""
        new.close()
        try:
            for path in new.paths():
                if self._files.exists(path):
                    self._files.remove(path)
        except OSError as error:
            _log.warning("cannot remove", path=new.log_path, error=str(error))


def last_batches(log: PartitionLog) -> dict[int, LastBatch]:
    """For each producer that the log remembers, the batch that a cleaning must keep."""
    return {
        producer_id: LastBatch(entry.batches[-1].last_offset if entry.batches else None, entry.producer_epoch)
        for producer_id, entry in log.producers.producers.items()
    }
