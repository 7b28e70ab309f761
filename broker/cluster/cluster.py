"""`Cluster`: the live nodes, and who leads a partition, as this node knows it from its metadata; `LeaderPartition`,
`FollowerPartition`: what this node has of one.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Set

    from oncelog.broker.log.checkpoints import PartitionKey
    from oncelog.broker.log.manager import LogManager
    from oncelog.broker.log.partition_log import PartitionLog
    from oncelog.broker.metadata.cluster_metadata import ClusterMetadata
    from oncelog.broker.metadata.image import Topic
    from oncelog.broker.network.network import Links
    from oncelog.wire.schema import Uuid


class NodeAddress(NamedTuple):
    """A node's id and its address for clients (Kafka: ``Node``)."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class HostedPartition:
    """A partition that has a replica on this node (Kafka: ``Partition``): its log, and the leader epoch."""

    __slots__ = ("is_current", "leader_epoch", "log")

    epoch_start_offset = 0
    """At a leader, where its epoch begins in the log. Consumers do not learn the end while the watermark is below
    it.
    """

    def __init__(self, log: PartitionLog, leader_epoch: int) -> None:
        self.log = log
        self.leader_epoch = leader_epoch
        self.is_current = True
        """False after a new leader epoch has begun, or the partition was deleted: ask `Cluster` again then."""

    def log_at(self, leader_epoch: int) -> PartitionLog:
        """Return the log for a client that knows this leader epoch (-1: none).

        Raises KafkaError: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH.
        """
        check_leader_epoch(leader_epoch, self.leader_epoch)
        return self.log

    def close(self) -> None:
        """Another leader epoch has begun, or the partition was deleted."""
        self.is_current = False


class FollowerPartition(HostedPartition):
    """A partition that another node leads, if any does. Consumers may read it here, up to the watermark (KIP-392)."""

    __slots__ = ()


class LeaderPartition(HostedPartition):
    """A partition that this node leads, and of which nobody else has a replica."""

    __slots__ = ()

    is_replicated = False
    """Whether there are other replicas, or were when it was opened: the partition is a `ReplicatedPartition` then."""

    @property
    def low_watermark(self) -> int:
        """The log start offset that all live replicas have reached."""
        return self.log.log_start_offset

    def check_isr(self) -> None:
        """Call before an append with acks=all, as those of coordinators are.

        Raises KafkaError: NOT_ENOUGH_REPLICAS if the ISR is below ``min.insync.replicas``.
        """

    def must_wait(self, acks: int) -> bool:
        """Whether the response to an append whose result says ``must_wait`` waits (`wait_acknowledged`)."""
        return True

    async def wait_acknowledged(self, acks: int, up_to: int, timeout_s: float) -> None:
        """Wait until the records below the offset ``up_to`` may be acknowledged: with acks=all until they are committed
        (`wait_committed`), otherwise until they are as durable as ``flush.messages`` asks.
        """
        await self.log.flush(up_to)

    async def wait_committed(self, up_to: int, timeout_s: float) -> None:
        """Wait until the records below the offset ``up_to`` are committed: the high watermark has passed them.

        ``timeout_s`` is real time. Raises KafkaError: REQUEST_TIMED_OUT after that time, NOT_LEADER_OR_FOLLOWER as soon
        as the leadership is lost, NOT_ENOUGH_REPLICAS_AFTER_APPEND if they are committed and the ISR is below
        ``min.insync.replicas``; KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC_OR_PARTITION. The first two do not say whether the
        records will be committed.
        """
        await self.log.flush(up_to)

    async def wait_low_watermark(self, offset: int, timeout_s: float) -> int:
        """Wait until `low_watermark` has reached an offset, and return it. Raises KafkaError: REQUEST_TIMED_OUT after
        ``timeout_s`` seconds of real time, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC_OR_PARTITION.
        """
        return self.low_watermark

    def preferred_read_replica(self, rack: str, offset: int) -> int | None:
        """Return the node from which a consumer in ``rack`` should read on at ``offset`` (KIP-392); None: this one."""
        return None

    def check_follower(self, node_id: int, leader_epoch: int) -> None:
        """Raises KafkaError if that node has no replica; ``leader_epoch`` is what it knows (-1: none)."""
        raise KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER if leader_epoch < 0 else ErrorCode.UNKNOWN_LEADER_EPOCH
        )


