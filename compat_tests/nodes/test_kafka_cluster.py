"""The harness of a cluster of three nodes: they know each other, and an acknowledged record survives any one node."""

from compat_tests.differential import Session
from compat_tests.nodes.kafka_cluster import NODES, KafkaCluster
from compat_tests.transactions.reader import FAST_RECONNECT, values

PARTITIONS = 3


def make_replicated_topic(cluster: KafkaCluster, name: str, partitions: int = PARTITIONS) -> None:
    """A topic with the cluster's default replication factor, in sync on every node."""
    session = Session(cluster.bootstrap_servers.split(",")[0])
    row = {"name": name, "num_partitions": partitions, "replication_factor": -1}
    response = session.call_unobserved("CreateTopics", 7, {"topics": [row], "timeout_ms": 15_000})
    session.end()
    assert response["topics"][0]["error_code"] == 0, response
    cluster.wait_until_in_sync()


def test_every_node_knows_every_node(kafka_cluster: KafkaCluster) -> None:
    response = kafka_cluster.metadata()
    addresses = {row["node_id"]: f"{row['host']}:{row['port']}" for row in response["brokers"]}
    assert addresses == {number: node.bootstrap for number, node in kafka_cluster.nodes.items()}
    assert len(set(addresses.values())) == NODES


def test_a_topic_has_a_replica_on_each_node(kafka_cluster: KafkaCluster, name: str) -> None:
    make_replicated_topic(kafka_cluster, name)
    rows = kafka_cluster.metadata([name])["topics"][0]["partitions"]
    assert [set(row["isr_nodes"]) for row in rows] == [{1, 2, 3}] * PARTITIONS
    assert {row["leader_id"] for row in rows} == {1, 2, 3}


def test_a_killed_node(kafka_cluster: KafkaCluster, name: str) -> None:
    """Another node leads, nothing acknowledged is lost, and the node comes back with its address."""
    from confluent_kafka import Producer

    make_replicated_topic(kafka_cluster, name, 1)
    settings = {"bootstrap.servers": kafka_cluster.bootstrap_servers, "acks": "all", **FAST_RECONNECT}
    producer = Producer(settings)
    producer.produce(name, b"before", partition=0)
    assert producer.flush(30) == 0
    leader = kafka_cluster.leader(name)
    killed, address = kafka_cluster.nodes[leader], kafka_cluster.nodes[leader].bootstrap
    killed.kill()
    producer.produce(name, b"meanwhile", partition=0)
    assert producer.flush(60) == 0
    assert kafka_cluster.leader(name) != leader
    killed.start()
    kafka_cluster.wait_until_in_sync()
    assert killed.bootstrap == address
    assert values(kafka_cluster.bootstrap_servers, name, 2) == ["before", "meanwhile"]
