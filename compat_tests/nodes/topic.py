"""A topic of a cluster: what its brokers say of leaders and replicas, and requests to one of them."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from compat_tests.nodes.target import CLIENTS, CONTROLLER, Brokers, Wired
from compat_tests.nodes.waiting import wait_until
from tests.common.batches import batch, read_batches, read_values, record
from tests.common.frames import Connection

NOT_LEADER_OR_FOLLOWER = 6

TIMEOUT_MS = 15_000
LATEST = -1
PREFERRED, UNCLEAN = 0, 1
READ_COMMITTED = 1
ANY_REPLICA = -2
"""The replica id of a debugging consumer: a follower answers it, and from the end of its log."""
BROKER = 4
SET = 0


class Partition(NamedTuple):
    """What DescribeTopicPartitions says of one; `leader` is -1 where nobody leads."""

    leader: int
    epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    offline: tuple[int, ...]


def call(cluster: Brokers, node: int, api: str, version: int, values: Mapping[str, Any]) -> Any:
    """Return a node's response. Raises OSError if it cannot be reached."""
    with Connection(cluster.nodes[node].bootstrap) as connection:
        return connection.call(api, version, dict(values))


def reachable(cluster: Wired) -> list[int]:
    """The brokers that run, and that clients and the controller reach."""
    return [
        number
        for number, node in cluster.nodes.items()
        if node.is_running
        and not cluster.network.is_cut(CLIENTS, number)
        and not cluster.network.is_cut(number, CONTROLLER)
    ]


class Topic:
    """A topic by its name; `create_topic` makes one."""

    def __init__(self, cluster: Brokers, name: str) -> None:
        self.name = name
        self._cluster = cluster

    @functools.cached_property
    def _id(self) -> bytes:
        return bytes(self._described(min(reachable(self._cluster)))["topic_id"])

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """What all reachable brokers say: one of them may know a change a moment before the others."""
        return wait_until(self._said, lambda said: len(set(said)) == 1 and bool(said[0]), "one answer")[0]

    def _said(self) -> list[tuple[Partition, ...]]:
        return [self.seen_by(number) for number in reachable(self._cluster)]

    def seen_by(self, node: int) -> tuple[Partition, ...]:
        """What this broker says, which may be old news."""
        rows = sorted(self._described(node)["partitions"], key=lambda row: row["partition_index"])
        return tuple(
            Partition(
                row["leader_id"],
                row["leader_epoch"],
                tuple(row["replica_nodes"]),
                tuple(sorted(row["isr_nodes"])),
                tuple(row["eligible_leader_replicas"]),
                tuple(row["last_known_elr"]),
                tuple(sorted(row["offline_replicas"])),
            )
            for row in rows
        )

    def _described(self, node: int) -> Any:
        asked = {"topics": [{"name": self.name}], "response_partition_limit": 2000}
        (row,) = call(self._cluster, node, "DescribeTopicPartitions", 0, asked)["topics"]
        return row

    def wait_for(self, done: Callable[[Partition], bool], partition: int = 0) -> Partition:
        """Wait until `done` is true of the partition, and return it. Raises AssertionError."""
        return wait_until(lambda: self.partitions[partition], done, f"a change of {self.name}")

    def wait_until_in_sync(self) -> tuple[Partition, ...]:
        """Wait until every replica of every partition is in sync and somebody leads."""
        return wait_until(
            lambda: self.partitions,
            lambda rows: all(row.leader > 0 and len(row.isr) == len(row.replicas) for row in rows),
            f"the replicas of {self.name}",
        )

    def ends(self, partition: int = 0) -> dict[int, int]:
        """The end of each running replica's log, by its node."""
        row = {"partition_index": partition, "timestamp": LATEST}
        asked = {"replica_id": ANY_REPLICA, "topics": [{"name": self.name, "partitions": [row]}]}
        found = {}
        for number in self.partitions[partition].replicas:
            if self._cluster.nodes[number].is_running:
                (topic,) = call(self._cluster, number, "ListOffsets", 7, asked)["topics"]
                found[number] = topic["partitions"][0]["offset"]
        return found

    def wait_for_ends(self, end: int, partition: int = 0) -> None:
        """Wait until the logs of all running replicas end there."""
        wait_until(lambda: self.ends(partition), lambda ends: {*ends.values()} == {end}, f"the end {end}")

    def produce(
        self,
        node: int,
        *values: bytes,
        partition: int = 0,
        acks: int = -1,
        timeout_ms: int = TIMEOUT_MS,
        producer: tuple[int, int, int] = (-1, -1, -1),
    ) -> Any:
        """Send one batch to a node; returns the partition's row of the response."""
        records = [record(None, value, offset_delta=delta) for delta, value in enumerate(values)]
        data = {"index": partition, "records": batch(records, producer=producer)}
        topics = [{"name": self.name, "partition_data": [data]}]
        sent = {"acks": acks, "timeout_ms": timeout_ms, "topic_data": topics}
        response = call(self._cluster, node, "Produce", 12, sent)
        return response["responses"][0]["partition_responses"][0]

    def produce_to_leader(self, node: int, *values: bytes, partition: int = 0) -> Any:
        """As `produce`, again as long as the node does not know that it leads: Kafka's brokers tell of a leadership
        a moment before they take records.
        """
        return wait_until(
            lambda: self.produce(node, *values, partition=partition),
            lambda row: row["error_code"] != NOT_LEADER_OR_FOLLOWER,
        )

    def fetch(
        self,
        node: int,
        offset: int,
        partition: int = 0,
        *,
        rack: str = "",
        isolation: int = 0,
        **fields: int,
    ) -> Any:
        """Fetch from a node with more `fields` of the partition; returns its row of the response."""
        row = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20, **fields}
        asked = {
            "max_wait_ms": 100,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "isolation_level": isolation,
            "session_epoch": -1,
            "rack_id": rack,
            "topics": [{"topic_id": self._id, "partitions": [row]}],
        }
        response = call(self._cluster, node, "Fetch", 17, asked)
        return response["responses"][0]["partitions"][0]

    def wait_for_watermark(self, node: int, watermark: int, *, rack: str = "", isolation: int = 0) -> Any:
        """Fetch from the start of partition 0 until the node has this high watermark; returns the last row."""
        return wait_until(
            lambda: self.fetch(node, 0, rack=rack, isolation=isolation),
            lambda row: row["high_watermark"] == watermark,
        )

    def records(self, node: int, partition: int = 0) -> list[tuple[int, bytes | None]]:
        """The leader epoch and value of each record that a node gives to consumers."""
        found: list[tuple[int, bytes | None]] = []
        while fetched := self.fetch(node, len(found), partition)["records"]:
            found += [
                (one.leader_epoch, value) for one in read_batches(fetched) for value in read_values(one)
            ]
        return found

    def reassign(self, replicas: Sequence[int] | None, partition: int = 0) -> None:
        """Begin to move a partition to other replicas; None cancels that."""
        row = {"partition_index": partition, "replicas": None if replicas is None else list(replicas)}
        asked = {"timeout_ms": TIMEOUT_MS, "topics": [{"name": self.name, "partitions": [row]}]}
        node = min(reachable(self._cluster))
        response = call(self._cluster, node, "AlterPartitionReassignments", 0, asked)
        assert response["responses"][0]["partitions"][0]["error_code"] == 0, response

    def elect(self, kind: int, partition: int = 0) -> int:
        """Ask for an election, PREFERRED or UNCLEAN; returns the partition's error."""
        asked = {
            "election_type": kind,
            "topic_partitions": [{"topic": self.name, "partitions": [partition]}],
            "timeout_ms": TIMEOUT_MS,
        }
        response = call(self._cluster, min(reachable(self._cluster)), "ElectLeaders", 2, asked)
        assert response["error_code"] == 0, response
        return int(response["replica_election_results"][0]["partition_result"][0]["error_code"])


