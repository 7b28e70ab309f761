"""`Network`: the links between the nodes of a process and their controller, and what a test does to them.

A link brings one of Kafka's requests from one node to another and its response back, as a connection does. A link that
is cut, or whose node does not run, breaks at once: whoever waits for a response gets `LinkDownError`, and may ask again
later (`Network.changed`). What has arrived is handled nevertheless, as by a node that has lost its peer.

If only the way of the responses is cut, one more request arrives, since the connection was open. Then the link is down:
a new connection would need both directions.
"""

from __future__ import annotations

from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import trio

from oncelog.broker.seams.clock import real_time

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from oncelog.wire.schema import Message, Request

    Receive = Callable[["Delivery"], Awaitable[Message]]
    """Handles a request, and returns its response. Must not raise."""

CONTROLLER_ID = 3000
"""The node id of the controller."""

ResponseT = TypeVar("ResponseT", bound="Message")
Direction = tuple[int, int]
"""The ids of the node that sends and of the node that receives."""


class LinkDownError(Exception):
    """The request or its response was lost: nobody knows whether the request had an effect."""


class Client(NamedTuple):
    """The client for whom a node forwards a request (Kafka: ``Envelope``)."""

    principal: str
    peer: str
    """Its address, ``host:port``."""
    client_id: str | None
    listener_name: str
    security_protocol: str
    is_token_authenticated: bool = False


class Delivery(NamedTuple):
    """A request that a link has brought."""

    source: int
    """The node that has sent it."""
    request: Message
    version: int
    client: Client | None
    """For whom the node forwards it; None if it is the node's own."""


class _Call:
    """A call under way: it ends with a response, or breaks."""

    __slots__ = ("ended", "response", "route")

    def __init__(self, route: frozenset[Direction]) -> None:
        self.route = route
        self.ended = trio.Event()
        self.response: Any = None
        """None when it has ended: the link broke."""

    def end(self, response: Message | None) -> None:
        if not self.ended.is_set():
            self.response = response
            self.ended.set()


class Network:
    """``encodes``: whether messages travel as bytes, as between processes. Tests run both forms."""

    def __init__(self, *, encodes: bool = False) -> None:
        self._encodes = encodes
        self._receivers: dict[int, tuple[Receive, trio.Nursery, Context]] = {}
        self._cut: set[Direction] = set()
        self._down: set[Direction] = set()
        """Links that have lost a response since the network was healed."""
        self._delays_s: dict[Direction, float] = {}
        self._calls: set[_Call] = set()
        self._changed = trio.Event()

    # -- nodes

    def attach(self, node_id: int, receive: Receive, nursery: trio.Nursery) -> None:
        """From now on ``receive`` handles the requests to a node, each in a task of ``nursery`` and with the caller's
        context variables: its log is the node's, not the sender's.
        """
        self._receivers[node_id] = receive, nursery, copy_context()
        self._change()

    def detach(self, node_id: int) -> None:
        """The node does not run any more: all its links break."""
        self._receivers.pop(node_id, None)
        self._break(lambda direction: node_id in direction)

    def link(self, source: int, target: int) -> Link:
        """Return the link by which ``source`` sends requests to ``target``."""
        return Link(self, source, target)

    # -- for tests

    def cut(self, source: int, target: int) -> None:
        """Lose all that ``source`` sends to ``target`` from now on."""
        self._cut.add((source, target))
        self._break(lambda direction: direction == (source, target))

    def delay(self, source: int, target: int, seconds: float) -> None:
        """Let all that ``source`` sends to ``target`` take so many seconds of real time."""
        self._delays_s[source, target] = seconds

    def heal(self) -> None:
        """End all cuts and delays."""
        self._cut.clear()
        self._down.clear()
        self._delays_s.clear()
        self._change()

    def is_cut(self, source: int, target: int) -> bool:
        """Whether what ``source`` sends to ``target`` is lost."""
        return (source, target) in self._cut

    @property
    def changed(self) -> trio.Event:
        """Set when a node comes, or a cut ends: take it before a call that may fail."""
        return self._changed

    # -- for links

    async def call(
        self, source: int, target: int, request: Message, version: int, client: Client | None
    ) -> Message:
        """See `Link.call`."""
        call = _Call(frozenset(((source, target), (target, source))))
        self._calls.add(call)
        try:
            if (source, target) in self._down:
                await trio.lowlevel.checkpoint()
                raise LinkDownError(f"node {source} does not hear from node {target}")
            await self._travel(source, target)
            if target not in self._receivers:
                raise LinkDownError(f"node {target} does not run")
            if (target, source) in self._cut:
                self._down.add((source, target))
            receive, nursery, context = self._receivers[target]
            context.run(
                nursery.start_soon,
                self._handle,
                call,
                receive,
                Delivery(source, self._carried(request, version), version, client),
            )
            await call.ended.wait()
            if call.response is None:
                raise LinkDownError(f"the link from {source} to {target} broke")
            await self._travel(target, source)
            response: Message = self._carried(call.response, version)
            return response
        finally:
            self._calls.discard(call)

    async def _handle(self, call: _Call, receive: Receive, delivery: Delivery) -> None:
        """Handle a request in a task of the node that gets it."""
        call.end(await receive(delivery))

    async def _travel(self, source: int, target: int) -> None:
        """Wait until a message has arrived. Raises LinkDownError."""
        delay_s = self._delays_s.get((source, target), 0.0)
        if delay_s:
            await real_time.sleep(delay_s)
        if (source, target) in self._cut:
            await trio.lowlevel.checkpoint()
            raise LinkDownError(f"node {source} does not reach {target}")

    def _carried(self, message: Any, version: int) -> Any:
        """Return a message as it arrives."""
        return type(message).decode(message.encode(version), version) if self._encodes else message

    def _break(self, is_broken: Callable[[Direction], bool]) -> None:
        for call in list(self._calls):
            if any(map(is_broken, call.route)):
                call.end(None)

    def _change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


class Link:
    """The link of one node to another."""

    __slots__ = ("_network", "source", "target")

    def __init__(self, network: Network, source: int, target: int) -> None:
        self._network = network
        self.source = source
        self.target = target

    @property
    def changed(self) -> trio.Event:
        """See `Network.changed`."""
        return self._network.changed

    async def call(
        self, request: Request[ResponseT], version: int, client: Client | None = None
    ) -> ResponseT:
        """Send a request of that version, and return the response. ``client``: for whom it is forwarded.

        Raises LinkDownError at once if it cannot arrive, or as soon as the response cannot.
        """
        response: Any = await self._network.call(self.source, self.target, request, version, client)
        return response  # type: ignore[no-any-return]


class Links:
    """The links of one node, by the node at their other end."""

    def __init__(self, network: Network, node_id: int) -> None:
        self.network = network
        self._node_id = node_id

    def to(self, target: int) -> Link:
        """Return the link to a node."""
        return self.network.link(self._node_id, target)
