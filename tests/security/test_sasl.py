"""Listeners with SASL, as clients see them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

import oncelog
from oncelog.wire.messages.metadata import MetadataRequest
from tests.common.sasl_client import Closed, LoginFailed, SaslClient

CONFIG = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="admin" password="admin-secret" user_admin="admin-secret" user_app="app-\\"secret";'
    ),
}


@pytest.fixture
def kafka() -> Iterator[oncelog.Broker]:
    with oncelog.Broker(topics=["t"], config=CONFIG) as broker:
        yield broker


def client(kafka: oncelog.Broker, mechanism: str, user: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": kafka.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def test_plain(kafka: oncelog.Broker) -> None:
    settings = client(kafka, "PLAIN", "app", 'app-"secret')
    producer = Producer(settings)
    producer.produce("t", b"value")
    assert producer.flush(60) == 0
    consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    message = consumer.poll(60)
    assert message is not None
    assert message.value() == b"value"
    consumer.close()


@pytest.mark.parametrize(
    ("mechanism", "user", "password"),
    [("PLAIN", "app", "wrong"), ("PLAIN", "nobody", "x"), ("SCRAM-SHA-256", "app", "x")],
)
def test_who_has_the_wrong_password_does_not_get_in(
    kafka: oncelog.Broker, mechanism: str, user: str, password: str
) -> None:
    said: list[str] = []
    settings = {**client(kafka, mechanism, user, password), "error_cb": lambda error: said.append(str(error))}
    producer = Producer(settings)
    while not said:
        producer.poll(1)
    assert "Authentication failed" in said[0]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"sasl.enabled.mechanisms": "GSSAPI"},
            "sasl.enabled.mechanisms=GSSAPI: Kerberos, the default, is not",
        ),
        ({"sasl.enabled.mechanisms": "PLAN"}, "sasl.enabled.mechanisms=PLAN: it is unknown"),
        (
            {"listener.name.sasl_plaintext.plain.sasl.jaas.config": 'Plain required user_a="x"'},
            "listener.name.sasl_plaintext.plain.sasl.jaas.config: JAAS config entry not terminated by semi-colon",
        ),
        (
            {"listener.name.sasl_plaintext.plain.sasl.jaas.confg": 'Plain required user_a="x";'},
            "jaas.confg (value [hidden]); did you mean listener.name.sasl_plaintext.plain.sasl.jaas.config?",
        ),
        (
            {"listener.name.sasl_plaintext.ssl.client.autn": "required"},
            "(value required); did you mean listener.name.sasl_plaintext.ssl.client.auth?",
        ),
    ],
)
def test_what_cannot_be_used_is_named(changed: dict[str, str], said: str) -> None:
    with pytest.raises(oncelog.OncelogError) as raised:
        oncelog.Broker(config={**CONFIG, **changed}).start()
    assert said in str(raised.value)


JAAS = "listener.name.sasl_plaintext.plain.sasl.jaas.config"


@pytest.mark.parametrize("key", ["sasl.jaas.config", "listener.name.sasl_plaintext.sasl.jaas.config"])
def test_a_jaas_text_that_names_no_mechanism_is_refused(key: str) -> None:
    config = {name: text for name, text in CONFIG.items() if name != JAAS}
    with pytest.raises(oncelog.OncelogError) as raised:
        oncelog.Broker(config={**config, key: CONFIG[JAAS]}).start()
    assert f"write it as {JAAS}" in str(raised.value)
    assert "admin-secret" not in str(raised.value)


def test_a_listener_that_lets_nobody_in_is_told() -> None:
    said = f"listener SASL_PLAINTEXT: PLAIN lets nobody in: there is no --user, and no user_NAME=… in {JAAS}"
    config = {name: text for name, text in CONFIG.items() if name != JAAS}
    with oncelog.Broker(config=config) as kafka:
        assert any(said in line for line in kafka.log_lines)
    with oncelog.Broker(config=CONFIG) as kafka:
        assert not any("lets nobody in" in line for line in kafka.log_lines)


def test_a_client_that_does_not_log_in_is_told_of(kafka: oncelog.Broker) -> None:
    with SaslClient(kafka.bootstrap_servers) as without, pytest.raises(Closed):
        without.call(MetadataRequest([]), 12)
    assert "API key 3 before the log-in (this listener wants one" in kafka.wait_for_failed_login().reason


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram(kafka: oncelog.Broker, name: str) -> None:
    admin = AdminClient(client(kafka, "PLAIN", "admin", "admin-secret"))
    mechanism = ScramMechanism.SCRAM_SHA_256 if name == "SCRAM-SHA-256" else ScramMechanism.SCRAM_SHA_512
    user = "Kathe, a=b"
    info = ScramCredentialInfo(mechanism, 4096)
    for result in admin.alter_user_scram_credentials(
        [UserScramCredentialUpsertion(user, info, b"secret")]
    ).values():
        result.result(60)
    futures = admin.describe_user_scram_credentials([user])
    assert isinstance(futures, dict)
    described = futures[user].result(60)
    assert [(one.mechanism, one.iterations) for one in described.scram_credential_infos] == [
        (mechanism, 4096)
    ]
    everybody = admin.describe_user_scram_credentials()
    assert not isinstance(everybody, dict)
    assert list(everybody.result(60)) == [user]
    settings = client(kafka, name, user, "secret")
    assert "t" in AdminClient(settings).list_topics(timeout=60).topics
    kafka.kill()
    kafka.start()
    assert "t" in AdminClient(settings).list_topics(timeout=60).topics
    for result in admin.alter_user_scram_credentials([UserScramCredentialDeletion(user, mechanism)]).values():
        result.result(60)
    said: list[str] = []
    producer = Producer({**settings, "error_cb": lambda error: said.append(str(error))})
    while not said:
        producer.poll(1)
    assert "Authentication failed during authentication due to invalid credentials" in said[0]


def test_a_log_in_needs_few_bytes(kafka: oncelog.Broker) -> None:
    """A larger request, or message of SCRAM, is refused by its size: reading it would take long."""
    with SaslClient(kafka.bootstrap_servers) as client, pytest.raises(Closed):
        client.bare(b"\0\x12\0\0\0\0\0\5" + (20_000).to_bytes(2, "big") + 20_000 * b"a")
    failed = kafka.wait_for_failed_login()
    assert "a request of 20010 bytes (API key 18) before the log-in; the limit is 16384" in failed.reason
    with SaslClient(kafka.bootstrap_servers) as client:
        client.handshake("SCRAM-SHA-256")
        with pytest.raises(LoginFailed):
            client.authenticate(b"n,,n=" + 20_000 * b"a" + b",r=nonce")
    failed = kafka.wait_for_failed_login(after=failed)
    assert "a SCRAM message of 20013 bytes; the limit is 16384" in failed.reason
