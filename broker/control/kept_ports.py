"""`KeptPorts`: the addresses of a broker's listeners, which stay its own while it is stopped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.listeners import ListenerConfig, resolve_listeners
from oncelog.broker.host.host import open_listeners
from oncelog.broker.net.listen import ListenError
from oncelog.broker.net.server import BoundListener
from oncelog.broker.seams.transport import PortReservation


class KeptPorts:
    """The port of each listener from the first `listen` on. ``host_name``: what clients are told of a listener on every
    address.
    """

    def __init__(self, host_name: str) -> None:
        self._host_name = host_name
        self._reserved: dict[str, PortReservation] = {}
        """By the listener's name."""

    @contextmanager
    def listen(
        self, config: BrokerConfig, listeners: Sequence[ListenerConfig] | None = None
    ) -> Iterator[list[BoundListener]]:
        """Listen on all addresses of the configuration, or of ``listeners``; close them in the end. Where it says port
        0, a free port is taken once and kept. Raises ConfigError, ListenError.
        """
        if listeners is None:
            listeners, _ = resolve_listeners(config, lambda: self._host_name)
        with open_listeners(map(self._reserve, listeners), config) as bound:
            yield bound

    def _reserve(self, listener: ListenerConfig) -> ListenerConfig:
        """Return the listener with the port that is its own from now on. Raises ListenError."""
        endpoint = listener.bind
        reserved = self._reserved.get(endpoint.listener)
        if reserved is None:
            try:
                reserved = PortReservation(endpoint.host, endpoint.port)
            except OSError as error:
                raise ListenError.of(endpoint, error) from error
            self._reserved[endpoint.listener] = reserved
        return listener._replace(bind=endpoint._replace(port=reserved.port))

    def close(self) -> None:
        """Give the ports up."""
        for reserved in self._reserved.values():
            reserved.close()
