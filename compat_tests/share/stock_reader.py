"""Stock share consumers as the tests of both targets use them: confluent-kafka's, and Java's behind Kafka's tool."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import ShareConsumer

from compat_tests.differential import Session
from tests.common.batches import now_ms
from tests.common.jars import RealPartMissing, require, tool_command
from tests.common.process import Process

PATIENCE_S = 60


@contextmanager
def reading(bootstrap: str, name: str, **settings: Any) -> Iterator[Any]:
    """A share consumer that acknowledges explicitly; topic and group have one name."""
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": name,
        "share.acknowledgement.mode": "explicit",
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 100,
    }
    consumer = ShareConsumer({**config, **{key.replace("_", "."): value for key, value in settings.items()}})
    consumer.subscribe([name])
    try:
        yield consumer
    finally:
        consumer.close()


def read_until(consumer: Any, is_enough: Callable[[list[tuple[int, int]]], bool]) -> list[tuple[int, int]]:
    """Accept what comes, until it is enough. Returns offsets and delivery counts."""
    seen: list[tuple[int, int]] = []
    deadline = time.monotonic() + PATIENCE_S
    while not is_enough(seen):
        assert time.monotonic() < deadline, seen
        for message in consumer.poll(0.2):
            if message.error() is None:
                seen.append((message.offset(), message.delivery_count()))
                consumer.acknowledge(message)
        consumer.commit_sync(30.0)
    return seen


class JavaReader:
    """kafka-console-share-consumer, which accepts what it gets."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def wait_for(self, offset: int) -> list[tuple[int, int]]:
        """Wait until it has shown the record with this offset. Returns offsets and delivery counts of all that it has
        shown.
        """
        assert self._process.stdout.wait_for(f"Offset:{offset}\t", PATIENCE_S), self._process.output()
        return self.seen()

    def seen(self) -> list[tuple[int, int]]:
        found = re.findall(r"Offset:(\d+)\tDelivery:(\d+)\t", self._process.stdout.text())
        return [(int(offset), int(count)) for offset, count in found]

    def has_begun(self, timeout_s: float) -> bool:
        """Wait until it has shown a record. Returns False after a time without any."""
        return self._process.stdout.wait_for("Offset:", timeout_s) is not None


@contextmanager
def java_reading(bootstrap: str, name: str) -> Iterator[JavaReader]:
    """Java's share consumer; topic and group have one name."""
    try:
        command = tool_command(
            "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
            *("--bootstrap-server", bootstrap, "--topic", name, "--group", name),
            *("--formatter-property", "print.offset=true", "--formatter-property", "print.delivery=true"),
        )
    except RealPartMissing as missing:
        require(str(missing))
    process = Process(command)
    try:
        yield JavaReader(process)
    finally:
        process.end(kill=False)


def lag(session: Session, name: str) -> int:
    """The records of partition 0 that the group is not done with; -1 if it has not begun."""
    asked = {"groups": [{"group_id": name, "topics": [{"topic_name": name, "partitions": [0]}]}]}
    response = session.call_unobserved("DescribeShareGroupOffsets", 1, asked)
    return int(response["groups"][0]["topics"][0]["partitions"][0]["lag"])


def wait_until_done(session: Session, name: str) -> None:
    """Wait until the group is done with all records."""
    deadline = now_ms() + PATIENCE_S * 1000
    while (found := lag(session, name)) != 0:
        assert now_ms() < deadline, found
