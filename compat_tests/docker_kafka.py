"""A real Apache Kafka from its container image, used with ONCELOG_REAL_KAFKA=docker.

It has the interface of `RealKafka`. The command-line tools still come from the jars.
"""

import pathlib
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from tests.common.jars import RealPartMissing, kafka_version
from tests.common.process import free_ports
from tests.common.real_kafka import PROPERTIES, START_TIMEOUT_S, STARTED, answers_api_versions

CONTROLLER_PORT = 29093
CONTAINER_DATA_DIR = "/var/lib/kafka/data"


def environment_key(key: str) -> str:
    """The image's environment variable for a property: upper case, `.` to `_`, `_` to `__`, `-` to `___`."""
    return "KAFKA_" + key.replace("_", "__").replace("-", "___").replace(".", "_").upper()


class DockerKafka:
    """One Apache Kafka node in a container, with the same port inside and outside."""

    def __init__(
        self, properties: Mapping[str, str] | None = None, data_dir: pathlib.Path | None = None
    ) -> None:
        self.data_dir = data_dir
        self._properties = {**PROPERTIES, **(properties or {}), "log.dirs": CONTAINER_DATA_DIR}
        self._port = free_ports(1)[0]
        self._container: Any = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self) -> Self:
        """Start the container, new or stopped. Raises RealPartMissing without a Docker engine."""
        if self._container is None:
            self._container = self._create()
        else:
            self._container.get_wrapped_container().start()
        from testcontainers.core.waiting_utils import wait_for_logs

        wait_for_logs(self._container, STARTED, timeout=START_TIMEOUT_S)
        assert answers_api_versions(self._port)
        return self

    def _create(self) -> Any:
        import docker.errors  # type: ignore[import-untyped,unused-ignore]
        from testcontainers.core.container import DockerContainer

        node = self._properties["node.id"]
        properties = {
            **self._properties,
            "controller.quorum.voters": f"{node}@localhost:{CONTROLLER_PORT}",
            "listeners": f"PLAINTEXT://0.0.0.0:{self._port},CONTROLLER://localhost:{CONTROLLER_PORT}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self._port}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
        }
        try:
            container = DockerContainer(f"apache/kafka:{kafka_version()}")
            for key, value in properties.items():
                container = container.with_env(environment_key(key), value)
            if self.data_dir is not None:
                container = container.with_volume_mapping(str(self.data_dir), CONTAINER_DATA_DIR, "rw")
            return container.with_bind_ports(self._port, self._port).start()
        except docker.errors.DockerException as error:
            raise RealPartMissing(f"no Docker engine: {error}") from error

    def stop(self) -> None:
        """Stop Kafka cleanly. The container is kept for a restart until the context is left."""
        if self._container is not None:
            self._container.get_wrapped_container().stop()

    def kill(self) -> None:
        """Send SIGKILL to the container's main process."""
        if self._container is not None:
            self._container.get_wrapped_container().kill()

    def restart(self) -> None:
        """Stop cleanly, if running, and start on the same data and port."""
        self.stop()
        self.start()

    def output(self) -> str:
        """The container's standard output and standard error."""
        if self._container is None:
            return ""
        out, err = self._container.get_logs()
        return f"{out.decode(errors='replace')}\n{err.decode(errors='replace')}"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._container is not None:
            self._container.stop()
