"""The client of a request, as the group coordinator stores and describes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oncelog.broker.requests.request import RequestContext
    from oncelog.coordinator.groups.context import Client


def client_of(context: RequestContext) -> Client:
    """Return the client id, the address as Java writes it, and the API version."""
    from oncelog.coordinator.groups.context import Client

    return Client(context.client_id or "", f"/{context.host}", context.api_version)
