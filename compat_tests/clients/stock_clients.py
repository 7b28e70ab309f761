"""Stock clients behind the same two functions: `produce` to a partition, and `consume` from it by assign()."""

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.common.jars import require

DEADLINE_S = 30.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """A record as a client sees it; `timestamp` is in ms, or None for the client's own."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp: int | None = None


class Options(NamedTuple):
    """Settings of a producer; `acks` is -1 (all), 0 or 1."""

    codec: str = "none"
    acks: int = -1
    idempotent: bool = False


class Confluent:
    """confluent-kafka, on librdkafka."""

    @staticmethod
    def produce(
        bootstrap: str, topic: str, partition: int, records: Sequence[Record], options: Options
    ) -> list[int]:
        """The offsets of the records; empty with acks=0, which reports none. Raises KafkaException."""
        from confluent_kafka import KafkaError, KafkaException, Message, Producer

        offsets: list[int] = []
        errors: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                errors.append(error)
            elif options.acks:
                offsets.append(int(message.offset() or 0))

        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": options.codec,
                "acks": options.acks,
                "enable.idempotence": options.idempotent,
                "delivery.timeout.ms": int(DEADLINE_S * 1000),
                "message.max.bytes": 8_000_000,
            }
        )
        for record in records:
            fields: dict[str, Any] = {} if record.timestamp is None else {"timestamp": record.timestamp}
            producer.produce(
                topic,
                record.value,
                record.key,
                partition,
                on_delivery=delivered,
                headers=list(record.headers),
                **fields,
            )
        left = producer.flush(DEADLINE_S)
        if errors:
            raise KafkaException(errors[0])
        assert left == 0, f"{left} records were not delivered"
        return offsets

    @staticmethod
    def consume(bootstrap: str, topic: str, partition: int, start: int, count: int) -> list[Record]:
        """`count` records from offset `start`. Raises AssertionError if they do not arrive in time."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.message.max.bytes": 8_000_000,
            }
        )
        try:
            consumer.assign([TopicPartition(topic, partition, start)])
            found: list[Record] = []
            while len(found) < count:
                message = consumer.poll(DEADLINE_S)
                assert message is not None, f"{len(found)} of {count} records"
                assert message.error() is None, message.error()
                assert message.offset() == start + len(found)
                headers = tuple(message.headers() or ())
                found.append(Record(message.key(), message.value(), headers, message.timestamp()[1]))  # type: ignore[arg-type]
            return found
        finally:
            consumer.close()


class KafkaPython:
    """kafka-python."""

    @staticmethod
    def produce(
        bootstrap: str, topic: str, partition: int, records: Sequence[Record], options: Options
    ) -> list[int]:
        """The offsets of the records; -1 for each with acks=0."""
        from kafka import KafkaProducer  # type: ignore[import-untyped,unused-ignore]

        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if options.codec == "none" else options.codec,
            acks="all" if options.acks == -1 else options.acks,
            enable_idempotence=options.idempotent,
            max_request_size=8_000_000,
            linger_ms=5,
        )
        try:
            sent = [
                producer.send(
                    topic,
                    record.value,
                    record.key,
                    headers=list(record.headers),
                    partition=partition,
                    timestamp_ms=record.timestamp,
                )
                for record in records
            ]
            return [int(future.get(DEADLINE_S).offset) for future in sent]
        finally:
            producer.close(timeout=DEADLINE_S)

    @staticmethod
    def consume(bootstrap: str, topic: str, partition: int, start: int, count: int) -> list[Record]:
        """`count` records from offset `start`."""
        from kafka import KafkaConsumer, TopicPartition  # type: ignore[import-untyped,unused-ignore]

        consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, group_id=None)
        try:
            where = TopicPartition(topic, partition)
            consumer.assign([where])
            consumer.seek(where, start)
            found: list[Record] = []
            while len(found) < count:
                polled = consumer.poll(timeout_ms=int(DEADLINE_S * 1000))
                assert polled, f"{len(found)} of {count} records"
                for one in polled[where]:
                    assert one.offset == start + len(found)
                    found.append(Record(one.key, one.value, tuple(one.headers), one.timestamp))
            return found[:count]
        finally:
            consumer.close()


