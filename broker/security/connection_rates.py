"""`ConnectionRates`: limits the connections that a node accepts in a second: of all, of each listener, of each address.

Source: Kafka's ``ConnectionQuotas``; KIP-612.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

from oncelog.broker.config.definitions_log import INT_MAX
from oncelog.broker.config.dynamic import DynamicBrokerConfig
from oncelog.broker.metadata.client_quotas import CONNECTION_CREATION_RATE, IP
from oncelog.broker.metadata.image import MetadataImage
from oncelog.broker.security.connection_limits import ConnectionLimits
from oncelog.broker.security.quotas import time_ms
from oncelog.broker.security.rates import Rate

ADDRESSES_MAX = 10_000
"""Addresses whose rate is kept; beyond that the first ones are forgotten."""


class ConnectionRates:
    """The rates of a node; ``limits`` has those of the configuration, ``image`` the quotas of addresses. `INT_MAX` is
    none. ``address_of`` returns the address of a host that a quota names.
    """

    def __init__(
        self,
        config: DynamicBrokerConfig,
        limits: ConnectionLimits,
        image: MetadataImage,
        address_of: Callable[[str], str | None],
    ) -> None:
        self._address_of = address_of
        self._config = config
        self._image = image
        self.limits = limits
        self._listeners: dict[str, Rate] = {}
        self._quotas: dict[str, int] = {}
        self._default = INT_MAX
        self._is_stale = True
        self._all = self._new_rate()
        self._addresses: dict[str, Rate] = {}

    def on_change(self) -> None:
        """The quotas in the metadata have changed: it holds for the next connection."""
        self._is_stale = True

    def accepted(self, listener: str) -> int:
        """Count a connection of a listener. Returns the milliseconds until the broker may serve it, and until the
        listener accepts the next one.
        """
        wait_ms = 0
        if not self.limits.is_protected(listener):
            wait_ms = self._record(self._all, self.limits.rate)
        return max(wait_ms, self._record(self._of_listener(listener), self.limits.rate_of(listener)))

    def accepted_from(self, listener: str, address: str) -> int:
        """Count a connection from an address; return 0. If it exceeds the quota of the address, do not count it, and
        return the milliseconds after which the caller closes it.
        """
        if self._is_stale:
            self._load()
        if not self._quotas and self._default == INT_MAX:
            return 0
        name = _canonical(address)
        limit = self._quotas.get(name, self._default)
        if limit == INT_MAX:
            return 0
        rate = self._addresses.get(name)
        if rate is None:
            while len(self._addresses) >= ADDRESSES_MAX:
                del self._addresses[next(iter(self._addresses))]
            rate = self._addresses[name] = self._new_rate()
        wait_ms = self._record(rate, limit)
        if wait_ms:
            now_ms = time_ms()
            rate.record(-1, now_ms)
            self._of_listener(listener).record(-1, now_ms)
            if not self.limits.is_protected(listener):
                self._all.record(-1, now_ms)
        return wait_ms

    def _of_listener(self, listener: str) -> Rate:
        rate = self._listeners.get(listener)
        if rate is None:
            rate = self._listeners[listener] = self._new_rate()
        return rate

    def _load(self) -> None:
        self._is_stale = False
        self._quotas, self._default = {}, INT_MAX
        for entity, values in self._image.client_quotas.entities.items():
            names = dict(entity)
            if IP not in names or CONNECTION_CREATION_RATE not in values:
                continue
            limit, host = int(values[CONNECTION_CREATION_RATE]), names[IP]
            if host is None:
                self._default = limit
            elif (address := self._address_of(host)) is not None:
                self._quotas[_canonical(address)] = limit

    def _new_rate(self) -> Rate:
        config = self._config.static
        return Rate(config.quota_window_num, config.quota_window_size_seconds * 1000)

    def _record(self, rate: Rate, limit: int) -> int:
        now_ms = time_ms()
        rate.record(1, now_ms)
        return min(rate.throttle_ms(limit, now_ms), self._config.static.quota_window_size_seconds * 1000)


def _canonical(address: str) -> str:
    """Return one text for all spellings of an address."""
    try:
        parsed = ipaddress.ip_address(address.strip("[]"))
    except ValueError:
        return address
    mapped = getattr(parsed, "ipv4_mapped", None)
    return str(mapped or parsed)
