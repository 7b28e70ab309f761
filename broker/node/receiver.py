"""`RequestReceiver`: handles the requests that links bring, with the handlers of clients' requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncelog.broker.log.results import FileRange
from oncelog.broker.requests.request import RequestContext
from oncelog.wire.header import FETCH_KEY

if TYPE_CHECKING:
    from oncelog.broker.dispatch.dispatcher import Dispatcher
    from oncelog.broker.network.network import Client, Delivery
    from oncelog.wire.schema import Message


class _Transport:
    """The address of a peer that has no connection here."""

    __slots__ = ("peer",)

    def __init__(self, peer: str) -> None:
        self.peer = peer


class LinkPeer:
    """In the place of a `BaseConnection`: the node that has sent a request, or the client that it forwards for."""

    __slots__ = (
        "client_id",
        "is_token_authenticated",
        "listener_name",
        "principal",
        "security_protocol",
        "transport",
    )

    software = ("", "")

    def __init__(self, client: Client) -> None:
        self.principal = client.principal
        self.client_id = client.client_id
        self.listener_name = client.listener_name
        self.is_token_authenticated = client.is_token_authenticated
        self.security_protocol = client.security_protocol
        self.transport = _Transport(client.peer)

    def charge(self, seconds: float) -> None:
        """Nobody's turns depend on it."""


class RequestReceiver:
    """Handles requests with ``dispatcher``, whose services say what their sender may do."""

    def __init__(self, dispatcher: Dispatcher, node: Client) -> None:
        """``node`` stands for a node that sends a request of its own."""
        self._dispatcher = dispatcher
        self._node = node

    async def receive(self, delivery: Delivery) -> Message:
        """Return the response, with records as bytes."""
        request: Any = delivery.request
        peer: Any = LinkPeer(delivery.client or self._node)
        api = self._dispatcher.api(request.API_KEY)
        context = RequestContext(api, delivery.version, 0, peer.client_id, peer, request)
        response: Message = await self._dispatcher.handle_behind_interceptors(context)
        _read_ranges(response)
        return response


def _read_ranges(response: Any) -> None:
    """Read the ranges of files in a response: another node has no use for this one's files."""
    if response.API_KEY != FETCH_KEY:
        return
    for topic in response.responses:
        for row in topic.partitions:
            if isinstance(row.records, FileRange):
                file_range = row.records
                try:
                    row.records = file_range.read()
                finally:
                    file_range.release()