class Aiokafka:
    """aiokafka."""

    @staticmethod
    def produce(
        bootstrap: str, topic: str, partition: int, records: Sequence[Record], options: Options
    ) -> list[int]:
        """The offsets of the records; empty with acks=0."""
        from aiokafka import AIOKafkaProducer  # type: ignore[import-untyped,unused-ignore]

        async def run() -> list[int]:
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                compression_type=None if options.codec == "none" else options.codec,
                acks="all" if options.acks == -1 else options.acks,
                enable_idempotence=options.idempotent,
                max_request_size=8_000_000,
            )
            await producer.start()
            try:
                sent = [
                    await producer.send(
                        topic,
                        record.value,
                        record.key,
                        partition,
                        timestamp_ms=record.timestamp,
                        headers=list(record.headers),
                    )
                    for record in records
                ]
                reports = [await asyncio.wait_for(future, DEADLINE_S) for future in sent]
                return [int(report.offset) for report in reports if report is not None]
            finally:
                await producer.stop()

        return asyncio.run(run())

    @staticmethod
    def consume(bootstrap: str, topic: str, partition: int, start: int, count: int) -> list[Record]:
        """`count` records from offset `start`."""
        from aiokafka import AIOKafkaConsumer, TopicPartition  # type: ignore[import-untyped,unused-ignore]

        async def run() -> list[Record]:
            consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
            await consumer.start()
            try:
                consumer.assign([TopicPartition(topic, partition)])
                consumer.seek(TopicPartition(topic, partition), start)
                found: list[Record] = []
                while len(found) < count:
                    one = await asyncio.wait_for(consumer.getone(), DEADLINE_S)
                    assert one.offset == start + len(found)
                    found.append(Record(one.key, one.value, tuple(one.headers), one.timestamp))
                return found
            finally:
                await consumer.stop()

        return asyncio.run(run())


def run_kcat(
    bootstrap: str, *arguments: str, input: bytes | None = None, check: bool = True
) -> "subprocess.CompletedProcess[bytes]":
    """Run kcat until it exits; skips the test if it is not installed."""
    binary = shutil.which("kcat")
    if binary is None:
        require("no kcat (the Debian package of that name)")
    run = subprocess.run(
        [binary, "-b", bootstrap, *arguments],
        input=input,
        stdin=subprocess.DEVNULL if input is None else None,
        capture_output=True,
        timeout=DEADLINE_S + 10,
        check=False,
        env={**os.environ, "KCAT_CONFIG": "/dev/null"},
    )
    assert not check or run.returncode == 0, run.stderr.decode(errors="replace")
    return run


class Kcat:
    """kcat, with the older librdkafka of its package (2.0 in Debian 12)."""

    @staticmethod
    def produce(
        bootstrap: str, topic: str, partition: int, records: Sequence[Record], options: Options
    ) -> list[int]:
        """Send text keys and values without newlines. Returns an empty list: kcat reports no offsets."""
        settings = [f"compression.codec={options.codec}", f"request.required.acks={options.acks}"]
        settings += [f"enable.idempotence={str(options.idempotent).lower()}", "message.max.bytes=8000000"]
        arguments = [word for setting in settings for word in ("-X", setting)]
        lines = b"".join((record.key or b"") + b"\t" + (record.value or b"") + b"\n" for record in records)
        run_kcat(bootstrap, "-P", "-t", topic, "-p", str(partition), "-K", "\t", *arguments, input=lines)
        return []

    @staticmethod
    def consume(bootstrap: str, topic: str, partition: int, start: int, count: int) -> list[Record]:
        """`count` records from offset `start`; UTF-8 text only, because kcat prints JSON."""
        arguments = ["-C", "-t", topic, "-p", str(partition), "-o", str(start), "-c", str(count), "-J", "-q"]
        found: list[Record] = []
        for line in run_kcat(bootstrap, *arguments).stdout.splitlines():
            message = json.loads(line)
            assert message["offset"] == start + len(found)
            pairs = iter(message.get("headers", ()))
            headers = tuple(
                (name, None if value is None else value.encode())
                for name, value in zip(pairs, pairs, strict=True)
            )
            key, value = (
                (None if message[name] is None else message[name].encode()) for name in ("key", "payload")
            )
            found.append(Record(key, value, headers, message["ts"]))
        return found


PYTHON_CLIENTS: dict[str, Any] = {
    "confluent-kafka": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
}
CLIENTS: dict[str, Any] = {**PYTHON_CLIENTS, "kcat": Kcat}
