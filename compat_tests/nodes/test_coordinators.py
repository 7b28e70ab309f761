"""The node of a coordinator is killed in each state of what it coordinates, and another one goes on."""

import contextlib
import pathlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Producer as StockProducer

from compat_tests.group_requests.consumer_members import GROUP_RESOURCE
from compat_tests.nodes.target import Cluster
from compat_tests.nodes.topic import Topic, call, create_topic, reachable, set_config
from compat_tests.nodes.waiting import wait_until
from compat_tests.share.stock_reader import read_until
from compat_tests.share.stock_reader import reading as share_reading
from compat_tests.transactions.java_worker import JavaWorker
from compat_tests.transactions.reader import FAST_RECONNECT, committed, values
from oncelog.wire.schema import uuid_to_text

ASSIGNMENTS = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
PARTITIONS = len(ASSIGNMENTS)
GROUP, TRANSACTION, SHARE = 0, 1, 2
INTERNAL = {GROUP: "__consumer_offsets", TRANSACTION: "__transaction_state", SHARE: "__share_group_state"}
WAIT_S = 60
STEPS = ("begin", "send", "flush", "offsets", "commit")


def coordinator_of(kafka: Cluster, kind: int, key: str) -> int:
    """The node that coordinates it, once all say so."""

    def ask() -> set[int]:
        asked = {"key_type": kind, "coordinator_keys": [key]}
        rows = [
            call(kafka, node, "FindCoordinator", 6, asked)["coordinators"][0] for node in reachable(kafka)
        ]
        return {row["node_id"] if row["error_code"] == 0 else -1 for row in rows}

    return wait_until(ask, lambda found: len(found) == 1 and found != {-1}, f"a coordinator of {key}").pop()


@contextlib.contextmanager
def back_in_the_end(kafka: Cluster, *topics: Topic) -> Iterator[None]:
    """Start all nodes in the end, and wait until the replicas of these topics are in sync."""
    yield
    for node in kafka.nodes.values():
        node.start()
    for topic in topics:
        topic.wait_until_in_sync()


class Producer(Protocol):
    """A transactional producer of a stock client."""

    def run(self, step: str, *arguments: object) -> None:
        """Do a step of STEPS to the end. `send` gets a value, for each partition, `offsets` an offset and a group."""


class Confluent:
    def __init__(self, kafka: Cluster, topic: str) -> None:
        settings = {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic}
        self._producer = StockProducer({**settings, "transaction.timeout.ms": 60_000, **FAST_RECONNECT})
        self._topic = topic
        again(lambda: self._producer.init_transactions(WAIT_S))

    def run(self, step: str, *arguments: Any) -> None:
        if step == "begin":
            self._producer.begin_transaction()
        elif step == "send":
            for partition in range(PARTITIONS):
                self._producer.produce(self._topic, f"{arguments[0]}-{partition}", partition=partition)
        elif step == "flush":
            assert self._producer.flush(WAIT_S) == 0
        elif step == "offsets":
            with contextlib.closing(
                Consumer({"bootstrap.servers": "-", "group.id": arguments[1]})
            ) as consumer:
                group = consumer.consumer_group_metadata()
            offsets = [TopicPartition(self._topic, 0, arguments[0])]
            again(lambda: self._producer.send_offsets_to_transaction(offsets, group, WAIT_S))
        else:
            again(lambda: self._producer.commit_transaction(WAIT_S))


class Java:
    """Its `send` waits for the acknowledgement."""

    def __init__(self, worker: JavaWorker, kafka: Cluster, topic: str) -> None:
        self._worker, self._topic = worker, topic
        more = {
            "transaction_timeout_ms": 60_000,
            "max_block_ms": WAIT_S * 1000,
            "reconnect_backoff_max_ms": 500,
        }
        worker.new_producer("p", kafka.bootstrap_servers, topic, **more)
        self._execute("init", "p")

    def run(self, step: str, *arguments: object) -> None:
        if step == "send":
            for partition in range(PARTITIONS):
                self._execute("send", "p", self._topic, partition, f"{arguments[0]}-{partition}")
        elif step == "offsets":
            self._execute("offsets", "p", arguments[1], self._topic, 0, arguments[0])
        else:
            self._execute(step, "p")

    def _execute(self, *words: object) -> None:
        answer = self._worker.execute(*words)
        assert answer.startswith("ok"), (words, answer, self._worker.output())


COORDINATOR_MOVES = (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR)
"""librdkafka does not say of these that a commit may be repeated."""


def again(step: Callable[[], object]) -> None:
    """Do a step again while librdkafka asks for that."""
    while True:
        try:
            step()
            return
        except KafkaException as error:
            if not error.args[0].retriable() and error.args[0].code() not in COORDINATOR_MOVES:
                raise


