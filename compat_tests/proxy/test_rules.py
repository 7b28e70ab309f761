"""The rules of a test for the broker, word for word, through a proxy: the same effect on stock clients."""

from __future__ import annotations

import itertools
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer

import oncelog
from compat_tests.brokers import SharedBrokers

Kit = oncelog.Broker | oncelog.Proxy
FAST = {"retry.backoff.ms": 20, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "log_level": 0}
TIMEOUT_S = 30

_numbers = itertools.count()


@pytest.fixture(scope="module", params=["broker", "proxy"])
def kit(request: pytest.FixtureRequest, upstream: str) -> Iterator[Kit]:
    if request.param == "broker":
        with oncelog.Broker() as broker:
            yield broker
    else:
        brokers: SharedBrokers = request.getfixturevalue("brokers")
        with oncelog.Proxy(brokers[upstream].bootstrap) as proxy:
            yield proxy


# -- what clients do


def produce(kit: Kit, topic: str, **settings: Any) -> list[str]:
    """Produce three records with confluent-kafka; return what became of each."""
    ended: list[str] = []

    def delivered(error: KafkaError | None, _: object) -> None:
        ended.append("ok" if error is None else error.name())

    producer = Producer({**kit.client_config(), **FAST, "linger.ms": 0, **settings})
    for number in range(3):
        producer.produce(topic, b"%d" % number, on_delivery=delivered)
        producer.flush(TIMEOUT_S)
    return ended


def produce_with_kafka_python(kit: Kit, topic: str) -> list[str]:
    producer = KafkaProducer(bootstrap_servers=kit.bootstrap_servers, retry_backoff_ms=20, linger_ms=0)
    try:
        ended = []
        for number in range(3):
            try:
                producer.send(topic, b"%d" % number).get(TIMEOUT_S)
                ended.append("ok")
            except Exception as error:
                ended.append(type(error).__name__)
        return ended
    finally:
        producer.close()


def produce_once(kit: Kit, topic: str) -> list[str]:
    return produce(kit, topic, **{"enable.idempotence": True})


def throttled(kit: Kit, topic: str) -> list[int]:
    """Produce; return the times for which the client was told to wait."""
    told: list[float] = []
    settings = {**kit.client_config(), **FAST, "throttle_cb": lambda event: told.append(event.throttle_time)}
    producer = Producer(settings)
    producer.produce(topic, b"0")
    producer.flush(TIMEOUT_S)
    deadline = time.monotonic() + TIMEOUT_S
    while not told and time.monotonic() < deadline:
        producer.poll(0.1)
    return [round(one * 1000) for one in told[:1]]


def consume(kit: Kit, topic: str) -> list[bytes]:
    """Produce three records and consume them with confluent-kafka."""
    produce(kit, topic)
    settings = {"group.id": f"readers of {topic}", "auto.offset.reset": "earliest", "check.crcs": True}
    consumer = Consumer({**kit.client_config(), **FAST, **settings})
    consumer.subscribe([topic])
    try:
        found: list[bytes] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(found) < 3 and time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                found.append(message.value() or b"")
        consumer.commit(asynchronous=False)
        return found
    finally:
        consumer.close()


def consume_with_kafka_python(kit: Kit, topic: str) -> list[bytes]:
    produce(kit, topic)
    settings = {"group_id": f"readers of {topic}", "auto_offset_reset": "earliest", "retry_backoff_ms": 20}
    consumer = KafkaConsumer(topic, bootstrap_servers=kit.bootstrap_servers, **settings)
    try:
        return [next(consumer).value for _ in range(3)]
    finally:
        consumer.close()


