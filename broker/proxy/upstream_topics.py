"""`UpstreamTopics`: asks upstream about topics before a request is forwarded, on the connection of its client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from oncelog.broker.dispatch.api import Api
from oncelog.broker.handlers.table import HANDLERS
from oncelog.broker.requests.request import RequestContext
from oncelog.broker.scheduling.slices import in_slices
from oncelog.wire.header import METADATA_KEY, encode_request_header
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from oncelog.wire.steps import listed

BY_ID_VERSION = 12
"""The first version of Metadata whose request may name topics by their ids."""


class UpstreamTopics:
    """``forward`` is `ProxyDispatcher.forward`."""

    def __init__(self, forward: Callable[[RequestContext], Awaitable[Any]]) -> None:
        self._forward = forward
        self._metadata = Api(HANDLERS[METADATA_KEY], is_handled=False)

    async def ask(self, context: RequestContext, topics: Iterable[MetadataRequestTopic]) -> MetadataResponse:
        """Return upstream's Metadata response for these topics. Raises CloseConnection, ConnectionLost."""
        request = MetadataRequest(await in_slices(listed(topics)), allow_auto_topic_creation=False)
        version = min(BY_ID_VERSION, self._metadata.max_version)
        flexible = request.is_flexible(version)
        frame = bytearray(
            encode_request_header(METADATA_KEY, version, context.correlation_id, context.client_id, flexible)
        )
        await in_slices(self._metadata.request_step_encoder(version)(request, frame, []))
        asked = type(context)(
            self._metadata, version, context.correlation_id, context.client_id, context.connection, request
        )
        asked.frame = memoryview(frame)
        response: MetadataResponse = await self._forward(asked)
        return response
