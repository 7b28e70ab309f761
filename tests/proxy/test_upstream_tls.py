"""TLS between a proxy and the cluster: certificates that do not hold are told in one line, and clients do not hang."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

import oncelog
from tests.client.security.test_tls import (
    AUTHORITY,
    CLIENT,
    SERVER,
    STRANGERS,
    broker_config,
    showing,
    trusting,
)

EXPIRED = AUTHORITY.identity("old", days=-1)


def produced(kafka: oncelog.Proxy) -> bool:
    """Whether a client without TLS writes a record."""
    producer = Producer({**kafka.client_config(), "retry.backoff.ms": 20, "message.timeout.ms": 60_000})
    failures: list[object] = []
    producer.produce("t", b"x", on_delivery=lambda error, _: failures.append(error))
    producer.flush(60)
    return failures == [None]


@pytest.fixture(scope="module")
def cluster() -> Iterator[oncelog.Broker]:
    with oncelog.Broker(topics=["t"], config=broker_config(SERVER, ssl_client_auth="required")) as broker:
        yield broker


def test_a_client_without_tls_and_certificate(cluster: oncelog.Broker) -> None:
    upstream = {**trusting(), **showing(CLIENT)}
    with oncelog.Proxy(cluster.bootstrap_servers, upstream_config=upstream) as kafka:
        assert produced(kafka)
        assert cluster.requests("Produce")[-1].principal == "User:CN=client,O=Tests"


@pytest.mark.parametrize(
    ("upstream", "said"),
    [
        ({**trusting(STRANGERS), **showing(CLIENT)}, "the broker's certificate is refused: self-signed"),
        (trusting(), "TLS handshake: the broker says: certificate required"),
        ({**trusting(), **showing(EXPIRED)}, "TLS handshake: the broker says: certificate expired"),
        (
            {},
            ": the broker closed the connection (perhaps it wants TLS: security.protocol=SSL in --upstream-config)",
        ),
    ],
)
def test_an_upstream_that_cannot_be_used(
    cluster: oncelog.Broker, upstream: dict[str, str], said: str
) -> None:
    with (
        pytest.raises(oncelog.BrokerFailedError) as caught,
        oncelog.Proxy(cluster.bootstrap_servers, upstream_config=upstream),
    ):
        pass
    assert str(caught.value).count(cluster.bootstrap_servers) == 1
    assert "the upstream cannot be used: " in str(caught.value)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_another_host() -> None:
    """The certificate is for localhost and 127.0.0.1."""
    config = broker_config(SERVER, listeners="SSL://127.0.0.2:0")
    with (
        oncelog.Broker(config=config) as cluster,
        pytest.raises(oncelog.BrokerFailedError, match=r"certificate is not valid for '127\.0\.0\.2'"),
        oncelog.Proxy(cluster.bootstrap_servers, upstream_config=trusting()),
    ):
        pass


@pytest.mark.slow
def test_a_certificate_that_expires_while_the_proxy_runs(tmp_path: Path) -> None:
    store = tmp_path / "server.pem"
    store.write_bytes(SERVER.key + SERVER.chain)
    config = {
        **{key: text for key, text in broker_config(SERVER).items() if "keystore" not in key},
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
    }
    with (
        oncelog.Broker(topics=["t"], config=config) as broker,
        oncelog.Proxy(broker.bootstrap_servers, upstream_config=trusting()) as kafka,
    ):
        assert produced(kafka)
        broker.stop()
        store.write_bytes(EXPIRED.key + EXPIRED.chain)
        broker.start()
        client = AdminClient({**kafka.client_config(), "socket.timeout.ms": 3000, "log_level": 0})
        told: list[str] = []
        for _ in range(60):
            if told:
                break
            with pytest.raises(KafkaException):
                client.list_topics(timeout=1)
            told = [line for line in map(str, kafka.log_lines) if "certificate has expired" in line]
        assert told
        store.write_bytes(SERVER.key + SERVER.chain)
        broker.stop()
        broker.start()
        assert produced(kafka)
