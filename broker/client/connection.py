"""One connection to a broker: correlation ids, several requests in flight, negotiated versions, time-outs.

A broker answers the requests of a connection in their order, so a response belongs to the oldest request in flight. The
first task that waits for a response reads for all of them.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Generic

import trio

from oncelog import __version__
from oncelog.broker.client.errors import to_error_code
from oncelog.broker.seams.clock import real_time
from oncelog.broker.seams.transport import WOULD_BLOCK, Connect, Transport
from oncelog.wire.errors import DecodeError, ErrorCode, KafkaError
from oncelog.wire.framing import FrameReader, decode_response, encode_request
from oncelog.wire.header import read_response_header
from oncelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.wire.schema import Message, Request, ResponseT_co

SOFTWARE_NAME = "oncelog"
"""What ApiVersions tells the broker, with this package's version (KIP-511)."""
CONNECT_TIMEOUT_S = 10.0
"""Kafka's ``socket.connection.setup.timeout.ms``: for the connection and the versions that it begins with."""
REQUEST_TIMEOUT_S = 30.0
"""Kafka's ``request.timeout.ms``."""
RESPONSE_BYTES_MAX = 1024 * 1024 * 1024
"""Bytes of a response; memory is taken only as they come."""
RECEIVE_BYTES = 64 * 1024
CLOSED_BY_BROKER = "the broker closed the connection"
CORRELATION_ID_MAX = 2**31 - 1


class InFlight(Generic[ResponseT_co]):
    """A request that was sent. Its response may be left unread: the connection passes over it."""

    __slots__ = ("_connection", "correlation_id", "payload", "request_type", "version")

    def __init__(
        self,
        connection: ClientConnection,
        request_type: type[Request[ResponseT_co]],
        version: int,
        correlation_id: int,
    ) -> None:
        self._connection = connection
        self.request_type = request_type
        self.version = version
        self.correlation_id = correlation_id
        self.payload: bytes | None = None
        """The response's header and body, once they have come."""

    async def wait_payload(self) -> bytes:
        """The response's header and body. Raises KafkaError as `ClientConnection.call` does, but waits for ever."""
        return await self._connection.wait_payload(self)

    async def wait_response(self) -> ResponseT_co:
        """The response. Raises KafkaError as `ClientConnection.call` does, but waits for ever."""
        payload = await self.wait_payload()
        try:
            return decode_response(self.request_type, self.version, payload)[1]
        except DecodeError as error:
            raise self._connection.fail(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"malformed response: {error}"
            ) from error


