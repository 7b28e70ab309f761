"""A worker process with members of consumer groups; `GroupWorker.java` is its counterpart for the Java client.

It reads commands from standard input and writes events to standard output, as `workers.py` describes.
"""

import asyncio
import contextlib
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

POLL_MS = 50
Offsets = dict[tuple[str, int], list[int]]  # the offsets of records, by topic and partition
Progress = dict[tuple[str, int], int]  # the next offset, by topic and partition

_output = threading.Lock()


def report(member: str, event: str, **fields: Any) -> None:
    """Write an event as a line of JSON."""
    line = json.dumps({"member": member, "event": event, "at": time.monotonic_ns(), **fields})
    with _output:
        print(line, flush=True)


class Member(threading.Thread):
    """A member: it polls, reports the records, commits their offsets and reports that. Subclasses are clients."""

    def __init__(self, name: str, settings: dict[str, Any]) -> None:
        super().__init__(name=name, daemon=True)
        self.settings = settings
        self.commands: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.closing = False
        self.uncommitted: Progress = {}  # kept until a commit succeeds: during a rebalance it is refused

    def report(self, event: str, **fields: Any) -> None:
        report(self.name, event, **fields)

    def report_partitions(self, event: str, partitions: Iterable[Any]) -> None:
        rows = [(one.topic, one.partition) for one in partitions]
        if event != "assigned":
            for where in rows:
                self.uncommitted.pop(where, None)
        self.report(event, partitions=rows)

    def report_records(self, found: Offsets) -> Progress:
        """Report records; returns the offsets to commit."""
        for (topic, partition), offsets in found.items():
            self.report("records", topic=topic, partition=partition, offsets=offsets)
            self.uncommitted[topic, partition] = offsets[-1] + 1
        return dict(self.uncommitted)

    def report_committed(self, progress: Progress) -> None:
        self.report("committed", offsets=[[*where, offset] for where, offset in progress.items()])
        for where in progress:
            self.uncommitted.pop(where, None)

    def handle_command(self, wait_s: float = 0) -> None:
        """Handle a command, if there is one or one comes in time. A pause lasts until the next command."""
        with contextlib.suppress(queue.Empty):
            command = self.commands.get(block=wait_s > 0, timeout=wait_s or None)
            if command["do"] == "pause":
                command = self.commands.get()
            self.closing = command["do"] == "close"

    def run(self) -> None:
        try:
            self.consume_until_closed()
        except Exception as error:
            self.report("error", name=error_name(error), text=str(error))
        self.report("closed")

    def consume_until_closed(self) -> None:
        """Join the group, consume until the command to close, and leave the group."""
        raise NotImplementedError


def error_name(error: Exception) -> str:
    """Kafka's name of the error in a client's exception, or else the name of the exception's class."""
    inner = error.args[0] if error.args else None
    name = getattr(inner, "name", None)
    return str(name()) if callable(name) else type(error).__name__


def grouped(records: Iterable[Any]) -> Offsets:
    """The offsets of confluent-kafka's messages."""
    found: Offsets = {}
    for record in records:
        found.setdefault((record.topic(), record.partition()), []).append(record.offset())
    return found


class Confluent(Member):
    """confluent-kafka, on librdkafka."""

    def consume_until_closed(self) -> None:
        from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

        consumer = Consumer(self.settings["config"])
        try:
            consumer.subscribe(
                self.settings["topics"],
                on_assign=lambda _, partitions: self.report_partitions("assigned", partitions),
                on_revoke=lambda _, partitions: self.report_partitions("revoked", partitions),
                on_lost=lambda _, partitions: self.report_partitions("lost", partitions),
            )
            while not self.closing:
                self.handle_command()
                messages = consumer.consume(500, POLL_MS / 1000)
                for error in filter(None, (one.error() for one in messages)):
                    if error.code() == KafkaError._FATAL:
                        raise KafkaException(error)
                    self.report("warning", name=error.name())
                found = grouped(one for one in messages if one.error() is None)
                progress = self.report_records(found)
                if not progress:
                    continue
                try:
                    offsets = [TopicPartition(*where, offset) for where, offset in progress.items()]
                    for one in consumer.commit(offsets=offsets, asynchronous=False) or ():
                        if one.error is not None:
                            raise KafkaException(one.error)
                    self.report_committed(progress)
                except KafkaException as error:
                    self.report("commit_failed", name=error_name(error))
        finally:
            consumer.close()


