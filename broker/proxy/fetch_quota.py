"""`FetchQuota`: a proxy's own consumer quotas. A client over its quota gets an empty response, as from Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncelog.broker.dispatch.interfaces import Interceptor
from oncelog.wire.header import FETCH_KEY

if TYPE_CHECKING:
    from oncelog.broker.requests.request import RequestContext
    from oncelog.broker.security.quotas import ClientQuotas


class FetchQuota(Interceptor):
    """Installed while somebody has a quota."""

    apis = frozenset(("Fetch", "ShareFetch"))

    def __init__(self, quotas: ClientQuotas) -> None:
        self._quotas = quotas

    async def on_request(self, context: RequestContext) -> Any:
        """Ask upstream for no more than the quota allows at once. See `Interceptor`."""
        if context.usage is not None:
            request = context.request
            request.max_bytes = min(request.max_bytes, self._quotas.fetch_bytes_max(context.usage))

    async def on_response(self, context: RequestContext, response: Any) -> Any:
        """See `Interceptor`. Upstream sends the same records again: the client has not moved on."""
        usage = context.usage
        if usage is None or context.request is None:
            return response
        is_share = context.api.row.api_key != FETCH_KEY
        throttle_ms = self._quotas.throttle_fetch(usage, _size_of(response))
        # Records that a share group has acquired cannot be fetched again at once.
        if throttle_ms and not is_share:
            response.responses = []
            response.node_endpoints = []
        return response


def _size_of(response: Any) -> int:
    """Return the bytes of the records in a response."""
    return sum(
        len(partition.records)
        for topic in response.responses
        for partition in topic.partitions
        if partition.records
    )
