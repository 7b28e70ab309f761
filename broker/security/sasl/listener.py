"""`SaslListener`: the mechanisms of a listener, by its settings. Source: ``SaslChannelBuilder``, ``JaasContext``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.config.definitions import ConfigError
from oncelog.broker.credentials import jaas
from oncelog.broker.credentials.jaas import OAUTHBEARER, PLAIN
from oncelog.broker.credentials.scram import SCRAM_MECHANISMS, ScramCredential, ScramMechanism
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.seams.entropy import unguessable
from oncelog.broker.security.sasl.authenticator import SaslServerAuthenticator
from oncelog.broker.security.sasl.oauth_settings import OAuthSettings
from oncelog.broker.security.sasl.oauthbearer import OAuthBearerServer
from oncelog.broker.security.sasl.plain import PlainServer
from oncelog.broker.security.sasl.scram import ScramServer

if TYPE_CHECKING:
    from oncelog.broker.net.base_connection import BaseConnection
    from oncelog.broker.security.sasl.mechanism import SaslServer
    from oncelog.broker.security.services import LoginServices
    from oncelog.broker.security.settings import ListenerSettings

log = get_logger(__name__)

SERVED_MECHANISMS = tuple(jaas.LOGIN_MODULES)
NONCE_BYTES = 20

_HANDLER_KEY = "sasl.server.callback.handler.class"


class SaslListener:
    """The mechanisms of a listener. Raises ConfigError for settings that cannot be used."""

    def __init__(self, settings: ListenerSettings) -> None:
        self._settings = settings
        self.mechanisms = settings.items("sasl.enabled.mechanisms")
        self.receive_bytes_max = settings.mechanism_int("", "sasl.server.max.receive.size")
        self.services: LoginServices
        self._check_mechanisms()
        self._check_jaas_keys()
        self._passwords = {
            name.removeprefix("user_"): password
            for name, password in self._jaas_options(PLAIN).items()
            if name.startswith("user_")
        }
        self._oauth: OAuthSettings | None = None
        if OAUTHBEARER in self.mechanisms:
            self._oauth = OAuthSettings(settings, self._jaas_options(OAUTHBEARER), self._now_ms)

    def attach(self, services: LoginServices) -> None:
        """Use what the node has for log-ins from now on."""
        self.services = services
        if PLAIN in self.mechanisms and not self._passwords and not services.users:
            log.warning(
                f"listener {self._settings.name}: PLAIN lets nobody in: there is no --user, and no user_NAME=… in "
                + self._jaas_key(PLAIN)
            )

    def new_authenticator(self, connection: BaseConnection) -> SaslServerAuthenticator:
        """Return the state machine for a connection."""
        return SaslServerAuthenticator(
            self.mechanisms,
            self._new_server,
            lambda mechanism: self._settings.mechanism_int(mechanism, "connections.max.reauth.ms"),
            self._now_ms,
            lambda: connection.knows_versions,
        )

    async def prepare(self) -> None:
        """Fetch what log-ins need. Raises ConfigError if that fails."""
        if self._oauth is not None:
            await self._oauth.prepare()

    async def run(self) -> None:
        """Keep it up to date until cancelled; may end before."""
        if self._oauth is not None:
            await self._oauth.run()

    # -- settings

    def _check_mechanisms(self) -> None:
        name = self._settings.name
        if not self.mechanisms:
            raise ConfigError(f"listener {name}: sasl.enabled.mechanisms is empty")
        for mechanism in self.mechanisms:
            if mechanism not in SERVED_MECHANISMS:
                why = "Kerberos, the default, is not served" if mechanism == "GSSAPI" else "it is unknown"
                raise ConfigError(
                    f"listener {name}: sasl.enabled.mechanisms={mechanism}: {why}; "
                    f"there are {', '.join(SERVED_MECHANISMS)}"
                )
            handler = self._settings.mechanism_text(mechanism, _HANDLER_KEY)
            if handler and mechanism != OAUTHBEARER:
                raise ConfigError(
                    f"listener {name}: {mechanism.lower()}.{_HANDLER_KEY}={handler}: there are such classes for "
                    f"{OAUTHBEARER} only"
                )

    def _check_jaas_keys(self) -> None:
        """Raise ConfigError for a JAAS text that has no effect, because its key names no mechanism (as in Kafka)."""
        settings = self._settings
        if settings.text("sasl.jaas.config") is None:
            return
        if not any(settings.mechanism_text(mechanism, "sasl.jaas.config") for mechanism in self.mechanisms):
            raise ConfigError(
                f"listener {settings.name}: sasl.jaas.config is without listener or mechanism: "
                f"write it as {self._jaas_key(self.mechanisms[0])}"
            )

    def _jaas_key(self, mechanism: str) -> str:
        return f"listener.name.{self._settings.name.lower()}.{mechanism.lower()}.sasl.jaas.config"

    def _jaas_options(self, mechanism: str) -> dict[str, str]:
        """Return the options in the JAAS text of a mechanism, none without such a text. Raises ConfigError."""
        text = self._settings.mechanism_text(mechanism, "sasl.jaas.config")
        if text is None or mechanism not in self.mechanisms:
            return {}
        try:
            return jaas.options_of(mechanism, text)
        except jaas.JaasError as error:
            raise ConfigError(f"{self._jaas_key(mechanism)}: {error}") from None

    # -- mechanisms

    def _now_ms(self) -> int:
        return self.services.clock.now_ms()

    def _new_server(self, mechanism: str) -> SaslServer:
        if mechanism == PLAIN:
            return PlainServer(self._password)
        if mechanism == OAUTHBEARER:
            assert self._oauth is not None
            return OAuthBearerServer(self._oauth.validate)
        scram = SCRAM_MECHANISMS[mechanism]
        return ScramServer(
            scram,
            lambda user: self._credential(scram, user),
            lambda token_id: self.services.delegation_tokens.credential(scram, token_id),
            _new_nonce,
        )

    def _password(self, user: str) -> str | None:
        return self.services.users.get(user, self._passwords.get(user))

    def _credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        record = self.services.metadata.image.scram_credentials.get((user, mechanism.number))
        if record is None:
            return None
        return ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations)


def _new_nonce() -> str:
    return unguessable(NONCE_BYTES).hex()
