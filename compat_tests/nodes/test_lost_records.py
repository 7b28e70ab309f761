"""What is lost, and what is not: records that only a leader had, and who is told."""

from collections.abc import Iterator
from contextlib import contextmanager

from compat_tests.nodes.readers import Client, Reading, reading
from compat_tests.nodes.target import Cluster
from compat_tests.nodes.topic import ENTITY_TOPIC, UNCLEAN, Partition, Topic, create_topic

REPLICAS = (1, 2, 3)
REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS = 7, 19


@contextmanager
def read(kafka: Cluster, topic: Topic, clients: dict[str, Client]) -> Iterator[dict[str, Reading]]:
    with reading(kafka.bootstrap_servers, topic.name, clients) as found:
        yield found


def wait_for(found: dict[str, Reading], value: bytes) -> None:
    for one in found.values():
        one.wait_for(value)


def test_a_record_that_only_the_leader_has_is_gone_with_it(
    kafka: Cluster, name: str, readers: dict[str, Client]
) -> None:
    """With acks=1 the leader acknowledges it at once; no consumer sees it before the ISR has it."""
    topic = create_topic(kafka, name, REPLICAS)
    with read(kafka, topic, readers) as found:
        assert topic.produce(1, b"kept")["error_code"] == 0
        wait_for(found, b"kept")
        kafka.network.cut(1, 2)
        kafka.network.cut(1, 3)
        lost = topic.produce(1, b"lost", acks=1)
        assert (lost["error_code"], lost["base_offset"]) == (0, 1)
        assert topic.ends() == {1: 2, 2: 1, 3: 1}
        row = topic.fetch(1, 1)
        assert (row["error_code"], row["high_watermark"], row["records"]) == (0, 1, b"")
        kafka.nodes[1].kill()
        kafka.network.heal()
        after = topic.wait_for(lambda row: row.leader in (2, 3))
        assert after == Partition(2, 1, REPLICAS, (2, 3), (), (), (1,))
        assert topic.produce(2, b"instead")["base_offset"] == 1
        wait_for(found, b"instead")
    for client, one in found.items():
        assert [(row.offset, row.value) for row in one.records] == [(0, b"kept"), (1, b"instead")], client
        assert not one.truncated, client
        assert [row.epoch for row in one.records] in ([0, 1], [None, None]), client
    kafka.nodes[1].start()
    (back,) = topic.wait_until_in_sync()
    assert back == Partition(2, 1, REPLICAS, REPLICAS, (), (), ())
    assert topic.ends() == {1: 2, 2: 2, 3: 2}
    assert topic.move_leader(1).epoch == 2
    assert topic.records(1) == [(0, b"kept"), (1, b"instead")]
