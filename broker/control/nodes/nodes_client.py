"""`NodesClient`: sends requests to the nodes of a controlled cluster, past listeners, log-ins and cut links."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from oncelog.broker.client.cluster_client import retried
from oncelog.broker.client.errors import error_codes
from oncelog.broker.client.routes import (
    AnyBroker,
    BrokerWithId,
    Controller,
    CoordinatorOf,
    LeaderOf,
)
from oncelog.broker.control.cluster.calls import ANY
from oncelog.broker.handlers.table import HANDLERS
from oncelog.broker.network.network import CONTROLLER_ID, Delivery
from oncelog.broker.node.receiver import A_NODE
from oncelog.broker.seams.clock import real_time
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from oncelog.broker.client.routes import Retry, Route
    from oncelog.broker.metadata.image import MetadataImage
    from oncelog.broker.network.network import Receive
    from oncelog.broker.seams.clock import Clock
    from oncelog.wire.messages.metadata import MetadataResponse
    from oncelog.wire.schema import Request, ResponseT_co

REQUEST_TIMEOUT_S = 30.0
"""Seconds of real time that one attempt may take."""


class Receiver(NamedTuple):
    """What handles requests to a node."""

    receive: Receive
    callers: set[trio.CancelScope]
    """Of the calls under way: the end of the node ends them."""


class NodesClient:
    """Calls the ``receivers`` of the nodes that run, and of the controller. ``image`` is the controller's; the nodes'
    addresses are those of their listener ``listener_name``.
    """

    def __init__(
        self, receivers: Mapping[int, Receiver], image: MetadataImage, listener_name: str, clock: Clock
    ) -> None:
        self._receivers = receivers
        self._clock = clock
        self._client = A_NODE._replace(listener_name=listener_name)
        self._image = image

    @property
    def now_ms(self) -> int:
        """Broker time, in milliseconds."""
        return self._clock.now_ms()

    async def call(
        self,
        request: Request[ResponseT_co],
        route: Route = ANY,
        *,
        version: int | None = None,
        timeout_s: float | None = None,
        retry: Retry | None = None,
    ) -> ResponseT_co:
        """See `ClusterClient.call`."""
        limit_s = REQUEST_TIMEOUT_S if timeout_s is None else timeout_s
        return await retried(partial(self._attempt, request, route, version, limit_s), retry)

    async def refresh_metadata(self, topics: Iterable[str] | None = None) -> MetadataResponse:
        """See `ClusterClient.refresh_metadata`."""
        rows = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
        return await self.call(MetadataRequest(rows, allow_auto_topic_creation=False))

    async def _attempt(
        self, request: Request[ResponseT_co], route: Route, version: int | None, timeout_s: float
    ) -> tuple[ResponseT_co, tuple[ErrorCode, ...]]:
        """Send once. Returns the response and its errors. Raises KafkaError."""
        node_id = await self._node_of(route, request.API_KEY)
        receiver = self._receivers.get(node_id)
        if receiver is None:
            leads = f"; it leads until its session is over: kafka.nodes[{node_id}].expire()"
            hint = leads if isinstance(route, LeaderOf) else ""
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"node {node_id} does not run{hint}")
        if version is None:
            version = min(type(request).MAX_VERSION, HANDLERS[request.API_KEY].max_version)
        client = None if node_id == CONTROLLER_ID else self._client
        with real_time.move_on_after(timeout_s), trio.CancelScope() as scope:
            receiver.callers.add(scope)
            try:
                response: Any = await receiver.receive(Delivery(CONTROLLER_ID, request, version, client))
            finally:
                receiver.callers.discard(scope)
            return response, error_codes(response)
        if scope.cancel_called:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"node {node_id} ended before it answered")
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"node {node_id} has not answered in {timeout_s:g} s")

    async def _node_of(self, route: Route, api_key: int) -> int:
        """Return the id of the node to ask. Raises KafkaError if there is none."""
        if HANDLERS[api_key].is_forwarded or isinstance(route, Controller):
            return CONTROLLER_ID
        if isinstance(route, BrokerWithId):
            return route.node_id
        if isinstance(route, AnyBroker):
            return self._any_node()
        if isinstance(route, LeaderOf):
            topic = self._image.topics.get(route.topic)
            if topic is None or not 0 <= route.partition < len(topic.partitions):
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, route.topic)
            state = topic.partitions[route.partition]
            if state.leader < 0:
                raise KafkaError(
                    ErrorCode.BROKER_NOT_AVAILABLE,
                    f"{route.topic}-{route.partition} has no leader: of its replicas {state.replicas}, those that may "
                    f"lead, {state.eligible_leader_replicas or state.isr}, do not serve",
                )
            return state.leader
        assert isinstance(route, CoordinatorOf)
        request = FindCoordinatorRequest(key_type=route.key_type, coordinator_keys=[route.key])
        [row] = (await self.call(request)).coordinators
        if row.error_code:
            raise KafkaError(ErrorCode(row.error_code), row.error_message)
        return row.node_id

    def _any_node(self) -> int:
        """Return the id of a node that serves."""
        serving = [node_id for node_id in self._receivers if node_id != CONTROLLER_ID]
        unfenced = [
            one for one in serving if one in self._image.brokers and not self._image.brokers[one].fenced
        ]
        for node_id in unfenced or serving:
            return node_id
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "no node runs")
