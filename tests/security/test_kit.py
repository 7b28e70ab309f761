"""Users, TLS and ACLs of a broker in a test, and the settings of its clients."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

import oncelog

USERS = {"app": 'secret "1\\'}


@pytest.mark.slow
@pytest.mark.parametrize("process", [False, True])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("tls", [False, True])
def test_confluent_kafka(mechanism: str, tls: bool, process: bool) -> None:
    with oncelog.Broker(topics=["t"], users=USERS, tls=tls, process=process) as kafka:
        producer = Producer(kafka.client_config(user="app", mechanism=mechanism))
        producer.produce("t", b"value")
        assert producer.flush(60) == 0
        assert [record.value for record in kafka.topic("t").records()] == [b"value"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_kafka_python() -> None:
    from kafka import KafkaProducer

    with oncelog.Broker(topics=["t"], users=USERS, tls=True) as kafka:
        producer = KafkaProducer(**kafka.client_config("kafka-python", user="app"))
        producer.send("t", b"value").get(60)
        producer.close()


def test_aiokafka() -> None:
    async def main() -> None:
        async with oncelog.AsyncBroker(topics=["t"], users=USERS, tls=True) as kafka:
            settings = kafka.client_config("aiokafka", user="app", mechanism="SCRAM-SHA-512")
            async with AIOKafkaProducer(**settings) as producer:
                await producer.send_and_wait("t", b"value")

    asyncio.run(main())


def is_refused(kafka: oncelog.Broker, settings: dict[str, Any]) -> bool:
    """Whether the handshake of a client with these settings fails, and it gets no answer."""
    before = next(reversed(kafka.failed_logins()), None)
    admin = AdminClient(settings)
    kafka.wait_for_failed_login(step="TLS", after=before, timeout=60)
    try:
        admin.list_topics(timeout=0.5)
    except KafkaException:
        return True
    return False


@pytest.mark.slow
def test_certificates() -> None:
    config = {"ssl.client.auth": "required"}
    with oncelog.Broker(tls=True, config=config) as kafka:
        assert AdminClient(kafka.client_config(certificate="app")).list_topics(timeout=60).brokers
        assert kafka.failed_logins() == []
        assert is_refused(kafka, kafka.client_config())
        assert is_refused(kafka, kafka.client_config(certificate=kafka.certificate("app", expired=True)))
        assert is_refused(
            kafka, kafka.client_config(certificate=kafka.certificate("app", of_a_stranger=True))
        )


@pytest.mark.slow
def test_acls() -> None:
    acls: list[oncelog.Acl | dict[str, object]] = [
        oncelog.Acl("User:app", "Write", topic="mine-", prefixed=True, host="127.0.0.0/8"),
        oncelog.Acl("User:app", "Write", topic="theirs", host="10.0.0.0/8"),
        {"principal": "User:app", "operation": "DESCRIBE", "topic": "theirs"},
    ]
    with oncelog.Broker(topics=["mine-1", "theirs"], users=USERS, acls=acls) as kafka:
        producer = Producer(kafka.client_config(user="app"))
        failed: dict[str, int] = {}

        def note(error: KafkaError | None, message: Any) -> None:
            failed[message.topic()] = 0 if error is None else error.code()

        for topic in ("mine-1", "theirs"):
            producer.produce(topic, b"value", on_delivery=note)
        assert producer.flush(60) == 0
        assert failed == {"mine-1": 0, "theirs": KafkaError.TOPIC_AUTHORIZATION_FAILED}
        kafka.produce("theirs", b"the test may")
        kafka.reset()
        producer.produce("mine-1", b"value", on_delivery=note)
        assert producer.flush(60) == 0
        assert failed["mine-1"] == 0


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: oncelog.Acl("app", "Read", topic="t"), "expected a principal such as User:app"),
        (lambda: oncelog.Acl("User:app", "Reed", topic="t"), "unknown operation; there are ALL, READ"),
        (lambda: oncelog.Acl("User:app", "Read", topic="t", host="x/8"), "Invalid CIDR notation 'x/8'"),
        (lambda: oncelog.Acl("User:app", "Read"), "expected one of topic, group"),
        (lambda: oncelog.Acl("User:app", "Read", topic="t", group="g"), "expected one of topic, group"),
        (
            lambda: {"principal": "User:app", "operation": "Read", "topics": "t"},
            "unexpected keyword argument 'topics'",
        ),
    ],
)
def test_an_acl_that_makes_no_sense_is_named(make: Any, said: str) -> None:
    with pytest.raises(oncelog.InvalidArgumentError) as raised:
        oncelog.Broker(acls=[make()])
    assert said in str(raised.value)


def test_client_settings_that_make_no_sense_are_named() -> None:
    with oncelog.Broker(users=USERS) as kafka:
        for arguments, said in (
            ({}, "clients of this broker log in (its users= are app)"),
            ({"user": "nobody"}, "other users= (app)"),
            ({"user": "app", "certificate": "app"}, "tls=True"),
            ({"user": "app", "mechanism": "OAUTHBEARER"}, "users= log in by one of PLAIN,SCRAM-SHA-256,"),
            ({"user": "app", "client": "curl"}, "expected one of confluent-kafka"),
            ({"user": "app", "client": "franz-go"}, "are set up in code, with the values of confluent-kafka"),
        ):
            with pytest.raises(oncelog.InvalidArgumentError) as raised:
                kafka.client_config(**arguments)
            assert said in str(raised.value)
    with oncelog.Broker() as kafka:
        assert kafka.client_config() == {
            "bootstrap.servers": kafka.bootstrap_servers,
            "security.protocol": "PLAINTEXT",
        }
        with pytest.raises(oncelog.InvalidArgumentError, match="other users"):
            kafka.client_config(user="app")
