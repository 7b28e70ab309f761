"""Stock read_committed consumers that read one partition from its start, on and on, while nodes go and come."""

from __future__ import annotations

import asyncio
import contextlib
import json
import pathlib
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from confluent_kafka import Consumer, TopicPartition

from compat_tests.transactions.reader import FAST_RECONNECT
from tests.common.batches import WAIT_MS
from tests.common.jars import tool_command
from tests.common.process import Lines
from tests.common.threads import join

POLL_S = 0.2
JAVA_SOURCE = pathlib.Path(__file__).with_name("NodesWorker.java")


class Read(NamedTuple):
    """A record as a consumer gave it; its leader epoch is None where the client does not tell it."""

    offset: int
    value: bytes
    epoch: int | None


class Reading:
    """What one consumer has read so far; `failed` is what ended it."""

    def __init__(self) -> None:
        self.records: list[Read] = []
        self.truncated: list[int] = []
        """The offsets to which a consumer went back, as it was told that the log was cut there (KIP-320)."""
        self.node = -1
        """From which node it fetches; Java's consumer gives only one that is not the leader, else -1."""
        self.failed: BaseException | None = None
        self._changed = threading.Condition()

    def fail(self, error: BaseException) -> None:
        with self._changed:
            self.failed = error
            self._changed.notify_all()

    def add(self, offset: int, value: bytes, epoch: int | None) -> None:
        with self._changed:
            self.records.append(Read(offset, value, epoch))
            self._changed.notify_all()

    def fetched_from(self, node: int) -> None:
        with self._changed:
            self.node = node
            self._changed.notify_all()

    def truncate(self, offset: int) -> None:
        with self._changed:
            self.truncated.append(offset)
            self._changed.notify_all()

    def wait_for(self, value: bytes) -> None:
        """Wait until a record with this value has been read. Raises AssertionError, or what ended the consumer."""
        self._wait_for(lambda: value in self.values, f"{value!r}")

    def wait_for_node(self, node: int) -> None:
        """Wait until it fetches from this node. Raises as `wait_for`."""
        self._wait_for(lambda: self.node == node, f"node {node}")

    def _wait_for(self, done: Callable[[], bool], what: str) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.failed is not None or done(), WAIT_MS / 1000)
            if self.failed is not None:
                raise self.failed
            assert done(), f"no {what}: {self.records[-10:]} from node {self.node}"

    @property
    def values(self) -> list[bytes]:
        return [one.value for one in self.records]


Running = Callable[[], bool]


class Reader(Protocol):
    """Reads a topic while it is to run; a client of the given rack."""

    def __call__(
        self, bootstrap: str, topic: str, found: Reading, running: Running, *, rack: str = ""
    ) -> None: ...


def confluent_kafka(bootstrap: str, topic: str, found: Reading, running: Running, *, rack: str = "") -> None:
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": "none",
        "enable.auto.commit": False,
    }
    settings |= {"auto.offset.reset": "error", "client.rack": rack, "statistics.interval.ms": 200}

    def told(statistics: str) -> None:
        shown = json.loads(statistics)["topics"].get(topic, {"partitions": {}})["partitions"]
        found.fetched_from(shown["0"]["broker"] if "0" in shown else -1)

    consumer = Consumer({**settings, "stats_cb": told, **FAST_RECONNECT})
    consumer.assign([TopicPartition(topic, 0, 0)])
    while running():
        message = consumer.poll(POLL_S)
        if message is None:
            continue
        error = message.error()
        if error is None:
            found.add(message.offset() or 0, message.value() or b"", message.leader_epoch())
        elif end := re.search(r"truncation detected .* broker end offset is (\d+)", error.str()):
            found.truncate(int(end[1]))
            consumer.assign([TopicPartition(topic, 0, int(end[1]))])
    consumer.close()


def kafka_python(bootstrap: str, topic: str, found: Reading, running: Running, *, rack: str = "") -> None:
    from kafka import KafkaConsumer, TopicPartition  # type: ignore[import-untyped,unused-ignore]

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        client_rack=rack,
        reconnect_backoff_max_ms=500,
    )
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    while running():
        for records in consumer.poll(timeout_ms=int(1000 * POLL_S)).values():
            for one in records:
                found.add(one.offset, one.value, one.leader_epoch)
    consumer.close(autocommit=False)


def aiokafka(bootstrap: str, topic: str, found: Reading, running: Running, *, rack: str = "") -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition  # type: ignore[import-untyped,unused-ignore]

    async def run() -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            client_rack=rack or None,
        )
        await consumer.start()
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        while running():
            for records in (await consumer.getmany(timeout_ms=int(1000 * POLL_S))).values():
                for one in records:
                    found.add(one.offset, one.value, None)
        await consumer.stop()

    asyncio.run(run())


def java(classes: pathlib.Path) -> Reader:
    """Java's consumer, by NodesWorker in `classes`."""

    def read(bootstrap: str, topic: str, found: Reading, running: Running, *, rack: str = "") -> None:
        settings = {
            "bootstrap.servers": bootstrap,
            "auto.offset.reset": "none",
            "enable.auto.commit": "false",
        }
        settings |= {"group.id": "none", "reconnect.backoff.max.ms": "500", "client.rack": rack}
        settings["isolation.level"] = "read_committed"
        rows = [f"{key}={value}" for key, value in settings.items()]
        command = tool_command("NodesWorker", "read", topic, *rows, class_path=[classes])
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            threading.Thread(target=_kill_after, args=(process, running), daemon=True).start()
            assert process.stdout is not None
            assert process.stderr is not None
            said = Lines(process.stderr)
            for line in process.stdout:
                kind, offset, *more = line.rstrip("\n").split(" ", 3)
                if kind == "truncated":
                    found.truncate(int(offset))
                elif kind == "replica":
                    found.fetched_from(int(offset))
                else:
                    found.add(int(offset), more[1].encode(), int(more[0]))
            assert not running(), said.text()

    return read


def _kill_after(process: subprocess.Popen[str], running: Running) -> None:
    while running():
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(POLL_S)
    process.kill()


CLIENTS: dict[str, Reader] = {
    "confluent-kafka": confluent_kafka,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}


@contextlib.contextmanager
def reading(
    bootstrap: str, topic: str, clients: dict[str, Reader], *, rack: str = ""
) -> Iterator[dict[str, Reading]]:
    """Let each client read partition 0 until the context ends. Yields what each has read."""
    found = {name: Reading() for name in clients}
    ended = threading.Event()

    def run(name: str) -> None:
        try:
            clients[name](bootstrap, topic, found[name], lambda: not ended.is_set(), rack=rack)
        except BaseException as error:
            found[name].fail(error)

    threads = [threading.Thread(target=run, args=(name,), daemon=True) for name in clients]
    for thread in threads:
        thread.start()
    try:
        yield found
    finally:
        ended.set()
        for thread in threads:
            join(thread)
    assert not [one.failed for one in found.values() if one.failed is not None]
