"""`ShareFetch`: one ShareFetch request's part that reads. It tries, once or several times, until the response is ready.

Source: ``DelayedShareFetch``, ``ShareFetchUtils``, ``SharePartitionManager.processShareFetch``.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from oncelog.broker.log.results import FileRange
from oncelog.broker.share.partition import NOTHING
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.share_fetch import AcquiredRecords, PartitionData

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from oncelog.broker.log.results import LogRead
    from oncelog.broker.share.manager import SharePartitionManager
    from oncelog.broker.share.partition import SharePartition
    from oncelog.broker.share.sessions import PartitionKey
    from oncelog.wire.messages.share_fetch import ShareFetchRequest

RECORD_LIMIT = 1
"""The acquire mode that never exceeds ``max_records`` (KIP-1206)."""
ACQUIRE_MODES = (0, RECORD_LIMIT)
"""0: batch_optimized, whole batches are acquired."""

Found = tuple["PartitionKey", "SharePartition", int, "LogRead | KafkaError"]
"""A share partition, the offset of its read, and the result of the read."""


class ShareFetch:
    """Reads ``partitions``, pairs of a key and the topic's name, for a member of a group.

    `partitions` has those that are loaded or being loaded, `rows` the row of each that was read, and `errors` the row
    of each that cannot be read. ``max_bytes`` is for the whole response.
    """

    def __init__(
        self,
        manager: SharePartitionManager,
        request: ShareFetchRequest,
        partitions: Sequence[tuple[PartitionKey, str]],
        max_bytes: int,
    ) -> None:
        assert request.group_id is not None
        assert request.member_id is not None
        self._request = request
        self._group_id = request.group_id
        self._member_id = request.member_id
        self._max_bytes = max_bytes
        self._min_bytes = min(request.min_bytes, max_bytes)
        self.partitions: dict[PartitionKey, SharePartition] = {}
        self.rows: dict[PartitionKey, PartitionData] = {}
        self.errors: dict[PartitionKey, PartitionData] = {}
        self._is_ready = False
        self._found_bytes = 0.0
        """What there was to read in all partitions at the last try, and in those that were loaded since."""
        self.is_empty = not partitions or not request.max_records or not max_bytes
        """Whether there is nothing to read."""
        if self.is_empty:
            return
        for key, topic in _rotated(partitions, request.share_session_epoch):
            try:
                self.partitions[key] = manager.get_or_load(self._group_id, topic, *key)
            except KafkaError as error:
                self.errors[key] = error_row(key[1], error)

    def try_complete(self, *, force: bool = False, may_block: bool = False) -> bool:
        """Read the records that the member can acquire, and acquire them if they are ``min_bytes``; with ``force`` in
        any case (Kafka: ``forceComplete``).

        Returns whether the response is ready, which it stays. Raises NotCached unless ``may_block``: nothing was
        acquired then.
        """
        if not self._is_ready:
            self._is_ready = self._try(force=force, may_block=may_block)
        return self._is_ready

    def note_loaded(self, partition: SharePartition) -> bool:
        """Count what there is to read in a partition that was loaded, or note why it cannot be. Do not look at the
        others: with thousands that are loaded one by one, that would be quadratic.

        Returns whether `try_complete` may succeed now.
        """
        key = (partition.topic_id, partition.partition)
        if partition.error is not None:
            self._note_error(key, partition.error)
            return not self.partitions
        offset = partition.fetch_offset()
        if offset is None:
            return False
        found = self._read([(key, partition, offset)])
        self._found_bytes += self._size(found)
        _release(found)
        return self._found_bytes >= self._min_bytes

    def _note_error(self, key: PartitionKey, error: KafkaError) -> None:
        self.errors[key] = error_row(key[1], error)
        del self.partitions[key]

    def _try(self, *, force: bool, may_block: bool) -> bool:
        for key, partition in list(self.partitions.items()):
            if partition.error is not None:
                self._note_error(key, partition.error)
        if not self.partitions:
            return True
        offsets = [
            (key, partition, offset)
            for key, partition in self.partitions.items()
            if (offset := partition.fetch_offset()) is not None
        ]
        if not offsets:
            return force
        found = self._read(offsets)
        try:
            self._found_bytes = self._size(found)
            if not force and self._found_bytes < self._min_bytes:
                return False
            self._acquire(found, may_block)
        finally:
            _release(found)
        return True

    def _read(self, offsets: Sequence[tuple[PartitionKey, SharePartition, int]]) -> list[Found]:
        bytes_each = max(1, self._max_bytes // len(offsets))
        is_first = True
        found: list[Found] = []
        for key, partition, offset in offsets:
            try:
                read = partition.read(offset, bytes_each, minimum_one=is_first)
            except KafkaError as error:
                found.append((key, partition, offset, error))
                continue
            is_first = is_first and not read.records
            found.append((key, partition, offset, read))
        return found

    def _size(self, found: Iterable[Found]) -> float:
        """The bytes to read; infinite with an error, or with records in an older segment: the response is ready."""
        size = 0
        for _, partition, _, read in found:
            if isinstance(read, KafkaError):
                return inf
            if isinstance(read.records, FileRange):
                if read.records.file is not partition.leader.log.active.file:
                    return inf
                size += read.records.size
        return size

    def _acquire(self, found: Iterable[Found], may_block: bool) -> None:
        request = self._request
        left = request.max_records
        rows: dict[PartitionKey, PartitionData] = {}
        try:
            for key, partition, offset, read in found:
                row = rows[key] = PartitionData(partition_index=key[1], records=NOTHING)
                try:
                    if isinstance(read, KafkaError):
                        raise read
                    got = partition.acquire(
                        self._member_id,
                        offset,
                        read,
                        left,
                        batch_size=request.batch_size,
                        by_record=request.share_acquire_mode == RECORD_LIMIT,
                        # Once records were acquired, NotCached would lose them.
                        may_block=may_block or bool(left < request.max_records),
                    )
                except KafkaError as error:
                    if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                        partition.move_log_start()  # the client asks again
                    else:
                        rows[key] = error_row(key[1], error)
                    continue
                row.records = got.records
                row.acquired_records = [AcquiredRecords(*one) for one in got.acquired]
                left -= sum(last - first + 1 for first, last, _ in got.acquired)
        except BaseException:
            release_rows(rows.values())
            raise
        self.rows = rows

    def release(self) -> None:
        """Drop the rows, which will not be sent."""
        release_rows(self.rows.values())
        self.rows = {}


def error_row(partition: int, error: KafkaError) -> PartitionData:
    """Return the row for a partition that cannot be read. Its error has no text, as in Kafka."""
    return PartitionData(partition_index=partition, error_code=error.code, records=NOTHING)


def _release(found: Iterable[Found]) -> None:
    for _, _, _, read in found:
        if not isinstance(read, KafkaError) and isinstance(read.records, FileRange):
            read.records.release()


def release_rows(rows: Iterable[PartitionData]) -> None:
    """Release the files of rows that are not sent."""
    for row in rows:
        if isinstance(row.records, FileRange):
            row.records.release()


def _rotated(
    partitions: Sequence[tuple[PartitionKey, str]], epoch: int
) -> Sequence[tuple[PartitionKey, str]]:
    """Return the partitions beginning with another one in each request of a session, so that all get their turn."""
    if len(partitions) < 2 or epoch < 1:
        return partitions
    begin = epoch % len(partitions)
    return [*partitions[begin:], *partitions[:begin]]
