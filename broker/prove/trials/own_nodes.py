"""`OwnNodes`: several nodes of oncelog of the trial's own, which die, and whose leaders move."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from oncelog.broker.control.errors import NotFoundError, NotRunningError
from oncelog.broker.control.nodes.controlled_cluster import ControlledCluster
from oncelog.broker.control.nodes.options import cluster_options
from oncelog.broker.prove.trials.bench import address_at
from oncelog.broker.prove.trials.own_broker import OwnBench, group_members, open_transactions
from oncelog.broker.seams.clock import real_time
from oncelog.wire.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncelog.broker.control.instruments import Extras
    from oncelog.broker.control.options import BrokerOptions
    from oncelog.broker.host.served import Served
    from oncelog.broker.log.partition_log import PartitionLog
    from oncelog.broker.metadata.image import MetadataImage
    from oncelog.broker.prove.trials.bench import GroupMember
    from oncelog.wire.schema import Uuid

TOPIC_S = 5.0
"""How long an internal topic may take to come; without it, each trial creates it."""
UNKNOWN_END = 1 << 62
"""The end of a partition without a leader: nobody has fetched to it."""


class OwnNodes(OwnBench):
    """See the module, and `oncelog.broker.prove.trials.bench.Nodes`."""

    def __init__(self, cluster: ControlledCluster) -> None:
        super().__init__(cluster)
        self._cluster = cluster

    @property
    def nodes(self) -> OwnNodes:
        return self

    def state(self, source: Served) -> ClusterState:
        return ClusterState(self._cluster)

    @property
    def is_whole(self) -> bool:
        return self._cluster.runs.is_running and all(one.is_running for one in self._cluster.nodes.values())

    @property
    def is_settled(self) -> bool:
        nodes = self._cluster.nodes.values()
        if not self.is_whole or any(one.files.is_dead for one in nodes):
            return False
        images = [one.metadata.image.brokers for one in self._cluster.running.values()]
        return all(
            len(brokers) == len(nodes) and not any(one.fenced for one in brokers.values())
            for brokers in images
        )

    def address(self, listener: str) -> str:
        """Return one address, as of a cluster behind a name: not every program splits a list."""
        [first, *_] = self._cluster.nodes.values()
        return address_at(first.runs.listeners, listener)

    async def create_internal_topic(self, name: str) -> None:
        """Create an internal topic, if it is missing."""
        store = self._cluster.runs.current.store
        [first, *_] = self._cluster.running.values()
        with suppress(KafkaError):  # it comes with the metadata
            first.services.auto_topics.ensure(name)
        with real_time.move_on_after(TOPIC_S):
            while name not in store.image.topics:
                await store.changed.wait()
        await self._cluster.wait_followed()

    def log_end_offsets(self, topic: str) -> dict[int, int]:
        """Return the log end offset of each partition of a topic."""
        return ClusterState(self._cluster).log_end_offsets(topic)

    def kill(self, node_id: int) -> None:
        self._cluster.of(node_id).die()

    def cut_off(self, node_id: int) -> None:
        for other in self._cluster.nodes:
            if other != node_id:
                self._cluster.network.cut(node_id, other)
                self._cluster.network.cut(other, node_id)

    def heal(self) -> None:
        self._cluster.heal()

    async def move_leaders(self, node_id: int) -> None:
        for topic, found in self._cluster.runs.current.store.image.topics.items():
            for index, partition in enumerate(found.partitions):
                others = [one for one in partition.isr if one != node_id]
                if partition.leader == node_id and others:
                    with suppress(KafkaError, NotFoundError, NotRunningError):  # it has moved meanwhile
                        await self.controlled.call(
                            "move_leader", {"topic": topic, "partition": index, "to": others[0]}
                        )


class ClusterState:
    """The facts that the controller and the leaders know; see `oncelog.broker.prove.trials.bench.BrokerState`."""

    def __init__(self, cluster: ControlledCluster) -> None:
        self._cluster = cluster

    @property
    def _image(self) -> MetadataImage:
        return self._cluster.runs.current.store.image

    def _leader_log(self, topic: str, index: int, leader: int) -> PartitionLog | None:
        node = self._cluster.running.get(leader)
        return None if node is None else node.logs.logs.get((topic, index))

    @property
    def writes(self) -> int:
        """The number of records in the logs of all leaders."""
        logs = (
            self._leader_log(name, index, one.leader)
            for name, topic in self._image.topics.items()
            for index, one in enumerate(topic.partitions)
        )
        return sum(log.log_end_offset for log in logs if log is not None)

    def log_end_offsets(self, topic: str) -> dict[int, int]:
        """Return the log end offset of each partition of a topic."""
        rows = enumerate(self._image.topics[topic].partitions)
        logs = {index: self._leader_log(topic, index, one.leader) for index, one in rows}
        return {index: 0 if log is None else log.log_end_offset for index, log in logs.items()}

    def open_transactions(self) -> Iterator[tuple[str, int]]:
        for node in self._cluster.running.values():
            yield from open_transactions(node)

    def members(self) -> Iterator[GroupMember]:
        for node in self._cluster.running.values():
            yield from group_members(node)

    def ends(self, topic: str) -> dict[int, int]:
        ends = {}
        for index, one in enumerate(self._image.topics[topic].partitions):
            log = self._leader_log(topic, index, one.leader)
            if log is not None:
                ends[index] = log.last_stable_offset
            else:  # nobody has used it yet, or nobody leads
                ends[index] = 0 if one.leader in self._cluster.running else UNKNOWN_END
        return ends

    def topic_name(self, topic_id: Uuid) -> str:
        found = self._image.topics_by_id.get(topic_id)
        return "" if found is None else found.name


def own_nodes(count: int, options: BrokerOptions, extras: Extras) -> OwnNodes:
    """Return so many nodes. Raises InvalidArgumentError."""
    return OwnNodes(ControlledCluster(cluster_options(count, options), extras))
