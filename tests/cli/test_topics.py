"""``oncelog --topic``, ONCELOG_TOPICS, KAFKA_CREATE_TOPICS: topics that are there when clients can connect."""

from __future__ import annotations

import pathlib
import signal

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.common.oncelog_process import Process, Serve, serve

__all__ = ["serve"]  # a fixture

FREE = ("--listen", "127.0.0.1:0")
DEADLINE_S = 60
ORDERS = ("--topic", "orders:3", "--topic", "changes:1:1:compact", "--topic", "log:retention.ms=60000")


def admin_of(process: Process) -> AdminClient:
    return AdminClient({"bootstrap.servers": process.wait_ready()["address"]})


def partitions(admin: AdminClient) -> dict[str, int]:
    topics = admin.list_topics(timeout=DEADLINE_S).topics.values()
    return {topic.topic or "": len(topic.partitions) for topic in topics}


def configured(admin: AdminClient, topic: str, key: str) -> str:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    [found] = admin.describe_configs([resource]).values()
    return str(found.result(DEADLINE_S)[key].value)


@pytest.mark.parametrize("more", [(), ("--control", "127.0.0.1:0"), ("--nodes", "2")])
def test_they_are_there(serve: Serve, more: tuple[str, ...]) -> None:
    admin = admin_of(serve("--memory", *FREE, *ORDERS, *more))
    assert partitions(admin) == {"orders": 3, "changes": 1, "log": 1}
    assert configured(admin, "changes", "cleanup.policy") == "compact"
    assert configured(admin, "log", "retention.ms") == "60000"


@pytest.mark.parametrize("variable", ["ONCELOG_TOPICS", "KAFKA_CREATE_TOPICS"])
def test_a_variable(serve: Serve, variable: str) -> None:
    process = serve("--memory", *FREE, **{variable: "orders:3:1, changes:1:1:compact"})
    admin = admin_of(process)
    assert partitions(admin) == {"orders": 3, "changes": 1}
    assert configured(admin, "changes", "cleanup.policy") == "compact"
    assert process.end(signal.SIGTERM) == 0
    assert "WARNING" not in process.stderr


def test_those_that_are_there_stay_as_they_are(serve: Serve, tmp_path: pathlib.Path) -> None:
    for asked in ("orders:3", "orders:5"):
        process = serve("--data-dir", str(tmp_path / "data"), *FREE, "--topic", asked)
        assert partitions(admin_of(process)) == {"orders": 3}
        assert process.end(signal.SIGTERM) == 0


FORM = "expected NAME[:PARTITIONS[:REPLICAS]][:KEY=VALUE ...]"


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("orders:three", f"--topic orders:three: {FORM}"),
        ("orders:0", f"--topic orders:0: {FORM}"),
        (":3", f"--topic :3: {FORM}"),
        ("orders:1:1:1", f"--topic orders:1:1:1: {FORM}"),
        ("or ders", "topic or ders: "),
        ("orders:1:2", "topic orders: Unable to replicate the partition 2 time(s)"),
        ("orders:retention=1", "topic orders: Unknown topic config name: retention"),
        ("orders:retention.ms=day", "topic orders: Invalid value day for configuration retention.ms"),
    ],
)
@pytest.mark.parametrize("more", [(), ("--control", "127.0.0.1:0")])
def test_what_cannot_be_is_one_line(serve: Serve, asked: str, says: str, more: tuple[str, ...]) -> None:
    process = serve("--memory", *FREE, "--topic", asked, *more)
    assert process.end() == 2
    [line] = process.stderr.splitlines()[-1:]
    assert line.startswith(f"oncelog: {says}"), process.stderr
    assert "Traceback" not in process.stderr


def test_one_name_twice(serve: Serve) -> None:
    process = serve("--memory", *FREE, "--topic", "orders:1", "--topic", "orders:2")
    assert process.end() == 2
    assert process.stderr == "oncelog: --topic: two topics have the name orders\n"
