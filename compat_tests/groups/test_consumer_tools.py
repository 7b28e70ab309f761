"""Kafka's tools that consume in a group: the console consumer, the performance test and the verifiable consumer."""

import json
from collections.abc import Callable, Mapping

import pytest

from compat_tests.brokers import Broker
from compat_tests.groups.group import Group
from compat_tests.groups.workers import Worker
from tests.common.jars import run_tool

TOOLS = "org.apache.kafka.tools."
PROTOCOLS = ["classic", "consumer"]


@pytest.fixture
def group(group_broker: Broker, make_group: Callable[..., Group], java_classes: object) -> Group:
    """A topic of two partitions with 20 records each."""
    filled = make_group(group_broker.bootstrap, 2)
    filled.fill(20)
    return filled


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_console_consumer_in_a_group(group: Group, workers: Mapping[str, Worker], protocol: str) -> None:
    """A second run continues from the committed offsets."""
    arguments = ["--bootstrap-server", group.bootstrap, "--topic", group.topic, "--group", group.group_id]
    arguments += ["--from-beginning", "--timeout-ms", "20000", "--formatter-property", "print.offset=true"]
    arguments += ["--formatter-property", "print.partition=true"]
    arguments += ["--command-property", f"group.protocol={protocol}"]
    seen = []
    for count in (30, 10):
        code, out = workers["java"].tool(
            TOOLS + "consumer.ConsoleConsumer", *arguments, "--max-messages", str(count)
        )
        assert code == 0
        lines = [line.split("\t")[:2] for line in out.splitlines()]
        assert len(lines) == count
        seen += lines
    assert sorted(seen) == sorted(
        [f"Partition:{partition}", f"Offset:{offset}"] for partition in range(2) for offset in range(20)
    )
    assert group.committed() == group.ends
    assert group.type_and_state() == (protocol, "empty")


def test_console_consumer_without_a_group(group: Group) -> None:
    """The tool generates a group id, without committed offsets. It runs in its own JVM, as for users."""
    arguments = ("--bootstrap-server", group.bootstrap, "--topic", group.topic, "--from-beginning")
    run = run_tool(TOOLS + "consumer.ConsoleConsumer", *arguments, "--max-messages", "40", timeout_s=60)
    assert len(run.stdout.splitlines()) == 40
    assert "Processed a total of 40 messages" in run.stdout + run.stderr


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_consumer_performance(group: Group, workers: Mapping[str, Worker], protocol: str) -> None:
    group.fill(2000)
    arguments = ["--bootstrap-server", group.bootstrap, "--topic", group.topic, "--group", group.group_id]
    arguments += ["--num-records", "4040", "--timeout", "20000"]
    arguments += ["--command-property", f"group.protocol={protocol}"]
    code, out = workers["java"].tool(TOOLS + "ConsumerPerformance", *arguments)
    assert code == 0
    heading, numbers = out.splitlines()
    assert heading.startswith("start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg")
    assert numbers.split(", ")[4] == "4040"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_verifiable_consumer(group: Group, workers: Mapping[str, Worker], protocol: str) -> None:
    """The tool reports each step in JSON: its assignment, its records, its commits."""
    arguments = ["--bootstrap-server", group.bootstrap, "--topic", group.topic, "--group-id", group.group_id]
    arguments += ["--max-messages", "40", "--reset-policy", "earliest", "--group-protocol", protocol]
    code, out = workers["java"].tool(TOOLS + "VerifiableConsumer", *arguments)
    assert code == 0
    events = [json.loads(line) for line in out.splitlines()]
    names = [one["name"] for one in events]
    assert names[0] == "startup_complete"
    assert names[-1] == "shutdown_complete"
    assigned = [one["partitions"] for one in events if one["name"] == "partitions_assigned"]
    assert {one["partition"] for partitions in assigned for one in partitions} == {0, 1}
    assert sum(one["count"] for one in events if one["name"] == "records_consumed") == 40
    assert any(one["success"] for one in events if one["name"] == "offsets_committed")
    assert group.committed() == group.ends
