"""A real Apache Kafka without Docker: a broker on free loopback ports."""

import base64
import contextlib
import os
import pathlib
import secrets
import socket
import struct
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Self

from oncelog.wire.framing import encode_request
from oncelog.wire.messages.api_versions import ApiVersionsRequest
from tests.common.jars import BROKER_JVM_OPTIONS, TOOL_JVM_OPTIONS, quick_start, run_tool, tool_command
from tests.common.local_broker import LocalBroker
from tests.common.process import Process, free_ports

START_TIMEOUT_S = 300
START_ATTEMPTS = 3
STARTED = "Kafka Server started"

# One node that is broker and controller, with internal topics of one replica.
PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    # A killed broker may register again only after its old session has expired (by default 9 s).
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
}


INTERNAL_PARTITIONS = 5
FEW_INTERNAL_PARTITIONS = {
    f"{topic}.num.partitions": str(INTERNAL_PARTITIONS)
    for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
}
"""A Kafka that makes 50 partitions, the default, of two internal topics takes a third more CPU for a short test."""


def new_uuid() -> str:
    """A random id as Kafka writes them, which does not begin with a dash."""
    return base64.urlsafe_b64encode(b"o" + secrets.token_bytes(15)).decode().rstrip("=")


def answers_api_versions(port: int, timeout_s: float = 10, host: str = "127.0.0.1") -> bool:
    """Whether the broker on `port` answers an ApiVersions v0 request with error 0."""
    request = encode_request(ApiVersionsRequest(), 0, 7, "real")
    with socket.create_connection((host, port), timeout=timeout_s) as connection:
        connection.sendall(request)
        with connection.makefile("rb") as stream:
            head = stream.read(10)
    return len(head) == 10 and struct.unpack(">iih", head)[1:] == (7, 0)


_formatted: dict[pathlib.Path, bytes] = {}
"""The checkpoint with the features' levels as kafka-storage wrote it first, by its path in the data directory."""
CHECKPOINTS = (
    pathlib.Path("bootstrap.checkpoint"),
    pathlib.Path("__cluster_metadata-0", "00000000000000000000-0000000000.checkpoint"),
)
"""Where kafka-storage writes it: up to 4.3, and from 4.4 on."""


class RealKafka(LocalBroker):
    """One Apache Kafka node (broker and controller) in its own JVM, on free ports of 127.0.0.1.

    `properties` are added to `PROPERTIES`, and its `listeners` to PLAINTEXT and CONTROLLER.

    With `standalone` the voters are in the metadata log instead of the
    configuration, as in Kafka's quick start. A given `data_dir` is kept, and formatted if necessary; without one the
    data is deleted with the context. The default `jvm_options` suit a broker under light load, with an archive of
    classes. `class_path` has plug-ins. `version` is another one than `kafka_version`. kafka-storage gets the
    `format_arguments`, too. `start` raises RealPartMissing, or AssertionError with the broker's output.
    nodes/kafka_cluster.py has nodes of a cluster, with its `cluster_id`.
    """

    def __init__(
        self,
        properties: Mapping[str, str] | None = None,
        data_dir: pathlib.Path | None = None,
        jvm_options: Sequence[str] | None = None,
        *,
        standalone: bool = False,
        version: str | None = None,
        cluster_id: str | None = None,
        class_path: Sequence[pathlib.Path] = (),
        format_arguments: Sequence[str] = (),
    ) -> None:
        super().__init__(data_dir, "real-kafka-")
        self._format_arguments = tuple(format_arguments)
        self._cluster_id = cluster_id or new_uuid()
        self._standalone = standalone
        self._version = version
        self._class_path = class_path
        self._properties = {**PROPERTIES, **(properties or {}), "log.dirs": str(self.data_dir)}
        self._jvm_options = jvm_options if version is None else (jvm_options or BROKER_JVM_OPTIONS)
        self._host = "127.0.0.1"
        self._ports: list[int] = []

    @property
    def bootstrap(self) -> str:
        return f"{self._host}:{self._ports[0]}"

    def start(self) -> Self:
        """Format the data directory if necessary, start, and return when the broker answers ApiVersions."""
        last = ""
        for _ in range(START_ATTEMPTS):
            self._ports = self._ports or free_ports(2)
            if self._start_once():
                return self
            assert self.process is not None
            last = self.process.output()
            self.process.end(kill=True)
            self.process, self._ports = None, []
            if "Address already in use" not in last:  # else another process took the port: try other ports
                break
        raise AssertionError(f"Kafka did not start:\n{last}")

    def format(self) -> None:
        """Format the data directory as `start` does, and do not start."""
        self._ports = self._ports or free_ports(2)
        with self._server_properties() as path:
            self._format(path)

    def _start_once(self) -> bool:
        jvm_options = (
            (*BROKER_JVM_OPTIONS, *quick_start()) if self._jvm_options is None else self._jvm_options
        )
        with self._server_properties() as path:
            if not (self.data_dir / "meta.properties").exists():
                self._format(path)
            options = (*jvm_options, "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info")
            command = tool_command(
                "kafka.Kafka",
                path,
                jvm_options=options,
                class_path=self._class_path,
                version=self._version,
            )
            self.process = Process(command)
            started = self.process.stderr.wait_for(STARTED, START_TIMEOUT_S) is not None
            return started and answers_api_versions(self._ports[0], host=self._host)

    @contextlib.contextmanager
    def _server_properties(self) -> Iterator[str]:
        """The path of the configuration as a file, which is deleted in the end."""
        properties = {**self._properties, **self._addresses()}
        self.data_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", suffix=".properties", delete=False) as file:
            file.writelines(f"{key}={value}\n" for key, value in properties.items())
        try:
            yield file.name
        finally:
            os.unlink(file.name)

    def _addresses(self) -> dict[str, str]:
        """Give the properties that name ports."""
        broker, controller = self._ports
        own = f"PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}"
        found = {"listeners": ",".join(filter(None, (own, self._properties.get("listeners"))))}
        if self._standalone:
            found["controller.quorum.bootstrap.servers"] = f"127.0.0.1:{controller}"
        else:
            found["controller.quorum.voters"] = f"{self._properties['node.id']}@127.0.0.1:{controller}"
        return found

    def _format(self, properties: str) -> None:
        """Format with kafka-storage; a temporary directory gets copies of the first one's files instead."""
        is_plain = not self._standalone and not self._format_arguments
        can_copy = self._own_dir is not None and is_plain and self._version is None
        if can_copy and _formatted:
            for path, data in _formatted.items():
                (self.data_dir / path).parent.mkdir(exist_ok=True)
                (self.data_dir / path).write_bytes(data)
            self._write_meta_properties()
            return
        mode = [*(["--standalone"] if self._standalone else []), *self._format_arguments]
        # While a broker is run to write the archive of classes, this tool cannot use it.
        options = TOOL_JVM_OPTIONS if self._jvm_options is not None else None
        arguments = ["format", "-t", self._cluster_id, "-c", properties, *mode]
        run_tool("kafka.tools.StorageTool", *arguments, jvm_options=options, version=self._version)
        if can_copy:
            checkpoints = [path for path in CHECKPOINTS if (self.data_dir / path).exists()]
            _formatted.update((path, (self.data_dir / path).read_bytes()) for path in checkpoints)

    def _write_meta_properties(self) -> None:
        rows = {"version": 1, "cluster.id": self._cluster_id, "directory.id": new_uuid()}
        rows["node.id"] = self._properties["node.id"]
        text = "".join(f"{key}={value}\n" for key, value in rows.items())
        (self.data_dir / "meta.properties").write_text(text)
