"""`SaslServerAuthenticator`: the log-in of one connection, frame by frame. Pure: frames in, a `Step` out.

Source: Kafka's class of that name, with its states.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import NamedTuple

from oncelog.broker.logging.reasons import Reason
from oncelog.broker.security.sasl.mechanism import SaslAuthenticationError, SaslError, SaslServer
from oncelog.wire.errors import DecodeError, ErrorCode
from oncelog.wire.header import (
    API_VERSIONS_KEY,
    SASL_AUTHENTICATE_KEY,
    SASL_HANDSHAKE_KEY,
    read_request_header,
)
from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from oncelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from oncelog.wire.schema import Message

REQUEST_BYTES_MAX = 16 * 1024
"""Bytes of a request before the log-in that carries no token: ApiVersions and SaslHandshake need some hundred. Kafka
has no such limit."""

_fixed_header_at = struct.Struct(">hhi").unpack_from
_SIZE = struct.Struct(">i")


class State(Enum):
    """See ``SaslServerAuthenticator.SaslState``."""

    INITIAL_REQUEST = auto()
    HANDSHAKE_OR_VERSIONS_REQUEST = auto()
    HANDSHAKE_REQUEST = auto()
    AUTHENTICATE = auto()
    REAUTH_PROCESS_HANDSHAKE = auto()
    REAUTH_BAD_MECHANISM = auto()
    COMPLETE = auto()
    FAILED = auto()


class LoginExchange(NamedTuple):
    """A SaslHandshake or SaslAuthenticate with its response, for observers. It holds secrets."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    mechanism: str
    user: str
    """The user that the client claims to be; empty if it has not said so yet."""
    request: Message
    response: Message | None
    """None for a token without a header (SaslHandshake v0), which has no correlation id either."""
    is_refused: bool


class Step(NamedTuple):
    """The next step after a frame: send bytes (a whole frame), hand the frame to the dispatcher (ApiVersions), or close
    the connection with a reason, after sending.
    """

    send: bytes = b""
    dispatch: bool = False
    failed: Reason | None = None
    refused: Reason | None = None
    """Why the client's token is refused, if the log-in goes on: the client may show another one, or end it."""
    exchange: LoginExchange | None = None
    """The frame, decoded, if it was a request of a log-in."""


