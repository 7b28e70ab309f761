"""The servers: oncelog and Kafka, started in the same way with the same settings, and the stub."""

import base64
import enum
import pathlib
import secrets
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Protocol, Self

from compat_tests.oncelog_server import ROOT, START_TIMEOUT_S, Oncelog
from compat_tests.proxy.kroxylicious import Kroxylicious
from compat_tests.proxy.oncelog_proxy import OncelogProxy
from tests.common.jars import TOOL_JVM_OPTIONS, run_tool
from tests.common.local_broker import LocalBroker
from tests.common.process import Process, free_ports
from tests.common.real_kafka import PROPERTIES, RealKafka, answers_api_versions

# The JVM options of Kafka's own start script.
KAFKA_JVM_OPTIONS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)


# Files of deleted topics are removed soon, so that they do not disturb the next measurement.
PROPERTIES_OF_BOTH = {"log.segment.delete.delay.ms": "500"}
PROPERTIES_OF_KAFKA = {"log.initial.task.delay.ms": "500"}  # by default it deletes nothing for half a minute


class Kind(enum.StrEnum):
    OURS = "oncelog"
    KAFKA = "kafka"
    CEILING = "ceiling"  # bench.stub, which shows the client's speed with a server that costs nothing
    DIRECT = "direct"  # one Kafka, and two proxies before it
    PROXY = "oncelog proxy"
    KROXYLICIOUS = "Kroxylicious"


COMPARED = (Kind.OURS, Kind.KAFKA)
PATHS = (Kind.DIRECT, Kind.PROXY, Kind.KROXYLICIOUS)
"""The ways from the clients to one Kafka."""


class Server(Protocol):
    """`compat_tests`' Oncelog and RealKafka, `Stub` and `Through`."""

    data_dir: pathlib.Path

    @property
    def bootstrap(self) -> str: ...
    @property
    def pid(self) -> int: ...
    def start(self) -> Self: ...
    def stop(self) -> object: ...
    def kill(self) -> None: ...
    def output(self) -> str: ...


class Stub(LocalBroker):
    """`bench.stub` on a free port; it stores nothing in its directory.

    `properties`: a listener SSL, with its key store, is all that it heeds.
    """

    def __init__(self, data_dir: pathlib.Path, properties: Mapping[str, str]) -> None:
        super().__init__(data_dir, "stub-")
        self.bootstrap = ""
        ssl = "SSL://"
        addresses = properties.get("listeners", "").split(",")
        self._tls = [
            part
            for address in addresses
            if address.startswith(ssl)
            for part in (properties["ssl.keystore.location"], address.removeprefix(ssl))
        ]

    def start(self) -> Self:
        command = [sys.executable, "-m", "bench.stub", *self._tls]
        self.process = Process(command, env={"PYTHONPATH": str(ROOT)})
        self.bootstrap = self.process.stdout.wait_for("127.0.0.1:", START_TIMEOUT_S) or ""
        assert self.bootstrap, self.process.output()
        return self


class Through:
    """A Kafka by way of a proxy: the address and process are the proxy's, the data Kafka's."""

    def __init__(self, kafka: Server, proxy: OncelogProxy | Kroxylicious) -> None:
        self.data_dir = kafka.data_dir
        self._proxy = proxy

    @property
    def bootstrap(self) -> str:
        return self._proxy.bootstrap

    @property
    def pid(self) -> int:
        return self._proxy.pid

    def start(self) -> Self:
        self._proxy.start()
        return self

    def stop(self) -> None:
        self._proxy.__exit__(None, None, None)

    def kill(self) -> None:
        self.stop()

    def output(self) -> str:
        return self._proxy.output()


def through(kind: Kind, kafka: Server) -> Server:
    """A proxy before a Kafka that has been started; the proxy has not."""
    proxy = OncelogProxy(kafka.bootstrap) if kind is Kind.PROXY else Kroxylicious(kafka.bootstrap)
    return Through(kafka, proxy)


def make(kind: Kind, data_dir: pathlib.Path, properties: Mapping[str, str] | None = None) -> Server:
    """A server of this kind, not started yet."""
    if kind is Kind.CEILING:
        return Stub(data_dir, properties or {})
    both = {**PROPERTIES_OF_BOTH, **(properties or {})}
    if kind is Kind.OURS:
        return Oncelog(both, data_dir)
    return RealKafka({**PROPERTIES_OF_KAFKA, **both}, data_dir, KAFKA_JVM_OPTIONS)


def timed_start(server: Server) -> float:
    """Seconds from spawning the server, on a formatted directory, to its first ApiVersions response."""
    start = time.perf_counter()
    server.start()
    assert answers_api_versions(int(server.bootstrap.rpartition(":")[2])), server.output()
    return time.perf_counter() - start


def format_kafka(data_dir: pathlib.Path) -> float:
    """Format an empty directory with kafka-storage, as Kafka's users must; seconds."""
    data_dir.mkdir(parents=True, exist_ok=True)
    port = free_ports(1)[0]
    properties = {
        **PROPERTIES,
        "log.dirs": str(data_dir),
        "controller.quorum.voters": f"{PROPERTIES['node.id']}@127.0.0.1:{port}",
        "listeners": f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{port}",
    }
    cluster_id = base64.urlsafe_b64encode(b"o" + secrets.token_bytes(15)).decode().rstrip("=")
    with tempfile.NamedTemporaryFile("w", suffix=".properties") as file:
        file.writelines(f"{key}={value}\n" for key, value in properties.items())
        file.flush()
        start = time.perf_counter()
        tool = ("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", file.name)
        run_tool(*tool, jvm_options=TOOL_JVM_OPTIONS)  # without an archive of classes, as for users
        return time.perf_counter() - start
