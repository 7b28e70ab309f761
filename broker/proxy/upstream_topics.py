"""`UpstreamTopics`: what has to be known of topics before a request is forwarded, asked on its client's connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.dispatch.api import Api
from oncelog.broker.handlers.table import HANDLERS
from oncelog.broker.request import RequestContext
from oncelog.wire.framing import encode_request
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

METADATA_KEY = 3
BY_ID_VERSION = 12
"""Of Metadata: the first in which topics can be asked for by id. With it nothing is created."""


class UpstreamTopics:
    """``forward`` is `ProxyDispatcher.forward`."""

    def __init__(self, forward: Callable[[RequestContext], Awaitable[Any]]) -> None:
        self._forward = forward
        self._metadata = Api(HANDLERS[METADATA_KEY], is_handled=False)

    async def ask(self, context: RequestContext, topics: list[MetadataRequestTopic]) -> MetadataResponse:
        """Return what upstream tells of these topics. Raises CloseConnection, ConnectionLost."""
        request = MetadataRequest(topics, allow_auto_topic_creation=False)
        version = min(BY_ID_VERSION, self._metadata.max_version)
        frame = encode_request(request, version, context.correlation_id, context.client_id)
        asked = RequestContext(
            self._metadata, version, context.correlation_id, context.client_id, context.connection, request
        )
        asked.frame = memoryview(frame)[4:]
        response: MetadataResponse = await self._forward(asked)
        return response