class SaslServerAuthenticator:
    """``mechanisms``: those that the listener offers. ``new_server`` starts one of them. ``max_reauth_ms`` returns
    ``connections.max.reauth.ms`` of a mechanism, 0 for none. ``now_ms``: wall time. ``knows_versions`` returns whether
    an ApiVersions of the peer's was served: after one that was refused, another one may come.

    Once `state` is COMPLETE, `principal_name` is the user's, and `lifetime_ms` says for how long, None for ever.
    """

    def __init__(
        self,
        mechanisms: Sequence[str],
        new_server: Callable[[str], SaslServer],
        max_reauth_ms: Callable[[str], int],
        now_ms: Callable[[], int],
        knows_versions: Callable[[], bool],
    ) -> None:
        self._mechanisms = list(mechanisms)
        self._new_server = new_server
        self._max_reauth_ms = max_reauth_ms
        self._now_ms = now_ms
        self._knows_versions = knows_versions
        self._server: SaslServer | None = None
        self._mechanism = ""
        self._has_headers = False
        self._client_id: str | None = None
        """Of the SaslHandshake."""
        self._previous: tuple[str, str] | None = None
        """Mechanism and user of the log-in that is being renewed."""
        self._bad_mechanism: Reason | None = None
        self.state = State.INITIAL_REQUEST
        self.principal_name = ""
        self.lifetime_ms: int | None = None
        self.is_token_authenticated = False

    def reauthenticate(self) -> None:
        """Begin again, with the same mechanism and user (KIP-368): the next frame is a SaslHandshake."""
        self._previous = (self._mechanism, self.principal_name)
        self._server = None
        self.state = State.REAUTH_PROCESS_HANDSHAKE

    def handle(self, frame: memoryview) -> Step:
        """Handle one frame without its size. After a `failed` step no frame may follow."""
        try:
            if self.state is State.AUTHENTICATE:
                step = self._authenticate(frame)
            elif self.state is State.REAUTH_BAD_MECHANISM:
                step = Step(failed=self._bad_mechanism)
            else:
                step = self._handshake(frame)
        except (DecodeError, struct.error) as error:
            hint = (
                "; perhaps the client is configured with another security protocol, or is no Kafka client"
                if self.state is State.INITIAL_REQUEST
                else ""
            )
            step = Step(failed=Reason("malformed request during {}: {}{}", self._what, error, hint))
        if step.failed is not None:
            self.state = State.FAILED
        return step

    @property
    def _what(self) -> str:
        return "authentication" if self._previous is None else "re-authentication"

    # -- ApiVersions and SaslHandshake

    def _handshake(self, frame: memoryview) -> Step:
        api_key, version, correlation_id = _fixed_header_at(frame, 0)
        if len(frame) > REQUEST_BYTES_MAX:
            return Step(
                failed=Reason(
                    "a request of {} bytes (API key {}) before the log-in; the limit is {}",
                    len(frame),
                    api_key,
                    REQUEST_BYTES_MAX,
                )
            )
        if api_key not in (API_VERSIONS_KEY, SASL_HANDSHAKE_KEY):
            return Step(
                failed=Reason(
                    "API key {} before the log-in (this listener wants one by SASL; perhaps the client's "
                    "security.protocol is PLAINTEXT or SSL)",
                    api_key,
                )
            )
        if api_key == API_VERSIONS_KEY:
            if self.state is State.INITIAL_REQUEST:
                self.state = State.HANDSHAKE_OR_VERSIONS_REQUEST
            elif self.state is State.HANDSHAKE_OR_VERSIONS_REQUEST and self._knows_versions():
                self.state = State.HANDSHAKE_REQUEST
            if self.state is not State.HANDSHAKE_OR_VERSIONS_REQUEST:
                return Step(failed=Reason("ApiVersions in the state {}", self.state.name))
            return Step(dispatch=True)
        if not SaslHandshakeRequest.MIN_VERSION <= version <= SaslHandshakeRequest.MAX_VERSION:
            return Step(failed=Reason("SaslHandshake v{} is not served", version))
        header = read_request_header(frame, False)
        request = SaslHandshakeRequest.decode(bytes(frame[header.header_size :]), version)
        self._has_headers = version >= 1
        self._client_id = header.client_id
        is_refused = request.mechanism not in self._mechanisms
        error = ErrorCode.UNSUPPORTED_SASL_MECHANISM if is_refused else ErrorCode.NONE
        response = SaslHandshakeResponse(error, self._mechanisms)
        send = _frame(correlation_id, response, version)
        exchange = LoginExchange(
            SASL_HANDSHAKE_KEY,
            version,
            correlation_id,
            header.client_id,
            request.mechanism,
            "",
            request,
            response,
            is_refused,
        )
        if is_refused:
            reason = Reason("Unsupported SASL mechanism {}", request.mechanism[:40])
            return Step(send, failed=reason, exchange=exchange)
        if self._previous is not None and self._previous[0] != request.mechanism:
            self._bad_mechanism = Reason(
                "SASL mechanism '{}' requested by client is not supported for re-authentication of mechanism '{}'",
                request.mechanism,
                self._previous[0],
            )
            self.state = State.REAUTH_BAD_MECHANISM
        else:
            self._mechanism = request.mechanism
            self._server = self._new_server(request.mechanism)
            self.state = State.AUTHENTICATE
        return Step(send, exchange=exchange)

    # -- tokens

    def _authenticate(self, frame: memoryview) -> Step:
        server = self._server
        assert server is not None
        if not self._has_headers:
            send, failed = b"", None
            try:
                answer = self._evaluate(server, bytes(frame))
                send = _SIZE.pack(len(answer)) + answer
            except SaslError as error:
                failed = error.reason.after(f"{self._mechanism}: ")
            bare = SaslAuthenticateRequest(bytes(frame))
            exchange = self._token(server, 0, 0, self._client_id, bare, None, is_refused=failed is not None)
            return Step(send, failed=failed, refused=self._refusal(server), exchange=exchange)
        api_key, version, correlation_id = _fixed_header_at(frame, 0)
        if api_key != SASL_AUTHENTICATE_KEY:
            # Some clients do not notice that a token was refused, and go on.
            during = Reason("API key {} during SASL authentication", api_key)
            return Step(failed=self._refusal(server) or during)
        if not SaslAuthenticateRequest.MIN_VERSION <= version <= SaslAuthenticateRequest.MAX_VERSION:
            return Step(failed=Reason("SaslAuthenticate v{} is not served", version))
        is_flexible = SaslAuthenticateRequest.is_flexible(version)
        header = read_request_header(frame, is_flexible)
        request = SaslAuthenticateRequest.decode(bytes(frame[header.header_size :]), version)
        response = SaslAuthenticateResponse()
        failed = None
        try:
            response.auth_bytes = self._evaluate(server, bytes(request.auth_bytes))
            response.session_lifetime_ms = self.lifetime_ms or 0
        except SaslError as error:
            response.error_code = ErrorCode.SASL_AUTHENTICATION_FAILED
            response.error_message = (
                error.told
                if isinstance(error, SaslAuthenticationError)
                else f"Authentication failed during {self._what} due to invalid credentials with SASL mechanism "
                f"{self._mechanism}"
            )
            failed = error.reason.after(f"{self._mechanism}: ")
        send = _frame(correlation_id, response, version, tagged=is_flexible)
        exchange = self._token(
            server,
            version,
            correlation_id,
            header.client_id,
            request,
            response,
            is_refused=failed is not None,
        )
        return Step(send, failed=failed, refused=self._refusal(server), exchange=exchange)

    def _refusal(self, server: SaslServer) -> Reason | None:
        return None if server.refusal is None else server.refusal.after(f"{self._mechanism}: ")

    def _token(
        self,
        server: SaslServer,
        version: int,
        correlation_id: int,
        client_id: str | None,
        request: SaslAuthenticateRequest,
        response: SaslAuthenticateResponse | None,
        *,
        is_refused: bool,
    ) -> LoginExchange:
        return LoginExchange(
            SASL_AUTHENTICATE_KEY,
            version,
            correlation_id,
            client_id,
            self._mechanism,
            server.authorization_id or server.claimed_name,
            request,
            response,
            is_refused,
        )

    def _evaluate(self, server: SaslServer, token: bytes) -> bytes:
        """Return the mechanism's answer; with its last one the log-in is complete. Raises SaslError."""
        answer = server.evaluate(token)
        if server.is_complete:
            if self._previous is not None and self._previous[1] != server.authorization_id:
                raise SaslAuthenticationError(
                    "Cannot change principals during re-authentication from User.{}: User.{}",
                    self._previous[1],
                    server.authorization_id,
                )
            self.principal_name = server.authorization_id
            self.is_token_authenticated = server.is_token_authenticated
            self.lifetime_ms = self._lifetime_ms(server)
            self._server = None
            self.state = State.COMPLETE
        return answer

    def _lifetime_ms(self, server: SaslServer) -> int | None:
        limits = []
        if server.expires_at_ms is not None:
            limits.append(server.expires_at_ms - self._now_ms())
        max_reauth_ms = self._max_reauth_ms(self._mechanism)
        if max_reauth_ms > 0:
            limits.append(max_reauth_ms)
        return max(0, min(limits)) if limits else None


def _frame(correlation_id: int, response: Message, version: int, *, tagged: bool = False) -> bytes:
    body = _SIZE.pack(correlation_id) + (b"\0" if tagged else b"") + response.encode(version)
    return _SIZE.pack(len(body)) + body
