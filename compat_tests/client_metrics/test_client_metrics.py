"""Metrics of clients on both targets: what a broker asks for and refuses, and that stock clients send theirs (KIP-714).

Kafka asks for them only where a plug-in takes them: `MetricsTaker`. oncelog has a key for it.
"""

from __future__ import annotations

import contextlib
import gzip
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

import oncelog
from compat_tests.brokers import UNDISTURBED, UNDISTURBED_KAFKA, Broker, checked
from compat_tests.differential import Pair, Session
from compat_tests.on_demand import OnDemand
from compat_tests.oncelog_server import Oncelog
from tests.common.definitions import Fields
from tests.common.jars import BROKER_JVM_OPTIONS, RealPartMissing, compile_java, require, run_tool
from tests.common.otlp import GAUGE
from tests.common.real_kafka import RealKafka
from tests.common.recorded.recorder import Recorder

pytestmark = pytest.mark.slow
HERE = pathlib.Path(__file__).parent
CLIENT_METRICS = 16
NEW = bytes(16)
INTERVAL_MS = 1000
THROTTLING_QUOTA_EXCEEDED = 89
ENABLED = {"oncelog.client.metrics.enable": "true"}


@pytest.fixture(scope="module")
def own_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnDemand[Broker]]:
    """Both with metrics of clients: Kafka with a plug-in that takes them."""

    def make(target: str) -> Broker:
        if target == "oncelog":
            return Oncelog({**UNDISTURBED, **ENABLED})
        plug_in = compile_java([HERE / "MetricsTaker.java"], tmp_path_factory.mktemp("classes"))
        properties = {**UNDISTURBED, **UNDISTURBED_KAFKA, "metric.reporters": "MetricsTaker"}
        return RealKafka(properties, jvm_options=BROKER_JVM_OPTIONS, class_path=[plug_in])

    with OnDemand(make) as found:
        yield found


@pytest.fixture
def pair(answers: Recorder, own_brokers: OnDemand[Broker]) -> Iterator[Pair]:
    with checked(own_brokers["oncelog"]):
        yield Pair(answers, lambda target: own_brokers[target].bootstrap)


def subscribe(session: Session, name: str, **texts: str) -> None:
    configs = [
        {"name": key.replace("_", "."), "config_operation": 0, "value": text} for key, text in texts.items()
    ]
    resource = {"resource_type": CLIENT_METRICS, "resource_name": name, "configs": configs}
    response = session.call_unobserved("IncrementalAlterConfigs", 1, {"resources": [resource]})
    assert response["responses"][0]["error_code"] == 0, response