class Replicas(Protocol):
    """The partitions of a node that have several replicas (Kafka: ``ReplicaManager``); `Replication` is one."""

    @property
    def followed(self) -> Mapping[PartitionKey, FollowerPartition]:
        """The partitions that this node follows."""

    def lead(self, topic: Topic, partition: int, previous: LeaderPartition | None) -> LeaderPartition:
        """Return a partition with several replicas in the leader epoch of the metadata, which this node leads.

        ``previous``: what this node led in the epoch before it; its waiters go on waiting. Raises KafkaError as
        `LogManager.get`.
        """

    def update(self, topic: Topic, partition: int, leader: LeaderPartition) -> None:
        """The metadata have another ISR, or other replicas, of a partition that this node leads."""

    def on_change(self, topic: Topic, partition: int) -> None:
        """The partition was created, or has changed: lead it, follow it, or drop it, as the metadata say."""

    def forget(self, topic: str) -> None:
        """The topic was deleted."""


def check_leader_epoch(known: int, current: int) -> None:
    """Raises KafkaError for a client that knows another leader epoch (-1: none): FENCED_LEADER_EPOCH,
    UNKNOWN_LEADER_EPOCH.
    """
    if known not in (-1, current):
        if known < current:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)


class Cluster:
    """The cluster as the node ``node_id`` sees it. ``links`` reach the other nodes; None: there are no others."""

    def __init__(
        self, node_id: int, metadata: ClusterMetadata, logs: LogManager, links: Links | None = None
    ) -> None:
        self.node_id = node_id
        self.links = links
        self._metadata = metadata
        self._logs = logs
        self.replicas: Replicas | None = None
        """The partitions with several replicas; None: there are no other nodes."""
        self._leader_partitions: dict[PartitionKey, LeaderPartition] = {}
        self._listeners: list[Callable[[Topic, int], None]] = []

    @property
    def cluster_id(self) -> str:
        return self._metadata.cluster_id

    def nodes(self, listener_name: str, *, with_fenced: bool = False) -> list[NodeAddress]:
        """Return every live node that has that listener, with its address on it; ``with_fenced``: also those that are
        not alive.
        """
        return [
            NodeAddress(broker.broker_id, endpoint.host, endpoint.port, broker.rack)
            for _, broker in sorted(self._metadata.image.brokers.items())
            if with_fenced or not broker.fenced
            for endpoint in broker.end_points
            if endpoint.name == listener_name
        ]

    def alive(self, listener_name: str) -> Set[int]:
        """Return the ids of `nodes`."""
        return {node.node_id for node in self.nodes(listener_name)}

    def controller_id(self) -> int:
        """Return the node for admin requests: any live one, as a KRaft broker does."""
        brokers = self._metadata.image.brokers.values()
        live = [one.broker_id for one in brokers if not one.fenced] or [self.node_id]
        return live[0] if len(live) == 1 else self._metadata.rng.choice(live)

    def topic(self, name: str) -> Topic | None:
        return self._metadata.image.topics.get(name)

    def topic_by_id(self, topic_id: Uuid) -> Topic | None:
        return self._metadata.image.topics_by_id.get(topic_id)

    def leader_partition(self, topic: str, partition: int) -> LeaderPartition:
        """Return a partition that this node leads.

        Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER (another node leads
        it, or its log is being recovered).
        """
        found = self._leader_partitions.get((topic, partition))
        if found is None:
            found = self._open(topic, partition)
        return found

    def readable_partition(self, topic: str, partition: int, leader_epoch: int = -1) -> HostedPartition:
        """Return a partition that a consumer may read here: one that this node leads or follows. Raises as `log`."""
        found = self._leader_partitions.get((topic, partition))
        if found is None and self.replicas is not None:
            followed = self.replicas.followed.get((topic, partition))
            if followed is not None:
                return followed
        return found or self._leader_for(topic, partition, leader_epoch)

    def _open(self, topic: str, partition: int) -> LeaderPartition:
        known = self.topic(topic)
        if known is None or not 0 <= partition < len(known.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        state = known.partitions[partition]
        if state.leader != self.node_id:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self.replicas is not None and len(state.replicas) > 1:
            found = self.replicas.lead(known, partition, None)
        else:
            log = self._logs.get(topic, partition)
            log.become_leader(state.leader_epoch)
            log.set_replicated(False)
            found = LeaderPartition(log, state.leader_epoch)
        self._leader_partitions[(topic, partition)] = found
        return found

    def log(self, topic: str, partition: int, leader_epoch: int = -1) -> PartitionLog:
        """Return the log of a partition that this node leads, for a client that knows this leader epoch (-1: none).

        Raises KafkaError as `leader_partition` and `HostedPartition.log_at`; a follower, too, checks the epoch first.
        """
        return self._leader_for(topic, partition, leader_epoch).log_at(leader_epoch)

    def _leader_for(self, topic: str, partition: int, leader_epoch: int) -> LeaderPartition:
        try:
            return self.leader_partition(topic, partition)
        except KafkaError as error:
            if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER and self.replicas is not None:
                state = self._metadata.image.topics[topic].partitions[partition]
                if self.node_id in state.replicas:
                    check_leader_epoch(leader_epoch, state.leader_epoch)
            raise

    def current_leader(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Return the id of the leader of a partition (-1: there is none), and its epoch; None if it does not exist."""
        known = self.topic(topic)
        if known is None or not 0 <= partition < len(known.partitions):
            return None
        state = known.partitions[partition]
        return state.leader, state.leader_epoch

    def subscribe(self, listener: Callable[[Topic, int], None]) -> None:
        """Call ``listener(topic, partition)`` at each new leader epoch, for all that lives with a leader; within one,
        too, if `leader_partition` gives another object, since there are other replicas now or none any more.
        """
        self._listeners.append(listener)

    def on_change(self, topic: Topic, partition: int, *, is_new_epoch: bool) -> None:
        """A partition was created or changed. At a new leader epoch `leader_partition` gives another one."""
        is_another = False
        if self.replicas is not None:
            is_another = self._change(self.replicas, topic, partition)
        elif is_new_epoch:
            self._forget(topic.name, partition)
        if is_new_epoch or is_another:
            for listener in self._listeners:
                listener(topic, partition)

    def _change(self, replicas: Replicas, topic: Topic, partition: int) -> bool:
        """Return whether `leader_partition` will give another object than before."""
        key = topic.name, partition
        state = topic.partitions[partition]
        leader = self._leader_partitions.get(key)
        if leader is not None:
            gains_followers = len(state.replicas) > 1 and not leader.is_replicated
            if state.leader != self.node_id or gains_followers:
                self._forget(*key)
            elif state.leader_epoch != leader.leader_epoch:
                del self._leader_partitions[key]
                # One that has lost its followers goes on as it is, for what waits for them is fulfilled now.
                if leader.is_replicated:
                    with suppress(KafkaError):  # the next request meets it
                        self._leader_partitions[key] = replicas.lead(topic, partition, leader)
                leader.close()
            elif leader.is_replicated:
                replicas.update(topic, partition, leader)
        replicas.on_change(topic, partition)
        return leader is not None and not leader.is_current

    def _forget(self, topic: str, partition: int) -> None:
        known = self._leader_partitions.pop((topic, partition), None)
        if known is not None:
            known.close()
            known.log.waiters.notify(known.log)  # who waits for this leader need not wait any more

    def forget(self, topic: str) -> None:
        """The topic was deleted."""
        for name, partition in [key for key in self._leader_partitions if key[0] == topic]:
            self._forget(name, partition)
        if self.replicas is not None:
            self.replicas.forget(topic)
