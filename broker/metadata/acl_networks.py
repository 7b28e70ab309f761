"""Networks as hosts of ACLs: ``10.0.0.0/8``, ``2001:db8::/32`` (from ``metadata.version`` 4.4-IV1 on).

Source: Kafka's ``CidrUtils`` and, for what is a network and the words of errors, the ``SubnetUtils`` that it uses.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

IPV4_BITS, IPV6_BITS = 32, 128
_IPV4 = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})/([0-9]{1,2})")
_PREFIX_LENGTH = re.compile("[+-]?[0-9]{1,10}")


class Network(NamedTuple):
    """The addresses of `bits` bits whose first ``prefix_length`` bits are the number ``prefix``."""

    bits: int
    prefix_length: int
    prefix: int


def is_network(host: str) -> bool:
    """Whether an ACL's host is meant as a network."""
    return "/" in host


def parse_network(text: str) -> Network:
    """Return the network; bits of the address after the prefix have no meaning. Raises ValueError, in Kafka's words."""
    return _ipv6_network(text) if ":" in text else _ipv4_network(text)


def _ipv4_network(text: str) -> Network:
    found = _IPV4.fullmatch(text)
    if found is None:
        raise ValueError(f"Could not parse [{text}]")
    address = 0
    *octets, length = map(int, found.groups())
    for octet in octets:
        address = address << 8 | _in_range(octet, 255)
    return _network(IPV4_BITS, _in_range(length, IPV4_BITS), address)


def _in_range(value: int, most: int) -> int:
    if value > most:
        raise ValueError(f"Value [{value}] not in range [0,{most}]")
    return value


def _ipv6_network(text: str) -> Network:
    address_text, _, length_text = text.partition("/")
    if _PREFIX_LENGTH.fullmatch(length_text) is None:
        raise ValueError(f"Could not parse [{text}] - invalid prefix length")
    length = int(length_text)
    if not 0 <= length <= IPV6_BITS:
        raise ValueError(f"Could not parse [{text}] - prefix length must be between 0 and {IPV6_BITS}")
    host, percent, zone = _without_brackets(address_text).partition("%")
    try:
        if percent and not (zone.isascii() and zone.isdecimal()):
            raise ValueError("the zone is no number")
        address = IPv6Address(host)
    except ValueError:
        raise ValueError(f"Could not parse [{address_text}]") from None
    if address.ipv4_mapped is not None:
        raise ValueError(f"Could not parse [{address_text}] - not an IPv6 address")
    return _network(IPV6_BITS, length, int(address))


def _without_brackets(address: str) -> str:
    """Return the address as in a URL, ``[::1]``, without its brackets: Java takes both."""
    return address[1:-1] if address.startswith("[") and address.endswith("]") else address


def _network(bits: int, prefix_length: int, address: int) -> Network:
    return Network(bits, prefix_length, address >> (bits - prefix_length))


class Networks:
    """The networks of some ACLs: which of them an address is in. An ACL's host that is none counts for no address."""

    __slots__ = ("_texts",)

    def __init__(self) -> None:
        self._texts: dict[tuple[int, int], dict[int, dict[str, int]]] = {}
        """By bits and prefix length, then by prefix: the texts of the network, each with the number of its ACLs."""

    def add(self, host: str) -> None:
        """Take into account one more ACL of the host."""
        network = _network_of(host)
        if network is not None:
            texts = self._texts.setdefault(network[:2], {}).setdefault(network.prefix, {})
            texts[host] = texts.get(host, 0) + 1

    def remove(self, host: str) -> None:
        """Leave out one ACL of the host, which has been added."""
        network = _network_of(host)
        if network is None:
            return
        kind, prefix = network[:2], network.prefix
        of_kind = self._texts[kind]
        texts = of_kind[prefix]
        texts[host] -= 1
        if not texts[host]:
            del texts[host]
        if not texts:
            del of_kind[prefix]
        if not of_kind:
            del self._texts[kind]

    def containing(self, host: str) -> list[str]:
        """Return the networks, as the ACLs write them, that have the address."""
        if not self._texts:
            return []
        try:
            address = ip_address(host)
        except ValueError:  # a client that has no address
            return []
        number, bits = int(address), address.max_prefixlen
        return [
            text
            for (of_bits, length), of_kind in self._texts.items()
            if of_bits == bits
            for text in of_kind.get(number >> (bits - length), ())
        ]


def _network_of(host: str) -> Network | None:
    if not is_network(host):
        return None
    try:
        return parse_network(host)
    except ValueError:
        return None
