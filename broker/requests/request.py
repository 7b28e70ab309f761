"""A request as its handler sees it, and the two things that a handler returns: a response, or a `Pending` one."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from oncelog.broker.dispatch.api import Api
    from oncelog.broker.net.base_connection import BaseConnection
    from oncelog.broker.security.usage import Usage


class RequestContext:
    """One request: what an interceptor, and a handler, knows of it.

    api_name, api_version: Kafka's name of the API, such as ``Produce``, and the version.
    request: the body, with Kafka's field names in snake case; an interceptor may change it.
    client_id, principal, host: who asks.
    correlation_id: as its client counts.
    connection: the connection that it came on.
    """

    __slots__ = (
        "api",
        "api_version",
        "client_id",
        "connection",
        "correlation_id",
        "frame",
        "handled_s",
        "has_large_response",
        "request",
        "response_bytes",
        "usage",
    )

    def __init__(
        self,
        api: Api,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        connection: BaseConnection,
        request: Any,
    ) -> None:
        self.api = api
        self.api_version = api_version
        """Of the response, too."""
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.connection = connection
        self.request = request
        """The body; None for an ApiVersions of a version that is not served, whose response has version 0."""
        self.frame: memoryview | None = None
        """The request's bytes without their size, in memory of their own; an append stamps offsets in it. None if
        no interceptor was installed and no quota concerned it when the request was read."""
        self.handled_s: float | None = None
        """How long its handler, or the upstream of a proxy, has taken (real time, seconds); None if the request is not
        intercepted, or as long as neither has responded.
        """
        self.response_bytes: int | None = None
        """Bytes of the response that is on its way to the client, with its size; None if none is."""
        self.usage: Usage | None = None
        """What it uses of its client's quotas; None if none concerned it when the request was read."""
        self.has_large_response = False
        """Whether the response has very many elements although the request has few: it is encoded in steps."""

    is_large = False
    """Whether the request has so many elements that it was decoded in steps."""
    forwarded_by: int | None = None
    """The node that a client has asked, and that has forwarded the request; None: this one."""

    @property
    def api_name(self) -> str:
        """Kafka's name of the API, such as ``Produce``."""
        return self.api.kafka_name

    @property
    def principal(self) -> str:
        """Who asks (Kafka: ``KafkaPrincipal``, as text)."""
        return self.connection.principal

    @property
    def host(self) -> str:
        """The client's address, as ACLs name it."""
        return host_of(self.connection.transport.peer)


class LargeRequestContext(RequestContext):
    """A request with very many elements. Until it is decoded, ``request`` is `NOT_DECODED`."""

    __slots__ = ()

    is_large = True


class ForwardedRequestContext(RequestContext):
    """A request that another node has forwarded."""

    __slots__ = ("forwarded_by",)


def host_of(peer: str) -> str:
    """Return the host of a ``host:port`` as Java writes an address: IPv6 always has all its eight groups."""
    host = peer.rpartition(":")[0].strip("[]")
    if ":" not in host:
        return host
    if "." in host:  # an IPv4 address, mapped (RFC 4291)
        return host.rpartition(":")[2]
    head, gap, tail = host.partition("::")
    first = head.split(":") if head else []
    last = tail.split(":") if tail else []
    left_out = ["0"] * (8 - len(first) - len(last)) if gap else []
    return ":".join(part.lstrip("0") or "0" for part in first + left_out + last)


R = TypeVar("R")


class Pending(Generic[R]):
    """A response that is not there yet. Either `wait` or `close` is called, once.

    Awaiting ``response`` gives the response, or None if none is to be sent. It may raise CloseConnection, and
    KafkaError for a response with nothing but that error. The connection reads no further request until the response
    has left, as in Kafka.
    """

    __slots__ = ("_response", "context")

    def __init__(self, response: Coroutine[Any, Any, R]) -> None:
        self._response = response
        self.context: RequestContext
        """The request; the dispatcher sets it."""

    async def wait(self) -> R:
        """Return the response, or None if none is to be sent. Raises KafkaError, CloseConnection."""
        return await self._response

    def close(self) -> None:
        """Give the response up: nobody will wait for it."""
        self._response.close()

    def on_turn(self) -> None:
        """Take note that it is this response's turn on its connection: those before it were sent."""


class DelayedProduce(Pending[R]):
    """The response to a Produce whose records are appended: it waits for the disk, for followers, or for earlier
    responses (Kafka: ``DelayedProduce``). The connection goes on with Produce requests meanwhile; responses leave in
    their order.
    """

    __slots__ = ()

    def drop_records(self) -> None:
        """Forget the records of the request: they are in a buffer that others use from now on."""
        for topic in self.context.request.topic_data:
            for partition in topic.partition_data:
                partition.records = None


class NoResponse(Enum):
    """The type of `NO_RESPONSE`."""

    NO_RESPONSE = "no response"


NO_RESPONSE: Final = NoResponse.NO_RESPONSE
"""In place of a response: the request is done, and its client gets none, as of a Produce with acks=0. None would
mean something else from `Interceptor.on_request`: the request is still to be handled."""


NOT_DECODED: Final = object()
"""In place of a large request that is not decoded yet."""


async def wait_for_response(response: R | Pending[R]) -> R:
    """Return a handler's response; wait for it if it is pending. Raises as `Pending.wait`."""
    return await response.wait() if isinstance(response, Pending) else response


class CloseConnection(Exception):  # noqa: N818 - an instruction, not an error
    """The connection must be closed, for the reason given: a `Reason` if it has words of the peer's.

    The peer broke the protocol, or asked for no response and has to learn of an error.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class AuthenticationFailed(CloseConnection):
    """The peer did not prove who it is. It learns that, and is disconnected, only after ``delay_s`` real seconds
    (``connection.failed.authentication.delay.ms``): guessing passwords takes long.
    """

    def __init__(self, reason: str, delay_s: float) -> None:
        super().__init__(reason)
        self.delay_s = delay_s


class ConnectionLost(Exception):  # noqa: N818 - an event, not an error
    """The peer was lost: nobody waits for the response."""
