"""`SaslListener`: the mechanisms of a listener. `SaslLogin`: the log-in of one connection, and the end of its session.

While a connection logs in, its frames come here and not to the dispatcher (`Connection.gate`). After that the gate is
gone, or looks at each frame whether the session has ended (KIP-368). Source: ``SaslChannelBuilder``, ``KafkaChannel``.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from oncelog.broker.config.definitions import ConfigError
from oncelog.broker.request import AuthenticationFailed, CloseConnection
from oncelog.broker.seams.entropy import unguessable
from oncelog.broker.security.sasl import jaas
from oncelog.broker.security.sasl.authenticator import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SaslServerAuthenticator,
    State,
    Step,
)
from oncelog.broker.security.sasl.plain import PLAIN, PlainServer
from oncelog.broker.security.sasl.scram import (
    SCRAM_MECHANISMS,
    ScramCredential,
    ScramMechanism,
    ScramServer,
)

if TYPE_CHECKING:
    from oncelog.broker.net.connection import Connection
    from oncelog.broker.request import Pending
    from oncelog.broker.security.sasl.mechanism import SaslServer
    from oncelog.broker.security.settings import ListenerSettings
    from oncelog.broker.services import Services

SERVED_MECHANISMS = (PLAIN, *SCRAM_MECHANISMS)
REAUTH_INTERVAL_MIN_S = 1.0
"""A client may renew its log-in once in this many seconds (``KafkaChannel.MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS``)."""
NONCE_BYTES = 20

_key_at = struct.Struct(">h").unpack_from


class SaslListener:
    """The mechanisms of a listener, by its settings. Raises ConfigError."""

    def __init__(self, settings: ListenerSettings) -> None:
        self._settings = settings
        self.mechanisms = settings.items("sasl.enabled.mechanisms")
        self.receive_bytes_max = settings.mechanism_int("", "sasl.server.max.receive.size")
        self.services: Services
        for mechanism in self.mechanisms:
            if mechanism not in SERVED_MECHANISMS:
                why = "Kerberos is not served" if mechanism == "GSSAPI" else "it is unknown"
                raise ConfigError(
                    f"listener {settings.name}: sasl.enabled.mechanisms={mechanism}: {why}; "
                    f"there are {', '.join(SERVED_MECHANISMS)}"
                )
        if not self.mechanisms:
            raise ConfigError(f"listener {settings.name}: sasl.enabled.mechanisms is empty")
        self._passwords = self._plain_passwords() if PLAIN in self.mechanisms else {}

    def new_authenticator(self) -> SaslServerAuthenticator:
        """Return the state machine for a connection."""
        return SaslServerAuthenticator(
            self.mechanisms,
            self._new_server,
            lambda mechanism: self._settings.mechanism_int(mechanism, "connections.max.reauth.ms"),
            self.services.clock.now_ms,
        )

    def _new_server(self, mechanism: str) -> SaslServer:
        if mechanism == PLAIN:
            return PlainServer(self._password)
        scram = SCRAM_MECHANISMS[mechanism]
        return ScramServer(scram, lambda user: self._credential(scram, user), lambda _: None, self._new_nonce)

    def _password(self, user: str) -> str | None:
        return self.services.users.get(user, self._passwords.get(user))

    def _credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        record = self.services.metadata.image.scram_credentials.get((user, mechanism.number))
        if record is None:
            return None
        return ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations)

    @staticmethod
    def _new_nonce() -> str:
        return unguessable(NONCE_BYTES).hex()

    def _plain_passwords(self) -> dict[str, str]:
        """Return the passwords of ``user_NAME="PASSWORD"`` in the mechanism's JAAS text. Raises ConfigError."""
        text = self._settings.mechanism_text(PLAIN, "sasl.jaas.config")
        if text is None:
            return {}
        key = f"listener.name.{self._settings.name.lower()}.plain.sasl.jaas.config"
        try:
            module = jaas.parse(text)
        except jaas.JaasError as error:
            raise ConfigError(f"{key}: {error}") from None
        return {
            name.removeprefix("user_"): password
            for name, password in module.options.items()
            if name.startswith("user_")
        }


class SaslLogin:
    """The log-in of a connection."""

    def __init__(self, listener: SaslListener, connection: Connection) -> None:
        self._listener = listener
        self._connection = connection
        self._authenticator = listener.new_authenticator()
        self._clock = listener.services.clock
        self._ends_at: float | None = None
        """When the session ends (broker time, seconds)."""
        self._logged_in_at = 0.0

    def begin(self) -> None:
        """Take the connection's frames until it has logged in."""
        self._connection.gate = self._handle
        self._connection.frame_bytes_max = self._listener.receive_bytes_max

    def _handle(self, frame: memoryview) -> Pending[Any] | None:
        connection = self._connection
        step = self._authenticator.handle(frame)
        if step.dispatch:
            return connection.dispatch_now(frame)
        connection.writer.out += step.send
        if step.failed is not None:
            config = self._listener.services.config.current
            delay_ms = config.connection_failed_authentication_delay_ms
            raise AuthenticationFailed(f"authentication failed: {step.failed}", delay_ms / 1000)
        if self._authenticator.state is State.COMPLETE:
            self._finish()
        return None

    def _finish(self) -> None:
        connection, lifetime_ms = self._connection, self._authenticator.lifetime_ms
        now = self._clock.monotonic()
        connection.principal = f"User:{self._authenticator.principal_name}"
        connection.frame_bytes_max = None
        connection.gate = self._watch
        self._logged_in_at = now
        self._ends_at = None if lifetime_ms is None else now + lifetime_ms / 1000

    def _watch(self, frame: memoryview) -> Pending[Any] | None:
        """Pass requests of a session on. One after its end closes the connection; a SaslHandshake renews it."""
        api_key = _key_at(frame, 0)[0]
        connection = self._connection
        if (
            api_key == SASL_HANDSHAKE
            and self._clock.monotonic() - self._logged_in_at >= REAUTH_INTERVAL_MIN_S
        ):
            self._authenticator.reauthenticate()
            self.begin()
            return self._handle(frame)
        if (
            self._ends_at is not None
            and self._clock.monotonic() > self._ends_at
            and api_key
            not in (
                SASL_HANDSHAKE,
                SASL_AUTHENTICATE,
            )
        ):
            raise CloseConnection("the session has expired (connections.max.reauth.ms, or the token's end)")
        return connection.dispatch_now(frame)


__all__ = ["SaslListener", "SaslLogin", "Step"]
