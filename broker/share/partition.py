"""`SharePartition`: a partition for one share group: its window, its stored state and its locks.

The first read of the group loads it from the persister. Acknowledged and released records change their state only when
the persister has stored the new state. Source: ``SharePartition``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import trio

from oncelog.broker.logging.logs import get_logger
from oncelog.broker.share.reading import BatchReader
from oncelog.broker.share.settings import EARLIEST, LATEST, duration_ms
from oncelog.broker.share.window.acknowledgement import acknowledge
from oncelog.broker.share.window.acquisition import Acquisition, without_aborted
from oncelog.broker.share.window.in_flight import NEVER
from oncelog.broker.share.window.window import StoredStateError, Window
from oncelog.coordinator.share.state import UNINITIALIZED_START_OFFSET
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.broker.cluster.cluster import LeaderPartition
    from oncelog.broker.log.results import FileRange, LogRead
    from oncelog.broker.share.delayed import DelayedShareFetch
    from oncelog.broker.share.manager import SharePartitionManager
    from oncelog.broker.share.window.acknowledgement import Acknowledgement
    from oncelog.broker.share.window.acquisition import Acquired
    from oncelog.broker.share.window.window import DeadLetterRange
    from oncelog.coordinator.share.state import StateBatch
    from oncelog.wire.schema import Uuid

_CLIENT_ERROR = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
"""The client's error for each of the persister's (``fetchPersisterError``); UNKNOWN_SERVER_ERROR for any other."""
_FENCING = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)
"""Errors after which the share partition is made anew (``fencedSharePartitionHandler``)."""
NOTHING = b""

_log = get_logger(__name__)


class AcquiredRecords(NamedTuple):
    """Record batches of a partition for a member, and the ranges of offsets in them that it has acquired."""

    acquired: Sequence[Acquired]
    records: FileRange | bytes


class SharePartition:
    """One partition for one group. ``window`` is None until it is loaded."""

    __slots__ = (
        "_deadline",
        "_is_writing_dead_letters",
        "_manager",
        "_predecessor",
        "_store_count",
        "_stores_ended",
        "error",
        "group_id",
        "is_fenced",
        "leader",
        "partition",
        "state_epoch",
        "topic",
        "topic_id",
        "waiters",
        "window",
    )

    def __init__(
        self,
        manager: SharePartitionManager,
        group_id: str,
        topic: str,
        topic_id: Uuid,
        partition: int,
        leader: LeaderPartition,
        predecessor: SharePartition | None = None,
    ) -> None:
        """``predecessor`` was removed, and may still store states, which this one waits for."""
        self._manager = manager
        self.group_id = group_id
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.leader = leader
        self.state_epoch = 0
        self.window: Window | None = None
        self.error: KafkaError | None = None
        """Why it could not be loaded."""
        self.is_fenced = False
        """Whether the manager has removed it: then no member acquires records of it."""
        self.waiters: dict[DelayedShareFetch, None] = {}
        """The fetches to wake when records may have become available."""
        self._deadline = NEVER
        """When the manager's timer calls `expire`."""
        self._predecessor = predecessor
        self._is_writing_dead_letters = False
        self._store_count = 0
        """Stores under way that a successor waits for. That of expired locks counts only if it has dead letters."""
        self._stores_ended = trio.Event()
        """Set when it is fenced, and its last store has ended."""

    def __repr__(self) -> str:
        return f"SharePartition({self.group_id!r}, {self.topic}-{self.partition}, {self.window})"

    def wake(self) -> None:
        """Tell the delayed fetches that records may have become available."""
        for waiter in tuple(self.waiters):
            waiter.wake()

    @property
    def is_storing(self) -> bool:
        """Whether a successor has to wait before it loads the state."""
        return self._store_count > 0

    # -- loading

    async def load(self) -> None:
        """Load the stored state. Sets `window`, or `error`."""
        try:
            if self._predecessor is not None and self._predecessor.is_storing:
                await self._predecessor._stores_ended.wait()
            self._predecessor = None
            state = await self._manager.persister.read(
                self.group_id, self.topic_id, self.partition, self.leader.leader_epoch
            )
            start = state.start_offset
            if start == UNINITIALIZED_START_OFFSET:
                start = await self._first_offset()
            self.window = Window(start, self._manager.settings(self.group_id).limits, state.batches)
            self.state_epoch = state.state_epoch
            self._begin_dead_letters()
        except KafkaError as error:
            self._fail(error.code if self._is_from_log(error) else _client_code(error), str(error))
        except StoredStateError as error:
            _log.error(
                "the stored state of a share partition contradicts itself",
                group=self.group_id,
                topic=self.topic,
                partition=self.partition,
                error=str(error),
            )
            self._fail(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        finally:
            for waiter in tuple(self.waiters):
                waiter.note_loaded(self)

    @staticmethod
    def _is_from_log(error: KafkaError) -> bool:
        """Whether the error comes from the log, not from the persister: clients get it as it is."""
        return error.code in (ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR)

    def _fail(self, code: ErrorCode, text: str) -> None:
        self.error = KafkaError(code, text)
        self._manager.remove(self)

    async def _first_offset(self) -> int:
        """Return the group's first offset, by ``share.auto.offset.reset``. Raises KafkaError: OFFSET_NOT_AVAILABLE."""
        log = self.leader.log
        reset = self._manager.settings(self.group_id).reset
        if reset == LATEST:
            if log.high_watermark < self.leader.epoch_start_offset:
                raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
            return log.high_watermark
        if reset == EARLIEST:
            return log.log_start_offset
        since_ms = self._manager.clock.now_ms() - duration_ms(reset)
        found = await log.searched(log.offset_for_timestamp(since_ms))
        if found is None or found.offset >= log.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"Offset for timestamp not found for topic partition: {self.topic}-{self.partition}",
            )
        offset: int = found.offset
        return offset

    # -- reading

    def fetch_offset(self) -> int | None:
        """Return the offset of the next record to acquire; None if the window has no room for one."""
        window = self.window
        if window is None or self.is_fenced or not self.leader.is_current:
            return None
        window.limits = self._manager.settings(self.group_id).limits
        if not window.can_acquire():
            return None
        return window.next_fetch_offset()

    def read(self, offset: int, max_bytes: int, *, minimum_one: bool) -> LogRead:
        """Read up to ``max_bytes`` of the log from the offset on; the caller releases the range of the file.
        ``minimum_one``: the first batch counts whatever its size.

        Raises KafkaError: OFFSET_OUT_OF_RANGE if the log begins later (see `move_log_start`), KAFKA_STORAGE_ERROR.
        """
        log = self.leader.log
        reads_committed = self._manager.settings(self.group_id).reads_committed
        bound = log.last_stable_offset if reads_committed else log.high_watermark
        return log.read(offset, max_bytes, minimum_one=minimum_one, up_to=bound)

    def move_log_start(self) -> None:
        """Move the window to the log start offset, after a read of an offset before it."""
        if self.window is not None:
            self.window.move_log_start(self.leader.log.log_start_offset)

    def acquire(
        self,
        member_id: str,
        offset: int,
        found: LogRead,
        records_max: int,
        *,
        batch_size: int,
        by_record: bool,
        may_block: bool,
    ) -> AcquiredRecords:
        """Acquire records for a member, of those that were ``found`` from the offset on.

        Raises NotCached unless ``may_block``, and KafkaError (KAFKA_STORAGE_ERROR); nothing is acquired then.
        """
        window, records = self.window, found.records
        assert window is not None
        if isinstance(records, bytes) or records_max <= 0:
            return AcquiredRecords((), NOTHING)
        settings = self._manager.settings(self.group_id)
        log = self.leader.log
        reader = BatchReader(records, may_block=may_block)
        try:
            reader.read(max(window.end_offset, offset) + records_max, found.next_offset)
            aborted = []
            if settings.reads_committed and reader.batches:
                transactions = log.aborted_transactions(offset, reader.batches[-1].last + 1)
                aborted = reader.aborted(transactions) if transactions else []
            now = self._manager.clock.monotonic()
            bounds = [(batch.first, batch.last) for batch in reader.batches]
            acquisition = Acquisition(
                window,
                member_id,
                bounds,
                now + settings.lock_ms / 1000,
                batch_size=batch_size,
                by_record=by_record,
            )
            acquired = acquisition.acquire(offset, records_max)
            if acquired and aborted:
                acquired = without_aborted(window, acquired, aborted)
            if not acquired:
                # Records that no member gets must not fill the window: it would never move on.
                if window.advance():
                    self.wake()
                return AcquiredRecords((), NOTHING)
            self.watch_locks()
            return AcquiredRecords(acquired, reader.slice(acquired[0].first, acquired[-1].last))
        except OSError as error:
            raise log.storage_error(error) from error

    # -- acknowledgements

    def acknowledge(self, member_id: str, acknowledgements: Sequence[Acknowledgement]) -> Storing:
        """Begin the transitions that a member's acknowledgements ask for. They hold when they are stored.

        Raises KafkaError: INVALID_RECORD_STATE, INVALID_REQUEST. The records are as before then.
        """
        window = self.window
        if window is None:
            raise KafkaError(
                ErrorCode.INVALID_RECORD_STATE,
                "Batch record not found. The request batch offsets are not found in the cache.",
            )
        settings = self._manager.settings(self.group_id)
        window.limits = settings.limits
        deadline = self._manager.clock.monotonic() + settings.lock_ms / 1000
        return Storing(self, acknowledge(window, member_id, acknowledgements, deadline))

    def release(self, member_id: str) -> Storing | None:
        """Begin to release the records that a member has acquired; None if it has none."""
        if self.window is None:
            return None
        changes = self.window.release(member_id)
        return Storing(self, changes) if changes else None

    def begin_store(self) -> None:
        """A store is about to begin."""
        self._store_count += 1

    def end_store(self, changes: Sequence[StateBatch], *, is_stored: bool) -> None:
        """A store has ended: the transitions hold, or the members still have the records."""
        self._count_down()
        if changes:
            assert self.window is not None
            self.window.complete(changes, is_stored=is_stored)
            self._begin_dead_letters()
            self.watch_locks()
            self.wake()

    def _count_down(self) -> None:
        self._store_count -= 1
        if not self._store_count and self.is_fenced:
            self._stores_ended.set()

    async def store(self, changes: Sequence[StateBatch]) -> None:
        """Store the new states of records. Raises KafkaError, with the error code for clients."""
        window = self.window
        assert window is not None
        try:
            await self._manager.persister.write(
                self.group_id,
                self.topic_id,
                self.partition,
                self.state_epoch,
                self.leader.leader_epoch,
                window.start_offset,
                window.delivery_complete_count,
                changes,
            )
        except KafkaError as error:
            code = _client_code(error)
            if code in _FENCING:
                self._manager.remove(self)
            raise KafkaError(code, error.message) from error

    # -- locks

    def watch_locks(self) -> None:
        """Have the manager's timer call `expire` when the next lock ends."""
        window = self.window
        if window is None or self.is_fenced:
            return
        at = window.next_deadline()
        if at < self._deadline:
            self._deadline = at
            self._manager.set_deadline(self, at)

    def expire(self) -> None:
        """Release the records whose locks have ended, or archive them after their last delivery. That holds at once,
        also if it cannot be stored.
        """
        self._deadline = NEVER
        window = self.window
        if window is None or self.is_fenced:
            return
        window.limits = self._manager.settings(self.group_id).limits
        changes = window.expire(self._manager.clock.monotonic())
        self.watch_locks()
        if changes:
            self._manager.timer_event(
                "record locks ended",
                group=self.group_id,
                topic=self.topic,
                partition=self.partition,
                count=sum(last - first + 1 for first, last, _, _ in changes),
            )
            # Their state must be stored before they are written: then `_store_expired` gives them back to the window.
            letters = window.take_dead_letters()
            if letters:
                self.begin_store()
            self._manager.spawn(self._store_expired(changes, letters))
            self.wake()

    async def _store_expired(self, changes: Sequence[StateBatch], letters: Sequence[DeadLetterRange]) -> None:
        """Store the end of locks; only then are ``letters`` written."""
        try:
            await self.store(changes)
        except KafkaError as error:
            _log.debug(
                "the release of records whose locks ended was not stored",
                group=self.group_id,
                error=str(error),
            )
        assert self.window is not None
        if self.window.advance():
            self.wake()
        if letters:
            self.window.dead_letters += letters
            self._begin_dead_letters()
            self._count_down()

    # -- dead letters

    def _begin_dead_letters(self) -> None:
        """Begin to write the dead letters, unless a task already does: it also takes those that come meanwhile. Then
        their records are archived, and that is stored.
        """
        if self.window is not None and self.window.dead_letters and not self._is_writing_dead_letters:
            self._is_writing_dead_letters = True
            self.begin_store()
            self._manager.spawn(self._write_dead_letters(self.window))

    async def _write_dead_letters(self, window: Window) -> None:
        try:
            while letters := window.take_dead_letters():
                await self._manager.write_dead_letters(self, letters)
                try:
                    await self.store(window.archive_dead_letters(letters))
                except KafkaError as error:
                    _log.error(
                        "the archived state of dead letters was not stored",
                        group=self.group_id,
                        error=str(error),
                    )
                if window.advance():
                    self.wake()
        finally:
            self._is_writing_dead_letters = False
            self._count_down()


class Storing:
    """Transitions of records that have begun. Either `run` or `abandon` ends them; they end once."""

    __slots__ = ("_changes", "_is_over", "_partition")

    def __init__(self, partition: SharePartition, changes: Sequence[StateBatch]) -> None:
        self._partition = partition
        self._changes = changes
        self._is_over = False
        partition.begin_store()

    async def run(self) -> None:
        """Store them. Raises KafkaError: they are undone then."""
        is_stored = False
        self._is_over = True
        try:
            if self._changes:
                await self._partition.store(self._changes)
            is_stored = True
        finally:
            self._partition.end_store(self._changes, is_stored=is_stored)

    def abandon(self) -> None:
        """Undo them, unless they were stored."""
        if not self._is_over:
            self._is_over = True
            self._partition.end_store(self._changes, is_stored=False)


def _client_code(error: KafkaError) -> ErrorCode:
    return _CLIENT_ERROR.get(error.code, ErrorCode.UNKNOWN_SERVER_ERROR)
