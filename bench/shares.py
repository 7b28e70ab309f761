"""Reading and acknowledging with a share group, through librdkafka's share consumer and Java's.

Records come in batches of 1 or of 500, and so they are acquired and acknowledged: a batch is read, accepted and stored
before the next one. A group that rejects everything is measured with a dead-letter queue and without.
"""

import re
import time

from confluent_kafka import ShareConsumer

from bench import topics
from bench.experiment import Experiment, Harness, Row, Used, ours_at_least, ratio_at_least
from bench.librdkafka import QUIET
from bench.servers import Kind, Server
from tests.common.batches import batch, record
from tests.common.definitions import Fields
from tests.common.frames import Connection
from tests.common.jars import TOOL_JVM_OPTIONS, run_tool

VALUE = b"v" * 100
COUNTS = {1: 4_000, 500: 200_000}
WARM_UP = 500
TIMEOUT_S = 120
IN_FLIGHT = 50
PERF_TEST = "org.apache.kafka.tools.ShareConsumerPerformance"
GROUP_RESOURCE = 32
REJECT = 3
NUMBER_OF_RATE = 3
"""Among the numbers after the times: MB, MB and records a second, records."""


def _fill(server: Server, topic: str, count: int, size: int) -> None:
    """Append ``count`` records in batches of ``size``."""
    records = batch([record(None, VALUE, offset_delta=number) for number in range(size)])
    rows = [{"index": 0, "records": records}]
    fields: Fields = {
        "acks": 1, "timeout_ms": 30_000, "topic_data": [{"name": topic, "partition_data": rows}]
    }  # fmt: skip
    with Connection(server.bootstrap) as connection:
        waiting: list[int] = []
        for _ in range(count // size):
            waiting.append(connection.send("Produce", 9, fields))
            if len(waiting) >= IN_FLIGHT:
                connection.receive("Produce", 9, waiting.pop(0))
        for one in waiting:
            connection.receive("Produce", 9, one)


def _read_from_the_beginning(server: Server, group: str, **more: str) -> None:
    """Set the keys of a group, with ``_`` for ``.``."""
    configs = [
        {"name": key.replace("_", "."), "config_operation": 0, "value": value}
        for key, value in {"share_auto_offset_reset": "earliest", **more}.items()
    ]
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": group, "configs": configs}
    with Connection(server.bootstrap) as connection:
        connection.call("IncrementalAlterConfigs", 1, {"resources": [resource]})


def _librdkafka(size: int) -> Experiment:
    label = f"share group, librdkafka, batches of {size}"
    rate = Row(label, "records/s", ratio_at_least(1))
    server_cpu = Row(f"server CPU: {label}", "us each", is_cost=True)

    def run(harness: Harness, kind: Kind) -> None:
        server, topic = harness.warm_server(kind), harness.name("shares")
        topics.create(server, topic)
        count = harness.count(COUNTS[size]) // size * size
        _fill(server, topic, WARM_UP + count, size)
        _read_from_the_beginning(server, topic)
        settings = {
            "bootstrap.servers": server.bootstrap,
            "group.id": topic,
            "max.poll.records": size,
            **QUIET,
        }
        with ShareConsumer(settings) as consumer:
            consumer.subscribe([topic])
            _read(consumer, WARM_UP)
            with Used(server) as used:
                read = _read(consumer, count)
        harness.record(rate.name, kind, read / used.seconds, used)
        harness.record(server_cpu.name, kind, used.server_s / read * 1e6)
        topics.delete(server, topic)

    return Experiment(label, (rate, server_cpu), run, warm=True)


def _read(consumer: ShareConsumer, count: int) -> int:
    """Read at least ``count`` records, accept each batch before the next; return how many there were."""
    read = 0
    deadline = time.monotonic() + TIMEOUT_S
    while read < count:
        found = len(consumer.poll(1.0))
        read += found
        if found:
            consumer.commit_sync(30.0)
        if time.monotonic() > deadline:
            raise RuntimeError(f"{read} of {count} records after {TIMEOUT_S} s")
    return read


def _java(size: int) -> Experiment:
    label = f"share group, kafka-share-consumer-perf-test, batches of {size}"
    rate = Row(label, "records/s", ratio_at_least(1))

    def run(harness: Harness, kind: Kind) -> None:
        server, topic = harness.warm_server(kind), harness.name("shares")
        topics.create(server, topic)
        count = harness.count(COUNTS[size]) // size * size
        _fill(server, topic, count, size)
        _read_from_the_beginning(server, topic)
        shown = run_tool(
            PERF_TEST, "--bootstrap-server", server.bootstrap, "--topic", topic, "--group", topic,
            "--num-records", str(count), "--timeout", str(TIMEOUT_S * 1000), "--hide-header",
            "--command-property", f"max.poll.records={size}",
            jvm_options=TOOL_JVM_OPTIONS, timeout_s=2 * TIMEOUT_S,
        ).stdout  # fmt: skip
        numbers = [float(one) for one in re.findall(r", (\d+(?:\.\d+)?)", shown)]
        harness.record(rate.name, kind, numbers[NUMBER_OF_RATE])
        topics.delete(server, topic)

    return Experiment(label, (rate,), run, warm=True)


def _rejecting(size: int) -> Experiment:
    """Reject each batch with the fetch of the next one. With a queue, the time ends when all records are there."""
    label = f"share group that rejects, batches of {size}"
    rate, with_queue = Row(label, "records/s"), Row(f"{label}, dead-letter queue", "records/s")
    ratio = Row(f"{label}: rate with a queue by rate without", "x", ours_at_least(0.5))

    def run(harness: Harness, kind: Kind) -> None:
        server, count = harness.warm_server(kind), harness.count(COUNTS[size]) // size * size
        rates = []
        for row in (rate, with_queue):
            topic, queue = harness.name("shares"), None
            topics.create(server, topic)
            _fill(server, topic, count, size)
            more = {}
            if row is with_queue:
                queue = f"dlq.{topic}"
                topics.create(server, queue, config={"errors.deadletterqueue.group.enable": "true"})
                more = {"errors_deadletterqueue_topic_name": queue}
            _read_from_the_beginning(server, topic, **more)
            with Connection(server.bootstrap) as connection:
                topic_id = _join(connection, topic)
                with Used(server) as used:
                    _reject(connection, topic, topic_id, count)
                    if queue is not None:
                        _wait_for_end(connection, queue, count)
            rates.append(count / used.seconds)
            harness.record(row.name, kind, rates[-1], used)
            for one in filter(None, (topic, queue)):
                topics.delete(server, one)
        harness.record(ratio.name, kind, rates[1] / rates[0])

    return Experiment(label, (rate, with_queue, ratio), run, warm=True)


def _join(connection: Connection, group: str) -> bytes:
    """Join the group, which has the topic's name, until the topic's partition is assigned. Returns the topic's id."""
    body: Fields = {
        "group_id": group, "member_id": "member", "member_epoch": 0, "rack_id": None,
        "subscribed_topic_names": [group],
    }  # fmt: skip
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        connection.call("FindCoordinator", 6, {"key_type": 0, "coordinator_keys": [group]})
        response = connection.call("ShareGroupHeartbeat", 1, body)
        if response["error_code"]:
            continue
        body = {**body, "member_epoch": response["member_epoch"], "subscribed_topic_names": None}
        for row in (response["assignment"] or {}).get("topic_partitions") or []:
            return bytes(row["topic_id"])
    raise RuntimeError(f"not assigned within {TIMEOUT_S} s: {response}")


def _reject(connection: Connection, group: str, topic_id: bytes, count: int) -> None:
    epoch, rejected = 0, 0
    rows: list[Fields] = [{"partition_index": 0, "acknowledgement_batches": []}]
    response: Fields = {}
    deadline = time.monotonic() + TIMEOUT_S
    while rejected < count or rows:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{rejected} of {count} records after {TIMEOUT_S} s: {response}")
        body = {
            "group_id": group, "member_id": "member", "share_session_epoch": epoch, "max_wait_ms": 100,
            "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500, "share_acquire_mode": 0,
            "is_renew_ack": False, "topics": [{"topic_id": topic_id, "partitions": rows}] if rows else [],
            "forgotten_topics_data": [],
        }  # fmt: skip
        response = connection.call("ShareFetch", 2, body)
        if response["error_code"]:
            continue
        epoch, rows = epoch + 1, []
        for topic in response["responses"]:
            for row in topic["partitions"]:
                assert not row["acknowledge_error_code"], row
                acquired = [(one["first_offset"], one["last_offset"]) for one in row["acquired_records"]]
                said = [
                    {"first_offset": first, "last_offset": last, "acknowledge_types": [REJECT]}
                    for first, last in acquired
                ]
                rejected += sum(last - first + 1 for first, last in acquired)
                if said:
                    rows = [{"partition_index": 0, "acknowledgement_batches": said}]


def _wait_for_end(connection: Connection, topic: str, end: int) -> None:
    """Wait until the topic's partition has so many records."""
    asked = {"topics": [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]}
    deadline = time.monotonic() + TIMEOUT_S
    while (found := connection.call("ListOffsets", 6, asked)["topics"][0]["partitions"][0]["offset"]) < end:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{found} of {end} records in the queue after {TIMEOUT_S} s")


EXPERIMENTS = (
    *(_librdkafka(size) for size in COUNTS),
    *(_java(size) for size in COUNTS),
    *(_rejecting(size) for size in COUNTS),
)
