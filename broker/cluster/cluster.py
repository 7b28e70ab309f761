"""`Cluster`: the nodes, and which of them leads a partition, as one of them knows it from its metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

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


class LeaderPartition:
    """A partition that this node leads: its log, and the leader epoch."""

    __slots__ = ("is_current", "leader_epoch", "log")

    def __init__(self, log: PartitionLog, leader_epoch: int) -> None:
        self.log = log
        self.leader_epoch = leader_epoch
        self.is_current = True
        """False after a new leader epoch has begun, or the partition was deleted: call `Cluster.leader_partition` again
        then.
        """

    def log_at(self, leader_epoch: int) -> PartitionLog:
        """Return the log for a client that knows this leader epoch (-1: none).

        Raises KafkaError: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH.
        """
        if leader_epoch not in (-1, self.leader_epoch):
            if leader_epoch < self.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        return self.log


class Cluster:
    """The cluster as the node ``node_id`` sees it. ``links`` reach the other nodes; None: there are no others."""

    def __init__(
        self, node_id: int, metadata: ClusterMetadata, logs: LogManager, links: Links | None = None
    ) -> None:
        self.node_id = node_id
        self.links = links
        self._metadata = metadata
        self._logs = logs
        self._leader_partitions: dict[tuple[str, int], LeaderPartition] = {}
        self._listeners: list[Callable[[Topic, int], None]] = []

    @property
    def cluster_id(self) -> str:
        return self._metadata.cluster_id

    def nodes(self, listener_name: str) -> list[NodeAddress]:
        """Return every live node that has that listener, with its address on it."""
        return [
            NodeAddress(broker.broker_id, endpoint.host, endpoint.port, broker.rack)
            for broker in self._metadata.image.brokers.values()
            if not broker.fenced
            for endpoint in broker.end_points
            if endpoint.name == listener_name
        ]

    def controller_id(self) -> int:
        """Return the node for admin requests (a KRaft broker returns any live broker)."""
        return self.node_id

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

    def _open(self, topic: str, partition: int) -> LeaderPartition:
        known = self.topic(topic)
        if known is None or not 0 <= partition < len(known.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        state = known.partitions[partition]
        if state.leader != self.node_id:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = self._logs.get(topic, partition)
        log.become_leader(state.leader_epoch)
        found = LeaderPartition(log, state.leader_epoch)
        self._leader_partitions[(topic, partition)] = found
        return found

    def log(self, topic: str, partition: int, leader_epoch: int = -1) -> PartitionLog:
        """Return the log of a partition that this node leads, for a client that knows this leader epoch (-1: none).

        Raises KafkaError as `leader_partition` and `LeaderPartition.log_at`.
        """
        return self.leader_partition(topic, partition).log_at(leader_epoch)

    def subscribe(self, listener: Callable[[Topic, int], None]) -> None:
        """Call ``listener(topic, partition)`` at each new leader epoch, for all that lives with a leader."""
        self._listeners.append(listener)

    def on_change(self, topic: Topic, partition: int, *, is_new_epoch: bool) -> None:
        """A partition was created or changed. At a new leader epoch `leader_partition` gives another one."""
        if not is_new_epoch:
            return
        self._forget(topic.name, partition)
        for listener in self._listeners:
            listener(topic, partition)

    def _forget(self, topic: str, partition: int) -> None:
        known = self._leader_partitions.pop((topic, partition), None)
        if known is not None:
            known.is_current = False
            known.log.waiters.notify(known.log)  # who waits for this leader need not wait any more

    def forget(self, topic: str) -> None:
        """The topic was deleted."""
        for name, partition in [key for key in self._leader_partitions if key[0] == topic]:
            self._forget(name, partition)
