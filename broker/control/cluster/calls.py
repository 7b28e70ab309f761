"""`ClusterCalls`: how operations send requests to a cluster: those of a client, or of what has the nodes itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from oncelog.broker.client.routes import AnyBroker

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oncelog.broker.client.routes import Retry, Route
    from oncelog.wire.messages.metadata import MetadataResponse
    from oncelog.wire.schema import Request, ResponseT_co

ANY = AnyBroker()


class ClusterCalls(Protocol):
    """A `ClusterClient`, or a `NodesClient`."""

    @property
    def now_ms(self) -> int:
        """The time of new records, in milliseconds: a client's own, or broker time."""

    async def call(
        self,
        request: Request[ResponseT_co],
        route: Route = ANY,
        *,
        version: int | None = None,
        timeout_s: float | None = None,
        retry: Retry | None = None,
    ) -> ResponseT_co:
        """See `ClusterClient.call`."""

    async def refresh_metadata(self, topics: Iterable[str] | None = None) -> MetadataResponse:
        """See `ClusterClient.refresh_metadata`."""
