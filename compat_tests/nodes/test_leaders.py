"""Leaders that die, move and are replaced, while clients write: nothing acknowledged is lost, doubled or reordered."""

import pytest

from compat_tests.nodes.target import CONTROLLER, Cluster
from compat_tests.nodes.topic import (
    NOT_LEADER_OR_FOLLOWER,
    PREFERRED,
    UNCLEAN,
    Partition,
    Topic,
    create_topic,
)
from compat_tests.nodes.writers import Acknowledged, Writer, writing
from tests.common.jars import run_tool

REPLICAS = (1, 2, 3)
REQUEST_TIMED_OUT, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH = 7, 74, 75
PREFERRED_LEADER_NOT_AVAILABLE, ELECTION_NOT_NEEDED = 80, 84
KILLS = 4


def check(topic: Topic, written: Acknowledged, client: str) -> list[int]:
    """Assert that the log has exactly what was acknowledged, in its order; returns the epoch of each record."""
    log = topic.records(topic.partitions[0].leader)
    assert [(value or b"").decode() for _, value in log] == written.values, client
    numbers = [int(value.rpartition("-")[2]) for value in written.values]
    assert numbers == [*range(len(numbers))], client
    return [epoch for epoch, _ in log]


def test_the_leader_is_killed_again_and_again(kafka: Cluster, name: str, writers: dict[str, Writer]) -> None:
    topics = {client: create_topic(kafka, f"{name}-{client}", REPLICAS) for client in writers}
    names = {client: topic.name for client, topic in topics.items()}
    leaders = [1]
    with writing(kafka.bootstrap_servers, names, writers) as found:
        for _ in range(KILLS):
            for one in found.values():
                one.wait_for_more()
            for topic in topics.values():
                topic.wait_until_in_sync()
            kafka.nodes[leaders[-1]].kill()
            after = {
                topic.wait_for(lambda row: row.leader not in (-1, leaders[-1])) for topic in topics.values()
            }
            assert len(after) == 1  # they share their history
            leaders.append(after.pop().leader)
            for one in found.values():
                one.wait_for_more()
            kafka.nodes[leaders[-2]].start()
    for client, topic in topics.items():
        epochs = check(topic, found[client], client)
        assert epochs == sorted(epochs), client
        assert {*epochs} == {*range(KILLS + 1)}, client
        assert topic.partitions[0].epoch == KILLS


@pytest.mark.parametrize("way", [(1, CONTROLLER), (CONTROLLER, 1), None], ids=["there", "back", "both ways"])
def test_a_leader_that_is_cut_off_from_the_controller(
    kafka: Cluster, name: str, way: tuple[int, int] | None
) -> None:
    """It goes on as if it led; what it takes is never seen where others lead, and is gone when it hears of them."""
    topic = create_topic(kafka, name, REPLICAS)
    assert topic.produce(1, b"before")["error_code"] == 0
    kafka.network.cut(*(way or (1, CONTROLLER)), one_way=way is not None)
    after = topic.wait_for(lambda row: row.leader != 1)
    assert after == Partition(2, 1, REPLICAS, (2, 3), (), (), (1,))
    assert topic.seen_by(1) == (Partition(1, 0, REPLICAS, REPLICAS, (), (), ()),)
    taken = topic.produce(1, b"taken", acks=1)
    assert (taken["error_code"], taken["base_offset"]) == (0, 1)
    late = topic.produce(1, b"late", timeout_ms=1000)
    assert (late["error_code"], late["base_offset"]) == (REQUEST_TIMED_OUT, 2)
    assert topic.fetch(1, 1)["records"] == b""
    assert topic.fetch(1, 0, current_leader_epoch=1)["error_code"] == UNKNOWN_LEADER_EPOCH
    fenced = topic.fetch(2, 0, current_leader_epoch=0)
    assert fenced["error_code"] == FENCED_LEADER_EPOCH
    assert fenced["current_leader"] == {"leader_id": 2, "leader_epoch": 1}
    assert topic.produce_to_leader(2, b"after")["base_offset"] == 1
    kafka.network.heal()
    assert topic.wait_until_in_sync() == (Partition(2, 1, REPLICAS, REPLICAS, (), (), ()),)
    topic.wait_for_ends(2)
    refused = topic.produce(1, b"refused")
    assert refused["error_code"] == NOT_LEADER_OR_FOLLOWER
    assert refused["current_leader"] == {"leader_id": 2, "leader_epoch": 1}
    for node in REPLICAS:
        topic.wait_for_watermark(node, 2)
        assert topic.records(node) == [(0, b"before"), (1, b"after")]


def test_the_preferred_leader_comes_back(kafka: Cluster, name: str, writers: dict[str, Writer]) -> None:
    """By kafka-leader-election, under load: no error reaches an idempotent producer."""
    topics = {client: create_topic(kafka, f"{name}-{client}", REPLICAS) for client in writers}
    names = {client: topic.name for client, topic in topics.items()}
    with writing(kafka.bootstrap_servers, names, writers) as found:
        for one in found.values():
            one.wait_for_more()
        assert {topic.elect(PREFERRED) for topic in topics.values()} == {ELECTION_NOT_NEEDED}
        kafka.nodes[1].stop()  # which hands over what it leads before it ends
        for topic in topics.values():
            assert topic.wait_for(lambda row: bool(row.offline)) == Partition(
                2, 1, REPLICAS, (2, 3), (), (), (1,)
            )
            assert topic.elect(PREFERRED) == PREFERRED_LEADER_NOT_AVAILABLE
            assert topic.elect(UNCLEAN) == ELECTION_NOT_NEEDED
        for one in found.values():
            one.wait_for_more()
        kafka.nodes[1].start()
        for topic in topics.values():
            (row,) = topic.wait_until_in_sync()
            assert row == Partition(2, 1, REPLICAS, REPLICAS, (), (), ())
        said = run_tool(
            "org.apache.kafka.tools.LeaderElectionCommand",
            *("--bootstrap-server", kafka.bootstrap_servers, "--election-type", "preferred"),
            "--all-topic-partitions",
        ).stdout
        for topic in topics.values():
            assert f"{topic.name}-0" in said, said
            assert topic.wait_for(lambda row: row.leader == 1)[:2] == (1, 2)
        for one in found.values():
            one.wait_for_more()
    for client, topic in topics.items():
        assert {*check(topic, found[client], client)} == {0, 1, 2}
