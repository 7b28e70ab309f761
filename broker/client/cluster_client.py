"""All connections that a cluster needs: each request goes to the broker that its route names, found by metadata."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial

import trio

from oncelog.broker.client.connection import (
    CONNECT_TIMEOUT_S,
    REQUEST_TIMEOUT_S,
    SOFTWARE_NAME,
    ClientConnection,
    open_connection,
)
from oncelog.broker.client.errors import error_codes, to_error_code
from oncelog.broker.client.metadata import METADATA_MAX_AGE_S, Address, ClusterMetadata, leader_of
from oncelog.broker.client.routes import (
    AnyBroker,
    BrokerWithId,
    Controller,
    CoordinatorOf,
    LeaderOf,
    Retry,
    Route,
)
from oncelog.broker.seams.clock import real_time
from oncelog.broker.seams.transport import Connect
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from oncelog.wire.schema import Request, ResponseT_co

ANY = AnyBroker()
ONE_KEY_MAX = 3
"""The last version of FindCoordinator that asks for a single key (KIP-699)."""
AUTO_CREATION_ASKED_MIN = 4
"""The first version of Metadata in which a client may forbid that topics are created."""


class ClusterClient:
    """A client of one cluster, used as ``with ClusterClient(…) as client``. Any number of tasks may use it.

    ``bootstrap`` are brokers to begin with; connections are opened when they are needed, and anew when they were lost.
    """

    def __init__(
        self,
        bootstrap: Sequence[Address],
        connect: Connect,
        *,
        client_id: str | None = SOFTWARE_NAME,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        metadata_max_age_s: float = METADATA_MAX_AGE_S,
    ) -> None:
        self.metadata = ClusterMetadata(metadata_max_age_s)
        if not bootstrap:
            raise ValueError("no bootstrap broker")
        self._bootstrap = tuple(bootstrap)
        self._open = partial(open_connection, connect, client_id=client_id, timeout_s=connect_timeout_s)
        self._request_timeout_s = request_timeout_s
        self._connections: dict[tuple[Address, bool], ClientConnection] = {}
        self._opening: defaultdict[tuple[Address, bool], trio.StrictFIFOLock] = defaultdict(
            trio.StrictFIFOLock
        )
        self._coordinators: dict[CoordinatorOf, Address] = {}
        self._is_closed = False

    def __enter__(self) -> ClusterClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection; calls that wait get NETWORK_EXCEPTION."""
        self._is_closed = True
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # -- calls

    async def call(
        self,
        request: Request[ResponseT_co],
        route: Route = ANY,
        *,
        version: int | None = None,
        timeout_s: float | None = None,
        retry: Retry | None = None,
    ) -> ResponseT_co:
        """Send a request where ``route`` says, and wait for its response, which may well report errors.

        ``timeout_s`` is for one attempt, by default the client's ``request_timeout_s``. Without ``retry`` there is only
        one attempt; with it the call ends as the last attempt that its time allows. Raises KafkaError as
        `ClientConnection.call` does, and with the error that Metadata or FindCoordinator gave instead of a broker.
        """
        if retry is None:
            return (await self._attempt(request, route, version, timeout_s))[0]
        deadline = real_time.monotonic() + retry.timeout_s
        backoff_s = retry.backoff_s
        while True:
            try:
                response, errors = await self._attempt(request, route, version, timeout_s)
                if not errors or not all(error.retriable for error in errors):
                    return response
                if real_time.monotonic() + backoff_s > deadline:
                    return response
            except KafkaError as error:
                if not error.code.retriable or real_time.monotonic() + backoff_s > deadline:
                    raise
            await real_time.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, retry.backoff_max_s)

    async def _attempt(
        self, request: Request[ResponseT_co], route: Route, version: int | None, timeout_s: float | None
    ) -> tuple[ResponseT_co, tuple[ErrorCode, ...]]:
        """One attempt: the response and its errors. What turned out wrong is looked up anew next time."""
        try:
            connection = await self.connection(route)
            response = await connection.call(
                request, version, timeout_s=self._request_timeout_s if timeout_s is None else timeout_s
            )
        except KafkaError as error:
            if error.code.retriable:
                self.forget(route)
            raise
        errors = error_codes(response)
        if any(error.retriable for error in errors):
            self.forget(route)
        return response, errors

    # -- routes

    async def connection(self, route: Route = ANY) -> ClientConnection:
        """The connection to the broker that the route names: for several requests in flight. Raises as `call` does."""
        if isinstance(route, AnyBroker):
            return await self._any_connection()
        return await self._connection_to(await self.address(route), isinstance(route, CoordinatorOf))

    async def address(self, route: BrokerWithId | Controller | LeaderOf | CoordinatorOf) -> Address:
        """Where that broker is, by metadata or FindCoordinator where it is not known. Raises as `call` does."""
        if isinstance(route, CoordinatorOf):
            found = self._coordinators.get(route)
            return await self._find_coordinator(route) if found is None else found
        if isinstance(route, LeaderOf):
            topic = self.metadata.topic(route.topic, real_time.monotonic())
            if topic is None or not self.metadata.brokers:
                await self.refresh_metadata([route.topic])
                topic = self.metadata.topic(route.topic, real_time.monotonic())
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, route.topic)
            return self._address_of_node(leader_of(topic, route.partition), ErrorCode.LEADER_NOT_AVAILABLE)
        if not self.metadata.brokers:
            await self.refresh_metadata([])
        return self._address_of_node(
            self.metadata.controller_id if isinstance(route, Controller) else route.node_id
        )

    def _address_of_node(self, node_id: int, error: ErrorCode = ErrorCode.BROKER_NOT_AVAILABLE) -> Address:
        found = self.metadata.brokers.get(node_id)
        if found is None:
            raise KafkaError(error, f"Metadata does not list node {node_id}")
        return found

    def forget(self, route: Route) -> None:
        """The route led astray: the next call looks it up anew."""
        if isinstance(route, CoordinatorOf):
            self._coordinators.pop(route, None)
        elif isinstance(route, LeaderOf):
            self.metadata.forget(route.topic)
        elif not isinstance(route, AnyBroker):
            self.metadata.brokers.clear()

    async def refresh_metadata(self, topics: Iterable[str] | None = None) -> MetadataResponse:
        """Ask for these topics, for all (None) or for the brokers only (an empty list); none is created by asking.

        Raises KafkaError as `call` does; errors of topics are in the response.
        """
        connection = await self._any_connection()
        version = connection.version_for(MetadataRequest)
        rows = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
        request = MetadataRequest(rows)
        if version >= AUTO_CREATION_ASKED_MIN:
            request.allow_auto_topic_creation = False
        response = await connection.call(request, version, timeout_s=self._request_timeout_s)
        if response.error_code:
            raise KafkaError(to_error_code(response.error_code), "Metadata")
        self.metadata.update(response, real_time.monotonic())
        return response

    async def _find_coordinator(self, route: CoordinatorOf) -> Address:
        connection = await self._any_connection()
        version = connection.version_for(FindCoordinatorRequest)
        request = FindCoordinatorRequest(key_type=route.key_type)
        if version <= ONE_KEY_MAX:
            request.key = route.key
        else:
            request.coordinator_keys = [route.key]
        response = await connection.call(request, version, timeout_s=self._request_timeout_s)
        row = response if version <= ONE_KEY_MAX else response.coordinators[0]
        if row.error_code:
            raise KafkaError(to_error_code(row.error_code), row.error_message)
        self._coordinators[route] = row.host, row.port
        return row.host, row.port

    # -- connections

    async def _any_connection(self) -> ClientConnection:
        """One that is open, else one to any known broker, else to one of ``bootstrap``."""
        for (_, is_coordinators), connection in self._connections.items():
            if not is_coordinators and connection.is_open:
                return connection
        error = None
        for address in dict.fromkeys((*self.metadata.brokers.values(), *self._bootstrap)):
            try:
                return await self._connection_to(address)
            except KafkaError as refused:
                error = refused
        assert error is not None, "there is a bootstrap broker"
        raise error

    async def _connection_to(self, address: Address, is_coordinators: bool = False) -> ClientConnection:
        place = address, is_coordinators
        async with self._opening[place]:
            if self._is_closed:
                raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "the client is closed")
            connection = self._connections.get(place)
            if connection is None or not connection.is_open:
                connection = await self._open(*address)
                if self._is_closed:
                    connection.close()
                self._connections[place] = connection
            return connection
