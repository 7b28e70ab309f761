"""The targets behind one interface; brokers that several tests share."""

import contextlib
import os
import pathlib
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

from compat_tests.docker_kafka import DockerKafka
from compat_tests.on_demand import OnDemand
from compat_tests.oncelog_server import Oncelog
from compat_tests.proxied import (
    OWN_RIGHTS,
    PROXIED,
    PROXY,
    PROXY_CLUSTER,
    PROXY_ONCELOG,
    WITH_RIGHTS,
    NodeByNode,
    Proxied,
)
from tests.common.real_kafka import FEW_INTERNAL_PARTITIONS, RealKafka

TARGETS = ("oncelog", "kafka")
WITHOUT_SHORTCUTS = "oncelog-without-shortcuts"
"""oncelog on the plain path: `Pair` compares both."""

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
    """A broker of `target`, not yet started; Kafka's container image with ONCELOG_REAL_KAFKA=docker. Its internal
    topics have few partitions, if `properties` do not say how many.
    """
    properties = {**FEW_INTERNAL_PARTITIONS, **(properties or {})}
    if target.startswith("oncelog"):
        return Oncelog(properties, data_dir)
    if target == PROXY:
        return Proxied(make_broker("kafka", properties, data_dir))
    if target == PROXY_ONCELOG:
        return Proxied(make_broker("oncelog", properties, data_dir))
    if target == PROXY_CLUSTER:
        return Proxied(NodeByNode(properties))
    if os.environ.get("ONCELOG_REAL_KAFKA") == "docker":
        return DockerKafka(properties, data_dir)
    return RealKafka(properties, data_dir)


class SharedBrokers(OnDemand[Broker]):
    """One broker per target; "oncelog-2" and "kafka-2" are second ones. The proxies stand before others of these
    brokers (`PROXIED`).

    Their background tasks rest while they are ``undisturbed``: a test of retention needs others.
    """

    def __init__(self, properties: Mapping[str, str] | None = None, *, undisturbed: bool = True) -> None:
        super().__init__(self._broker)
        self._properties = {**(UNDISTURBED if undisturbed else {}), **(properties or {})}
        self._kafka_properties = UNDISTURBED_KAFKA if undisturbed else {}

    def _broker(self, target: str) -> Broker:
        if target in PROXIED:
            arguments = OWN_RIGHTS if target in WITH_RIGHTS else ()
            return Proxied(self[PROXIED[target]], shared=True, arguments=arguments)
        extra = self._kafka_properties if target.startswith("kafka") else {}
        if target == WITHOUT_SHORTCUTS:
            target, extra = "oncelog", {"oncelog.optimizations.enable": "false"}
        return make_broker(target, {**extra, **self._properties})


def check_after(running: Broker) -> Iterator[Any]:
    """Yield the broker; afterwards assert that oncelog, or the proxy, still runs and logged no traceback."""
    if not isinstance(running, Oncelog | Proxied):
        yield running
        return
    before = running.tracebacks
    yield running
    assert running.tracebacks == before, f"oncelog logged a traceback:\n{running.output()[-3000:]}"
    assert running.running, f"oncelog ended:\n{running.output()}"


checked = contextlib.contextmanager(check_after)
"""`check_after` as a context manager."""
