"""`Forwarding`: has the controller handle what changes metadata (Kafka: ``ForwardingManager``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncelog.broker.network.network import Client, LinkDownError
from oncelog.broker.requests.request import Pending
from oncelog.broker.seams.clock import real_time
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from oncelog.broker.config.dynamic import DynamicBrokerConfig
    from oncelog.broker.network.network import Link
    from oncelog.broker.requests.request import RequestContext
    from oncelog.wire.schema import Message, Request


class Forwarding:
    """Forwards over ``controller``, again and again while the link is down, for ``request.timeout.ms`` of real time."""

    def __init__(self, controller: Link, config: DynamicBrokerConfig) -> None:
        self._controller = controller
        self._config = config

    def __call__(self, request: Message, context: RequestContext) -> Pending[Any]:
        """See `Forward`."""
        return Pending(self._forward(request, context))

    async def _forward(self, request: Any, context: RequestContext) -> Message:
        connection = context.connection
        client = Client(
            connection.principal,
            connection.transport.peer,
            context.client_id,
            connection.listener_name,
            connection.security_protocol,
            connection.is_token_authenticated,
        )
        return await self.call(request, context.api_version, client)

    async def call(self, request: Request[Any], version: int, client: Client | None = None) -> Message:
        """Return the controller's response to a request: of a client, or of the node itself.

        Raises KafkaError: REQUEST_TIMED_OUT.
        """
        with real_time.move_on_after(self._config.current.request_timeout_ms / 1000):
            while True:
                changed = self._controller.changed
                try:
                    response: Message = await self._controller.call(request, version, client)
                    return response
                except LinkDownError:
                    await changed.wait()
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