def commit(kit: Kit, topic: str) -> list[str]:
    """Commit a transaction of three records."""
    producer = Producer({**kit.client_config(), **FAST, "transactional.id": f"writer of {topic}"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for number in range(3):
        producer.produce(topic, b"%d" % number)
    try:
        producer.commit_transaction(TIMEOUT_S)
    except KafkaException as error:
        return [error.args[0].name()]
    return ["committed"]


def look_up(kit: Kit, topic: str) -> list[str]:
    found = AdminClient({**kit.client_config(), **FAST}).list_topics(topic, timeout=TIMEOUT_S).topics[topic]
    return ["ok" if found.error is None else found.error.name()]


# -- the rules, and their effect


class Case(NamedTuple):
    """``rules``: the text of a file, with ``$topic`` in it. ``do``: what a client does; it returns ``seen``. ``values``
    are in the topic then, as a read_committed consumer sees them; each rule has fired that often.
    """

    rules: str
    do: Callable[[Kit, str], list[Any]]
    seen: list[Any]
    values: list[bytes]
    fired: int | None = 1


THREE = [b"0", b"1", b"2"]
CASES = {
    "an error that passes": Case(
        'on = "Produce"\ntopic = "$topic"\nfirst = 2\nerror = "NOT_LEADER_OR_FOLLOWER"',
        produce,
        ["ok"] * 3,
        THREE,
        2,
    ),
    "the same for kafka-python": Case(
        'on = "Produce"\ntopic = "$topic"\nfirst = 2\nerror = "NOT_LEADER_OR_FOLLOWER"',
        produce_with_kafka_python,
        ["ok"] * 3,
        THREE,
        2,
    ),
    "an error that stays": Case(
        'on = "Produce"\ntopic = "$topic"\nnth = 2\nerror = "POLICY_VIOLATION"',
        produce,
        ["ok", "POLICY_VIOLATION", "ok"],
        [b"0", b"2"],
    ),
    "the same error for kafka-python": Case(
        'on = "Produce"\ntopic = "$topic"\nnth = 2\nerror = "POLICY_VIOLATION"',
        produce_with_kafka_python,
        ["ok", "PolicyViolationError", "PolicyViolationError"],  # it is idempotent, and gives up
        [b"0"],
    ),
    "a lost request": Case(
        'on = "Produce"\ntopic = "$topic"\nnth = 2\ndrop_request = "close"', produce_once, ["ok"] * 3, THREE
    ),
    "a lost response": Case(
        'on = "Produce"\ntopic = "$topic"\nnth = 2\ndrop_response = "close"', produce_once, ["ok"] * 3, THREE
    ),
    "a retry that was not needed": Case(
        'on = "Produce"\ntopic = "$topic"\nnth = 2\nduplicate = true',
        produce,
        ["ok"] * 3,
        [b"0", b"1", b"1", b"2"],
    ),
    "a retry of an idempotent producer": Case(
        'on = "Produce"\ntopic = "$topic"\nnth = 2\nduplicate = true', produce_once, ["ok"] * 3, THREE
    ),
    "a delay": Case('on = "Produce"\ntopic = "$topic"\nnth = 1\ndelay_ms = 200', produce, ["ok"] * 3, THREE),
    "a throttled client": Case(
        'on = "Produce"\ntopic = "$topic"\nnth = 1\nthrottle_ms = 300', throttled, [300], [b"0"]
    ),
    "a closed connection": Case(
        'on = "Fetch"\ntopic = "$topic"\nnth = 1\nclose = true', consume, THREE, THREE
    ),
    "a cut off batch": Case(
        'on = "Fetch"\ntopic = "$topic"\nnth = 1\ntruncate = true', consume, THREE, THREE
    ),
    "a cut off batch for kafka-python": Case(
        'on = "Fetch"\ntopic = "$topic"\nnth = 1\ntruncate = true', consume_with_kafka_python, THREE, THREE
    ),
    "a coordinator that moves": Case(
        'on = "JoinGroup"\ngroup = "readers of $topic"\nfirst = 2\nerror = "NOT_COORDINATOR"',
        consume,
        THREE,
        THREE,
        2,
    ),
    "a commit of offsets that is not answered": Case(
        'on = "OffsetCommit"\ngroup = "readers of $topic"\nnth = 1\ndrop_response = "close"',
        consume,
        THREE,
        THREE,
    ),
    "a commit that is not answered": Case(
        'on = "EndTxn"\ntransactional_id = "writer of $topic"\nnth = 1\ndrop_response = "close"',
        commit,
        ["committed"],
        THREE,
    ),
    "a fenced producer": Case(
        'on = "EndTxn"\ntransactional_id = "writer of $topic"\nnth = 1\nerror = "INVALID_PRODUCER_EPOCH"',
        commit,
        ["_FENCED"],
        [],
    ),
    "a topic that nobody may see": Case(
        'on = "Metadata"\ntopic = "$topic"\nerror = "TOPIC_AUTHORIZATION_FAILED"',
        look_up,
        ["TOPIC_AUTHORIZATION_FAILED"],
        [],
        None,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_rule_has_the_same_effect(kit: Kit, name: str, tmp_path: pathlib.Path) -> None:
    case = CASES[name]
    topic = f"rules-{next(_numbers)}"
    kit.create_topics([topic])
    path = tmp_path / "rules.toml"
    path.write_text(f"[[rules]]\n{case.rules.replace('$topic', topic)}\n")
    kit.faults.load(path)
    try:
        assert case.do(kit, topic) == case.seen
        [rule] = kit.faults.rules
        if case.fired is None:
            assert rule.fired
        else:
            assert rule.fired == case.fired
    finally:
        kit.faults.clear()
    found = kit.topic(topic).records(isolation="read_committed")
    assert [one.value for one in found] == case.values
