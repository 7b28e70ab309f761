"""Receivers of responses that are not forwarded as bytes, and responses of the proxy's own (`InFlight.receiver`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import trio

if TYPE_CHECKING:
    from oncelog.broker.requests.request import RequestContext


class Intercepted(NamedTuple):
    """Interceptors see the response before it leaves."""

    context: RequestContext
    began: float
    """When the request was forwarded (real time, seconds)."""


class Awaited:
    """An interceptor or the proxy has forwarded the request and waits for the response, which does not leave."""

    __slots__ = ("_arrived", "_failure", "_response")

    def __init__(self) -> None:
        self._arrived = trio.Event()
        self._response: Any = None
        self._failure: Exception | None = None

    def give(self, response: Any) -> None:
        """The response has come."""
        self._response = response
        self._arrived.set()

    def fail(self, failure: Exception) -> None:
        """No response will come."""
        self._failure = failure
        self._arrived.set()

    async def wait(self) -> Any:
        """Return the response. Raises what `fail` was given."""
        await self._arrived.wait()
        if self._failure is not None:
            raise self._failure
        return self._response


class OwnResponse(NamedTuple):
    """The proxy's own response: bytes, or a response to a request that interceptors see."""

    data: bytes
    context: RequestContext | None = None
    response: Any = None
