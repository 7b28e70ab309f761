"""A Kafka cluster in the place of a broker: `Cluster` and `AsyncCluster`.

They are `oncelog.Broker` and `AsyncBroker` on a carrier that is a Kafka client
(`oncelog.pytest_plugin.cluster_carrier`), with a proxy before it if the user wants one. An operation that this carrier
does not have skips the test.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from oncelog import AsyncBroker, Broker, Proxy, UnsupportedError
from oncelog.broker.client.security.client_security import ClientSecurity
from oncelog.broker.client.security.keys import read_client_properties
from oncelog.broker.config.definitions import ConfigError
from oncelog.broker.control.errors import InvalidArgumentError
from oncelog.broker.control.options import config_texts
from oncelog.broker.embedded.carrier import Calls, Carrier, new_carrier
from oncelog.broker.embedded.client_settings import client_settings
from oncelog.pytest_plugin.cluster_carrier import ClusterCarrier
from oncelog.pytest_plugin.cluster_login import NotCarriedError, endpoint_of
from oncelog.pytest_plugin.proxied_cluster_carrier import ProxiedClusterCarrier

if TYPE_CHECKING:
    from oncelog.pytest_plugin.settings import Settings

UNSEEN = {"topics", "seed", "requests_kept", "snapshot_bytes_max", "process"}
"""Settings that do not skip a test on a cluster: ``topics``, which the fixture creates there, and those without an
effect that a test can see.
"""
OF_A_PROXY = ("seed", "requests_kept", "process")
"""Settings that a proxy before the cluster has, too."""

CommandConfig = Mapping[str, object] | str | os.PathLike[str]


class _ClusterAccess:
    """The settings for clients of a cluster."""

    command_config: Mapping[str, str]
    """How to log in to the cluster, by the keys of Kafka's clients; empty: it asks for nothing, or a proxy logs in."""
    bootstrap_servers: Any

    def _check_several(self) -> None:
        _skip("kafka.nodes, kafka.network and who leads need a broker of oncelog")

    def client_config(
        self,
        client: str = "confluent-kafka",
        *,
        user: str | None = None,
        mechanism: str | None = None,
        certificate: object = None,
        token: object = None,
        token_file: object = None,
    ) -> dict[str, Any]:
        """Return the settings of a client for the cluster, with the log-in of --kafka-command-config."""
        for name, given in (("user", user), ("certificate", certificate), ("token", token)):
            if given is not None:
                _skip(f"client_config({name}=) needs a broker of oncelog")
        try:
            return client_settings(client, endpoint_of(self.bootstrap_servers, self.command_config))
        except NotCarriedError as error:
            _skip(str(error))


class Cluster(_ClusterAccess, Broker):
    """A Kafka cluster. `start` creates the topics; `close` deletes them, and the groups that the test has used."""

    def __init__(
        self,
        bootstrap_servers: str,
        topics: dict[str, object],
        command_config: CommandConfig | None = None,
        *,
        test: str = "",
        through_proxy: bool = False,
        **of_the_proxy: Any,
    ) -> None:
        """``test`` is its name in errors. ``of_the_proxy`` are arguments of `oncelog.Proxy`. Raises
        InvalidArgumentError.
        """
        super().__init__(topics)
        security, values = _security(command_config)
        carrier: Carrier
        carrier = cluster = ClusterCarrier(
            tuple(addresses(bootstrap_servers)), self._options.topics, security, test
        )
        if through_proxy:
            proxy = Proxy(bootstrap_servers, upstream_config=values, **of_the_proxy)
            carrier = ProxiedClusterCarrier(
                cluster, new_carrier(proxy._controlled, process=proxy._in_process)
            )
        self._calls = Calls(carrier)
        self.command_config = {} if through_proxy else values
        self.is_observed = through_proxy
        """Whether it knows requests and has rules."""

    def _call(self, operation: str, **arguments: Any) -> Any:
        try:
            return super()._call(operation, **arguments)
        except UnsupportedError as error:
            _skip(str(error))


class AsyncCluster(_ClusterAccess, AsyncBroker):
    """The same cluster for asynchronous tests."""

    async def _call(self, operation: str, **arguments: Any) -> Any:
        try:
            return await super()._call(operation, **arguments)
        except UnsupportedError as error:
            _skip(str(error))


def cluster(settings: Settings, test: str) -> Cluster:
    """Return the cluster of the settings; skip a test that has settings which only a broker of its own can have."""
    assert settings.bootstrap_servers is not None
    seen = settings.of_the_test - UNSEEN
    proxys = {"faults"} & seen
    needed = sorted(seen - proxys if settings.through_proxy else seen)
    if needed:
        hint = ", or --kafka-through-proxy" if set(needed) == proxys else ""
        _skip(
            f"needs a broker of oncelog{hint}, for {'=, '.join(needed)}=: not the cluster at "
            f"{settings.bootstrap_servers}"
        )
    of_the_proxy = {name: settings.arguments[name] for name in OF_A_PROXY if name in settings.arguments}
    return Cluster(
        settings.bootstrap_servers,
        settings.arguments.get("topics", {}),
        settings.command_config,
        test=test,
        through_proxy=settings.through_proxy,
        **(of_the_proxy if settings.through_proxy else {}),
    )


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


def _security(given: CommandConfig | None) -> tuple[ClientSecurity | None, dict[str, str]]:
    """Return how to connect, and the keys that say so. Raises InvalidArgumentError."""
    if given is None:
        return None, {}
    try:
        values = (
            config_texts(given) if isinstance(given, Mapping) else read_client_properties(os.fspath(given))
        )
        return ClientSecurity(values), values
    except ConfigError as error:
        place = "command_config" if isinstance(given, Mapping) else f"--kafka-command-config={given}"
        raise InvalidArgumentError(f"{place}: {error}") from None


def _skip(reason: str) -> NoReturn:
    """Skip the test; the summary says so at the test's line, not here (with pytest 7 or newer)."""
    skipped = pytest.skip.Exception(reason)
    skipped._use_item_location = True
    raise skipped
