"""`MarkerWriter`: writes the markers of decided transactions, then the record that each is complete.

The decision is committed before a marker is written, and every marker before the record of completion: after a crash no
marker may exist without its decision, and no record of completion without the markers. On an only node, the step that
decides a transaction writes all of them if they are few and nothing has to be flushed. Else a task does, which lets
other tasks run between markers and tries again what cannot be written. Partitions that other nodes lead get their
markers from these, by WriteTxnMarkers; a node that waits for its followers holds up no other one. Source:
``TransactionMarkerChannelManager``;
`oncelog.coordinator.transactions.markers` handles the outcomes.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import trio

from oncelog.broker.log.producers.state import AppendOrigin
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.metadata.image import NO_LEADER
from oncelog.broker.scheduling.slices import Slices, in_slices
from oncelog.broker.seams.clock import real_time
from oncelog.wire.control import end_transaction_marker
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.topic_names import OFFSETS_TOPIC

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from oncelog.broker.cluster.cluster import LeaderPartition
    from oncelog.broker.coordinators.environment import CoordinatorEnvironment
    from oncelog.broker.coordinators.groups import GroupCoordinator
    from oncelog.broker.coordinators.runtime import CoordinatorRuntime
    from oncelog.broker.metadata.image import Topic
    from oncelog.coordinator.transactions.shard import TransactionShard
    from oncelog.coordinator.transactions.state import PendingEnd

TopicPartition: TypeAlias = tuple[str, int]

MARKERS_VERSION = 2
"""The version of WriteTxnMarkers that has the transaction version."""

AT_ONCE = 50
"""So many markers are written without letting other tasks run in between."""

END_OF_TRANSACTION = "end of transaction "
"""With the transactional id, what `BackgroundWork` shows while a transaction has to wait for its end."""

_log = get_logger(__name__)


class _UncommittedMarker(NamedTuple):
    """An appended marker. It is committed when the watermark is at ``up_to``."""

    topic: str
    partition: int
    leader: LeaderPartition
    up_to: int


class MarkerWriter:
    """Ends the transactions of ``runtime``'s shards. ``groups`` ends those of the partitions with offsets."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[TransactionShard],
        groups: GroupCoordinator,
        environment: CoordinatorEnvironment,
    ) -> None:
        self._runtime = runtime
        self._groups = groups
        self._config = environment.config
        self._cluster = environment.cluster
        self._clock = environment.clock
        self._lines = environment.lines
        self._background = environment.background
        self._note_internal_error = environment.note_internal_error
        self._nursery: trio.Nursery | None = None
        self._ended: dict[PendingEnd, trio.Event] = {}
        """The event is set when the transaction is complete, or when this node no longer ends it."""
        self._leaders_changed = trio.Event()
        if self._cluster.links is not None:
            self._cluster.subscribe(self._on_new_epoch)

    def _on_new_epoch(self, topic: Topic, partition: int) -> None:
        self._leaders_changed.set()
        self._leaders_changed = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Finish transactions that have to wait for something, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                task_status.started()
                await trio.sleep_forever()
            finally:
                # A request that waits for a thread cannot be cancelled, and may decide a transaction after this. The
                # next start of the node finishes it.
                self._nursery = None

    # -- for requests

    def is_ending(self, shard: TransactionShard, transactional_id: str) -> bool:
        """Whether this node still has markers of the id to write."""
        pending = _pending_end(shard, transactional_id)
        return pending is not None and not pending.given_up

    async def wait_ended(self, shard: TransactionShard, transactional_id: str, until: float) -> None:
        """Wait until the id's decided transaction is complete, at most until ``until`` (seconds of real time)."""
        pending = _pending_end(shard, transactional_id)
        if pending is not None:
            ended = self._ended.setdefault(pending, trio.Event())
            with real_time.move_on_at(until):
                await ended.wait()

    # -- finishing a transaction

    def on_prepared(self, shard: TransactionShard, pending: PendingEnd) -> None:
        """A transaction was decided. Finish it now if possible, else in a task. Raises nothing."""
        try:
            waits = not self._finish_now(shard, pending)
        except KafkaError:
            waits = True
        except Exception:
            self._report_internal_error(pending)
            waits = True
        if waits and not pending.given_up and self._nursery is not None:
            self._nursery.start_soon(self._finish, shard, pending)

    def _finish_now(self, shard: TransactionShard, pending: PendingEnd) -> bool:
        """Returns False if it has to wait for a flush, a retry or other nodes. Raises KafkaError."""
        if self._cluster.links is not None or not self._runtime.log_of(shard).is_durable():
            return False
        if len(pending.partitions) > AT_ONCE:
            return False
        uncommitted: list[_UncommittedMarker] = []
        for _ in self._write_markers(shard, pending, list(pending.partitions), uncommitted):
            pass
        if uncommitted or pending.partitions:
            return False
        self._complete(shard, pending)
        return True

    async def _finish(self, shard: TransactionShard, pending: PendingEnd) -> None:
        with self._background.running(END_OF_TRANSACTION + pending.transactional_id):
            await self._finish_until_done(shard, pending)

    async def _finish_until_done(self, shard: TransactionShard, pending: PendingEnd) -> None:
        from oncelog.coordinator.transactions import markers

        retries = 0
        while markers.is_current(shard, pending):
            try:
                await self._runtime.log_of(shard).wait_durable()
                if not markers.is_current(shard, pending):
                    break
                async with trio.open_nursery() as nursery:
                    self._have_written(nursery, shard, pending, pending.partitions, 0)
                if markers.is_current(shard, pending) and not pending.partitions:
                    self._complete(shard, pending)
                    return
            except KafkaError as error:
                about = {"id": pending.transactional_id}
                self._lines.write(
                    _log.warning, "a transaction could not be completed yet", about, error=error
                )
            except Exception:
                self._report_internal_error(pending)
            await self._pause(retries)
            retries += 1
        self._set_ended(pending)

    async def _pause(self, retries: int) -> None:
        """Wait for the next attempt, or until another node may take what failed: a leader has changed, or a node can be
        reached again.
        """
        from oncelog.coordinator.transactions import markers

        events = [self._leaders_changed]
        if self._cluster.links is not None:
            events.append(self._cluster.links.network.changed)
        with real_time.move_on_after(markers.retry_delay_ms(retries) / 1000):
            async with trio.open_nursery() as nursery:

                async def wait(event: trio.Event) -> None:
                    await event.wait()
                    nursery.cancel_scope.cancel()

                for event in events:
                    nursery.start_soon(wait, event)

    def _have_written(
        self,
        nursery: trio.Nursery,
        shard: TransactionShard,
        pending: PendingEnd,
        partitions: Iterable[TopicPartition],
        retries: int,
    ) -> None:
        """Write the markers of partitions that this node leads, and have the other leaders write theirs: for each of
        them, a task waits until that is done.
        """
        by_leader: dict[int | None, list[TopicPartition]] = {}
        for topic, partition in partitions:
            by_leader.setdefault(self._leads_another(topic, partition), []).append((topic, partition))
        for leader, theirs in by_leader.items():
            if leader is None:
                uncommitted: list[_UncommittedMarker] = []
                steps = self._write_markers(shard, pending, theirs, uncommitted)
                for _ in islice(steps, AT_ONCE):  # before a write that has waited for the same flush
                    pass
                wait = partial(self._write_rest, pending, steps, uncommitted)
            else:
                wait = partial(self._send_markers, shard, pending, leader, theirs)
            nursery.start_soon(self._retry_after, wait, nursery, shard, pending, theirs, retries)

    async def _retry_after(
        self,
        wait: Callable[[], Awaitable[None]],
        nursery: trio.Nursery,
        shard: TransactionShard,
        pending: PendingEnd,
        partitions: list[TopicPartition],
        retries: int,
    ) -> None:
        """Wait for one leader's markers. What failed is tried again, at the leaders of then."""
        from oncelog.coordinator.transactions import markers

        await wait()
        left = [one for one in partitions if one in pending.partitions]
        if left and markers.is_current(shard, pending):
            await self._pause(retries)
            if markers.is_current(shard, pending):
                self._have_written(nursery, shard, pending, left, retries + 1)

    async def _write_rest(
        self, pending: PendingEnd, steps: Iterator[None], uncommitted: list[_UncommittedMarker]
    ) -> None:
        """Take the ``steps`` of `_write_markers`. Wait until each marker is committed, or late."""
        await in_slices(steps)
        slices = Slices()
        async with trio.open_nursery() as nursery:
            for marker in uncommitted:
                nursery.start_soon(self._wait_committed, pending, marker)
                if slices.is_over():
                    await slices.pause()

    async def _wait_committed(self, pending: PendingEnd, marker: _UncommittedMarker) -> None:
        code = ErrorCode.NONE
        try:
            await marker.leader.wait_committed(marker.up_to, self._config.current.request_timeout_ms / 1000)
        except KafkaError as error:
            code = error.code
        self._settle(pending, marker.topic, marker.partition, code)

    # -- partitions of other nodes

    def _leads_another(self, topic: str, partition: int) -> int | None:
        """Return the other node that leads a partition, None if no other one does."""
        known = self._cluster.topic(topic)
        if known is None or partition >= len(known.partitions):
            return None
        leader = known.partitions[partition].leader
        return None if leader in (NO_LEADER, self._cluster.node_id) else leader

    async def _send_markers(
        self, shard: TransactionShard, pending: PendingEnd, leader: int, partitions: list[TopicPartition]
    ) -> None:
        """Have another node write the markers of partitions that it leads."""
        from oncelog.broker.network.network import LinkDownError
        from oncelog.wire.messages.write_txn_markers import (
            WritableTxnMarker,
            WritableTxnMarkerTopic,
            WriteTxnMarkersRequest,
        )

        metadata = pending.metadata
        by_topic: dict[str, list[int]] = {}
        for topic, partition in partitions:
            by_topic.setdefault(topic, []).append(partition)
        marker = WritableTxnMarker(
            metadata.producer_id,
            metadata.producer_epoch,
            pending.committed,
            [WritableTxnMarkerTopic(topic, indexes) for topic, indexes in by_topic.items()],
            shard.coordinator_epoch,
            metadata.client_version,
        )
        links = self._cluster.links
        assert links is not None
        try:
            response = await links.to(leader).call(WriteTxnMarkersRequest([marker]), MARKERS_VERSION)
        except LinkDownError:
            return  # a marker that was written nevertheless, may be written again
        for result in response.markers:
            for settled in result.topics:
                for row in settled.partitions:
                    self._settle(pending, settled.name, row.partition_index, ErrorCode(row.error_code))

    # -- partitions of this node

    def _complete(self, shard: TransactionShard, pending: PendingEnd) -> None:
        from oncelog.coordinator.transactions import markers

        markers.complete(shard, pending)
        self._set_ended(pending)

    def _set_ended(self, pending: PendingEnd) -> None:
        ended = self._ended.pop(pending, None)
        if ended is not None:
            ended.set()

    def _write_markers(
        self,
        shard: TransactionShard,
        pending: PendingEnd,
        partitions: Iterable[TopicPartition],
        uncommitted: list[_UncommittedMarker],
    ) -> Iterator[None]:
        """Append a marker to each of these partitions, one at each step, unless another coordinator has taken over.
        ``uncommitted`` gets the markers that are not committed yet.
        """
        from oncelog.coordinator.transactions import markers

        metadata = pending.metadata
        marker = end_transaction_marker(
            commit=pending.committed,
            coordinator_epoch=shard.coordinator_epoch,
            producer_id=metadata.producer_id,
            producer_epoch=metadata.producer_epoch,
            timestamp=self._clock.now_ms(),
        )
        for topic, partition in partitions:
            if not markers.is_current(shard, pending):
                return
            yield
            code = ErrorCode.NONE
            try:
                leader, up_to = self._write_marker(shard, pending, topic, partition, marker)
                if leader.log.high_watermark < up_to:
                    uncommitted.append(_UncommittedMarker(topic, partition, leader, up_to))
                    continue
            except KafkaError as error:
                code = error.code
            self._settle(pending, topic, partition, code)

    def _write_marker(
        self, shard: TransactionShard, pending: PendingEnd, topic: str, partition: int, marker: bytearray
    ) -> tuple[LeaderPartition, int]:
        """Append a copy of ``marker``. Returns the partition and the offset after the marker. Raises KafkaError."""
        metadata = pending.metadata
        if topic == OFFSETS_TOPIC:
            group_shard = self._groups.complete_transaction(
                partition,
                metadata.producer_id,
                metadata.producer_epoch,
                shard.coordinator_epoch,
                metadata.client_version,
                committed=pending.committed,
            )
            leader = self._groups.runtime.log_of(group_shard).leader_partition()
            return leader, leader.log.log_end_offset
        leader = self._cluster.leader_partition(topic, partition)
        leader.check_isr()
        result = leader.log.append(
            bytearray(marker),
            leader_epoch=leader.leader_epoch,
            origin=AppendOrigin.COORDINATOR,
            transaction_version=metadata.client_version,
        )
        return leader, result.last_offset + 1

    def _settle(self, pending: PendingEnd, topic: str, partition: int, code: ErrorCode) -> None:
        from oncelog.coordinator.transactions import markers

        known = self._cluster.topic(topic)
        exists = known is not None and partition < len(known.partitions)
        outcome = markers.on_marker_appended(pending, topic, partition, code, exists=exists)
        if code is not ErrorCode.NONE:
            self._lines.write(
                _log.warning,
                "marker not written",
                {"id": pending.transactional_id, "topic": topic, "partition": partition},
                error=code.name,
                outcome=outcome.name,
            )

    def _report_internal_error(self, pending: PendingEnd) -> None:
        _log.exception("a transaction was not completed with an internal error", id=pending.transactional_id)
        self._note_internal_error()


def _pending_end(shard: TransactionShard, transactional_id: str) -> PendingEnd | None:
    known = shard.transactions.get(transactional_id)
    return None if known is None else known.volatile.pending_end
