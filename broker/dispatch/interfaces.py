"""Interfaces of the `Dispatcher`: interceptors and quotas, and the view that an interceptor has of its node or proxy.

Both stand between a request and its handler, and between a response and its client.
The quotas are in `oncelog.broker.security.quotas`, the interface of an authorizer in
`oncelog.broker.requests.authorization`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sized

    from oncelog.broker.dispatch.interception import Interception
    from oncelog.broker.requests.request import RequestContext
    from oncelog.broker.security.usage import Usage
    from oncelog.wire.schema import Uuid


class Interceptor:
    """Sees every request before its handler and every response before its client, from its installation on.

    Both functions may wait; the connection reads no further request meanwhile. Both may change what they are given:
    ``context.request`` is the request. If a request was handled before the installation, such as a Fetch that waits,
    only its response is seen, and a Produce request has no records then. A Fetch response holds many records as a
    `FileRange`; in a proxy it holds all of them as bytes.
    """

    apis: frozenset[str] | None = None
    """Kafka's names of the APIs that it wants to see, such as ``Produce``; None: all. Read at its installation. It may
    be shown others, too, by a broker, which decodes every request: a proxy forwards the requests that no interceptor
    wants to see, without decoding them.
    """
    unknown_apis_pass = True
    """Whether a proxy forwards requests of APIs that oncelog does not know, unread, where `apis` names some.

    False, or `apis` is None: the proxy refuses these requests, and ApiVersions does not tell clients of their APIs,
    unless the interceptor `only_reads`.
    """
    known_topics: KnownTopics | None = None
    """The topics of the cluster; whoever installs a user's interceptor sets it."""
    only_reads = False
    """Whether it changes neither a request nor a response, and responds to none: a proxy forwards the bytes that came.
    """

    async def on_request(self, context: RequestContext) -> Any:
        """Return None to go on; a response in place of the handler's; or `NO_RESPONSE`: then the request is not
        handled, and its client gets none.

        A Produce with acks=0 gets no response; an error in it closes the connection. Raises KafkaError for a response
        with nothing but that error, CloseConnection to close without a response.
        """
        return None

    async def on_response(self, context: RequestContext, response: Any) -> Any:
        """Return the response to send, or `NO_RESPONSE` to send none. None sends no response either; the log says that
        of a user's filter, since it may be a mistake. Raises as `on_request`.
        """
        return response

    def on_done(self, context: RequestContext, response: Any, failure: BaseException | None) -> None:
        """The request is done: ``response`` is on its way to the client, after all that other interceptors did to it.

        None: none is sent, because none was asked for, an interceptor dropped it, or the connection ended (``failure``:
        why). A request that was handled before the installation is done without having been seen. Must not raise.
        """

    def topic_name(self, topic_id: Uuid) -> str | None:
        """Return the name of the topic with an id, by which newer requests and responses name it; None if unknown."""
        topic = None if self.known_topics is None else self.known_topics.topics_by_id.get(topic_id)
        return None if topic is None else topic.name


class RequestPath(Protocol):
    """Where interceptors are installed: the `Dispatcher` of a node, or that of a proxy."""

    interception: Interception

    async def handle_behind_interceptors(self, context: RequestContext) -> Any:
        """Let ``context.request`` be handled, by the node or upstream. See `Dispatcher.handle_behind_interceptors`."""


class KnownTopic(Protocol):
    """The view that an interceptor has of a topic."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def topic_id(self) -> Uuid:
        """Its id."""

    @property
    def partitions(self) -> Sized:
        """Its partitions, from 0 on."""


class KnownTopics(Protocol):
    """The topics of the cluster: the `MetadataImage` of a node, or what a proxy has seen of its upstream."""

    @property
    def topics(self) -> Mapping[str, KnownTopic]:
        """By name."""

    @property
    def topics_by_id(self) -> Mapping[Uuid, KnownTopic]:
        """By id."""


class Quotas(Protocol):
    """How much of the node one client may use (Kafka: ``ClientQuotaManager``)."""

    def concern(self, principal: str, client_id: str, api_key: int) -> bool:
        """Whether the principal's requests of the API with that client id may be throttled, or count towards a quota.
        The fast path of Produce relies on the decision until `Interception.throttle_with` is called again.
        """
        return True

    def begin(self, context: RequestContext, began: float) -> Usage | None:
        """Return what will be known of a request's usage, or None. ``began``: when the request was read (real time,
        seconds).
        """
        return None

    def throttle(self, principal: str, client_id: str | None, context: RequestContext, response: Any) -> int:
        """Count the request and its response (None if it gets none, such as a Produce with acks=0); return milliseconds
        for which the connection is muted after it.
        """
        return 0

    def finish(self, context: RequestContext) -> None:
        """The request is done: its response is in the writer, or there is none. Called for requests with a usage."""
        return
