"""Leaders that die, move and are replaced, while clients write: nothing acknowledged is lost, doubled or reordered."""

from compat_tests.nodes.target import Cluster
from compat_tests.nodes.topic import PREFERRED, UNCLEAN, Partition, Topic, create_topic
from compat_tests.nodes.writers import Acknowledged, Writer, writing
from compat_tests.real_kafka import run_tool

REPLICAS = (1, 2, 3)
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
            assert topic.partitions[0] == Partition(2, 1, REPLICAS, (2, 3), (), (), (1,))
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
