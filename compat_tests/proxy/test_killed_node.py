"""The proxy, and nodes behind it, are killed and started again: nothing acknowledged is lost, and clients go on."""

import json
import subprocess
import threading
from collections import Counter

from confluent_kafka import Consumer

from compat_tests.differential import make_topic
from compat_tests.nodes.kafka_cluster import KafkaCluster
from compat_tests.nodes.writers import CLIENTS, Acknowledged, writing
from compat_tests.proxy.oncelog_proxy import OncelogProxy
from compat_tests.real_kafka import tool_command
from compat_tests.transactions.reader import FAST_RECONNECT, values

DEADLINE_S = 60.0
KILLED = (1, 2)
PARTITIONS = 3


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


def test_the_proxy_and_then_nodes_are_killed(kafka_cluster: KafkaCluster, proxy: OncelogProxy) -> None:
    writers = {**CLIENTS, "java": java}
    topics = {client: f"from-{client}" for client in writers}
    for topic in topics.values():
        make_topic(proxy.bootstrap, topic, PARTITIONS)
    kafka_cluster.wait_until_in_sync()
    reader = GroupReader(proxy.bootstrap, [*topics.values()])
    try:
        with writing(proxy.bootstrap, topics, writers) as found:
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
        assert client not in CLIENTS or {*written.values()} == {1}, written.most_common(3)
