"""`ClusterClient`: connections to all brokers of a cluster. A request's route names its broker; metadata finds it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

import trio

from oncelog.broker.client.connection import REQUEST_TIMEOUT_S, SOFTWARE_NAME, ClientConnection
from oncelog.broker.client.errors import error_codes, to_error_code
from oncelog.broker.client.metadata import METADATA_MAX_AGE_S, Address, ClusterMetadata, leader_of
from oncelog.broker.client.opening import CONNECT_TIMEOUT_S, open_connection
from oncelog.broker.client.routes import (
    AnyBroker,
    BrokerWithId,
    Controller,
    CoordinatorOf,
    LeaderOf,
    Retry,
    Route,
)
from oncelog.broker.client.security.client_security import ClientSecurity
from oncelog.broker.seams.clock import real_time
from oncelog.broker.seams.transport import Connect
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from oncelog.wire.schema import Request, ResponseT_co

T = TypeVar("T")

ANY = AnyBroker()
ONE_KEY_MAX = 3
"""The last version of FindCoordinator with a single key (KIP-699)."""
AUTO_CREATION_ASKED_MIN = 4
"""The first version of Metadata in which a client can prevent the creation of topics."""


class ClusterClient:
    """A client of one cluster: ``with ClusterClient(…) as client``. Any number of tasks may use it at the same time.

    ``bootstrap`` are the addresses of some brokers. A connection is opened on first use, and again after it was lost.
    ``security`` says how; None: without TLS and log-in.
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
        security: ClientSecurity | None = None,
    ) -> None:
        self.metadata = ClusterMetadata(metadata_max_age_s)
        if not bootstrap:
            raise ValueError("no bootstrap broker")
        self._bootstrap = tuple(bootstrap)
        self._open = partial(
            open_connection, connect, client_id=client_id, timeout_s=connect_timeout_s, security=security
        )
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
        """Close all connections. Waiting calls raise NETWORK_EXCEPTION."""
        self._is_closed = True
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # -- calls

    @property
    def now_ms(self) -> int:
        """The time, in milliseconds."""
        return real_time.now_ms()

    async def call(
        self,
        request: Request[ResponseT_co],
        route: Route = ANY,
        *,
        version: int | None = None,
        timeout_s: float | None = None,
        retry: Retry | None = None,
    ) -> ResponseT_co:
        """Send a request to the broker of ``route`` and return the response. Errors in the response are not raised.

        ``timeout_s`` limits one attempt; the default is the client's ``request_timeout_s``. Without ``retry`` there is
        one attempt. With it, the last attempt decides: its response is returned, or its error raised. Raises KafkaError
        as `ClientConnection.call` does, and with the error of Metadata or FindCoordinator if they name no broker.
        """
        return await retried(partial(self._attempt, request, route, version, timeout_s), retry)

    async def _attempt(
        self, request: Request[ResponseT_co], route: Route, version: int | None, timeout_s: float | None
    ) -> tuple[ResponseT_co, tuple[ErrorCode, ...]]:
        """Send once. Returns the response and its errors. After a retriable error the next attempt looks up the route
        again."""
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
        """Return the connection to the route's broker, for several requests in flight. Raises as `call` does."""
        if isinstance(route, AnyBroker):
            return await self._any_connection()
        return await self._connection_to(await self.address(route), isinstance(route, CoordinatorOf))

    async def address(self, route: BrokerWithId | Controller | LeaderOf | CoordinatorOf) -> Address:
        """Return the address of the route's broker; ask Metadata or FindCoordinator if it is unknown. Raises as `call`
        does."""
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
        """Forget the route's broker, because it was the wrong one: the next call looks it up again."""
        if isinstance(route, CoordinatorOf):
            self._coordinators.pop(route, None)
        elif isinstance(route, LeaderOf):
            self.metadata.forget(route.topic)
        elif not isinstance(route, AnyBroker):
            self.metadata.brokers.clear()

    async def refresh_metadata(self, topics: Iterable[str] | None = None) -> MetadataResponse:
        """Request the metadata of these topics, of all (None), or of the brokers only (an empty list).

        Returns the response, which may have errors of topics. The request creates no topic. Raises KafkaError as `call`
        does.
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
        """Return an open connection, else a new one to a known broker or to one of ``bootstrap``."""
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
        key = address, is_coordinators
        async with self._opening[key]:
            if self._is_closed:
                raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "the client is closed")
            connection = self._connections.get(key)
            if connection is None or not connection.is_open:
                connection = await self._open(*address)
                if self._is_closed:
                    connection.close()
                self._connections[key] = connection
            return connection


async def retried(
    attempt: Callable[[], Awaitable[tuple[T, tuple[ErrorCode, ...]]]], retry: Retry | None
) -> T:
    """Return the response of an attempt, which tells the response's errors, too; see `ClusterClient.call`."""
    if retry is None:
        return (await attempt())[0]
    deadline = real_time.monotonic() + retry.timeout_s
    backoff_s = retry.backoff_s
    while True:
        try:
            response, errors = await attempt()
            if not errors or not all(error.retriable for error in errors):
                return response
            if real_time.monotonic() + backoff_s > deadline:
                return response
        except KafkaError as error:
            if not error.code.retriable or real_time.monotonic() + backoff_s > deadline:
                raise
        await real_time.sleep(backoff_s)
        backoff_s = min(2 * backoff_s, retry.backoff_max_s)
