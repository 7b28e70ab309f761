"""The proxy, and nodes behind it, are killed and started again: nothing acknowledged is lost, and clients go on."""

import asyncio
import contextlib
import json
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator

from confluent_kafka import Consumer, KafkaError, Message, Producer

from compat_tests.differential import make_topic
from compat_tests.nodes.kafka_cluster import KafkaCluster
from compat_tests.proxy.oncelog_proxy import OncelogProxy
from compat_tests.real_kafka import tool_command
from compat_tests.transactions.reader import FAST_RECONNECT, values

PACE_S = 0.01
DEADLINE_S = 60.0
KILLED = (1, 2)
PARTITIONS = 3


class Acknowledged:
    """The values that brokers acknowledged, which a client's thread adds, and a test waits for."""

    def __init__(self) -> None:
        self.values: list[str] = []
        self._changed = threading.Condition()

    def add(self, value: str) -> None:
        with self._changed:
            self.values.append(value)
            self._changed.notify_all()

    def wait_for_more(self, count: int = 20) -> None:
        """Wait until `count` more are acknowledged. Raises AssertionError after a timeout."""
        with self._changed:
            wanted = len(self.values) + count
            assert self._changed.wait_for(lambda: len(self.values) >= wanted, DEADLINE_S), len(self.values)


def confluent_kafka(bootstrap: str, topic: str, found: Acknowledged, stop: threading.Event) -> None:

    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, **FAST_RECONNECT}
    )

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            found.add((message.value() or b"").decode())

    number = 0
    while not stop.wait(PACE_S):
        producer.produce(topic, f"confluent-{number}", on_delivery=delivered)
        producer.poll(0)
        number += 1
    assert producer.flush(DEADLINE_S) == 0


def kafka_python(bootstrap: str, topic: str, found: Acknowledged, stop: threading.Event) -> None:
    from kafka import KafkaProducer  # type: ignore[import-untyped,unused-ignore]

    producer = KafkaProducer(
        bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, reconnect_backoff_max_ms=500
    )
    number = 0
    while not stop.wait(PACE_S):
        value = f"python-{number}"
        producer.send(topic, value.encode()).add_callback(lambda _, value=value: found.add(value))
        number += 1
    producer.flush(timeout=DEADLINE_S)
    producer.close(timeout=DEADLINE_S)


def aiokafka(bootstrap: str, topic: str, found: Acknowledged, stop: threading.Event) -> None:
    from aiokafka import AIOKafkaProducer  # type: ignore[import-untyped,unused-ignore]

    async def run() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True)
        await producer.start()
        number = 0
        while not stop.is_set():
            value = f"aio-{number}"
            await asyncio.wait_for(producer.send_and_wait(topic, value.encode()), DEADLINE_S)
            found.add(value)
            number += 1
            await asyncio.sleep(PACE_S)
        await producer.stop()

    asyncio.run(run())


def java(bootstrap: str, topic: str, found: Acknowledged, stop: threading.Event) -> None:
    """Kafka's VerifiableProducer, which does not repeat what fails."""
    arguments = ("--bootstrap-server", bootstrap, "--topic", topic, "--throughput", "100", "--acks", "-1")
    process = subprocess.Popen(
        tool_command("org.apache.kafka.tools.VerifiableProducer", *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )

    def end() -> None:
        stop.wait()
        process.terminate()

    ender = threading.Thread(target=end)
    ender.start()
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            row = json.loads(line)
            if row["name"] == "producer_send_success":
                found.add(row["value"])
    ender.join()


CLIENTS: dict[str, Callable[[str, str, Acknowledged, threading.Event], None]] = {
    "confluent-kafka": confluent_kafka,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
    "java": java,
}
IDEMPOTENT = ("confluent-kafka", "kafka-python", "aiokafka")


class GroupReader:
    """The only member of a group, which reads topics and commits."""

    def __init__(self, bootstrap: str, topics: list[str]) -> None:
        self.values: dict[str, Counter[str]] = {topic: Counter() for topic in topics}
        self._changed = threading.Condition()
        self._ended = False
        settings = {"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
        self._consumer = Consumer({**settings, **FAST_RECONNECT})
        self._consumer.subscribe(topics)
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while not self._ended:
            message = self._consumer.poll(0.2)
            if message is not None and message.error() is None:
                with self._changed:
                    self.values[message.topic() or ""][(message.value() or b"").decode()] += 1
                    self._changed.notify_all()

    def wait_for(self, topic: str, values: list[str]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.values[topic].keys() >= {*values}, DEADLINE_S)
        missing = {*values} - self.values[topic].keys()
        assert not missing, f"{len(missing)} of {len(values)} are lost: {sorted(missing)[:10]}"

    def close(self) -> None:
        self._ended = True
        self._thread.join()
        self._consumer.close()


@contextlib.contextmanager
def writing(bootstrap: str, topics: dict[str, str]) -> Iterator[dict[str, Acknowledged]]:
    """Let each client write to its topic, until the context ends. Yields what was acknowledged to each."""
    found = {client: Acknowledged() for client in topics}
    stop, failed = threading.Event(), []

    def run(client: str) -> None:
        try:
            CLIENTS[client](bootstrap, topics[client], found[client], stop)
        except BaseException as error:
            failed.append((client, error))

    threads = [threading.Thread(target=run, args=(client,)) for client in topics]
    for thread in threads:
        thread.start()
    try:
        yield found
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failed


def test_the_proxy_and_then_nodes_are_killed(kafka_cluster: KafkaCluster, proxy: OncelogProxy) -> None:
    topics = {client: f"from-{client}" for client in CLIENTS}
    for topic in topics.values():
        make_topic(proxy.bootstrap, topic, PARTITIONS)
    kafka_cluster.wait_until_in_sync()
    reader = GroupReader(proxy.bootstrap, [*topics.values()])
    try:
        with writing(proxy.bootstrap, topics) as found:
            for one in found.values():
                one.wait_for_more()
            proxy.kill()
            proxy.start()
            for one in found.values():
                one.wait_for_more()
            for number in KILLED:
                kafka_cluster.nodes[number].kill()
                for one in found.values():
                    one.wait_for_more()
                kafka_cluster.nodes[number].start()
                kafka_cluster.wait_until_in_sync()
                for one in found.values():
                    one.wait_for_more()
        for client, one in found.items():
            reader.wait_for(topics[client], one.values)
    finally:
        reader.close()
    for client, topic in topics.items():
        written = Counter(values(proxy.bootstrap, topic, len(found[client].values), PARTITIONS))
        assert written.keys() >= {*found[client].values}
        assert client not in IDEMPOTENT or {*written.values()} == {1}, written.most_common(3)