class ClientConnection:
    """A connection that owns its transport. Any number of tasks may use it at the same time.

    ``versions`` are the lowest and highest version of each API key that the broker announced (`negotiate`).
    """

    def __init__(
        self,
        transport: Transport,
        client_id: str | None = SOFTWARE_NAME,
        *,
        response_bytes_max: int = RESPONSE_BYTES_MAX,
    ) -> None:
        self.versions: dict[int, tuple[int, int]] | None = None
        self._transport = transport
        self._client_id = client_id
        self._correlation_id = 0
        self._frames = FrameReader(response_bytes_max)
        self._in_flight: deque[InFlight[Any]] = deque()
        self._sending = trio.StrictFIFOLock()
        self._is_receiving = False
        self._received = trio.lowlevel.ParkingLot()
        self._failure: KafkaError | None = None

    @property
    def is_open(self) -> bool:
        """Whether requests may be sent. Where none is in flight, it looks whether the broker has closed meanwhile."""
        if self._failure is None and not self._in_flight:
            try:
                count = self._transport.receive_into(memoryview(bytearray(1)))
            except (OSError, trio.ClosedResourceError) as error:
                self._lost(error)
            else:
                if count == 0:
                    self.fail(ErrorCode.NETWORK_EXCEPTION, CLOSED_BY_BROKER)
                elif count != WOULD_BLOCK:
                    self.fail(ErrorCode.UNKNOWN_SERVER_ERROR, "a response to no request")
        return self._failure is None

    @property
    def in_flight(self) -> int:
        """Requests whose responses have not come."""
        return len(self._in_flight)

    def close(self) -> None:
        """Close; whoever waits for a response gets NETWORK_EXCEPTION. May be called again."""
        self.fail(ErrorCode.NETWORK_EXCEPTION, "closed on this side")

    # -- calls

    async def call(
        self,
        request: Request[ResponseT_co],
        version: int | None = None,
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> ResponseT_co:
        """Send a request and wait for its response, which may well report errors; they are not raised.

        ``version``: by default the highest that both sides have. Raises KafkaError: NETWORK_EXCEPTION where the
        connection is lost, REQUEST_TIMED_OUT after ``timeout_s``, UNSUPPORTED_VERSION, UNKNOWN_SERVER_ERROR where the
        peer breaks the protocol. Raises ValueError for a request that this version cannot carry, or without a response.

        A time-out closes the connection, as in Kafka's client: later responses could only come after the missing one.
        """
        with real_time.move_on_after(timeout_s):
            in_flight = await self.send(request, version)
            return await in_flight.wait_response()
        text = f"no response to {type(request).__name__} within {timeout_s:g} s"
        self.fail(ErrorCode.REQUEST_TIMED_OUT, text)
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{self._transport.peer}: {text}")

    async def send(
        self, request: Request[ResponseT_co], version: int | None = None
    ) -> InFlight[ResponseT_co]:
        """Send a request, and wait for its response later. Raises as `call` does."""
        if not has_response(request):
            raise ValueError("a Produce with acks=0 has no response: send_without_response")
        kind = type(request)
        version = self.version_for(kind) if version is None else version
        async with self._sending:
            frame = self._next_frame(request, version)
            in_flight = InFlight(self, kind, version, self._correlation_id)
            self._in_flight.append(in_flight)
            await self._send_all(frame)
        return in_flight

    async def send_without_response(self, request: Request[Message], version: int | None = None) -> None:
        """Send a Produce with acks=0. Raises as `call` does."""
        if has_response(request):
            raise ValueError(f"{type(request).__name__} has a response: send")
        version = self.version_for(type(request)) if version is None else version
        async with self._sending:
            await self._send_all(self._next_frame(request, version))

    # -- versions

    async def negotiate(self) -> ApiVersionsResponse:
        """Ask which versions the broker serves; without it each request must name its version.

        A broker that does not know our version of ApiVersions answers in version 0, and says which it has (KIP-511).
        Raises KafkaError as `call` does, and with the code of the response.
        """
        version = ApiVersionsRequest.MAX_VERSION
        response = await self._ask_versions(version)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            known = [
                row.max_version for row in response.api_keys if row.api_key == ApiVersionsRequest.API_KEY
            ]
            response = await self._ask_versions(min([version - 1, *known]) if known else 0)
        if response.error_code:
            raise self.fail(to_error_code(response.error_code), "the broker does not tell its versions")
        self.versions = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
        return response

    async def _ask_versions(self, version: int) -> ApiVersionsResponse:
        in_flight = await self.send(ApiVersionsRequest(SOFTWARE_NAME, __version__), version)
        payload = await in_flight.wait_payload()
        # Both in version 0 and later the error comes first, and the header has no tagged fields.
        if int.from_bytes(payload[4:6], "big") == ErrorCode.UNSUPPORTED_VERSION:
            in_flight.version = 0
        return await in_flight.wait_response()

    def version_for(self, request: type[Request[Message]]) -> int:
        """The highest version that the broker announced and this client has, unstable ones left out.

        Raises KafkaError UNSUPPORTED_VERSION where there is none, ValueError before `negotiate`.
        """
        if self.versions is None:
            raise ValueError("negotiate first, or name the version")
        low, high = self.versions.get(request.API_KEY, (0, -1))
        ours = request.MAX_VERSION - request.LATEST_VERSION_UNSTABLE
        version = min(high, ours)
        if version < max(low, request.MIN_VERSION):
            theirs = f"{low} to {high}" if high >= 0 else "no version"
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{request.__name__}: the broker has {theirs}, the client {request.MIN_VERSION} to {ours}",
            )
        return version

    # -- bytes

    def _next_frame(self, request: Request[Message], version: int) -> bytes:
        self._check_open()
        following = next_correlation_id(self._correlation_id)
        frame = encode_request(request, version, following, self._client_id)
        self._correlation_id = following
        return frame

    async def _send_all(self, frame: bytes) -> None:
        view = memoryview(frame)
        try:
            while view:
                sent = self._transport.send(view)
                if sent == WOULD_BLOCK:
                    await self._transport.wait_writable()
                else:
                    view = view[sent:]
        except (OSError, trio.ClosedResourceError) as error:
            raise self._lost(error) from error
        finally:
            if view:  # cancelled: what follows half a request cannot be told from its rest
                self.fail(ErrorCode.NETWORK_EXCEPTION, "a request was cut off")

    async def wait_payload(self, in_flight: InFlight[Any]) -> bytes:
        """`InFlight.wait_payload`: read until its response has come, or wait for another task that does."""
        while in_flight.payload is None:
            self._check_open()
            if self._is_receiving:
                await self._received.park()
                continue
            self._is_receiving = True
            try:
                await self._receive_response()
            finally:
                self._is_receiving = False
                self._received.unpark_all()
        return in_flight.payload

    async def _receive_response(self) -> None:
        """Read one response, the oldest request's. A cancelled read loses nothing."""
        buffer = memoryview(bytearray(RECEIVE_BYTES))
        try:
            while (payload := self._frames.next_frame()) is None:
                count = self._transport.receive_into(buffer)
                if count == WOULD_BLOCK:
                    await self._transport.wait_readable()
                elif count == 0:
                    raise self.fail(ErrorCode.NETWORK_EXCEPTION, CLOSED_BY_BROKER)
                else:
                    self._frames.feed(buffer[:count])
            correlation_id, _ = read_response_header(payload, tagged=False)
            if not self._in_flight or self._in_flight[0].correlation_id != correlation_id:
                raise DecodeError(f"a response with correlation id {correlation_id}, which is not the next")
        except DecodeError as error:
            raise self.fail(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
        except (OSError, trio.ClosedResourceError) as error:
            raise self._lost(error) from error
        self._in_flight.popleft().payload = payload

    # -- the end

    def _lost(self, error: Exception) -> KafkaError:
        return self.fail(ErrorCode.NETWORK_EXCEPTION, str(error) or type(error).__name__)

    def fail(self, code: ErrorCode, text: str) -> KafkaError:
        """Close for this reason, unless it was closed before; the error to raise."""
        if self._failure is None:
            self._failure = KafkaError(code, f"{self._transport.peer}: {text}")
            self._in_flight.clear()
            self._transport.close()
            self._received.unpark_all()
        return KafkaError(self._failure.code, self._failure.message)

    def _check_open(self) -> None:
        if self._failure is not None:
            raise KafkaError(self._failure.code, self._failure.message)


async def open_connection(
    connect: Connect,
    host: str,
    port: int,
    client_id: str | None = SOFTWARE_NAME,
    *,
    timeout_s: float = CONNECT_TIMEOUT_S,
) -> ClientConnection:
    """A connection that knows the broker's versions.

    Raises KafkaError: NETWORK_EXCEPTION where nobody accepts it, REQUEST_TIMED_OUT after ``timeout_s``.
    """
    connection = None
    with real_time.move_on_after(timeout_s):
        try:
            connection = ClientConnection(await connect(host, port), client_id)
            await connection.negotiate()
            return connection
        except OSError as error:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"{host}:{port}: {error}") from error
        finally:
            if connection is not None and connection.versions is None:
                connection.close()
    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{host}:{port}: not connected within {timeout_s:g} s")


def next_correlation_id(previous: int) -> int:
    """One more; 0 after the largest int32."""
    return 0 if previous == CORRELATION_ID_MAX else previous + 1


def has_response(request: Message) -> bool:
    """False for a Produce with acks=0: the only request that no broker answers."""
    return not (request.API_KEY == 0 and getattr(request, "acks", None) == 0)
