"""`ClientSecurity`: the security of a client, made of its keys once, and used for each of its connections.

Source: ``ClientUtils.createChannelBuilder``, ``SslChannelBuilder``, ``SaslChannelBuilder``.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from functools import partial

from oncelog.broker.client.errors import AuthenticationError
from oncelog.broker.client.security.keys import check_keys
from oncelog.broker.client.security.login import Login
from oncelog.broker.client.security.mechanisms import OAuthBearerClient, PlainClient, SaslClient, ScramClient
from oncelog.broker.client.security.oauth_tokens import tokens_of
from oncelog.broker.client.security.tls import client_context, tls_failure
from oncelog.broker.config.definitions import ConfigError
from oncelog.broker.credentials import jaas
from oncelog.broker.credentials.jaas import OAUTHBEARER, PLAIN
from oncelog.broker.credentials.scram import SCRAM_MECHANISMS, TOKEN_AUTH, ScramMechanism, salted_password
from oncelog.broker.seams.entropy import unguessable
from oncelog.broker.seams.tls import TlsTransport, read_file
from oncelog.broker.seams.transport import SocketTransport, Transport

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
NONCE_BYTES = 20


class ClientSecurity:
    """The TLS and SASL of a client with these settings. Its representation shows no secret.

    ``values``: the keys of a client.properties (`read_client_properties`); those that are not about security are not
    looked at. Raises ConfigError, which names the key or the file, and quotes no password.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        check_keys(values)
        self.protocol = (values.get("security.protocol") or PROTOCOLS[0]).strip().upper()
        if self.protocol not in PROTOCOLS:
            raise ConfigError(f"security.protocol={self.protocol}: expected one of {', '.join(PROTOCOLS)}")
        self._tls = client_context(values, read_file) if self.protocol.endswith("SSL") else None
        self.mechanism: str | None = None
        """The mechanism of SASL; None: the client does not log in."""
        self._options: dict[str, str] = {}
        self._salted: dict[tuple[bytes, int], bytes] = {}
        if self.protocol.startswith("SASL"):
            self.mechanism = self._checked_mechanism(values)
            self._options = self._jaas_options(self.mechanism, values)
            if self.mechanism == OAUTHBEARER:
                self._tokens, self._extensions = tokens_of(values, self._options)

    def __repr__(self) -> str:
        return f"ClientSecurity({self.protocol}{f' {self.mechanism}' if self.mechanism else ''})"

    @property
    def user(self) -> str | None:
        """The user that the JAAS text names, if it names one."""
        return self._options.get("username")

    async def secured(self, transport: Transport, host: str) -> Transport:
        """Return the transport for a new connection to ``host``: over TLS, after the handshake, where there is TLS.

        Closes the connection if that fails. Raises AuthenticationError, OSError.
        """
        if self._tls is None:
            return transport
        assert isinstance(transport, SocketTransport)
        wrapped: Transport = transport
        try:
            _check_host(host)
            wrapped = over_tls = TlsTransport(transport, self._tls, host)
            await over_tls.handshake()
        except ssl.SSLError as error:
            wrapped.close()
            raise tls_failure(transport.peer, error) from None
        except ConnectionError as error:
            wrapped.close()
            hint = "perhaps this port does not speak TLS"
            raise ConnectionError(f"TLS handshake: {error.strerror or error} ({hint})") from error
        except BaseException:
            wrapped.close()
            raise
        return over_tls

    async def new_login(self) -> Login | None:
        """Return what logs a connection in, or renews its session; None where clients do not log in.

        Raises AuthenticationError if there is no token.
        """
        if self.mechanism is None:
            return None
        return Login(self.mechanism, await self._client(self.mechanism))

    async def _client(self, mechanism: str) -> SaslClient:
        if mechanism == OAUTHBEARER:
            return OAuthBearerClient(await self._tokens.token(), self._extensions)
        user, password = self._options["username"], self._options["password"]
        if mechanism == PLAIN:
            return PlainClient(user, password)
        scram = SCRAM_MECHANISMS[mechanism]
        is_token = self._options.get(TOKEN_AUTH, "").strip().lower() == "true"
        salted = partial(self._salted_password, scram, password)
        return ScramClient(scram, user, salted, unguessable(NONCE_BYTES).hex(), is_token=is_token)

    def _salted_password(
        self, mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
    ) -> bytes:
        """Return the password as SCRAM hashes it. The latest is kept: each connection of a user needs the same."""
        found = self._salted.get((salt, iterations))
        if found is None:
            found = salted_password(mechanism, password, salt, iterations)
            self._salted = {(salt, iterations): found}
        return found

    # -- settings

    @staticmethod
    def _checked_mechanism(values: Mapping[str, str]) -> str:
        mechanism = values.get("sasl.mechanism", "GSSAPI").strip()
        if mechanism not in jaas.LOGIN_MODULES:
            default = "" if "sasl.mechanism" in values else ", the default,"
            why = f"Kerberos{default} is not served" if mechanism == "GSSAPI" else "it is unknown"
            raise ConfigError(f"sasl.mechanism={mechanism}: {why}; there are {', '.join(jaas.LOGIN_MODULES)}")
        return mechanism

    @staticmethod
    def _jaas_options(mechanism: str, values: Mapping[str, str]) -> dict[str, str]:
        text = values.get("sasl.jaas.config")
        if text is None:
            raise ConfigError(f"sasl.jaas.config is missing: {mechanism} needs it")
        try:
            options = jaas.options_of(mechanism, text)
        except jaas.JaasError as error:
            raise ConfigError(f"sasl.jaas.config: {error}") from None
        if mechanism != OAUTHBEARER:
            for option in ("username", "password"):
                if not options.get(option):
                    raise ConfigError(f'sasl.jaas.config: {mechanism} needs {option}="…"')
        return options


def _check_host(host: str) -> None:
    """Raises AuthenticationError for what TLS cannot take as a server's name."""
    try:
        is_name = bool(host) and not host.startswith(".") and bool(host.encode("idna"))
    except UnicodeError:
        is_name = False
    if not is_name:
        raise AuthenticationError(None, f"TLS: {host!r} is no name of a host")
