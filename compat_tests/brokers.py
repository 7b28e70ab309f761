"""The two targets behind one face."""

import os
import pathlib
from collections.abc import Mapping
from types import TracebackType
from typing import Protocol, Self

from compat_tests.docker_kafka import DockerKafka
from compat_tests.oncelog_server import Oncelog
from compat_tests.real_kafka import RealKafka

TARGETS = ("oncelog", "kafka")


class Broker(Protocol):
    """A broker that runs, or ran and can be started again on its data and its port."""

    @property
    def bootstrap(self) -> str: ...
    def start(self) -> Self: ...
    def stop(self) -> object: ...
    def kill(self) -> None: ...
    def restart(self) -> None: ...
    def output(self) -> str: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


def make_broker(
    target: str, properties: Mapping[str, str] | None = None, data_dir: pathlib.Path | None = None
) -> Broker:
    """A broker of `target`, not yet started. ONCELOG_REAL_KAFKA=docker takes Kafka's container image."""
    if target == "oncelog":
        return Oncelog(properties, data_dir)
    if os.environ.get("ONCELOG_REAL_KAFKA") == "docker":
        return DockerKafka(properties, data_dir)
    return RealKafka(properties, data_dir)