def python_assignors(package: str, names: Sequence[str]) -> list[Any]:
    """kafka-python's or aiokafka's assignor classes by Kafka's names."""
    import importlib

    places = {
        "range": ("range", "RangePartitionAssignor"),
        "roundrobin": ("roundrobin", "RoundRobinPartitionAssignor"),
        "sticky": ("sticky.sticky_assignor", "StickyPartitionAssignor"),
        "cooperative-sticky": ("cooperative_sticky", "CooperativeStickyAssignor"),
    }
    found = []
    for name in names:
        module, attribute = places[name]
        found.append(getattr(importlib.import_module(f"{package}.coordinator.assignors.{module}"), attribute))
    return found


def python_config(package: str, settings: dict[str, Any]) -> dict[str, Any]:
    config = dict(settings["config"])
    config["partition_assignment_strategy"] = python_assignors(
        package, config["partition_assignment_strategy"]
    )
    return config


class KafkaPython(Member):
    """kafka-python."""

    def consume_until_closed(self) -> None:
        from kafka import (  # type: ignore[import-untyped,unused-ignore]
            ConsumerRebalanceListener,
            KafkaConsumer,
            OffsetAndMetadata,
            TopicPartition,
        )
        from kafka.errors import (  # type: ignore[import-untyped,unused-ignore]
            FencedInstanceIdError,
            KafkaConnectionError,
            KafkaError,
        )

        member = self

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc,unused-ignore]
            def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
                member.report_partitions("assigned", assigned)

            def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
                member.report_partitions("revoked", revoked)

            def on_partitions_lost(self, lost: Iterable[Any]) -> None:
                member.report_partitions("lost", lost)

        consumer = KafkaConsumer(**python_config("kafka", self.settings))
        coordinator = consumer._coordinator
        try:
            consumer.subscribe(topics=self.settings["topics"], listener=Listener())
            while not self.closing:
                self.handle_command()
                # kafka-python 3.0.12 ignores a join that completes between two polls: it stays in the group and never
                # takes its partitions. Long polls make that rare, and otherwise it is told to join again.
                try:
                    polled = consumer.poll(timeout_ms=10 * POLL_MS)
                except KafkaConnectionError:  # it tried to join while the broker was down
                    self.report("warning", name="KafkaConnectionError")
                    self.handle_command(wait_s=POLL_MS / 1000)
                    continue
                if coordinator._join_task is not None and not coordinator.rejoin_needed:
                    coordinator.request_rejoin()
                found = {tuple(where): [one.offset for one in records] for where, records in polled.items()}
                progress = self.report_records(found)
                if not progress:
                    continue
                offsets = {
                    TopicPartition(*where): OffsetAndMetadata(offset, "", -1)
                    for where, offset in progress.items()
                }
                try:
                    consumer.commit(offsets)
                    self.report_committed(progress)
                except FencedInstanceIdError:
                    raise  # its heartbeats have stopped without an error
                except KafkaError as error:
                    self.report("commit_failed", name=error_name(error))
        finally:
            consumer.close(autocommit=False)


class Aiokafka(Member):
    """aiokafka."""

    def consume_until_closed(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        from aiokafka import (  # type: ignore[import-untyped,unused-ignore]
            AIOKafkaConsumer,
            ConsumerRebalanceListener,
            TopicPartition,
        )
        from aiokafka.errors import KafkaError  # type: ignore[import-untyped,unused-ignore]

        member = self

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc,unused-ignore]
            def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
                member.report_partitions("assigned", assigned)

            def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
                member.report_partitions("revoked", revoked)

        consumer = AIOKafkaConsumer(**python_config("aiokafka", self.settings))
        consumer.subscribe(topics=self.settings["topics"], listener=Listener())
        await consumer.start()
        try:
            while not self.closing:
                self.handle_command()
                polled = await consumer.getmany(timeout_ms=POLL_MS)
                found = {tuple(where): [one.offset for one in records] for where, records in polled.items()}
                progress = self.report_records(found)
                if not progress:
                    continue
                offsets = {TopicPartition(*where): offset for where, offset in progress.items()}
                try:
                    await consumer.commit(offsets)
                    self.report_committed(progress)
                except KafkaError as error:
                    self.report("commit_failed", name=error_name(error))
        finally:
            await consumer.stop()


KINDS: dict[str, type[Member]] = {
    "confluent-kafka": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
}


def main() -> None:
    """Handle commands until the end of standard input."""
    members: dict[str, Member] = {}
    for line in sys.stdin:
        command = json.loads(line)
        name = command["member"]
        if command["do"] == "start":
            members[name] = KINDS[command["kind"]](name, command)
            members[name].start()
        else:
            members[name].commands.put(command)
    os._exit(0)  # without waiting for the members' threads


if __name__ == "__main__":
    main()
