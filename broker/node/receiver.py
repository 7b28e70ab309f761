"""`RequestReceiver`: handles the requests that links bring, with the handlers of clients' requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncelog.broker.dispatch.api import Api
from oncelog.broker.dispatch.interception import Interception
from oncelog.broker.fetch.fetch import file_ranges
from oncelog.broker.handlers.table import HANDLERS
from oncelog.broker.log.results import FileRange
from oncelog.broker.network.network import Client
from oncelog.broker.requests.authorization import ANONYMOUS, Authorization
from oncelog.broker.requests.request import ForwardedRequestContext, wait_for_response
from oncelog.broker.seams.clock import real_time

if TYPE_CHECKING:
    from oncelog.broker.host.host import Host
    from oncelog.broker.network.network import Delivery
    from oncelog.wire.schema import Message


class _Transport:
    """The address of a peer that has no connection here."""

    __slots__ = ("peer",)

    def __init__(self, peer: str) -> None:
        self.peer = peer


class LinkPeer:
    """In the place of a connection in a `RequestContext`: the node that has sent the request, or the client for whom
    it forwards it.
    """

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


A_NODE = Client(ANONYMOUS, "", None, "", "PLAINTEXT")
"""In the place of a client: the node that sends a request of its own."""


class RequestReceiver:
    """Handles requests with ``services``, whose authorization checks the client's rights."""

    def __init__(self, services: Any, host: Host) -> None:
        self._services = services
        self._host = host
        self._authorization: Authorization = services.authorization
        self._interception = Interception(
            self._authorization, host.lines, host.note_internal_error, lambda: None
        )
        self._apis: dict[int, Api] = {}

    @classmethod
    def of_nodes(cls, services: Any, host: Host) -> RequestReceiver:
        """Return one for the nodes' own requests: they may do everything."""
        everything = Authorization(None, lambda *_: None)
        return cls(services._replace(authorization=everything), host)

    async def receive(self, delivery: Delivery) -> Message:
        """Return the response to a node, or to the client for whom it asks; with records as bytes. Changes of topics
        count for the client's quota (KIP-599): how long it is throttled, the node that has forwarded the request reads
        in the response. Raises CloseConnection where the client gets none, and loses its connection.
        """
        client = delivery.client or A_NODE
        request: Any = delivery.request
        peer: Any = LinkPeer(client)
        api = self._apis.get(request.API_KEY)
        if api is None:
            api = self._apis[request.API_KEY] = Api(HANDLERS[request.API_KEY])
        context = ForwardedRequestContext(api, delivery.version, 0, client.client_id, peer, request)
        context.forwarded_by = None
        if delivery.client is not None:
            context.forwarded_by = delivery.source
            quotas = self._host.quotas
            if quotas is not None:
                context.usage = quotas.begin(context, real_time.monotonic())
        try:
            if self._authorization.authorizer is not None and api.authorize is not None:
                api.authorize(self._authorization, context)
            response: Any = await wait_for_response(api.handle(self._services, request, context))
        except Exception as error:
            response = await wait_for_response(self._interception.refuse(context, error))
        if context.usage is not None and context.usage.mutations is not None:
            response.throttle_time_ms = context.usage.mutations.throttle_ms()
        _read_ranges(response)
        return response  # type: ignore[no-any-return]


def _read_ranges(response: Any) -> None:
    """Read the ranges of files in a response: another node has no use for this one's files."""
    ranges = file_ranges(response)
    try:
        if ranges:
            for topic in response.responses:
                for row in topic.partitions:
                    if isinstance(row.records, FileRange):
                        row.records = row.records.read()
    finally:
        for file_range in ranges:
            file_range.release()
