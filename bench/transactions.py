"""Transactions of ten records by confluent-kafka, and the cost of many producers with open transactions."""

import itertools
import threading
import time
from collections.abc import Sequence

from confluent_kafka import Producer

from bench import raw, topics
from bench.experiment import Experiment, Harness, Row, Target, Used, ratio_at_least, ratio_at_most
from bench.librdkafka import QUIET
from bench.measure import percentile, resident_mb
from bench.servers import Kind, Server
from tests.common.definitions import Fields
from tests.common.frames import Connection

RECORDS = 10
TRANSACTIONS = 1_500  # of each producer
MANY = 8
VALUE = b"v" * 100
TIMEOUT_S = 60
TRANSACTION_TIMEOUT_MS = 600_000
OPEN_PRODUCERS = 10_000
INIT_VERSION, ADD_VERSION, FIND_VERSION = 4, 3, 4
TRANSACTION = 1
RETRIED = (14, 15, 16, 51)
RETRY_S = 0.02


def _producer(server: Server, transactional_id: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "transactional.id": transactional_id,
            **QUIET,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def _commit(producer: Producer, topic: str, partitions: Sequence[int], count: int, took: list[float]) -> None:
    """Commit ``count`` transactions one after the other, and append the seconds of each to ``took``."""
    for _ in range(count):
        began = time.perf_counter()
        producer.begin_transaction()
        for number in range(RECORDS):
            producer.produce(topic, VALUE, partition=partitions[number % len(partitions)])
        producer.commit_transaction(TIMEOUT_S)
        took.append(time.perf_counter() - began)


def _transactions(producers: int, partitions: int, target: float) -> Experiment:
    """Measure ``producers`` concurrent producers that write to ``partitions`` partitions of one topic."""
    label = f"transactions of {RECORDS} records, {partitions} partition{'s' * (partitions > 1)}, "
    label += f"{producers} producer{'s' * (producers > 1)}"
    rate, p99 = (
        Row(label, "transactions/s", ratio_at_least(target)),
        Row(f"{label}, p99", "ms", ratio_at_most(0.25)),
    )
    server_cpu = Row(f"server CPU: {label}", "us each", is_cost=True)
    client_cpu = Row(f"client CPU: {label}", "us each", is_cost=True)

    def run(harness: Harness, kind: Kind) -> None:
        server, topic = harness.warm_server(kind), harness.name("transactions")
        topics.create(server, topic, partitions)
        clients = [_producer(server, f"{topic}-{number}") for number in range(producers)]
        for client in clients:
            _commit(client, topic, range(partitions), 20, [])
        count = harness.count(TRANSACTIONS)
        took: list[list[float]] = [[] for _ in clients]
        threads = [
            threading.Thread(target=_commit, args=(client, topic, range(partitions), count, seconds))
            for client, seconds in zip(clients, took, strict=True)
        ]
        with Used(server) as used:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        harness.record(rate.name, kind, count * producers / used.seconds, used)
        harness.record(server_cpu.name, kind, used.server_s / (count * producers) * 1e6)
        harness.record(client_cpu.name, kind, used.client_s / (count * producers) * 1e6)
        harness.record(
            p99.name,
            kind,
            1000 * percentile(list(itertools.chain(*took)), 99),
        )
        if sum(map(len, took)) != count * producers:
            raise RuntimeError("a transaction failed")
        topics.delete(server, topic)

    return Experiment(label, (rate, p99, server_cpu, client_cpu), run, warm=True, ceiling=True)


OPEN = Row(f"{OPEN_PRODUCERS:,} producers with an open transaction: opened", "producers/s")
COMMIT = Row(f"{OPEN_PRODUCERS:,} producers with an open transaction: another's commit, p99", "ms")
MEMORY = Row(
    f"{OPEN_PRODUCERS:,} producers with an open transaction: memory more", "MB", Target("ours", at_most=60)
)


def _call_until_settled(
    connection: Connection, api: str, version: int, fields: Fields, code: str = "error_code"
) -> Fields:
    while True:
        response: Fields = connection.call(api, version, fields)
        row = response["coordinators"][0] if "coordinators" in response else response
        if row.get(code, 0) not in RETRIED:
            return response
        time.sleep(RETRY_S)


def _open(connection: Connection, topic: str, transactional_id: str) -> None:
    fields: Fields = {"transactional_id": transactional_id, "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS}
    initialised = _call_until_settled(connection, "InitProducerId", INIT_VERSION, fields)
    connection.call(
        "AddPartitionsToTxn",
        ADD_VERSION,
        {
            "v3_and_below_transactional_id": transactional_id,
            "v3_and_below_producer_id": initialised["producer_id"],
            "v3_and_below_producer_epoch": initialised["producer_epoch"],
            "v3_and_below_topics": [{"name": topic, "partitions": [0]}],
        },
    )


def _many_open(harness: Harness, kind: Kind) -> None:
    server, topic = harness.warm_server(kind), harness.name("open")
    topics.create(server, topic)
    raw.wait_for_offsets(server.bootstrap, topic)
    count = harness.count(OPEN_PRODUCERS)
    with Connection(server.bootstrap) as connection:
        fields: Fields = {"key_type": TRANSACTION, "coordinator_keys": [topic]}
        _call_until_settled(connection, "FindCoordinator", FIND_VERSION, fields)
        before, began = resident_mb(server.pid), time.perf_counter()
        for number in range(count):
            _open(connection, topic, f"{topic}-{number}")
        harness.record(OPEN.name, kind, count / (time.perf_counter() - began))
        harness.record(MEMORY.name, kind, resident_mb(server.pid) - before)
    took: list[float] = []
    other = harness.name("transactions")
    topics.create(server, other)
    _commit(_producer(server, other), other, range(1), harness.count(500), took)
    harness.record(COMMIT.name, kind, 1000 * percentile(took, 99))


EXPERIMENTS = (
    _transactions(1, 1, 2.5),
    _transactions(1, 6, 2.5),
    _transactions(MANY, 1, 3),
    _transactions(MANY, 6, 3),
    Experiment("open producers", (OPEN, COMMIT, MEMORY), _many_open, warm=True, rounds_max=2),
)
