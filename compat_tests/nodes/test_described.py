"""Every replica knows the partition's producers, and the controller knows the nodes that follow it."""

from typing import Any

import confluent_kafka
import pytest

from compat_tests.nodes.target import Cluster
from compat_tests.nodes.topic import call, create_topic

NODES = (1, 2, 3)
NOT_LEADER_OR_FOLLOWER = 6


def producers(kafka: Cluster, node: int, topic: str) -> Any:
    """The one row of a node's response."""
    rows = [{"name": topic, "partition_indexes": [0]}]
    [found] = call(kafka, node, "DescribeProducers", 0, {"topics": rows})["topics"]
    [row] = found["partitions"]
    return row


def test_every_replica_knows_the_producers(kafka: Cluster, name: str) -> None:
    """`kafka-transactions find-hanging --broker-id` asks the followers, too."""
    topics = [create_topic(kafka, f"{name}-{len(replicas)}", replicas) for replicas in ((1, 2, 3), (1,))]
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True}
    )
    for topic in topics:
        for number in range(3):
            producer.produce(topic.name, str(number))
    assert producer.flush(30) == 0
    topics[0].wait_for_ends(3)
    [known] = producers(kafka, 1, topics[0].name)["active_producers"]
    assert known["last_sequence"] == 2
    for node in NODES:
        row = producers(kafka, node, topics[0].name)
        assert (row["error_code"], row["active_producers"]) == (0, [known]), node
    codes = [producers(kafka, node, topics[1].name)["error_code"] for node in NODES]
    assert codes == [0, NOT_LEADER_OR_FOLLOWER, NOT_LEADER_OR_FOLLOWER]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_node_describes_the_quorum_in_each_version(kafka: Cluster, version: int) -> None:
    """Its followers have directories, of which the older versions cannot tell."""
    rows = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    for node in NODES:
        [topic] = call(kafka, node, "DescribeQuorum", version, {"topics": rows})["topics"]
        [quorum] = topic["partitions"]
        assert (quorum["error_code"], quorum["leader_id"]) == (0, 3000)
        assert {row["replica_id"] for row in quorum["observers"]} == {*NODES}


def test_the_controller_knows_its_followers_directories(kafka: Cluster) -> None:
    rows = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    [topic] = call(kafka, 1, "DescribeQuorum", 2, {"topics": rows})["topics"]
    [quorum] = topic["partitions"]
    assert [row["replica_id"] for row in quorum["current_voters"]] == [3000]
    directories = {row["replica_id"]: row["replica_directory_id"] for row in quorum["observers"]}
    assert directories.keys() == {*NODES}
    assert len({*directories.values()} - {bytes(16)}) == len(NODES)
