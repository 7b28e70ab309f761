"""The client of a request, as the group coordinator stores and describes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oncelog.broker.request import RequestContext
    from oncelog.coordinator.groups.context import Client


def client_of(context: RequestContext) -> Client:
    """Return the client id, the address as Java writes it, and the API version."""
    from oncelog.coordinator.groups.context import Client

    host = context.connection.transport.peer.rpartition(":")[0]
    return Client(context.client_id or "", f"/{java_address(host)}", context.api_version)


def java_address(host: str) -> str:
    """Return ``host`` as Java writes an address: IPv6 always has all its eight groups."""
    host = host.strip("[]")
    if ":" not in host or "." in host:
        return host
    head, gap, tail = host.partition("::")
    first = head.split(":") if head else []
    last = tail.split(":") if tail else []
    left_out = ["0"] * (8 - len(first) - len(last)) if gap else []
    return ":".join(part.lstrip("0") or "0" for part in first + left_out + last)
