"""Kafka Streams with exactly_once_v2 counts exactly while each node is restarted in its turn, and one is killed."""

import contextlib
import pathlib
from collections import Counter
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from compat_tests.nodes.target import Cluster
from compat_tests.nodes.topic import Topic, create_topic
from compat_tests.streams.counter import PARTITIONS, Instance, counter_command, counts
from compat_tests.transactions.reader import FAST_RECONNECT, Reader
from tests.common.jars import RealPartMissing, require

ASSIGNMENTS = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
WORDS, RECORDS = 12, 120


@pytest.fixture(scope="session")
def counter(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command line of an instance, before its arguments."""
    try:
        return counter_command(tmp_path_factory.mktemp("streams-classes"))
    except RealPartMissing as missing:
        require(str(missing))


@pytest.mark.slow
def test_exact_counts(kafka: Cluster, counter: list[str], tmp_path: pathlib.Path) -> None:
    topics = [create_topic(kafka, name, *ASSIGNMENTS) for name in ("in", "out")]
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True}
    producer = Producer({**settings, **FAST_RECONNECT})
    expected: Counter[str] = Counter()

    def write() -> None:
        for _ in range(RECORDS):
            number = expected.total()
            word = f"word-{number % WORDS}"
            expected[word] += 1
            producer.produce("in", word.encode(), partition=number % PARTITIONS)
        producer.poll(0)

    with Reader(kafka.bootstrap_servers, "out", PARTITIONS) as reader, contextlib.ExitStack() as ends:
        for number in range(2):
            instance = Instance(counter, kafka.bootstrap_servers, tmp_path / str(number))
            ends.callback(instance.kill)
        write()
        reader.wait_for(expected.total())
        for leave in [*(node.stop for node in kafka.nodes.values()), kafka.nodes[2].kill]:
            restart_under_load(kafka, topics, leave, write)
        assert producer.flush(60) == 0
        reader.wait_for(expected.total())
    assert {word: sorted(found.elements()) for word, found in counts(kafka.bootstrap_servers).items()} == {
        word: list(range(1, count + 1)) for word, count in expected.items()
    }


def restart_under_load(
    kafka: Cluster, topics: list[Topic], leave: Callable[[], object], write: Callable[[], None]
) -> None:
    """Have a node leave and come back; records are written before it, while it is away, and after it."""
    write()
    leave()
    write()
    for node in kafka.nodes.values():
        node.start()
    write()
    for topic in topics:
        topic.wait_until_in_sync()
