"""What may be installed in the `Dispatcher`, between a request and its handler, and a response and its client.

The quotas are in `oncelog.broker.security.quotas`, the interface of an authorizer in `oncelog.broker.authorization`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from oncelog.broker.request import RequestContext
    from oncelog.broker.security.usage import Usage


class Interceptor:
    """Sees every request before its handler and every response before its client, from its installation on.

    Both functions may wait; the connection reads no further request meanwhile. Both may change what they are given:
    ``context.request`` is the request. If a request was handled before the installation, such as a Fetch that waits,
    only its response is seen; the records of such a Produce are None. A Fetch response holds many records as a
    `FileRange`.
    """

    async def on_request(self, context: RequestContext) -> Any:
        """Return None to go on, or a response in place of the handler's.

        A Produce with acks=0 gets no response; an error in it closes the connection. Raises KafkaError for a response
        with nothing but that error, CloseConnection to close without a response.
        """
        return None

    async def on_response(self, context: RequestContext, response: Any) -> Any:
        """Return the response to send, or None to send none. Raises as `on_request`."""
        return response

    def on_done(self, context: RequestContext, response: Any, failure: BaseException | None) -> None:
        """The request is done: ``response`` is on its way to the client, after all that other interceptors did to it.

        None: none is sent, because none was asked for, an interceptor dropped it, or the connection ended (``failure``:
        why). A request that was handled before the installation is done without having been seen. Must not raise.
        """


class Quotas(Protocol):
    """How much of the node one client may use (Kafka: ``ClientQuotaManager``)."""

    def begin(self, context: RequestContext, began: float) -> Usage | None:
        """Return what will be known of a request's usage, or None. It was read at that time (real time, seconds)."""
        return None

    def throttle(self, principal: str, client_id: str | None, context: RequestContext, response: Any) -> int:
        """Count the request and its response (None for a Produce with acks=0); return milliseconds for which the
        connection is muted after it.
        """
        return 0

    def finish(self, context: RequestContext) -> None:
        """The response is in the writer. Called only for requests with a usage."""
        return
