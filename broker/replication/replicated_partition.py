"""`ReplicatedPartition`: a partition that this node leads and others follow. It moves the high watermark, and keeps
the ISR.

The watermark is the lowest log end offset of the replicas in the (maximal) ISR, and of those that have just caught up
and will join it: otherwise a lonely leader would run ahead of a follower for ever. It stands still below
``min.insync.replicas``: what was committed stays known to so many replicas (KIP-966).

What moves it: a follower's fetch, an append or flush of the leader's own log, another ISR. Who moves it completes what
waits. Source: Kafka's ``Partition``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncelog.broker.cluster.cluster import LeaderPartition
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.replication.followers import UNKNOWN_BROKER_EPOCH, FollowerState
from oncelog.broker.replication.isr import Answer, Isr, answer_to
from oncelog.broker.replication.read_replica import RACK_AWARE_SELECTOR, ReplicaView, select_replica
from oncelog.broker.replication.waits import OffsetWaits
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncelog.broker.config.dynamic import DynamicBrokerConfig
    from oncelog.broker.log.partition_log import PartitionLog
    from oncelog.broker.metadata.cluster_metadata import ClusterMetadata
    from oncelog.broker.metadata.image import Partition
    from oncelog.broker.seams.clock import Clock
    from oncelog.wire.messages.alter_partition import PartitionResult

ACKS_ALL = -1
FLUSH_NEVER = (1 << 63) - 1
"""``flush.messages`` where nothing waits for the disk."""

_log = get_logger(__name__)


class LeaderEnvironment(NamedTuple):
    """What the partitions that a node leads use."""

    node_id: int
    config: DynamicBrokerConfig
    metadata: ClusterMetadata
    clock: Clock
    propose: Callable[[ReplicatedPartition], None]
    """Sends the proposed ISR of a partition to the controller."""

    def alive_broker_epoch(self, node_id: int) -> int | None:
        """Return the epoch of a node's registration; None while it is fenced."""
        broker = self.metadata.image.brokers.get(node_id)
        return None if broker is None or broker.fenced else broker.broker_epoch


