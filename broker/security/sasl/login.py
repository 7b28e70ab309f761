"""`SaslLogin`: the log-in of one connection, and the end of its session.

While a connection logs in, its frames come here and not to the dispatcher (`BaseConnection.authentication_handler`).
After that there is no authentication handler, or one that refuses frames after the end of the session (KIP-368).
Source: ``SaslChannelBuilder``, ``KafkaChannel``.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any

from oncelog.broker.requests.request import AuthenticationFailed, CloseConnection
from oncelog.broker.seams.clock import real_time
from oncelog.broker.security.failed_authentication import FailedAuthentication
from oncelog.broker.security.sasl.authenticator import State
from oncelog.wire.header import SASL_HANDSHAKE_KEY

if TYPE_CHECKING:
    from oncelog.broker.logging.reasons import Reason
    from oncelog.broker.net.base_connection import BaseConnection
    from oncelog.broker.requests.request import Pending
    from oncelog.broker.security.sasl.authenticator import Step
    from oncelog.broker.security.sasl.listener import SaslListener

REAUTH_INTERVAL_MIN_S = 1.0
"""A client may renew its log-in once in this many seconds (``KafkaChannel.MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS``)."""

_key_at = struct.Struct(">h").unpack_from


class SaslLogin:
    """The log-in of a connection."""

    def __init__(self, listener: SaslListener, connection: BaseConnection) -> None:
        self._listener = listener
        self._connection = connection
        self._authenticator = listener.new_authenticator(connection)
        self._clock = listener.services.clock
        self._ends_at: float | None = None
        """When the session ends (broker time, seconds)."""
        self._renewed_at = -math.inf
        """When the latest renewal began (broker time, seconds)."""
        self._reported: str | None = None
        """Why the client's latest token was refused, as it was reported."""

    def begin(self) -> None:
        """Take the connection's frames until it has logged in."""
        self._connection.authentication_handler = self._handle
        self._connection.needs_no_authentication = None
        self._connection.frame_bytes_max = self._listener.receive_bytes_max
        self._connection.must_log_in_since = real_time.monotonic()

    def _handle(self, frame: memoryview) -> Pending[Any] | None:
        connection = self._connection
        step = self._authenticator.handle(frame)
        if step.dispatch:
            return connection.dispatch_authenticated(frame)
        connection.writer.out += step.send
        if step.exchange is not None:
            for observe in self._listener.services.login_observers:
                observe(connection, step.exchange)
        why = step.failed if step.failed is not None else step.refused
        if why is not None and why != self._reported:
            self._report(why, step)
        if step.failed is not None:
            config = self._listener.services.config.current
            delay_ms = config.connection_failed_authentication_delay_ms
            raise AuthenticationFailed(_closing(step.failed), delay_ms / 1000)
        # Clients that close the connection when their token is refused say nothing else.
        self._reported = step.refused
        connection.close_reason = None if step.refused is None else _closing(step.refused)
        if self._authenticator.state is State.COMPLETE:
            self._finish()
        return None

    def _report(self, why: Reason, step: Step) -> None:
        """Report a client that is turned away to the observers."""
        said = ("", "") if step.exchange is None else (step.exchange.mechanism, step.exchange.user)
        failed = FailedAuthentication("SASL", str(why), *said)
        for observe in self._listener.services.login_observers:
            observe(self._connection, failed)

    def _finish(self) -> None:
        connection, lifetime_ms = self._connection, self._authenticator.lifetime_ms
        now = self._clock.monotonic()
        connection.principal = f"User:{self._authenticator.principal_name}"
        connection.is_token_authenticated = self._authenticator.is_token_authenticated
        connection.frame_bytes_max = None
        connection.authentication_handler = self._watch
        connection.needs_no_authentication = self._needs_no_authentication
        connection.must_log_in_since = None
        self._ends_at = None if lifetime_ms is None else now + lifetime_ms / 1000

    def _needs_no_authentication(self, api_key: int) -> bool:
        """Whether a request is one of a session that goes on."""
        return self._ends_at is None or (
            api_key != SASL_HANDSHAKE_KEY and self._clock.monotonic() <= self._ends_at
        )

    def _watch(self, frame: memoryview) -> Pending[Any] | None:
        """Dispatch requests of a session. One after its end closes the connection. A SaslHandshake renews the session
        if it has an end; otherwise its handler refuses it.
        """
        connection = self._connection
        if self._ends_at is None:
            return connection.dispatch_authenticated(frame)
        now = self._clock.monotonic()
        if _key_at(frame, 0)[0] == SASL_HANDSHAKE_KEY and now - self._renewed_at >= REAUTH_INTERVAL_MIN_S:
            self._renewed_at = now
            self._authenticator.reauthenticate()
            self.begin()
            return self._handle(frame)
        if now > self._ends_at:
            raise CloseConnection("the session has expired (connections.max.reauth.ms, or the token's end)")
        return connection.dispatch_authenticated(frame)


def _closing(why: Reason) -> Reason:
    """Return the reason of a connection's end by a failed log-in."""
    return why.after("authentication failed: ")
