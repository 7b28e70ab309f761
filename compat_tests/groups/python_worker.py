"""Members of consumer groups in a Python process of their own, as `GroupWorker.java` has them in a JVM.

Each line of standard input is a command, each line of standard output tells what happened to a member; both are JSON.
`workers.py` says which commands and events there are.
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
Found = dict[tuple[str, int], list[int]]  # offsets read, by topic and partition
Progress = dict[tuple[str, int], int]  # the offset to go on from, by topic and partition

_output = threading.Lock()


def tell(member: str, event: str, **fields: Any) -> None:
    """One event: a line of JSON."""
    line = json.dumps({"member": member, "event": event, "at": time.monotonic_ns(), **fields})
    with _output:
        print(line, flush=True)


class Member(threading.Thread):
    """One member: polls, tells what it read, commits it, tells that. A subclass per client."""

    def __init__(self, name: str, settings: dict[str, Any]) -> None:
        super().__init__(name=name, daemon=True)
        self.settings = settings
        self.commands: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.closing = False
        self.uncommitted: Progress = {}  # read, and still to be committed: a commit in a rebalance is refused

    def tell(self, event: str, **fields: Any) -> None:
        tell(self.name, event, **fields)

    def tell_partitions(self, event: str, partitions: Iterable[Any]) -> None:
        rows = [(one.topic, one.partition) for one in partitions]
        if event != "assigned":
            for where in rows:
                self.uncommitted.pop(where, None)
        self.tell(event, partitions=rows)

    def take(self, found: Found) -> Progress:
        """Tell what was read; what to commit now."""
        for (topic, partition), offsets in found.items():
            self.tell("records", topic=topic, partition=partition, offsets=offsets)
            self.uncommitted[topic, partition] = offsets[-1] + 1
        return dict(self.uncommitted)

    def tell_committed(self, progress: Progress) -> None:
        self.tell("committed", offsets=[[*where, offset] for where, offset in progress.items()])
        for where in progress:
            self.uncommitted.pop(where, None)

    def obey(self, wait_s: float = 0) -> None:
        """A command that came meanwhile, or comes in so many seconds. A pause ends with the next."""
        with contextlib.suppress(queue.Empty):
            command = self.commands.get(block=wait_s > 0, timeout=wait_s or None)
            if command["do"] == "pause":
                command = self.commands.get()
            self.closing = command["do"] == "close"

    def run(self) -> None:
        try:
            self.live()
        except Exception as error:
            self.tell("error", name=name_of(error), text=str(error))
        self.tell("closed")

    def live(self) -> None:
        """Join, consume until told to close, leave."""
        raise NotImplementedError


def name_of(error: Exception) -> str:
    """The error's name: Kafka's where the client only carries that, else the exception's class."""
    inner = error.args[0] if error.args else None
    name = getattr(inner, "name", None)
    return str(name()) if callable(name) else type(error).__name__


def grouped(records: Iterable[Any]) -> Found:
    """confluent-kafka's messages by topic and partition."""
    found: Found = {}
    for record in records:
        found.setdefault((record.topic(), record.partition()), []).append(record.offset())
    return found


