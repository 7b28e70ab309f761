"""`Login`: one log-in, request by request. Pure: who sends the requests passes it the responses.

Source: ``SaslClientAuthenticator``.
"""

from __future__ import annotations

from typing import TypeAlias

from oncelog.broker.client.errors import AuthenticationError, to_error_code
from oncelog.broker.client.security.mechanisms import ChallengeRefused, SaslClient
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from oncelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

LoginRequest: TypeAlias = SaslHandshakeRequest | SaslAuthenticateRequest
HANDSHAKE_VERSION = 1
"""Of SaslHandshake: with it, tokens are in SaslAuthenticate requests (Kafka 1.0, KIP-152)."""
RENEWED_AT = 0.85
"""The share of a session after which it is renewed. Kafka's clients choose between this and 0.95, at random, each."""


class Login:
    """One log-in by ``mechanism``, or the renewal of one, which is the same."""

    def __init__(self, mechanism: str, client: SaslClient) -> None:
        self._mechanism = mechanism
        self._client = client
        self.lifetime_ms = 0
        """How long the session lasts; 0: for ever."""

    def begin(self) -> LoginRequest:
        """Return the first request."""
        return SaslHandshakeRequest(self._mechanism)

    def following(self, response: object) -> LoginRequest | None:
        """Return the request after this response; None: the client has logged in. Raises AuthenticationError."""
        if isinstance(response, SaslHandshakeResponse):
            self._check_handshake(response)
            return SaslAuthenticateRequest(self._client.first())
        assert isinstance(response, SaslAuthenticateResponse)
        if response.error_code:
            raise AuthenticationError(
                to_error_code(response.error_code),
                response.error_message or f"the log-in by {self._mechanism} is refused",
            )
        try:
            token = self._client.following(bytes(response.auth_bytes))
        except ChallengeRefused as error:
            raise AuthenticationError(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error)) from None
        if token is not None:
            return SaslAuthenticateRequest(token)
        self.lifetime_ms = response.session_lifetime_ms
        return None

    @property
    def renewal_s(self) -> float | None:
        """In how many seconds the session should be renewed; None: never."""
        return RENEWED_AT * self.lifetime_ms / 1000 if self.lifetime_ms > 0 else None

    def _check_handshake(self, response: SaslHandshakeResponse) -> None:
        if response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(response.mechanisms) or "none"
            raise AuthenticationError(
                ErrorCode.UNSUPPORTED_SASL_MECHANISM,
                f"the broker does not offer {self._mechanism} (sasl.mechanism), but {offered}",
            )
        if response.error_code:
            code = to_error_code(response.error_code)
            hint = " (this port asks for no log-in: security.protocol)" * (
                code is ErrorCode.ILLEGAL_SASL_STATE
            )
            raise AuthenticationError(code, f"SaslHandshake ({self._mechanism}) is refused{hint}")