@pytest.fixture
def producer_of(request: pytest.FixtureRequest) -> Iterator[Callable[[str, Cluster, str], Producer]]:
    """`producer_of(client, kafka, topic)` gives a producer that has been initialised."""
    with contextlib.ExitStack() as ends:

        def make(client: str, kafka: Cluster, topic: str) -> Producer:
            if client == "confluent-kafka":
                return Confluent(kafka, topic)
            classes: pathlib.Path = request.getfixturevalue("_classes")
            worker = JavaWorker(classes)
            ends.callback(worker.end)
            return Java(worker, kafka, topic)

        yield make


@pytest.mark.slow
@pytest.mark.parametrize("client", ["confluent-kafka", "java"])
def test_a_transaction_is_finished_once(
    kafka: Cluster, name: str, client: str, producer_of: Callable[[str, Cluster, str], Producer]
) -> None:
    """Its coordinator is killed after each step, and while it commits.

    The offsets are of another group each time: librdkafka 2.16 remembers a group's coordinator for ten minutes, and
    waits so long for one that has died and left the cluster meanwhile.
    """
    topic = create_topic(kafka, name, *ASSIGNMENTS)
    producer = producer_of(client, kafka, name)
    expected: list[str] = []
    for number, last in enumerate((*STEPS, "while it commits")):
        coordinator = kafka.nodes[coordinator_of(kafka, TRANSACTION, name)]
        group = f"{name}-{number}"
        arguments = {"send": (number,), "offsets": (number + 1, group)}
        with back_in_the_end(kafka, topic, kafka.topic(INTERNAL[TRANSACTION])), ThreadPoolExecutor(1) as pool:
            for step in STEPS:
                done = pool.submit(producer.run, step, *arguments.get(step, ()))
                if step == "commit" and last not in STEPS:
                    coordinator.kill()
                done.result()
                if step == last:
                    coordinator.kill()
        expected += [f"{number}-{partition}" for partition in range(PARTITIONS)]
        for level in ("read_committed", "read_uncommitted"):
            found = values(kafka.bootstrap_servers, name, len(expected), PARTITIONS, level=level)
            assert found == sorted(expected), (last, level)
        assert committed(kafka.bootstrap_servers, group, name, number + 1) == number + 1, last


class Member:
    """A member that commits after each record, by hand."""

    def __init__(self, kafka: Cluster, topic: str, protocol: str) -> None:
        settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": f"{topic}-{protocol}"}
        settings |= {"group.protocol": protocol, "auto.offset.reset": "earliest"}
        self.consumer = Consumer({**settings, "enable.auto.commit": False, **FAST_RECONNECT})
        self.consumer.subscribe([topic])
        self.values: list[str] = []

    def read(self) -> bool:
        """Return whether a record came soon."""
        message = self.consumer.poll(0.2)
        if message is None or message.error() is not None:
            return False
        self.values.append((message.value() or b"").decode())
        return True

    def commit(self) -> None:
        again(lambda: self.consumer.commit(asynchronous=False))

    def read_until(self, count: int, *others: "Member") -> None:
        """Read and commit, with others, until they have so many records."""
        members = (self, *others)

        def read() -> int:
            for member in members:
                if member.read():
                    member.commit()
            return sum(len(member.values) for member in members)

        wait_until(read, lambda found: found >= count, f"{count} records")


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_goes_on(kafka: Cluster, name: str, protocol: str) -> None:
    """Its coordinator is killed before and after a commit, while a member joins, and while one has left."""
    topic, group = create_topic(kafka, name, *ASSIGNMENTS), f"{name}-{protocol}"
    offsets = kafka.topic(INTERNAL[GROUP])
    written: list[str] = []

    def write(*partitions: int) -> None:
        for partition in partitions:
            written.append(f"{len(written)}-{partition}")
            row = topic.wait_for(lambda row: row.leader > 0 and kafka.nodes[row.leader].is_running, partition)
            said = topic.produce_to_leader(row.leader, written[-1].encode(), partition=partition)
            assert said["error_code"] == 0

    def kill() -> None:
        kafka.nodes[coordinator_of(kafka, GROUP, group)].kill()

    with contextlib.ExitStack() as ends:
        one = Member(kafka, name, protocol)
        ends.callback(one.consumer.close)
        write(0)
        one.read_until(len(written))
        for kill_first in (True, False):
            write(1)
            wait_until(one.read, bool, "a record")
            with back_in_the_end(kafka, topic, offsets):
                if kill_first:
                    kill()
                one.commit()
                if not kill_first:
                    kill()
                wait_until(lambda: topic.partitions, lambda rows: all(row.leader > 0 for row in rows))
                write(0)
                one.read_until(len(written))
        other = Member(kafka, name, protocol)
        ends.callback(other.consumer.close)
        with back_in_the_end(kafka, topic, offsets):
            other.read()
            kill()
            wait_until(
                lambda: (
                    one.read() or other.read() or (one.consumer.assignment(), other.consumer.assignment())
                ),
                lambda found: found is not True and all(found),
                "two members",
            )
        write(0, 1, 2)
        one.read_until(len(written) - len(other.values), other)
        ends.pop_all().close()
        with back_in_the_end(kafka, topic, offsets):
            kill()
            write(2)
            late = Member(kafka, name, protocol)
            ends.callback(late.consumer.close)
            late.read_until(1)
    assert Counter([*one.values, *other.values, *late.values]) == Counter(written)
    assert late.values == written[-1:]


