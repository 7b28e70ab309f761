"""`Network`: the links between the nodes of a process and their controller, and what a test does to them.

A link brings one of Kafka's requests from one node to another and its response back, as a connection does. A link that
is cut, or whose node does not run, breaks at once: whoever waits for a response gets `LinkDownError`, and may ask again
later (`Network.changed`). What has arrived is handled nevertheless, as by a node that has lost its peer.

If only the way of the responses is cut, one more request arrives, since the connection was open. Then the link is down:
a new connection would need both directions.
"""

from __future__ import annotations

from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import trio

from oncelog.broker.seams.clock import real_time
from oncelog.broker.seams.memory_files import ProcessDied
from oncelog.wire.messages.fetch import FetchResponse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from oncelog.wire.messages.fetch import FetchRequest
    from oncelog.wire.schema import Message, Request

    Receive = Callable[["Delivery"], Awaitable[Message]]
    """Handles a request, and returns its response. What it raises, the sender gets."""
    AnswerFetch = Callable[[FetchRequest], "FetchResponse | WaitingFetch"]
    """Answers the fetch of a follower, of partitions or of the metadata. What it raises, the follower gets."""

CONTROLLER_ID = 3000
"""The node id of the controller."""

T = TypeVar("T")
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


class WaitingFetch(Protocol):
    """A fetch that waits for something to say to the follower. The follower's task waits for it, and calls it."""

    @property
    def event(self) -> trio.Event:
        """Set when `respond` may have more to say, or the link broke. It is this fetch's alone."""

    @property
    def timeout_s(self) -> float:
        """The seconds of real time for which the follower waits."""

    def respond(self, *, is_over: bool) -> FetchResponse | None:
        """Return the response; None as long as there is nothing to say, and the time is not over."""


class _Call:
    """A call that waits for its response, or for a break."""

    __slots__ = ("event", "failure", "is_broken", "response", "source", "target")

    def __init__(self, source: int, target: int, event: trio.Event) -> None:
        self.source = source
        self.target = target
        self.event = event
        """Set when there is a response, or at a break."""
        self.response: Any = None
        self.failure: Exception | None = None
        self.is_broken = False

    def end(self, response: Message) -> None:
        self.response = response
        self.event.set()

    def fail(self, failure: Exception) -> None:
        self.failure = failure
        self.event.set()

    def break_off(self) -> None:
        """The link broke. What has its response already gets it."""
        self.is_broken = self.response is None and self.failure is None
        self.event.set()


class _Receiver(NamedTuple):
    """A node that is attached."""

    receive: Receive
    nursery: trio.Nursery
    fetch: AnswerFetch | None
    context: Context

    def run(self, step: Callable[[], T]) -> T:
        """Do a step of the node in the task of another. Raises LinkDownError if the node dies of it: that ends the node
        itself, not the other.
        """
        try:
            return self.context.run(step)
        except ProcessDied as death:
            self.nursery.start_soon(_die, death)
            raise LinkDownError("the node dies") from death


async def _die(death: ProcessDied) -> None:
    raise death


