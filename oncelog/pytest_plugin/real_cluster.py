"""A Kafka cluster in the place of a broker: `Cluster` and `AsyncCluster`.

They are `oncelog.Broker` and `AsyncBroker` on a host that is a Kafka client (`oncelog.pytest_plugin.cluster_host`).
An operation that this host does not have skips the test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from oncelog import AsyncBroker, Broker, UnsupportedError
from oncelog.broker.control.errors import InvalidArgumentError
from oncelog.broker.embedded.host import Calls
from oncelog.pytest_plugin.cluster_host import ClusterHost

if TYPE_CHECKING:
    from oncelog.pytest_plugin.settings import Settings

UNSEEN = {"topics", "seed", "requests_kept", "process"}
"""Settings that do not skip a test on a cluster: ``topics``, which the fixture creates there, and those without an
effect that a test can see.
"""


class Cluster(Broker):
    """A Kafka cluster. `start` creates the topics, `close` deletes them."""

    def __init__(self, bootstrap_servers: str, topics: dict[str, object]) -> None:
        super().__init__(topics)
        self._calls = Calls(ClusterHost(addresses(bootstrap_servers), self._options.topics))

    def _call(self, operation: str, **arguments: Any) -> Any:
        try:
            return super()._call(operation, **arguments)
        except UnsupportedError as error:
            pytest.skip(str(error))


class AsyncCluster(AsyncBroker):
    """The same cluster for asynchronous tests."""

    async def _call(self, operation: str, **arguments: Any) -> Any:
        try:
            return await super()._call(operation, **arguments)
        except UnsupportedError as error:
            pytest.skip(str(error))


def cluster(settings: Settings) -> Cluster:
    """Return the cluster of the settings; skip a test that has settings which only a broker of its own can have."""
    assert settings.bootstrap_servers is not None
    needed = sorted(settings.of_the_test - UNSEEN)
    if needed:
        pytest.skip(
            f"needs a broker of its own, for {'=, '.join(needed)}=: not the cluster at {settings.bootstrap_servers}"
        )
    return Cluster(settings.bootstrap_servers, settings.arguments.get("topics", {}))


def addresses(bootstrap_servers: str) -> list[tuple[str, int]]:
    """Parse ``host:port,host:port``. Raises InvalidArgumentError."""
    found = []
    for text in bootstrap_servers.split(","):
        host, _, port = text.strip().rpartition(":")
        if not host or not port.isdecimal():
            raise InvalidArgumentError(
                f"--kafka-bootstrap-servers={bootstrap_servers}: expected HOST:PORT,..."
            )
        found.append((host.strip("[]"), int(port)))
    return found