@pytest.mark.slow
def test_what_a_share_group_accepted_does_not_come_again(kafka: Cluster, name: str) -> None:
    """The leader of its share partition is killed, that of its state, and its coordinator."""
    topic = create_topic(kafka, name, (1, 2, 3))
    set_config(kafka, GROUP_RESOURCE, name, "share.auto.offset.reset", "earliest")
    (described,) = call(kafka, 1, "Metadata", 12, {"topics": [{"name": name}]})["topics"]
    state = f"{name}:{uuid_to_text(described['topic_id'])}:0"
    accepted: list[int] = []

    def write() -> int:
        row = topic.produce_to_leader(topic.partitions[0].leader, b"value")
        assert row["error_code"] == 0, row
        return int(row["base_offset"])

    victims: tuple[Callable[[], int], ...] = (
        lambda: topic.partitions[0].leader,
        lambda: coordinator_of(kafka, SHARE, state),
        lambda: coordinator_of(kafka, GROUP, name),
    )
    with share_reading(kafka.bootstrap_servers, name) as consumer:

        def accept(last: int) -> None:
            seen = read_until(consumer, lambda found: any(offset == last for offset, _ in found))
            accepted.extend(offset for offset, _ in seen)

        accept(write())
        for victim in victims:
            with back_in_the_end(kafka, topic, *(kafka.topic(INTERNAL[kind]) for kind in (GROUP, SHARE))):
                kafka.nodes[victim()].kill()
                topic.wait_for(lambda row: row.leader > 0 and len(row.isr) == 2)
                accept(write())
            accept(write())
    assert accepted == [*range(len(accepted))]
    assert len(accepted) == 1 + 2 * len(victims)


@pytest.mark.slow
def test_what_a_share_group_has_acquired_and_not_accepted_comes_again(kafka: Cluster, name: str) -> None:
    """The leader of the share partition is killed, which alone knows what is acquired."""
    topic = create_topic(kafka, name, (1, 2, 3))
    set_config(kafka, GROUP_RESOURCE, name, "share.auto.offset.reset", "earliest")
    for value in (b"accepted", b"acquired", b"acquired, too"):
        assert topic.produce(1, value)["error_code"] == 0
    with share_reading(kafka.bootstrap_servers, name) as consumer:
        acquired: list[Any] = []
        while not acquired:
            acquired = [message for message in consumer.poll(0.2) if message.error() is None]
        assert [message.offset() for message in acquired] == [0, 1, 2]
        consumer.acknowledge(acquired[0])
        consumer.commit_sync(30.0)
        with back_in_the_end(kafka, topic, *(kafka.topic(INTERNAL[kind]) for kind in (GROUP, SHARE))):
            kafka.nodes[1].kill()
            topic.wait_for(lambda row: row.leader > 0 and row.leader != 1)
            for message in acquired[1:]:
                consumer.acknowledge(message)  # too late: the new leader has not given them out
            with contextlib.suppress(KafkaException):
                consumer.commit_sync(30.0)
            again = read_until(consumer, lambda found: {1, 2} <= {offset for offset, _ in found})
    assert [offset for offset, _ in again] == [1, 2]


def test_what_a_share_group_has_acquired_stays_so_with_another_replica(kafka: Cluster, name: str) -> None:
    """A replica that is added begins no leader epoch."""
    topic = create_topic(kafka, name, (1,))
    set_config(kafka, GROUP_RESOURCE, name, "share.auto.offset.reset", "earliest")
    assert topic.produce(1, b"acquired")["error_code"] == 0
    with share_reading(kafka.bootstrap_servers, name) as consumer:
        [acquired] = wait_until(
            lambda: [one for one in consumer.poll(0.2) if one.error() is None], bool, "it"
        )
        topic.reassign([1, 2], 0)
        topic.wait_for(lambda row: row.isr == (1, 2))
        consumer.acknowledge(acquired)
        consumer.commit_sync(30.0)
        assert topic.produce(1, b"another")["error_code"] == 0
        seen = read_until(consumer, lambda found: any(offset == 1 for offset, _ in found))
    assert [(offset, count) for offset, count in seen] == [(1, 1)]
