"""kafka-consumer-groups, run in the Java worker's JVM: both targets must make it print exactly the expected lines."""

import re
from collections.abc import Callable, Mapping

import pytest

from compat_tests.brokers import Broker
from compat_tests.groups.group import Group
from compat_tests.groups.settings import Settings
from compat_tests.groups.workers import Worker

COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
Row = list[str]


class Tool:
    """ConsumerGroupCommand on one group."""

    def __init__(self, worker: Worker, group: Group) -> None:
        self._worker = worker
        self._group = group

    def text(self, *arguments: str) -> str:
        """The tool's output. `--group` is added, unless the arguments name a group or list groups."""
        named = (
            () if {"--group", "--all-groups", "--list"} & {*arguments} else ("--group", self._group.group_id)
        )
        arguments = ("--bootstrap-server", self._group.bootstrap, *arguments, *named)
        code, out = self._worker.tool(COMMAND, *arguments)
        assert code in (0, 1)
        return out

    def rows(self, *arguments: str) -> list[Row]:
        """The rows of the printed table, sorted, as words, without the group's name; the topic is "T"."""
        lines = [line.split() for line in self.text(*arguments).splitlines() if line.strip()]
        group_lines = [line[1:] for line in lines if line[0] == self._group.group_id]
        return sorted(["T" if word == self._group.topic else word for word in line] for line in group_lines)

    def reset(self, *arguments: str, execute: bool = True) -> list[Row]:
        """--reset-offsets; rows of topic, partition, new offset."""
        mode = "--execute" if execute else "--dry-run"
        topic = () if "--topic" in arguments else ("--topic", self._group.topic)
        return self.rows("--reset-offsets", mode, *topic, *arguments)


@pytest.fixture
def tool(workers: Mapping[str, Worker], group: Group) -> Tool:
    return Tool(workers["java"], group)


@pytest.fixture
def group(group_broker: Broker, make_group: Callable[..., Group]) -> Group:
    """A topic of two partitions with 20 records each."""
    filled = make_group(group_broker.bootstrap, 2)
    filled.fill(20)
    return filled


def test_offsets_without_members(tool: Tool, group: Group) -> None:
    """The first reset creates the group; then every way to reset, and --describe."""
    everything = [["T", "0", "0"], ["T", "1", "0"]]
    assert tool.reset("--to-earliest", execute=False) == everything
    assert f"GroupIdNotFoundException: Group {group.group_id} not found." in tool.text("--describe")
    assert tool.reset("--to-earliest") == everything
    assert tool.rows("--describe") == [
        ["T", "0", "0", "20", "20", "-", "-", "-"],
        ["T", "1", "0", "20", "20", "-", "-", "-"],
    ]
    assert tool.reset("--to-offset", "7") == [["T", "0", "7"], ["T", "1", "7"]]
    one = ("--topic", f"{group.topic}:1")
    assert tool.reset("--shift-by", "5", *one) == [["T", "1", "12"]]
    assert tool.reset("--shift-by", "-100", *one) == everything[1:]
    assert tool.reset("--shift-by", "100", *one, execute=False) == [["T", "1", "20"]]
    assert tool.reset("--to-latest", *one) == [["T", "1", "20"]]
    assert tool.reset("--by-duration", "P1D", *one) == everything[1:]
    assert tool.reset("--to-current") == [["T", "0", "7"], ["T", "1", "0"]]
    exported = tool.text("--reset-offsets", "--to-current", "--export", "--dry-run", "--topic", group.topic)
    assert sorted(exported.split()) == [f"{group.topic},0,7", f"{group.topic},1,0"]
    verbose = tool.rows("--describe", "--offsets", "--verbose")
    assert [row[:6] for row in verbose] == [
        ["T", "0", "-", "7", "20", "13"],
        ["T", "1", "-", "0", "20", "20"],
    ]


def test_lists(tool: Tool, group: Group) -> None:
    """--list with and without state and type."""
    tool.reset("--to-earliest")
    assert group.group_id in tool.text("--list").split()
    assert tool.rows("--list", "--state") == [["Empty"]]
    assert tool.rows("--list", "--type") == [["Classic"]]
    assert tool.rows("--list", "--state", "Empty", "--type", "Classic") == [["Classic", "Empty"]]
    assert tool.rows("--list", "--state", "Stable") == []
    assert tool.rows("--list", "--type", "Consumer") == []


