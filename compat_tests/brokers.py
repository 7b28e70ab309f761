"""The two targets behind one interface; brokers that several tests share."""

import contextlib
import os
import pathlib
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

from compat_tests.docker_kafka import DockerKafka
from compat_tests.oncelog_server import Oncelog
from compat_tests.real_kafka import RealKafka, RealPartMissing, require

TARGETS = ("oncelog", "kafka")


# Shared brokers run for minutes under load. The retention check after five minutes must not delete a test's records
# with old timestamps, and a busy Kafka that missed heartbeats must not hold elections. An idle controller writes and
# fsyncs a record twice a second by default; here it does not.
UNDISTURBED = {"log.initial.task.delay.ms": "86400000", "log.retention.check.interval.ms": "86400000"}
UNDISTURBED_KAFKA = {"broker.session.timeout.ms": "120000", "metadata.max.idle.interval.ms": "0"}


class Broker(Protocol):
    """A broker process, running or stopped; a stopped one can be started again on its data and its port."""

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
    """A broker of `target`, not yet started; Kafka's container image with ONCELOG_REAL_KAFKA=docker."""
    if target == "oncelog":
        return Oncelog(properties, data_dir)
    if os.environ.get("ONCELOG_REAL_KAFKA") == "docker":
        return DockerKafka(properties, data_dir)
    return RealKafka(properties, data_dir)


class SharedBrokers:
    """One broker per target, started when a test first asks for it; `close` stops them all.

    Their background tasks rest while they are ``undisturbed``: a test of retention needs others.
    """

    def __init__(self, properties: Mapping[str, str] | None = None, *, undisturbed: bool = True) -> None:
        self._properties = {**(UNDISTURBED if undisturbed else {}), **(properties or {})}
        self._kafka_properties = UNDISTURBED_KAFKA if undisturbed else {}
        self._running: dict[str, Broker] = {}
        self._missing = ""
        self._stack = contextlib.ExitStack()

    def __getitem__(self, target: str) -> Broker:
        if target not in self._running:
            self._running[target] = self._start(target)
        return self._running[target]

    def _start(self, target: str) -> Broker:
        if target.startswith("kafka") and self._missing:
            require(self._missing)
        try:
            extra = self._kafka_properties if target.startswith("kafka") else {}
            return self._stack.enter_context(make_broker(target, {**extra, **self._properties}))
        except RealPartMissing as missing:
            self._missing = str(missing)
            require(self._missing)

    @property
    def started(self) -> Mapping[str, Broker]:
        return self._running

    def close(self) -> None:
        self._stack.close()


def check_after(running: Broker) -> Iterator[Any]:
    """Yield the broker; afterwards assert that oncelog still runs and logged no traceback."""
    before = running.tracebacks if isinstance(running, Oncelog) else 0
    yield running
    if isinstance(running, Oncelog):
        assert running.tracebacks == before, f"oncelog logged a traceback:\n{running.output()[-3000:]}"
        assert running.process is None or running.process.running, f"oncelog ended:\n{running.output()}"
