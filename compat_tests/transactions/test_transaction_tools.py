"""kafka-transactions, and Admin.fenceProducers and Admin.abortTransaction through it, on both targets."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.differential import Session
from compat_tests.transactions.test_transactional_clients import make_topic, values
from compat_tests.transactions.wire import Producer

KafkaTool = Callable[..., Any]
COMMAND = "org.apache.kafka.tools.TransactionsCommand"
RETRIABLE = (6, 13, 14, 15, 16, 20, 51)
"""NOT_LEADER_OR_FOLLOWER, NETWORK_EXCEPTION, three of coordinators, NOT_ENOUGH_REPLICAS_AFTER_APPEND (what older
clients are told instead of others), CONCURRENT_TRANSACTIONS."""


@pytest.mark.slow
def test_kafka_transactions(kafka_tool: KafkaTool, bootstrap: str, name: str) -> None:
    def tool(*arguments: object) -> str:
        text = [str(one) for one in arguments]
        return str(kafka_tool(COMMAND, "--bootstrap-server", bootstrap, *text).stdout)

    make_topic(bootstrap, name)
    session = Session(bootstrap)
    try:
        producer = Producer(session, name, timeout_ms=900_000)
        producer.init()
        producer.add([(name, 0)])
        # A write that comes before its partition has been verified may be refused, to be tried again (KIP-890).
        while (row := producer.send(name, 0, 2))["error_code"]:
            assert row["error_code"] in RETRIABLE, row
        listed = tool("list", "--transactional-id-pattern", name)
        assert re.search(rf"{name}\s+1\s+{producer.producer_id}\s+Ongoing", listed), listed
        described = tool("describe", "--transactional-id", name)
        assert re.search(rf"{name}\s+{producer.producer_id}\s+{producer.epoch}\s+Ongoing\s+900000", described)
        assert f"{name}-0" in described
        found = tool("describe-producers", "--topic", name, "--partition", 0)
        assert re.search(rf"{producer.producer_id}\s+{producer.epoch}\s+", found), found
        # The coordinator knows of it: it does not hang.
        hanging = tool("find-hanging", "--broker-id", 1, "--max-transaction-timeout", 0)
        assert name not in hanging, hanging
        assert values(bootstrap, name, 0) == []
        tool("abort", "--topic", name, "--partition", 0, "--start-offset", 0)
        assert len(values(bootstrap, name, 0, level="read_uncommitted")) == 2
        assert values(bootstrap, name, 0) == []
        producers = tool("describe-producers", "--topic", name, "--partition", 0)
        assert re.search(r"\sNone\s*$", producers), producers
        # Fencing: its owner cannot end it any more.
        tool("forceTerminateTransaction", "--transactionalId", name)
        producer.wait_ended()
        assert producer.end(True)["error_code"] == 90
    finally:
        session.close()
