"""The operations of several nodes: the nodes themselves, the network between them, and the replicas of partitions.

See `oncelog.broker.control.operations`: each is a coroutine function of a `ControlledCluster`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from oncelog.broker.config.client_metrics_config import ClientMetricsConfig
from oncelog.broker.control import views
from oncelog.broker.control.conversions import check_config_change, config_change
from oncelog.broker.control.errors import InvalidArgumentError, UnsupportedError, WaitTimeoutError
from oncelog.broker.control.names import no_partition, not_found
from oncelog.broker.control.nodes.configs import CLIENTS, CONTROLLER_DIRECTORY
from oncelog.broker.control.operations.client_metrics import nodes_with_client_metrics
from oncelog.broker.control.partition_states import partition_states
from oncelog.broker.control.records import ReplicaReader
from oncelog.broker.control.requests import checked_filter, find_requests
from oncelog.broker.control.types import ClockInfo, NodeInfo
from oncelog.broker.controller.leadership import PREFERRED, UNCLEAN
from oncelog.broker.metadata.image import CLIENT_METRICS
from oncelog.broker.network.network import CONTROLLER_ID
from oncelog.broker.seams.clock import real_time
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from oncelog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from oncelog.wire.topic_names import INTERNAL_TOPICS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oncelog.broker.control.nodes.controlled_cluster import ControlledCluster
    from oncelog.broker.control.request_types import Request
    from oncelog.broker.control.types import PartitionState, ProducerInfo, Record

SHARED = (
    *("start", "stop", "kill", "lose_power", "reset", "snapshot", "info", "log_lines"),
    *("clock", "clock_advance", "clock_set", "clock_freeze", "clock_resume"),
    *("expire_member", "expire_transaction"),
    *("requests", "wait_for", "connected_clients", "failed_logins", "wait_for_failed_login"),
    *("client_metrics", "wait_for_client_metrics"),
    *("add_rule", "load_rules", "rules", "wait_fired", "release", "remove_rule", "clear_rules"),
)
"""The operations that are the same for one node and for several."""
OWN = ("partitions", "producers", "configure_client_metrics")
"""Those that are not the same."""


async def nodes(cluster: ControlledCluster) -> list[NodeInfo]:
    """Return all nodes."""
    image = cluster.runs.latest_for("has no nodes").store.image
    addresses = cluster.addresses()
    return [
        NodeInfo(
            node_id=node_id,
            address=addresses[node_id],
            is_running=node.is_running,
            is_fenced=not cluster.runs.is_running
            or node_id not in image.brokers
            or image.brokers[node_id].fenced,
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


async def skew_clock(cluster: ControlledCluster, *, node: int, ms: int) -> None:
    """Let the wall time of a node be so many milliseconds ahead of that of the cluster, or behind it if negative."""
    if isinstance(ms, bool) or not isinstance(ms, int):
        raise InvalidArgumentError(f"ms={ms!r}: expected a whole number of milliseconds")
    clock = cluster.of(node).clock
    try:
        datetime.fromtimestamp((clock.now_ms() - clock.skew_ms + ms) / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        raise InvalidArgumentError(f"ms={ms}: that is no date between the years 1 and 9999") from None
    clock.skew_ms = ms


async def clock_of_node(cluster: ControlledCluster, *, node: int) -> ClockInfo:
    """Return the time of a node."""
    clock = cluster.of(node).clock
    ahead_ms = round(cluster.clock.ahead_ms) + clock.skew_ms
    return ClockInfo(clock.now_ms(), cluster.clock.is_frozen, ahead_ms)


# -- what one node has


async def log_lines_of_node(cluster: ControlledCluster, *, node: int) -> list[str]:
    """Return the latest log lines of a node, newest last."""
    cluster.of(node)
    return cluster.lines.latest(node)


async def requests_of_node(
    cluster: ControlledCluster,
    *,
    node: int,
    api: str | None = None,
    client_id: str | None = None,
    topic: str | None = None,
    group: str | None = None,
    transactional_id: str | None = None,
    error: str | None = None,
    limit: int | None = None,
) -> list[Request]:
    """Return the latest requests to a node that match all given arguments, the newest last. Raises
    InvalidArgumentError.
    """
    cluster.of(node)
    wanted = checked_filter(
        api=api,
        client_id=client_id,
        topic=topic,
        group=group,
        transactional_id=transactional_id,
        error=error,
    )
    return await find_requests(cluster.journal, wanted._replace(node=node), limit)


async def records_of_node(
    cluster: ControlledCluster,
    *,
    node: int,
    topic: str,
    partition: int | None = None,
    from_offset: int = 0,
    limit: int | None = None,
) -> list[Record]:
    """Return the records that a node's replicas of a topic have, by partition and offset, up to the ends of their logs:
    also those that are not committed. Raises NotFoundError, InvalidArgumentError, NotRunningError.
    """
    reader = ReplicaReader(topic, partition=partition, from_offset=from_offset, limit=limit)
    return await reader.read(cluster.of(node).node)


# -- the network


def _directions(
    cluster: ControlledCluster, source: int | str, target: int | str, *, one_way: bool
) -> list[tuple[int, int]]:
    """Return the ids of who sends and who receives. Raises InvalidArgumentError."""
    ends = []
    for end in (source, target):
        node_id = CONTROLLER_ID if end in (CONTROLLER_DIRECTORY, CONTROLLER_ID) else end
        if node_id != CONTROLLER_ID:
            if not isinstance(node_id, int):
                known = f'"{CONTROLLER_DIRECTORY}", or "{CLIENTS}"'
                raise InvalidArgumentError(f"{end!r}: expected the id of a node, {known}")
            cluster.of(node_id)
        ends.append(int(node_id))
    one, other = ends
    if one == other:
        raise InvalidArgumentError(f"node {one} has no link to itself")
    return [(one, other)] if one_way else [(one, other), (other, one)]


async def cut(
    cluster: ControlledCluster, *, source: int | str, target: int | str, one_way: bool = False
) -> None:
    """Cut two nodes off from each other, or a node and the ``controller`` or all ``clients``; with ``one_way``, lose
    only what ``source`` sends to ``target``. Clients' connections break, and new ones are refused, for a connection
    needs both ways.
    """
    if CLIENTS in (source, target):
        node = target if source == CLIENTS else source
        if not isinstance(node, int):
            raise InvalidArgumentError(f'{node!r}: expected the id of a node beside "{CLIENTS}"')
        cluster.cut_from_clients(node)
        return
    for direction in _directions(cluster, source, target, one_way=one_way):
        cluster.network.cut(*direction)


async def delay(
    cluster: ControlledCluster, *, source: int | str, target: int | str, ms: float, one_way: bool = False
) -> None:
    """Let what two nodes send to each other take so many milliseconds of real time; with ``one_way``, only what
    ``source`` sends to ``target``.
    """
    if ms < 0:
        raise InvalidArgumentError(f"ms={ms!r}: expected 0 or more")
    if CLIENTS in (source, target):
        raise UnsupportedError('a rule delays clients: kafka.faults.on("*", node=1).delay(ms)')
    for direction in _directions(cluster, source, target, one_way=one_way):
        cluster.network.delay(*direction, ms / 1000)


async def heal(cluster: ControlledCluster) -> None:
    """End all cuts and delays."""
    cluster.heal()
    await cluster.wait_followed()


# -- partitions


async def partitions(cluster: ControlledCluster, *, topic: str) -> list[PartitionState]:
    """Return the partitions of a topic, as the controller and the nodes that run know them."""
    return partition_states(cluster.runs.current.store.image, topic, cluster.running)


async def producers(
    cluster: ControlledCluster, *, topic: str | None = None, partition: int | None = None
) -> list[ProducerInfo]:
    """Return the producers that the leaders of partitions know, by topic, partition and producer id. Partitions without
    a leader that runs have none. Raises NotFoundError.
    """
    image, running = cluster.runs.current.store.image, cluster.running
    ids = {
        one.producer_id: one.transactional_id
        for node in running.values()
        for one in await views.transactions(node)
    }
    if topic is not None and topic not in image.topics:
        raise not_found("topic", topic, image.topics)
    found: list[ProducerInfo] = []
    for name in sorted(image.topics) if topic is None else [topic]:
        if topic is None and name in INTERNAL_TOPICS:
            continue
        for index, state in enumerate(image.topics[name].partitions):
            if state.leader in running and partition in (None, index):
                log = running[state.leader].logs.logs.get((name, index))
                found += [] if log is None else views.producers_of(log, ids)
    return found


async def configure_client_metrics(
    cluster: ControlledCluster, *, name: str, config: Mapping[str, object]
) -> None:
    """Set Kafka's configuration keys of a subscription to metrics of clients, which need not exist yet. Raises
    InvalidArgumentError for a value that Kafka refuses, and where clients may send nothing.
    """
    if not name:
        raise InvalidArgumentError("the name of the subscription is empty")
    nodes_with_client_metrics(cluster)
    [row] = (await cluster.client.call(config_change(CLIENT_METRICS, name, config))).responses
    check_config_change(row, config, ClientMetricsConfig.KEYS, f"subscription {name}")
    await cluster.wait_followed()


async def wait_for_partition(
    cluster: ControlledCluster,
    *,
    topic: str,
    partition: int,
    leader: int | None = None,
    isr: list[int] | None = None,
    timeout: float = 10.0,
) -> PartitionState:
    """Wait until a partition has that leader and exactly these replicas in sync; None: whatever they are. With neither,
    wait until it has a leader that runs.
    """
    for node_id in [*([] if leader is None else [leader]), *(isr or [])]:
        cluster.of(node_id)

    def is_there(found: PartitionState) -> bool:
        if leader is None and isr is None:
            return found.leader in cluster.running
        return leader in (None, found.leader) and isr in (None, sorted(found.isr))

    store = cluster.runs.current.store
    found: PartitionState | None = None
    with real_time.move_on_after(timeout):
        while True:
            changed = store.changed
            if topic in store.image.topics:
                known = await partitions(cluster, topic=topic)
                if not 0 <= partition < len(known):
                    raise no_partition(topic, partition, len(known))
                found = known[partition]
                if is_there(found):
                    await cluster.wait_followed()
                    return found
            await changed.wait()
    raise WaitTimeoutError(
        f"there is no topic {topic!r}"
        if found is None
        else f"{topic}-{partition} has leader {found.leader} and in sync {found.isr} after {timeout:g} s"
    )


async def elect_leaders(
    cluster: ControlledCluster, *, topic: str, partition: int | None = None, unclean: bool = False
) -> None:
    """Elect the preferred leaders of a partition, or of all of a topic; with ``unclean``, where there is no leader, any
    replica that is there. Raises NotFoundError; KafkaError: PREFERRED_LEADER_NOT_AVAILABLE,
    ELIGIBLE_LEADERS_NOT_AVAILABLE.
    """
    known = await partitions(cluster, topic=topic)
    if partition is not None and not 0 <= partition < len(known):
        raise no_partition(topic, partition, len(known))
    indexes = list(range(len(known))) if partition is None else [partition]
    kind = UNCLEAN if unclean else PREFERRED
    response = await cluster.client.call(ElectLeadersRequest(kind, [TopicPartitions(topic, indexes)]))
    for row in response.replica_election_results[0].partition_result:
        if row.error_code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
            [state] = [one for one in known if one.partition == row.partition_id]
            raise KafkaError(
                ErrorCode(row.error_code), f"{row.error_message} {_why_not(cluster, topic, state)}"
            )
    await cluster.wait_followed()


def _why_not(cluster: ControlledCluster, topic: str, state: PartitionState) -> str:
    """Return which replicas of a partition run, and which are in sync."""
    replicas = [one.node for one in state.replicas]
    running = sorted(set(replicas) & cluster.running.keys())
    return f"({topic}-{state.partition} has replicas {replicas}: of these run {running}, in sync are {list(state.isr)})"


async def move_leader(cluster: ControlledCluster, *, topic: str, partition: int, to: int) -> None:
    """Make a node the preferred leader of a partition, and its leader. Raises NotFoundError; InvalidArgumentError if it
    has no replica of it; KafkaError (PREFERRED_LEADER_NOT_AVAILABLE) if its replica is not in sync.
    """
    known = await partitions(cluster, topic=topic)
    if not 0 <= partition < len(known):
        raise no_partition(topic, partition, len(known))
    replicas = [one.node for one in known[partition].replicas]
    if to not in replicas:
        raise InvalidArgumentError(f"to={to!r}: the replicas of {topic}-{partition} are on {replicas}")
    if replicas[0] != to:
        ordered = [to, *(one for one in replicas if one != to)]
        rows = [ReassignableTopic(topic, [ReassignablePartition(partition, ordered)])]
        response = await cluster.client.call(AlterPartitionReassignmentsRequest(topics=rows))
        [row] = response.responses[0].partitions
        if row.error_code:
            raise KafkaError(ErrorCode(row.error_code), row.error_message)
    if known[partition].leader != to:
        await elect_leaders(cluster, topic=topic, partition=partition)
    await cluster.wait_followed()