def move_leader(cluster: Brokers, name: str, partition: int, *, to: int) -> None:
    """Have a replica of the ISR lead, and be preferred, by the requests that a tool would make."""
    topic = Topic(cluster, name)
    before = topic.partitions[partition]
    topic.reassign([to, *(replica for replica in before.replicas if replica != to)], partition)
    error = topic.elect(PREFERRED, partition)
    assert error == 0 or before.leader == to, error
    topic.wait_for(lambda row: row.leader == to, partition)


def set_config(cluster: Brokers, kind: int, name: str, key: str, value: str) -> None:
    """Set a key of a resource, such as BROKER; without a name, of all brokers."""
    row = {"name": key, "config_operation": SET, "value": value}
    asked = {"resources": [{"resource_type": kind, "resource_name": name, "configs": [row]}]}
    node = int(name) if kind == BROKER and name else min(reachable(cluster))
    (answer,) = call(cluster, node, "IncrementalAlterConfigs", 1, asked)["responses"]
    assert answer["error_code"] == 0, answer


def create_topic(
    cluster: Brokers, name: str, *assignments: Sequence[int], configs: Mapping[str, str] | None = None
) -> Topic:
    """Create a topic whose partitions have these replicas, and wait until all are in sync."""
    row = {
        "name": name,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [
            {"partition_index": number, "broker_ids": list(replicas)}
            for number, replicas in enumerate(assignments)
        ],
        "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
    }
    node = min(reachable(cluster))
    response = call(cluster, node, "CreateTopics", 7, {"topics": [row], "timeout_ms": TIMEOUT_MS})
    assert response["topics"][0]["error_code"] == 0, response
    topic = cluster.topic(name)
    topic.wait_until_in_sync()
    return topic
