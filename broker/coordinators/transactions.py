"""`Transactions`: the broker's side of transactional ids (``node.transactions``).

A decided transaction is finished in the same step where nothing has to wait: a marker in every partition, then the
record that it is complete. Where ``flush.messages`` asks for it, each of these is on the disk before the next is
written: a marker must not outlive its decision, nor the record of completion a marker. What cannot be written now is
tried again by a task; meanwhile the id's producer is told CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

import trio

from oncelog.broker.coordinators.shards import Shards
from oncelog.broker.log.producers.state import Origin
from oncelog.broker.logs import get_logger
from oncelog.broker.metadata.image import TRANSACTION_VERSION
from oncelog.broker.seams.clock import real_time
from oncelog.broker.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from oncelog.wire.control import end_transaction_marker
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from typing import Any

    from oncelog.broker.coordinators.shard_log import ShardLog
    from oncelog.broker.log.partition_log import PartitionLog
    from oncelog.broker.node import Node
    from oncelog.coordinator.transactions.shard import TransactionContext, TransactionShard
    from oncelog.coordinator.transactions.state import PendingEnd
    from oncelog.wire.schema import Message

    M = TypeVar("M", bound=Message)
else:
    M = TypeVar("M")

PATIENCE_S = 0.1
"""Seconds that a request waits for the end of its id's last transaction before it is told CONCURRENT_TRANSACTIONS:
real time, as of everything that a client waits for."""

_log = get_logger(__name__)

# The modules of transactions are imported with the first shard: a node that serves none shall not wait for them.


class _Written(NamedTuple):
    """A marker that is in a log, and counts when that is on the disk up to there."""

    topic: str
    partition: int
    log: PartitionLog
    up_to: int


class Transactions(Shards["TransactionShard"]):
    """The shards of ``__transaction_state``."""

    SKIPS_VERSIONS = True

    def __init__(self, node: Node) -> None:
        self._context: TransactionContext | None = None
        self._nursery: trio.Nursery | None = None
        self._ended: dict[PendingEnd, trio.Event] = {}
        """Who waits for a transaction to be complete."""
        super().__init__(node, TRANSACTIONS_TOPIC)

    @property
    def context(self) -> TransactionContext:
        if self._context is None:
            from oncelog.coordinator.transactions.shard import TransactionContext

            self._context = TransactionContext(
                now_ms=self.node.clock.now_ms,
                deadlines=self.deadlines,
                settings=lambda: self.node.config.current,
                transaction_version=self.transaction_version,
                next_producer_id=self.node.next_producer_id,
                on_prepared=self._on_prepared,
            )
        return self._context

    def transaction_version(self) -> int:
        """The finalized level of ``transaction.version``."""
        return self.node.metadata.image.features.get(TRANSACTION_VERSION, 0)

    def shard(self, transactional_id: str) -> TransactionShard:
        """The shard that stores the id. Raises KafkaError: COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR."""
        return self.shard_of(transactional_id)

    # -- what a shard is

    def make(self, partition: int, journal: ShardLog) -> TransactionShard:
        from oncelog.coordinator.transactions.shard import TransactionShard

        return TransactionShard(partition, journal.leader_partition().leader_epoch, journal, self.context)

    def record_types(self) -> tuple[Mapping[int, type[Message]], Mapping[int, type[Message]]]:
        from oncelog.wire.stored.transactions import KEY_TYPES, VALUE_TYPES

        return KEY_TYPES, VALUE_TYPES

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """As `Shards.run`, and finish transactions that have to wait for something."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                await nursery.start(super().run)
                task_status.started()
                await trio.sleep_forever()
            finally:
                # Before it closes: a request that could not be cancelled, since it waits for a thread, may be followed
                # by one that decides a transaction. The next start finishes that.
                self._nursery = None

    # -- requests

    def serve(
        self, transactional_id: str, step: Callable[[TransactionShard], M], refused: Callable[[KafkaError], M]
    ) -> M | Coroutine[Any, Any, M]:
        """What a handler returns: the response of ``step``, or a coroutine that waits for what it needs. ``refused``
        makes the response that tells of an error.
        """
        try:
            shard = self.shard(transactional_id)
            response = self._try(shard, transactional_id, step)
        except KafkaError as error:
            if error.code is ErrorCode.CONCURRENT_TRANSACTIONS and self.is_ending(shard, transactional_id):
                return self._serve_later(shard, transactional_id, step, refused)
            return refused(error)
        if self.is_ending(shard, transactional_id):
            return self._answer_ended(shard, transactional_id, response, refused)
        return self.answer(shard, response, refused)

    def _try(
        self, shard: TransactionShard, transactional_id: str, step: Callable[[TransactionShard], M]
    ) -> M:
        """Do the step. One that had to end another's transaction first, which is done by now, is done again."""
        try:
            return step(shard)
        except KafkaError as error:
            if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS or self.is_ending(shard, transactional_id):
                raise
            return step(shard)

    def is_ending(self, shard: TransactionShard, transactional_id: str) -> bool:
        """Whether markers are due that somebody here writes."""
        pending = self._pending(shard, transactional_id)
        return pending is not None and not pending.given_up

    @staticmethod
    def _pending(shard: TransactionShard, transactional_id: str) -> PendingEnd | None:
        known = shard.transactions.get(transactional_id)
        return None if known is None else known.volatile.pending_end

    async def _serve_later(
        self,
        shard: TransactionShard,
        transactional_id: str,
        step: Callable[[TransactionShard], M],
        refused: Callable[[KafkaError], M],
    ) -> M:
        await self.wait_ended(shard, transactional_id, real_time.monotonic() + PATIENCE_S)
        try:
            response = self._try(self.shard(transactional_id), transactional_id, step)
        except KafkaError as error:
            return refused(error)
        return await self._answer_durable([shard], response, refused)

    async def _answer_ended(
        self, shard: TransactionShard, transactional_id: str, response: M, refused: Callable[[KafkaError], M]
    ) -> M:
        """A decision counts once it is on the disk; where its markers follow soon, the answer comes after them."""
        await self.wait_ended(shard, transactional_id, real_time.monotonic() + PATIENCE_S)
        return await self._answer_durable([shard], response, refused)

    async def wait_ended(self, shard: TransactionShard, transactional_id: str, until: float) -> None:
        """Return when the id's decided transaction is complete, or at that time (seconds of real time)."""
        pending = self._pending(shard, transactional_id)
        if pending is not None:
            ended = self._ended.setdefault(pending, trio.Event())
            with real_time.move_on_at(until):
                await ended.wait()

    # -- finishing what is decided

    def _on_prepared(self, shard: TransactionShard, pending: PendingEnd) -> None:
        try:
            waits = not self._finish_now(shard, pending)
        except KafkaError:
            waits = True
        except Exception:
            self._failed_by_us(pending)
            waits = True
        if waits and not pending.given_up and self._nursery is not None:
            self._nursery.start_soon(self._finish, shard, pending)

    def _finish_now(self, shard: TransactionShard, pending: PendingEnd) -> bool:
        """Whether it could be finished without waiting. Raises KafkaError."""
        if not self.journal_of(shard).is_durable():
            return False
        if self._write_markers(shard, pending) or pending.partitions:
            return False
        self._complete(shard, pending)
        return True

    async def _finish(self, shard: TransactionShard, pending: PendingEnd) -> None:
        from oncelog.coordinator.transactions import markers

        while markers.is_current(shard, pending):
            try:
                await self.journal_of(shard).wait_durable()
                await self._write_durable_markers(shard, pending)
                if markers.is_current(shard, pending) and not pending.partitions:
                    self._complete(shard, pending)
                    return
            except KafkaError as error:
                self.node.lines.write(
                    _log.warning,
                    "a transaction could not be completed yet",
                    {"id": pending.transactional_id},
                    error=error,
                )
            except Exception:
                self._failed_by_us(pending)
            await real_time.sleep(markers.retry_delay_ms(pending) / 1000)
        self._tell_ended(pending)

    async def _write_durable_markers(self, shard: TransactionShard, pending: PendingEnd) -> None:
        from oncelog.coordinator.transactions import markers

        if not markers.is_current(shard, pending):
            return
        async with trio.open_nursery() as nursery:
            for row in self._write_markers(shard, pending):
                nursery.start_soon(self._flush_marker, pending, row)

    async def _flush_marker(self, pending: PendingEnd, row: _Written) -> None:
        code = ErrorCode.NONE
        try:
            await row.log.flush(row.up_to)
        except KafkaError as error:
            code = error.code
        self._settle(pending, row.topic, row.partition, code)

    def _complete(self, shard: TransactionShard, pending: PendingEnd) -> None:
        from oncelog.coordinator.transactions import markers

        markers.complete(shard, pending)
        self._tell_ended(pending)

    def _tell_ended(self, pending: PendingEnd) -> None:
        ended = self._ended.pop(pending, None)
        if ended is not None:
            ended.set()

    def _write_markers(self, shard: TransactionShard, pending: PendingEnd) -> list[_Written]:
        """Append a marker to each partition that waits for one; those that must be flushed before they count."""
        metadata = pending.metadata
        marker = end_transaction_marker(
            commit=pending.committed,
            coordinator_epoch=shard.coordinator_epoch,
            producer_id=metadata.producer_id,
            producer_epoch=metadata.producer_epoch,
            timestamp=self.node.clock.now_ms(),
        )
        written = []
        for topic, partition in list(pending.partitions):
            code = ErrorCode.NONE
            try:
                log, up_to = self._write_marker(shard, pending, topic, partition, marker)
                if log.high_watermark < up_to:
                    written.append(_Written(topic, partition, log, up_to))
                    continue
            except KafkaError as error:
                code = error.code
            self._settle(pending, topic, partition, code)
        return written

    def _write_marker(
        self, shard: TransactionShard, pending: PendingEnd, topic: str, partition: int, marker: bytearray
    ) -> tuple[PartitionLog, int]:
        """The log, and the offset after the marker, of which a copy is written. Raises KafkaError."""
        metadata = pending.metadata
        if topic == OFFSETS_TOPIC:
            groups = self.node.groups
            group_shard = groups.complete_transaction(
                partition,
                metadata.producer_id,
                metadata.producer_epoch,
                shard.coordinator_epoch,
                metadata.client_version,
                committed=pending.committed,
            )
            log = groups.journal_of(group_shard).leader_partition().log
            return log, log.log_end_offset
        leader = self.node.cluster.leader_partition(topic, partition)
        result = leader.log.append(
            bytearray(marker),
            leader_epoch=leader.leader_epoch,
            origin=Origin.COORDINATOR,
            transaction_version=metadata.client_version,
        )
        return leader.log, result.last_offset + 1

    def _settle(self, pending: PendingEnd, topic: str, partition: int, code: ErrorCode) -> None:
        from oncelog.coordinator.transactions import markers

        known = self.node.cluster.topic(topic)
        exists = known is not None and partition < len(known.partitions)
        outcome = markers.on_marker_appended(pending, topic, partition, code, exists=exists)
        if code is not ErrorCode.NONE:
            self.node.lines.write(
                _log.warning,
                "marker not written",
                {"id": pending.transactional_id, "topic": topic, "partition": partition},
                error=code.name,
                outcome=outcome.name,
            )

    def _failed_by_us(self, pending: PendingEnd) -> None:
        _log.exception("a transaction was not completed by our own fault", id=pending.transactional_id)
        self.node.note_bug()
