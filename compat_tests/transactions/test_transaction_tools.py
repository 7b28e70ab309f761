"""kafka-transactions, and Admin.fenceProducers and Admin.abortTransaction through it, on both targets."""

import re
from collections.abc import Callable, Iterator

import pytest

from compat_tests.differential import Session, make_topic
from compat_tests.transactions import wire
from compat_tests.transactions.java_worker import JavaWorker
from compat_tests.transactions.reader import values
from compat_tests.transactions.wire import Producer, until_settled
from tests.common.batches import batch, record
from tests.common.definitions import Fields

COMMAND = "org.apache.kafka.tools.TransactionsCommand"
RETRIABLE = (6, 13, 14, 15, 16, 51)
"""NOT_LEADER_OR_FOLLOWER, NETWORK_EXCEPTION, three errors of coordinators, CONCURRENT_TRANSACTIONS."""
Tool = Callable[..., str]


def tool_of(worker: JavaWorker, bootstrap: str) -> Tool:
    return lambda *arguments: worker.tool(COMMAND, "--bootstrap-server", bootstrap, *arguments)


@pytest.mark.slow
def test_kafka_transactions(java_worker: Callable[[], JavaWorker], bootstrap: str, name: str) -> None:
    tool = tool_of(java_worker(), bootstrap)
    make_topic(bootstrap, name)
    session = Session(bootstrap)
    try:
        producer = Producer(session, name, timeout_ms=900_000)
        producer.init()
        producer.add([(name, 0)])
        # A write before its partition is verified may be refused with a retriable error (KIP-890).
        while (row := producer.send(name, 0, 2))["error_code"]:
            assert row["error_code"] in RETRIABLE, row
        listed = tool("list", "--transactional-id-pattern", name)
        assert re.search(rf"{name}\s+1\s+{producer.producer_id}\s+Ongoing", listed), listed
        described = tool("describe", "--transactional-id", name)
        assert re.search(rf"{name}\s+{producer.producer_id}\s+{producer.epoch}\s+Ongoing\s+900000", described)
        assert f"{name}-0" in described
        found = tool("describe-producers", "--topic", name, "--partition", 0)
        assert re.search(rf"{producer.producer_id}\s+{producer.epoch}\s+", found), found
        # The coordinator knows the transaction, so it does not hang.
        hanging = tool("find-hanging", "--broker-id", 1, "--max-transaction-timeout", 0)
        assert name not in hanging, hanging
        assert values(bootstrap, name, 0) == []
        tool("abort", "--topic", name, "--partition", 0, "--start-offset", 0)
        assert len(values(bootstrap, name, 0, level="read_uncommitted")) == 2
        assert values(bootstrap, name, 0) == []
        producers = tool("describe-producers", "--topic", name, "--partition", 0)
        assert re.search(r"\sNone\s*$", producers), producers
        # A fenced producer cannot end its transaction any more.
        tool("forceTerminateTransaction", "--transactionalId", name)
        producer.wait_ended()
        assert producer.end(True)["error_code"] == 90
    finally:
        session.end()


@pytest.fixture
def unverified(own_bootstrap: str) -> Iterator[Session]:
    """A session with a broker on which transactions may hang: it does not verify that writes belong to one."""
    session = Session(own_bootstrap)

    def verify(text: str) -> None:
        row = {"name": "transaction.partition.verification.enable", "config_operation": 0, "value": text}
        resource: Fields = {"resource_type": 4, "resource_name": "1", "configs": [row]}
        response = session.call_unobserved("IncrementalAlterConfigs", 1, {"resources": [resource]})
        assert response["responses"][0]["error_code"] == 0, response

    verify("false")
    yield session
    verify("true")
    session.end()


@pytest.mark.slow
def test_hanging_transactions_are_found_and_aborted(
    java_worker: Callable[[], JavaWorker], own_bootstrap: str, unverified: Session, name: str
) -> None:
    """A write without a transaction and one after its end hang; the tool aborts them in its two ways."""
    tool = tool_of(java_worker(), own_bootstrap)
    topics = [f"{name}-unknown", f"{name}-late"]
    producers = []
    for topic in topics:
        unverified.topic(topic)
        producer = Producer(unverified, topic)
        producer.init()
        if topic.endswith("late"):
            producer.add([(topic, 0)])
            until_settled(
                lambda at=topic, by=producer: by.send(at), lambda row: 51 if row["error_code"] else 0
            )
            producer.end(True)
        # Kafka refuses the write until the broker learns of its new configuration, a moment after the response.
        until_settled(lambda at=topic, by=producer: by.send(at), lambda row: 51 if row["error_code"] else 0)
        producers.append(producer)
    for topic, producer, offset in zip(topics, producers, (0, 2), strict=True):
        assert unverified.produce(topic, batch([record(None, b"plain")]))["error_code"] == 0
        assert values(own_bootstrap, topic, 0) == ([] if offset == 0 else ["v0"])
        found = tool("find-hanging", "--broker-id", 1, "--max-transaction-timeout", 0)
        assert re.search(
            rf"{topic}\s+0\s+{producer.producer_id}\s+{producer.epoch}\s+-?\d+\s+{offset}\s", found
        ), found
    tool("abort", "--topic", topics[0], "--partition", 0, "--start-offset", 0)
    [late] = wire.observe_producers(unverified, topics[1])
    of_late = (
        "--coordinator-epoch",
        late["coordinator_epoch"],
        "--producer-id",
        producers[1].producer_id,
        "--producer-epoch",
        producers[1].epoch,
    )
    tool("abort", "--topic", topics[1], "--partition", 0, *of_late)
    assert values(own_bootstrap, topics[0], 1) == ["plain"]
    assert values(own_bootstrap, topics[1], 2) == ["plain", "v0"]
    found = tool("find-hanging", "--broker-id", 1, "--max-transaction-timeout", 0)
    assert name not in found, found
