"""The brokers of a cluster know each other; topics are spread over them; one that was away comes back as it was."""

from compat_tests.nodes.target import Cluster
from compat_tests.nodes.topic import call, create_topic

NODES = (1, 2, 3)
TIMEOUT_MS = 15_000
LEADER_NOT_AVAILABLE, REPLICA_NOT_AVAILABLE = 5, 9
INVALID_REPLICATION_FACTOR = 38
BROKER_ID_NOT_REGISTERED = 102


def create(kafka: Cluster, name: str, partitions: int, factor: int) -> int:
    row = {"name": name, "num_partitions": partitions, "replication_factor": factor}
    response = call(kafka, 1, "CreateTopics", 7, {"topics": [row], "timeout_ms": TIMEOUT_MS})
    return int(response["topics"][0]["error_code"])


def addresses(kafka: Cluster, node: int) -> dict[int, str]:
    rows = call(kafka, node, "Metadata", 12, {"topics": []})["brokers"]
    return {row["node_id"]: f"{row['host']}:{row['port']}" for row in rows}


def described(kafka: Cluster, *, with_fenced: bool) -> dict[int, bool]:
    """Return whether each broker is fenced."""
    response = call(kafka, 1, "DescribeCluster", 2, {"include_fenced_brokers": with_fenced})
    return {row["broker_id"]: row["is_fenced"] for row in response["brokers"]}


def unregister(kafka: Cluster, broker_id: int) -> int:
    return int(call(kafka, 1, "UnregisterBroker", 0, {"broker_id": broker_id})["error_code"])


def test_every_node_knows_every_node(kafka: Cluster) -> None:
    expected = {node: kafka.nodes[node].bootstrap for node in NODES}
    assert len({*expected.values()}) == len(NODES)
    for node in NODES:
        assert addresses(kafka, node) == expected


def told_in_version_0(kafka: Cluster, topic: str) -> list[tuple[int, int, list[int], list[int]]]:
    """What Metadata 0 says of each partition: error, leader, replicas, ISR."""
    (row,) = call(kafka, 1, "Metadata", 0, {"topics": [{"name": topic}]})["topics"]
    return [
        (one["error_code"], one["leader_id"], sorted(one["replica_nodes"]), sorted(one["isr_nodes"]))
        for one in sorted(row["partitions"], key=lambda one: one["partition_index"])
    ]


def test_metadata_0_names_only_the_nodes_that_live(kafka: Cluster, name: str) -> None:
    create_topic(kafka, name, (1, 2, 3))
    lonely = create_topic(kafka, f"{name}-lonely", (3,))
    assert told_in_version_0(kafka, name) == [(0, 1, [1, 2, 3], [1, 2, 3])]
    kafka.nodes[3].kill()
    lonely.wait_for(lambda row: row.leader == -1)
    assert told_in_version_0(kafka, name) == [(REPLICA_NOT_AVAILABLE, 1, [1, 2], [1, 2])]
    assert told_in_version_0(kafka, lonely.name) == [(LEADER_NOT_AVAILABLE, -1, [], [])]


def test_where_replicas_go(kafka: Cluster, name: str) -> None:
    """Each node leads one of three partitions, and the order of their replicas goes round."""
    for factor in (1, 3, -1):
        topic = kafka.topic(f"{name}-{factor}")
        assert create(kafka, topic.name, 3, factor) == 0
        rows = topic.wait_until_in_sync()
        assert {row.leader for row in rows} == {*NODES}
        for row in rows:
            assert row.leader == row.replicas[0]
            assert (row.epoch, row.isr) == (0, tuple(sorted(row.replicas)))
            round_from = NODES.index(row.leader)
            count = 1 if factor == 1 else 3
            assert row.replicas == (NODES[round_from:] + NODES[:round_from])[:count]
    assert create(kafka, f"{name}-4", 1, 4) == INVALID_REPLICATION_FACTOR


def test_a_node_that_was_away_has_its_address_and_data(kafka: Cluster, name: str) -> None:
    topic = kafka.topic(name)
    assert create(kafka, name, 3, 1) == 0
    (partition,) = [number for number, row in enumerate(topic.wait_until_in_sync()) if row.leader == 3]
    assert topic.produce(3, b"before", partition=partition)["error_code"] == 0
    before = addresses(kafka, 1)
    for number, leave in enumerate((kafka.nodes[3].stop, kafka.nodes[3].kill)):
        leave()
        row = topic.wait_for(lambda row: row.leader == -1, partition)
        assert (row.epoch, row.isr, row.elr, row.offline) == (2 * number + 1, (), (3,), (3,))
        assert addresses(kafka, 1).keys() == described(kafka, with_fenced=False).keys() == {1, 2}
        assert described(kafka, with_fenced=True) == {1: False, 2: False, 3: True}
        kafka.nodes[3].start()
        assert topic.wait_for(lambda row: row.leader == 3, partition)[:4] == (3, 2 * number + 2, (3,), (3,))
        assert topic.ends(partition) == {3: 1}
    for node in NODES:
        assert addresses(kafka, node) == before


def test_a_node_that_was_unregistered_registers_anew(kafka: Cluster, name: str) -> None:
    kafka.nodes[3].stop()
    assert unregister(kafka, 3) == 0
    assert unregister(kafka, 3) == BROKER_ID_NOT_REGISTERED
    assert described(kafka, with_fenced=True) == {1: False, 2: False}
    assert create(kafka, name, 3, 2) == 0
    assert {*kafka.topic(name).wait_until_in_sync()[0].replicas} == {1, 2}
    kafka.nodes[3].start()
    assert described(kafka, with_fenced=True) == dict.fromkeys(NODES, False)
