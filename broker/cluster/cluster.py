"""`Cluster`: the nodes, and which of them leads a partition.

Today a cluster is one node. Handlers ask here and assume nothing, so that there can be several nodes, and a proxy can
answer for an upstream cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from oncelog.broker.log.manager import LogManager
    from oncelog.broker.log.partition_log import PartitionLog
    from oncelog.broker.metadata.image import Topic
    from oncelog.broker.metadata.store import MetadataStore
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
        """False after the partition was changed or deleted: call `Cluster.leader_partition` again then."""

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
    """The cluster as the node ``node_id`` sees it. ``addresses`` are that node's, by listener."""

    def __init__(
        self, node_id: int, metadata: MetadataStore, logs: LogManager, addresses: dict[str, NodeAddress]
    ) -> None:
        self.node_id = node_id
        self._addresses = addresses
        self._metadata = metadata
        self._logs = logs
        self._leader_partitions: dict[tuple[str, int], LeaderPartition] = {}

    @property
    def cluster_id(self) -> str:
        return self._metadata.cluster_id

    def nodes(self, listener_name: str) -> list[NodeAddress]:
        """Return every live node, with its address on that listener."""
        return [self._addresses[listener_name]]

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

    def forget_partition(self, topic: str, partition: int) -> None:
        """The partition was changed: look it up again."""
        known = self._leader_partitions.pop((topic, partition), None)
        if known is not None:
            known.is_current = False

    def forget(self, topic: str) -> None:
        """The topic was deleted."""
        for name, partition in [key for key in self._leader_partitions if key[0] == topic]:
            self.forget_partition(name, partition)
