"""Kafka Connect's distributed workers: a group whose members are not consumers (Kafka's WorkerCoordinator)."""

import json
import pathlib
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

import pytest

from compat_tests.brokers import Broker
from compat_tests.clients.stock_clients import Confluent
from compat_tests.differential import Session
from compat_tests.groups.group import Group
from tests.common.batches import now_ms
from tests.common.jars import TOOL_JVM_OPTIONS, quick_start, tool_command
from tests.common.process import Process, free_ports

pytestmark = pytest.mark.also_on("proxy")

START_TIMEOUT_S = 60.0
RUNTIME = "org.apache.kafka.connect.runtime"
STARTED = ("Kafka Connect started", "Finished starting connectors and tasks")
"""The lines that a worker logs when its REST interface serves, and when it has joined its group."""
TASKS = 2


class ConnectWorker:
    """A distributed worker in its own JVM. ``more``: properties of its own."""

    def __init__(
        self,
        bootstrap: str,
        name: str,
        folder: pathlib.Path,
        classes: pathlib.Path,
        more: Mapping[str, str] | None = None,
    ) -> None:
        (port,) = free_ports(1)
        self._url = f"http://127.0.0.1:{port}"
        properties = {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "config.storage.topic": f"{name}-configs",
            "offset.storage.topic": f"{name}-offsets",
            "status.storage.topic": f"{name}-status",
            "offset.storage.partitions": "1",
            "status.storage.partitions": "1",
            **{f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")},
            "listeners": self._url,
            "plugin.discovery": "service_load",
            "offset.flush.interval.ms": "200",
            "session.timeout.ms": "3000",
            "heartbeat.interval.ms": "500",
            "scheduled.rebalance.max.delay.ms": "0",
            **(more or {}),
        }
        file = folder / f"worker-{port}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        options = (*TOOL_JVM_OPTIONS, *quick_start(), "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
        loggers = (f"{RUNTIME}.Connect", f"{RUNTIME}.distributed.DistributedHerder")
        log_levels = [f"-Dorg.slf4j.simpleLogger.log.{logger}=info" for logger in loggers]
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        command = tool_command(main, str(file), jvm_options=(*options, *log_levels), class_path=[classes])
        self.process = Process(command)

    def wait_started(self) -> None:
        for line in STARTED:
            assert self.process.stderr.wait_for(line, START_TIMEOUT_S), self.process.output()[-3000:]

    def put(self, path: str, values: dict[str, str]) -> Any:
        """PUT to the worker's REST interface; the request is repeated while the group rebalances."""
        deadline = now_ms() + int(START_TIMEOUT_S * 1000)
        request = urllib.request.Request(f"{self._url}{path}", json.dumps(values).encode(), method="PUT")
        request.add_header("Content-Type", "application/json")
        while True:
            try:
                with urllib.request.urlopen(request, timeout=START_TIMEOUT_S) as response:
                    return json.load(response)
            except urllib.error.HTTPError as refused:
                refused.close()
                if refused.code != HTTPStatus.CONFLICT or now_ms() > deadline:
                    raise


@pytest.fixture(scope="module")
def plugins(java_classes: pathlib.Path) -> pathlib.Path:
    """The folder with the compiled connector, and with the file by which Connect finds it."""
    services = java_classes / "META-INF" / "services"
    services.mkdir(parents=True)
    (services / "org.apache.kafka.connect.source.SourceConnector").write_text("CountingConnector\n")
    return java_classes


@pytest.fixture
def start(
    group_broker: Broker, name: str, tmp_path: pathlib.Path, plugins: pathlib.Path
) -> Iterator[Callable[[], ConnectWorker]]:
    """`start()` starts a worker of the test's group."""
    started: list[ConnectWorker] = []

    def make() -> ConnectWorker:
        started.append(ConnectWorker(group_broker.bootstrap, name, tmp_path, plugins))
        return started[-1]

    yield make
    for worker in started:
        worker.process.end(kill=True)


def describe_group(bootstrap: str, name: str) -> dict[str, Any]:
    session = Session(bootstrap)
    (group,) = session.call_unobserved("DescribeGroups", 5, {"groups": [name]})["groups"]
    session.close()
    return dict(group)


def end_of(bootstrap: str, topic: str, partition: int) -> int:
    """The partition's log end offset."""
    session = Session(bootstrap)
    row = {"name": topic, "partitions": [{"partition_index": partition, "timestamp": -1}]}
    (found,) = session.call_unobserved("ListOffsets", 5, {"topics": [row]})["topics"][0]["partitions"]
    session.close()
    return int(found["offset"])


def test_distributed_workers(
    group_broker: Broker, name: str, start: Callable[[], ConnectWorker], make_group: Callable[..., Group]
) -> None:
    """Two workers share the tasks; when one is killed, the other continues from the stored offsets."""
    bootstrap = group_broker.bootstrap
    topic = make_group(bootstrap, TASKS).topic
    first, second = start(), start()
    first.wait_started()
    second.wait_started()
    config = {"connector.class": "CountingConnector", "tasks.max": str(TASKS), "topic": topic}
    first.put("/connectors/counting/config", config)
    for partition in range(TASKS):
        found = Confluent.consume(bootstrap, topic, partition, 0, 30)
        assert [int(one.value or b"") for one in found] == list(range(30))
    group = describe_group(bootstrap, name)
    assert (group["protocol_type"], group["protocol_data"]) == ("connect", "sessioned")
    assert len(group["members"]) == 2

    first.process.end(kill=True)
    for partition in range(TASKS):
        count = end_of(bootstrap, topic, partition) + 100
        found = Confluent.consume(bootstrap, topic, partition, 0, count)
        numbers = [int(one.value or b"") for one in found]
        assert set(numbers) == set(range(max(numbers) + 1))  # at least once, without gaps
    group = describe_group(bootstrap, name)
    assert len(group["members"]) == 1
