"""Kafka's tools that read with a share group, on both targets: the console consumer, the performance test, and the
consumer of Kafka's own system tests.
"""

from __future__ import annotations

import json
import re

import pytest

from compat_tests.differential import Session, make_topic
from tests.common.batches import batch
from tests.common.jars import RealPartMissing, require, run_tool, tool_command

pytestmark = pytest.mark.slow

TOOLS = "org.apache.kafka.tools."
RECORDS = 60


@pytest.fixture(autouse=True)
def _java() -> None:
    try:
        tool_command("none")
    except RealPartMissing as missing:
        require(str(missing))


def prepare(bootstrap: str, name: str, partitions: int = 2) -> None:
    """A topic with records, and a share group that begins with the first of them."""
    make_topic(bootstrap, name, partitions)
    session = Session(bootstrap)
    for number in range(RECORDS // 2):
        assert session.produce(name, batch(2), partition=number % partitions)["error_code"] == 0
    session.close()
    run_tool(
        "org.apache.kafka.tools.ConfigCommand", "--bootstrap-server", bootstrap, "--alter", "--entity-type", "groups",
        "--entity-name", name, "--add-config", "share.auto.offset.reset=earliest",
    )  # fmt: skip


@pytest.mark.also_on("proxy")
def test_console_share_consumer(bootstrap: str, name: str) -> None:
    prepare(bootstrap, name)
    arguments = (
        "--bootstrap-server", bootstrap, "--topic", name, "--group", name, "--timeout-ms", "20000",
        "--formatter-property", "print.offset=true", "--formatter-property", "print.delivery=true",
    )  # fmt: skip
    consumer = TOOLS + "consumer.ConsoleShareConsumer"
    released = run_tool(consumer, *arguments, "--max-messages", "10", "--release").stdout.splitlines()
    assert len(released) == 10
    assert all("Delivery:1" in line for line in released), released
    read = run_tool(consumer, *arguments, "--max-messages", str(RECORDS)).stdout.splitlines()
    assert len(read) == RECORDS
    assert sorted(re.findall(r"Delivery:(\d)", "\n".join(read)))[-1] == "2"
    shown = run_tool(consumer, *arguments[:-4], "--timeout-ms", "3000", check=False).stdout
    assert shown.split() == []


def test_share_consumer_perf_test(bootstrap: str, name: str) -> None:
    prepare(bootstrap, name)
    shown = run_tool(
        TOOLS + "ShareConsumerPerformance", "--bootstrap-server", bootstrap, "--topic", name, "--group", name,
        "--num-records", str(RECORDS), "--timeout", "20000", "--hide-header",
    ).stdout  # fmt: skip
    assert f", {RECORDS}, " in shown, shown


def test_verifiable_share_consumer(bootstrap: str, name: str) -> None:
    prepare(bootstrap, name)
    shown = run_tool(
        TOOLS + "VerifiableShareConsumer", "--bootstrap-server", bootstrap, "--topic", name, "--group-id", name,
        "--acknowledgement-mode", "sync", "--max-messages", str(RECORDS), "--verbose",
    ).stdout  # fmt: skip
    events = [json.loads(line) for line in shown.splitlines() if line.startswith("{")]
    offsets = {(one["partition"], one["offset"]) for one in events if one["name"] == "record_data"}
    assert len(offsets) == RECORDS
    acknowledged = [one for one in events if one["name"] == "offsets_acknowledged"]
    assert all(one["success"] for one in acknowledged), acknowledged
    assert sum(one["count"] for one in acknowledged) == RECORDS
