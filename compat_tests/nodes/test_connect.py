"""Kafka Connect with exactly-once sources over nodes that are restarted in their turn, and one of which is killed."""

import pathlib
from collections import defaultdict
from collections.abc import Callable

import pytest

from compat_tests.groups.test_connect import ConnectWorker
from compat_tests.nodes.target import Cluster
from compat_tests.nodes.topic import create_topic
from compat_tests.oncelog_server import ROOT
from compat_tests.transactions.reader import Reader, reading
from tests.common.jars import RealPartMissing, compile_java, require

ASSIGNMENTS = ((1, 2, 3), (2, 3, 1))
"""A partition for each task of the connector."""
SOURCE = ROOT / "compat_tests/groups/CountingConnector.java"
PROPERTIES = {
    "exactly.once.source.support": "enabled",
    **{f"{kind}.storage.replication.factor": "3" for kind in ("config", "offset", "status")},
}
IDLE_S = 5
"""After so long without a record, all are read."""
MORE = 100
"""So many records show that the tasks go on."""


@pytest.fixture(scope="session")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The folder with the compiled connector, and with the file by which Connect finds it."""
    try:
        classes = compile_java([SOURCE], tmp_path_factory.mktemp("connect-classes"))
    except RealPartMissing as missing:
        require(str(missing))
    services = classes / "META-INF" / "services"
    services.mkdir(parents=True)
    (services / "org.apache.kafka.connect.source.SourceConnector").write_text("CountingConnector\n")
    return classes


@pytest.mark.slow
def test_each_number_is_there_once(
    kafka: Cluster, name: str, plugins: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    topic = create_topic(kafka, name, *ASSIGNMENTS)
    worker = ConnectWorker(kafka.bootstrap_servers, f"{name}-group", tmp_path, plugins, PROPERTIES)
    try:
        worker.wait_started()
        config = {"connector.class": "CountingConnector", "tasks.max": str(len(ASSIGNMENTS)), "topic": name}
        worker.put("/connectors/counting/config", config)
        with Reader(kafka.bootstrap_servers, name, len(ASSIGNMENTS)) as reader:
            reader.wait_for(MORE)
            leaves: list[Callable[[], object]] = [
                *(node.stop for node in kafka.nodes.values()),
                kafka.nodes[2].kill,
            ]
            for leave in leaves:
                leave()
                reader.wait_for(len(reader.rows) + MORE)
                for node in kafka.nodes.values():
                    node.start()
                topic.wait_until_in_sync()
                reader.wait_for(len(reader.rows) + MORE)
    finally:
        worker.process.end(kill=True)
    found: dict[int | None, list[int]] = defaultdict(list)
    with reading(kafka.bootstrap_servers, name, len(ASSIGNMENTS), "read_committed") as consumer:
        while (message := consumer.poll(IDLE_S)) is not None:
            if message.error() is None:
                found[message.partition()].append(int(message.value() or b""))
    assert sum(map(len, found.values())) >= len(reader.rows)
    assert found.keys() == {*range(len(ASSIGNMENTS))}
    for partition, numbers in found.items():
        assert numbers == [*range(len(numbers))], partition
