"""The operations of several nodes: the nodes themselves, the network between them, and the replicas of partitions.

See `oncelog.broker.control.operations`: each is a coroutine function of a `ControlledCluster`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncelog.broker.control.errors import InvalidArgumentError, NotFoundError
from oncelog.broker.control.types import BrokerInfo, NodeInfo, PartitionState, ReplicaInfo
from oncelog.broker.network.network import CONTROLLER_ID
from oncelog.broker.seams.clock import real_time

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from oncelog.broker.control.nodes.controlled_cluster import ControlledCluster

SHARED = ("start", "stop", "kill", "log_lines")
"""The operations that are the same for one node and for several."""


async def info(cluster: ControlledCluster) -> BrokerInfo:
    """Return what identifies the cluster, and whether it runs."""
    return BrokerInfo(
        bootstrap_servers=cluster.bootstrap_servers,
        cluster_id=cluster.cluster_id,
        node_id=cluster.node_id,
        seed=cluster.seed,
        is_running=cluster.is_running,
    )


async def nodes(cluster: ControlledCluster) -> list[NodeInfo]:
    """Return all nodes."""
    image = cluster.runs.current.store.image
    addresses = cluster.addresses()
    return [
        NodeInfo(
            node_id=node_id,
            address=addresses[node_id],
            is_running=node.is_running,
            is_fenced=node_id not in image.brokers or image.brokers[node_id].fenced,
        )
        for node_id, node in cluster.nodes.items()
    ]


async def start_node(cluster: ControlledCluster, *, node: int) -> None:
    """Start a node; the session of its last run ends at once."""
    async with cluster.turns:
        await cluster.start_node(node)
        await cluster.wait_followed()


async def stop_node(cluster: ControlledCluster, *, node: int) -> None:
    """Stop a node cleanly: it hands over what it leads first."""
    async with cluster.turns:
        await cluster.of(node).stop()
        await cluster.wait_followed()


async def kill_node(cluster: ControlledCluster, *, node: int) -> None:
    """End a node as SIGKILL does. The others learn of it when its session ends."""
    await cluster.of(node).kill()


async def lose_power_of_node(cluster: ControlledCluster, *, node: int) -> None:
    """End a node as a loss of power does."""
    await cluster.of(node).lose_power()


async def expire_node(cluster: ControlledCluster, *, node: int) -> None:
    """Let the session of a node end now: the controller fences it, and elects others where it led."""
    cluster.of(node)
    cluster.runs.current.end_session(node)
    await cluster.wait_followed()


# -- the network


def _ends(cluster: ControlledCluster, source: int, target: int) -> None:
    for node_id in (source, target):
        if node_id != CONTROLLER_ID:
            cluster.of(node_id)
    if source == target:
        raise InvalidArgumentError(f"node {source} has no link to itself")


async def cut(cluster: ControlledCluster, *, source: int, target: int, one_way: bool = False) -> None:
    """Lose all that one node sends to the other, and with ``one_way`` False all that it gets from it."""
    _ends(cluster, source, target)
    cluster.network.cut(source, target)
    if not one_way:
        cluster.network.cut(target, source)


async def delay(
    cluster: ControlledCluster, *, source: int, target: int, ms: float, one_way: bool = False
) -> None:
    """Let all that one node sends to the other take so long, and with ``one_way`` False all that it gets from it."""
    _ends(cluster, source, target)
    if ms < 0:
        raise InvalidArgumentError(f"ms={ms!r}: expected 0 or more")
    cluster.network.delay(source, target, ms / 1000)
    if not one_way:
        cluster.network.delay(target, source, ms / 1000)


async def heal(cluster: ControlledCluster) -> None:
    """End all cuts and delays."""
    cluster.network.heal()
    await cluster.wait_followed()


# -- partitions


def _partition(cluster: ControlledCluster, topic: str, index: int) -> PartitionState:
    state = cluster.runs.current.store.image.topics[topic].partitions[index]
    replicas = []
    for node_id in state.replicas:
        node = cluster.nodes[node_id]
        log = node.node.logs.logs.get((topic, index)) if node.is_running else None
        replicas.append(
            ReplicaInfo(
                node=node_id,
                is_running=node.is_running,
                log_start_offset=0 if log is None else log.log_start_offset,
                log_end_offset=0 if log is None else log.log_end_offset,
                high_watermark=0 if log is None else log.high_watermark,
            )
        )
    return PartitionState(
        topic=topic,
        partition=index,
        leader=None if state.leader < 0 else state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        isr=list(state.isr),
        elr=list(state.eligible_leader_replicas),
        replicas=replicas,
    )


async def partitions(cluster: ControlledCluster, *, topic: str) -> list[PartitionState]:
    """Return the partitions of a topic, as the controller and the nodes that run know them."""
    found = cluster.runs.current.store.image.topics.get(topic)
    if found is None:
        raise NotFoundError(f"there is no topic {topic!r}")
    return [_partition(cluster, topic, index) for index in range(len(found.partitions))]


async def wait_for_partition(
    cluster: ControlledCluster,
    *,
    topic: str,
    partition: int,
    leader: int | None = None,
    isr: list[int] | None = None,
    timeout_s: float = 10.0,
) -> PartitionState:
    """Wait until a partition has that leader and those replicas in sync, in any order; None: whatever they are."""
    from oncelog.broker.control.errors import WaitTimeoutError

    store = cluster.runs.current.store
    with real_time.move_on_after(timeout_s):
        while True:
            changed = store.changed
            found = (await partitions(cluster, topic=topic))[partition]
            if leader in (None, found.leader) and (isr is None or sorted(isr) == sorted(found.isr)):
                await cluster.wait_followed()
                return found
            await changed.wait()
    raise WaitTimeoutError(f"{topic}-{partition} has leader {found.leader}, in sync {found.isr}")


OPERATIONS: dict[str, Callable[..., Awaitable[Any]]] = {
    operation.__name__: operation
    for operation in (
        info,
        nodes,
        start_node,
        stop_node,
        kill_node,
        lose_power_of_node,
        expire_node,
        cut,
        delay,
        heal,
        partitions,
        wait_for_partition,
    )
}
"""By name."""
