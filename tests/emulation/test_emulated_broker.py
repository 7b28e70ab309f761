"""``Broker(version=...)`` as clients see it: each takes the path that it takes with a broker of that release."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

import oncelog
from oncelog.broker.emulation.kafka_releases import RELEASES
from oncelog.broker.emulation.release import OURS, emulated
from oncelog.broker.handlers.table import HANDLERS
from oncelog.wire.errors import ErrorCode
from oncelog.wire.framing import decode_response, encode_request
from oncelog.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from tests.common.frames import CLOSED, Connection
from tests.common.sasl_client import SaslClient

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of how it reads its resources
    from kafka import KafkaConsumer, KafkaProducer

WAIT_S = 60
SOFTWARE = {"client_software_name": "frames", "client_software_version": "1.0"}


def finalized(bootstrap: str) -> dict[str, int]:
    with Connection(bootstrap) as connection:
        rows = connection.call("ApiVersions", 4, SOFTWARE)["finalized_features"]
    return {row["name"]: row["max_version_level"] for row in rows}


def consumed(consumer: Consumer) -> bytes | None:
    message = consumer.poll(WAIT_S)
    assert message is not None
    assert message.error() is None
    return message.value()


@pytest.mark.parametrize("version", RELEASES)
def test_a_release_serves_a_part_of_ours(version: str) -> None:
    release = emulated(version)
    for key, handler in release.handlers.items():
        assert HANDLERS[key].min_version <= handler.min_version <= handler.max_version
        assert handler.max_version <= HANDLERS[key].max_version
    assert release.features.supported.keys() <= OURS.features.supported.keys()
    assert release.features.at_format.keys() <= release.features.supported.keys()


def test_our_release_is_all_that_oncelog_serves() -> None:
    assert emulated("4.4") is OURS


@pytest.mark.parametrize("version", ["3.8", "4", ""])
def test_an_unknown_release_is_refused_at_once(version: str) -> None:
    with pytest.raises(oncelog.InvalidArgumentError, match=r"expected a release of Kafka: 3\.9, 4\.0"):
        oncelog.Broker(version=version)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.9", "4.0"])
def test_librdkafka_commits_a_transaction_and_consumes_it(version: str) -> None:
    with oncelog.Broker(version=version) as kafka:
        transactional: dict[str, Any] = {"transactional.id": "x", "transaction.timeout.ms": 900_000}
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, **transactional})
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        producer.produce("orders", b"v")
        producer.commit_transaction(WAIT_S)
        options: dict[str, Any] = {"group.id": "g", "auto.offset.reset": "earliest"}
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, **options})
        consumer.subscribe(["orders"])
        assert consumed(consumer) == b"v"
        consumer.close()


def test_a_client_of_a_newer_release_logs_in() -> None:
    """It asks for versions twice: its ApiVersions is newer than the release."""
    users = {"app": "app-secret"}
    with oncelog.Broker(version="4.3", users=users) as kafka, SaslClient(kafka.bootstrap_servers) as client:
        request = ApiVersionsRequest("java", "4.4.0")
        client.socket.sendall(encode_request(request, 5, 1, "java"))
        told = ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, [ApiVersion(18, 0, 4)])
        assert decode_response(ApiVersionsRequest, 0, client.receive())[1] == told
        assert client.call(request, 4).error_code == 0
        client.log_in("PLAIN", "app", "app-secret")


def test_kafka_python_produces_and_consumes() -> None:
    with oncelog.Broker(version="3.9") as kafka:
        producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
        producer.send("orders", b"v").get(WAIT_S)
        producer.close()
        consumer = KafkaConsumer(
            "orders",
            bootstrap_servers=kafka.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            consumer_timeout_ms=WAIT_S * 1000,
        )
        assert next(consumer).value == b"v"
        consumer.close()


def test_what_3_9_does_not_serve_is_refused_as_kafka_refuses_it() -> None:
    heartbeat = {"group_id": "g", "member_id": "m", "member_epoch": 0, "subscribed_topic_names": ["t"]}
    with oncelog.Broker(version="3.9") as kafka, Connection(kafka.bootstrap_servers) as connection:
        # The API is there, but group.version is not finalized.
        assert connection.call("ConsumerGroupHeartbeat", 0, heartbeat)["error_code"] == 35
        assert connection.call("ApiVersions", 4, SOFTWARE)["error_code"] == 0
        for api, version in (("Metadata", 12), ("Metadata", 13)):
            served = connection.call(api, version, {"topics": []}) != CLOSED
            assert served == (version == 12)


def test_a_reset_and_a_restart_keep_the_release() -> None:
    with oncelog.Broker(version="3.9") as kafka:
        for again in (kafka.reset, kafka.stop, kafka.kill):
            again()
            kafka.start()
            assert finalized(kafka.bootstrap_servers) == {"metadata.version": 21}


def test_a_data_directory_with_features_that_the_release_lacks_is_refused(tmp_path: Path) -> None:
    with oncelog.Broker(version="4.0", data_dir=tmp_path) as kafka:
        assert finalized(kafka.bootstrap_servers)["transaction.version"] == 2
    refusal = r"needs (group|transaction)\.version at level \d.* in version 3\.9: leave the version out"
    with pytest.raises(oncelog.BrokerFailedError, match=refusal):
        oncelog.Broker(version="3.9", data_dir=tmp_path).start()
    with oncelog.Broker(data_dir=tmp_path) as kafka:  # as it was formatted
        assert finalized(kafka.bootstrap_servers) == {
            "metadata.version": 30,
            "group.version": 1,
            "transaction.version": 2,
        }
