"""Stock clients whose sessions end (``connections.max.reauth.ms``): some renew their log-ins and go on, others are
disconnected and come again, on both targets and through a proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import pathlib
import re
from collections import Counter
from collections.abc import Iterator

import aiokafka
import pytest
from aiokafka.conn import CloseReason  # type: ignore[import-untyped,unused-ignore]
from confluent_kafka import Producer
from kafka import KafkaProducer  # type: ignore[import-untyped,unused-ignore]

from compat_tests.brokers import TARGETS
from compat_tests.proxy.running_proxy import RunningProxy
from compat_tests.real_kafka import run_tool
from compat_tests.security.logged_in_clients import Way, java_settings, librdkafka_settings
from compat_tests.security.python_client import aiokafka_settings, kafka_python_settings
from compat_tests.security.sasl import PASSWORD, SESSION_MS, USER, SaslTarget, while_sessions_pass

pytestmark = pytest.mark.slow
SESSIONS = 3
"""A client sends while so many sessions of another client end, one after the other."""
RENEWED_MIN = SESSIONS - 1
SENDS, RECORDS_A_SECOND = 50, 10
"""Of Java's tool, which paces itself: it lasts longer than the sessions of the others."""
TIMEOUT_S = 30


PASSED, ENDED_HERE = "log-ins pass a proxy", "log-ins end at a proxy"


@pytest.fixture(scope="module", params=[*TARGETS, PASSED, ENDED_HERE])
def way(request: pytest.FixtureRequest) -> Iterator[Way]:
    """Yield the address and credentials of a client whose sessions are short."""
    with contextlib.ExitStack() as stack:
        kind = request.param
        target = stack.enter_context(SaslTarget(kind if kind in TARGETS else "kafka").running())
        servers = target.short_sessions
        if kind == PASSED:
            proxy = RunningProxy(servers, ["SASL_PLAINTEXT"], ["--pass-logins"])
            servers = stack.enter_context(proxy).addresses["SASL_PLAINTEXT"]
        elif kind == ENDED_HERE:
            options = ["--user", f"{USER}:{PASSWORD}", "-c", f"connections.max.reauth.ms={SESSION_MS}"]
            proxy = RunningProxy(target.broker.bootstrap, ["SASL_PLAINTEXT"], options)
            servers = stack.enter_context(proxy).addresses["SASL_PLAINTEXT"]
        yield Way(servers, "SASL_PLAINTEXT", mechanism="PLAIN", user=USER, password=PASSWORD)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_client_does_not_notice_the_sessions_of_a_proxy(mechanism: str, tmp_path: pathlib.Path) -> None:
    """It does not log in; the proxy does, and renews its session with the requests of the client."""
    with SaslTarget("kafka").running() as target:
        logged_in = Way("", "SASL_PLAINTEXT", mechanism=mechanism, user=USER, password=PASSWORD)
        config = tmp_path / "client.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in java_settings(logged_in).items()))
        options = ["--upstream-config", str(config)]
        with RunningProxy(target.short_sessions, ["PLAINTEXT"], options) as proxy:
            way = Way(proxy.addresses["PLAINTEXT"], "PLAINTEXT")
            run_librdkafka(way, target.short_sessions)


def test_java_renews_its_sessions(way: Way, tmp_path: pathlib.Path) -> None:
    settings = tmp_path / "client.properties"
    settings.write_text("".join(f"{key}={value}\n" for key, value in java_settings(way).items()))
    run = run_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--bootstrap-server", way.servers, "--command-config", str(settings), "--print-metrics"),
        *(
            "--topic",
            "java",
            "--num-records",
            str(SENDS),
            "--record-size",
            "10",
            "--throughput",
            str(RECORDS_A_SECOND),
        ),
    )

    def metric(name: str) -> float:
        [found] = re.findall(rf"(?m)^producer-metrics:{name}:\S+ +: ([\d.]+)$", run.stdout)
        return float(found)

    assert f"{SENDS} records sent" in run.stdout
    assert metric("successful-reauthentication-total") >= RENEWED_MIN
    assert metric("failed-reauthentication-total") == 0
    assert metric("connection-close-total") == 0


def test_librdkafka_renews_its_sessions(way: Way) -> None:
    run_librdkafka(way, way.servers)


def run_librdkafka(way: Way, sessions: str) -> None:
    """Send while sessions at the address `sessions` end."""
    told: list[str] = []
    errors: list[str] = []
    producer = Producer(
        {
            **librdkafka_settings(way),
            "statistics.interval.ms": 500,
            "stats_cb": told.append,
            "error_cb": lambda error: errors.append(str(error)),
        }
    )
    for _ in while_sessions_pass(sessions, SESSIONS):
        producer.produce("librdkafka", b"value")
        assert producer.flush(TIMEOUT_S) == 0
    brokers = json.loads(told[-1])["brokers"].values()
    connected = [broker for broker in brokers if broker["connects"]]
    assert {(broker["connects"], broker["disconnects"]) for broker in connected} == {(1, 0)}
    assert errors == []


def test_kafka_python_renews_its_sessions(way: Way, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafka.net.connection")
    producer = KafkaProducer(**kafka_python_settings(way))
    try:
        for _ in while_sessions_pass(way.servers, SESSIONS):
            producer.send("kafka-python", b"value").get(TIMEOUT_S)
    finally:
        producer.close()
    log_ins = Counter(re.findall(r"host=\[(\S+)\].* Authenticated as app", caplog.text))
    """By connection: one to bootstrap from, and the producer's."""
    assert len(log_ins) <= 2
    assert max(log_ins.values()) > RENEWED_MIN


def test_aiokafka_is_disconnected_and_comes_again(way: Way, caplog: pytest.LogCaptureFixture) -> None:
    """It does not know how to renew a session."""
    caplog.set_level(logging.DEBUG, "aiokafka.conn")

    async def send() -> None:
        async with aiokafka.AIOKafkaProducer(**aiokafka_settings(way)) as producer:
            for _ in while_sessions_pass(way.servers, SESSIONS):
                await producer.send_and_wait("aiokafka", b"value")

    asyncio.run(send())
    broken = f"({CloseReason.CONNECTION_BROKEN}, 0 bytes read"
    closed = [record.getMessage() for record in caplog.records if "Closing connection" in record.msg]
    assert len([message for message in closed if broken in message]) >= RENEWED_MIN
