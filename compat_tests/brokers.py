"""The targets behind one interface; brokers that several tests share."""

import contextlib
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from compat_tests.docker_kafka import DockerKafka
from compat_tests.nodes.kafka_cluster import KafkaCluster
from compat_tests.oncelog_server import Oncelog
from compat_tests.proxy.oncelog_proxy import OncelogProxy
from tests.common.frames import address
from tests.common.real_kafka import FEW_INTERNAL_PARTITIONS, RealKafka, RealPartMissing, require

TARGETS = ("oncelog", "kafka")
PROXY, PROXY_CLUSTER, PROXY_ONCELOG = "proxy", "proxy-cluster", "proxy-oncelog"
"""Targets of the tests that are marked so: `oncelog proxy` before a real Kafka, before one of three nodes, before
oncelog."""

PROXY_OWN = "proxy-own"
"""As `PROXY`; users, rights and quotas are the proxy's own, and everybody may do everything."""
OWN_RIGHTS = (
    *("-c", "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
    *("-c", "allow.everyone.if.no.acl.found=true"),
)

WITHOUT_SHORTCUTS = "oncelog-without-shortcuts"
"""oncelog on the plain path: `Pair` compares both."""

PROXIED = {PROXY: "kafka", "proxy-2": "kafka-2", PROXY_ONCELOG: "oncelog", PROXY_OWN: "kafka"}
"""Before which of `SharedBrokers` a proxy stands."""

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
    if target == "oncelog":
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


class NodeByNode(KafkaCluster):
    """A cluster for tests that kill and start their broker: that is one of its nodes, and each time the next."""

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        super().__init__(properties)
        self._victim = 0

    @property
    def bootstrap(self) -> str:
        return self.bootstrap_servers

    def start(self) -> Self:
        """Start the cluster, or the node that was stopped or killed; return when all replicas are in sync."""
        if not self.nodes:
            return super().start()
        for node in self.nodes.values():
            if node.process is None:
                node.start()
        self.wait_until_in_sync()
        return self

    def stop(self) -> object:
        return self._next().stop()

    def kill(self) -> None:
        self._next().kill()

    def restart(self) -> None:
        self.stop()
        self.start()

    def _next(self) -> RealKafka:
        self._victim = self._victim % len(self.nodes) + 1
        return self.nodes[self._victim]


class Proxied:
    """A broker that clients reach through a proxy. Stopped, killed and restarted is the broker; the proxy stays.

    With `shared` the broker is somebody else's, and has been started.
    """

    def __init__(self, upstream: Broker, *, shared: bool = False, arguments: Sequence[str] = ()) -> None:
        self.upstream = upstream
        self.proxy: OncelogProxy | None = None
        self._shared = shared
        self._arguments = arguments

    @property
    def bootstrap(self) -> str:
        return self.started_proxy.bootstrap

    @property
    def started_proxy(self) -> OncelogProxy:
        assert self.proxy is not None
        return self.proxy

    @property
    def tracebacks(self) -> int:
        return self.started_proxy.tracebacks

    @property
    def running(self) -> bool:
        """Whether the proxy has not ended."""
        return self.started_proxy.running

    def start(self) -> Self:
        if not self._shared:
            self.upstream.start()
        if self.proxy is None:
            self.proxy = OncelogProxy(self.upstream.bootstrap, self._arguments).start()
        return self

    def stop(self) -> object:
        return self.upstream.stop()

    def kill(self) -> None:
        self.upstream.kill()

    def restart(self) -> None:
        self.upstream.restart()

    def output(self) -> str:
        return f"{self.upstream.output()}\n{self.started_proxy.output()}"

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.proxy is not None:
            self.proxy.stop()
        if not self._shared:
            self.upstream.__exit__(kind, error, trace)


def node_address(bootstrap: str, target: str) -> tuple[str, int]:
    """Return the address of the only node of a target; a proxy presents it by the port after its own."""
    host, port = address(bootstrap)
    return host, port + 1 if target == PROXY else port


class SharedBrokers:
    """One broker per target, started when a test first asks for it; `close` stops them all.

    The proxies stand before other brokers of it (`PROXIED`).

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
        if target in PROXIED:
            arguments = OWN_RIGHTS if target == PROXY_OWN else ()
            proxied = Proxied(self[PROXIED[target]], shared=True, arguments=arguments)
            return self._stack.enter_context(proxied)
        try:
            extra = self._kafka_properties if target.startswith("kafka") else {}
            if target == WITHOUT_SHORTCUTS:
                target, extra = "oncelog", {"oncelog.optimizations.enable": "false"}
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
    """Yield the broker; afterwards assert that oncelog, or the proxy, still runs and logged no traceback."""
    if not isinstance(running, Oncelog | Proxied):
        yield running
        return
    before = running.tracebacks
    yield running
    assert running.tracebacks == before, f"oncelog logged a traceback:\n{running.output()[-3000:]}"
    assert running.running, f"oncelog ended:\n{running.output()}"
