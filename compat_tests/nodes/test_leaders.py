"""Leaders that die, move and are replaced, while clients write: nothing acknowledged is lost, doubled or reordered."""

from compat_tests.nodes.target import Cluster
from compat_tests.nodes.topic import Topic, create_topic
from compat_tests.nodes.writers import Acknowledged, Writer, writing

REPLICAS = (1, 2, 3)
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
