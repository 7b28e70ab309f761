"""Finds the address of a host by its name."""

from __future__ import annotations

import socket

import trio


async def address_of(name: str, threads: trio.CapacityLimiter) -> str | None:
    """Return the first address of a host, an IPv4 one if it has any, as Java does; None if it has none. It may take
    seconds, in one of ``threads``; a cancellation does not wait for it.
    """
    return await trio.to_thread.run_sync(_address_of, name, limiter=threads, abandon_on_cancel=True)


def _address_of(name: str) -> str | None:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    found.sort(key=lambda row: row[0] is not socket.AddressFamily.AF_INET)
    return str(found[0][4][0]) if found else None