class ReplicatedPartition(LeaderPartition):
    """A partition with several replicas, or which had several, in one leader epoch of this node."""

    __slots__ = (
        "_committed_offset",
        "_deletions",
        "_env",
        "_successor",
        "_watermark_waits",
        "epoch_start_offset",
        "followers",
        "isr",
        "partition_epoch",
    )

    is_replicated = True

    def __init__(
        self,
        env: LeaderEnvironment,
        log: PartitionLog,
        state: Partition,
        previous: LeaderPartition | None = None,
    ) -> None:
        """``state`` is what the metadata say. ``previous``: what this node led in the epoch before it."""
        super().__init__(log, state.leader_epoch)
        self._env = env
        log.set_replicated(True)
        log.become_leader(state.leader_epoch)
        self.epoch_start_offset: int = log.log_end_offset
        self.followers: dict[int, FollowerState] = {}
        self.partition_epoch = state.partition_epoch
        self.isr = Isr(frozenset(state.isr))
        self._watermark_waits = OffsetWaits()
        """Who waits for the watermark."""
        self._committed_offset = 0
        """The high watermark when the ISR last had min.insync.replicas: acks=all is fulfilled below it."""
        self._successor: ReplicatedPartition | None = None
        """The partition in the next epoch, if this node leads that, too."""
        self._deletions = OffsetWaits()
        """Who waits for the low watermark."""
        if isinstance(previous, ReplicatedPartition):
            previous._successor = self
            self._watermark_waits, previous._watermark_waits = previous._watermark_waits, OffsetWaits()
            self._deletions, previous._deletions = previous._deletions, OffsetWaits()
            self.followers = previous.followers
            now_s = env.clock.monotonic()
            for follower in self.followers.values():
                follower.begin_epoch(
                    now_s, self.epoch_start_offset, is_in_sync=follower.node_id in self.isr.committed
                )
        self._assign(state)
        log.add_end_waiter(self)
        self.advance()
        self._reach_low_watermark()

    def __repr__(self) -> str:
        return f"ReplicatedPartition({self.log!r}, epoch {self.leader_epoch}, {self.isr!r})"

    def close(self) -> None:
        """Another leader epoch has begun, or the partition was deleted: what waits ends."""
        super().close()
        log = self.log
        log.discard_end_waiter(self)
        is_deleted = log.topic_id not in self._env.metadata.image.topics_by_id
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_deleted else ErrorCode.NOT_LEADER_OR_FOLLOWER
        self._watermark_waits.fail(code)
        self._deletions.fail(code)
        log.waiters.notify(log)
        log.end_waiters.notify(log)

    def update(self, state: Partition) -> None:
        """Take what the metadata say within this leader epoch, unless the controller's response has said more
        already.
        """
        if state.partition_epoch >= self.partition_epoch:
            if state.partition_epoch > self.partition_epoch or self.isr.proposed is None:
                self.isr = Isr(frozenset(state.isr))
            # Otherwise the response to the last proposal came before them, and another one is under way.
            self.partition_epoch = state.partition_epoch
            self._assign(state)
            self.reconsider()

    def reconsider(self) -> None:
        """The ISR has changed, or the nodes' registrations: move the watermark, and look who may join."""
        self.advance()
        self._reach_low_watermark()
        if len(self.isr.committed) <= len(self.followers):  # a replica is outside of the ISR
            now_s, lag_max_s = self._now_and_lag_max()
            for follower in self.followers.values():
                # A follower of an idle partition does not name it in its fetches.
                if follower.node_id not in self.isr.committed and follower.is_caught_up(
                    self.log.log_end_offset, now_s, lag_max_s
                ):
                    self._maybe_expand(follower)

    def _now_and_lag_max(self) -> tuple[float, float]:
        return self._env.clock.monotonic(), self._env.config.current.replica_lag_time_max_ms / 1000

    def _assign(self, state: Partition) -> None:
        """Note the replicas; those that are new have not fetched yet."""
        now_s = self._env.clock.monotonic()
        self.followers = {
            node_id: self.followers.get(node_id)
            or FollowerState(node_id, now_s, is_in_sync=node_id in self.isr.committed)
            for node_id in state.replicas
            if node_id != self._env.node_id
        }

    # -- what waits

    @property
    def min_isr(self) -> int:
        """The effective ``min.insync.replicas``: no more than there are replicas."""
        return min(self.log.config.min_insync_replicas, len(self.followers) + 1)

    def check_isr(self) -> None:
        """See `LeaderPartition.check_isr`."""
        if len(self.isr.committed) < self.min_isr:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)

    def must_wait(self, acks: int) -> bool:
        """See `LeaderPartition.must_wait`."""
        return acks == ACKS_ALL or self.log.durable_offset < self.log.log_end_offset

    async def wait_acknowledged(self, acks: int, up_to: int, timeout_s: float) -> None:
        """See `LeaderPartition.wait_acknowledged`."""
        if acks == ACKS_ALL:
            await self.wait_committed(up_to, timeout_s)
        elif up_to > self.log.durable_offset:
            await self.log.flush(up_to)

    async def wait_committed(self, up_to: int, timeout_s: float) -> None:
        """See `LeaderPartition.wait_committed`."""
        if self._committed_offset >= up_to:
            return
        log = self.log
        log.check_alive()
        if self._successor is not None:
            await self._successor.wait_committed(up_to, timeout_s)
        elif not self.is_current:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif log.high_watermark >= up_to:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        else:
            flush = None if up_to <= log.durable_offset else lambda: log.flush(up_to)
            await self._watermark_waits.wait(up_to, timeout_s, flush)

    @property
    def low_watermark(self) -> int:
        """See `LeaderPartition.low_watermark`."""
        alive = self._env.alive_broker_epoch
        live = [one for one in self.followers.values() if alive(one.node_id) is not None]
        return min([self.log.log_start_offset, *(follower.log_start_offset for follower in live)])

    def _reach_low_watermark(self) -> None:
        if len(self._deletions):
            self._deletions.reach(self.low_watermark)

    async def wait_low_watermark(self, offset: int, timeout_s: float) -> int:
        """See `LeaderPartition.wait_low_watermark`."""
        low_watermark = self.low_watermark
        if low_watermark < offset:
            await self._deletions.wait(offset, timeout_s)
            # It was reached. It may be lower again by now: a follower has come that has not deleted yet.
            low_watermark = max(offset, self.low_watermark)
        return low_watermark

    def notify(self, log: PartitionLog) -> None:
        """The log has grown, was flushed, went offline or was deleted (`LogWaiter`)."""
        if log.offline or log.deleted:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if log.deleted else ErrorCode.KAFKA_STORAGE_ERROR
            self._watermark_waits.fail(code)
            self._deletions.fail(code)
        elif len(self.isr.maximal) == 1 or log.config.flush_messages != FLUSH_NEVER:
            self.advance()  # otherwise the watermark waits for a follower, not for this log

    # -- the watermark

    def advance(self) -> None:
        """Move the high watermark as far as the replicas allow, and complete what waits for it."""
        log, isr = self.log, self.isr
        is_below_min = len(isr.committed) < self.min_isr
        if not is_below_min:
            reached = end_offset = log.durable_offset
            for follower in self.followers.values():
                if follower.end_offset < reached and (
                    follower.node_id in isr.maximal or self._will_join(follower, end_offset)
                ):
                    reached = follower.end_offset
            if reached > log.high_watermark:
                log.advance_high_watermark(reached)
        is_short = is_below_min and len(isr.maximal) < self.min_isr
        if not is_short:
            self._committed_offset = log.high_watermark
        if len(self._watermark_waits):
            self._watermark_waits.reach(
                log.high_watermark,
                ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if is_short else ErrorCode.NONE,
            )

    def _will_join(self, follower: FollowerState, end_offset: int) -> bool:
        """Whether a follower outside of the ISR is about to join it: the watermark waits for it."""
        now_s, lag_max_s = self._now_and_lag_max()
        return follower.is_caught_up(end_offset, now_s, lag_max_s) and self._is_eligible(follower)

    # -- followers

    def preferred_read_replica(self, rack: str, offset: int) -> int | None:
        """See `LeaderPartition.preferred_read_replica`."""
        if self._env.config.static.replica_selector_class != RACK_AWARE_SELECTOR:
            return None
        brokers = self._env.metadata.image.brokers
        own = brokers.get(self._env.node_id)
        views = [
            ReplicaView(
                follower.node_id, brokers[follower.node_id].rack, follower.end_offset, follower.caught_up_s
            )
            for follower in self.followers.values()
            if follower.node_id in self.isr.committed
            and follower.node_id in brokers
            and follower.log_start_offset <= offset <= follower.end_offset
        ]
        return select_replica(rack, own.rack if own is not None else None, views)

    def check_follower(self, node_id: int, leader_epoch: int) -> None:
        """See `LeaderPartition.check_follower`. If the metadata here do not have the replica yet, the error lets it
        ask again.
        """
        if node_id not in self.followers:
            super().check_follower(node_id, leader_epoch)

    def note_fetch(self, node_id: int, offset: int, log_start_offset: int, broker_epoch: int) -> None:
        """A follower fetches from ``offset``: its log ends there.

        Raises KafkaError (NOT_LEADER_OR_FOLLOWER) for a request from before the follower's current registration.
        """
        follower = self.followers[node_id]
        alive = self._env.alive_broker_epoch(node_id)
        if broker_epoch != UNKNOWN_BROKER_EPOCH and alive is not None and alive > broker_epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        end_before, start_before = follower.end_offset, follower.log_start_offset
        follower.note_fetch(
            offset, log_start_offset, broker_epoch, self._env.clock.monotonic(), self.log.log_end_offset
        )
        if node_id not in self.isr.committed:
            self._maybe_expand(follower)
        if offset != end_before:
            self.advance()
        if log_start_offset != start_before:
            self._reach_low_watermark()

    def _is_eligible(self, follower: FollowerState) -> bool:
        """Whether the controller would let a follower join the ISR (KIP-903): it is neither fenced nor shutting down,
        and has fetched since it registered.
        """
        broker = self._env.metadata.image.brokers.get(follower.node_id)
        return (
            broker is not None
            and not broker.fenced
            and not broker.in_controlled_shutdown
            and follower.broker_epoch in (UNKNOWN_BROKER_EPOCH, broker.broker_epoch)
        )

    def _maybe_expand(self, follower: FollowerState) -> None:
        """Propose a follower for the ISR that has all committed records, and has reached this leader's epoch: before it
        has, it might lack records that were committed in an earlier one.
        """
        isr = self.isr
        if (
            isr.proposed is None
            and follower.end_offset >= max(self.log.high_watermark, self.epoch_start_offset)
            and self._is_eligible(follower)
        ):
            self._propose(isr.committed | {follower.node_id})

    def maybe_shrink(self) -> set[int]:
        """Propose to remove the followers that are no longer in sync; return them."""
        isr = self.isr
        if isr.proposed is not None:
            return set()
        now_s, lag_max_s = self._now_and_lag_max()
        end_offset = self.log.log_end_offset
        behind = {
            node_id
            for node_id in isr.committed
            if node_id != self._env.node_id
            and (
                node_id not in self.followers
                or not self.followers[node_id].is_caught_up(end_offset, now_s, lag_max_s)
            )
        }
        if behind:
            self._propose(isr.committed - behind)
        return behind

    def credit(self, node_ids: set[int], jump_s: float) -> None:
        """Time was moved ahead by ``jump_s``: these nodes fetched just now, so they do not lag for that."""
        for node_id in node_ids & self.followers.keys():
            follower = self.followers[node_id]
            follower.caught_up_s += jump_s
            follower.fetched_s += jump_s

    def _propose(self, isr: frozenset[int]) -> None:
        log = self.log
        _log.info(
            "ISR to change",
            topic=log.topic,
            partition=log.partition,
            isr=sorted(self.isr.committed),
            to=sorted(isr),
            high_watermark=log.high_watermark,
            log_end_offset=log.log_end_offset,
        )
        self.isr = Isr(self.isr.committed, isr)
        self._env.propose(self)

    def broker_epoch_of(self, node_id: int) -> int:
        """Return the broker epoch of a replica for the controller to compare, -1 if it is not known yet."""
        if node_id == self._env.node_id:
            return self._env.metadata.broker_epoch
        follower = self.followers.get(node_id)
        if follower is None or follower.broker_epoch is None:
            return UNKNOWN_BROKER_EPOCH
        return follower.broker_epoch

    # -- what the controller answers

    def on_accepted(self, asked: Isr, result: PartitionResult) -> None:
        """The controller has accepted what was ``asked``, or there was nothing to change."""
        if (
            self.isr is asked
            and result.leader_epoch == self.leader_epoch
            and result.partition_epoch >= self.partition_epoch
        ):
            self.isr = Isr(frozenset(result.isr))
            self.partition_epoch = result.partition_epoch
            _log.info(
                "ISR changed", topic=self.log.topic, partition=self.log.partition, isr=sorted(result.isr)
            )
            self.reconsider()

    def on_refused(self, asked: Isr, error_code: int) -> None:
        """The controller has answered with an error."""
        if self.isr is not asked or not self.is_current:
            return
        answer = answer_to(error_code)
        _log.info(
            "ISR not changed",
            topic=self.log.topic,
            partition=self.log.partition,
            error=ErrorCode(error_code).name,
            then=answer.value,
        )
        if answer is Answer.BACK:
            self.isr = Isr(asked.committed)
        elif answer is Answer.RETRY:
            self._env.propose(self)
