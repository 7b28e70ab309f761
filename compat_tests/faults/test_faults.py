"""Stock clients under fault rules: what they do when a response is lost, a leader moves, a batch is damaged, a process
stalls. Each program ends as it would at a real cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

import oncelog

TIMEOUT_S = 20


@pytest.fixture
def kafka() -> Iterator[oncelog.Broker]:
    with oncelog.Broker(topics=["t"]) as broker:
        yield broker


def confluent_producer(kafka: oncelog.Broker, **settings: Any) -> confluent_kafka.Producer:
    return confluent_kafka.Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "retry.backoff.ms": 20, "linger.ms": 0}
        | {name.replace("_", "."): value for name, value in settings.items()}
    )


def values(kafka: oncelog.Broker) -> list[bytes | None]:
    return [record.value for record in kafka.topic("t").records(isolation="read_committed")]


class ConfluentTransactions:
    """A transactional producer of librdkafka."""

    def __init__(self, kafka: oncelog.Broker, client_id: str) -> None:
        self.producer = confluent_producer(kafka, transactional_id="tx", client_id=client_id)
        self.producer.init_transactions(TIMEOUT_S)

    def begin(self, value: bytes) -> None:
        self.producer.begin_transaction()
        self.producer.produce("t", value)
        assert self.producer.flush(TIMEOUT_S) == 0

    def commit(self) -> None:
        self.producer.commit_transaction(TIMEOUT_S)

    def close(self) -> None:
        pass


class KafkaPythonTransactions:
    """A transactional producer of kafka-python."""

    def __init__(self, kafka: oncelog.Broker, client_id: str) -> None:
        from kafka import KafkaProducer

        self.producer = KafkaProducer(
            bootstrap_servers=kafka.bootstrap_servers, transactional_id="tx", client_id=client_id
        )
        self.producer.init_transactions()

    def begin(self, value: bytes) -> None:
        self.producer.begin_transaction()
        self.producer.send("t", value).get(TIMEOUT_S)

    def commit(self) -> None:
        self.producer.commit_transaction()

    def close(self) -> None:
        self.producer.close(1)


TRANSACTIONS = [ConfluentTransactions, KafkaPythonTransactions]


@pytest.mark.parametrize("lost", ["drop_response", "drop_request", "duplicate"])
@pytest.mark.parametrize("client", TRANSACTIONS)
def test_a_commit_whose_response_is_lost_is_asked_again(
    kafka: oncelog.Broker, client: Any, lost: str
) -> None:
    rule = getattr(kafka.faults.on("EndTxn", transactional_id="tx").nth(2), lost)()
    program = client(kafka, "app")
    for value in (b"1", b"2", b"3"):
        program.begin(value)
        program.commit()
    program.close()
    assert values(kafka) == [b"1", b"2", b"3"]
    state = rule.state
    assert (state.fired, state.matched) == (1, 3 if lost == "duplicate" else 4)


@pytest.mark.parametrize("client", TRANSACTIONS)
def test_a_zombie_is_fenced_when_it_wakes(kafka: oncelog.Broker, client: Any) -> None:
    zombie = client(kafka, "zombie")
    zombie.begin(b"of the zombie")
    pause = kafka.faults.pause("zombie")
    successor = client(kafka, "successor")
    successor.begin(b"of its successor")
    successor.commit()
    pause.release()
    with pytest.raises(Exception, match=r"(?i)fenced|INVALID_PRODUCER_EPOCH|InvalidProducerEpoch"):
        zombie.commit()
    for program in (zombie, successor):
        program.close()
    assert values(kafka) == [b"of its successor"]


@pytest.mark.parametrize("lost", ["drop_response", "drop_request", "duplicate", "hang", "error", "close"])
def test_an_idempotent_producer_writes_once_whatever_happens_to_its_request(
    kafka: oncelog.Broker, lost: str
) -> None:
    draft = kafka.faults.on("Produce", topic="t").nth(1)
    match lost:
        case "hang":
            rule = draft.drop_response("hang")
        case "error":
            rule = draft.error("NOT_LEADER_OR_FOLLOWER")
        case _:
            rule = getattr(draft, lost)()
    producer = confluent_producer(kafka, enable_idempotence=True, socket_timeout_ms=1000)
    producer.produce("t", b"v", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    assert values(kafka) == [b"v"]
    assert rule.fired == 1


@pytest.mark.parametrize("damage", ["truncate", "damage_crc"])
def test_a_consumer_reads_a_damaged_batch_again(kafka: oncelog.Broker, damage: str) -> None:
    kafka.produce("t", b"1")
    kafka.produce("t", b"2")
    rule = getattr(kafka.faults.on("Fetch", topic="t").first(1), damage)()
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "g",
            "check.crcs": True,
            "fetch.error.backoff.ms": 10,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        seen: list[bytes] = []
        errors = []
        while len(seen) < 2:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None
            error = message.error()
            if error is not None:
                errors.append(error.name())
            else:
                seen.append(message.value() or b"")
    finally:
        consumer.close()
    assert seen == [b"1", b"2"]
    assert rule.fired == 1
    assert errors == (["_BAD_MSG"] if damage == "damage_crc" else [])


def test_a_client_bootstraps_when_the_door_opens(kafka: oncelog.Broker) -> None:
    closed = kafka.faults.refuse_connections()
    producer = confluent_producer(kafka, reconnect_backoff_ms=20, reconnect_backoff_max_ms=50)
    producer.produce("t", b"v")
    closed.wait_fired(3, timeout=TIMEOUT_S)
    closed.remove()
    assert producer.flush(TIMEOUT_S) == 0
    assert values(kafka) == [b"v"]


def test_acks_0_has_no_response_to_drop(kafka: oncelog.Broker) -> None:
    rule = kafka.faults.on("Produce").drop_response()
    producer = confluent_producer(kafka, acks=0)
    producer.produce("t", b"v")
    assert producer.flush(TIMEOUT_S) == 0
    with pytest.raises(oncelog.WaitTimeoutError, match="a Produce with acks=0 has no response to drop"):
        rule.wait_fired(timeout=0.2)
    with pytest.raises(AssertionError, match="a Produce with acks=0 has no response to drop"):
        kafka.faults.assert_all_fired()


def test_a_paused_consumer_is_dead_when_time_moves_and_a_live_one_is_not(kafka: oncelog.Broker) -> None:
    def consumer(client_id: str) -> confluent_kafka.Consumer:
        made = confluent_kafka.Consumer(
            {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g", "client.id": client_id}
        )
        made.subscribe(["t"])
        return made

    def clients() -> list[str]:
        if "g" not in kafka.groups:
            return []
        return sorted(member.client_id for member in kafka.group("g").members)

    alive, zombie = consumer("alive"), consumer("zombie")
    try:
        while len(clients()) < 2:
            alive.poll(0.05)
            zombie.poll(0.05)
        pause = kafka.faults.pause("zombie")
        kafka.clock.advance(hours=1)
        assert clients() == ["alive"]
        pause.release()
    finally:
        alive.close()
        zombie.close()