class Confluent(Member):
    """confluent-kafka, on librdkafka."""

    def live(self) -> None:
        from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

        consumer = Consumer(self.settings["config"])
        try:
            consumer.subscribe(
                self.settings["topics"],
                on_assign=lambda _, partitions: self.tell_partitions("assigned", partitions),
                on_revoke=lambda _, partitions: self.tell_partitions("revoked", partitions),
                on_lost=lambda _, partitions: self.tell_partitions("lost", partitions),
            )
            while not self.closing:
                self.obey()
                messages = consumer.consume(500, POLL_MS / 1000)
                for error in filter(None, (one.error() for one in messages)):
                    if error.code() == KafkaError._FATAL:
                        raise KafkaException(error)
                    self.tell("warning", name=error.name())
                found = grouped(one for one in messages if one.error() is None)
                progress = self.take(found)
                if not progress:
                    continue
                try:
                    offsets = [TopicPartition(*where, offset) for where, offset in progress.items()]
                    for one in consumer.commit(offsets=offsets, asynchronous=False) or ():
                        if one.error is not None:
                            raise KafkaException(one.error)
                    self.tell_committed(progress)
                except KafkaException as error:
                    self.tell("commit_failed", name=name_of(error))
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

    def live(self) -> None:
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
                member.tell_partitions("assigned", assigned)

            def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
                member.tell_partitions("revoked", revoked)

            def on_partitions_lost(self, lost: Iterable[Any]) -> None:
                member.tell_partitions("lost", lost)

        consumer = KafkaConsumer(**python_config("kafka", self.settings))
        coordinator = consumer._coordinator
        try:
            consumer.subscribe(topics=self.settings["topics"], listener=Listener())
            while not self.closing:
                self.obey()
                # A join that completes between two polls is lost to kafka-python 3.0.12: it sits in its group without
                # ever taking its partitions. Long polls make that rare, and here it is told to try again.
                try:
                    polled = consumer.poll(timeout_ms=10 * POLL_MS)
                except KafkaConnectionError:  # the broker is away while it wants to join
                    self.tell("warning", name="KafkaConnectionError")
                    self.obey(wait_s=POLL_MS / 1000)
                    continue
                if coordinator._join_task is not None and not coordinator.rejoin_needed:
                    coordinator.request_rejoin()
                found = {tuple(where): [one.offset for one in records] for where, records in polled.items()}
                progress = self.take(found)
                if not progress:
                    continue
                offsets = {
                    TopicPartition(*where): OffsetAndMetadata(offset, "", -1)
                    for where, offset in progress.items()
                }
                try:
                    consumer.commit(offsets)
                    self.tell_committed(progress)
                except FencedInstanceIdError:
                    raise  # its heartbeats have stopped silently
                except KafkaError as error:
                    self.tell("commit_failed", name=name_of(error))
        finally:
            consumer.close(autocommit=False)


class Aiokafka(Member):
    """aiokafka."""

    def live(self) -> None:
        asyncio.run(self._live())

    async def _live(self) -> None:
        from aiokafka import (  # type: ignore[import-untyped,unused-ignore]
            AIOKafkaConsumer,
            ConsumerRebalanceListener,
            TopicPartition,
        )
        from aiokafka.errors import KafkaError  # type: ignore[import-untyped,unused-ignore]

        member = self

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc,unused-ignore]
            def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
                member.tell_partitions("assigned", assigned)

            def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
                member.tell_partitions("revoked", revoked)

        consumer = AIOKafkaConsumer(**python_config("aiokafka", self.settings))
        consumer.subscribe(topics=self.settings["topics"], listener=Listener())
        await consumer.start()
        try:
            while not self.closing:
                self.obey()
                polled = await consumer.getmany(timeout_ms=POLL_MS)
                found = {tuple(where): [one.offset for one in records] for where, records in polled.items()}
                progress = self.take(found)
                if not progress:
                    continue
                offsets = {TopicPartition(*where): offset for where, offset in progress.items()}
                try:
                    await consumer.commit(offsets)
                    self.tell_committed(progress)
                except KafkaError as error:
                    self.tell("commit_failed", name=name_of(error))
        finally:
            await consumer.stop()


KINDS: dict[str, type[Member]] = {
    "confluent-kafka": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
}


def main() -> None:
    """Obey until standard input ends."""
    members: dict[str, Member] = {}
    for line in sys.stdin:
        command = json.loads(line)
        name = command["member"]
        if command["do"] == "start":
            members[name] = KINDS[command["kind"]](name, command)
            members[name].start()
        else:
            members[name].commands.put(command)
    os._exit(0)  # whoever started this process is done with its members


if __name__ == "__main__":
    main()
