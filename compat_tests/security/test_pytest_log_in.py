"""The pytest plugin with a secured Kafka cluster (``--kafka-command-config``), on both targets."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

import oncelog
from compat_tests.brokers import check_after
from compat_tests.security.secured import USERS, Secured, write_certificates
from compat_tests.targets import OURS_ON_TARGETS
from oncelog.pytest_plugin.real_cluster import Cluster
from tests.common.jars import RealPartMissing, require

TIMEOUT_S = 60
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
LOGIN = {
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.jaas.config": f'{SCRAM} required username="app" password="{USERS["app"]}";',
}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("certificates")
    write_certificates(folder)
    return folder


@pytest.fixture(scope="module", params=OURS_ON_TARGETS)
def secured(request: pytest.FixtureRequest, certificates: pathlib.Path) -> Iterator[Secured]:
    found = Secured(request.param, certificates)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(found.broker)
        except RealPartMissing as missing:
            require(str(missing))
        if found.target == "oncelog":
            stack.enter_context(contextlib.contextmanager(check_after)(found.broker))
        found.prepare(["own-others"], "own-")
        yield found


def tls(certificates: pathlib.Path) -> dict[str, str]:
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(certificates / "ca.pem")}


def of_listener(listener: str, certificates: pathlib.Path) -> dict[str, str]:
    """The client.properties of a user who may use what begins with own-."""
    values = {"security.protocol": listener}
    if listener.startswith("SASL"):
        values |= LOGIN
    if listener.endswith("SSL"):
        values |= tls(certificates)
    if listener == "SSL":
        values |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(certificates / "app.pem")}
    return values


def use(settings: dict[str, Any], topic: str, group: str) -> None:
    """Write and read a record."""
    producer = Producer({**settings, "retry.backoff.ms": 20})
    producer.produce(topic, b"coffee")
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer({**settings, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    assert message.value() == b"coffee"
    consumer.close()


@pytest.mark.parametrize("through_proxy", [False, True], ids=["direct", "proxied"])
@pytest.mark.parametrize("listener", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_a_test_with_its_topics_and_groups(
    secured: Secured,
    certificates: pathlib.Path,
    tmp_path: pathlib.Path,
    listener: str,
    *,
    through_proxy: bool,
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in of_listener(listener, certificates).items()))
    address = secured.address(listener)
    with Cluster(address, {"own-orders": 1}, file, through_proxy=through_proxy) as cluster:
        settings = cluster.client_config()
        assert settings["security.protocol"] == ("PLAINTEXT" if through_proxy else listener)
        if through_proxy:
            rule = cluster.faults.on("Produce", topic="own-orders").nth(1).error("NOT_LEADER_OR_FOLLOWER")
        use(settings, "own-orders", "own-billing")
        if through_proxy:
            assert rule.fired == 1
        assert cluster.group("own-billing").committed == {"own-orders": {0: 1}}
    with Cluster(address, {}, file) as after:
        assert (after.topics, after.groups) == (["own-others"], [])


@pytest.mark.parametrize(
    ("listener", "values", "said"),
    [
        ("SSL", {}, r"\(perhaps it wants TLS: security\.protocol=SSL in --kafka-command-config\)"),
        ("SASL_SSL", LOGIN | {"security.protocol": "SASL_PLAINTEXT"}, r"\(perhaps it wants TLS: security"),
        ("SASL_PLAINTEXT", {}, r"asks for a log-in: --kafka-command-config=FILE says as whom"),
        (
            "SASL_SSL",
            {"security.protocol": "SSL"},
            r"asks for a log-in: --kafka-command-config=FILE says as whom",
        ),
        (
            "SASL_PLAINTEXT",
            {
                "security.protocol": "SASL_PLAINTEXT",
                **LOGIN,
                "sasl.jaas.config": LOGIN["sasl.jaas.config"].replace(USERS["app"], "wrong"),
            },
            "SASL_AUTHENTICATION_FAILED",
        ),
    ],
)
def test_what_is_said_of_a_cluster_that_wants_more(
    secured: Secured, certificates: pathlib.Path, listener: str, values: dict[str, str], said: str
) -> None:
    if values.get("security.protocol", "").endswith("SSL"):
        values = values | tls(certificates)
    with (
        contextlib.closing(Cluster(secured.address(listener), {"own-orders": 1}, values)) as cluster,
        pytest.raises(oncelog.BrokerFailedError, match=said),
    ):
        cluster.start()