def test_all_kinds_of_groups(group: Group, workers: Mapping[str, Worker]) -> None:
    """kafka-groups, which lists groups of every type."""
    group.join("java", Settings("consumer"))
    group.wait_until_shared()
    arguments = ("--bootstrap-server", group.bootstrap, "--list")
    code, out = workers["java"].tool("org.apache.kafka.tools.GroupsCommand", *arguments)
    assert code == 0
    assert [group.group_id, "Consumer", "consumer"] in [line.split() for line in out.splitlines()]


def test_configurations_of_a_group(group: Group, workers: Mapping[str, Worker]) -> None:
    """kafka-configs for a group: set, describe, a refused value, delete."""
    entity = ("--entity-type", "groups", "--entity-name", group.group_id)

    def configs(*arguments: str) -> str:
        every = ("--bootstrap-server", group.bootstrap, *entity, *arguments)
        return workers["java"].tool("org.apache.kafka.tools.ConfigCommand", *every)[1]

    shown = "consumer.session.timeout.ms=2500 sensitive=false synonyms={DYNAMIC_GROUP_CONFIG:"
    done = f"Completed updating config for group {group.group_id}."
    assert done in configs("--alter", "--add-config", "consumer.session.timeout.ms=2500")
    assert shown in configs("--describe")
    assert done not in configs("--alter", "--add-config", "consumer.session.timeout.ms=99000000")
    assert shown in configs("--describe")
    assert done in configs("--alter", "--delete-config", "consumer.session.timeout.ms")
    assert "consumer.session.timeout.ms=2500" not in configs("--describe")


def test_deletes(tool: Tool, group: Group) -> None:
    """--delete-offsets and --delete; a second --delete fails."""
    tool.reset("--to-earliest")
    deleted = tool.text("--delete-offsets", "--topic", f"{group.topic}:1")
    assert re.search(rf"{group.topic}\s+1\s+Successful", deleted), deleted
    assert [row[:3] for row in tool.rows("--describe")] == [["T", "0", "0"]]
    name = group.group_id
    assert f"Deletion of requested consumer groups ('{name}') was successful." in tool.text("--delete")
    again = tool.text("--delete")
    assert f"* Group '{name}' could not be deleted due to:" in again
    assert "GroupIdNotFoundException" in again
    assert tool.rows("--list", "--state") == []


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_with_members(tool: Tool, group: Group, protocol: str) -> None:
    """--describe with members, and the operations that a group with members refuses."""
    first = group.join("java", Settings(protocol, instance="first" if protocol == "classic" else ""))
    second = group.join("java", Settings(protocol))
    group.wait_until_shared()
    group.wait_until_read()
    names = {member.name: str(next(iter(member.assignment))[1]) for member in (first, second)}
    owners = {partition: name for name, partition in names.items()}
    described = tool.rows("--describe")
    assert [row[:5] for row in described] == [["T", str(n), "20", "20", "0"] for n in range(2)]
    assert [row[6:] for row in described] == [["/127.0.0.1", owners[str(n)]] for n in range(2)]
    members = tool.rows("--describe", "--members")
    assert sorted(row[-2:] for row in members) == [[name, "1"] for name in sorted(names)]
    if protocol == "classic":
        assert sorted(row[1] for row in members) == ["/127.0.0.1", "first"]
    verbose = tool.rows("--describe", "--members", "--verbose")
    assert sorted(part for row in verbose for part in row if part.startswith(group.topic)) == [
        f"{group.topic}:{n}" for n in range(2) for _ in range(2 if protocol == "consumer" else 1)
    ]
    (state,) = tool.rows("--describe", "--state")
    assert state[1:] == ["(1)", "range" if protocol == "classic" else "uniform", "Stable", "2"]
    assert tool.rows("--list", "--state", "--type") == [[protocol.capitalize(), "Stable"]]

    refused = tool.text("--reset-offsets", "--to-earliest", "--execute", "--topic", group.topic)
    assert "Assignments can only be reset if the group" in refused, refused
    assert "GroupNotEmptyException" in tool.text("--delete")
    subscribed = tool.text("--delete-offsets", "--topic", group.topic)
    assert "GroupSubscribedToTopicException" in subscribed or "actively subscribed" in subscribed, subscribed
    assert group.committed() == group.ends
