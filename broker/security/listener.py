"""`ListenerSecurity`: how the peers of one listener prove who they are.

Source: ``ChannelBuilders``, ``SslChannelBuilder``, ``SaslChannelBuilder``.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import TYPE_CHECKING

from oncelog.broker.config.definitions import ConfigError
from oncelog.broker.credentials.stores import StoreError
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.requests.request import AuthenticationFailed, CloseConnection
from oncelog.broker.seams.clock import real_time
from oncelog.broker.seams.extras import install_command
from oncelog.broker.seams.tls import TlsTransport, read_file
from oncelog.broker.seams.transport import SocketTransport
from oncelog.broker.security.failed_authentication import FailedAuthentication
from oncelog.broker.security.sasl.listener import SaslListener
from oncelog.broker.security.sasl.login import SaslLogin
from oncelog.broker.security.settings import ListenerSettings
from oncelog.broker.security.tls.context import ListenerTls, incompatibility, listener_tls
from oncelog.broker.security.tls.failures import handshake_failure
from oncelog.broker.security.tls.principal import NoMatchingRule

if TYPE_CHECKING:
    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.net.base_connection import BaseConnection
    from oncelog.broker.seams.transport import Transport
    from oncelog.broker.security.services import LoginServices

log = get_logger(__name__)

HANDSHAKE_SECONDS = 10
"""Real seconds in which a peer must finish its TLS handshake."""


class ListenerSecurity:
    """The security of a listener named ``name`` with another protocol than PLAINTEXT, by its keys in ``config``.

    Raises ConfigError.
    """

    def __init__(self, name: str, protocol: str, config: BrokerConfig) -> None:
        self._name = name
        self.protocol = protocol
        settings = ListenerSettings(name, config)
        self._tls = self._load_tls(settings) if protocol.endswith("SSL") else None
        self._tls_source = self._read_source(settings)
        self._sasl = SaslListener(settings) if protocol.startswith("SASL") else None
        self._services: LoginServices

    def attach(self, services: LoginServices) -> None:
        """Use the configuration, with its dynamic changes, and the users of this node from now on."""
        self._services = services
        services.config.reconfigurables.append(self)
        try:
            self._tls, self._tls_source = self._reloaded(services.config.current, is_start=True)
        except ConfigError as error:
            log.error("the certificates of the dynamic configuration cannot be used", error=str(error))
        if self._tls is not None and (period := self._tls.wrong_period(services.clock.now_ms() / 1000)):
            log.warning(f"listener {self._name}: clients will refuse its certificate {period}")
        if self._sasl is not None:
            self._sasl.attach(services)

    def validate(self, config: BrokerConfig) -> None:
        """See `Reconfigurable`."""
        self._reloaded(config)

    def reconfigure(self, config: BrokerConfig) -> None:
        """Use other certificates for connections from now on. See `Reconfigurable`."""
        try:
            self._tls, self._tls_source = self._reloaded(config)
        except ConfigError as error:  # its files have changed since it was validated
            log.error("certificates were not reloaded", listener=self._name, error=str(error))

    def _reloaded(
        self, config: BrokerConfig, *, is_start: bool = False
    ) -> tuple[ListenerTls | None, dict[str, object]]:
        """Return the TLS settings for another configuration, and the keys and files that they are made of.

        Raises ConfigError if they are invalid, or another broker's (``SslFactory.CertificateEntries``).
        """
        settings = ListenerSettings(self._name, config)
        source = self._read_source(settings)
        if self._tls is None or source == self._tls_source:
            return self._tls, source
        tls = self._load_tls(settings)
        problem = incompatibility(
            self._tls.certificate,
            tls.certificate,
            allow_dn_changes=is_start or settings.is_true("ssl.allow.dn.changes"),
            allow_san_changes=is_start or settings.is_true("ssl.allow.san.changes"),
        )
        if problem is not None:
            raise ConfigError(
                f"Validation of dynamic config update of SSLFactory failed: listener {self._name}: {problem}"
            )
        return tls, source

    @staticmethod
    def _read_source(settings: ListenerSettings) -> dict[str, object]:
        """Return the keys of TLS, and the content of the files that they name: a file may be replaced."""
        source: dict[str, object] = dict(settings.tls_values())
        for key in ("ssl.keystore.location", "ssl.truststore.location"):
            path = settings.text(key)
            if path is not None:
                with suppress(OSError):  # `_load_tls` says so
                    source[f"content of {key}"] = read_file(path)
        return source

    async def prepare(self) -> None:
        """Fetch the keys for log-ins, before the first connection. Raises ConfigError if that fails."""
        if self._sasl is not None:
            await self._sasl.prepare()

    async def run(self) -> None:
        """Refresh these keys until cancelled; return at once if there are none."""
        if self._sasl is not None:
            await self._sasl.run()

    def wrap(self, transport: Transport) -> Transport:
        """Return the transport for a connection that was accepted. Raises OSError if the peer has gone."""
        if self._tls is None:
            return transport
        assert isinstance(transport, SocketTransport)
        return TlsTransport(transport, self._tls.context)

    async def establish(self, connection: BaseConnection) -> None:
        """Shake hands and set the connection's principal, or let it log in with its first requests.

        Raises CloseConnection if the handshake fails, OSError.
        """
        if self._tls is not None:
            await self._shake_hands(connection, self._tls)
        if self._sasl is not None:
            SaslLogin(self._sasl, connection).begin()

    async def _shake_hands(self, connection: BaseConnection, tls: ListenerTls) -> None:
        transport = connection.transport
        assert isinstance(transport, TlsTransport)
        certificate = None
        with real_time.move_on_after(HANDSHAKE_SECONDS) as scope:
            try:
                certificate = await transport.handshake()
            except ssl.SSLError as error:
                raise self._failure(connection, handshake_failure(error)) from None
        if scope.cancelled_caught:
            reason = f"no TLS handshake in {HANDSHAKE_SECONDS} s"
            self._tell(connection, reason)
            raise CloseConnection(reason)
        try:
            name = tls.principal(certificate)
        except NoMatchingRule as error:
            raise self._failure(connection, error.reason) from None
        if name is not None:
            connection.principal = f"User:{name}"

    def _tell(self, connection: BaseConnection, reason: str) -> None:
        """Report the failed handshake to the observers."""
        for observe in self._services.login_observers:
            observe(connection, FailedAuthentication("TLS", str(reason)))

    def _failure(self, connection: BaseConnection, reason: str) -> AuthenticationFailed:
        self._tell(connection, reason)
        return AuthenticationFailed(
            reason, self._services.config.current.connection_failed_authentication_delay_ms / 1000
        )

    def _load_tls(self, settings: ListenerSettings) -> ListenerTls:
        try:
            return listener_tls(settings.tls_values(), read_file)
        except StoreError as error:
            raise ConfigError(f"listener {self._name}: {error}") from None
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"listener {self._name}: TLS needs {error.name}: {install_command('security')}"
            ) from None
