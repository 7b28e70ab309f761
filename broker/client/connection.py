"""`ClientConnection`: a connection to a broker, with correlation ids, several requests in flight, negotiated versions
and time-outs.

A broker sends the responses of a connection in the order of the requests, so a response belongs to the oldest request
in flight. The first task that waits for a response reads for all tasks.
"""

from __future__ import annotations

import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, Generic

import trio

from oncelog import __version__
from oncelog.broker.client.errors import AuthenticationError, to_error_code
from oncelog.broker.client.security.client_security import ClientSecurity
from oncelog.broker.client.security.login import HANDSHAKE_VERSION, LoginRequest
from oncelog.broker.client.security.tls import tls_failure
from oncelog.broker.seams.clock import real_time
from oncelog.broker.seams.transport import WOULD_BLOCK, Transport
from oncelog.wire.errors import DecodeError, ErrorCode, KafkaError
from oncelog.wire.framing import FrameReader, decode_response, encode_request
from oncelog.wire.header import read_response_header
from oncelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.wire.messages.sasl_handshake import SaslHandshakeRequest
from oncelog.wire.schema import Message, Request, ResponseT_co

SOFTWARE_NAME = "oncelog"
"""The software name that ApiVersions sends, beside this package's version (KIP-511)."""
REQUEST_TIMEOUT_S = 30.0
"""Kafka's ``request.timeout.ms``."""
RESPONSE_BYTES_MAX = 1024 * 1024 * 1024
"""The largest response in bytes. Memory is allocated as bytes arrive."""
RECEIVE_BYTES = 64 * 1024
CLOSED_BY_BROKER = "the broker closed the connection"
CORRELATION_ID_MAX = 2**31 - 1


