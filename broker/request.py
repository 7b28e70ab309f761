"""What a handler is told of a request beside its body, and the three ways of answering that are not an answer."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oncelog.broker.connection import Connection
    from oncelog.broker.handlers.table import Api
    from oncelog.wire.schema import Message


class RequestContext:
    """One request's header, and the connection it came on."""

    __slots__ = ("api_version", "client_id", "connection", "correlation_id")

    def __init__(
        self, api_version: int, correlation_id: int, client_id: str | None, connection: Connection
    ) -> None:
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.connection = connection


class Deferred:
    """An answer that is owed while the connection goes on reading later Produce requests.

    ``reply`` is awaited in the order of the requests and gives the response, or None where the peer wants none.
    """

    __slots__ = ("reply",)

    def __init__(self, reply: Coroutine[Any, Any, Message | None]) -> None:
        self.reply = reply


class Parked:
    """An answer that is waited for, but that another task may send as soon as what it waits for is there.

    ``reply`` is awaited and gives the response, or None where it was handed to ``send`` meanwhile; where nobody will
    await it, `close` is called.
    """

    __slots__ = ("reply", "send")

    def __init__(self, reply: Coroutine[Any, Any, Message | None]) -> None:
        self.reply = reply
        self.send: Callable[..., None] | None = None
        """Takes the response, or its only row and a `ReadyAnswer` for it: it is encoded, and what can be sent at once
        is; the connection's task sends the rest. The connection sets it while nothing stands before this answer. To be
        called once; never waits."""

    def close(self) -> None:
        """The peer was lost before ``reply`` was awaited."""
        self.reply.close()

    def prepare(self, served: Api) -> None:
        """`send` is set now: there is time to make ready what is known of the answer."""

    def try_send(self) -> None:
        """Answer now if that is possible. Called for those in `Node.woken`, from any task; raises nothing."""
        raise NotImplementedError


class CloseConnection(Exception):  # noqa: N818 - an instruction, not an error
    """The peer broke the protocol, or asked for no answer and must learn of an error: close, and log why."""