def test_asking_and_pushing(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        def ask(note: str, instance: bytes = NEW, *, at_once: bool = True) -> Fields:
            """Ask; unless ``at_once``, again and again until the next interval, in which it is not too soon."""
            while True:
                asked = session.call_unobserved(
                    "GetTelemetrySubscriptions", 0, {"client_instance_id": instance}
                )
                if at_once or asked["error_code"] != THROTTLING_QUOTA_EXCEEDED:
                    break
            shown: Fields = {**asked, "requested_metrics": sorted(asked["requested_metrics"])}
            shown["has id"] = asked["client_instance_id"] != NEW
            shown["subscription"] = asked["subscription_id"] != 0
            del shown["client_instance_id"], shown["subscription_id"]
            session.observe(note, shown)
            return dict(asked)

        def push(note: str, asked: Fields, *, at_once: bool = True, **changed: Any) -> None:
            """Push; ``at_once`` as above."""
            request = {
                "client_instance_id": asked["client_instance_id"],
                "subscription_id": asked["subscription_id"],
                "metrics": GAUGE,
                **changed,
            }
            while True:
                response = session.call_unobserved("PushTelemetry", 0, request)
                if at_once or response["error_code"] != THROTTLING_QUOTA_EXCEEDED:
                    break
            session.observe(note, response)

        def push_later(note: str, asked: Fields, **changed: Any) -> None:
            push(note, asked, at_once=False, **changed)

        ask("nothing")
        subscribe(session, f"{name}-others", metrics="x.", match="client_id=nobody", interval_ms="100")
        subscribe(session, name, metrics="a.,b.", interval_ms=str(INTERVAL_MS))
        subscribe(session, f"{name}-too", metrics="c.,b.", match="client_source_address=127.*")
        while True:  # Kafka's broker learns of them a moment later
            asked = session.call_unobserved("GetTelemetrySubscriptions", 0, {"client_instance_id": NEW})
            if sorted(asked["requested_metrics"]) == ["a.", "b.", "c."]:
                break
        asked = ask("subscribed")
        ask("too soon", asked["client_instance_id"])
        push("first", asked)
        push("too soon", asked)
        push_later("compressed", asked, metrics=gzip.compress(GAUGE), compression_type=1)
        push_later("unknown subscription", asked, subscription_id=asked["subscription_id"] ^ 1)
        ask("at once", asked["client_instance_id"])
        push("wrong compression", asked, compression_type=9)
        ask("at once again", asked["client_instance_id"])
        push_later("too large", asked, metrics=bytes((1 << 20) + 1))
        push_later("not compressed", asked, compression_type=1)
        push_later("nothing", asked, metrics=b"")
        push("nobody", asked, client_instance_id=NEW)
        push("the reserved id", asked, client_instance_id=bytes(15) + b"\1")
        push("the last", asked, terminating=True)
        push("after the last", asked)
        session.close()
        ask("on another connection", asked["client_instance_id"], at_once=False)

    pair.compare(scenario)


def test_both_announce_it(pair: Pair) -> None:
    def scenario(session: Session) -> None:
        software = {"client_software_name": "a", "client_software_version": "1"}
        response = session.call_unobserved("ApiVersions", 4, software)
        session.observe("announced", [row for row in response["api_keys"] if row["api_key"] in (71, 72)])

    pair.compare(scenario)


@pytest.fixture(params=["oncelog", "kafka"])
def bootstrap(request: pytest.FixtureRequest, pair: Pair) -> str:
    """One of the two brokers."""
    return pair.bootstrap(request.param)


def test_clients_get_an_instance_id(bootstrap: str, name: str) -> None:
    """Java's producer asks, and pushes until it is closed; the tool would say if its broker refused that."""
    with contextlib.closing(Session(bootstrap)) as session:
        session.topic(name)
        subscribe(session, name, metrics="*", match=f"client_id={name}", interval_ms="100")
    ran = run_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", name, "--num-records", "300", "--record-size", "10", "--throughput", "200"),
        *("--bootstrap-server", bootstrap, "--command-property", f"client.id={name}"),
    )
    assert "300 records sent" in ran.stdout
    assert "elemetry" not in ran.stderr


@pytest.fixture
def kafka() -> Iterator[oncelog.Broker]:
    with oncelog.Broker(topics=["t"], config=ENABLED) as kafka:
        with contextlib.closing(Session(kafka.bootstrap_servers)) as session:
            subscribe(session, "all", metrics="*", interval_ms="100")
        yield kafka


def test_what_librdkafka_sends(kafka: oncelog.Broker) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "client.id": "app"})
    for _ in range(10):
        producer.produce("t", b"value")
    assert producer.flush(10) == 0
    name = "org.apache.kafka.producer.connection.creation.total"
    push = kafka.wait_for_client_metrics(client_id="app", name=name)
    assert push.software[0] == "confluent-kafka-python"
    assert (push.principal, push.compression) == ("User:ANONYMOUS", "zstd")
    connections = push.metric(name)
    assert connections is not None
    assert connections.kind == "sum"
    assert connections.is_delta
    later = kafka.wait_for_client_metrics(client_id="app", after=push)
    assert later.client_instance_id == push.client_instance_id
    del producer
    while not later.is_terminating:
        later = kafka.wait_for_client_metrics(client_id="app", after=later)


def test_what_java_sends(kafka: oncelog.Broker) -> None:
    try:
        run_tool(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", "t", "--num-records", "300", "--record-size", "10", "--throughput", "200"),
            *("--bootstrap-server", kafka.bootstrap_servers, "--command-property", "client.id=app"),
        )
    except RealPartMissing as missing:
        require(str(missing))
    name = "org.apache.kafka.producer.record.send.total"
    pushes = kafka.client_metrics(client_id="app", name=name)
    assert pushes[0].software[0] == "apache-kafka-java"
    sent = sum(one.value for push in pushes if (one := push.metric(name)) is not None)
    assert 200 < sent <= 300, "what came before its first push does not count"
    # Whether it says with the last one that it ends depends on what is under way when it is closed.
    last = kafka.client_metrics(client_id="app")[-1]
    assert {one.kind for one in last.metrics} == {"gauge", "sum"}
