"""`HostNames`: the addresses of hosts that have quotas by their names. Source: ``InetAddress.getByName``."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

import trio

from oncelog.broker.metadata.client_quotas import IP, ClientQuotasImage
from oncelog.broker.seams.host_names import address_of

NAMES_MAX = 10_000
"""Names whose addresses are remembered; one more, and all are forgotten."""
LOOK_UPS_AT_ONCE = 4
"""In threads of their own: a resolver that does not answer lets only other look-ups wait."""


class HostNames:
    """Looks each name up once, in a thread: the quota of a host holds for the address that it had then, as in Kafka."""

    def __init__(self) -> None:
        self._threads = trio.CapacityLimiter(LOOK_UPS_AT_ONCE)
        self.look_up = address_of
        """Finds an address. A simulation has another one: its time does not wait for threads."""
        self._addresses: dict[str, str] = {"localhost": "127.0.0.1"}

    def unknown(self, names: Iterable[str | None]) -> list[str]:
        """Return those of the names that have to be looked up."""
        return [name for name in names if name and not is_address(name) and name not in self._addresses]

    async def resolve(self, names: Iterable[str]) -> None:
        """Look names up."""
        for name in dict.fromkeys(names):
            address = await self.look_up(name, self._threads)
            if address is not None:
                if len(self._addresses) >= NAMES_MAX:
                    self._addresses.clear()
                self._addresses[name] = address

    async def resolve_quotas(self, quotas: ClientQuotasImage) -> bool:
        """Look up the hosts that these quotas name. Returns whether there was one to look up."""
        unknown = self.unknown([dict(entity).get(IP) for entity in quotas.entities])
        await self.resolve(unknown)
        return bool(unknown)

    def address(self, name: str) -> str | None:
        """Return the address of a host: the name itself, if it is one; None if it has none, or was not looked up."""
        return name if is_address(name) else self._addresses.get(name)


def is_address(name: str) -> bool:
    """Whether a name is an address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
