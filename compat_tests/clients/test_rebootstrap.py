"""Java's clients that are told that a node's address leads elsewhere begin again with their bootstrap servers: told so
by a fault rule of oncelog, and of a proxy before a Kafka (KIP-1242).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import oncelog
from compat_tests.brokers import SharedBrokers
from tests.common import facts
from tests.common.jars import RealPartMissing, kafka_version, require, run_tool

pytestmark = [
    pytest.mark.slow,
    pytest.mark.our_client,
    facts.needs(facts.CHECKS_CLUSTER_OF_CLIENT, "check of the node that a client means"),
]

REBOOTSTRAP = "REBOOTSTRAP_REQUIRED"
TIMEOUT_S = 60
TOOLS = "org.apache.kafka.tools"
READ = ("--max-messages", "1", "--group")
NEW_PROTOCOL = ("--command-property", "group.protocol=consumer")
CLIENTS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "producer": (f"{TOOLS}.ConsoleProducer", "Produce", ()),
    "consumer": (f"{TOOLS}.consumer.ConsoleConsumer", "Fetch", ("--from-beginning", *READ)),
    "consumer, new protocol": (
        f"{TOOLS}.consumer.ConsoleConsumer",
        "Fetch",
        ("--from-beginning", *NEW_PROTOCOL, *READ),
    ),
    "share consumer": (f"{TOOLS}.consumer.ConsoleShareConsumer", "ShareFetch", READ),
}
"""The tool, the API that it calls at the partition's leader, and arguments, of which a group's name is the last one."""

Kafka = oncelog.Broker | oncelog.Proxy


@pytest.fixture
def kafka(target: str, brokers: SharedBrokers) -> Iterator[Kafka]:
    with oncelog.Proxy(brokers["kafka"].bootstrap) if target == "kafka" else oncelog.Broker() as started:
        yield started


def run(client: str, kafka: Kafka, topic: str, version: str | None = None) -> str:
    """What the client prints, which writes the record "again", or reads a record as the group of the topic's name.

    `version` is another one than the judge's.
    """
    tool, _, arguments = CLIENTS[client]
    where = ("--bootstrap-server", kafka.bootstrap_servers, "--topic", topic)
    group = (topic,) if arguments else ()
    return run_tool(
        tool, *where, *arguments, *group, input="again\n", timeout_s=TIMEOUT_S, version=version
    ).stdout


def check_rebootstrap(kafka: Kafka) -> None:
    """The refused connection was for the node. What came next was a Metadata on one that was for none, then one for the
    node again.
    """
    asked = kafka.requests()
    versions = {request.peer: request for request in asked if request.api == "ApiVersions"}
    [refused] = [request for request in versions.values() if REBOOTSTRAP in request.errors]
    assert (refused.version, refused.body.node_id) == (5, 1)
    assert refused.body.cluster_id
    after = [request for request in asked if request.number > refused.number]
    again = next(request for request in after if request.api == "Metadata")
    assert versions[again.peer].body.cluster_id is None
    assert any(
        request.api == "ApiVersions" and request.body.node_id == 1 and not request.errors for request in after
    )


@pytest.mark.parametrize("client", CLIENTS)
def test_javas_clients_bootstrap_again(kafka: Kafka, name: str, client: str) -> None:
    """The connection to the leader is lost, and the next one is refused. (Java's consumers 4.4.0 stop for ever if that
    is the first one to the coordinator.)
    """
    kafka.create_topic(name)
    if client != "producer":
        kafka.produce(name, b"first")
    kafka.share_group(name).configure({"share.auto.offset.reset": "earliest"})
    api = CLIENTS[client][1]
    held, lost = kafka.faults.on(api).nth(1).hold(), kafka.faults.on(api).nth(1).close()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run, client, kafka, name)
        try:
            held.wait_fired(timeout=TIMEOUT_S)
            kafka.faults.on("ApiVersions", version="5+").nth(1).error(REBOOTSTRAP)
            held.release()
            lost.wait_fired(timeout=TIMEOUT_S)
            printed = running.result()
        except RealPartMissing as missing:
            require(str(missing))
        finally:
            held.remove()
    if client == "producer":
        assert [record.value for record in kafka.topic(name).records()] == [b"again"]
    else:
        assert "first" in printed
    check_rebootstrap(kafka)
    javas = {request.body.client_software_version for request in kafka.requests("ApiVersions")}
    assert javas == {kafka_version()}


def test_clients_of_4_3_name_no_node(kafka: Kafka, name: str) -> None:
    kafka.create_topic(name)
    try:
        run("producer", kafka, name, "4.3.1")
        assert "again" in run("consumer", kafka, name, "4.3.1")
    except RealPartMissing as missing:
        require(str(missing))
    asked = [request for request in kafka.requests("ApiVersions") if request.client_id.startswith("console")]
    assert {request.body.client_software_version for request in asked} == {"4.3.1"}
    assert {(request.version, request.body.node_id) for request in asked} == {(4, -1)}