class InFlight(Generic[ResponseT_co]):
    """A request that was sent. The caller need not wait for its response; the connection discards it then."""

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
        """The response's header and body; None before they have arrived."""

    async def wait_payload(self) -> bytes:
        """Wait for the response's header and body, without a time-out. Raises KafkaError as `ClientConnection.call`."""
        return await self._connection.wait_payload(self)

    async def wait_response(self) -> ResponseT_co:
        """Wait for the response, without a time-out. Raises KafkaError as `ClientConnection.call`."""
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
        security: ClientSecurity | None = None,
        marked: Callable[[bytes], bytes] | None = None,
    ) -> None:
        """``marked`` makes the bytes to send of each request, whose header it may mark."""
        self.versions: dict[int, tuple[int, int]] | None = None
        self._transport = transport
        self._security = security
        self.renewal_s: float | None = None
        """How long after its log-in the session should be renewed, in seconds; None: it does not end."""
        self._renew_at: float | None = None
        """When the session is renewed, with the next request (real time, seconds); None: never."""
        self._client_id = client_id
        self._marked = marked
        self._correlation_id = 0
        self._frames = FrameReader(response_bytes_max)
        self._in_flight: deque[InFlight[Any]] = deque()
        self._sending = trio.StrictFIFOLock()
        self._is_receiving = False
        self._received = trio.lowlevel.ParkingLot()
        self._failure: KafkaError | None = None

    @property
    def is_open(self) -> bool:
        """Whether requests may be sent. If none is in flight, check whether the broker has closed the connection."""
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
        """The number of requests without a response."""
        return len(self._in_flight)

    def close(self) -> None:
        """Close the connection. Tasks that wait for a response raise NETWORK_EXCEPTION. A second call does nothing."""
        self.fail(ErrorCode.NETWORK_EXCEPTION, "closed on this side")

    # -- calls

    async def call(
        self,
        request: Request[ResponseT_co],
        version: int | None = None,
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> ResponseT_co:
        """Send a request and return its response. Errors in the response are not raised.

        ``version`` is by default the highest that both sides have. Raises KafkaError: NETWORK_EXCEPTION if the
        connection is lost, REQUEST_TIMED_OUT after ``timeout_s``, UNSUPPORTED_VERSION, UNKNOWN_SERVER_ERROR if the
        peer violates the protocol. Raises ValueError for a request with fields that the version does not have, or for
        one without a response.

        A time-out closes the connection, as in Kafka's client: later responses can only follow the missing one.
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
        """Send a request without waiting for its response. Raises as `call` does."""
        if not has_response(request):
            raise ValueError("a Produce with acks=0 has no response: send_without_response")
        version = self.version_for(type(request)) if version is None else version
        async with self._sending:
            if self._renew_at is not None and real_time.monotonic() >= self._renew_at:
                await self._log_in()
            return await self._send(request, version)

    async def _send(self, request: Request[ResponseT_co], version: int) -> InFlight[ResponseT_co]:
        frame = self._next_frame(request, version)
        in_flight = InFlight(self, type(request), version, self._correlation_id)
        self._in_flight.append(in_flight)
        await self._send_all(frame)
        return in_flight

    async def send_without_response(self, request: Request[Message], version: int | None = None) -> None:
        """Send a Produce with acks=0. Raises as `call` does."""
        if has_response(request):
            raise ValueError(f"{type(request).__name__} has a response: send")
        version = self.version_for(type(request)) if version is None else version
        async with self._sending:
            if self._renew_at is not None and real_time.monotonic() >= self._renew_at:
                await self._log_in()
            await self._send_all(self._next_frame(request, version))

    # -- the log-in

    async def log_in(self) -> None:
        """Log in as the client's security says, after `negotiate`. The session is then renewed as it is used (KIP-368).

        Raises AuthenticationError, and KafkaError as `call` does.
        """
        async with self._sending:
            await self._log_in()

    async def _log_in(self) -> None:
        """Log in, or again; nobody else sends meanwhile. Responses to earlier requests may come between."""
        login = None if self._security is None else await self._security.new_login()
        is_complete = login is None
        try:
            request = None if login is None else login.begin()
            while login is not None and request is not None:
                request = login.following(await self._login_response(request))
            if login is not None:
                renewal_s = login.renewal_s
                self._renew_at = None if renewal_s is None else real_time.monotonic() + renewal_s
                self.renewal_s = renewal_s
            is_complete = True
        except AuthenticationError as error:
            raise self._fail_with(AuthenticationError(error.code, self._about_peer(error.message))) from None
        finally:
            if not is_complete:  # cancelled
                self.fail(ErrorCode.NETWORK_EXCEPTION, "a log-in was cut off")

    async def _login_response(self, request: LoginRequest) -> Message:
        if isinstance(request, SaslHandshakeRequest):
            in_flight: InFlight[Any] = await self._send(request, HANDSHAKE_VERSION)
        else:
            in_flight = await self._send(request, self.version_for(type(request)))
        response: Message = await in_flight.wait_response()
        return response

    def detach(self) -> Transport:
        """Give the transport to a caller that goes on after the log-in. This connection is of no further use.

        Nothing may be in flight.
        """
        assert not self._in_flight
        self._failure = KafkaError(ErrorCode.NETWORK_EXCEPTION, "its transport was given away")
        return self._transport

    # -- versions

    async def negotiate(self) -> ApiVersionsResponse:
        """Request the broker's versions. Without them every call must pass a version.

        A broker that does not serve our version of ApiVersions responds in version 0 with the versions that it serves
        (KIP-511). Raises KafkaError as `call` does, and with the response's error.
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
        # In every version the error code is the first field, and the header has no tagged fields.
        if int.from_bytes(payload[4:6], "big") == ErrorCode.UNSUPPORTED_VERSION:
            in_flight.version = 0
        return await in_flight.wait_response()

    def version_for(self, request: type[Request[Message]]) -> int:
        """Return the highest stable version that both the broker and this client have.

        Raises KafkaError (UNSUPPORTED_VERSION) if there is none, ValueError before `negotiate`.
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
        if self._marked is not None:
            frame = self._marked(frame[4:])
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
            if view:  # cancelled: the broker would take the next request for the rest of this one
                self.fail(ErrorCode.NETWORK_EXCEPTION, "a request was cut off")

    async def wait_payload(self, in_flight: InFlight[Any]) -> bytes:
        """Read until this request's response has arrived, or wait while another task reads."""
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
        """Read one response, that of the oldest request. A cancelled read loses no bytes."""
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
        if isinstance(error, ssl.SSLError):
            # With TLS 1.3 the broker looks at the client's certificate only after the handshake.
            return self._fail_with(tls_failure(self._transport.peer, error))
        text = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
        return self.fail(ErrorCode.NETWORK_EXCEPTION, text)

    def fail(self, code: ErrorCode, text: str) -> KafkaError:
        """Close the connection for this reason, unless it is closed. Returns the error to raise: the first reason's."""
        return self._fail_with(KafkaError(code, self._about_peer(text)))

    def _fail_with(self, reason: KafkaError) -> KafkaError:
        if self._failure is None:
            self._failure = reason
            self._in_flight.clear()
            self._transport.close()
            self._received.unpark_all()
        return self._again()

    def _about_peer(self, text: str | None) -> str:
        return f"{self._transport.peer}: {text}"

    def _again(self) -> KafkaError:
        """Return the reason why the connection is closed, as a new exception."""
        assert self._failure is not None
        return type(self._failure)(self._failure.code, self._failure.message)

    def _check_open(self) -> None:
        if self._failure is not None:
            raise self._again()


def next_correlation_id(previous: int) -> int:
    """Return the next correlation id: one more, or 0 after the largest int32."""
    return 0 if previous == CORRELATION_ID_MAX else previous + 1


def has_response(request: Message) -> bool:
    """Whether brokers respond to the request: to all but a Produce with acks=0."""
    return not (request.API_KEY == 0 and getattr(request, "acks", None) == 0)
