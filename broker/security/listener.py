"""`ListenerSecurity`: how the peers of one listener prove who they are.

Source: ``ChannelBuilders``, ``SslChannelBuilder``.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from oncelog.broker.config.definitions import ConfigError
from oncelog.broker.request import CloseConnection
from oncelog.broker.seams.clock import real_time
from oncelog.broker.seams.tls import TlsTransport, read_file
from oncelog.broker.seams.transport import SocketTransport
from oncelog.broker.security.tls.context import ListenerTls, listener_tls
from oncelog.broker.security.tls.principal import NoMatchingRule
from oncelog.broker.security.tls.stores import StoreError

if TYPE_CHECKING:
    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.net.connection import Connection
    from oncelog.broker.seams.transport import Transport

SSL_KEYS = (
    "ssl.cipher.suites",
    "ssl.client.auth",
    "ssl.enabled.protocols",
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.principal.mapping.rules",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
)
"""The keys that make a listener's TLS settings."""
HANDSHAKE_SECONDS = 10
"""Real seconds in which a peer must finish its TLS handshake."""


class ListenerSecurity:
    """The security of a listener named ``name``, by its keys in ``config``. Raises ConfigError."""

    def __init__(self, name: str, config: BrokerConfig) -> None:
        self._name = name
        self._tls = self._load(config)

    def _load(self, config: BrokerConfig) -> ListenerTls:
        try:
            return listener_tls(security_values(config, self._name), read_file)
        except StoreError as error:
            raise ConfigError(f"listener {self._name}: {error}") from None
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"listener {self._name}: TLS needs {error.name}: pip install 'oncelog[security]'"
            ) from None

    def wrap(self, transport: Transport) -> Transport:
        """Return the transport for a connection that was accepted. Raises OSError if the peer has gone."""
        assert isinstance(transport, SocketTransport)
        return TlsTransport(transport, self._tls.context)

    async def establish(self, connection: Connection) -> None:
        """Shake hands, and set the connection's principal. Raises CloseConnection if that fails, OSError."""
        transport = connection.transport
        assert isinstance(transport, TlsTransport)
        tls = self._tls
        certificate = None
        with real_time.move_on_after(HANDSHAKE_SECONDS) as scope:
            try:
                certificate = await transport.handshake()
            except ssl.SSLError as error:
                why = error.reason or error.strerror or "it failed"
                raise CloseConnection(f"TLS handshake: {why.lower().replace('_', ' ')}") from None
        if scope.cancelled_caught:
            raise CloseConnection(f"no TLS handshake in {HANDSHAKE_SECONDS} s")
        try:
            name = tls.principal(certificate)
        except NoMatchingRule as error:
            raise CloseConnection(str(error)) from None
        if name is not None:
            connection.principal = f"User:{name}"


def security_values(config: BrokerConfig, listener_name: str) -> dict[str, str | None]:
    """Return the ``ssl.`` keys that hold for a listener: its own (``listener.name.NAME.KEY``), else the broker's."""
    prefix = f"listener.name.{listener_name.lower()}."
    values = {key: config.text(key) for key in SSL_KEYS}
    for key, text in config.texts.items():
        if key.lower().startswith(prefix) and key[len(prefix) :] in values:
            values[key[len(prefix) :]] = text
    return values
