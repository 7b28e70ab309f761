"""A stateful Kafka Streams application with exactly_once_v2: two instances and their broker are killed at random."""

import pathlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from compat_tests.differential import make_topic
from compat_tests.proxied import PROXY_CLUSTER, PROXY_ONCELOG
from compat_tests.streams.counter import PARTITIONS, Instance, counter_command, counts
from compat_tests.transactions.reader import FAST_RECONNECT, Reader
from compat_tests.transactions.test_exactly_once import PROPERTIES
from tests.common.jars import RealPartMissing, require
from tests.common.seeds import printed_rng

WORDS = 12
RECORDS = 1_200
BROKER_KILLS = {"oncelog": 3, "kafka": 1, PROXY_CLUSTER: 1, PROXY_ONCELOG: 1}
INSTANCE_KILLS = {"oncelog": 4, "kafka": 2, PROXY_CLUSTER: 1, PROXY_ONCELOG: 1}


@pytest.fixture(scope="session")
def counter(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command line of an instance, before its arguments."""
    try:
        return counter_command(tmp_path_factory.mktemp("streams-classes"))
    except RealPartMissing as missing:
        require(str(missing))


@pytest.fixture
def instances() -> Iterator[list[Instance]]:
    """The running instances, which are killed after the test."""
    running: list[Instance] = []
    yield running
    for instance in running:
        instance.kill()


@pytest.mark.slow
@pytest.mark.also_on(PROXY_CLUSTER, PROXY_ONCELOG)
def test_exact_counts(
    own_broker: Callable[..., Any],
    target: str,
    counter: list[str],
    instances: list[Instance],
    tmp_path: pathlib.Path,
) -> None:
    rng = printed_rng()
    broker = own_broker(PROPERTIES)
    for topic in ("in", "out"):
        make_topic(broker.bootstrap, topic, PARTITIONS)
    for number in range(2):
        instances.append(Instance(counter, broker.bootstrap, tmp_path / str(number)))
    kills = ["instance"] * INSTANCE_KILLS[target] + ["broker"] * BROKER_KILLS[target]
    rng.shuffle(kills)
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": True,
            "message.timeout.ms": 120_000,
            **FAST_RECONNECT,
        }
    )
    expected: Counter[str] = Counter()
    with Reader(broker.bootstrap, "out", PARTITIONS) as reader:
        for victim in [*kills, ""]:
            for _ in range(RECORDS // (len(kills) + 1)):
                word = f"word-{rng.randrange(WORDS)}"
                expected[word] += 1
                producer.produce("in", word.encode(), partition=rng.randrange(PARTITIONS))
            producer.poll(0)
            if not victim:
                break
            # At any moment between now and the end of all that was produced so far.
            reader.wait_for(rng.randint(len(reader.rows), expected.total()))
            if victim == "broker":
                broker.kill()
                broker.start()
            else:
                at = rng.randrange(2)
                instances[at].kill()
                instances[at] = Instance(counter, broker.bootstrap, tmp_path / str(at))
        assert producer.flush(60) == 0
        try:
            reader.wait_for(expected.total())
        except AssertionError as error:
            raise AssertionError(f"{error}\n{instances[0].lines.text()}") from error
    found = counts(broker.bootstrap)
    assert {word: sorted(numbers.elements()) for word, numbers in found.items()} == {
        word: list(range(1, count + 1)) for word, count in expected.items()
    }
