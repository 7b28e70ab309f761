"""Finds the address of a host by its name. It blocks: for `FileSystem.offload`."""

from __future__ import annotations

import socket


def address_of(name: str) -> str | None:
    """Return the first address of a host, an IPv4 one if it has any, as Java does; None if it has none."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    found.sort(key=lambda row: row[0] is not socket.AddressFamily.AF_INET)
    return str(found[0][4][0]) if found else None
