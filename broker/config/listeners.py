"""`resolve_listeners`: the addresses to listen on and those to advertise, from ``listeners``, ``advertised.listeners``,
``listener.security.protocol.map`` and ``controller.listener.names``.

Source: ``SocketServerConfigs``, ``AbstractKafkaConfig`` and ``KafkaConfig`` of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.definitions import ConfigError
from oncelog.broker.seams.address import address_text

PLAINTEXT = "PLAINTEXT"
SECURITY_PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_EVERY_ADDRESS = ("0.0.0.0", "::")
_HOST_MARKS = "-%._:"


class ListenerEndpoint(NamedTuple):
    """One ``NAME://HOST:PORT`` (Kafka: ``Endpoint``). An empty host means every address in ``listeners``, and this
    machine's name in ``advertised.listeners``."""

    listener: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.listener}://{address_text(self.host, self.port)}"


class ListenerConfig(NamedTuple):
    """A listener's address and its advertised address.

    An advertised port 0 stands for the port that the socket is bound to. ``advertised`` is None for a listener that is
    not in ``advertised.listeners``.
    """

    bind: ListenerEndpoint
    advertised: ListenerEndpoint | None
    protocol: str
    """One of `SECURITY_PROTOCOLS`."""


def resolve_listeners(
    config: BrokerConfig, host_name: Callable[[], str]
) -> tuple[list[ListenerConfig], list[str]]:
    """Return the listeners to open, without those of controllers, and warnings. ``host_name`` returns this machine's
    name.

    Raises ConfigError with key and value for malformed endpoints, for what Kafka refuses, and for security protocols
    that oncelog does not serve."""
    controllers = {name.upper() for name in config.controller_listener_names}
    bound = _endpoints(config, "listeners", config.listeners)
    if not bound or all(endpoint.listener in controllers for endpoint in bound):
        raise _refusal(config, "listeners", "there is no listener for clients")
    protocols = _protocols(config)
    refused: list[str] = []
    for endpoint in bound:
        if endpoint.listener not in controllers and (why := _protocol_refusal(config, endpoint, protocols)):
            refused += why.problems
    opened = [endpoint for endpoint in bound if endpoint.listener not in controllers]
    try:
        advertised = _advertised(config, opened, controllers, host_name)
    except ConfigError as error:
        refused += error.problems
    if refused:
        raise ConfigError(*refused)
    closed = [endpoint for endpoint in bound if endpoint.listener in controllers]
    warnings = [
        f"listener {endpoint} is the controller's: not opened, oncelog needs none" for endpoint in closed
    ]
    return [
        ListenerConfig(endpoint, advertised.get(endpoint.listener), protocols[endpoint.listener])
        for endpoint in opened
    ], warnings


def listener_names(config: BrokerConfig) -> list[str]:
    """Return the names of the listeners for clients. Raises ConfigError for malformed endpoints."""
    controllers = {name.upper() for name in config.controller_listener_names}
    bound = _endpoints(config, "listeners", config.listeners)
    return [endpoint.listener for endpoint in bound if endpoint.listener not in controllers]


def parse_endpoint(text: str) -> ListenerEndpoint:
    """Parse ``NAME://HOST:PORT``, with an IPv6 host in brackets; the name becomes upper case. Raises ValueError."""
    name, slashes, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    plain = all(char.isascii() and (char.isalnum() or char in _HOST_MARKS) for char in host)
    if not (
        slashes and name and colon and plain and port.isascii() and port.isdecimal() and int(port) < 65536
    ):
        raise ValueError(f"Unable to parse {text} to a broker endpoint, expected NAME://HOST:PORT")
    return ListenerEndpoint(name.upper(), host, int(port))


def _endpoints(config: BrokerConfig, key: str, texts: Iterable[str]) -> list[ListenerEndpoint]:
    try:
        found = [parse_endpoint(text) for text in texts]
    except ValueError as error:
        raise _refusal(config, key, str(error)) from None
    if len({endpoint.listener for endpoint in found}) < len(found):
        raise _refusal(config, key, "each listener must have a different name")
    addresses = [(endpoint.host, endpoint.port) for endpoint in found if endpoint.port]
    if key == "listeners" and len(set(addresses)) < len(addresses):
        raise _refusal(config, key, "each listener must have a different address")
    return found


def _protocols(config: BrokerConfig) -> dict[str, str]:
    """Return the security protocol of each listener name in ``listener.security.protocol.map``."""
    found = {}
    for pair in filter(None, map(str.strip, config.listener_security_protocol_map.split(","))):
        name, _, protocol = pair.rpartition(":")
        protocol = protocol.strip().upper()
        if not name or protocol not in SECURITY_PROTOCOLS:
            raise _refusal(
                config, "listener.security.protocol.map", f"{pair} is not NAME:PROTOCOL with a known protocol"
            )
        found[name.strip().upper()] = protocol
    return found


def _protocol_refusal(
    config: BrokerConfig, endpoint: ListenerEndpoint, protocols: dict[str, str]
) -> ConfigError | None:
    protocol = protocols.get(endpoint.listener)
    if protocol is None:
        name = endpoint.listener
        why = f"No security protocol defined for listener {name}"
        return _refusal(
            config, "listeners", f"{why}: listener.security.protocol.map={name}:PLAINTEXT defines one"
        )
    return None


def _advertised(
    config: BrokerConfig, bound: list[ListenerEndpoint], controllers: set[str], host_name: Callable[[], str]
) -> dict[str, ListenerEndpoint]:
    key = "listeners" if config.advertised_listeners is None else "advertised.listeners"
    if config.advertised_listeners is None:
        advertised = bound
    else:
        given = _endpoints(config, key, config.advertised_listeners)
        advertised = [endpoint for endpoint in given if endpoint.listener not in controllers]
    names = {endpoint.listener for endpoint in bound}
    for endpoint in advertised:
        if endpoint.listener not in names:
            raise _refusal(config, key, f"{endpoint} is advertised, but listeners has no {endpoint.listener}")
        if endpoint.host in _EVERY_ADDRESS:
            raise _refusal(
                config,
                key,
                f"clients cannot be told to connect to {endpoint.host}: set --advertise HOST:PORT",
            )
    if not advertised:
        raise _refusal(config, key, "there must be at least one advertised listener for clients")
    return {
        endpoint.listener: endpoint if endpoint.host else endpoint._replace(host=host_name())
        for endpoint in advertised
    }


def _refusal(config: BrokerConfig, key: str, why: str) -> ConfigError:
    origin = config.origins.get(key)
    return ConfigError(f"{key}={config.text(key)}: {why}" + (f" [from {origin}]" if origin else ""))
