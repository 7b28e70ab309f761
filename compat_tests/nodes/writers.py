"""Stock producers, idempotent and with acks=all, that write on and on while nodes go and come."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import subprocess
import threading
from collections.abc import Callable, Iterator

from confluent_kafka import KafkaError, Message, Producer

from compat_tests.transactions.reader import FAST_RECONNECT
from tests.common.jars import tool_command
from tests.common.process import Lines
from tests.common.threads import join

PACE_S = 0.01
DEADLINE_S = 60.0


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


Writer = Callable[[str, str, Acknowledged, threading.Event], None]


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


def java(classes: pathlib.Path) -> Writer:
    """Java's producer, by NodesWorker in `classes`."""

    def write(bootstrap: str, topic: str, found: Acknowledged, stop: threading.Event) -> None:
        settings = {"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": "500"}
        rows = [f"{key}={value}" for key, value in settings.items()]
        command = tool_command("NodesWorker", "write", topic, *rows, class_path=[classes])
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            errors = Lines(process.stderr)
            feeder = threading.Thread(target=_feed, args=(process, stop), daemon=True)
            feeder.start()
            for line in process.stdout:
                kind, _, value = line.rstrip("\n").partition(" ")
                assert kind == "acknowledged", line
                found.add(value)
            join(feeder)
            assert stop.is_set(), errors.text()

    return write


def _feed(process: subprocess.Popen[str], stop: threading.Event) -> None:
    assert process.stdin is not None
    number = 0
    with process.stdin:
        while not stop.wait(PACE_S):
            process.stdin.write(f"java-{number}\n")
            process.stdin.flush()
            number += 1


CLIENTS: dict[str, Writer] = {
    "confluent-kafka": confluent_kafka,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}


@contextlib.contextmanager
def writing(
    bootstrap: str, topics: dict[str, str], clients: dict[str, Writer]
) -> Iterator[dict[str, Acknowledged]]:
    """Let each client write to its topic, until the context ends. Yields what was acknowledged to each.

    Asserts at the end that no client has failed.
    """
    found = {client: Acknowledged() for client in topics}
    stop, failed = threading.Event(), []

    def run(client: str) -> None:
        try:
            clients[client](bootstrap, topics[client], found[client], stop)
        except BaseException as error:
            failed.append((client, error))

    threads = [threading.Thread(target=run, args=(client,), daemon=True) for client in topics]
    for thread in threads:
        thread.start()
    try:
        yield found
    finally:
        stop.set()
        for thread in threads:
            join(thread)
    assert not failed
