"""Stock clients without a right: they raise the same exceptions with oncelog and with Kafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka import errors as kafka_errors

from compat_tests.differential import Session
from compat_tests.on_demand import OnDemand
from compat_tests.security.authorizing import (
    ANONYMOUS,
    ANY,
    CLUSTER,
    CLUSTER_NAME,
    GROUP,
    LITERAL,
    TOPIC,
    TRANSACTIONAL_ID,
    Acls,
    acl_filter,
    creation,
    until_described,
)
from tests.common.batches import now_ms

ALL, READ, WRITE, CREATE, DENY = 2, 3, 4, 5, 2
TOPIC_FAILED, GROUP_FAILED, ID_FAILED = 29, 30, 53


@pytest.fixture(params=["oncelog", "kafka"])
def admin(request: pytest.FixtureRequest, admins: OnDemand[tuple[Session, Acls]]) -> Session:
    """A session of an administrator on one of the targets."""
    session, _ = admins[request.param]
    return session


def deny(admin: Session, *acls: tuple[int, str, int]) -> None:
    """Deny operations to the clients here, who otherwise may do everything; return once that holds."""
    rows = [creation(kind, name, LITERAL, ANONYMOUS, "*", operation, DENY) for kind, name, operation in acls]
    response = admin.call_unobserved("CreateAcls", 3, {"creations": rows})
    assert not any(row["error_code"] for row in response["results"]), response
    for kind, name, _ in acls:
        until_described(
            admin,
            acl_filter(kind, name, LITERAL, ANONYMOUS, "*", ANY, DENY),
            sum(1 for one in acls if one[:2] == (kind, name)),
        )


def code_of(call: Callable[[], Any]) -> int:
    """The code of the error that confluent-kafka raises."""
    with pytest.raises(KafkaException) as caught:
        call()
    return int(caught.value.args[0].code())


def test_confluent_kafka(admin: Session, name: str) -> None:
    topic = group = identifier = name
    admin.topic(topic)
    deny(admin, (TOPIC, topic, WRITE), (GROUP, group, READ), (TRANSACTIONAL_ID, identifier, WRITE))
    settings = {"bootstrap.servers": admin.bootstrap}

    failures: list[int] = []

    def on_delivery(error: KafkaError | None, message: object) -> None:
        failures.append(0 if error is None else error.code())

    producer = Producer(settings)
    producer.produce(topic, b"x", on_delivery=on_delivery)
    producer.flush(30)
    assert failures == [TOPIC_FAILED]

    consumer = Consumer({**settings, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    deadline = now_ms() + 30_000
    while (message := consumer.poll(1)) is None or (error := message.error()) is None:
        assert now_ms() < deadline
    assert error.code() == GROUP_FAILED
    offset = [TopicPartition(topic, 0, 1)]
    assert code_of(lambda: consumer.commit(offsets=offset, asynchronous=False)) == GROUP_FAILED
    consumer.close()

    transactional = Producer({**settings, "transactional.id": identifier})
    assert code_of(lambda: transactional.init_transactions(30)) == ID_FAILED


def test_kafka_python(admin: Session, name: str) -> None:
    topic, secret = name, f"secret-{name}"
    for one in (topic, secret):
        admin.topic(one)
    deny(admin, (TOPIC, topic, WRITE), (TOPIC, secret, ALL))
    producer = KafkaProducer(bootstrap_servers=admin.bootstrap)
    with pytest.raises(kafka_errors.TopicAuthorizationFailedError):
        producer.send(topic, b"x").get(30)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=admin.bootstrap)
    assert topic in consumer.topics()
    assert secret not in consumer.topics()
    consumer.close()


def test_topics_are_not_created_by_who_may_not(admin: Session, name: str) -> None:
    deny(admin, (CLUSTER, CLUSTER_NAME, CREATE), (TOPIC, name, CREATE))
    client = AdminClient({"bootstrap.servers": admin.bootstrap})
    try:
        created = client.create_topics([NewTopic(name, 1, 1)])
        assert code_of(lambda: created[name].result(30)) == TOPIC_FAILED
    finally:
        gone = acl_filter(CLUSTER, CLUSTER_NAME, LITERAL, ANONYMOUS, "*", CREATE, DENY)
        admin.call_unobserved("DeleteAcls", 3, {"filters": [gone]})
        until_described(admin, gone, 0)
