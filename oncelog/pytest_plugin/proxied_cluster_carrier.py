"""`ProxiedClusterCarrier`: a Kafka cluster with a proxy before it (``--kafka-through-proxy``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from outcome import Error, Outcome

from oncelog.broker.control.errors import NotRunningError, UnsupportedError
from oncelog.broker.faults.files import RuleFileError, load_rules
from oncelog.broker.faults.rule import REFUSED_BY_PROXY
from oncelog.pytest_plugin.users_words import OF_A_PROXY

if TYPE_CHECKING:
    from oncelog.broker.embedded.carrier import Carrier
    from oncelog.pytest_plugin.cluster_carrier import ClusterCarrier


class ProxiedClusterCarrier:
    """See `oncelog.broker.embedded.carrier.Carrier`. The proxy performs what concerns passing requests, and clients
    connect to it; the rest is the cluster's.
    """

    def __init__(self, cluster: ClusterCarrier, proxy: Carrier) -> None:
        self._cluster = cluster
        self._proxy = proxy

    def submit(
        self, operation: str, arguments: Mapping[str, Any], on_done: Callable[[Outcome[Any]], None]
    ) -> Callable[[], None]:
        if operation == "start":
            return self._start(on_done)
        if operation not in OF_A_PROXY:
            return self._cluster.submit(operation, arguments, on_done)
        for action in _actions(operation, arguments):
            if action in REFUSED_BY_PROXY:
                raise UnsupportedError(
                    f"{action} needs a broker of oncelog, and this is the Kafka cluster at {self._cluster.servers}: a "
                    "proxy cannot let the brokers behind it die"
                )
        return self._proxy.submit(operation, arguments, on_done)

    def close(self) -> None:
        self._cluster.close()
        self._proxy.close()

    def _start(self, on_done: Callable[[Outcome[Any]], None]) -> Callable[[], None]:
        """Start at the cluster, then the proxy, whose address is the result."""

        def then(outcome: Outcome[Any]) -> None:
            if isinstance(outcome, Error):
                on_done(outcome)
                return
            try:
                cancels.append(self._proxy.submit("start", {}, on_done))
            except NotRunningError as error:
                on_done(Error(error))

        def cancel() -> None:
            for one in cancels:
                one()

        cancels: list[Callable[[], None]] = []
        cancels.append(self._cluster.submit("start", {}, then))
        return cancel


def _actions(operation: str, arguments: Mapping[str, Any]) -> list[str]:
    """Return the actions of the rules that an operation adds, as far as they are rules."""
    if operation == "add_rule":
        return list(arguments["rule"])
    if operation == "load_rules":
        with suppress(RuleFileError):  # the proxy says why
            return [rule.action for rule in load_rules(arguments["text"], arguments["name"])]
    return []
