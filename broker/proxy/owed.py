"""The entries of `ProxyConnection.owed`: one for each response that has not left yet, in the order of the requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import trio

if TYPE_CHECKING:
    from oncelog.broker.proxy.apis import Plan
    from oncelog.broker.requests.request import RequestContext


class Shown:
    """The response is shown to interceptors before it leaves."""

    __slots__ = ("began", "context")

    def __init__(self, context: RequestContext, began: float) -> None:
        self.context = context
        self.began = began
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


class Made(NamedTuple):
    """A response that the proxy made: bytes, or a response to a request that interceptors see."""

    data: bytes
    context: RequestContext | None = None
    response: Any = None


class Owed(NamedTuple):
    """One entry. ``plan`` is None if no response comes from upstream; ``to`` is None if the response passes unread."""

    correlation_id: int
    plan: Plan | None
    to: Shown | Awaited | Made | None = None