class Network:
    """``encodes``: whether messages travel as bytes, as between processes. Tests run both forms."""

    def __init__(self, *, encodes: bool = False) -> None:
        self._encodes = encodes
        self._receivers: dict[int, _Receiver] = {}
        self._cut: set[Direction] = set()
        self._down: set[Direction] = set()
        """Links that have lost a response since the network was healed."""
        self._delays_s: dict[Direction, float] = {}
        self._calls: set[_Call] = set()
        self._changed = trio.Event()

    # -- nodes

    def attach(
        self, node_id: int, receive: Receive, nursery: trio.Nursery, fetch: AnswerFetch | None = None
    ) -> None:
        """From now on ``receive`` handles the requests to a node, each in a task of ``nursery``, and ``fetch`` those of
        its followers (`Link.fetch`). Both run with the caller's context variables: its log is the node's, not the
        sender's.
        """
        self._receivers[node_id] = _Receiver(receive, nursery, fetch, copy_context())
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
        receiver = await self._arrive(source, target)
        delivery = Delivery(source, self._carried(request, version), version, client)
        call = _Call(source, target, trio.Event())
        self._calls.add(call)
        try:
            receiver.context.run(receiver.nursery.start_soon, self._handle, call, receiver.receive, delivery)
            await call.event.wait()
        finally:
            self._calls.discard(call)
        response: Message = await self._return(call, version)
        return response

    async def _handle(self, call: _Call, receive: Receive, delivery: Delivery) -> None:
        """Handle a request in a task of the node that gets it, which no request ends."""
        try:
            call.end(await receive(delivery))
        except Exception as error:
            call.fail(error)

    async def fetch(self, link: Link, request: FetchRequest, version: int) -> FetchResponse:
        """See `Link.fetch`."""
        receiver = await self._arrive(link.source, link.target)
        assert receiver.fetch is not None
        answer = receiver.run(partial(receiver.fetch, self._carried(request, version)))
        if isinstance(answer, FetchResponse):
            await trio.lowlevel.checkpoint()
            call = _Call(link.source, link.target, trio.Event())
            call.response = answer
        else:
            call = link.fetching = _Call(link.source, link.target, answer.event)
            self._calls.add(call)
            try:
                await self._wait(call, answer, receiver)
            finally:
                link.fetching = None
                self._calls.discard(call)
        response: FetchResponse = await self._return(call, version)
        return response

    async def _wait(self, call: _Call, fetch: WaitingFetch, receiver: _Receiver) -> None:
        """Wait until a fetch has something to say. Raises LinkDownError if its node dies of that."""
        with real_time.move_on_after(fetch.timeout_s):
            while not call.is_broken:
                call.event = fetch.event
                await call.event.wait()
                if not call.is_broken:
                    call.response = receiver.run(partial(fetch.respond, is_over=False))
                    if call.response is not None:
                        return
        if not call.is_broken:
            call.response = receiver.run(partial(fetch.respond, is_over=True))

    async def _arrive(self, source: int, target: int) -> _Receiver:
        """Wait until a request has arrived at its target, and return that. Raises LinkDownError."""
        if (source, target) in self._down:
            await trio.lowlevel.checkpoint()
            raise LinkDownError(f"node {source} does not hear from node {target}")
        if self._cut or self._delays_s:
            await self._travel(source, target)
        receiver = self._receivers.get(target)
        if receiver is None:
            await trio.lowlevel.checkpoint()
            raise LinkDownError(f"node {target} does not run")
        if (target, source) in self._cut:
            self._down.add((source, target))
        return receiver

    async def _return(self, call: _Call, version: int) -> Any:
        """Return the response of a call when it has arrived at its source. Raises LinkDownError, and what the target
        has raised.
        """
        if call.failure is not None:
            raise call.failure
        if call.response is None:
            raise LinkDownError(f"the link from {call.source} to {call.target} broke")
        if self._cut or self._delays_s:
            await self._travel(call.target, call.source)
        return self._carried(call.response, version)

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
            if is_broken((call.source, call.target)) or is_broken((call.target, call.source)):
                call.break_off()

    def _change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


class Link:
    """The link of one node to another."""

    __slots__ = ("_network", "fetching", "source", "target")

    def __init__(self, network: Network, source: int, target: int) -> None:
        self._network = network
        self.source = source
        self.target = target
        self.fetching: _Call | None = None
        """The fetch that waits, if one does."""

    @property
    def changed(self) -> trio.Event:
        """See `Network.changed`."""
        return self._network.changed

    async def call(
        self, request: Request[ResponseT], version: int, client: Client | None = None
    ) -> ResponseT:
        """Send a request of that version, and return the response. ``client``: for whom it is forwarded.

        Raises LinkDownError at once if it cannot arrive, or as soon as the response cannot; CloseConnection if the
        client for whom it is forwarded gets no response.
        """
        response: Any = await self._network.call(self.source, self.target, request, version, client)
        return response  # type: ignore[no-any-return]

    async def fetch(self, request: FetchRequest, version: int) -> FetchResponse:
        """Fetch as a follower, and return the response; one fetch at a time. At the leader it costs no task: this one
        does the little work, and waits. Raises as `call`.
        """
        return await self._network.fetch(self, request, version)

    def give_up_fetch(self) -> None:
        """Let the fetch that waits, if one does, raise LinkDownError."""
        if self.fetching is not None:
            self.fetching.break_off()


class Links:
    """The links of one node, by the node at their other end."""

    def __init__(self, network: Network, node_id: int) -> None:
        self.network = network
        self._node_id = node_id

    def to(self, target: int) -> Link:
        """Return the link to a node."""
        return self.network.link(self._node_id, target)
