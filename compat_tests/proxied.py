"""Brokers that clients reach through `oncelog proxy`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from compat_tests.nodes.kafka_cluster import KafkaCluster
from compat_tests.proxy.oncelog_proxy import OncelogProxy
from tests.common.frames import address
from tests.common.real_kafka import RealKafka

if TYPE_CHECKING:
    from compat_tests.brokers import Broker

PROXY, PROXY_CLUSTER, PROXY_ONCELOG = "proxy", "proxy-cluster", "proxy-oncelog"
"""Targets of the tests that are marked so: `oncelog proxy` before a real Kafka, before one of three nodes, before
oncelog."""

PROXY_OWN, PROXY_OWN_ONCELOG = "proxy-own", "proxy-own-oncelog"
"""As `PROXY` and `PROXY_ONCELOG`; users, rights and quotas are the proxy's own, and everybody may do everything."""
OF_PAIR, OF_PAIR_ONCELOG = "proxy-2", "proxy-oncelog-2"
"""Before a broker of its own, since the scenario of a comparison has used the other one."""
OWN_RIGHTS = (
    *("-c", "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
    *("-c", "allow.everyone.if.no.acl.found=true"),
)

PROXIED = {
    PROXY: "kafka",
    PROXY_OWN: "kafka",
    OF_PAIR: "kafka-2",
    PROXY_ONCELOG: "oncelog",
    PROXY_OWN_ONCELOG: "oncelog",
    OF_PAIR_ONCELOG: "oncelog-2",
}
"""Before which of `SharedBrokers` a proxy stands."""
WITH_RIGHTS = (PROXY_OWN, PROXY_OWN_ONCELOG)
BEFORE_ONCELOG = {
    PROXY: PROXY_ONCELOG,
    PROXY_OWN: PROXY_OWN_ONCELOG,
    OF_PAIR: OF_PAIR_ONCELOG,
}
"""Where a proxy stands in a run that asks no Kafka: before oncelog, which answers as Kafka has. What it does with an
answer depends on no more; proxy/test_stock_clients.py has stock clients before a real Kafka in every run."""


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
    return host, port + 1 if target.startswith(PROXY) else port
